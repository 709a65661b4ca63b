"""A small agent on the NRI plugin: pins containers by their name, in a thread or a process of its own.

As a program: STATE SOCKET NAME=CPUS… — a NAME of `hang:NAME` makes the handler of that container never
return.
"""

import asyncio
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from corelane.cpuset import CPUSet
from corelane.runtime.base import ResourceUpdate
from corelane.runtime.nri.connection import NRIConnection, Reporter
from corelane.runtime.nri.values import (
    Answer,
    ContainerCreating,
    ContainerUpdating,
    Question,
    RuntimeIdentity,
    Synchronized,
)


class PinningAgent(Reporter):
    """Gives containers CPUs by name (`cpus`), and others by id (`shrink`) at each creation."""

    def __init__(self, state: Path, socket: Path, cpus: dict[str, str], **options: Any) -> None:
        self.cpus, self.shrink = cpus, {}
        self.hang: set[str] = set()
        self.seen: list[Any] = []
        self.reports: list[str] = []
        self.changed = threading.Condition()
        self.connection = NRIConnection(self, state_directory=state, socket=socket, reporter=self, **options)

    def update(self, container: Any) -> tuple:
        name = container.name
        return ((container.id, pinned(self.cpus[name])),) if name in self.cpus else ()

    async def on_synchronized(self, event: Synchronized) -> tuple:
        self.note(event)
        return tuple(update for container in event.containers for update in self.update(container))

    async def on_creating(self, event: ContainerCreating) -> Answer:
        self.note(event)
        if event.container.name in self.hang:
            await asyncio.Event().wait()
        adjust = self.cpus.get(event.container.name)
        others = tuple((ident, pinned(cpus)) for ident, cpus in self.shrink.items())
        return Answer(pinned(adjust) if adjust else None, others)

    async def on_updating(self, event: ContainerUpdating) -> tuple:
        self.note(event)
        return self.update(event.container)

    def on_event(self, event: Any) -> None:
        self.note(event)

    def waiting(self, holder: str) -> None:
        self.report(f"waiting: {holder}")

    def connected(self, runtime: RuntimeIdentity) -> None:
        self.report(f"connected: {runtime.name}")

    def lost(self, reason: str) -> None:
        self.report(f"lost: {reason}")

    def handled(self, question: Question, seconds: float, outcome: str) -> None:
        self.report(f"{type(question).__name__}: {outcome}")

    def failed(self, handler: str, error: Exception) -> None:
        self.report(f"failed: {handler}: {error!r}")

    def note(self, event: Any) -> None:
        with self.changed:
            self.seen.append(event)
            self.changed.notify_all()

    def report(self, text: str) -> None:
        with self.changed:
            self.reports.append(text)
            self.changed.notify_all()

    def wait(self, condition: Any, seconds: float = 60) -> None:
        """Wait until `condition()` holds; it is tried after every event and report."""
        with self.changed:
            assert self.changed.wait_for(condition, seconds), (self.reports, self.seen[-3:])

    def wait_report(self, text: str, count: int = 1) -> None:
        self.wait(lambda: sum(text in report for report in self.reports) >= count)

    def kinds(self) -> list[str]:
        return [getattr(event, "kind", type(event).__name__) for event in self.seen]

    def started(self) -> list[str]:
        """Ids of the containers whose start was reported."""
        started = zip(self.kinds(), self.seen, strict=True)
        return [event.container.id for kind, event in started if kind == "ContainerStarted"]

    def __enter__(self) -> Self:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(30)
        return self

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.create_task(self.connection.run())
        self._started.set()
        with suppress(asyncio.CancelledError):
            await self._task

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(30)
        assert not self._thread.is_alive()


def pinned(cpus: str) -> ResourceUpdate:
    return ResourceUpdate(cpus=CPUSet.parse(cpus))


class Printing(PinningAgent):
    """Prints what it reports and sees, a line each."""

    def note(self, event: Any) -> None:
        super().note(event)
        print(getattr(event, "kind", type(event).__name__), flush=True)

    def report(self, text: str) -> None:
        super().report(text)
        print(text, flush=True)


if __name__ == "__main__":
    pairs = [argument.split("=") for argument in sys.argv[3:]]
    agent = Printing(
        Path(sys.argv[1]), Path(sys.argv[2]), {name.removeprefix("hang:"): c for name, c in pairs}
    )
    agent.hang = {name.removeprefix("hang:") for name, _ in pairs if name.startswith("hang:")}
    asyncio.run(agent.connection.run())
