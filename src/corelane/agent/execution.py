"""Carries out the instructions that any runtime can: changes of containers' CPUs, and readings of them.

Each instruction is a task of its own and answers with an event. An unexpected error is reported and answered
as a failure; it never ends the agent.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final

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
    Runtime,
    RuntimeFailure,
    RuntimeStatus,
    UnknownContainer,
)

ENDED: Final = "exited"
TASKS: Final = 32
"""Tasks read of a container; two reads of /proc a task."""


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
class ContainerReading:
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
            reading = await read(self._runtime, order.id)
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

    async def observe(self, container_id: str) -> None:
        """Report what the kernel grants a container; one whose cgroup cannot be read is read again later."""
        try:
            reading = await read(self._runtime, container_id)
        except OSError:
            return
        self._note_newer(container_id)
        self._put_reading(container_id, reading)

    def _note_newer(self, container_id: str) -> None:
        if self._newer is not None:
            self._newer.add(container_id)

    def _put_reading(self, container_id: str, reading: ContainerReading) -> None:
        event = events.Observed(
            id=container_id, allowed=reading.allowed, resources=reading.resources, **self._clocks.times()
        )
        self._queue.put(event)


async def read(runtime: Runtime, container_id: str) -> ContainerReading:
    """Return what the kernel allows a container's processes; none once its cgroup is empty or gone."""
    try:
        return reading_of(await runtime.observe(container_id))
    except UnknownContainer as error:
        return reading_of(error)


def reading_of(observed: Observation) -> ContainerReading:
    """Return what was observed of a container. Raises the error of observing, but for UnknownContainer."""
    if isinstance(observed, UnknownContainer):
        return ContainerReading(NO_CPUS, None)
    if isinstance(observed, Exception):
        raise observed
    return ContainerReading(observed.cpus if observed and observed.populated else NO_CPUS, observed)


def container_run(status: RuntimeStatus, reading: ContainerReading | None = None) -> ContainerRun:
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
