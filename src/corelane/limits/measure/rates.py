"""Two readings to what happened between them, per second; or why nothing can be said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Final

from corelane.limits.measure.counters import WRAP, Counters, Quota, Tasks

__all__ = ["Rates", "Unusable", "between"]

_COUNTED: Final = (
    "usage_us",
    "periods",
    "throttled_periods",
    "throttled_us",
    "bursts",
    "burst_us",
    "above_us",
    "some_us",
    "full_us",
)
_WRAPPING: Final = frozenset({"periods", "throttled_periods", "bursts"})


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why two readings make no rate."""

    why: str


@dataclass(frozen=True, slots=True)
class Rates:
    """What a group did in `seconds`. Times are milliseconds in every second; None where nobody counts them.

    `used`, `throttled` and `queued` are sums over CPUs or threads and may pass 1000; `waiting` (some thread
    waits) and `stalled` (all that want to run wait) are parts of wall time.
    """

    seconds: float
    used: float | None = None
    throttled: float | None = None
    above: float | None = None
    """Throttled by the limit of a group above, a pod's for instance."""
    periods: float | None = None
    throttled_periods: float | None = None
    bursts: float | None = None
    burst: float | None = None
    waiting: float | None = None
    stalled: float | None = None
    queued: float | None = None
    """What its threads waited on run queues, throttling included."""
    waiters: int = 0
    """How many threads did."""
    quota: Quota = field(default_factory=Quota)
    notes: tuple[str, ...] = ()
    """Why less can be made of it than of counters that were read all the time."""
    remarks: tuple[str, ...] = ()
    """What is worth knowing of how it was read, but spoils nothing."""

    @property
    def lost(self) -> float | None:
        """Of the CPU time that it could have used, the part that throttling took, 0 to 1."""
        if self.used is None or self.throttled is None:
            return None
        wanted = self.used + self.throttled
        return self.throttled / wanted if wanted else 0.0

    @property
    def stall_ms(self) -> float | None:
        """How long a throttled period held it up, on average; summed over its CPUs."""
        if self.throttled is None or not self.throttled_periods:
            return None if self.throttled is None else 0.0
        return self.throttled * self.seconds / self.throttled_periods


def between(before: Counters, after: Counters) -> Rates | Unusable:
    """What happened between two readings of the same group.

    A counter that went back began anew: the container was restarted, and nothing is said of the time before.
    Counts of periods may also have wrapped.
    """
    seconds = after.at - before.at
    if seconds <= 0:
        return Unusable("both readings are of the same time")
    if back := [name for name, a, b in _pairs(before, after) if b < a]:
        return Unusable(f"its counters began anew ({', '.join(back)}): it was restarted meanwhile")
    grown = {name: b - a for name, a, b in _pairs(before, after)}
    queued, waiters = _queued(before.waits, after.waits)
    changed = before.quota != after.quota
    return Rates(
        seconds,
        used=_ms(grown, "usage_us", seconds),
        throttled=_ms(grown, "throttled_us", seconds),
        above=_above(grown, seconds),
        periods=grown.get("periods"),
        throttled_periods=grown.get("throttled_periods"),
        bursts=grown.get("bursts"),
        burst=_ms(grown, "burst_us", seconds),
        waiting=_ms(grown, "some_us", seconds),
        stalled=_ms(grown, "full_us", seconds),
        queued=None if queued is None else queued / seconds,
        waiters=waiters,
        quota=after.quota,
        notes=("its limit changed meanwhile",) if changed else (),
    )


def _pairs(before: Counters, after: Counters) -> Iterator[tuple[str, int, int]]:
    for one in fields(Counters):
        if one.name in _COUNTED:
            a, b = getattr(before, one.name), getattr(after, one.name)
            if a is not None and b is not None:
                wrapped = one.name in _WRAPPING and b < a and a - b > WRAP // 2
                yield one.name, a, b + WRAP if wrapped else b


def _ms(grown: dict[str, int], name: str, seconds: float) -> float | None:
    return grown[name] / 1000 / seconds if name in grown else None


def _above(grown: dict[str, int], seconds: float) -> float | None:
    """What cpu.stat.local has beyond the group's own throttling is that of groups above."""
    if "above_us" not in grown:
        return None
    return max(0, grown["above_us"] - grown.get("throttled_us", 0)) / 1000 / seconds


def _queued(before: Tasks | None, after: Tasks | None) -> tuple[float | None, int]:
    """Milliseconds that threads waited, and how many did; one that was not there before began at nothing."""
    if before is None or after is None:
        return None, 0
    waited = [after[tid] - before.get(tid, 0) for tid in after]
    return sum(one for one in waited if one > 0) / 1e6, sum(one > 0 for one in waited)
