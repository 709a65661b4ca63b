"""Advice from what `limits watch -o json` wrote is the advice that the live measurement gets."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.app.limits import advise, record
from corelane.app.limits.advise import AdviseError, RecordSource
from corelane.cli import main
from corelane.kernel import cfs
from corelane.kernel.cpu_time import competitors
from corelane.kernel.cpu_time.competitors import Competition, GroupWeight, Level
from corelane.kernel.cpu_time.counters import CPULoad, MeasuredNode, Quota, Rates
from corelane.kernel.cpu_time.threads import Losses
from corelane.limits.advice import judgement
from corelane.limits.advice.inference import Effort
from corelane.limits.advice.subjects import ClusterSnapshot
from corelane.limits.measure import Latency, Measurement, RequestLog
from corelane.view.limits import advice as limits_advice
from corelane.view.limits import watch as limits_watch

SECONDS = 30
CONTAINER, POD, BURSTABLE = "/k/burstable/poda1/app", "/k/burstable/poda1", "/k/burstable"


def path(own: int, beside: list[tuple[int, int]], loose: int = 0) -> Competition:
    """A container, its pod and the pod's class; `beside` are other pods' weights and ms/s used."""

    def levels(seconds: int) -> list[Level]:
        pods = [
            GroupWeight(f"/k/burstable/podb{number}", weight, used_us=1000 * used * seconds)
            for number, (weight, used) in enumerate(beside)
        ]
        return [
            Level(GroupWeight(CONTAINER, own)),
            Level(GroupWeight(POD, own), tuple(pods), loose_us=1000 * loose * seconds),
            Level(GroupWeight(BURSTABLE, own + sum(weight for weight, _ in beside))),
        ]

    found = competitors.competition(levels(0), levels(SECONDS), SECONDS)
    assert found is not None
    return found


def measured(
    rivals: Competition | None, used: int, waited: int, cpus: int = 1, paused: float | None = 0.0, **rates
) -> Measurement:
    of_rates = {"throttled": 0.0, "queued": float(waited), "periods": 300.0, "throttled_periods": 0.0} | rates
    busy = used + (rivals.used if rivals else 0.0)
    return Measurement(
        Rates(float(SECONDS), used=float(used), **of_rates),
        "shop",
        "web-1",
        "app",
        id="f" * 64,
        cpus=cpus,
        threads=4,
        load=CPULoad(cpus, busy, 3.0, max(0.0, 1000.0 * cpus - busy)),
        competition=rivals,
        losses=Losses(neighbours=float(waited), error=2.0, paused=paused),
    )


def recorded(tmp_path: Path, rounds: list[list[Measurement]], version: int = 1) -> RecordSource:
    node = MeasuredNode(2, version)
    lines = [json.dumps(limits_watch.plain(each, [], SECONDS, "now", node)) for each in rounds]
    (tmp_path / "record.json").write_text("\n".join(lines))
    return RecordSource(tmp_path / "record.json")


def advice(found: list[Measurement], weight, latency: Latency | None = None) -> dict:
    snapshot = ClusterSnapshot(local_milli=2000)
    groups = judgement.workloads(found, snapshot)
    advised = [judgement.advise_workload(group, snapshot, latency, weight) for group in groups]
    return limits_advice.plain(advised, [])


def both(
    tmp_path: Path, live: Measurement, version: int, latency: Latency | None = None
) -> tuple[dict, dict]:
    weight = cfs.pod_weight if version == 2 else lambda shares: shares
    source = recorded(tmp_path, [[live]], version)
    read, _ = source.measure(advise.ALL)
    return advice([live], weight, latency), advice(read, source.weight, latency)


LOG = Latency.of_log(
    RequestLog(
        30.0,
        tuple(round(i * 30e9 / 450) for i in range(450)),
        tuple(100.0 if i < 300 else 6e4 for i in range(450)),
    )
)
PODS = st.lists(st.tuples(st.integers(2, 8192), st.integers(0, 4000)), max_size=130)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 4096),
    PODS,
    st.integers(0, 900),
    st.integers(1, 900),
    st.integers(0, 2000),
    st.integers(1, 4),
    st.sampled_from([None, 0.0, 0.25]),
    st.sampled_from([1, 2]),
    st.booleans(),
)
@example(102, [(922, 900)], 0, 100, 800, 1, 0.0, 1, True)
@example(102, [(922, 900)], 0, 100, 90, 1, 0.25, 1, False)
@example(102, [(8, 9)] * 130, 600, 100, 90, 1, 0.25, 1, False)
@example(102, [], 0, 80, 20, 1, None, 1, False)
def test_a_record_gives_the_live_advice(
    tmp_path_factory, own, pods, loose, used, waited, cpus, paused, version, logged
):
    live = measured(path(own, pods, loose), used, waited, cpus, paused)
    with pytest.MonkeyPatch.context() as patch:  # fits take seconds each: the examples below have them
        patch.setattr(judgement, "fit_model", lambda *_: None)
        there, back = both(tmp_path_factory.mktemp("r"), live, version, LOG if logged else None)
    assert back == there


def test_the_example_raises_the_request(tmp_path, monkeypatch):
    monkeypatch.setattr(judgement, "FULL", Effort(8, 4, 4, 1))
    there, back = both(tmp_path, measured(path(102, [(922, 900)]), 100, 800), 1, LOG)
    assert back == there
    (found,) = back["advice"]
    assert found["recommended"] == "raise-request"
    assert any("podb0 uses 900m, then 850m" in text for text in found["options"][0]["consequences"])


def test_a_throttled_container_beside_others_has_the_same_options_and_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(judgement, "QUICK", Effort(32, 8, 8, 1))
    live = measured(
        path(3072, [(1024, 690)]), 300, 700, throttled=600.0, throttled_periods=300.0, quota=Quota(30_000)
    )
    there, back = both(tmp_path, live, 1)
    assert back == there
    assert len(back["advice"][0]["options"]) >= 2


def test_of_rounds_a_group_that_was_active_half_of_the_time_counts_half(tmp_path):
    busy, idle = (measured(path(100, [(1000, used)]), 100, 300) for used in (800, 0))
    read, node = record.read(recorded(tmp_path, [[busy], [idle]]).path)
    rivals = read[0].competition
    assert rivals is not None
    assert [claim.active for claim in rivals.claims] == [0, 500, 0]
    assert (rivals.used, rivals.competitors[0].used) == (400, 400)
    assert rivals.share == pytest.approx(100 / 600)
    assert read[0].load is not None and read[0].load.busy == pytest.approx(500)
    assert node == MeasuredNode(2, 1)


def test_a_round_without_competition_gives_none(tmp_path):
    live = measured(path(100, [(1000, 800)]), 100, 300)
    read, _ = record.read(recorded(tmp_path, [[live], [replace(live, competition=None)]]).path)
    assert read[0].competition is None


def test_records_of_before_are_read_as_then(tmp_path):
    """They had the five largest competitors, and no levels."""
    tree = limits_watch.plain([measured(path(102, [(922, 900)]), 100, 800)], [], 30.0, "now")
    for name in ("nodeCPUs", "cgroupVersion"):
        del tree[name]
    (row,) = tree["containers"]
    for name in ("id", "cpus", "cpuLoad", "threadsThatWaited"):
        del row[name]
    for name in ("levels", "usedMsPerSecond"):
        del row["competition"][name]
    del row["lostTo"]["pausedShare"]
    (tmp_path / "old.json").write_text(json.dumps(tree))
    (read,), node = record.read(tmp_path / "old.json")
    assert (read.competition, read.cpus, read.load, node) == (None, 0, None, MeasuredNode(0, 2))
    assert read.losses == Losses(neighbours=800.0, error=2.0)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (
            ("competition", "levels", 1, "weight"),
            0,
            "Expected `int` >= 1 - at `$.containers[0].competition.levels[1].weight`",
        ),
        (("competition", "levels", 1, "activeWeight"), float("nan"), "active weight: nan"),
        (("competition", "competitors", 0, "usedMsPerSecond"), -5, "/k/burstable/podb0: used: -5"),
        (("competition", "levels"), 7, "round 1: Expected `array`"),
        (("cpuLoad", "busyMsPerSecond"), float("inf"), "cpuLoad: busy: inf"),
        (("cpus",), -1, "cpus: -1 is not an amount"),
    ],
)
def test_what_watch_never_writes_is_one_clear_error(tmp_path, where, value, words):
    tree = limits_watch.plain([measured(path(102, [(922, 900)]), 100, 800)], [], 30.0, "now")
    place = tree["containers"][0]
    for name in where[:-1]:
        place = place[name]
    place[where[-1]] = value
    (tmp_path / "bad.json").write_text(json.dumps(tree))
    with pytest.raises(AdviseError) as error:
        record.read(tmp_path / "bad.json")
    assert words in str(error.value)
    done = CliRunner().invoke(main, ["limits", "advise", str(tmp_path / "bad.json")])
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
