"""Threads of a cgroup, sampled: which run or wait, on which CPUs, how long, and what their waits were for.

Sources: proc_pid_stat(5) for state and CPU; /proc/TID/schedstat (kernel documentation, scheduler/sched-stats)
for nanoseconds run and waited. The kernel adds a wait when it ends, and throttled time when the group is
released, so both come in lumps that belong to the time before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Final

from corelane.kernel.files import Directory

# What held a container back: the waits of its threads divided among limit, other processes and own threads.
#
# At a moment `n` of its threads are runnable, `r` of them run, and it may use `c` CPUs. The rest, n - r,
# wait:
#
# * own threads: max(0, n - c) would wait on an empty machine, too;
# * limit: of the min(n, c) - r that remain, those in throttled queues;
# * other processes: of the remainder, those for which none of the CPUs is idle;
# * scheduling: the others, which the kernel has not yet woken up on, or moved to, an idle CPU.
#
# Over time the four add up to what was lost: the waits of all threads, in milliseconds a second. The theory,
# what is measured of it and the errors are in docs/limits-causes.md.


_MS: Final = 1000.0
_EXCLUDED: Final = 0.5
"""Waits below this part of the throttled time cannot include it."""
_NOTICED_MS: Final = 50.0
_HELD: Final = 100.0
"""Throttled ms/s between two looks from which on the limit makes CPUs idle."""
_IDLE_LOW, _IDLE_HIGH = 0.5, 1.0
"""Idle CPUs while threads wait: up to the first other processes are the cause, from the second on not."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One look at a container's threads, and what was counted since the look before.

    `runnable` threads run or wait, throttled ones included, on so many different CPUs (`spread`). `used` and
    `throttled` are milliseconds a second, `idle` those of all CPUs that it may use; None where unknown.
    """

    runnable: int
    spread: int
    used: float = 0.0
    throttled: float = 0.0
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Counted time of a container, in milliseconds a second.

    `waited` are the waits of all threads, throttling included unless `with_throttled` is false (None:
    unknown); `throttled` by its own limit and those above, once for each CPU; `others` and `steal` what other
    processes and the hypervisor took of the `cpus` that it may use, `idle` what nothing used. `threads` is
    how many it has, 0 where unknown.
    """

    waited: float
    used: float
    cpus: int
    throttled: float = 0.0
    above: float = 0.0
    """The part of `throttled` that is due to the limits above, a pod's for instance."""
    others: float = 0.0
    steal: float = 0.0
    idle: float | None = None
    threads: int = 0
    moments: Sequence[Moment] = ()
    pending: float = 0.0
    """The part of `waited` that goes on: what of it is throttled time is not yet in `throttled`."""
    with_throttled: bool | None = None


@dataclass(frozen=True, slots=True)
class Losses:
    """The waits of all threads by cause, in milliseconds a second; together they are `total`.

    `error` is the standard error of `own`, which is estimated from looks at the threads, and with the
    opposite sign of the others.
    """

    limit: float = 0.0
    above: float = 0.0
    neighbours: float = 0.0
    own: float = 0.0
    hypervisor: float = 0.0
    scheduling: float = 0.0
    error: float = 0.0
    paused: float | None = None
    """The part of the looks at which none of its threads was runnable; None without looks."""

    @property
    def total(self) -> float:
        return self.limit + self.above + self.neighbours + self.own + self.hypervisor + self.scheduling


def divide(counted: Waits) -> Losses:
    """Divide the waits of a container's threads by cause."""
    if 0 < counted.pending < counted.waited:
        grows = counted.waited / (counted.waited - counted.pending)
        counted = replace(counted, throttled=counted.throttled * grows, above=counted.above * grows)
    waited = counted.waited + _uncounted(counted)
    own, error = _own(counted, waited)
    losses = share_out(counted, waited - own, own, error)
    looks = counted.moments
    paused = fmean(not moment.runnable for moment in looks) if looks else None
    return replace(losses, paused=paused)


def share_out(counted: Waits, lost: float, own: float, error: float = 0.0) -> Losses:
    """Divide what was lost beside `own` (the waits behind own threads) by cause."""
    limit = min(counted.throttled * _stacked(counted), lost)
    rest = lost - limit
    taken = min(rest, counted.others + counted.steal) * _without_idle(counted)
    extra = min(rest - taken, max(0.0, _width(counted) * counted.throttled - limit))
    limit, rest = limit + extra, rest - taken - extra
    above = _part(counted.above, counted.throttled) * limit
    stolen = _part(counted.steal, counted.others + counted.steal) * taken
    return Losses(limit - above, above, taken - stolen, own, stolen, rest, error)


def _part(amount: float, whole: float) -> float:
    return amount / whole if whole > 0 else 0.0


def _uncounted(counted: Waits) -> float:
    """Throttled waits of a kernel that does not count them as waits (schedstat's run_delay)."""
    missing = counted.with_throttled is False
    if counted.with_throttled is None:
        large = counted.throttled >= _NOTICED_MS
        missing = large and counted.waited < _EXCLUDED * counted.throttled
    return counted.throttled * _stacked(counted) if missing else 0.0


def _own(counted: Waits, waited: float) -> tuple[float, float]:
    """Waits behind own threads, and their standard error.

    The mean number of runnable threads is known: used and waited time. The looks, few as they are, only have
    to say how it is spread around the number of CPUs (a control variate).
    """
    mean, cpus = (counted.used + waited) / _MS, counted.cpus
    least = max(0.0, mean - cpus)
    if 0 < counted.threads <= cpus:
        return 0.0, 0.0
    looks = [moment.runnable for moment in counted.moments]
    if len(looks) < 2:
        return min(least * _MS, waited), 0.0
    beyond = [max(0, each - cpus) for each in looks]
    centre, over = fmean(looks), fmean(beyond)
    spread = fmean((each - centre) ** 2 for each in looks)
    both = fmean((a - centre) * (b - over) for a, b in zip(looks, beyond, strict=True))
    slope = both / spread if spread else float(centre >= cpus)
    estimate = over + slope * (mean - centre)
    left = fmean((b - over - slope * (a - centre)) ** 2 for a, b in zip(looks, beyond, strict=True))
    own = min(max(estimate, least) * _MS, waited)
    return own, _MS * math.sqrt(left / len(looks))


def _stacked(counted: Waits) -> float:
    """Threads that the limit stops, of those that could run at once, for each CPU on which it does.

    More than 1 where threads are throttled behind each other while other CPUs would be free for them.
    """
    amount = weight = 0.0
    for moment in counted.moments:
        if moment.throttled > 0 and moment.spread:
            amount += moment.throttled * min(moment.runnable, counted.cpus) / moment.spread
            weight += moment.throttled
    return max(1.0, amount / weight) if weight else 1.0


def _width(counted: Waits) -> float:
    """CPUs that its threads could use at most."""
    return float(min(counted.cpus, counted.threads or counted.cpus))


def _without_idle(counted: Waits) -> float:
    """The part of the waits during which no CPU was idle; on one CPU all of them.

    Where no look shows it, the mean counts, less the CPUs that are idle because of the limit: at most as many
    as it throttles.
    """
    if counted.cpus == 1:
        return 1.0
    idle = _idle_while_waiting(counted)
    if idle is None:
        if counted.idle is None:
            return 1.0
        idle = (counted.idle - counted.throttled) / _MS
    return min(1.0, max(0.0, (_IDLE_HIGH - idle) / (_IDLE_HIGH - _IDLE_LOW)))


def _idle_while_waiting(counted: Waits) -> float | None:
    """CPUs that were idle while threads waited that no limit held back; None where no look showed that.

    While a limit holds, CPUs are idle because of it; it may have begun or ended between two looks, and at the
    end it is not counted yet.
    """
    amount = weight = 0.0
    limited = counted.throttled > 0
    held = [_held(moment) for moment in counted.moments] if limited else [False] * len(counted.moments)
    held = [False, *held, limited]
    for number, moment in enumerate(counted.moments):
        if moment.idle is None or not moment.spread or any(held[number : number + 3]):
            continue
        waiting = min(moment.runnable, counted.cpus) - moment.used / _MS
        if waiting > 0:
            amount += waiting * moment.idle / _MS
            weight += waiting
    return amount / weight if weight else None


def _held(moment: Moment) -> bool:
    return moment.throttled >= _HELD or moment.used < _HELD


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
    tids, stack, seen = list[int](), [("", _MAX_DEPTH)], 0
    while stack and seen < _MAX_GROUPS:
        group, depth = stack.pop()
        seen += 1
        if (text := tree.read(f"{group}{name}")) is None:
            continue
        tids += [int(each) for each in text.split() if each.isdecimal()]
        if depth:
            stack += [(f"{group}{below}/", depth - 1) for below in tree.directories(group or ".")]
    return tids


def look(tids: Iterable[int], proc: Directory) -> dict[int, ThreadLook]:
    """Look at these threads; those that ended are left out."""
    looks = dict[int, ThreadLook]()
    for tid in tids:
        times = (proc.read(f"{tid}/schedstat") or "").split()
        state = (proc.read(f"{tid}/stat") or "").rpartition(")")[2].split()
        if len(times) >= 2 and len(state) > _PROCESSOR:
            looks[tid] = ThreadLook(state[0] == "R", int(state[_PROCESSOR]), int(times[0]), int(times[1]))
    return looks


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters at the moment of a look, in milliseconds since they began; `at` in seconds."""

    at: float
    used: float = 0.0
    throttled: float = 0.0
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class Crowd:
    """Result of the looks at a container's threads, in milliseconds a second of the time between them.

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
            if (thread := self.threads.get(tid)) is not None:
                thread.add(each, counted.at, begin)
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
