"""What the kernel counts of a group's CPU time, from the texts of its files, the same for both versions.

Sources: kernel documentation, scheduler/sched-bwc, admin-guide/cgroup-v2, accounting/psi. All times in
microseconds; None where the kernel, or the group's controllers, do not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "WRAP",
    "CounterError",
    "Counters",
    "Quota",
    "Tasks",
    "flat",
    "pressure",
    "quota1",
    "quota2",
    "stat1",
    "stat2",
]

_NS: Final = 1000
_SHOWN: Final = 60
_DIGITS: Final = 22
_LARGEST_US: Final = 2**44
WRAP: Final = 2**32
"""Where counts of periods, throttled periods and bursts begin again."""


class CounterError(ValueError):
    """A file holds no counters; the message has the line that makes no sense."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A group's limit: `quota_us` None is none; `burst_us` is what may be saved up beside it."""

    quota_us: int | None = None
    period_us: int = 100_000
    burst_us: int = 0

    @property
    def cpus(self) -> float | None:
        """How many CPUs' time it is worth."""
        return None if self.quota_us is None else self.quota_us / self.period_us


Tasks = Mapping[int, int]
"""Thread id to the time that it has waited on run queues, in nanoseconds (/proc/TID/schedstat)."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One reading. `at` is seconds on whatever clock both readings share.

    `throttled_us` is summed over CPUs and may pass wall time; it counts the group's own limit only, while
    `above_us` counts that of any group above, too (cpu.stat.local, Linux 6.6). `some_us` and `full_us` are
    the totals of cpu.pressure; being throttled is in them, and in `waits`, too.
    """

    at: float
    usage_us: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_us: int | None = None
    bursts: int | None = None
    burst_us: int | None = None
    above_us: int | None = None
    some_us: int | None = None
    full_us: int | None = None
    waits: Tasks | None = None
    quota: Quota = field(default_factory=Quota)


def flat(text: str) -> dict[str, int]:
    """Lines of a name and a number, as in cpu.stat. Raises CounterError.

    The kernel counts periods in 32 bits with a sign: what is negative has only passed 2^31.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if not number.strip().removeprefix("-").isdecimal():
            raise CounterError(f"{line[:_SHOWN]!r} is no name with a number")
        if len(number) > _DIGITS:
            raise CounterError(f"{line[:_SHOWN]!r}… is more than 64 bits")
        amount = int(number)
        found[name] = amount + WRAP if -WRAP // 2 <= amount < 0 else amount
        if found[name] < 0:
            raise CounterError(f"{line!r} is less than nothing")
    return found


def stat1(text: str) -> dict[str, int]:
    """Version 1's cpu.stat by the names of `Counters`. Raises CounterError."""
    return _renamed(flat(text), _V1)


def stat2(text: str) -> dict[str, int]:
    """Version 2's cpu.stat by the names of `Counters`. Raises CounterError."""
    return _renamed(flat(text), _V2)


_V1: Final = {
    "nr_periods": ("periods", 1),
    "nr_throttled": ("throttled_periods", 1),
    "throttled_time": ("throttled_us", _NS),
    "nr_bursts": ("bursts", 1),
    "burst_time": ("burst_us", _NS),
}
_V2: Final = {
    "usage_usec": ("usage_us", 1),
    "nr_periods": ("periods", 1),
    "nr_throttled": ("throttled_periods", 1),
    "throttled_usec": ("throttled_us", 1),
    "nr_bursts": ("bursts", 1),
    "burst_usec": ("burst_us", 1),
}


def _renamed(found: dict[str, int], names: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    return {name: found[old] // unit for old, (name, unit) in names.items() if old in found}


def quota1(quota: str, period: str, burst: str | None) -> Quota:
    """Version 1's cpu.cfs_quota_us, cpu.cfs_period_us and, from Linux 5.14, cpu.cfs_burst_us."""
    try:
        amount = int(quota)
        return _checked(Quota(None if amount < 0 else amount, int(period), int(burst or 0)))
    except ValueError:
        texts = (repr(text)[:_SHOWN] for text in (quota, period, burst))
        raise CounterError("quota {}, period {}, burst {}: none that the kernel has".format(*texts)) from None


def quota2(text: str, burst: str | None) -> Quota:
    """Version 2's cpu.max (`max 100000`) and cpu.max.burst. Raises CounterError."""
    quota, _, period = text.strip().partition(" ")
    try:
        return _checked(Quota(None if quota == "max" else int(quota), int(period), int(burst or 0)))
    except ValueError:
        raise CounterError(f"cpu.max {text[:_SHOWN]!r}: not a quota and a period") from None


def _checked(one: Quota) -> Quota:
    """Raises ValueError for what no kernel has: quota and burst take at most 2^44 us, a period is a time."""
    if not 0 <= (one.quota_us or 0) <= _LARGEST_US or not 0 <= one.burst_us <= _LARGEST_US:
        raise ValueError
    if not 0 < one.period_us <= _LARGEST_US:
        raise ValueError
    return one


def pressure(text: str) -> tuple[int, int | None]:
    """The totals of cpu.pressure: some, and full where the kernel has it (5.13). Raises CounterError."""
    totals: dict[str, int] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if total.isdecimal() and len(total) <= _DIGITS:
            totals[kind] = int(total)
    if "some" not in totals:
        raise CounterError(f"{text[:_SHOWN]!r} is no pressure")
    return totals["some"], totals.get("full")
