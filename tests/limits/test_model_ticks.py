"""The kernel looks at the quota at ticks, sleeps and wake-ups, not from one piece of work to the next."""

import pytest

from corelane.limits.model.bandwidth import CFSLimit, CPUStat
from corelane.limits.model.clock import MS, US
from corelane.limits.model.scenario import (
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    run,
)
from corelane.limits.model.workloads import Closed, Duration, Spin, ThreadPoolServer, Workload


def stat(workload: Workload, limit: CFSLimit, tick_ms: int) -> CPUStat:
    app = ScenarioContainer("app", (workload,), limit=limit, pinned=True, phase_ns=37 * MS)
    machine = SimulatedMachine(1, tick_ns=tick_ms * MS, tick_phase_ns=1 * MS)
    return (
        run(Scenario("", "", machine, (ScenarioPod("pod", (app,)),), seconds=2.0, warmup_seconds=0.5))
        .results[0]
        .stat
    )


@pytest.mark.parametrize("tick_ms", [0, 1, 4, 10])
@pytest.mark.parametrize(
    "limit", [CFSLimit(20 * MS), CFSLimit(7 * MS, 50 * MS), CFSLimit(30 * MS, 100 * MS, 20 * MS)]
)
@pytest.mark.parametrize("piece_us", [90, 700, 3_300])
def test_who_never_sleeps_is_throttled_alike_in_small_pieces_and_in_one(piece_us, limit, tick_ms):
    pieces = ThreadPoolServer(Duration(piece_us * US), Closed(1000), threads=1, network_ns=10 * US)
    assert stat(pieces, limit, tick_ms) == stat(Spin(1), limit, tick_ms)


def test_a_worker_with_a_full_queue_runs_on_until_the_tick():
    """With a tick as long as the period every release lasts until the tick; the debt keeps the average."""
    pieces = ThreadPoolServer(Duration(100 * US), Closed(1000), threads=1, network_ns=10 * US)
    found = stat(pieces, CFSLimit(1 * MS, 10 * MS), 10)
    assert found.usage_ns == pytest.approx(200 * MS, rel=0.06)
    assert found.nr_throttled == found.nr_periods
