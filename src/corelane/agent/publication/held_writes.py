"""Writes that wait a moment before they are queued, because a newer one is about to take their place.

A pod that is admitted is Pending for some milliseconds, until its containers have started: with both statuses
in one write half the writes of a pod's status are saved.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

Put = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Held:
    put: Put
    timer: asyncio.TimerHandle


class HeldWrites:
    """Puts what is held `seconds` later, unless it is replaced, released or dropped before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: dict[Hashable, _Held] = {}

    def hold(self, key: Hashable, put: Put) -> None:
        """Hold a write, in place of one that is held under this key; that one's time goes on."""
        held = self._held.get(key)
        loop = asyncio.get_running_loop()
        timer = held.timer if held else loop.call_later(self._seconds, self.release, key)
        self._held[key] = _Held(put, timer)

    def release(self, key: Hashable) -> None:
        """Put what is held under this key now."""
        held = self._held.pop(key, None)
        if held is not None:
            held.timer.cancel()
            held.put()

    def drop(self, key: Hashable) -> None:
        """Forget what is held under this key."""
        held = self._held.pop(key, None)
        if held is not None:
            held.timer.cancel()

    def release_all(self) -> None:
        """Put everything now."""
        for key in list(self._held):
            self.release(key)
