"""Where threads run that may run on several CPUs, and how a team of threads waits for each other."""

import pytest

from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.queues import RUN, SLEEP, SPIN, Gate
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.simulator import Simulator
from corelane.limits.model.timeline import TimelineRecorder
from corelane.limits.model.workloads import Bursts, Closed, Duration, Parallel


def spin():
    while True:
        yield RUN, SECOND


def nap():
    while True:
        yield RUN, 1 * MS
        yield SLEEP, 9 * MS


def ran_on(window: TimelineRecorder, group: str) -> set[int]:
    return {span.cpu for span in window.timeline().ran if span.group == group}


def test_a_thread_wakes_where_it_ran_while_that_cpu_is_idle():
    window = TimelineRecorder(0, SECOND)
    system = Simulator(4, tracer=window)
    system.thread(system.group("light"), nap(), 2)
    system.run(SECOND)
    assert ran_on(window, "light") == {2}


def test_a_thread_whose_cpu_is_busy_wakes_on_the_next_idle_one_that_it_may_use():
    window = TimelineRecorder(100 * MS, SECOND)
    system = Simulator(4, tracer=window)
    system.thread(system.group("busy"), spin(), 1, 1 << 1)
    system.thread(system.group("light"), nap(), 1, 0b1010)
    system.run(SECOND)
    assert ran_on(window, "light") == {3}


def test_threads_that_share_a_cpu_are_fetched_by_one_that_goes_idle():
    system = Simulator(2)
    group = system.group("g")

    def once(amount):
        yield RUN, amount

    for amount in (50 * MS, 50 * MS):
        system.thread(group, once(amount), 0)
    system.thread(system.group("other"), once(10 * MS), 1)
    system.run(61 * MS)
    assert group.usage_ns == 100 * MS, "both ended: one alone, one from 10 ms on CPU 1"


def test_busy_cpus_are_evened_out():
    """Three spinners of one group on CPU 0 and one on CPU 1 become two and two."""
    system = Simulator(2)
    groups = [system.group(str(i)) for i in range(4)]
    for group, cpu in zip(groups, (0, 0, 0, 1), strict=True):
        system.thread(group, spin(), cpu)
    system.run(10 * SECOND)
    assert [group.usage_ns / SECOND for group in groups] == pytest.approx([5, 5, 5, 5], abs=0.1)


def test_no_thread_is_taken_to_a_cpu_on_which_its_group_is_throttled():
    """CPU 1 would be idle when its slice is gone, while two take turns on what CPU 0 has left."""
    system = Simulator(2, tick_ns=1 * MS)
    group = system.group("g", limit=CFSLimit(10 * MS))
    system.thread(group, spin(), 1, 1 << 1)
    waiting = [system.thread(group, spin(), 0) for _ in range(2)]
    system.run(20 * MS)
    assert group.queues[1].throttled
    assert [thread.queue.cpu for thread in waiting] == [0, 0]


def test_who_is_taken_elsewhere_gets_its_part_there_at_once():
    """Virtual time on CPU 1, where three took turns, is 1.7 s ahead of that on CPU 0."""
    window = TimelineRecorder(5100 * MS, 6100 * MS)
    system = Simulator(2, tracer=window)
    group = system.group("g")
    for cpu in (1, 1, 0):
        system.thread(group, spin(), cpu, 1 << cpu)
    moving = system.thread(group, spin(), 1, 1 << 1)
    system.run(5 * SECOND)
    moving.allowed, system.movable = 0b11, True
    system.run(6100 * MS)
    assert moving.queue.cpu == 0
    used = sum(span.end - span.start for span in window.timeline().ran if span.thread == moving.number)
    assert used == pytest.approx(500 * MS, rel=0.03)


def test_who_spins_at_a_gate_goes_on_at_once_when_it_opens_and_sleeps_when_its_patience_ends():
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


def test_a_team_takes_as_long_as_its_parts_and_spinning_is_use():
    """2 ms serial, 8 ms of work by four: 4 ms a request, and all four CPUs are busy."""
    work = Parallel(
        Duration(2 * MS), Duration(8 * MS), 4, Closed(1), spin_ns=5 * MS, imbalance=0, overhead_ns=0
    )
    one = Scenario(
        "",
        "",
        SimulatedMachine(4),
        (ScenarioPod("p", (ScenarioContainer("c", (work,), pinned=True),)),),
        seconds=2,
    )
    result = run(one).results[0]
    assert result.mean_ns == pytest.approx(4 * MS, rel=1e-3)
    assert result.cpus_used == pytest.approx(4, rel=1e-2)


def test_a_team_whose_parts_differ_waits_for_the_slowest():
    work = Parallel(
        Duration(1 * MS), Duration(8 * MS), 10, Closed(1), spin_ns=0, imbalance=0.5, overhead_ns=0
    )
    one = Scenario(
        "",
        "",
        SimulatedMachine(4),
        (ScenarioPod("p", (ScenarioContainer("c", (work,), pinned=True),)),),
        seconds=2,
    )
    mean = run(one).results[0].mean_ns
    assert mean is not None
    assert 1 + 2 * 1.3 < mean / MS < 1 + 2 * 1.5, "the greatest of four uniform draws is 0.8 of the range"


def test_a_burst_that_outlasts_its_interval_delays_the_next_and_does_not_pile_up():
    """35 ms of work every 10 ms at half a CPU."""
    work = Bursts(Duration(35 * MS), every_ns=10 * MS)
    app = ScenarioContainer("c", (work,), limit=CFSLimit(50 * MS), pinned=True)
    result = run(Scenario("", "", SimulatedMachine(1), (ScenarioPod("p", (app,)),), seconds=20)).results[0]
    assert result.latency[100] < 200 * MS
    assert result.per_second == pytest.approx(0.5 / 0.035, rel=0.02)
