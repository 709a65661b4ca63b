"""What threads do, step by step, and what they wait for.

A behaviour is a generator of steps: `yield RUN, 5 * MS`, `yield SLEEP, …`, `yield POLL, channel`,
`yield SPIN, gate`. Between two steps no time passes, so it may look at the clock, take what a channel holds,
or call what makes others go on.
"""

from collections import deque
from collections.abc import Generator
from typing import Any, Final

__all__ = ["KERNEL", "POLL", "RUN", "SLEEP", "SPIN", "Behaviour", "Channel", "Gate", "Step"]

RUN: Final = 0
"""Run for so many ns of CPU time."""
KERNEL: Final = 1
"""As RUN, inside a system call: with task-based throttling nobody is set aside before its end."""
SLEEP: Final = 2
"""Sleep for so many ns."""
POLL: Final = 3
"""Wait until a channel holds something, as in epoll_wait: somebody else may have taken it by then."""
SPIN: Final = 4
"""Run in a busy loop until a gate opens; or, after the gate's patience, sleep until it does."""

Step = tuple[int, Any]
Behaviour = Generator[Step, None, None]


class Channel:
    """A queue of items with sleepers, of whom each item wakes the one who has slept the longest."""

    __slots__ = ("items", "sleepers")

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.sleepers: deque[Any] = deque()


class Gate:
    """Closed until it is opened; then everybody passes, and it is closed again for who comes later."""

    __slots__ = ("patience_ns", "sleepers", "spinners")

    def __init__(self, patience_ns: int = 0) -> None:
        self.patience_ns = patience_ns
        self.sleepers: list[Any] = []
        self.spinners: list[Any] = []
