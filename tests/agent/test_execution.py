"""Pinning and observing with a runtime that fails in every way."""

import asyncio
import errno
from pathlib import Path

import pytest

from corelane.agent.allocation.events import ContainerRun, PinFailed, Pinned
from corelane.agent.allocation.instructions import Observe, Pin
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.embedded.pods.comparison import ComparingExecution
from corelane.kernel.cgroupfs import CgroupError
from corelane.kernel.proc import TaskAffinity
from corelane.runtime.base import ObservedResources, ResourceUpdate, RuntimeStatus, each_observed
from support.clocks import SetClocks

CPUS = CPUSet([1, 2])
STOPPED = SetClocks()


class Events(list):
    """A queue that keeps every event."""

    put = list.append


class Reporter(AgentReporter):
    def __init__(self):
        self.faults = []

    def malfunction(self, what, error):
        self.faults.append((what, error))


class FakeRuntime:
    """Containers by id, each with what is observed of it, or the error that an attempt raises."""

    def __init__(self, **containers):
        self.observed = containers
        self.tasks = {}
        self.batches = []
        self.read = []

    async def containers(self):
        return [
            RuntimeStatus(id=name, pod_uid="u", name=name, attempt=0, state="running")
            for name in self.observed
        ]

    async def apply(self, container_id, change):
        pass

    async def observe(self, container_id):
        result = self.observed[container_id]
        if isinstance(result, Exception):
            raise result
        return result

    async def observe_all(self, container_ids):
        self.batches.append(tuple(container_ids))
        return await each_observed(self.observe, container_ids)

    async def allowed(self, container_id, *, most=None):
        self.read.append(container_id)
        return self.tasks.get(container_id, [])


def observed(cpus=CPUS, **members):
    return ObservedResources(cpus=cpus, cgroup="group", **members)


def too_many_files():
    return CgroupError("read", Path("cpuset.cpus"), OSError(errno.EMFILE, "Too many open files"))


def running(name):
    return ContainerRun(id=name, uid="u", container=name, attempt=0, live=False)


def compared(runtime, *names):
    """What is reported of these containers, and the faults."""

    async def scenario():
        events, reporter = Events(), Reporter()
        execution = ComparingExecution(runtime, events, reporter=reporter, clocks=STOPPED)
        await execution.compare(map(running, names))
        return {event.id: event.allowed for event in events}, reporter.faults

    return asyncio.run(scenario())


def test_a_container_that_cannot_be_read_does_not_keep_others_from_being_read():
    runtime = FakeRuntime(a=too_many_files(), b=observed(), c=ValueError("surprise"))
    allowed, faults = compared(runtime, "a", "b", "c")
    assert allowed == {"b": CPUS}
    ((what, error),) = faults
    assert what == "reading the CPUs of 2 of 3 containers"
    assert error.errno == errno.EMFILE


async def test_the_inventory_lists_containers_that_cannot_be_read():
    reporter = Reporter()
    runtime = FakeRuntime(a=too_many_files(), b=observed())
    execution = ComparingExecution(runtime, Events(), reporter=reporter, clocks=STOPPED)
    runs = await execution.inventory()
    assert {run.id: run.allowed for run in runs} == {"a": CPUSet(), "b": CPUS}
    assert len(reporter.faults) == 1


def test_a_cgroup_without_processes_allows_no_cpus():
    allowed, _ = compared(FakeRuntime(a=observed(populated=False), b=None), "a", "b")
    assert allowed == {"a": CPUSet(), "b": CPUSet()}


async def test_one_container_at_a_time_is_read_task_by_task():
    runtime = FakeRuntime(a=observed(), b=observed(), c=observed())
    stray = CPUSet([5])
    tasks = [TaskAffinity(1, 1, CPUS), TaskAffinity(1, 2, stray)]
    runtime.tasks = dict.fromkeys("abc", tasks)

    events = Events()
    execution = ComparingExecution(runtime, events, reporter=Reporter(), clocks=STOPPED)
    for _ in range(3):
        await execution.compare(map(running, "abc"))
    assert sorted(runtime.read) == ["a", "b", "c"]
    assert [event.allowed for event in events].count(CPUS | stray) == 3


def test_a_comparison_observes_all_containers_at_once():
    runtime = FakeRuntime(a=observed(), b=observed(populated=False), c=observed())
    assert compared(runtime, "a", "b", "c") == ({"a": CPUS, "b": CPUSet(), "c": CPUS}, [])
    assert runtime.batches == [("a", "b", "c")]


@pytest.mark.parametrize("how", [Pin("a", ResourceUpdate(cpus=CPUS)), Observe("a")])
async def test_a_comparison_leaves_out_what_was_pinned_or_observed_meanwhile(how):
    """Its reading may be the older one, and would look like drift."""

    events = Events()
    runtime = FakeRuntime(a=observed(CPUSet([1])), b=observed(CPUSet([1])))
    execution = ComparingExecution(runtime, events, reporter=Reporter(), clocks=STOPPED)
    observe_all = runtime.observe_all

    async def slow(container_ids):
        readings = await observe_all(container_ids)
        runtime.observed["a"] = observed()
        execution.carry_out(how)
        while not events:
            await asyncio.sleep(0)
        return readings

    runtime.observe_all = slow
    await execution.compare(map(running, "ab"))
    assert [(event.id, event.allowed) for event in events] == [("a", CPUS), ("b", CPUSet([1]))]
    runtime.observe_all = observe_all
    await execution.compare(map(running, "ab"))
    assert [event.id for event in events[2:]] == ["a", "b"]


async def test_a_pin_is_answered_by_what_the_kernel_grants():
    events = Events()
    runtime = FakeRuntime(a=observed(CPUSet([1])), b=too_many_files())
    execution = ComparingExecution(runtime, events, reporter=Reporter(), clocks=STOPPED)
    for name in "ab":
        execution.carry_out(Pin(name, ResourceUpdate(cpus=CPUS)))
    while len(events) < 2:
        await asyncio.sleep(0)
    seen = CPUSet([1])
    assert events[0] == Pinned(id="a", cpus=CPUS, allowed=seen, resources=observed(seen), at=0.0, now=0.0)
    assert isinstance(events[1], PinFailed)
