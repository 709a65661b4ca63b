"""What holds for every limit, machine and workload, what theory says of queues, and how requests come."""

from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import mean, pstdev

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.limits.model import scenario_file
from corelane.limits.model.bandwidth import KERNELS, CFSLimit
from corelane.limits.model.clock import MS, SECOND, US
from corelane.limits.model.queues import KERNEL, RUN, SLEEP
from corelane.limits.model.scenario import (
    Histogram,
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    run,
)
from corelane.limits.model.scenario_file import ScenarioError
from corelane.limits.model.simulator import Simulator
from corelane.limits.model.workloads import (
    Bursts,
    Closed,
    Duration,
    EventServer,
    Open,
    Parallel,
    Recorded,
    Spin,
    ThreadPoolServer,
    WorkloadContext,
)
from support.scenarios import alone, repeated, result

limits = st.builds(
    lambda quota, period, burst: CFSLimit(quota * MS, period * MS, min(burst, quota) * MS),
    st.integers(1, 150),
    st.sampled_from([5, 10, 50, 100, 250]),
    st.sampled_from([0, 0, 10, 50]),
)
workloads = st.one_of(
    st.builds(Spin, st.integers(1, 5)),
    st.builds(
        lambda run_us, pause, threads: Bursts(Duration(run_us * US), pause_ns=pause * MS, threads=threads),
        st.integers(100, 30_000),
        st.integers(1, 40),
        st.integers(1, 5),
    ),
    st.builds(
        lambda us, clients: ThreadPoolServer(Duration(us * US, 0.7), Closed(clients), threads=4),
        st.integers(100, 9_000),
        st.integers(1, 12),
    ),
    st.builds(
        lambda wake, clients: EventServer(
            Duration(wake * US), Duration(9 * US), Duration(80 * US, 1.0), Closed(clients)
        ),
        st.integers(1, 200),
        st.integers(1, 40),
    ),
    st.builds(
        lambda spin: Parallel(Duration(1 * MS), Duration(9 * MS), 5, Open(20), spin_ns=spin * US),
        st.sampled_from([0, 50, 2000]),
    ),
)
containers = st.tuples(workloads, st.none() | limits, st.sampled_from([0, 100, 1000]), st.booleans())


def scenario(cpus, kernel, tick, pods, smt=None, **more) -> Scenario:
    made = tuple(
        ScenarioPod(
            f"p{i}",
            (ScenarioContainer("c", (work,), request, without_burst(limit, kernel), pinned=pinned),),
            pod_limit,
        )
        for i, ((work, limit, request, pinned), pod_limit) in enumerate(pods)
    )
    machine = SimulatedMachine(cpus, tick_ns=tick, smt_speed=smt)
    return Scenario("law", "", machine, made, KERNELS[kernel], warmup_seconds=0, **more)


def without_burst(limit, kernel):
    return limit if limit is None or KERNELS[kernel].burst else replace(limit, burst_ns=0)


@settings(max_examples=20, deadline=None)
@given(
    cpus=st.sampled_from([1, 2, 3, 4]),
    kernel=st.sampled_from(list(KERNELS)),
    tick=st.sampled_from([0, 1 * MS, 4 * MS]),
    smt=st.sampled_from([None, None, 600]),
    pods=st.lists(
        st.tuples(containers, st.sampled_from([None, None, CFSLimit(30 * MS)])), min_size=1, max_size=3
    ),
)
def test_time_is_conserved_and_no_group_gets_more_than_its_quota(cpus, kernel, tick, smt, pods):
    drawn = scenario(cpus, kernel, tick, pods, smt, seconds=0.4, window_ms=(0, 400))
    outcome = run(drawn, traced=True)
    line = outcome.timeline
    for cpu in range(cpus):
        spans = [span for span in line.ran if span.cpu == cpu]
        assert all(a.end <= b.start for a, b in pairwise(spans)), "two threads at once on a CPU"
    for pod, found in zip(drawn.pods, outcome.results, strict=True):
        ran = sum(span.end - span.start for span in line.ran if span.group == found.path)
        assert found.stat.usage_ns == ran == outcome.pods[pod.name].usage_ns
        held = sum(span.end - span.start for span in line.throttled if span.group == found.path)
        assert found.stat.throttled_ns <= held or not drawn.kernel.clock_needs_tasks
        bounded(found.stat, pod.containers[0].limit, drawn)
        bounded(outcome.pods[pod.name], pod.limit, drawn)


def bounded(stat, limit, drawn) -> None:
    """Quota of every period begun, what was saved before, and on every CPU at most a tick of debt."""
    assert stat.nr_throttled <= stat.nr_periods
    if limit is None:
        assert stat.nr_periods == stat.throttled_ns == 0
        return
    begun = int(drawn.seconds * SECOND) // limit.period_ns + 2
    overdraft = (drawn.machine.tick_ns + 2 * MS) * drawn.machine.cpus
    assert stat.nr_periods <= begun
    assert stat.usage_ns <= begun * limit.quota_ns + limit.burst_ns + overdraft
    if not limit.burst_ns:
        assert stat.nr_bursts == 0 or drawn.kernel.expiry or stat.burst_ns >= 0


@settings(max_examples=5, deadline=None)
@given(pod=containers, kernel=st.sampled_from(list(KERNELS)), seed=st.integers(0, 5))
def test_a_seed_gives_the_same_outcome_twice(pod, kernel, seed):
    drawn = scenario(3, kernel, 4 * MS, [(pod, None)], seconds=0.3)
    assert run(drawn, seed) == run(drawn, seed)


DRAWN = {"seconds": 1, "warmup_seconds": 0, "window_ms": (0, 1000)}


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
    drawn = alone(work, cpus, limit, kernel=KERNELS[kernel], **DRAWN)
    line = run(drawn, traced=True).timeline
    moments = sorted({0, *(refill.moment for refill in line.refills), SECOND})
    used = [
        sum(max(min(span.end, end) - max(span.start, begin), 0) for span in line.ran)
        for begin, end in pairwise(moments)
    ]
    most = limit.burst_ns + cpus * (drawn.kernel.slice_ns + drawn.machine.tick_ns)
    for first in range(len(used)):
        total = 0
        for count, more in enumerate(used[first:], 1):
            total += more
            assert total <= count * limit.quota_ns + most


@settings(max_examples=15, deadline=None)
@given(
    kernel=st.sampled_from(list(KERNELS)),
    cpus=st.integers(1, 4),
    quota=st.integers(1, 120),
    tick=st.sampled_from([0, 1, 4]),
)
def test_a_cpu_whose_threads_never_sleep_runs_or_is_throttled_and_nothing_else(kernel, cpus, quota, tick):
    machine = SimulatedMachine(cpus, tick_ns=tick * MS)
    drawn = alone(
        Spin(2 * cpus), limit=CFSLimit(quota * MS), machine=machine, kernel=KERNELS[kernel], **DRAWN
    )
    line = run(drawn, traced=True).timeline
    for cpu in range(cpus):
        spans = sorted((s.start, s.end) for s in (*line.ran, *line.throttled) if s.cpu == cpu)
        assert (spans[0][0], spans[-1][1]) == (0, SECOND)
        assert all(a[1] == b[0] for a, b in pairwise(spans)), "a gap, or two at once"


def spinner(quota_ms: int, period_ms: int = 100, cpus: int = 2, tick: int = 4 * MS, seconds: float = 10):
    machine = SimulatedMachine(cpus, tick)
    return result(
        Spin(), limit=CFSLimit(quota_ms * MS, period_ms * MS), machine=machine, seconds=seconds
    ).stat


def test_a_larger_limit_never_means_less_time_or_more_throttling():
    stats = [spinner(quota) for quota in range(10, 200, 15)]
    assert all(a.usage_ns < b.usage_ns for a, b in pairwise(stats))
    assert all(a.throttled_ns > b.throttled_ns for a, b in pairwise(stats))


@pytest.mark.parametrize("tick", [0, 1 * MS, 4 * MS, 10 * MS])
@pytest.mark.parametrize(("quota", "period"), [(10, 100), (50, 100), (90, 50), (5, 10)])
def test_a_saturated_group_gets_its_quota_whatever_the_tick(tick, quota, period):
    stat, periods = spinner(quota, period, tick=tick), 10_000 // period
    assert stat.usage_ns == pytest.approx(periods * quota * MS, rel=0.01)
    assert stat.throttled_ns == pytest.approx(periods * (2 * period - quota) * MS, rel=0.02)
    assert abs(stat.nr_periods - periods) <= 1
    assert stat.nr_throttled == stat.nr_periods


def test_quota_equal_to_the_cpus_throttles_up_to_every_second_period_and_costs_next_to_nothing():
    """The ratio of throttled periods says nothing about what is lost."""
    stat = spinner(50, 50, cpus=1, seconds=5)
    assert stat.usage_ns > 0.98 * 5 * SECOND
    assert 0 < stat.nr_throttled <= 51
    assert stat.throttled_ns < 0.02 * 5 * SECOND


def test_a_quiet_group_has_no_periods():
    bursts = Bursts(Duration(10 * MS), every_ns=SECOND)
    periods = result(bursts, 1, CFSLimit(50 * MS), seconds=10).stat.nr_periods
    assert periods == pytest.approx(20, abs=2), "one of use and one quiet a burst"


def test_unused_slices_are_lost_while_they_expire():
    """Light use of many CPUs: 4.18 throttles what 5.4 does not."""
    work = Bursts(Duration(400 * US, 0.3), pause_ns=27 * MS, threads=24)
    throttled = {
        kernel: result(work, 24, CFSLimit(50 * MS), kernel=KERNELS[kernel], seconds=3).stat.throttled_ns / MS
        for kernel in ("5.8", "4.18")
    }
    assert throttled["5.8"] == 0
    assert throttled["4.18"] > 100


def test_weights_decide_on_a_contended_cpu_and_quota_caps_what_they_give():
    """2048 shares limited to 30 of 100 ms beside 1024: measured 1197 and 2802 of 4000 ms, throttled 2195."""
    limited = ScenarioPod("a", (ScenarioContainer("c", (Spin(2),), 2000, CFSLimit(30 * MS)),))
    free = ScenarioPod("b", (ScenarioContainer("c", (Spin(2),), 1000),))
    a, b = run(Scenario("weights", "", SimulatedMachine(1), (limited, free), seconds=4)).results
    assert (a.stat.usage_ns, b.stat.usage_ns) == pytest.approx((1200 * MS, 2800 * MS), rel=0.02)
    assert a.stat.throttled_ns == pytest.approx(2200 * MS, rel=0.05)


def test_two_levels_of_limits_give_the_smaller():
    nested = alone(Spin(), 2, CFSLimit(80 * MS), pod_limit=CFSLimit(30 * MS), pinned=False, seconds=10)
    outcome = run(nested)
    assert outcome.results[0].stat.usage_ns == pytest.approx(10 * 300 * MS, rel=0.02)
    assert outcome.pods["pod"].nr_throttled == outcome.pods["pod"].nr_periods
    assert outcome.results[0].stat.throttled_ns == 0, "own limit only"


def test_siblings_that_both_run_do_less_each():
    server = ThreadPoolServer(Duration(10 * MS), Closed(2), threads=2)
    whole, shared = (
        result(server, pinned=False, machine=SimulatedMachine(2, smt_speed=speed), seconds=10)
        for speed in (None, 600)
    )
    assert (whole.per_second, shared.per_second) == pytest.approx((200, 120), rel=0.01)
    assert shared.stat.usage_ns == pytest.approx(whole.stat.usage_ns, rel=0.01), "charged by the wall clock"


@pytest.mark.parametrize(("kernel", "ran_ms"), [("6.18", 12), ("6.6", 10)])
def test_inside_a_system_call_only_task_based_throttling_lets_a_task_finish(kernel, ran_ms):
    system = Simulator(1, KERNELS[kernel], tick_ns=0)
    group = system.group("g", limit=CFSLimit(10 * MS))
    system.thread(group, iter([(KERNEL, 12 * MS), (RUN, 50 * MS), (SLEEP, SECOND)]), 0)
    system.run(99 * MS)
    assert group.usage_ns == ran_ms * MS
    system.run(SECOND)
    assert group.usage_ns == 62 * MS, "what was overdrawn is paid back"


def test_events_waiting_do_not_grow_with_time():
    system = Simulator(4, tick_ns=4 * MS)
    group = system.group("g", limit=CFSLimit(30 * MS))
    for cpu in range(4):
        system.thread(group, repeated((RUN, 300 * US), (SLEEP, 2 * MS)), cpu)
    system.run(SECOND)
    early = len(system.clock)
    system.run(6 * SECOND)
    assert len(system.clock) <= early + 20


# Queues, and how requests come: at random, in batches, at regular or recorded moments, from clients.


@pytest.mark.parametrize("load", [0.4, 0.7])
def test_an_open_loop_waits_as_long_as_in_an_m_d_1_queue(load):
    """Pollaczek and Khinchine."""
    service = 2 * MS
    server = ThreadPoolServer(Duration(service), Open(load * SECOND / service), threads=1)
    found = result(server, seconds=60)
    assert found.per_second == pytest.approx(load * SECOND / service, rel=0.02)
    assert found.mean_ns == pytest.approx(service * (1 + load / (2 * (1 - load))), rel=0.08)


@pytest.mark.parametrize("limit", [None, CFSLimit(30 * MS)])
def test_a_closed_loop_keeps_to_littles_law(limit):
    """Clients = throughput x (latency + thinking)."""
    clients, think = 12, 20 * MS
    work = ThreadPoolServer(Duration(3 * MS, 0.5), Closed(clients, think), threads=4, network_ns=1 * MS)
    found = result(work, 2, limit, seconds=30)
    assert found.per_second * (found.mean_ns + think) / SECOND == pytest.approx(clients, rel=0.01)


def test_a_spread_of_durations_leaves_their_mean():
    found = result(Bursts(Duration(2 * MS, 1.0), pause_ns=1 * MS), seconds=60)
    assert found.mean_ns == pytest.approx(2 * MS, rel=0.05)
    assert found.latency[50] < 1.4 * MS, "e ^ -1/2 of the mean"


@pytest.mark.parametrize("variation", [0.0, 0.2, 1.0, 2.0])
def test_intervals_have_the_mean_and_the_variation_that_is_asked_for(variation):
    system = Simulator(1)
    context = WorkloadContext(system, system.group("g"), 1, Random(1), lambda _: None)
    draw = context.intervals(1e9, variation)
    values = [draw() for _ in range(20_000)]
    assert mean(values) == pytest.approx(1e9, rel=0.05)
    assert pstdev(values) / mean(values) == pytest.approx(variation, abs=0.06 * max(variation, 1))


def served(arrivals, seconds: float = 20.0, threads: int = 1):
    server = ThreadPoolServer(Duration(1 * MS), arrivals, threads)
    return result(server, threads, seed=5, pinned=False, seconds=seconds)


def test_batches_come_at_once_and_as_many_requests_a_second():
    single, batches = (served(Open(40.0, batch, 0.0)) for batch in (1, 8))
    assert batches.per_second == pytest.approx(single.per_second, rel=0.03)
    assert single.latency[100] == pytest.approx(1 * MS, rel=0.1)
    assert batches.latency[100] == pytest.approx(8 * MS, rel=0.1), "one thread serves them in turn"


def test_recorded_requests_come_when_they_came_and_again():
    found = served(Recorded((0, 100 * MS, 100 * MS), SECOND), seconds=10.0)
    assert found.requests == 30
    assert found.latency[100] == pytest.approx(2 * MS, rel=0.1)
    assert served(Recorded((), SECOND)).requests == 0, "none are no load"


def test_clients_that_think_at_random_ask_as_often_on_average():
    steady, random = (served(Closed(2, 49 * MS, variation), 60.0, 2).per_second for variation in (0.0, 1.0))
    assert random == pytest.approx(steady, rel=0.05)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_that_run_or_wait_are_counted(threads):
    """Little's law: two clients without think time, of whom with one thread one is served and one waits."""
    assert served(Closed(2), 5.0, threads).runnable == pytest.approx(threads, abs=0.02)


FILE = """
machine: {cpus: 1}
pods:
  - name: web
    containers:
      - name: app
        workload: {kind: server, service: 1ms, %s}
"""


@pytest.mark.parametrize(
    ("fields", "arrivals"),
    [
        ("rate: 10", Open(10.0)),
        ("rate: 10, batch: 5, variation: 0.3", Open(10.0, 5, 0.3)),
        ("clients: 3, think: 5ms, variation: 1", Closed(3, 5 * MS, 1.0)),
        ("clients: 3, batch: 2", "batch"),
        ("rate: 3, variation: 11", "0 and 10"),
        ("rate: 3, batch: 0", "batch"),
    ],
)
def test_a_scenario_file_states_arrivals(fields, arrivals):
    tree = yaml.safe_load(FILE % fields)
    if isinstance(arrivals, str):
        with pytest.raises(ScenarioError, match=arrivals):
            scenario_file.read(tree)
        return
    (workload,) = scenario_file.read(tree).pods[0].containers[0].workloads
    assert workload.arrivals == arrivals


# Histograms.


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=200),
    st.sampled_from([1, 10, 50, 90, 95, 99, 99.9, 100]),
)
def test_every_percentile_is_within_one_percent_of_the_exact_one(values, percent):
    exact = sorted(values)[int(max(-(-len(values) * percent // 100), 1)) - 1]
    assert abs(Histogram(values).percentile(percent) - exact) <= 0.01 * exact


def test_memory_of_a_histogram_depends_on_the_range_of_values_not_on_their_number():
    histogram = Histogram(k * 7919 % 10**10 for k in range(200_000))
    assert histogram.count == 200_000
    assert len(histogram) < 35 * 128


def test_the_largest_and_the_mean_are_exact_and_an_empty_histogram_has_no_percentiles():
    histogram, empty = Histogram([1_000_003, 5, 1_000_001]), Histogram()
    assert (histogram.largest, histogram.mean()) == (1_000_003, 2_000_009 / 3)
    assert (empty.percentile(50), empty.mean()) == (None, None)
