"""What Linux 6.18 counted on two CPUs that tick at 250 Hz lies in what the model counts over phases."""

import pytest

from corelane.limits.model.bandwidth import CFSLimit, CPUStat
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.workloads import Bursts, Duration, Spin, Workload


def counted(workload: Workload, limit: CFSLimit, seconds: float) -> list[CPUStat]:
    """Of eight phases."""
    app = ScenarioContainer("app", (workload,), limit=limit, pinned=True)
    one = Scenario("", "", SimulatedMachine(2), (ScenarioPod("pod", (app,)),), seconds=seconds)
    return [run(one, seed).results[0].stat for seed in range(8)]


@pytest.mark.parametrize(
    ("threads", "quota", "period", "used", "held"),
    [
        (1, 10, 100, 502, 4494),
        (2, 10, 100, 500, 9497),
        (2, 50, 100, 2500, 7493),
        (2, 150, 100, 7501, 2473),
        (2, 50, 50, 5003, 4992),
    ],
)
def test_spinners_use_their_quota_and_are_throttled_in_every_period(threads, quota, period, used, held):
    for stat in counted(Spin(threads), CFSLimit(quota * MS, period * MS), 5):
        assert stat.usage_ns / MS == pytest.approx(used, rel=0.02)
        assert stat.throttled_ns / MS == pytest.approx(held, rel=0.02)
        assert stat.nr_periods == stat.nr_throttled == 5000 // period


@pytest.mark.parametrize(
    ("threads", "quota", "period", "used"), [(1, 50, 50, 4960), (2, 100, 50, 9943), (1, 10, 10, 4626)]
)
def test_a_quota_of_all_cpus_is_throttled_every_second_period_and_loses_little(threads, quota, period, used):
    stats = counted(Spin(threads), CFSLimit(quota * MS, period * MS), 5)
    assert all(abs(stat.nr_throttled - stat.nr_periods / 2) < 4 for stat in stats)
    assert min(stat.usage_ns for stat in stats) <= used * MS <= max(stat.usage_ns for stat in stats)


@pytest.mark.parametrize(
    ("quota", "burst", "counters"),
    [
        (20, 0, [(40, 24, 0)]),
        (20, 20, [(32, 16, 8), (32, 8, 16)]),
        (50, 0, [(32, 8, 0)]),
        (50, 50, [(16, 0, 8), (24, 0, 0)]),
    ],
)
def test_70_ms_of_work_each_second_are_counted_as_measured_at_some_phase(quota, burst, counters):
    """Periods, throttled ones and bursts of eight seconds."""
    stats = counted(Bursts(Duration(70 * MS), every_ns=SECOND), CFSLimit(quota * MS, burst_ns=burst * MS), 8)
    found = {(stat.nr_periods, stat.nr_throttled, stat.nr_bursts) for stat in stats}
    assert found >= {*counters}
    if (quota, burst) == (20, 20):
        assert {round(stat.burst_ns / MS) for stat in stats} == {160}
