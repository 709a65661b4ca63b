"""What a thread does, step by step, and what it waits for.

A behaviour is a generator of steps: `yield RUN, 5 * MS`, `yield SLEEP, …`, `yield POLL, channel`,
`yield SPIN, gate`. Between two steps no time passes, so a behaviour may read the clock, take what a channel
holds, or call what wakes other threads.
"""

from collections import deque
from collections.abc import Generator
from typing import Any, Final

RUN: Final = 0
"""Run for so many ns of CPU time."""
KERNEL: Final = 1
"""As RUN, inside a system call: with task-based throttling the thread is not throttled before its end."""
SLEEP: Final = 2
"""Sleep for so many ns."""
POLL: Final = 3
"""Wait until a channel holds something, as in epoll_wait: another thread may have taken it by then."""
SPIN: Final = 4
"""Run in a busy loop until a gate opens; or, after the gate's patience, sleep until it does."""

Step = tuple[int, Any]
Behaviour = Generator[Step, None, None]


class Channel:
    """A queue of items with sleeping threads; each item wakes the one that has slept the longest."""

    __slots__ = ("items", "sleepers")

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.sleepers: deque[Any] = deque()


class Gate:
    """A barrier: all waiting threads pass when it is opened; it is closed again for later ones."""

    __slots__ = ("patience_ns", "sleepers", "spinners")

    def __init__(self, patience_ns: int = 0) -> None:
        self.patience_ns = patience_ns
        self.sleepers: list[Any] = []
        self.spinners: list[Any] = []

    def wait(self, thread: Any) -> bool:
        """Let a thread wait here; whether it spins."""
        if not self.patience_ns:
            self.sleepers.append(thread)
            return False
        self.spinners.append(thread)
        return True

    def fall_asleep(self, thread: Any) -> None:
        """Let a thread that spins sleep instead: its patience has ended."""
        self.spinners.remove(thread)
        self.sleepers.append(thread)
