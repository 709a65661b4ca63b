"""The model fitted to a container's counters: threads that never stop, or bursts of work that come and go.

Busy throughout, a quota Q for n busy CPUs leaves throttled = n - Q: what is used and throttled together is n.
With pauses, bursts of n threads are sought that use as much, are throttled as long under that quota and show
as many periods, throttled and not; if the model with the best of them does not come close, nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from corelane.limits.advice import fluid
from corelane.limits.advice.facts import Range
from corelane.limits.measure import Rates
from corelane.limits.model.clock import MS, US
from corelane.limits.model.limit import Limit
from corelane.limits.model.scenario import Container, Machine, Pod, Result, Scenario, run
from corelane.limits.model.workloads import Bursts, Duration

__all__ = ["Change", "Fit", "Outcome", "Shape", "fit", "outcome"]

_FULL: Final = 0.95
"""Used so much of its quota, in periods of which so many are throttled, it never stops."""
_STEPS: Final = 48
_TRIED: Final = 4
_MIN_BURSTS: Final = 3
_DENSEST: Final = 8
"""More bursts in a period than this are steady load."""
_SEEDS: Final = (1, 2, 3)
_BURSTS: Final = 40
_SECONDS: Final = (10.0, 300.0)
_CLOSE: Final = 0.15
_CREDIBLE: Final = 0.35
_HOPEFUL: Final = 2 * _CREDIBLE
"""Bursts that are farther off than this by the fluid rule are none that the model would confirm."""
_WIDEST: Final = 64
_GOLDEN: Final = 0.382


class Shape(StrEnum):
    """What the counters look like."""

    BUSY = "busy"
    """Threads that never stop."""
    BURSTS = "bursts"
    """Work that comes and goes, of which single bursts pass the quota."""
    UNFITTED = "unfitted"
    """Neither reproduces what was counted."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What the model takes the container for. Times in ms; CPU time in ms a second.

    `cpus` is how many its threads keep busy at once (infinite where nothing says), `work` the CPU time of
    one burst, all threads together. `modelled` is what the model shows where `throttled` was measured.
    """

    shape: Shape
    cpus: float
    used: float
    throttled: float
    quota: float
    period: float
    burst: float = 0.0
    work: float = 0.0
    modelled: float = 0.0
    why: str = ""
    wants: float = 0.0
    """CPUs that busy threads may use once nothing stops them: some shared a CPU, or waited for others."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be different. `limit` in CPUs, None for none at all; `threads` None for as many as now."""

    limit: float | None
    burst: float = 0.0
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model says: throttled and used ms a second, and a burst's latency in ms by percentile."""

    throttled: Range
    used: Range
    latency: dict[int, Range]


def fit(rates: Rates, threads: int | None = None, cpus: int = 0) -> Fit:
    """Fit the model to rates with a quota. `threads` run at once by its settings, on `cpus` (0: unknown)."""
    used, throttled = rates.used or 0.0, rates.throttled or 0.0
    quota, period = (rates.quota.quota_us or 0) / 1000, rates.quota.period_us / 1000
    plain = Fit(
        Shape.BUSY, (used + throttled) / 1000, used, throttled, quota, period, rates.quota.burst_us / 1000
    )
    if _is_busy(rates, plain):
        modelled = max(0.0, plain.cpus * 1000 - quota / period * 1000)
        return replace(plain, modelled=modelled, wants=_wanted(plain, rates, threads, cpus))
    tried = [_compared(one, rates, (1,)) for one in _candidates(plain, rates, threads, cpus)]
    _, best = min(tried, key=lambda pair: pair[0], default=(math.inf, plain))
    distance, best = _compared(best, rates, _SEEDS) if tried else (math.inf, plain)
    if distance <= _CREDIBLE and abs(best.modelled - throttled) <= _CLOSE * throttled:
        return best
    most = min(filter(None, (cpus, threads)), default=math.inf)
    why = "neither steady load nor bursts of equal size are throttled as often and as long as this was"
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


def _widths(threads: int | None, cpus: int) -> Iterator[int]:
    """How many CPUs bursts may keep busy at once: what settings say, else powers of two."""
    most = min(cpus or _WIDEST, _WIDEST)
    if threads:
        yield min(threads, most)
        return
    yield from (1 << step for step in range(most.bit_length()))
    if most & (most - 1):
        yield most


def _candidates(plain: Fit, rates: Rates, threads: int | None, cpus: int) -> list[Fit]:
    """The bursts that explain the counters best by the fluid rule, of every width and many sizes."""
    if plain.used <= 0:
        return []
    found = []
    most = min(plain.used / 1000 * rates.seconds * 1000 / _MIN_BURSTS, 64 * plain.quota)
    for width in _widths(threads, cpus):
        if plain.throttled > 1.1 * plain.used * (width * plain.period / plain.quota - 1):
            continue  # not even endless bursts of that width are throttled so long
        for step in range(_STEPS):
            work = plain.quota / 4 * (max(most / plain.quota * 4, 1.0)) ** (step / (_STEPS - 1))
            one = replace(plain, shape=Shape.BURSTS, cpus=float(width), work=work)
            if work / plain.used * 1000 >= plain.period / _DENSEST:
                found.append((_fluid_distance(one, rates), step, one))
    found.sort(key=lambda each: each[0])
    return [one for distance, _, one in found[:_TRIED] if distance <= _HOPEFUL]


def _fluid_distance(one: Fit, rates: Rates) -> float:
    every = _sweeping(one.work / one.used * 1000, one.period)
    seen = fluid.count(one.work, one.cpus, every, one.quota, one.period, one.burst)
    return _distance(rates, seen.throttled, seen.periods, seen.throttled_periods)


def _compared(one: Fit, rates: Rates, seeds: tuple[int, ...]) -> tuple[float, Fit]:
    """How far off the model is with these bursts, and what it shows of throttled time."""
    results = [_simulated(one, _now(one), seed) for seed in seeds]
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


def _now(one: Fit) -> Change:
    return Change(one.quota / one.period, one.burst)


def _per_second(result: Result) -> float:
    return result.stat.throttled_ns / MS / result.seconds


@lru_cache(maxsize=4096)
def _simulated(one: Fit, change: Change, seed: int) -> Result:
    """The fitted bursts under a changed limit, for long enough that phases and periods average out."""
    width = max(1, min(int(one.cpus), change.threads or int(one.cpus)))
    every = _sweeping(one.work / one.used * 1000, one.period)
    burst = Bursts(Duration(int(one.work * MS / width)), every_ns=int(every * MS), threads=width)
    limit = None if change.limit is None else _limit(change, one.period)
    container = Container("subject", (burst,), 100, limit)
    seconds = min(max(_BURSTS * every / 1000, _SECONDS[0]), _SECONDS[1])
    scenario = Scenario("fit", "", Machine(width), (Pod("pod", (container,)),), seconds=seconds)
    return run(scenario, seed).of("pod/subject")


def _limit(change: Change, period: float) -> Limit:
    quota = max(int((change.limit or 0.0) * period * 1000), 1000) * US
    return Limit(quota, int(period * MS), min(int(change.burst * MS), quota))


def _sweeping(every: float, period: float) -> float:
    """An interval next to `every` at which bursts meet periods at ever new phases, as they do in life."""
    if every < 5 * period:
        return every
    return (math.floor(every / period) + _GOLDEN) * period


def outcome(one: Fit, change: Change) -> Outcome:
    """What the model says of a change."""
    if one.shape is Shape.BURSTS:
        return _of_bursts(one, change)
    if one.shape is Shape.BUSY:
        return _of_busy(one, change)
    return _of_anything(one, change)


def _of_busy(one: Fit, change: Change) -> Outcome:
    """Threads that never stop use a limit up, in every period: burst never saves anything for them."""
    most = min(max(one.cpus, one.wants), change.threads or math.inf)
    least = min(one.cpus, most)
    limit = most if change.limit is None else min(change.limit, most)
    low, high = (
        0.0 if change.limit is None else max(0.0, width - change.limit) * 1000 for width in (least, most)
    )
    return Outcome(Range(low, high), Range(min(one.used, limit * 1000), limit * 1000), {})


def _of_bursts(one: Fit, change: Change) -> Outcome:
    results = [_simulated(one, change, seed) for seed in _SEEDS]
    throttled = [_per_second(result) for result in results]
    used = [result.cpus_used * 1000 for result in results]
    latency = {
        percent: Range(
            min(result.latency.get(percent, 0) for result in results) / MS,
            max(result.latency.get(percent, 0) for result in results) / MS,
        )
        for percent in (50, 99)
    }
    return Outcome(Range(min(throttled), max(throttled)), Range(min(used), max(used)), latency)


def _of_anything(one: Fit, change: Change) -> Outcome:
    """Without a fit: no limit throttles nobody, nor does one of all CPUs; else at most as much as now."""
    used = Range(one.used, one.used + one.throttled)
    if change.limit is None or change.limit >= min(one.cpus, change.threads or one.cpus):
        return Outcome(Range(0.0, 0.0), used, {})
    return Outcome(Range(0.0, one.throttled), used, {})
