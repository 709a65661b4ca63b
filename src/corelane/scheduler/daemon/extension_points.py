"""What the extension points of attempts take, by a clock, for one attempt of ten."""

import time
from collections.abc import Callable
from typing import Final

from corelane.scheduler.cache.points import SUCCESS, ExtensionPoints

SAMPLED: Final = 10
"""One of so many attempts, as kube-scheduler's metrics of plugins."""


class TimedPoints(ExtensionPoints):
    """Adds up what each point of a sampled attempt takes; `observe` gets seconds, point, status, profile."""

    def __init__(
        self,
        observe: Callable[[float, str, str, str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._observe, self._clock = observe, clock
        self._attempts, self._sampled = 0, False
        self._point, self._begun = "", 0.0
        self._taken: dict[str, float] = {}
        self._status: dict[str, str] = {}

    def start(self) -> None:
        self._sampled = self._attempts % SAMPLED == 0
        self._attempts += 1
        self._taken.clear()
        self._status.clear()

    def begin(self, point: str) -> None:
        if self._sampled:
            self._point, self._begun = point, self._clock()

    def end(self, status: str = SUCCESS) -> None:
        if self._sampled:
            self._taken[self._point] = self._taken.get(self._point, 0.0) + self._clock() - self._begun
            self._status[self._point] = status

    def finish(self, profile: str) -> None:
        for point, seconds in self._taken.items():
            self._observe(seconds, point, self._status[point], profile)
        self._sampled = False
        self._taken.clear()
