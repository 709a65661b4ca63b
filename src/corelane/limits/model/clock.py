"""Simulated time: events in integer nanoseconds, in order; at one moment in the order of their creation."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000
NEVER = 1 << 62
"""A moment beyond every simulation: 146 years."""

Call = Callable[[Any, int], None]


class Clock:
    """The queue of events. A call gets its argument and its stamp, by which it can tell that it is stale."""

    __slots__ = ("_made", "_queue", "now")

    def __init__(self) -> None:
        self.now = 0
        self._made = 0
        self._queue: list[tuple[int, int, Call, Any, int]] = []

    def at(self, moment: int, call: Call, argument: Any = None, stamp: int = 0) -> None:
        """Call at a moment in ns, which must not lie in the past."""
        self._made = made = self._made + 1
        heappush(self._queue, (moment, made, call, argument, stamp))

    def run(self, until: int) -> None:
        """Process all events before `until`, and set the clock to it."""
        queue = self._queue
        while queue and queue[0][0] < until:
            self.now, _, call, argument, stamp = heappop(queue)
            call(argument, stamp)
        self.now = max(self.now, until)

    def __len__(self) -> int:
        return len(self._queue)
