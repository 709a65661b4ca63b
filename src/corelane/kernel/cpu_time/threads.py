"""The threads of a cgroup, looked at again and again: which run or wait, on which CPUs, and for how long.

Sources: proc_pid_stat(5) for state and CPU; /proc/TID/schedstat (kernel documentation, scheduler/sched-stats)
for nanoseconds run and waited. The kernel adds a wait when it ends, and throttled time when the group is
released, so both come in lumps that belong to the time before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from corelane.kernel.cpu_time.losses import Moment
from corelane.kernel.files import Directory

_MAX_DEPTH: Final = 4
_MAX_GROUPS: Final = 256
_PROCESSOR: Final = 36
"""Of the fields that follow the name in /proc/TID/stat, counted from 0."""
_PENDING: Final = 0.008
"""Seconds: a thread that runs shows its CPU time at the next tick (1 to 10 ms) at the latest."""


@dataclass(frozen=True, slots=True)
class ThreadLook:
    """One thread at one moment: whether it runs or waits, its last CPU; nanoseconds run and waited so far."""

    runnable: bool
    cpu: int
    ran_ns: int
    waited_ns: int


def ids(directories: Iterable[str]) -> list[int]:
    """Return the threads in a cgroup and in those below it."""
    for path in directories:
        tree = Directory(path)
        name = next((name for name in ("tasks", "cgroup.threads") if tree.read(name) is not None), None)
        if name is not None:
            return _below(tree, name)
    return []


def _below(tree: Directory, name: str) -> list[int]:
    found, stack, seen = list[int](), [("", _MAX_DEPTH)], 0
    while stack and seen < _MAX_GROUPS:
        group, depth = stack.pop()
        seen += 1
        if (text := tree.read(f"{group}{name}")) is None:
            continue
        found += [int(each) for each in text.split() if each.isdecimal()]
        if depth:
            stack += [(f"{group}{below}/", depth - 1) for below in tree.directories(group or ".")]
    return found


def look(tids: Iterable[int], proc: Directory) -> dict[int, ThreadLook]:
    """Look at these threads; those that ended are left out."""
    found = dict[int, ThreadLook]()
    for tid in tids:
        times = (proc.read(f"{tid}/schedstat") or "").split()
        state = (proc.read(f"{tid}/stat") or "").rpartition(")")[2].split()
        if len(times) >= 2 and len(state) > _PROCESSOR:
            found[tid] = ThreadLook(state[0] == "R", int(state[_PROCESSOR]), int(times[0]), int(times[1]))
    return found


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters at the moment of a look, in milliseconds since they began; `at` in seconds."""

    at: float
    used: float = 0.0
    throttled: float = 0.0
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class Crowd:
    """What the looks at a container's threads showed, in milliseconds a second of the time between them.

    `ran` is the CPU time of the threads that were seen: less than the group `used` where threads came and
    went between looks. `pending` is the part of `waited` that had not ended at the last look.
    """

    waited: float
    pending: float
    ran: float
    used: float
    throttled: float
    threads: int
    moments: tuple[Moment, ...]


def joined(crowds: Sequence[tuple[float, Crowd]]) -> Crowd | None:
    """Return what looks in several intervals, each with its seconds, showed together; None without any."""
    seconds = sum(each for each, _ in crowds)
    if not seconds:
        return None

    def mean(name: str) -> float:
        return sum(length * float(getattr(crowd, name)) for length, crowd in crowds) / seconds

    length, last = crowds[-1]
    return Crowd(
        mean("waited"),
        last.pending * length / seconds,
        mean("ran"),
        mean("used"),
        mean("throttled"),
        max(crowd.threads for _, crowd in crowds),
        tuple(moment for _, crowd in crowds for moment in crowd.moments),
    )


@dataclass(slots=True)
class _Thread:
    """One thread: at the first look and now, since when it waits (seconds), and what it waited before."""

    first: ThreadLook
    now: ThreadLook
    since: float
    early_ms: float | None = None
    """The part of its first wait that was before the first look; None until a wait has ended."""

    def add(self, each: ThreadLook, at: float, begin: float) -> None:
        grown = (each.waited_ns - self.now.waited_ns) / 1e6
        if self.early_ms is None and grown > 0:
            ran = (each.ran_ns - self.first.ran_ns) / 1e6
            self.early_ms = max(0.0, grown + ran - (at - begin) * 1000)
        times = each.ran_ns, each.waited_ns
        if not (each.runnable and self.now.runnable and times == (self.now.ran_ns, self.now.waited_ns)):
            self.since = at
        self.now = each

    @property
    def waited_ms(self) -> float:
        return max(0.0, (self.now.waited_ns - self.first.waited_ns) / 1e6 - (self.early_ms or 0.0))


@dataclass(slots=True)
class ThreadWatch:
    """Looks at one container's threads, added up. It may use `cpus` CPUs."""

    cpus: int
    threads: dict[int, _Thread] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    seen: list[tuple[Counted, int, int]] = field(default_factory=list)
    """Counters, runnable threads, and on how many CPUs these were."""

    def add(self, counted: Counted, threads: dict[int, ThreadLook]) -> None:
        """Add a look. Threads that were not there at the first one began at 0."""
        begin = self.seen[0][0].at if self.seen else counted.at
        for tid, each in threads.items():
            if (known := self.threads.get(tid)) is not None:
                known.add(each, counted.at, begin)
            else:
                start = ThreadLook(each.runnable, each.cpu, 0, 0) if self.seen else each
                self.threads[tid] = _Thread(start, each, counted.at, 0.0 if self.seen else None)
        self.present = set(threads)
        runnable = [each for each in threads.values() if each.runnable]
        self.seen.append((counted, len(runnable), len({each.cpu for each in runnable})))

    @property
    def busy(self) -> bool:
        """Whether any thread waited, or is runnable now."""
        return any(each.now.runnable or each.waited_ms > 0 for each in self.threads.values())

    def crowd(self) -> Crowd | None:
        """Return all that was seen; None without two looks."""
        if len(self.seen) < 2:
            return None
        begin, end = self.seen[0][0], self.seen[-1][0]
        seconds = end.at - begin.at
        waits = [end.at - each.since for tid, each in self.threads.items() if tid in self.present]
        pending = sum(1000 * wait for wait in waits if wait >= _PENDING)
        waited = sum(each.waited_ms for each in self.threads.values())
        ran = sum(max(0, each.now.ran_ns - each.first.ran_ns) for each in self.threads.values()) / 1e6
        moments = self._moments()
        throttled = sum(
            moment.throttled * (now[0].at - before[0].at)
            for (before, now), moment in zip(pairwise(self.seen), moments, strict=True)
        )
        return Crowd(
            (waited + pending) / seconds,
            pending / seconds,
            ran / seconds,
            (end.used - begin.used) / seconds,
            throttled / seconds,
            len(self.threads),
            moments,
        )

    def _moments(self) -> tuple[Moment, ...]:
        pairs = list(pairwise(self.seen))
        held = spread_back(
            [(b[0].at - a[0].at, b[0].throttled - a[0].throttled, 1000.0 * max(a[2], 1)) for a, b in pairs]
        )
        return tuple(
            Moment(
                runnable,
                min(spread, self.cpus),
                (now.used - before.used) / (now.at - before.at),
                throttled,
                None
                if now.idle is None or before.idle is None
                else (now.idle - before.idle) / (now.at - before.at),
            )
            for ((before, _, _), (now, runnable, spread)), throttled in zip(pairs, held, strict=True)
        )


def spread_back(grown: Sequence[tuple[float, float, float]]) -> list[float]:
    """Rates of a counter that grows in lumps when a time ends: the largest that is possible, the rest before.

    `grown` are seconds, the amount, and the largest rate. What is left before the first is dropped.
    """
    rates, left = list[float](), 0.0
    for seconds, amount, most in reversed(grown):
        left += max(0.0, amount)
        here = min(left, most * seconds)
        rates.append(here / seconds)
        left -= here
    return rates[::-1]
