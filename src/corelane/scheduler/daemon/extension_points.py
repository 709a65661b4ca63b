"""What the extension points of attempts take, by a clock."""

import time
from collections.abc import Callable

from corelane.scheduler.cache.points import ERROR, SUCCESS, ExtensionPoints


class TimedPoints(ExtensionPoints):
    """Adds up what each point of an attempt takes; `observe` gets seconds, point, status, profile."""

    def __init__(
        self,
        observe: Callable[[float, str, str, str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._observe, self._clock = observe, clock
        self._point, self._begun = "", 0.0
        self._taken: dict[str, float] = {}
        self._status: dict[str, str] = {}

    def start(self) -> None:
        self._taken.clear()
        self._status.clear()

    def begin(self, point: str) -> None:
        self._point, self._begun = point, self._clock()

    def end(self, status: str = SUCCESS) -> None:
        point, taken = self._point, self._taken
        taken[point] = taken.get(point, 0.0) + self._clock() - self._begun
        self._status[point], self._point = status, ""

    def failed(self) -> None:
        if self._point:
            self.end(ERROR)

    def finish(self, profile: str) -> None:
        for point, seconds in self._taken.items():
            self._observe(seconds, point, self._status[point], profile)
        self._taken.clear()

    def now(self) -> float:
        return self._clock()

    def alone(self, point: str, profile: str, begun: float) -> None:
        self._observe(self._clock() - begun, point, SUCCESS, profile)
