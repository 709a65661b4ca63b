"""The clocks of an agent."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from corelane.agent.allocation.events import EventTimes


@dataclass(frozen=True, slots=True)
class Clocks:
    """Wall clock, in Unix seconds, for timestamps; monotonic clock, in seconds, for deadlines and retries."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def times(self) -> EventTimes:
        """Return the times of an event that is noticed now."""
        return EventTimes(at=self.wall(), now=self.monotonic())
