"""The model fitted to a container's counters: threads that never stop, bursts, or requests at random.

Busy throughout, a quota Q for n busy CPUs leaves throttled = n - Q: used plus throttled time is n. With
pauses, bursts of n threads, or requests for n threads, are searched for that use as much, are throttled as
long under that quota and show as many periods, throttled and not. Totals seldom tell one from the other, so
all that the model confirms count, and forecasts are ranges over them; without any, nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from corelane.limits.advice.effects import CLOSE, SEEDS, Fit, LoadShape, simulated, sweeping
from corelane.limits.measure.throttling import Rates
from corelane.limits.model.clock import MS

_FULL: Final = 0.95
"""A container that used so much of its quota, throttled in most periods, never stops."""
_STEPS: Final = 48
_TRIED: Final = 4
_MOST_FITS: Final = 5
_FEWEST: Final = 3
"""Bursts, and requests, that there must have been during the measurement."""
_DENSEST: Final = 8
"""More bursts in a period than this are steady load."""
_CROWDED: Final = 32
"""More requests in a period than this are steady load."""
_SPREADS: Final = (0.3, 1.0)
"""Of the logarithm of requests' work: nearly equal, and with a tail as services have it."""
_HALVINGS: Final = 5
_NEAR: Final = 0.1
_CREDIBLE: Final = 0.35
_HOPEFUL: Final = 2 * _CREDIBLE
"""Bursts farther off than this by the fluid rule would not be confirmed by the model."""
_WIDEST: Final = 64
_DISTURBED: Final = 0.2
"""Part of CPU demand; with more waiting for other processes the counters show those, not the limit."""


def fit(rates: Rates, threads: int | None = None, cpus: int = 0, others: float = 0.0) -> Fit:
    """Fit the model to rates with a quota. `threads` run at once by its settings, on `cpus` (0: unknown).

    `others` is how long it waited for other processes or the hypervisor, in ms a second.
    """
    used, throttled = rates.used or 0.0, rates.throttled or 0.0
    quota, period = (rates.quota.quota_us or 0) / 1000, rates.quota.period_us / 1000
    plain = Fit(
        LoadShape.BUSY, (used + throttled) / 1000, used, throttled, quota, period, rates.quota.burst_us / 1000
    )
    if _is_busy(rates, plain):
        modelled = max(0.0, plain.cpus * 1000 - quota / period * 1000)
        return replace(plain, modelled=modelled, wants=_demand(plain, rates, threads, cpus))
    if others > _DISTURBED * (used + throttled + others):
        return _unfitted(
            plain, threads, cpus, "other processes delay it, too, so the limit alone explains nothing"
        )
    tried = [*_bursts(plain, rates, threads, cpus), *_requests(plain, rates, threads, cpus)]
    good = sorted((pair for pair in tried if _holds(*pair)), key=lambda pair: pair[0])
    if good:
        best, *rivals = (fit for _, fit in good[:_MOST_FITS])
        return replace(best, rivals=tuple(rivals))
    return _unfitted(plain, threads, cpus, _UNLIKE)


_UNLIKE: Final = (
    "neither steady load, nor equal bursts, nor random requests are throttled as often and as long"
)


def _unfitted(plain: Fit, threads: int | None, cpus: int, why: str) -> Fit:
    most = min(filter(None, (cpus, threads)), default=math.inf)
    return replace(plain, shape=LoadShape.UNFITTED, cpus=most, why=why)


def _is_busy(rates: Rates, candidate: Fit) -> bool:
    if not rates.periods or candidate.used < _FULL * candidate.quota / candidate.period * 1000:
        return False
    return (rates.throttled_periods or 0) >= 0.9 * rates.periods


def _demand(candidate: Fit, rates: Rates, threads: int | None, cpus: int) -> float:
    """CPUs that the threads may use. Throttled time is counted once a CPU: waiting threads show more demand.

    Since Linux 6.18 the threads of a throttled group tend to be stacked so (task-based throttling).
    """
    demands = [candidate.cpus, float(threads or 0), (candidate.used + (rates.queued or 0.0)) / 1000]
    return max(candidate.cpus, min(cpus, max(demands)))


def _holds(distance: float, candidate: Fit) -> bool:
    return (
        distance <= _CREDIBLE and abs(candidate.modelled - candidate.throttled) <= CLOSE * candidate.throttled
    )


Tried = tuple[float, Fit]
"""How far off the model is with a fit."""


def _bursts(plain: Fit, rates: Rates, threads: int | None, cpus: int) -> Iterator[Tried]:
    """The bursts that explain the counters best."""
    for candidate in _candidates(plain, rates, threads, cpus):
        if _compared(candidate, rates, (1,))[0] <= _HOPEFUL:
            yield _compared(candidate, rates, SEEDS)


def _widths(threads: int | None, cpus: int, step: int = 1) -> Iterator[int]:
    """How many CPUs may be kept busy at once: by its settings, else powers of two (of four, …)."""
    most = min(cpus or _WIDEST, _WIDEST)
    if threads:
        yield min(threads, most)
        return
    powers = [1 << power for power in range(0, most.bit_length(), step)]
    yield from powers
    if powers[-1] != most:
        yield most


def _candidates(plain: Fit, rates: Rates, threads: int | None, cpus: int) -> list[Fit]:
    """The bursts that explain the counters best by the fluid rule, of every width and many sizes."""
    if plain.used <= 0:
        return []
    scored = []
    most = min(plain.used * rates.seconds / _FEWEST, 64 * plain.quota)
    for width in _widths(threads, cpus):
        if not _is_wide_enough(plain, width):
            continue
        for step in range(_STEPS):
            work = plain.quota / 4 * (max(most / plain.quota * 4, 1.0)) ** (step / (_STEPS - 1))
            candidate = replace(plain, shape=LoadShape.BURSTS, cpus=float(width), work=work)
            if work / plain.used * 1000 >= plain.period / _DENSEST:
                scored.append((_fluid_distance(candidate, rates), step, candidate))
    scored.sort(key=lambda each: each[0])
    return [candidate for distance, _, candidate in scored[:_TRIED] if distance <= _HOPEFUL]


def _is_wide_enough(plain: Fit, width: int) -> bool:
    """Whether at least endless work of that width would be throttled so long."""
    return plain.throttled <= 1.1 * plain.used * (width * plain.period / plain.quota - 1)


def _fluid_distance(candidate: Fit, rates: Rates) -> float:
    every = sweeping(candidate.work / candidate.used * 1000, candidate.period)
    seen = _fluid_counters(
        candidate.work, candidate.cpus, every, candidate.quota, candidate.period, candidate.burst
    )
    return _distance(rates, seen.throttled, seen.periods, seen.throttled_periods)


def _requests(plain: Fit, rates: Rates, threads: int | None, cpus: int) -> Iterator[Tried]:
    """Requests at random, of every width and spread, whose size explains the throttled time."""
    smallest = max(plain.quota / _WIDEST, plain.used * plain.period / 1000 / _CROWDED)
    largest = min(plain.used * rates.seconds / _FEWEST, 16 * plain.quota)
    if plain.used <= 0 or smallest >= largest:
        return
    for width, sigma in product(_widths(threads, cpus, 2), _SPREADS):
        if _is_wide_enough(plain, width):
            candidate = replace(plain, shape=LoadShape.REQUESTS, cpus=float(width), sigma=sigma)
            yield _sized(candidate, rates, smallest, largest)


def _sized(candidate: Fit, rates: Rates, low: float, high: float) -> Tried:
    """Search the size of requests by halving: larger ones exceed the quota more often."""
    best: Tried = (math.inf, candidate)
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        tried = _compared(replace(candidate, work=middle), rates, (1,))
        best = min(best, tried, key=lambda pair: pair[0])
        if abs(tried[1].modelled - candidate.throttled) < _NEAR * candidate.throttled:
            break
        if tried[1].modelled > candidate.throttled:
            high = middle
        else:
            low = middle
    return best


def _compared(candidate: Fit, rates: Rates, seeds: tuple[int, ...]) -> Tried:
    """Simulate a fit: how far off it is, and the throttled time that it shows."""
    results = [simulated(candidate, candidate.now, seed) for seed in seeds]
    seconds = sum(result.seconds for result in results)
    throttled = sum(result.stat.throttled_ns for result in results) / MS / seconds
    periods = sum(result.stat.nr_periods for result in results) / seconds
    stopped = sum(result.stat.nr_throttled for result in results) / seconds
    return _distance(rates, throttled, periods, stopped), replace(candidate, modelled=throttled)


def _distance(rates: Rates, throttled: float, periods: float, stopped: float) -> float:
    """The worst of three: throttled time, which weighs more, and both counts of periods."""
    return max(
        _off(rates.throttled or 0.0, throttled) * _CREDIBLE / CLOSE,
        _off((rates.periods or 0.0) / rates.seconds, periods),
        _off((rates.throttled_periods or 0.0) / rates.seconds, stopped),
    )


def _off(measured: float, expected: float) -> float:
    """How far two amounts are apart, as a part of the larger."""
    return abs(measured - expected) / max(measured, expected, 1e-9)


# Bursts under a quota as a fluid: n CPUs use Q up in Q/n and wait for the refill; no slices, no ticks. Exact
# enough to find the bursts that explain some counters among hundreds; then the model decides.

_BURSTS: Final = 24
_QUIET: Final = 1
"""Periods without work that are still counted: the timer stops at the second (kernel/sched/fair.c)."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """What cpu.stat would show in every second: ms, periods, throttled periods."""

    throttled: float
    periods: float
    throttled_periods: float


@dataclass(slots=True)
class _State:
    budget: float
    backlog: float = 0.0
    throttled: float = 0.0
    periods: int = 0
    stopped: int = 0


def _fluid_counters(
    work: float, cpus: float, every: float, quota: float, period: float, burst: float = 0.0
) -> _Counted:
    """Bursts of `work` ms of CPU time on `cpus` at once, `every` ms, the first at the start of a period."""
    state, arrivals = _State(quota), [every * number for number in range(_BURSTS)]
    quiet, number, come, end = 0, 0, 0, every * _BURSTS
    while number * period < end:
        start, first = number * period, come
        while come < _BURSTS and arrivals[come] < start + period:
            come += 1
        if come == first and not state.backlog and quiet > _QUIET:
            later = arrivals[come] if come < _BURSTS else end
            number, state.budget = max(number + 1, int(later // period)), quota + burst
            continue
        _period(state, arrivals[first:come], start, period, work, cpus)
        quiet = 0 if come > first or state.backlog else quiet + 1
        state.periods += 1
        state.stopped += state.backlog > 0 and state.budget <= 0
        state.budget = min(state.budget + quota, quota + burst)
        number += 1
    return _Counted(state.throttled / end * 1000, state.periods / end * 1000, state.stopped / end * 1000)


def _period(state: _State, due: list[float], start: float, period: float, work: float, cpus: float) -> None:
    """One period: run while there is work and budget, and stand still while there is only work."""
    now = start
    for until in (*due, start + period):
        while now < until and state.backlog > 0:
            if state.budget <= 0:
                state.throttled += (until - now) * cpus
                break
            ran = min((until - now) * cpus, state.backlog, state.budget)
            state.backlog = state.backlog - ran if state.backlog - ran > 1e-9 else 0.0
            state.budget = state.budget - ran if state.budget - ran > 1e-9 else 0.0
            now += ran / cpus
        now = until
        state.backlog += work if until < start + period else 0.0
