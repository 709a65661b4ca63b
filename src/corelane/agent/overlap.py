"""How long containers ran on CPUs that were not theirs: from their start until their CPUs were read back."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from corelane.agent.allocation import events
from corelane.runtime.base import RuntimeStatus


class Overlap:
    """The last thousand times, in seconds, of containers that started since this was made.

    A container that the runtime created on its CPUs (NRI) has no overlap. `clock` is the wall clock, on which
    runtimes report starts.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._started: dict[str, float] = {}
        self._placed: set[str] = set()
        self._count = 0
        self._recent: list[float] = []

    def placed(self, container_id: str) -> None:
        """Record that a container is to be created on its CPUs."""
        self._placed.add(container_id)

    def started(self, status: RuntimeStatus) -> None:
        """Record a container's start."""
        if status.id in self._placed:
            self._placed.discard(status.id)
        elif status.started_at is not None and status.started_at >= self._since:
            self._started[status.id] = status.started_at

    def ended(self, container_id: str) -> None:
        """Forget a container."""
        self._started.pop(container_id, None)
        self._placed.discard(container_id)

    def pinned(self, event: events.Pinned) -> None:
        """Measure the time until a container's CPUs were first read back."""
        if event.allowed == event.cpus and event.id in self._started:
            self._count += 1
            self._recent.append(max(self._clock() - self._started.pop(event.id), 0.0))
            del self._recent[:-1000]

    def plain(self) -> dict[str, Any]:
        """Return count, p99 and longest, for status."""
        return {
            "count": self._count,
            "p99": percentile(self._recent, 0.99),
            "longest": max(self._recent, default=0.0),
        }


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * share) - 1] if ordered else 0.0
