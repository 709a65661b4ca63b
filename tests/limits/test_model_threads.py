"""Which thread runs where and when: EEVDF's order, weights, remembered load, limits beside other groups."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.limits.model.bandwidth import KERNELS, CFSLimit
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.queues import RUN, SLEEP, SPIN, Gate
from corelane.limits.model.simulator import Simulator
from corelane.limits.model.timeline import TimelineRecorder
from corelane.limits.model.turns import HALF_LIFE_NS, NICE_0, Load, Turns, average
from corelane.limits.model.workloads import Bursts, Closed, Duration, Parallel
from support.fluid_bandwidth import Spinners, one_period, parts
from support.scenarios import repeated, result, spinning


def test_half_of_a_load_is_forgotten_in_32_windows():
    load = Load(0, 1000.0)
    assert load.update(HALF_LIFE_NS) == pytest.approx(500)
    load.change(HALF_LIFE_NS, 200)
    assert load.update(2 * HALF_LIFE_NS) == pytest.approx(350), "half way from 500 to 200"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3000)), max_size=20))
def test_updates_of_a_load_in_between_change_nothing(steps):
    often, seldom, now, queued = Load(0), Load(0), 0, 0
    for passed, weight in steps:
        for _ in range(4):
            now += passed * MS
            often.update(now)
        often.change(now, weight - queued)
        seldom.change(now, weight - queued)
        queued = weight
    assert often.average == pytest.approx(seldom.update(now))


class Entity:
    def __init__(self, weight):
        self.weight = weight
        self.vruntime = self.deadline = self.protected = self.lag = self.parted = 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 8000), min_size=2, max_size=6), st.integers(0, 99))
def test_no_entity_is_behind_or_ahead_by_more_than_a_slice(weights, seed):
    """The promise of EEVDF (Stoica and Abdel-Wahab 1995), where ends of slices are noticed at once."""
    turns, chance, ready, running = Turns(True, MS, 0, 0), Random(seed), [], None
    for weight in weights:
        entity = Entity(weight)
        turns.join(ready, entity, 0.0)
        ready.append(entity)
    for _ in range(300):
        chosen = turns.choose(ready, running)
        if chosen is not running:
            running = chosen
            running.protected = running.deadline
        turns.charge(running, min(chance.randint(MS // 10, MS), max(turns.left_ns(running), 1)))
        turns.ends(running)
        now = average(ready, 0.0)
        assert all(abs((now - each.vruntime) * each.weight / NICE_0) <= MS + 1000 for each in ready)


def test_a_change_of_weight_leaves_the_lag_as_it_is():
    turns, light, heavy = Turns(True, MS, 0, 0), Entity(1024), Entity(2048)
    turns.join([], light, 0.0)
    turns.join([light], heavy, 0.0)
    turns.charge(light, 500_000)
    before = (average([light, heavy], 0.0) - light.vruntime) * light.weight
    turns.reweigh([light, heavy], light, 512.0)
    assert (average([light, heavy], 0.0) - light.vruntime) * light.weight == pytest.approx(before)


def wake_ups(system: Simulator, every_ns: int, work_ns: int) -> list[float]:
    """How late, in ms, work of a thread beside a spinner ends, for 5 s."""
    took = []

    def sleeper():
        while True:
            due = system.now + every_ns + 300_000
            yield SLEEP, due - system.now
            yield RUN, work_ns
            took.append((system.now - due) / MS)

    system.thread(system.group("busy"), spinning(), 0)
    system.thread(system.group("light"), sleeper(), 0)
    system.run(5 * SECOND)
    return sorted(took)


def test_a_thread_that_is_owed_time_preempts_a_spinner_at_once():
    """0.5 ms of each 20 ms: behind after a wait, it does not wait for ticks until that is used up."""
    took = wake_ups(Simulator(1, tick_ns=4 * MS), 20 * MS, MS // 2)
    assert took[len(took) // 2] < 1, "at once"
    assert took[-1] > 2, "at a tick"


@pytest.mark.parametrize(
    ("kernel", "work", "least", "most"), [("5.14", 2, 2, 2), ("5.14", 5, 6, 8), ("6.6", 2, 2.9, 5)]
)
def test_a_thread_that_wakes_has_a_head_start_of_3_ms_before_6_6_and_none_since(kernel, work, least, most):
    took = wake_ups(Simulator(1, KERNELS[kernel], tick_ns=1 * MS), 97 * MS, work * MS)
    assert len(took) > 30
    assert least <= took[0] <= took[-1] <= most


def test_threads_that_find_no_idle_cpu_wake_where_their_work_comes_from():
    """Pinned spinners on both CPUs: all of the group's threads end up on CPU 1."""
    system = Simulator(2, waker=1)
    for cpu in (0, 1):
        system.thread(system.group("busy"), spinning(), cpu, 1 << cpu)
    light = system.group("light")
    for _ in range(2):
        system.thread(light, repeated((RUN, MS), (SLEEP, 9 * MS)), 0)
    system.run(SECOND)
    assert light.queues[1].load.average > 5 * light.queues[0].load.average


@pytest.mark.parametrize(
    ("busy", "start", "allowed", "runs_on"), [(None, 2, -1, {2}), (1, 1, 0b1010, {3})], ids=["idle", "busy"]
)
def test_a_thread_wakes_where_it_ran_or_else_on_the_next_idle_cpu_that_it_may_use(
    busy, start, allowed, runs_on
):
    window = TimelineRecorder(100 * MS, SECOND)
    system = Simulator(4, tracer=window)
    if busy is not None:
        system.thread(system.group("busy"), spinning(), busy, 1 << busy)
    system.thread(system.group("light"), repeated((RUN, 1 * MS), (SLEEP, 9 * MS)), start, allowed)
    system.run(SECOND)
    assert {span.cpu for span in window.timeline().ran if span.group == "light"} == runs_on


def test_threads_that_share_a_cpu_are_fetched_by_one_that_goes_idle():
    system = Simulator(2)
    group = system.group("g")
    for amount in (50 * MS, 50 * MS):
        system.thread(group, iter([(RUN, amount)]), 0)
    system.thread(system.group("other"), iter([(RUN, 10 * MS)]), 1)
    system.run(61 * MS)
    assert group.usage_ns == 100 * MS, "both ended: one alone, one from 10 ms on CPU 1"


def test_busy_cpus_are_evened_out():
    """Three spinners on CPU 0 and one on CPU 1 become two and two."""
    system = Simulator(2)
    groups = [system.group(str(i)) for i in range(4)]
    for group, cpu in zip(groups, (0, 0, 0, 1), strict=True):
        system.thread(group, spinning(), cpu)
    system.run(10 * SECOND)
    assert [group.usage_ns / SECOND for group in groups] == pytest.approx([5, 5, 5, 5], abs=0.1)


def test_no_thread_is_taken_to_a_cpu_on_which_its_group_is_throttled():
    """CPU 1 would be idle when its slice is gone, while two take turns on what CPU 0 has left."""
    system = Simulator(2, tick_ns=1 * MS)
    group = system.group("g", limit=CFSLimit(10 * MS))
    system.thread(group, spinning(), 1, 1 << 1)
    waiting = [system.thread(group, spinning(), 0) for _ in range(2)]
    system.run(20 * MS)
    assert group.queues[1].throttled
    assert [thread.queue.cpu for thread in waiting] == [0, 0]


def test_a_thread_that_is_moved_gets_its_part_there_at_once():
    """Virtual time on CPU 1, where three took turns, is 1.7 s ahead of that on CPU 0."""
    window = TimelineRecorder(5100 * MS, 6100 * MS)
    system = Simulator(2, tracer=window)
    group = system.group("g")
    for cpu in (1, 1, 0):
        system.thread(group, spinning(), cpu, 1 << cpu)
    moving = system.thread(group, spinning(), 1, 1 << 1)
    system.run(5 * SECOND)
    moving.allowed, system.movable = 0b11, True
    system.run(6100 * MS)
    assert moving.queue.cpu == 0
    used = sum(span.end - span.start for span in window.timeline().ran if span.thread == moving.number)
    assert used == pytest.approx(500 * MS, rel=0.03)


def test_a_spinner_at_a_gate_goes_on_when_it_opens_and_sleeps_when_its_patience_ends():
    system, passed = Simulator(3), {}

    def wait(name, gate):
        yield SPIN, gate
        passed[name] = system.now
        yield RUN, 1 * MS

    patient, hasty = Gate(50 * MS), Gate(3 * MS)
    group, other = system.group("patient"), system.group("hasty")
    system.thread(group, wait("patient", patient), 0)
    system.thread(other, wait("hasty", hasty), 1)
    for gate in (patient, hasty):
        system.after(10 * MS, lambda _argument, _stamp, gate=gate: system.open(gate))
    system.run(SECOND)
    assert passed == {"patient": 10 * MS, "hasty": 10 * MS}
    assert (group.usage_ns, other.usage_ns) == (11 * MS, 4 * MS)


def team(serial: int, threads: int, **more) -> Parallel:
    return Parallel(Duration(serial * MS), Duration(8 * MS), threads, Closed(1), overhead_ns=0, **more)


def test_a_team_takes_as_long_as_its_parts_and_spinning_is_use():
    """2 ms serial, 8 ms of work by four: 4 ms a request, and all four CPUs are busy."""
    found = result(team(2, 4, spin_ns=5 * MS, imbalance=0), 4, seconds=2)
    assert found.mean_ns == pytest.approx(4 * MS, rel=1e-3)
    assert found.cpus_used == pytest.approx(4, rel=1e-2)


def test_a_team_whose_parts_differ_waits_for_the_slowest():
    mean = result(team(1, 10, spin_ns=0, imbalance=0.5), 4, seconds=2).mean_ns
    assert 1 + 2 * 1.3 < mean / MS < 1 + 2 * 1.5, "the greatest of four uniform draws is 0.8 of the range"


def test_a_burst_that_outlasts_its_interval_delays_the_next_and_does_not_pile_up():
    """35 ms of work every 10 ms at half a CPU."""
    found = result(Bursts(Duration(35 * MS), every_ns=10 * MS), 1, CFSLimit(50 * MS), seconds=20)
    assert found.latency[100] < 200 * MS
    assert found.per_second == pytest.approx(0.5 / 0.035, rel=0.02)


# Shares.


@pytest.mark.parametrize("kernel", ["3.17", "6.6", "6.18"])
def test_a_groups_shares_are_spread_over_the_cpus_its_threads_are_on(kernel):
    """On CPU 0 half of a's shares stand against all of b's: one third and two thirds."""
    system = Simulator(2, KERNELS[kernel])
    a, b = system.group("a"), system.group("b")
    for group, cpu in ((a, 0), (a, 1), (b, 0)):
        system.thread(group, spinning(), cpu, 1 << cpu)
    system.run(12 * SECOND)
    assert (a.usage_ns, b.usage_ns) == pytest.approx((16 * SECOND, 8 * SECOND), rel=0.005)


def test_shares_count_among_siblings_and_threads_share_what_their_group_gets():
    system = Simulator(1)
    pod, other = system.group("pod"), system.group("other", shares=2048)
    c, d = system.group("c", pod, shares=768), system.group("d", pod, shares=256)
    for group in (c, d, d, d, other):
        system.thread(group, spinning(), 0)
    system.run(12 * SECOND)
    assert [group.usage_ns / SECOND for group in (c, d, other)] == pytest.approx([3, 1, 8], rel=0.01)


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


# Limited groups beside others on the same CPUs: held to arithmetic, and to what this kernel did.

PERIODS = 60
TURN, SLICE = 1.0, 5.0  # ms


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
                simulator.thread(made[-1], spinning(), cpu, 1 << cpu)
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
    assert (used, others) == pytest.approx((30, 70), rel=0.02)


def test_four_spinning_threads_on_two_cpus_beside_two_are_throttled_as_by_this_kernel():
    """Equal requests, 500m; throttled time sums over CPUs."""
    (used, throttled), _ = simulated([Spinners(1024, 50.0, (2, 2)), Spinners(1024, None, (1, 1))])
    assert throttled * 10 == pytest.approx(994, rel=0.05)
    assert used == pytest.approx(50, rel=0.02)


def spinners(cpus):
    quotas = st.none() | st.integers(10, 80 * cpus).map(float)
    counts = st.tuples(*[st.integers(0, 3)] * cpus).filter(any)
    return st.builds(Spinners, st.integers(512, 3072), quotas, counts)


@settings(max_examples=40, deadline=None)
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
    expected = one_period(groups)
    for index, (counted, computed) in enumerate(zip(simulated(groups, nested=nested), expected, strict=True)):
        limited = groups[index].quota is not None
        off = sum(TURN + SLICE / part for part in parts(groups, index)) if limited else 0
        assert counted[0] == pytest.approx(computed[0], abs=4 * len(groups[0].threads))
        assert counted[1] == pytest.approx(computed[1], abs=off)


@pytest.mark.parametrize("kernel", ["3.17", "5.4", "5.14", "6.6", "6.18"])
def test_every_kernel_shares_a_cpu_by_weights_while_a_limit_holds_one_group_back(kernel):
    groups = [Spinners(2048, 30.0, (1,)), Spinners(1024, None, (1,))]
    (used, throttled), _ = simulated(groups, kernel)
    assert used == pytest.approx(30, rel=0.03)
    assert throttled == pytest.approx(55, abs=8)


# Pod over container, both out of runtime at once: whose clock runs, by kernel.


def two_levels(kernel: str, tick_ns: int, until_ns: int, *steps: tuple[int, int]):
    """10 ms of every 100 for both; the pod's periods begin with 0, the container's 50 ms later."""
    system = Simulator(1, KERNELS[kernel], tick_ns=tick_ns, tick_phases=lambda _cpu: 99 * MS)
    pod = system.group("pod", limit=CFSLimit(10 * MS))
    container = system.group("c", pod, limit=CFSLimit(10 * MS), phase_ns=50 * MS)
    system.thread(container, iter(steps), 0)
    system.run(until_ns)
    return pod.stat(), container.stat()


@pytest.mark.parametrize(("kernel", "of_pod"), [("5.14", 90 + 90), ("6.6", 50 + 50), ("6.18", 90 + 90)])
def test_the_clock_of_a_pod_stands_while_its_container_is_throttled_only_from_6_6_until_6_18(kernel, of_pod):
    pod, container = two_levels(kernel, 0, 251 * MS, (RUN, SECOND))
    assert (pod.usage_ns, container.throttled_ns) == (30 * MS, 3 * 40 * MS)
    assert (pod.throttled_ns, pod.nr_periods, pod.nr_throttled) == (of_pod * MS, 2, 2)


@pytest.mark.parametrize(
    ("kernel", "of_container", "of_pod"),
    [("5.14", 50 - 12, 100 - 12), ("6.6", 50 - 30, 100 - 50), ("6.18", 50 - 30, 100 - 30)],
)
def test_a_task_that_wakes_under_two_throttled_levels_starts_both_clocks_where_tasks_are_set_aside(
    kernel, of_container, of_pod
):
    """It slept from 12 to 30 ms, having overdrawn by 2."""
    steps = (RUN, 12 * MS), (SLEEP, 18 * MS), (RUN, 1 * MS)
    pod, container = two_levels(kernel, 100 * MS, 140 * MS, *steps)
    assert pod.usage_ns == 13 * MS
    assert (container.throttled_ns, pod.throttled_ns) == (of_container * MS, of_pod * MS)
