"""What held a container back: the waits of its threads divided among limit, other processes and own threads.

At a moment `n` of its threads are runnable, `r` of them run, and it may use `c` CPUs. The rest, n - r, wait:

* own threads: max(0, n - c) would wait on an empty machine, too;
* limit: of the min(n, c) - r that remain, those in throttled queues;
* other processes: of the remainder, those for which none of the CPUs is idle;
* scheduling: the others, which the kernel has not yet woken up on, or moved to, an idle CPU.

Over time the four add up to what was lost: the waits of all threads, in milliseconds a second. The theory,
what is measured of it and the errors are in docs/limits-causes.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

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
    """What was counted of a container, in milliseconds a second.

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
    found = share_out(counted, waited - own, own, error)
    looks = counted.moments
    paused = fmean(not moment.runnable for moment in looks) if looks else None
    return replace(found, paused=paused)


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
