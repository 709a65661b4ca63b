"""What the agent beside a kubelet reads, each source by itself: runtime, kubelet, kernel and machine."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from corelane.agent.allocation import events
from corelane.agent.allocation.records import NO_CPUS, RunCPUs
from corelane.agent.execution import ENDED, Reading, container_run
from corelane.agent.kubelet_side import KubeletFacts, KubeletSide, PodList
from corelane.agent.node_protocols import NodeRuntime, SourcesOwner
from corelane.agent.node_watch import NodeWatch
from corelane.agent.overlap import Overlap
from corelane.agent.source import LONGEST_PAUSE, Source, named_count
from corelane.agent.task_samples import TaskSamples
from corelane.kube.kubelet.errors import KubeletError
from corelane.machine.model import MachineError
from corelane.machine.watch import MachineWatch
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.runtime.base import RuntimeStatus, UnknownContainer

CONFIGURATION_SECONDS: Final = 3.0
"""A changed kubelet configuration is published within 5 s, also of a kubelet that was down for long."""
RELIST_SECONDS: Final = 300.0
"""Between two lists of a runtime that reports starts and ends by itself."""
CHECK_SECONDS: Final = 1.0
"""For the kubelet's policy, before drift is repaired."""
END_SECONDS: Final = 0.5
"""Between two looks at the cgroup of a container that has ended, until it is empty."""
FALLBACK_AFTER: Final = 3
"""Failures of the kubelet in a row after which pods are read from the API server."""


class NodeSources:
    """All sources of one agent; `parts` are their tasks."""

    def __init__(
        self,
        owner: SourcesOwner,
        runtime: NodeRuntime,
        *,
        seconds: float,
        pods: PodList,
        node_watch: NodeWatch,
        side: KubeletSide | None = None,
        machine_watch: MachineWatch | None = None,
    ) -> None:
        self.overlap = Overlap(owner.clocks.wall)
        self.runtime_version = ""
        self.reconcile_seconds, self.reconciled_at, self.reconcile_took = seconds, 0.0, 0.0
        self.pods = pods
        self._owner = owner
        self._runtime = runtime
        self._node_watch = node_watch
        self._machine_watch = machine_watch
        self._machine_lock = asyncio.Lock()
        self.samples = TaskSamples(runtime, owner.reporter, lambda uid: self.pods.names().get(uid, uid))
        self._side = side
        self._listed_at = float("-inf")
        self._allocations: tuple[Checkpoint, frozenset[str] | None] | None = None
        self._ending: dict[str, RuntimeStatus] = {}
        self.containers = self._source("containers", self._ask_runtime, seconds)
        self.runtime_events = self._source("runtime events", self._follow_runtime, 0.0)
        self.cgroups = self._source("cgroups", self._reconcile, seconds)
        self.ends = self._source("ended containers", self._check_ends, END_SECONDS)
        self.kubelet_pods = self._source("kubelet pods", self._read_pods, seconds)
        self.resources = self._source("kubelet podresources", self._read_resources, CONFIGURATION_SECONDS)
        self.all = [self.containers, self.runtime_events, self.cgroups, self.ends]
        if side:
            self.all += [self.kubelet_pods, *self._of_kubelet(side)]
        if machine_watch:
            self.all.append(self._source("CPUs of the machine", self._read_machine, seconds))

    def _of_kubelet(self, side: KubeletSide) -> Iterator[Source]:
        seconds = CONFIGURATION_SECONDS
        yield self._source("kubelet configuration", self._read_configuration, seconds)
        if side.has_state_file:
            yield self._source("kubelet state file", self._read_state, seconds)
        if side.has_resources:
            yield self.resources

    def _source(self, name: str, read: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> Source:
        """Return a source on this node: it is cheap to ask, and so is asked again within its period."""
        return Source(
            name,
            read,
            seconds=seconds,
            reporter=self._owner.reporter,
            clock=self._owner.clocks.wall,
            longest_pause=min(seconds or LONGEST_PAUSE, LONGEST_PAUSE),
        )

    @property
    def kubelet_facts(self) -> KubeletFacts | None:
        """What the kubelet said last; None without a kubelet."""
        return self._side.facts if self._side else None

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the sources' tasks."""
        yield from (source.run() for source in self.all)
        yield from self._node_watch.parts()

    def states(self) -> list[dict[str, Any]]:
        """Return the state of every source, for status."""
        return [source.state.plain() for source in (*self.all, *self._node_watch.sources)]

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
        now = began = self._owner.clocks.monotonic()
        awaited = self._owner.machine.creating  # only a list shows that it was never made
        if self._runtime.follows_events and not awaited and now - self._listed_at < RELIST_SECONDS:
            await self._ask_version(again=True)  # a runtime that hangs sends no events, either
            return
        statuses = await self._runtime.containers()
        await self._ask_version()
        runs = [await self._listed(status) for status in statuses if status.state != "created"]
        self._listed_at = now
        self.containers.note_ok(named_count(len(statuses), "container"))
        self._owner.put(events.ContainersListed(runs=tuple(runs), began=began, **self._owner.clocks.times()))

    async def _ask_version(self, *, again: bool = False) -> None:
        self.runtime_version = (await self._runtime.version(again=again)).version

    def containers_changed(self) -> None:
        """Read the containers again at once."""
        self._listed_at = float("-inf")
        self.containers.wake()

    async def _run(self, status: RuntimeStatus) -> events.ContainerRun:
        """Return a run with the CPUs that the kernel grants; live as long as a process is in its cgroup."""
        reading = await self._reading(status.id)
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

    async def _reading(self, container_id: str) -> Reading:
        """Return the effective CPUs of a container's cgroup; none once it is empty or gone."""
        try:
            observed = await self._runtime.observe(container_id)
        except UnknownContainer:
            observed = None
        return Reading(observed.cpus if observed and observed.populated else NO_CPUS, observed)

    async def _follow_runtime(self) -> None:
        async for status in self._runtime.wait_events():
            try:
                await self._changed(status)
            except Exception as error:  # noqa: BLE001 - the events that follow are read all the same
                self.runtime_events.note_failure(error)
                self.containers_changed()
        raise RuntimeError("the stream of events ended")

    async def _changed(self, status: RuntimeStatus) -> None:
        if status.state == "running":
            run = await self._run(status)
            self.overlap.started(status)
            self._owner.put(events.ContainerSeen(run=run, **self._owner.clocks.times()))
            if status.pod_uid not in self.pods.pods:
                self.kubelet_pods.wake()
        elif status.state == ENDED:
            self.overlap.ended(status.id)
            self._ending[status.id] = status
            await self._check_ends()

    async def _check_ends(self) -> None:
        """Report ended containers once no process is in their cgroup."""
        faults: list[Exception] = []
        for container_id, status in list(self._ending.items()):
            try:
                reading = await self._reading(container_id)
            except Exception as error:  # noqa: BLE001 - others have ended all the same
                faults.append(error)
                continue
            if not reading.allowed and self._ending.pop(container_id, None) is not None:
                self._owner.put(events.Exited(run=container_run(status), **self._owner.clocks.times()))
        self.ends.state.detail = f"{len(self._ending)} with processes left" if self._ending else ""
        if faults:
            raise faults[0]

    # -- the kernel

    async def _reconcile(self) -> None:
        """Compare the cgroup of every container, and tasks of a few, with what was applied.

        The runtime is not called.
        """
        began = self._owner.clocks.monotonic()
        faults: list[Exception] = []
        runs = self._owner.runs()
        sampled = self.samples.due(runs) if self._owner.may_write() else ()
        observed: list[events.Observed] = []
        drifted = False
        for run in runs:
            try:
                reading = await self._reading(run.id)
                if run.id in sampled:
                    reading = await self._sampled(run, reading)
            except Exception as error:  # noqa: BLE001 - others are read all the same
                faults.append(error)
                continue
            if not reading.allowed and run.id not in self._ending:
                self.containers_changed()
            drifted |= _has_drifted(run, reading)
            times = self._owner.clocks.times()
            observed.append(
                events.Observed(id=run.id, allowed=reading.allowed, resources=reading.resources, **times)
            )
        if drifted:
            await self._note_lost_cpus()
            await self.refresh_kubelet(CHECK_SECONDS)
        for event in observed:
            self._owner.put(event)
        self.reconcile_took = self._owner.clocks.monotonic() - began
        self.reconciled_at = self._owner.clocks.wall()
        if faults:
            raise faults[0]

    async def _sampled(self, run: RunCPUs, reading: Reading) -> Reading:
        """Return a reading with the CPUs of tasks beyond the cgroup's, unless these changed meanwhile.

        The cgroup of a container whose only process was moved out of it is empty, in version 1.
        """
        cpus = reading.resources.cpus if reading.resources else NO_CPUS
        beyond = await self.samples.sample(run, cpus) if cpus else NO_CPUS
        if not beyond:
            return reading
        again = await self._reading(run.id)
        same = again.resources is not None and again.resources.cpus == cpus
        return replace(again, allowed=cpus | beyond) if same else again

    async def _read_machine(self) -> None:
        assert self._machine_watch is not None
        async with self._machine_lock:
            machine = await asyncio.to_thread(self._machine_watch.changed)
        if machine is not None:
            self._owner.put(events.MachineChanged(machine=machine, **self._owner.clocks.times()))

    async def _note_lost_cpus(self) -> None:
        """Read the machine before a differing reading is reported: CPUs that went off-line are no drift."""
        if self._machine_watch is not None:
            with suppress(MachineError, OSError):  # the machine's own source reports them
                await self._read_machine()

    # -- the kubelet

    async def _read_pods(self) -> None:
        """Ask the kubelet for its pods; when it fails again and again, follow the API server instead."""
        assert self._side is not None
        await self._side.asked.wait()
        try:
            await self._side.read_pods(self._owner.allocated_pods())
        except Exception:
            if self.kubelet_pods.state.retries + 1 >= FALLBACK_AFTER:
                self._node_watch.follow_pods(True)
            raise
        self._node_watch.follow_pods(False)
        self.kubelet_pods.note_ok(named_count(len(self.pods.pods), "pod"))
        self._report_allocations()

    async def find_pod(self, uid: str, seconds: float) -> bool:
        """Whether a pod is known, after asking the kubelet if need be."""
        if uid not in self.pods.pods and self._side is not None:
            async with asyncio.timeout(seconds):
                await self._side.read_pods(self._owner.allocated_pods(), seconds / 2)
        return uid in self.pods.pods

    async def refresh_kubelet(self, seconds: float = 0.0) -> None:
        """Read the kubelet's state file if it was replaced, before CPUs are decided or repaired.

        Drift may be the first sign of a kubelet that was started with policy static. It writes its file
        before any cpuset, and each cpuset once. Without the file, /configz is asked for so many `seconds`.
        """
        if self._side is None:
            return
        with suppress(OSError, KubeletError):  # reported by the source of its own
            if self._side.state_file_replaced:
                await self._read_state()
            elif seconds and not self._side.has_state_file:
                async with asyncio.timeout(seconds):
                    await self._read_configuration()

    async def _read_configuration(self) -> None:
        assert self._side is not None
        await self._side.read_configuration()
        self._report_allocations()

    async def _read_state(self) -> None:
        assert self._side is not None
        try:
            await self._side.read_state()
        finally:
            self._report_allocations()

    async def _read_resources(self) -> None:
        assert self._side is not None
        await self._side.asked.wait()
        self.resources.note_ok(await self._side.read_resources())
        self._report_allocations()

    @property
    def kubelet_allocations(self) -> tuple[Checkpoint | None, str]:
        """The CPUs that the kubelet gave containers, and their source; None while nothing is known."""
        return self._side.facts.allocations(self.pods.uids()) if self._side else (None, "")

    def _running(self) -> frozenset[str] | None:
        """Return the UIDs of pods that run, by the list of pods or of containers; None before both.

        A kubelet that has just started does not list all of its pods.
        """
        listed, live = self.pods.running(), self._owner.machine.live_pods
        return None if listed is None or live is None else listed | live

    def _report_allocations(self) -> None:
        """Report the CPUs that the kubelet pinned, where they or its pods changed."""
        checkpoint, _ = self.kubelet_allocations
        if checkpoint is None:
            return
        running = self._running() if checkpoint.policy == "none" else None
        if (checkpoint, running) != self._allocations:
            self._allocations = (checkpoint, running)
            self._owner.put(
                events.KubeletStateRead(
                    checkpoint=checkpoint,
                    running=running,
                    names=self.pods.names(),
                    **self._owner.clocks.times(),
                )
            )


def _has_drifted(run: RunCPUs, reading: Reading) -> bool:
    return bool(run.applied and reading.allowed) and run.applied != reading.allowed
