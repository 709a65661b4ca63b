"""What the agent beside a kubelet reads, each source by itself: its runtime, kernel and machine.

A cgroup's set does not show where its tasks may run, so tasks are sampled each period. One that may leave
its container's CPUs was moved to another cgroup: that is drift. One that may use only part of them was
narrowed by its program (sched_setaffinity, or a cgroup of its own), which is the program's right: it is
reported, and left alone. Reading every task of every container would cost too much: containers take turns.
"""

import asyncio
import math
from bisect import bisect_right
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final

from corelane.agent.allocation import events
from corelane.agent.allocation.records import NO_CPUS, RunCPUs
from corelane.agent.event_loop import Clocks, EventQueue
from corelane.agent.execution import ENDED, TASKS, ContainerReading, container_run, outside, read
from corelane.agent.kubelet.kubelet_pods import KubeletPods
from corelane.agent.kubelet.kubelet_sources import KubeletSources
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import NodeWatch, local_source, named_count
from corelane.cpuset import CPUSet
from corelane.kernel.proc import TaskAffinity
from corelane.machine.model import MachineError
from corelane.machine.watch import MachineWatch
from corelane.runtime.base import Runtime, RuntimeStatus
from corelane.runtime.cri.runtime import CRIRuntime


class Overlap:
    """The last thousand times, in seconds, of containers that started `since` then, in Unix seconds.

    A container that the runtime created on its CPUs (NRI) has no overlap.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._started: dict[str, float] = {}
        self._placed: set[str] = set()
        self._count = 0
        self._recent: list[float] = []

    def placed(self, container_id: str) -> None:
        """Record that a container is to be created on its CPUs."""
        self._placed.add(container_id)

    def started(self, status: RuntimeStatus) -> None:
        """Record a container's start."""
        if status.id in self._placed:
            self._placed.discard(status.id)
        elif status.started_at is not None and status.started_at >= self._since:
            self._started[status.id] = status.started_at

    def ended(self, container_id: str) -> None:
        """Forget a container."""
        self._started.pop(container_id, None)
        self._placed.discard(container_id)

    def pinned(self, event: events.Pinned) -> None:
        """Measure the time until a container's CPUs were first read back."""
        if event.allowed == event.cpus and event.id in self._started:
            self._count += 1
            self._recent.append(max(event.at - self._started.pop(event.id), 0.0))
            del self._recent[:-1000]

    def plain(self) -> dict[str, Any]:
        """Return count, p99 and longest, for status."""
        return {
            "count": self._count,
            "p99": percentile(self._recent, 0.99),
            "longest": max(self._recent, default=0.0),
        }


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * share) - 1] if ordered else 0.0


CONTAINERS: Final = 2
"""Containers sampled in a period."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A container some of whose sampled tasks may use only part of its CPUs; `used` by all of the sample."""

    container: str
    cpus: str
    used: str
    tasks: int
    sampled: int


def narrowed(container: str, tasks: list[TaskAffinity], cpus: CPUSet) -> Narrowed | None:
    """Return how far a program uses part of its container's CPUs; None where every task may use all."""
    count = sum(task.cpus < cpus for task in tasks)
    used = CPUSet(cpu for task in tasks for cpu in task.cpus) & cpus
    return Narrowed(container, str(cpus), str(used), count, len(tasks)) if count else None


class TaskSamples:
    """Samples of one agent."""

    def __init__(self, runtime: Runtime, reporter: AgentReporter) -> None:
        self._runtime = runtime
        self._reporter = reporter
        self._last = ""
        self._narrowed: dict[str, Narrowed] = {}

    def due(self, runs: Iterable[RunCPUs]) -> set[str]:
        """Return the containers whose turn it is, and forget those that have ended."""
        ids = sorted(run.id for run in runs)
        for ended in self._narrowed.keys() - set(ids):
            del self._narrowed[ended]
        first = bisect_right(ids, self._last)
        chosen = (ids[first:] + ids[:first])[:CONTAINERS]
        self._last = chosen[-1] if chosen else ""
        return set(chosen)

    async def sample(self, run: RunCPUs, pod: str, cpus: CPUSet) -> CPUSet:
        """Return the CPUs that tasks of a pod's container may use beyond its own. Raises CgroupError."""
        tasks = await self._runtime.allowed(run.id, most=TASKS)
        self._note(run, narrowed(f"{pod} {run.container}", tasks, cpus))
        return outside(tasks, cpus)

    def _note(self, run: RunCPUs, sample: Narrowed | None) -> None:
        before = self._narrowed.pop(run.id, None)
        if sample is None:
            return
        self._narrowed[run.id] = sample
        if before is None or (before.cpus, before.used) != (sample.cpus, sample.used):
            self._reporter.narrowed(sample.container, sample.cpus, sample.used)

    def plain(self) -> list[dict[str, Any]]:
        """Return the containers whose programs use part of their CPUs, for status."""
        return [asdict(sample) for sample in sorted(self._narrowed.values(), key=attrgetter("container"))]


RELIST_SECONDS: Final = 300.0
"""Between two lists of a runtime that reports starts and ends by itself."""
CHECK_SECONDS: Final = 1.0
"""For the kubelet's policy, before drift is repaired."""
END_SECONDS: Final = 0.5
"""Between two looks at the cgroup of a container that has ended, until it is empty."""


class NodeSources:
    """All sources of one agent; `parts` are their tasks."""

    def __init__(
        self,
        runtime: CRIRuntime,
        kubelet_pods: KubeletPods,
        kubelet: KubeletSources,
        node_watch: NodeWatch,
        queue: EventQueue,
        *,
        seconds: float,
        reporter: AgentReporter,
        clocks: Clocks,
        machine_watch: MachineWatch | None = None,
    ) -> None:
        self.overlap = Overlap(since=clocks.wall())
        self.runtime_version = ""
        self.reconcile_seconds, self.reconciled_at, self.reconcile_took = seconds, 0.0, 0.0
        self.kubelet = kubelet
        self._runtime = runtime
        self._kubelet_pods = kubelet_pods
        self._node_watch = node_watch
        self._queue = queue
        self._clocks = clocks
        self._machine_watch = machine_watch
        self._machine_lock = asyncio.Lock()
        self.samples = TaskSamples(runtime, reporter)
        self._listed_at = float("-inf")
        self._ending: dict[str, RuntimeStatus] = {}
        source = partial(local_source, reporter=reporter, clocks=clocks)
        self.containers = source("containers", seconds=seconds)
        self.runtime_events = source("runtime events", seconds=0.0)
        self.cgroups = source("cgroups", seconds=seconds)
        self.ends = source("ended containers", seconds=END_SECONDS)
        self.machine_source = source("CPUs of the machine", seconds=seconds)

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the sources' tasks."""
        yield self.containers.run(self._ask_runtime)
        yield self.runtime_events.run(self._follow_runtime)
        yield self.cgroups.run(self._reconcile)
        yield self.ends.run(self._check_ends)
        if self._machine_watch:
            yield self.machine_source.run(self._read_machine)
        yield from self.kubelet.parts()
        yield from self._node_watch.parts()

    def states(self) -> list[dict[str, Any]]:
        """Return the state of every source, for status."""
        own = [self.containers, self.runtime_events, self.cgroups, self.ends]
        machine = [self.machine_source] if self._machine_watch else []
        every = (*own, *self.kubelet.all, *machine, *self._node_watch.sources)
        return [source.state.plain() for source in every]

    # -- the runtime

    async def _ask_runtime(self) -> None:
        """Take the containers, and note how starts and ends are seen: a silent stream may be open or not."""
        try:
            await self._list_containers()
        except Exception:
            self.runtime_events.state.detail = "interrupted, see containers"
            raise
        follows = self._runtime.follows_events
        self.runtime_events.note_ok(
            "pushed by the runtime" if follows else "containers are listed each period"
        )

    async def _list_containers(self) -> None:
        """Take a whole list, unless the runtime reports changes by itself and none is due."""
        now = began = self._clocks.monotonic()
        awaited = self._kubelet_pods.creating  # only a list shows that it was never made
        if self._runtime.follows_events and not awaited and now - self._listed_at < RELIST_SECONDS:
            await self._ask_version(again=True)  # a runtime that hangs sends no events, either
            return
        statuses = await self._runtime.containers()
        await self._ask_version()
        runs = [await self._listed(status) for status in statuses if status.state != "created"]
        self._listed_at = now
        self.containers.note_ok(named_count(len(statuses), "container"))
        self._queue.put(events.ContainersListed(runs=tuple(runs), began=began, **self._clocks.times()))

    async def _ask_version(self, *, again: bool = False) -> None:
        self.runtime_version = (await self._runtime.version(again=again)).version

    def containers_changed(self) -> None:
        """Read the containers again at once."""
        self._listed_at = float("-inf")
        self.containers.wake()

    async def _run(self, status: RuntimeStatus) -> events.ContainerRun:
        """Return a run with the CPUs that the kernel grants; live as long as a process is in its cgroup."""
        reading = await read(self._runtime, status.id)
        run = container_run(status, reading)
        if status.state == ENDED and reading.allowed:
            self._ending[status.id] = status
            return replace(run, live=True)
        return run

    async def _listed(self, status: RuntimeStatus) -> events.ContainerRun:
        """Return a run of a list; one that cannot be read now is live, and the next reconcile reads it."""
        try:
            return await self._run(status)
        except Exception as error:  # noqa: BLE001 - one container must not hide all others
            self.cgroups.note_failure(error)
            if status.state == ENDED:
                self._ending[status.id] = status
            return replace(container_run(status), live=True)

    async def _follow_runtime(self) -> None:
        async for status in self._runtime.wait_events():
            try:
                if status.state == "running":
                    run = await self._run(status)
                    self.overlap.started(status)
                    self._queue.put(events.ContainerSeen(run=run, **self._clocks.times()))
                    if status.pod_uid not in self.kubelet.pods.pods:
                        self.kubelet.pods_source.wake()
                elif status.state == ENDED:
                    self.overlap.ended(status.id)
                    self._ending[status.id] = status
                    await self._check_ends()
            except Exception as error:  # noqa: BLE001 - the events that follow are read all the same
                self.runtime_events.note_failure(error)
                self.containers_changed()
        raise RuntimeError("the stream of events ended")

    async def _check_ends(self) -> None:
        """Report ended containers once no process is in their cgroup."""
        faults: list[Exception] = []
        for container_id, status in list(self._ending.items()):
            try:
                reading = await read(self._runtime, container_id)
            except Exception as error:  # noqa: BLE001 - others have ended all the same
                faults.append(error)
                continue
            if not reading.allowed and self._ending.pop(container_id, None) is not None:
                self._queue.put(events.Exited(run=container_run(status), **self._clocks.times()))
                self.kubelet.container_ended(status.pod_uid)
        self.ends.state.detail = f"{len(self._ending)} with processes left" if self._ending else ""
        if faults:
            raise faults[0]

    # -- the kernel

    async def _reconcile(self) -> None:
        """Compare the cgroup of every container, and tasks of a few, with what was applied.

        The runtime is not called.
        """
        began = self._clocks.monotonic()
        faults: list[Exception] = []
        runs = self._kubelet_pods.runs()
        sampled = self.samples.due(runs) if self._kubelet_pods.writes_cpus else ()
        observed: list[events.Observed] = []
        drifted = False
        for run in runs:
            read_at = self._clocks.monotonic()
            try:
                reading = await read(self._runtime, run.id)
                if run.id in sampled:
                    reading = await self._sampled(run, reading)
            except Exception as error:  # noqa: BLE001 - others are read all the same
                faults.append(error)
                continue
            if not reading.allowed and run.id not in self._ending:
                self.containers_changed()
            drifted |= bool(run.applied and reading.allowed) and run.applied != reading.allowed
            if run.confirmed:
                self.overlap.ended(run.id)  # it is on its CPUs: a later move is another matter
            times = self._clocks.times()
            observed.append(
                events.Observed(
                    id=run.id, allowed=reading.allowed, resources=reading.resources, began=read_at, **times
                )
            )
        if drifted:
            await self._note_lost_cpus()
            await self.kubelet.refresh(CHECK_SECONDS)
        for event in observed:
            self._queue.put(event)
        self.reconcile_took = self._clocks.monotonic() - began
        self.reconciled_at = self._clocks.wall()
        if faults:
            raise faults[0]

    async def _sampled(self, run: RunCPUs, reading: ContainerReading) -> ContainerReading:
        """Return a reading with the CPUs of tasks beyond the cgroup's, unless these changed meanwhile.

        The cgroup of a container whose only process was moved out of it is empty, in version 1.
        """
        cpus = reading.resources.cpus if reading.resources else NO_CPUS
        pod = self.kubelet.pods.names().get(run.uid, run.uid)
        beyond = await self.samples.sample(run, pod, cpus) if cpus else NO_CPUS
        if not beyond:
            return reading
        again = await read(self._runtime, run.id)
        same = again.resources is not None and again.resources.cpus == cpus
        return replace(again, allowed=cpus | beyond) if same else again

    async def _read_machine(self) -> None:
        assert self._machine_watch is not None
        async with self._machine_lock:
            machine = await asyncio.to_thread(self._machine_watch.changed)
        if machine is not None:
            self._queue.put(events.MachineChanged(machine=machine, **self._clocks.times()))

    async def _note_lost_cpus(self) -> None:
        """Read the machine before a differing reading is reported: CPUs that went off-line are no drift."""
        if self._machine_watch is not None:
            with suppress(MachineError, OSError):  # the machine's own source reports them
                await self._read_machine()
