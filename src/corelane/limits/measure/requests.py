"""A service's requests one by one: when each was sent and how long it took."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Every request of a time: when it was sent, in ns from the begin, and how long it took, in ms."""

    seconds: float
    moments: tuple[int, ...]
    took: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        """Return the latency that `percent` of all do not exceed (nearest rank)."""
        return sorted(self.took)[max(math.ceil(len(self.took) * percent / 100) - 1, 0)]

    @property
    def mean(self) -> float:
        return sum(self.took) / len(self.took)

    @property
    def in_flight(self) -> int:
        """The most requests that were waiting for their answers at once."""
        most = now = 0
        for _, step in self._steps():
            now += step
            most = max(most, now)
        return most

    @property
    def crowding(self) -> float:
        """How many others a request meets, as a part of how many there are on average.

        About 1 where requests come at random, more in batches, less where clients wait for their answers.
        """
        now, met = 0, 0
        for _, step in self._steps():
            met += now if step > 0 else 0
            now += step
        average = sum(self.took) / 1000 / self.seconds
        return met / len(self.took) / average

    def _steps(self) -> list[tuple[float, int]]:
        begins = [(moment / 1e6, 1) for moment in self.moments]
        ends = [(moment / 1e6 + took, -1) for moment, took in zip(self.moments, self.took, strict=True)]
        return sorted([*begins, *ends])
