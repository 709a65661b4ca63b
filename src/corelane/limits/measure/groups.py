"""A group's files read into `Counters`, wherever its hierarchies are mounted; what vanishes is None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kernel.files import Directory
from corelane.limits.measure import counters
from corelane.limits.measure.counters import CounterError, Counters, Tasks

__all__ = ["Reading", "allowed", "read"]

Read = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters, and what could not be counted and why."""

    counters: Counters
    lacks: tuple[str, ...] = ()


def read(directories: Iterable[str], at: float, proc: str = "/proc") -> Reading | None:
    """Read the group that has these directories, one a hierarchy; None once it is gone.

    `at` is the time of the reading in seconds. Raises CounterError for files that make no sense.
    """
    trees = [tree for one in directories if (tree := Directory(one)).read("cgroup.procs") is not None]
    if not trees:
        return None
    first = _first(trees)
    found = _version1(trees, first) if first("cpu.cfs_quota_us") is not None else _version2(first)
    if found is None:
        return None
    values, lacks = found
    values |= _pressure(first)
    if "some_us" not in values:
        values["waits"] = _waits(first, Directory(proc))
    return Reading(Counters(at, **values), lacks)


def _first(trees: list[Directory]) -> Read:
    """A file from the first hierarchy that has it."""
    return lambda name: next((text for tree in trees if (text := tree.read(name)) is not None), None)


Found = tuple[dict[str, Any], tuple[str, ...]]


def _version1(trees: list[Directory], first: Read) -> Found | None:
    """Beside a version 2 hierarchy, which has a cpu.stat too, the controller's own directory counts."""
    own = next(tree for tree in trees if tree.read("cpu.cfs_quota_us") is not None)
    stat, quota = own.read("cpu.stat"), own.read("cpu.cfs_quota_us")
    if stat is None or quota is None:
        return None
    values: dict[str, Any] = {**counters.stat1(stat)}
    values["quota"] = counters.quota1(
        quota, own.read("cpu.cfs_period_us") or "", own.read("cpu.cfs_burst_us")
    )
    if local := own.read("cpu.stat.local"):
        values["above_us"] = counters.flat(local).get("throttled_time", 0) // 1000
    usage = first("cpuacct.usage")
    if usage is None:
        return values, ("no cpuacct controller: how much CPU time it uses is not known",)
    values["usage_us"] = _number(usage) // 1000
    return values, ()


def _version2(first: Read) -> Found | None:
    stat, limit = first("cpu.stat"), first("cpu.max")
    if stat is None:
        return ({}, ("no cpu controller in this hierarchy",)) if first("cgroup.procs") is not None else None
    values: dict[str, Any] = {**counters.stat2(stat)}
    if limit is None:
        return values, ("the cpu controller is not enabled for it: no limit, and throttling is not counted",)
    values["quota"] = counters.quota2(limit, first("cpu.max.burst"))
    if local := first("cpu.stat.local"):
        values["above_us"] = counters.flat(local).get("throttled_usec", 0)
    return values, ()


def _number(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 22:
        raise CounterError(f"cpuacct.usage {text[:60]!r}: no number")
    return int(text)


def _pressure(first: Read) -> dict[str, int]:
    """Empty where the kernel counts no pressure for groups (version 1, psi=0)."""
    text = first("cpu.pressure")
    if not text:
        return {}
    some, full = counters.pressure(text)
    return {"some_us": some} if full is None else {"some_us": some, "full_us": full}


def _waits(first: Read, proc: Directory) -> Tasks | None:
    """How long every thread has waited; None where the kernel keeps no schedstat."""
    threads = first("tasks") or first("cgroup.threads")
    if threads is None:
        return None
    found: dict[int, int] = {}
    for tid in threads.split():
        fields = (proc.read(f"{tid}/schedstat") or "").split()
        if len(fields) >= 2:
            found[int(tid)] = int(fields[1])
    return found if found or not threads.split() else None


def allowed(directories: Iterable[str]) -> CPUSet | None:
    """The CPUs that the group may use now; None where no cpuset says so."""
    for one in directories:
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
            try:
                found = CPUSet.parse((Directory(one).read(name) or "").strip())
            except CPUSetError:
                continue
            if found:
                return found
    return None
