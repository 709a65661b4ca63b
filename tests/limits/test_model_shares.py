"""What theory says of queues and shares, and what no period may exceed."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.limits.model.bandwidth import KERNELS, CFSLimit
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.queues import RUN, SLEEP
from corelane.limits.model.scenario import (
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    SimulationResult,
    run,
)
from corelane.limits.model.simulator import Simulator
from corelane.limits.model.workloads import Bursts, Closed, Duration, Open, Spin, ThreadPoolServer


def alone(workload, cpus: int = 1, limit: CFSLimit | None = None, **more) -> Scenario:
    app = ScenarioContainer("app", (workload,), limit=limit, pinned=True)
    return Scenario("", "", SimulatedMachine(cpus), (ScenarioPod("pod", (app,)),), **more)


@pytest.mark.parametrize("load", [0.4, 0.7])
def test_an_open_loop_waits_as_long_as_in_an_m_d_1_queue(load):
    """Pollaczek and Khinchine."""
    service = 2 * MS
    result = run(
        alone(ThreadPoolServer(Duration(service), Open(load * SECOND / service), threads=1), seconds=60)
    ).results[0]
    assert result.per_second == pytest.approx(load * SECOND / service, rel=0.02)
    assert result.mean_ns == pytest.approx(service * (1 + load / (2 * (1 - load))), rel=0.08)


@pytest.mark.parametrize("limit", [None, CFSLimit(30 * MS)])
def test_a_closed_loop_keeps_to_littles_law(limit):
    """Clients = throughput x (latency + thinking)."""
    clients, think = 12, 20 * MS
    work = ThreadPoolServer(Duration(3 * MS, 0.5), Closed(clients, think), threads=4, network_ns=1 * MS)
    result = run(alone(work, 2, limit, seconds=30)).results[0]
    assert result.mean_ns is not None
    assert result.per_second * (result.mean_ns + think) / SECOND == pytest.approx(clients, rel=0.01)


def test_a_spread_of_durations_leaves_their_mean():
    result = run(alone(Bursts(Duration(2 * MS, 1.0), pause_ns=1 * MS), seconds=60)).results[0]
    assert result.mean_ns == pytest.approx(2 * MS, rel=0.05)
    assert result.latency[50] < 1.4 * MS, "e ^ -1/2 of the mean"


def spin():
    while True:
        yield RUN, SECOND


@pytest.mark.parametrize("kernel", ["3.17", "6.6", "6.18"])
def test_a_groups_shares_are_spread_over_the_cpus_its_threads_are_on(kernel):
    """On CPU 0 half of a's shares stand against all of b's: one third and two thirds."""
    system = Simulator(2, KERNELS[kernel])
    a, b = system.group("a"), system.group("b")
    for group, cpu in ((a, 0), (a, 1), (b, 0)):
        system.thread(group, spin(), cpu, 1 << cpu)
    system.run(12 * SECOND)
    assert a.usage_ns == pytest.approx(16 * SECOND, rel=0.005)
    assert b.usage_ns == pytest.approx(8 * SECOND, rel=0.005)


def test_shares_count_among_siblings_and_threads_share_what_their_group_gets():
    system = Simulator(1)
    pod, other = system.group("pod"), system.group("other", shares=2048)
    c, d = system.group("c", pod, shares=768), system.group("d", pod, shares=256)
    for group in (c, d, d, d, other):
        system.thread(group, spin(), 0)
    system.run(12 * SECOND)
    used = [group.usage_ns / SECOND for group in (c, d, other)]
    assert used == pytest.approx([3, 1, 8], rel=0.01)


@pytest.mark.parametrize(
    ("kernel", "work", "least", "most"), [("5.14", 2, 2, 2), ("5.14", 5, 6, 8), ("6.6", 2, 2.9, 5)]
)
def test_who_wakes_beside_a_spinner_has_a_head_start_of_3_ms_before_6_6_and_none_since(
    kernel, work, least, most
):
    system, took = Simulator(1, KERNELS[kernel], tick_ns=1 * MS), []

    def sleeper():
        while True:
            due = system.now + 97 * MS + 300_000
            yield SLEEP, due - system.now
            yield RUN, work * MS
            took.append((system.now - due) / MS)

    system.thread(system.group("busy"), spin(), 0)
    system.thread(system.group("light"), sleeper(), 0)
    system.run(5 * SECOND)
    assert len(took) > 30
    assert least <= min(took)
    assert max(took) <= most


def test_a_sibling_slows_a_thread_down_while_it_runs_and_no_longer():
    """5 ms alone, 2 ms at 0.6, and what is left alone."""
    system, ends = Simulator(4, smt_speed=600, tick_ns=1 * MS), {}

    def work(name, amount):
        yield RUN, amount
        ends[name] = system.now

    group = system.group("g")
    system.thread(group, work("long", 10 * MS), 2, 1 << 2)
    system.thread(group, work("elsewhere", 10 * MS), 1, 1 << 1)
    system.after(5 * MS, lambda _argument, _stamp: system.thread(group, work("short", 1_200_000), 3, 1 << 3))
    system.run(SECOND)
    assert ends == {"short": 7 * MS, "elsewhere": 10 * MS, "long": 10_800_000}
    assert group.usage_ns == 22_800_000


@settings(max_examples=15, deadline=None)
@given(
    kernel=st.sampled_from([name for name, switches in KERNELS.items() if switches.burst]),
    cpus=st.integers(1, 4),
    quota=st.integers(1, 120),
    period=st.sampled_from([10, 50, 100]),
    burst=st.sampled_from([0, 5, 40]),
    pause=st.integers(0, 30),
)
def test_no_run_of_periods_uses_more_than_quota_burst_and_what_cpus_hold_or_owe(
    kernel, cpus, quota, period, burst, pause
):
    """Each CPU may begin with a slice, and end with a tick of debt."""
    limit = CFSLimit(quota * MS, period * MS, min(burst, quota) * MS)
    work = Bursts(Duration(7 * MS, 0.8), pause_ns=pause * MS, threads=cpus)
    one = alone(work, cpus, limit, seconds=1, warmup_seconds=0, window_ms=(0, 1000), kernel=KERNELS[kernel])
    outcome = run(one, traced=True)
    assert outcome.timeline is not None
    moments = sorted({0, *(refill.moment for refill in outcome.timeline.refills), SECOND})
    used = [within(outcome, begin, end) for begin, end in pairwise(moments)]
    most = limit.burst_ns + cpus * (one.kernel.slice_ns + one.machine.tick_ns)
    for first in range(len(used)):
        total = 0
        for count, more in enumerate(used[first:], 1):
            total += more
            assert total <= count * limit.quota_ns + most


def within(outcome: SimulationResult, begin: int, end: int) -> int:
    assert outcome.timeline is not None
    return sum(max(min(span.end, end) - max(span.start, begin), 0) for span in outcome.timeline.ran)


@settings(max_examples=15, deadline=None)
@given(
    kernel=st.sampled_from(list(KERNELS)),
    cpus=st.integers(1, 4),
    quota=st.integers(1, 120),
    tick=st.sampled_from([0, 1, 4]),
)
def test_a_cpu_whose_threads_never_sleep_runs_or_is_throttled_and_nothing_else(kernel, cpus, quota, tick):
    one = alone(
        Spin(2 * cpus),
        cpus,
        CFSLimit(quota * MS),
        seconds=1,
        warmup_seconds=0,
        window_ms=(0, 1000),
        kernel=KERNELS[kernel],
    )
    line = run(replace(one, machine=SimulatedMachine(cpus, tick_ns=tick * MS)), traced=True).timeline
    assert line is not None
    for cpu in range(cpus):
        spans = sorted((s.start, s.end) for s in (*line.ran, *line.throttled) if s.cpu == cpu)
        assert spans[0][0] == 0
        assert spans[-1][1] == SECOND
        assert all(a[1] == b[0] for a, b in pairwise(spans)), "a gap, or two at once"
