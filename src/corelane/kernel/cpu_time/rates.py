"""Rates between two readings of a cgroup's CPU counters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from corelane.kernel.cpu_time.counters import WRAP, CPUCounters, Quota, Waits

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
    """Why two readings give no rate."""

    why: str


@dataclass(frozen=True, slots=True)
class Rates:
    """What a cgroup did in `seconds`. Times are milliseconds a second; None where they are not counted.

    `used`, `throttled` and `queued` are sums over CPUs or threads and may exceed 1000; `waiting` (some thread
    waits) and `stalled` (all runnable threads wait) are parts of wall time.
    """

    seconds: float
    used: float | None = None
    throttled: float | None = None
    above: float | None = None
    """Throttled by the limit of a cgroup above, a pod's for instance."""
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
    """Why the counters carry less than ones read without interruption."""
    remarks: tuple[str, ...] = ()
    """Facts about the reading that spoil nothing."""

    @property
    def lost(self) -> float | None:
        """The part of CPU demand (used and throttled time) that throttling took, 0 to 1."""
        if self.used is None or self.throttled is None:
            return None
        demand = self.used + self.throttled
        return self.throttled / demand if demand else 0.0

    @property
    def stall_ms(self) -> float | None:
        """How long a throttled period delayed the container, on average; summed over its CPUs."""
        if self.throttled is None or not self.throttled_periods:
            return None if self.throttled is None else 0.0
        return self.throttled * self.seconds / self.throttled_periods


def rates_between(before: CPUCounters, after: CPUCounters) -> Rates | Unusable:
    """Return the rates between two readings of the same cgroup.

    A counter that went back was reset: the container was restarted, and what it did before is unknown. Counts
    of periods may also have wrapped.
    """
    seconds = after.at - before.at
    if seconds <= 0:
        return Unusable("both readings have the same time")
    if back := [name for name, a, b in _pairs(before, after) if b < a]:
        return Unusable(f"counters were reset ({', '.join(back)}): the container restarted between readings")
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
        notes=("the CPU limit changed between readings",) if changed else (),
    )


def _pairs(before: CPUCounters, after: CPUCounters) -> Iterator[tuple[str, int, int]]:
    for name in _COUNTED:
        a, b = getattr(before, name), getattr(after, name)
        if a is not None and b is not None:
            wrapped = name in _WRAPPING and b < a and a - b > WRAP // 2
            yield name, a, b + WRAP if wrapped else b


def _ms(grown: dict[str, int], name: str, seconds: float) -> float | None:
    return grown[name] / 1000 / seconds if name in grown else None


def _above(grown: dict[str, int], seconds: float) -> float | None:
    """What cpu.stat.local has beyond the cgroup's own throttling is that of cgroups above."""
    if "above_us" not in grown:
        return None
    return max(0, grown["above_us"] - grown.get("throttled_us", 0)) / 1000 / seconds


def _queued(before: Waits | None, after: Waits | None) -> tuple[float | None, int]:
    """Milliseconds that threads waited, and how many did; a new thread began at 0."""
    if before is None or after is None:
        return None, 0
    waited = [after[tid] - before.get(tid, 0) for tid in after]
    return sum(wait for wait in waited if wait > 0) / 1e6, sum(wait > 0 for wait in waited)
