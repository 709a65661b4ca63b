"""From readings of one container to what held it back: which counters are used, and how some are replaced."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Final

from corelane.kernel.cpu_time.competitors import Competition
from corelane.kernel.cpu_time.counters import CPULoad, Rates
from corelane.kernel.cpu_time.threads import Crowd, Losses, Waits, divide, share_out

_SEEN: Final = 0.9
"""Of the CPU time used by the group, what the threads that were seen must account for."""
_TRUSTED: Final = 0.3
_THROTTLED: Final = 100.0
_LOOKS: Final = 10
_SURE: Final = 3.0
"""Evidence of how a kernel counts: throttled time in ms/s, number of looks, and of standard errors."""


def attribute(
    rates: Rates,
    load: CPULoad | None,
    threads: int = 0,
    crowd: Crowd | None = None,
    competition: Competition | None = None,
    with_throttled: bool | None = None,
) -> tuple[Losses | None, Rates]:
    """Divide what was lost by cause; and the rates, with the waits that were found and remarks on them.

    None where neither the waits of threads nor pressure is counted, or nothing is known of the CPUs.
    `with_throttled`: whether the kernel counts throttled time as waits (None: unknown).
    """
    if load is None:
        return None, rates
    rates = _with_all_waits(rates, crowd)
    throttled = (rates.throttled or 0.0) + (rates.above or 0.0)
    held = crowd.throttled if crowd and rates.queued is not None else throttled
    counted = Waits(
        0.0,
        crowd.used if crowd and rates.queued is not None else rates.used or 0.0,
        load.cpus,
        held,
        (rates.above or 0.0) * held / throttled if throttled else 0.0,
        _others(rates, load, competition),
        load.steal,
        load.idle,
        max(threads, crowd.threads if crowd else 0),
        crowd.moments if crowd else (),
        crowd.pending if crowd else 0.0,
        with_throttled,
    )
    if rates.queued is not None:
        return divide(replace(counted, waited=rates.queued)), rates
    if rates.waiting is not None:
        return _of_pressure(rates, counted), rates
    return None, rates


def counts_throttled_time(crowds: Iterable[Crowd]) -> bool | None:
    """Whether this kernel counts throttled time as waiting, by throttled containers; None if none shows it.

    Used and waited time together are the runnable threads that the looks saw, or less by the throttled time.
    """
    for crowd in crowds:
        looks = [moment.runnable for moment in crowd.moments]
        if crowd.throttled < _THROTTLED or len(looks) < _LOOKS or crowd.ran < _SEEN * crowd.used:
            continue
        missing = 1000 * fmean(looks) - crowd.used - crowd.waited
        error = 1000 * pstdev(looks) / math.sqrt(len(looks))
        if abs(missing) + _SURE * error < crowd.throttled / 2:
            return True
        if missing - _SURE * error > crowd.throttled / 2:
            return False
    return None


def _with_all_waits(rates: Rates, crowd: Crowd | None) -> Rates:
    """Waits by the looks at threads, of those that came and went, too; scaled for what no look caught."""
    if crowd is None:
        return rates
    ran = crowd.used
    if crowd.ran >= _SEEN * ran:
        return replace(rates, queued=crowd.waited)
    part = crowd.ran / ran
    if part >= _TRUSTED:
        remark = f"waits are scaled: threads that were seen account for {part:.0%} of the CPU time"
        return replace(rates, queued=crowd.waited / part, remarks=(*rates.remarks, remark))
    remark = (
        f"threads that were seen account for {part:.0%} of the CPU time: most ended between looks, so the "
        "waits of all are unknown"
    )
    return replace(rates, queued=None, remarks=(*rates.remarks, remark))


def _others(rates: Rates, load: CPULoad, competition: Competition | None) -> float:
    """CPU time of other processes that can have delayed it: of groups with cpu.idle only what weights allow.

    A thread of such a group is preempted at once by any other.
    """
    used = rates.used or 0.0
    others = max(0.0, load.busy - used)
    if load.idle is not None:
        # Ticks get lost, in virtual machines above all: what is neither idle nor stolen is used.
        others = max(others, 1000.0 * load.cpus - load.idle - load.steal - used)
    if competition is None:
        return others
    yields = sum(max(0.0, each.used - each.relative * used) for each in competition.competitors if each.idle)
    return max(0.0, others - yields)


def _of_pressure(rates: Rates, counted: Waits) -> Losses | None:
    """By pressure alone, in wall time: the time in which some thread waits.

    On one CPU, the time in which all wait is due to the limit and to others, the rest to own threads. On more
    CPUs the two cannot be told apart, unless there are no more threads than CPUs.
    """
    some, full = rates.waiting or 0.0, rates.stalled
    if counted.cpus == 1 and full is not None:
        own = max(0.0, some - full)
    elif 0 < counted.threads <= counted.cpus:
        own = 0.0
    elif counted.others + counted.steal < 1.0:
        own = max(0.0, some - min(counted.throttled, 1000.0))
    else:
        return None
    blocked = some - own
    held = min(counted.throttled, blocked)
    return share_out(replace(counted, throttled=held, above=_part(counted, held)), blocked, own)


def _part(counted: Waits, held: float) -> float:
    return counted.above * held / counted.throttled if counted.throttled else 0.0
