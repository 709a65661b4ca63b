"""CPU time of a cgroup as the kernel counts it, how busy its CPUs are, and rates between readings.

Sources: kernel documentation, scheduler/sched-bwc, admin-guide/cgroup-v2, accounting/psi; proc_stat(5). All
times in microseconds; None where the kernel, or the cgroup's controllers, do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from corelane.cpuset import CPUSet
from corelane.kernel.files import Directory

_NS: Final = 1000
_SHOWN: Final = 60
_DIGITS: Final = 22
_LARGEST_US: Final = 2**44
WRAP: Final = 2**32
"""Where counts of periods, throttled periods and bursts start again at 0."""


class CounterError(ValueError):
    """A file cannot be read as counters; the message quotes the line."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A cgroup's CPU limit: `quota_us` None is no limit; `burst_us` is what may be saved up beside it."""

    quota_us: int | None = None
    period_us: int = 100_000
    burst_us: int = 0

    @property
    def cpus(self) -> float | None:
        """The quota in CPUs; None without a limit."""
        return None if self.quota_us is None else self.quota_us / self.period_us


Waits = Mapping[int, int]
"""Thread id to the time that it has waited on run queues, in nanoseconds (/proc/TID/schedstat)."""


@dataclass(frozen=True, slots=True)
class CPUCounters:
    """One reading. `at` is seconds on any clock that both readings share.

    `throttled_us` is summed over CPUs and may exceed wall time; it counts the cgroup's own limit only, while
    `above_us` counts the limits of cgroups above, too (cpu.stat.local, Linux 6.6). `some_us` and `full_us`
    are the totals of cpu.pressure; throttling is part of them, and of `waits`, too.
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
    waits: Waits | None = None
    quota: Quota = field(default_factory=Quota)


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters, and what could not be counted and why. `threads` is None where it is unknown."""

    counters: CPUCounters
    lacks: tuple[str, ...] = ()
    threads: int | None = None


# Reading the files of a cgroup, in whichever hierarchies it is.

ReadFile = Callable[[str], str | None]


def read(directories: Iterable[str], at: float, proc: str = "/proc") -> Reading | None:
    """Read the cgroup that has these directories, one in each hierarchy; None once it is gone.

    `at` is the time of the reading in seconds. Raises CounterError for files that cannot be parsed.
    """
    trees = [tree for path in directories if (tree := Directory(path)).read("cgroup.procs") is not None]
    if not trees:
        return None
    first = _first(trees)
    parts = _version1(trees, first) if first("cpu.cfs_quota_us") is not None else _version2(first)
    if parts is None:
        return None
    values, lacks = parts
    values |= _pressure(first)
    values["waits"] = _waits(first, Directory(proc))
    return Reading(CPUCounters(at, **values), lacks, _threads(first))


def used_and_throttled(directories: Iterable[str]) -> tuple[float, float]:
    """CPU time used, and throttled time by any limit, of a cgroup so far in ms; 0 where it is not counted."""
    trees = [Directory(path) for path in directories]
    first = _first(sorted(trees, key=lambda tree: tree.read("cpu.cfs_quota_us") is None))
    stat, local = name_values(first("cpu.stat") or ""), name_values(first("cpu.stat.local") or "")
    usage = first("cpuacct.usage")
    used = _number(usage) / _NS if usage is not None else stat.get("usage_usec", 0)
    held = [
        max(stat.get("throttled_time", 0), local.get("throttled_time", 0)) / _NS,
        max(stat.get("throttled_usec", 0), local.get("throttled_usec", 0)),
    ]
    return used / 1000, max(held) / 1000


def _first(trees: list[Directory]) -> ReadFile:
    """Return a reader of a file from the first hierarchy that has it."""
    return lambda name: next((text for tree in trees if (text := tree.read(name)) is not None), None)


Parts = tuple[dict[str, Any], tuple[str, ...]]


def _version1(trees: list[Directory], first: ReadFile) -> Parts | None:
    """Beside a version 2 hierarchy, which has a cpu.stat too, the controller's own directory counts."""
    own = next(tree for tree in trees if tree.read("cpu.cfs_quota_us") is not None)
    stat, quota = own.read("cpu.stat"), own.read("cpu.cfs_quota_us")
    if stat is None or quota is None:
        return None
    values: dict[str, Any] = {**stat_v1(stat)}
    values["quota"] = quota_v1(quota, own.read("cpu.cfs_period_us") or "", own.read("cpu.cfs_burst_us"))
    if local := own.read("cpu.stat.local"):
        values["above_us"] = name_values(local).get("throttled_time", 0) // _NS
    usage = first("cpuacct.usage")
    if usage is None:
        return values, ("no cpuacct controller: CPU time used is not counted",)
    values["usage_us"] = _number(usage) // _NS
    return values, ()


def _version2(first: ReadFile) -> Parts | None:
    stat, limit = first("cpu.stat"), first("cpu.max")
    if stat is None:
        return ({}, ("no cpu controller in this hierarchy",)) if first("cgroup.procs") is not None else None
    values: dict[str, Any] = {**stat_v2(stat)}
    if limit is None:
        return values, ("cpu controller not enabled for this cgroup: no limit, throttling is not counted",)
    values["quota"] = quota_v2(limit, first("cpu.max.burst"))
    if local := first("cpu.stat.local"):
        values["above_us"] = name_values(local).get("throttled_usec", 0)
    return values, ()


def _number(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > _DIGITS:
        raise CounterError(f"cpuacct.usage {text[:_SHOWN]!r}: is not a number")
    return int(text)


def _pressure(first: ReadFile) -> dict[str, int]:
    """Empty where the kernel counts no pressure for cgroups (version 1, psi=0)."""
    text = first("cpu.pressure")
    if not text:
        return {}
    some, full = pressure(text)
    return {"some_us": some} if full is None else {"some_us": some, "full_us": full}


def _threads(first: ReadFile) -> int | None:
    """Threads in the group and below it (pids controller), else those in the group itself."""
    if (counted := (first("pids.current") or "").strip()).isdecimal() and len(counted) <= _DIGITS:
        return int(counted) or None
    return len((first("tasks") or first("cgroup.threads") or "").split()) or None


def _waits(first: ReadFile, proc: Directory) -> Waits | None:
    """Time that every thread has waited; None where the kernel has no schedstat."""
    threads = first("tasks") or first("cgroup.threads")
    if threads is None:
        return None
    waits: dict[int, int] = {}
    for tid in threads.split():
        fields = (proc.read(f"{tid}/schedstat") or "").split()
        if len(fields) >= 2:
            waits[int(tid)] = int(fields[1])
    return waits if waits or not threads.split() else None


# Parsing their texts.


def name_values(text: str) -> dict[str, int]:
    """Parse lines of a name and a number, as in cpu.stat. Raises CounterError.

    The kernel counts periods in 32 bits with a sign: a negative count has only passed 2^31.
    """
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if not number.strip().removeprefix("-").isdecimal():
            raise CounterError(f"{line[:_SHOWN]!r} is not a name with a number")
        if len(number) > _DIGITS:
            raise CounterError(f"{line[:_SHOWN]!r}… is more than 64 bits")
        amount = int(number)
        values[name] = amount + WRAP if -WRAP // 2 <= amount < 0 else amount
        if values[name] < 0:
            raise CounterError(f"{line!r} is negative")
    return values


def stat_v1(text: str) -> dict[str, int]:
    """Version 1's cpu.stat by the names of `CPUCounters`. Raises CounterError."""
    return _renamed(name_values(text), _V1)


def stat_v2(text: str) -> dict[str, int]:
    """Version 2's cpu.stat by the names of `CPUCounters`. Raises CounterError."""
    return _renamed(name_values(text), _V2)


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


def _renamed(values: dict[str, int], names: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    return {name: values[old] // unit for old, (name, unit) in names.items() if old in values}


def quota_v1(quota: str, period: str, burst: str | None) -> Quota:
    """Version 1's cpu.cfs_quota_us, cpu.cfs_period_us and, from Linux 5.14, cpu.cfs_burst_us."""
    try:
        amount = int(quota)
        return _checked(Quota(None if amount < 0 else amount, int(period), int(burst or 0)))
    except ValueError:
        texts = (repr(text)[:_SHOWN] for text in (quota, period, burst))
        raise CounterError("quota {}, period {}, burst {}: not values of a kernel".format(*texts)) from None


def quota_v2(text: str, burst: str | None) -> Quota:
    """Version 2's cpu.max (`max 100000`) and cpu.max.burst. Raises CounterError."""
    quota, _, period = text.strip().partition(" ")
    try:
        return _checked(Quota(None if quota == "max" else int(quota), int(period), int(burst or 0)))
    except ValueError:
        raise CounterError(f"cpu.max {text[:_SHOWN]!r}: not a quota and a period") from None


def _checked(quota: Quota) -> Quota:
    """Raises ValueError for what no kernel has: quota and burst are at most 2^44 us, a period above 0."""
    if not 0 <= (quota.quota_us or 0) <= _LARGEST_US or not 0 <= quota.burst_us <= _LARGEST_US:
        raise ValueError
    if not 0 < quota.period_us <= _LARGEST_US:
        raise ValueError
    return quota


def pressure(text: str) -> tuple[int, int | None]:
    """The totals of cpu.pressure: some, and full where the kernel has it (5.13). Raises CounterError."""
    totals: dict[str, int] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if total.isdecimal() and len(total) <= _DIGITS:
            totals[kind] = int(total)
    if "some" not in totals:
        raise CounterError(f"{text[:_SHOWN]!r} is not cpu.pressure")
    return totals["some"], totals.get("full")


# How busy the CPUs are that a container may use.


@dataclass(frozen=True, slots=True)
class MeasuredNode:
    """The node of a measurement, as far as advice depends on it: its CPUs, and its cgroup version."""

    cpus: int
    cgroup_version: int


@dataclass(frozen=True, slots=True)
class Processor:
    """Use of one CPU since boot, in clock ticks: running anything, taken by the hypervisor, idle."""

    busy: int
    steal: int
    idle: int = 0


@dataclass(frozen=True, slots=True)
class CPULoad:
    """Load of the CPUs that a container may use, in milliseconds a second, summed over them."""

    cpus: int
    busy: float
    steal: float = 0.0
    idle: float | None = None


def processors(text: str) -> dict[int, Processor]:
    """CPU id to its counters, from the lines `cpu0 …` of /proc/stat; empty where there are none."""
    counted: dict[int, Processor] = {}
    for line in text.splitlines():
        name, *numbers = line.split() or [""]
        if name.startswith("cpu") and name[3:].isdecimal() and _are_counters(numbers):
            user, nice, system, idle, *rest = (int(number) for number in numbers)
            iowait, irq, softirq, steal = (*rest[:4], 0, 0, 0, 0)[:4]
            counted[int(name[3:])] = Processor(user + nice + system + irq + softirq, steal, idle + iowait)
    return counted


def _are_counters(numbers: list[str]) -> bool:
    return len(numbers) >= 4 and all(number.isdecimal() for number in numbers)


def cpu_load(
    before: Mapping[int, Processor],
    after: Mapping[int, Processor],
    cpus: CPUSet | None,
    seconds: float,
    ticks_per_second: int,
) -> CPULoad | None:
    """Load of `cpus` (None: of all) between two readings; None where no CPU is in both."""
    both = [cpu for cpu in after if cpu in before and (cpus is None or cpu in cpus)]
    if not both or seconds <= 0:
        return None
    unit = 1000 / ticks_per_second / seconds
    busy = sum(after[cpu].busy - before[cpu].busy for cpu in both)
    steal = sum(after[cpu].steal - before[cpu].steal for cpu in both)
    idle = sum(after[cpu].idle - before[cpu].idle for cpu in both)
    return CPULoad(len(both), max(0, busy) * unit, max(0, steal) * unit, max(0, idle) * unit)


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
    """Reason why two readings give no rate."""

    why: str


@dataclass(frozen=True, slots=True)
class Rates:
    """Use of a cgroup in `seconds`. Times are milliseconds a second; None where they are not counted.

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
    """Time that its threads waited on run queues, throttling included."""
    waiters: int = 0
    """Number of threads that did."""
    quota: Quota = field(default_factory=Quota)
    notes: tuple[str, ...] = ()
    """Reasons why the counters carry less than ones read without interruption."""
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
        """Return the average delay of a throttled period; summed over the container's CPUs."""
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
    """Return the throttling by cgroups above: cpu.stat.local's beyond the cgroup's own."""
    if "above_us" not in grown:
        return None
    return max(0, grown["above_us"] - grown.get("throttled_us", 0)) / 1000 / seconds


def _queued(before: Waits | None, after: Waits | None) -> tuple[float | None, int]:
    """Milliseconds that threads waited, and how many did; a new thread began at 0."""
    if before is None or after is None:
        return None, 0
    waited = [after[tid] - before.get(tid, 0) for tid in after]
    return sum(wait for wait in waited if wait > 0) / 1e6, sum(wait > 0 for wait in waited)
