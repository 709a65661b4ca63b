"""Events that wait for the state machine: a newer reading replaces an older one of the same thing.

So the queue is bounded by the number of pods and containers, however long the state machine is held up.
"""

import asyncio
from collections.abc import Hashable
from itertools import count
from typing import Final

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent, Reading

_BATCH: Final = 50
_MODE: Final[Hashable] = (events.ModeChanged, None)


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
        subject = event.subject()
        key: Hashable = next(self._numbers) if subject is None else subject
        if isinstance(event, Reading):
            key = (type(event), subject)
            self._waiting.pop(key, None)
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
