"""Load that is remembered, and by which a group's shares are spread over CPUs (kernel/sched/pelt.c).

A queue's load follows the weight of what is queued with a half-life of 33.6 ms, so that a CPU on which a
group's threads sleep keeps some of the group's shares for a while.
"""

from __future__ import annotations

from typing import Final

HALF_LIFE_NS: Final = 32 << 20
"""32 windows of 1024 * 1024 ns."""
SUMMED_EVERY_NS: Final = 1_000_000
"""How often the loads of a group's queues are summed up, at most (update_tg_load_avg)."""


class Load:
    """The average over time of the weight that is queued, by a clock in ns that may stop."""

    __slots__ = ("_at", "average", "queued", "reported")

    def __init__(self, clock_ns: int, average: float = 0.0, queued: float = 0.0) -> None:
        self._at, self.average, self.queued, self.reported = clock_ns, average, queued, 0.0

    def update(self, clock_ns: int) -> float:
        """Return the average at this moment."""
        passed = clock_ns - self._at
        if passed > 0:
            self._at = clock_ns
            self.average = self.queued + (self.average - self.queued) * 0.5 ** (passed / HALF_LIFE_NS)
        return self.average

    def change(self, clock_ns: int, weight: float) -> None:
        """Add what is queued from now on; negative for what no longer is."""
        self.update(clock_ns)
        self.queued = max(self.queued + weight, 0.0)

    def report(self, clock_ns: int) -> float:
        """Return the average as the part of the group's sum that is this queue's."""
        self.reported = self.update(clock_ns)
        return self.reported

    def carry(self, clock_ns: int) -> None:
        """Go on by the clock of another queue."""
        self._at = clock_ns
