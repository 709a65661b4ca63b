"""The model fitted to a container's counters: threads that never stop, bursts, or requests at random.

Busy throughout, a quota Q for n busy CPUs leaves throttled = n - Q: what is used and throttled together is n.
With pauses, bursts of n threads, or requests for n threads, are sought that use as much, are throttled as
long under that quota and show as many periods, throttled and not. Totals seldom tell one from the other, so
all that the model confirms count, and predictions are ranges over them; if there are none, nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from corelane.limits.advice import fluid
from corelane.limits.advice.facts import Range
from corelane.limits.advice.shapes import Change, Fit, Outcome, Shape, simulated, sweeping
from corelane.limits.measure import Rates
from corelane.limits.model.clock import MS
from corelane.limits.model.scenario import ContainerResult

__all__ = ["Change", "Fit", "Outcome", "Shape", "fit", "outcome"]

_FULL: Final = 0.95
"""Used so much of its quota, in periods of which so many are throttled, it never stops."""
_STEPS: Final = 48
_TRIED: Final = 4
_KEPT: Final = 5
_FEWEST: Final = 3
"""Bursts, and requests, that there must have been while it was measured."""
_DENSEST: Final = 8
"""More bursts in a period than this are steady load."""
_CROWDED: Final = 32
"""As are more requests."""
_SPREADS: Final = (0.3, 1.0)
"""Of the logarithm of requests' work: nearly alike, and with a tail as services have it."""
_HALVINGS: Final = 5
_NEAR: Final = 0.1
_SEEDS: Final = (1, 2, 3)
_CLOSE: Final = 0.15
_SURE: Final = 1 + _CLOSE
"""By so much a prediction may be off as well."""
_CREDIBLE: Final = 0.35
_HOPEFUL: Final = 2 * _CREDIBLE
"""Bursts that are farther off than this by the fluid rule are none that the model would confirm."""
_WIDEST: Final = 64
_DISTURBED: Final = 0.2
"""Of all the time that it wanted; who waited more for others shows them and not its limit."""


def fit(rates: Rates, threads: int | None = None, cpus: int = 0, others: float = 0.0) -> Fit:
    """Fit the model to rates with a quota. `threads` run at once by its settings, on `cpus` (0: unknown).

    `others` is how long it waited for neighbours or the hypervisor, in ms a second.
    """
    used, throttled = rates.used or 0.0, rates.throttled or 0.0
    quota, period = (rates.quota.quota_us or 0) / 1000, rates.quota.period_us / 1000
    plain = Fit(
        Shape.BUSY, (used + throttled) / 1000, used, throttled, quota, period, rates.quota.burst_us / 1000
    )
    if _is_busy(rates, plain):
        modelled = max(0.0, plain.cpus * 1000 - quota / period * 1000)
        return replace(plain, modelled=modelled, wants=_wanted(plain, rates, threads, cpus))
    if others > _DISTURBED * (used + throttled + others):
        return _unfitted(
            plain, threads, cpus, "others held it back, too, so its limit alone explains nothing"
        )
    tried = [*_bursts(plain, rates, threads, cpus), *_requests(plain, rates, threads, cpus)]
    good = sorted((pair for pair in tried if _holds(*pair)), key=lambda pair: pair[0])
    if good:
        best, *rivals = (one for _, one in good[:_KEPT])
        return replace(best, rivals=tuple(rivals))
    return _unfitted(plain, threads, cpus, _UNLIKE)


_UNLIKE: Final = (
    "neither steady load, nor equal bursts, nor requests at random are throttled as often and as long"
)


def _unfitted(plain: Fit, threads: int | None, cpus: int, why: str) -> Fit:
    most = min(filter(None, (cpus, threads)), default=math.inf)
    return replace(plain, shape=Shape.UNFITTED, cpus=most, why=why)


def _is_busy(rates: Rates, one: Fit) -> bool:
    if not rates.periods or one.used < _FULL * one.quota / one.period * 1000:
        return False
    return (rates.throttled_periods or 0) >= 0.9 * rates.periods


def _wanted(one: Fit, rates: Rates, threads: int | None, cpus: int) -> float:
    """Throttled time is counted once for each CPU: threads that waited on one tell that there were more.

    Since Linux 6.18 the threads of a throttled group tend to be stacked so (task-based throttling).
    """
    known = [one.cpus, float(threads or 0), (one.used + (rates.queued or 0.0)) / 1000]
    return max(one.cpus, min(cpus, max(known)))


def _holds(distance: float, one: Fit) -> bool:
    return distance <= _CREDIBLE and abs(one.modelled - one.throttled) <= _CLOSE * one.throttled


Tried = tuple[float, Fit]
"""How far off the model is, and with what."""


def _bursts(plain: Fit, rates: Rates, threads: int | None, cpus: int) -> Iterator[Tried]:
    """The bursts that explain the counters best."""
    for one in _candidates(plain, rates, threads, cpus):
        if _compared(one, rates, (1,))[0] <= _HOPEFUL:
            yield _compared(one, rates, _SEEDS)


def _widths(threads: int | None, cpus: int, step: int = 1) -> Iterator[int]:
    """How many CPUs may be kept busy at once: what settings say, else powers of two (of four, …)."""
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
    found = []
    most = min(plain.used * rates.seconds / _FEWEST, 64 * plain.quota)
    for width in _widths(threads, cpus):
        if not _is_wide_enough(plain, width):
            continue
        for step in range(_STEPS):
            work = plain.quota / 4 * (max(most / plain.quota * 4, 1.0)) ** (step / (_STEPS - 1))
            one = replace(plain, shape=Shape.BURSTS, cpus=float(width), work=work)
            if work / plain.used * 1000 >= plain.period / _DENSEST:
                found.append((_fluid_distance(one, rates), step, one))
    found.sort(key=lambda each: each[0])
    return [one for distance, _, one in found[:_TRIED] if distance <= _HOPEFUL]


def _is_wide_enough(plain: Fit, width: int) -> bool:
    """Whether endless work of that width, at least, would be throttled so long."""
    return plain.throttled <= 1.1 * plain.used * (width * plain.period / plain.quota - 1)


def _fluid_distance(one: Fit, rates: Rates) -> float:
    every = sweeping(one.work / one.used * 1000, one.period)
    seen = fluid.count(one.work, one.cpus, every, one.quota, one.period, one.burst)
    return _distance(rates, seen.throttled, seen.periods, seen.throttled_periods)


def _requests(plain: Fit, rates: Rates, threads: int | None, cpus: int) -> Iterator[Tried]:
    """Requests at random, of every width and spread, whose size explains the throttled time."""
    smallest = max(plain.quota / _WIDEST, plain.used * plain.period / 1000 / _CROWDED)
    largest = min(plain.used * rates.seconds / _FEWEST, 16 * plain.quota)
    if plain.used <= 0 or smallest >= largest:
        return
    for width, sigma in product(_widths(threads, cpus, 2), _SPREADS):
        if _is_wide_enough(plain, width):
            one = replace(plain, shape=Shape.REQUESTS, cpus=float(width), sigma=sigma)
            yield _sized(one, rates, smallest, largest)


def _sized(one: Fit, rates: Rates, low: float, high: float) -> Tried:
    """The larger requests are, the more often they pass the quota: halved until they do as often."""
    best: Tried = (math.inf, one)
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        tried = _compared(replace(one, work=middle), rates, (1,))
        best = min(best, tried, key=lambda pair: pair[0])
        if abs(tried[1].modelled - one.throttled) < _NEAR * one.throttled:
            break
        if tried[1].modelled > one.throttled:
            high = middle
        else:
            low = middle
    return best


def _compared(one: Fit, rates: Rates, seeds: tuple[int, ...]) -> Tried:
    """How far off the model is with this, and what it shows of throttled time."""
    results = [simulated(one, one.now, seed) for seed in seeds]
    seconds = sum(result.seconds for result in results)
    throttled = sum(result.stat.throttled_ns for result in results) / MS / seconds
    periods = sum(result.stat.nr_periods for result in results) / seconds
    stopped = sum(result.stat.nr_throttled for result in results) / seconds
    return _distance(rates, throttled, periods, stopped), replace(one, modelled=throttled)


def _distance(rates: Rates, throttled: float, periods: float, stopped: float) -> float:
    """The worst of three: throttled time, of which more is asked, and both counts of periods."""
    return max(
        _off(rates.throttled or 0.0, throttled) * _CREDIBLE / _CLOSE,
        _off((rates.periods or 0.0) / rates.seconds, periods),
        _off((rates.throttled_periods or 0.0) / rates.seconds, stopped),
    )


def _off(measured: float, expected: float) -> float:
    """How far two amounts are apart, as a part of the larger."""
    return abs(measured - expected) / max(measured, expected, 1e-9)


def outcome(one: Fit, change: Change) -> Outcome:
    """What the model says of a change, by every explanation that holds."""
    if one.shape is Shape.BUSY:
        return _of_busy(one, change)
    if one.shape is Shape.UNFITTED:
        return _of_anything(one, change)
    # Where there are several, their spread is wider than that of chance.
    seeds = _SEEDS[:1] if one.rivals else _SEEDS
    return _together([_of_model(each, change, seeds) for each in one.explanations])


def _together(found: Sequence[Outcome]) -> Outcome:
    return Outcome(
        _around([each.throttled for each in found]),
        _around([each.used for each in found]),
        {percent: _around([each.latency[percent] for each in found]) for percent in found[0].latency},
    )


def _around(found: Sequence[Range]) -> Range:
    return Range(min(one.low for one in found), max(one.high for one in found))


def _of_busy(one: Fit, change: Change) -> Outcome:
    """Threads that never stop use a limit up, in every period: burst never saves anything for them."""
    most = min(max(one.cpus, one.wants), change.threads or math.inf)
    least = min(one.cpus, most)
    limit = most if change.limit is None else min(change.limit, most)
    low, high = (
        0.0 if change.limit is None else max(0.0, width - change.limit) * 1000 for width in (least, most)
    )
    return Outcome(Range(low, high), Range(min(one.used, limit * 1000), limit * 1000), {})


def _of_model(one: Fit, change: Change, seeds: tuple[int, ...]) -> Outcome:
    """What was measured, changed as the model's is: what that has too much or too little cancels out."""
    pairs = [(simulated(one, one.now, seed), simulated(one, change, seed)) for seed in seeds]
    parts = [_per_second(then) / _per_second(now) for now, then in pairs if now.stat.throttled_ns] or [1.0]
    most = one.throttled if _is_looser(one, change) else math.inf
    used = [then.cpus_used * 1000 for _, then in pairs]
    return Outcome(
        Range(*(min(one.throttled * part, most) for part in (min(parts) / _SURE, max(parts) * _SURE))),
        Range(min(used), max(used)),
        {percent: _latency([then for _, then in pairs], percent) for percent in (50, 99)},
    )


def _is_looser(one: Fit, change: Change) -> bool:
    """Whether it can only take throttling away."""
    return (change.limit is None or change.limit >= one.quota / one.period) and change.burst >= one.burst


def _latency(results: Sequence[ContainerResult], percent: int) -> Range:
    found = [result.latency.get(percent, 0) / MS for result in results]
    return Range(min(found), max(found))


def _per_second(result: ContainerResult) -> float:
    return result.stat.throttled_ns / MS / result.seconds


def _of_anything(one: Fit, change: Change) -> Outcome:
    """Without a fit: no limit throttles nobody, nor does one of all CPUs; else at most as much as now."""
    used = Range(one.used, one.used + one.throttled)
    if change.limit is None or change.limit >= min(one.cpus, change.threads or one.cpus):
        return Outcome(Range(0.0, 0.0), used, {})
    return Outcome(Range(0.0, one.throttled), used, {})
