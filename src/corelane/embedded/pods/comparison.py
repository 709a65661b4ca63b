"""Compares the containers that an agent has recorded with its runtime and the kernel."""

from collections.abc import Collection, Iterable
from contextlib import suppress

from corelane.agent.allocation import events
from corelane.agent.allocation.events import ContainerRun
from corelane.agent.event_loop import Clocks, EventQueue
from corelane.agent.execution import (
    ENDED,
    TASKS,
    ContainerReading,
    Execution,
    container_run,
    outside,
    reading_of,
)
from corelane.agent.reporting import AgentReporter
from corelane.runtime.base import Observation, Runtime, RuntimeStatus, UnknownContainer


class ComparingExecution(Execution):
    """Pins and observes containers, lists them, and compares them with what is recorded."""

    def __init__(
        self, runtime: Runtime, queue: EventQueue, *, reporter: AgentReporter, clocks: Clocks
    ) -> None:
        super().__init__(runtime, queue, reporter=reporter, clocks=clocks)
        self._samples = 0

    def ended(self, status: RuntimeStatus) -> None:
        """Report that a run ended."""
        self._queue.put(events.Exited(run=container_run(status), **self._clocks.times()))

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

    async def _read_all(self, ids: Collection[str], sampled: str = "") -> dict[str, ContainerReading]:
        """Read containers, `sampled` task by task.

        Errors are reported, and the next comparison reads again: other containers are read all the same.
        """
        faults: list[Exception] = []
        readings: dict[str, ContainerReading] = {}
        for container_id, observed in (await self._runtime.observe_all(ids)).items():
            try:
                readings[container_id] = await self._reading(
                    container_id, observed, tasks=container_id == sampled
                )
            except Exception as error:  # noqa: BLE001 - reported
                faults.append(error)
        if faults:
            what = f"reading the CPUs of {len(faults)} of {len(ids)} containers"
            self._reporter.malfunction(what, faults[0])
        return readings

    async def _reading(self, container_id: str, observed: Observation, *, tasks: bool) -> ContainerReading:
        """Return what was observed, with `tasks` the union over its tasks. Raises the error of observing."""
        reading = reading_of(observed)
        if tasks and reading.allowed and reading.resources and reading.resources.cgroup:
            with suppress(UnknownContainer):
                sample = await self._runtime.allowed(container_id, most=TASKS)
                return ContainerReading(reading.allowed | outside(sample, reading.allowed), reading.resources)
        return reading
