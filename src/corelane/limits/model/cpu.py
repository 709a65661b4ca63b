"""A logical CPU: who runs on it since when, how fast, and when it ticks."""

from corelane.limits.model.queues import Queue, Thread

__all__ = ["CPU", "FULL"]

FULL = 1000
"""The speed of a CPU whose sibling is idle, in thousandths."""


class CPU:
    """Moments in ns. The stamp makes events for earlier plans stale."""

    __slots__ = (
        "began",
        "bit",
        "curr",
        "id",
        "kicked",
        "phase",
        "picked",
        "root",
        "settled",
        "sibling",
        "speed",
        "stamp",
    )

    def __init__(self, number: int, root: Queue, phase: int) -> None:
        self.id, self.bit, self.root, self.phase = number, 1 << number, root, phase
        self.curr: Thread | None = None
        self.settled = self.began = self.picked = self.stamp = 0
        self.sibling: CPU | None = None
        self.speed = FULL
        self.kicked = False

    def step_end(self, thread: Thread) -> int:
        """When the running thread's step ends, were nothing to come between."""
        left = thread.left if self.speed == FULL else -(-thread.left * FULL // self.speed)
        return self.settled + left

    def tick(self, every_ns: int, moment: int, now: int) -> int:
        """The first tick not before a moment, and after now; a tick of 0 is every moment."""
        if not every_ns:
            return max(moment, now)
        moment = max(moment, now + 1)
        return moment + (self.phase - moment) % every_ns

    def ticks(self, every_ns: int, now: int) -> bool:
        """Whether this is a tick."""
        return not every_ns or (now - self.phase) % every_ns == 0
