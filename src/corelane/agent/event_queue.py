"""Events that wait for the state machine: a newer reading replaces an older one of the same thing.

So the queue is bounded by the number of pods and containers, however long the state machine is held up.
"""

import asyncio
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any, Final

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.lifecycle.events import PodSeen

_BATCH: Final = 50
_READINGS: Final[dict[type[AgentEvent], Callable[[Any], Hashable]]] = {
    events.TimePassed: lambda _: None,
    events.Observed: lambda event: event.id,
    events.KubeletStateRead: lambda _: None,
    events.MachineChanged: lambda _: None,
    events.ConfigChanged: lambda _: None,
    events.ModeChanged: lambda _: None,
    events.ContainersListed: lambda _: None,
    events.PodsListed: lambda _: None,
}
"""Events that move to the end of the queue when they replace a waiting one; by type, what they are about."""
_MODE: Final[Hashable] = (events.ModeChanged, None)
_FACTS: Final[dict[type[AgentEvent], tuple[str, Callable[[Any], Hashable]]]] = {
    PodSeen: ("pod", lambda event: event.plan.uid),
    events.PodSeen: ("pod", lambda event: event.pod.uid),
    events.PodUndecodable: ("pod", lambda event: event.uid),
    events.ContainerSeen: ("start", lambda event: event.run.id),
    events.PodGone: ("pod", lambda event: event.uid),
    events.Exited: (
        "exit",
        lambda event: (event.run.uid, event.run.container, event.run.attempt, event.run.id),
    ),
}
"""Events that take the place of a waiting one: PodsListed stays behind the pods that it counts."""


class EventQueue:
    """Events in order. All others than readings and facts answer an order, one for each container."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, AgentEvent] = {}
        self._numbers = count()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: AgentEvent) -> None:
        """Add an event, or replace the waiting one about the same thing."""
        kind = type(event)
        if kind in _READINGS:
            key: Hashable = (kind, _READINGS[kind](event))
            self._waiting.pop(key, None)
        elif kind in _FACTS:
            group, subject = _FACTS[kind]
            key = (group, subject(event))
        else:
            key = next(self._numbers)
        self._waiting[key] = event
        self._filled.set()

    async def batch(self, seconds: float | None = None) -> list[AgentEvent]:
        """Wait for events and take at most `_BATCH`, the oldest first; none after `seconds`."""
        await self.filled(seconds)
        return self.take()

    async def filled(self, seconds: float | None = None) -> bool:
        """Wait for an event; return whether there is one after `seconds`."""
        if not self._waiting:
            self._filled.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._filled.wait()
            except TimeoutError:
                return False
        return True

    def take(self) -> list[AgentEvent]:
        """Return at most `_BATCH` events, the oldest first, but for a mode: no other is decided without."""
        keys = [key for key, _ in zip(self._waiting, range(_BATCH), strict=False)]
        if _MODE in self._waiting:
            keys = [_MODE, *(key for key in keys if key != _MODE)]
        return [self._waiting.pop(key) for key in keys]
