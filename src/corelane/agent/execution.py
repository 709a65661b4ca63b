"""Carries out the instructions that any runtime can, and compares what is recorded with runtime and kernel.

Each instruction is a task of its own and answers with an event. An unexpected error is reported and answered
as a failure; it never ends the agent.
"""

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from corelane.agent.allocation import events
from corelane.agent.allocation.events import ContainerRun
from corelane.agent.allocation.instructions import Instruction, Observe, Pin
from corelane.agent.allocation.records import NO_CPUS
from corelane.agent.event_loop import Clocks, EventQueue
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.kernel.proc import TaskAffinity
from corelane.runtime.base import (
    OOM_KILLED,
    Observation,
    ObservedResources,
    ResourceUpdate,
    Runtime,
    RuntimeFailure,
    RuntimeStatus,
    UnknownContainer,
)
from corelane.runtime.cri.values import RuntimeVersion

ENDED: Final = "exited"
TASKS: Final = 32
"""Tasks read of a container; two reads of /proc a task."""


class Records(Protocol):
    """The runtime's own records of its containers, as `CRIRuntime` brings them into line."""

    def held(self) -> AbstractContextManager[None]:
        """Begin no update meanwhile."""

    def note_recorded(self, container_id: str, change: ResourceUpdate) -> None:
        """Note that the runtime gets a change in an answer."""

    def note_unrecorded(self, container_id: str, change: ResourceUpdate) -> None:
        """Note that the runtime did not get a change after all."""


class NodeRuntime(Runtime, Protocol):
    """A runtime beside a kubelet."""

    async def version(self, *, again: bool = False) -> RuntimeVersion:
        """Return name and version of the runtime, read once, or `again`."""

    @property
    def follows_events(self) -> bool:
        """Whether the runtime reports starts and ends now."""

    @property
    def unrecorded(self) -> list[str]:
        """Ids of containers whose cgroup differs from the runtime's record."""

    @property
    def records(self) -> Records:
        """The runtime's own records of its containers."""


class InstructionTasks:
    """Tasks that carry out instructions; an error in one of them is reported."""

    def __init__(self, reporter: AgentReporter) -> None:
        self._reporter = reporter
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task of its own."""
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - reported; the state machine retries where it matters
            self._reporter.malfunction(getattr(work, "__qualname__", "an instruction"), error)

    def cancel(self) -> None:
        """Cancel all tasks that have not ended."""
        for task in self._tasks:
            task.cancel()


@dataclass(frozen=True, slots=True)
class Reading:
    """CPUs that the kernel allows a container's processes, empty if there are none, and its resources."""

    allowed: CPUSet
    resources: ObservedResources | None


class Execution:
    """Pins and observes containers; the answering events go to `queue`."""

    def __init__(
        self,
        runtime: Runtime,
        queue: EventQueue,
        *,
        reporter: AgentReporter,
        clocks: Clocks,
    ) -> None:
        self._runtime = runtime
        self._queue = queue
        self._reporter = reporter
        self._clocks = clocks
        self._tasks = InstructionTasks(reporter)
        self._samples = 0
        self._newer: set[str] | None = None
        """Containers pinned or observed since the comparison that goes on began; None between comparisons."""

    def carry_out(self, order: Instruction) -> bool:
        """Begin to carry out an instruction; return whether it is one for any runtime."""
        match order:
            case Pin():
                self._tasks.spawn(self._pin(order))
            case Observe():
                self._tasks.spawn(self.observe(order.id))
            case _:
                return False
        return True

    def cancel(self) -> None:
        """Cancel outstanding tasks; the runtime may still complete what was begun."""
        self._tasks.cancel()

    async def _pin(self, order: Pin) -> None:
        try:
            await self._runtime.apply(order.id, order.update)
            self._note_newer(order.id)
            reading = await self._read(order.id)
        except Exception as error:
            self._queue.put(events.PinFailed(id=order.id, message=str(error), **self._clocks.times()))
            if not isinstance(error, RuntimeFailure | UnknownContainer):
                raise
        else:
            answer = events.Pinned(
                id=order.id,
                cpus=order.cpus,
                allowed=reading.allowed,
                resources=reading.resources,
                **self._clocks.times(),
            )
            self._queue.put(answer)

    # -- observing

    def ended(self, status: RuntimeStatus) -> None:
        """Report that a run ended."""
        self._queue.put(events.Exited(run=container_run(status), **self._clocks.times()))

    async def observe(self, container_id: str) -> None:
        """Report what the kernel grants a container; `compare` reports a cgroup that cannot be read."""
        try:
            reading = await self._read(container_id)
        except OSError:
            return
        self._note_newer(container_id)
        self._put_reading(container_id, reading)

    def _note_newer(self, container_id: str) -> None:
        if self._newer is not None:
            self._newer.add(container_id)

    def _put_reading(self, container_id: str, reading: Reading) -> None:
        event = events.Observed(
            id=container_id, allowed=reading.allowed, resources=reading.resources, **self._clocks.times()
        )
        self._queue.put(event)

    async def inventory(self) -> tuple[ContainerRun, ...]:
        """Return every run that the runtime has, live or ended."""
        statuses = await self._runtime.containers()
        readings = await self._read_all([status.id for status in statuses])
        return tuple(container_run(status, readings.get(status.id)) for status in statuses)

    async def compare(self, recorded: Iterable[ContainerRun]) -> None:
        """Compare the containers that are recorded as live with the runtime and the kernel.

        Each is given as its end is reported where the runtime does not have it any more.

        The kernel's view is that of each container's cgroup. One container at a time is read task by task,
        in turn: on cgroup v1 a thread can be moved out of it alone. A container that is pinned or
        observed meanwhile is left out: its reading here may be the older one.
        """
        recorded = tuple(recorded)  # before listing: a container that is started meanwhile is not lost
        statuses = {status.id: status for status in await self._runtime.containers()}
        self._samples += 1
        live: list[str] = []
        for run in recorded:
            status = statuses.get(run.id)
            if status is None:
                self._queue.put(events.Exited(run=run, **self._clocks.times()))
            elif status.state == ENDED:
                self.ended(status)
            else:
                live.append(run.id)
        sampled = live[self._samples % len(live)] if live else ""
        newer = self._newer = set[str]()
        try:
            readings = await self._read_all(live, sampled)
        finally:
            self._newer = None
        for container_id, reading in readings.items():
            if container_id not in newer:
                self._put_reading(container_id, reading)

    async def _read_all(self, ids: Collection[str], sampled: str = "") -> dict[str, Reading]:
        """Read containers, `sampled` task by task.

        Errors are reported, and the next comparison reads again: other containers are read all the same.
        """
        faults: list[Exception] = []
        readings: dict[str, Reading] = {}
        for container_id, observed in (await self._runtime.observe_all(ids)).items():
            try:
                readings[container_id] = await self._reading(
                    container_id, observed, tasks=container_id == sampled
                )
            except Exception as error:  # noqa: BLE001 - reported
                faults.append(error)
        self._report(faults, len(ids))
        return readings

    def _report(self, faults: list[Exception], total: int) -> None:
        if faults:
            what = f"reading the CPUs of {len(faults)} of {total} containers"
            self._reporter.malfunction(what, faults[0])

    async def _read(self, container_id: str) -> Reading:
        """Return what the kernel allows a container's processes."""
        try:
            return await self._reading(container_id, await self._runtime.observe(container_id))
        except UnknownContainer as error:
            return await self._reading(container_id, error)

    async def _reading(self, container_id: str, observed: Observation, *, tasks: bool = False) -> Reading:
        """Return what was observed, with `tasks` the union over its tasks. Raises the error of observing."""
        if isinstance(observed, UnknownContainer):
            return Reading(NO_CPUS, None)
        if isinstance(observed, Exception):
            raise observed
        if observed is None or not observed.populated:
            return Reading(NO_CPUS, observed)
        cpus = observed.cpus
        if tasks and observed.cgroup:
            with suppress(UnknownContainer):
                cpus |= outside(await self._runtime.allowed(container_id, most=TASKS), cpus)
        return Reading(cpus, observed)


def container_run(status: RuntimeStatus, reading: Reading | None = None) -> ContainerRun:
    """Convert the runtime's status, and what the kernel allows the run."""
    return ContainerRun(
        id=status.id,
        uid=status.pod_uid,
        container=status.name,
        attempt=status.attempt,
        live=status.state != ENDED,
        namespace=status.namespace,
        pod=status.pod,
        allowed=reading.allowed if reading else NO_CPUS,
        resources=reading.resources if reading else None,
        record_differs=status.record_differs,
        started_at=status.started_at or 0.0,
        finished_at=status.finished_at or 0.0,
        exit_code=status.exit_code or 0,
        signal=status.signal or 0,
        reason=OOM_KILLED if status.oom_killed else "",
        message=status.message,
    )


def outside(tasks: Iterable[TaskAffinity], cpus: CPUSet) -> CPUSet:
    """Return the CPUs beyond the container's that its tasks may use."""
    return CPUSet(cpu for task in tasks for cpu in task.cpus) - cpus
