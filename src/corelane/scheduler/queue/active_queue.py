"""Ready pods in lines: new ones, those that a change may help, those tried again by time, doubtful ones.

The first element of a pod's sort key is its level (for PrioritySort its priority): a pod of a better level
always comes first. Within a level the least key comes first, whatever its line, until an attempt fails: then
it is the next line's turn. So pods that are tried again in vain, however many and however often, delay a new
pod by no more attempts than there are new pods before it, and the same holds for each line.

New pods that fit nowhere can be many too. Once attempts have failed for a while, every second new pod that is
tried is the newest: what comes last does not wait for all that failed before it. Doubtful are pods that
certainly do not fit now: they are tried while no other is ready, and now and then if no better level waits.
"""

from enum import IntEnum
from typing import Final

from corelane.scheduler.queue.waiting import SortKey, Waiting, WaitingHeap

FAILING_SECONDS: Final = 0.25
"""Attempts that fail for so long in a row let the newest pods come forward."""
_DOUBTFUL_TURN: Final = 8
"""Every so many attempts one is of a doubtful pod."""


class Line(IntEnum):
    """Why a pod is ready."""

    NEW = 0
    HINTED = 1
    FLUSHED = 2
    DOUBTFUL = 3


_LINES: Final = (Line.NEW, Line.HINTED, Line.FLUSHED)


class ActiveQueue:
    """Ready pods by line and sort key."""

    def __init__(self) -> None:
        self._lines = {line: WaitingHeap() for line in Line}
        self._heaps = tuple(self._lines.values())
        self._newest = WaitingHeap()
        self._failed: Line | None = None
        self._failing_since: float | None = None
        self._attempts = 0
        self.popped = Line.NEW
        """The line of the pod that is being tried."""

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failing_since is not None

    def push(self, waiting: Waiting, line: Line, key: SortKey) -> None:
        self._lines[line].push(key, waiting)
        if line is Line.NEW:
            self._newest.push((key[0], -waiting.number), waiting)

    def next(self, now: float) -> tuple[Line, Waiting] | None:
        """Return the pod to be tried next, and its line."""
        new, hinted, flushed, doubtful = [heap.head() for heap in self._heaps]
        if new and not (hinted or flushed or doubtful or self.failing):
            return Line.NEW, new[1]
        heads = {
            line: head for line, head in zip(_LINES, (new, hinted, flushed), strict=True) if head is not None
        }
        level = min((key[0] for key, _ in heads.values()), default=None)
        if doubtful and (level is None or (self._attempts % _DOUBTFUL_TURN == 0 and doubtful[0][0] <= level)):
            return Line.DOUBTFUL, doubtful[1]
        if level is None:
            return None
        able = [line for line in heads if heads[line][0][0] == level]
        line = self._turn(able) if self._failed is not None else min(able, key=lambda one: heads[one][0])
        if line is Line.NEW and self._long_in_vain(now) and self._attempts % 2:
            newest = self._newest.head()
            assert newest is not None
            return line, newest[1]
        return line, heads[line][1]

    def ended(self, now: float, *, failed: bool) -> None:
        """Note the outcome of the attempt; with no pod left that waits, no turn is kept."""
        self._attempts += 1
        if not failed:
            self._failed = self._failing_since = None
            return
        waiting = any(line.head() for line in self._lines.values())
        self._failed = self.popped if waiting and self.popped in _LINES else None
        if not waiting:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now

    def put_off(self) -> None:
        """Let other pods come before the one that is being tried, though its attempt has not ended."""
        self._attempts += 1

    def _long_in_vain(self, now: float) -> bool:
        return self._failing_since is not None and now - self._failing_since >= FAILING_SECONDS

    def _turn(self, able: list[Line]) -> Line:
        assert self._failed is not None
        last = self._failed
        return min(able, key=lambda line: (line - last - 1) % len(_LINES))
