"""Limited groups beside others on the same CPUs: held to arithmetic, and to what this kernel did."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.limits.model.bandwidth import KERNELS, CFSLimit
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.queues import RUN
from corelane.limits.model.simulator import Simulator
from support.fluid_bandwidth import Spinners, one_period, parts

PERIODS = 60
TURN, SLICE = 1.0, 5.0  # ms


def spin():
    while True:
        yield RUN, SECOND


def simulated(groups, kernel="6.18", tick_ns=0, nested=False):
    """CPU time and throttled time of each group in ms of each period, as the simulator has them."""
    simulator = Simulator(len(groups[0].threads), KERNELS[kernel], tick_ns=tick_ns)
    made = []
    for index, spinners in enumerate(groups):
        limit = None if spinners.quota is None else CFSLimit(round(spinners.quota * MS))
        pod = simulator.group(f"pod{index}", shares=spinners.shares) if nested else None
        made.append(simulator.group(f"g{index}", pod, shares=spinners.shares, limit=limit))
        for cpu, count in enumerate(spinners.threads):
            for _ in range(count):
                simulator.thread(made[-1], spin(), cpu, 1 << cpu)
    simulator.run(PERIODS * 100 * MS)
    stats = [group.stat() for group in made]
    return [(stat.usage_ns / MS / PERIODS, stat.throttled_ns / MS / PERIODS) for stat in stats]


@pytest.mark.parametrize("nested", [False, True], ids=["container", "container in pod"])
@pytest.mark.parametrize("tick_ms", [0, 4], ids=["no tick", "tick"])
@pytest.mark.parametrize(
    ("shares", "beside", "measured"),
    [(3072, 1024, 600), (2048, 1024, 555), (1024, 1024, 395), (1024, 2048, 100)],
)
def test_a_limited_spinner_beside_an_unlimited_one_is_throttled_as_by_this_kernel(
    shares, beside, measured, tick_ms, nested
):
    """300m on one CPU; `measured` in ms of each second, by Linux 6.18."""
    groups = [Spinners(shares, 30.0, (1,)), Spinners(beside, None, (1,))]
    (used, throttled), (others, _) = simulated(groups, tick_ns=tick_ms * MS, nested=nested)
    assert throttled * 10 == pytest.approx(measured, rel=0.05)
    assert used == pytest.approx(30, rel=0.02)
    assert others == pytest.approx(70, rel=0.02)


def test_four_spinning_threads_on_two_cpus_beside_two_are_throttled_as_by_this_kernel():
    """Equal requests, 500m; throttled time sums over CPUs."""
    (used, throttled), _ = simulated([Spinners(1024, 50.0, (2, 2)), Spinners(1024, None, (1, 1))])
    assert throttled * 10 == pytest.approx(994, rel=0.05)
    assert used == pytest.approx(50, rel=0.02)


def spinners(cpus):
    quotas = st.none() | st.integers(10, 80 * cpus).map(float)
    counts = st.tuples(*[st.integers(0, 3)] * cpus).filter(any)
    return st.builds(Spinners, st.integers(512, 3072), quotas, counts)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 4).flatmap(lambda cpus: st.lists(spinners(cpus), min_size=2, max_size=3)),
    st.booleans(),
)
@example([Spinners(3072, 30.0, (1,)), Spinners(1024, 40.0, (1,)), Spinners(512, None, (2,))], True)
@example([Spinners(512, 60.0, (3, 3, 1)), Spinners(3072, None, (1, 1, 1))], False)
@example([Spinners(1024, 50.0, (2, 0)), Spinners(1024, None, (1, 1))], False)
@example([Spinners(512, None, (0, 1)), Spinners(512, None, (0, 1)), Spinners(512, 10.0, (1, 1))], False)
def test_weights_limits_cpus_and_threads_agree_with_arithmetic(groups, nested):
    """A period may be off by a turn, and by a slice on each CPU, which lasts as the group's part there."""
    for index, ((used, throttled), (want_used, want_throttled)) in enumerate(
        zip(simulated(groups, nested=nested), one_period(groups), strict=True)
    ):
        assert used == pytest.approx(want_used, abs=4 * len(groups[0].threads))
        limited = groups[index].quota is not None
        off = sum(TURN + SLICE / part for part in parts(groups, index)) if limited else 0
        assert throttled == pytest.approx(want_throttled, abs=off)


@pytest.mark.parametrize("kernel", ["3.17", "5.4", "5.14", "6.6", "6.18"])
def test_every_kernel_shares_a_cpu_by_weights_while_a_limit_holds_one_back(kernel):
    groups = [Spinners(2048, 30.0, (1,)), Spinners(1024, None, (1,))]
    (used, throttled), _ = simulated(groups, kernel)
    assert used == pytest.approx(30, rel=0.03)
    assert throttled == pytest.approx(55, abs=8)
