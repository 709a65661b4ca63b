"""Keys to reconcile, one at a time: each once however often it was added, and again later where it failed."""

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys by the time at which they are due."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = 0
        self._changed = asyncio.Event()

    def add(self, key: K, seconds: float = 0.0) -> None:
        """Reconcile a key in so many seconds, or earlier where it is due before."""
        due = self._clock() + seconds
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, key))
        self._changed.set()

    async def run(self, reconcile: Callable[[K], Awaitable[None]]) -> None:
        """Reconcile what is due until cancelled; `reconcile` must not raise."""
        while True:
            await reconcile(await self._next())

    async def _next(self) -> K:
        while True:
            self._changed.clear()
            while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                heapq.heappop(self._heap)
            wait = self._heap[0][0] - self._clock() if self._heap else None
            if wait is not None and wait <= 0:
                _, _, key = heapq.heappop(self._heap)
                del self._due[key]
                return key
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
