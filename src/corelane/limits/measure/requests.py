"""A service's requests one by one: when each was sent and how long it took."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_KEPT_UP: Final = 0.8
"""The part of the requests that is answered in their time where no queue grows."""


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Every answered request of a time: when it was sent, in ns from the begin, and how long it took, in ms.

    `seconds` is the time in which they were sent; answers may come later.
    """

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
    def answered(self) -> int:
        """How many were answered in the time in which they were sent: few of a queue that grows."""
        return sum(end <= self.seconds * 1000 for end in self._ends())

    @property
    def falls_behind(self) -> bool:
        """Whether so many are answered later that their queue grows."""
        return self.answered < _KEPT_UP * len(self.took)

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
        until = self.seconds * 1000
        waited = (
            min(end, until) - moment / 1e6 for moment, end in zip(self.moments, self._ends(), strict=True)
        )
        average = sum(waited) / until
        return met / len(self.took) / average

    def _steps(self) -> list[tuple[float, int]]:
        begins = [(moment / 1e6, 1) for moment in self.moments]
        return sorted([*begins, *((end, -1) for end in self._ends())])

    def _ends(self) -> list[float]:
        return [moment / 1e6 + took for moment, took in zip(self.moments, self.took, strict=True)]
