"""`corelane limits watch` on a real kernel's cgroup v2 and its pressure files."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from corelane.cli import main
from support.contended_groups import BURSTS

TOP = Path("/sys/fs/cgroup")
LIMITED, CROWD, ABOVE, INNER = (TOP / name for name in ("limited", "crowd", "above", "above/inner"))
LIGHT, HEAVY = TOP / "light", TOP / "heavy"
ALONE, CORNER, BURSTY = TOP / "alone", TOP / "corner", TOP / "bursty"
SPIN = "echo $$ >$0/cgroup.procs; while :; do :; done"
WATCH = ["limits", "watch", "--once", "--interval", "8", "-o", "json"]


@pytest.fixture(scope="module")
def rows() -> dict[str, dict]:
    (TOP / "cgroup.subtree_control").write_text("+cpu +cpuset")
    try:
        _make_groups()
        for group in (LIMITED, CROWD, CROWD, INNER, LIGHT, HEAVY):
            _spin(group)
        time.sleep(2)
        return _watched(LIMITED, CROWD, INNER, LIGHT)
    finally:
        _remove_groups(INNER, LIMITED, CROWD, ABOVE, LIGHT, HEAVY)


@pytest.fixture(scope="module")
def spacious(rows: dict[str, dict]) -> dict[str, dict]:
    """After the others, so that few CPUs are busy: emulated ones share the host's."""
    try:
        for group, cpus in ((ALONE, "8-15"), (CORNER, "8"), (BURSTY, "5-6")):
            group.mkdir()
            (group / "cpuset.cpus").write_text(cpus)
        (ALONE / "cpu.max").write_text("20000 100000")
        _spin(ALONE)
        _spin(CORNER)
        for seed in range(3):
            code = [sys.executable, "-S", "-c", BURSTS, f"/tmp/bursts{seed}", str(seed)]
            subprocess.Popen(["sh", "-c", 'echo $$ >$0/cgroup.procs; exec "$@"', BURSTY, *code])
        time.sleep(4)
        return _watched(ALONE, BURSTY)
    finally:
        _remove_groups(ALONE, CORNER, BURSTY)


def _spin(group: Path) -> None:
    subprocess.Popen(["sh", "-c", SPIN, group])


def _watched(*groups: Path) -> dict[str, dict]:
    done = CliRunner().invoke(main, [*WATCH, *(f"--cgroup={group}" for group in groups)])
    assert done.exit_code == 0, done.output
    return {row["container"]: row for row in json.loads(done.stdout)["containers"]}


def _make_groups() -> None:
    for group in (LIMITED, CROWD, ABOVE, LIGHT, HEAVY):
        group.mkdir()
    (ABOVE / "cgroup.subtree_control").write_text("+cpu")
    INNER.mkdir()
    for group in (LIMITED, ABOVE):
        (group / "cpu.max").write_text("20000 100000")
    (LIMITED / "cpuset.cpus").write_text("1")
    (CROWD / "cpuset.cpus").write_text("3")
    for group in (LIGHT, HEAVY):
        (group / "cpuset.cpus").write_text("2")
    (HEAVY / "cpu.weight").write_text("300")


def _remove_groups(*groups: Path) -> None:
    for group in groups:
        with suppress(OSError):
            (group / "cgroup.kill").write_text("1")
            while (group / "cgroup.procs").read_text():
                time.sleep(0.1)
            group.rmdir()


def test_a_busy_loop_at_a_fifth_of_a_cpu_is_throttled_for_the_rest(rows):
    row = rows["limited"]
    assert row["cpuLimitMillis"] == 200
    assert row["usedMsPerSecond"] == pytest.approx(200, abs=40)
    assert row["throttledMsPerSecond"] == pytest.approx(800, abs=80)
    assert row["waitingMsPerSecond"] == pytest.approx(800, abs=120), "throttling is pressure"
    assert row["heldBackBy"][0] == "limit"
    assert row["cost"] == "high"


def test_threads_that_share_a_cpu_among_themselves_are_not_the_neighbours(rows):
    row = rows["crowd"]
    assert row["throttledMsPerSecond"] == 0
    assert row["waitingMsPerSecond"] > 700
    assert row["heldBackBy"] == ["own threads"]
    assert row["cost"] == "none"


def test_a_heavier_group_on_the_same_cpu_takes_what_its_weight_allows(rows):
    """Pressure is an independent count: on one CPU, all wait as long as others run."""
    row = rows["light"]
    assert row["heldBackBy"] == ["neighbours"], json.dumps(row)
    lost = row["lostTo"]
    assert lost["neighboursMsPerSecond"] == pytest.approx(750, abs=100)
    assert lost["neighboursMsPerSecond"] == pytest.approx(row["stalledMsPerSecond"], abs=60)
    assert lost["neighboursMsPerSecond"] == pytest.approx(lost["totalMsPerSecond"], abs=20)
    rivals = row["competition"]
    assert rivals["leastShare"] < 0.3
    assert any(each["group"].endswith("/heavy") and each["weight"] == 3072 for each in rivals["competitors"])


def test_what_a_limit_and_own_threads_take_is_their_whole_loss(rows):
    limited, crowd = rows["limited"]["lostTo"], rows["crowd"]["lostTo"]
    assert limited["limitMsPerSecond"] == pytest.approx(800, abs=80)
    assert limited["neighboursMsPerSecond"] < 80
    assert crowd["ownThreadsMsPerSecond"] == pytest.approx(1000, abs=80)
    assert crowd["limitMsPerSecond"] == 0


def test_a_limit_of_the_group_above_is_told_from_its_own(rows):
    """Counted since Linux 6.6 (cpu.stat.local); older kernels leave it to the pressure."""
    row = rows["above/inner"]
    assert row["throttledMsPerSecond"] == 0
    if row["throttledAboveMsPerSecond"] is not None:
        assert row["throttledAboveMsPerSecond"] == pytest.approx(800, abs=100)
        assert row["heldBackBy"][0] == "limit above"
    assert row["waitingMsPerSecond"] > 600


def test_neighbours_on_one_of_eight_cpus_do_not_hold_back_one_limited_thread(spacious):
    """The other seven are idle: 87 % of its CPUs."""
    row = spacious["alone"]
    assert (row["cpus"], row["cpuLimitMillis"]) == (8, 200)
    corner = [each for each in row["competition"]["competitors"] if each["group"].endswith("/corner")]
    assert corner[0]["usedMsPerSecond"] > 700, "the neighbours do run"
    assert row["heldBackBy"][0] == "limit", json.dumps(row)
    assert "neighbours" not in row["heldBackBy"], "emulated wake-ups are late: scheduling"
    assert row["lostTo"]["limitMsPerSecond"] == pytest.approx(800, abs=80)
    assert row["lostTo"]["neighboursMsPerSecond"] < 40, json.dumps(row)
    assert row["lostTo"]["ownThreadsMsPerSecond"] == 0


def test_bursts_alone_on_two_cpus_wait_for_each_other_and_for_no_one_else(spacious):
    row = spacious["bursty"]
    assert row["cpus"] == 2
    lost = row["lostTo"]
    assert lost["ownThreadsMsPerSecond"] > 50
    assert lost["neighboursMsPerSecond"] < 60, json.dumps(row)
