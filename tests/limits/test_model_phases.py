"""Pod over container: both counted, and the spread over phases that chance decides."""

from dataclasses import replace

import pytest

from corelane.limits.model import scenario_file, studies
from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS
from corelane.limits.model.scenario import run


def nested(pod_phase=None, phase=None, **pod):
    container = {"name": "c", "limit": "200m", "workload": {"kind": "spin"}}
    if phase:
        container["phase"] = phase
    if pod_phase:
        pod["phase"] = pod_phase
    return scenario_file.read(
        {
            "machine": {"cpus": 1, "hz": 0},
            "seconds": 2,
            "pods": [{"name": "p", "containers": [container], **pod}],
        }
    )


def throttled(scenario):
    result = run(scenario)
    return tuple(round(one.throttled_ns / MS / 2) for one in (result.of("p/c").stat, result.pods["p"]))


@pytest.mark.parametrize(
    ("container", "pod", "expected"),
    [("30ms", "40ms", (700, 800)), ("40ms", "30ms", (800, 700)), ("30ms", "30ms", (800, 800))],
)
def test_the_later_of_two_refills_starts_the_thread(container, pod, expected):
    """Both are empty after 20 ms; each is throttled until its own refill."""
    assert throttled(nested(pod, container)) == expected


def test_every_phase_and_every_difference_is_taken_once():
    combinations = [studies.at_phase(nested(), number).pods[0] for number in range(studies.PHASES)]
    pods = {one.phase_ns for one in combinations}
    containers = {one.containers[0].phase_ns for one in combinations}
    differences = {
        round((a - b) % (100 * MS) / (100 * MS / studies.PHASES)) % studies.PHASES
        for a, b in ((one.phase_ns, one.containers[0].phase_ns) for one in combinations)
    }
    assert len(pods) == len(containers) == len(differences) == studies.PHASES


def test_the_spread_is_that_of_its_runs_and_the_same_every_time():
    scenario = nested()
    spread = studies.phase_spread(scenario)
    assert spread == studies.phase_spread(scenario)
    assert (spread.phases, spread.seed, spread.seconds) == (41, 1, 2)
    runs = [throttled(studies.at_phase(scenario, number)) for number in range(studies.PHASES)]
    for path, values in zip(("p/c", "p"), zip(*runs, strict=True), strict=True):
        least, greatest = spread.throttled_ms_per_second[path]
        assert (round(least), round(greatest)) == (min(values), max(values))
        assert 0 <= least < greatest <= 800.001
        assert spread.cpus_used[path] == pytest.approx((0.2, 0.2), abs=0.012)


def test_a_run_of_a_random_load_widens_the_spread_to_itself():
    server = {"kind": "server", "threads": 2, "service": "5ms", "rate": 36}
    scenario = nested()
    pods = scenario_file.read(
        {
            "machine": {"cpus": 1},
            "seconds": 20,
            "pods": [{"name": "p", "containers": [{"name": "c", "limit": "200m", "workload": server}]}],
        }
    ).pods
    scenario = replace(scenario, pods=pods, seconds=20)
    outcomes = [run(scenario, seed) for seed in (1, 2)]
    spread = studies.phase_spread(replace(scenario, seconds=0.3))
    wide = spread.including(outcomes)
    for path, stats in (
        ("p", [one.pods["p"] for one in outcomes]),
        ("p/c", [one.of("p/c").stat for one in outcomes]),
    ):
        values = [stat.throttled_ns / MS / 20 for stat in stats]
        ends = spread.throttled_ms_per_second[path]
        assert wide.throttled_ms_per_second[path] == (min(*values, *ends), max(*values, *ends))
        assert wide.throttled_ms_per_second[path] != ends
        used = [stat.usage_ns / MS / 20_000 for stat in stats]
        least, greatest = wide.cpus_used[path]
        assert least <= min(used) <= max(used) <= greatest
    assert wide.including(outcomes) == wide


def test_a_phase_in_the_scenario_fixes_it():
    assert studies.phase_spread(nested("10ms", "30ms")) is None
    fixed = [studies.at_phase(nested(phase="30ms"), number).pods[0] for number in range(studies.PHASES)]
    assert {one.containers[0].phase_ns for one in fixed} == {30 * MS}
    assert len({one.phase_ns for one in fixed}) == studies.PHASES


def test_there_is_no_spread_where_limits_are_not_nested():
    assert studies.phase_spread(nested(limit="none")) is None
    alone = nested()
    (pod,) = alone.pods
    pod = replace(pod, limit=CFSLimit(20 * MS), containers=(replace(pod.containers[0], limit=None),))
    assert studies.phase_spread(replace(alone, pods=(pod,))) is None


def test_the_spread_of_the_large_experiment_simulates_less_time_than_the_experiment():
    """120 s of 96 CPUs stay as they were; no timed bound, for the machine is shared."""
    scenario = studies.nginx(96)
    assert studies.phase_spread(scenario) is None
    simulated = studies.PHASES * (studies.MAX_SECONDS + studies.MAX_WARMUP_SECONDS)
    assert simulated < scenario.seconds
