"""How likely a shape of load is to show what was measured: a synthetic likelihood.

A shape is simulated several times; each measured statistic is compared with mean and deviation of the
simulated ones, plus what the model itself may be off (S. N. Wood, Nature 466, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corelane.limits.advice.shapes import LimitChange, Seen, Shape, simulated
from corelane.limits.measure.requests import RequestLog

_FLOOR: Final = {
    "used": 0.05,
    "throttled": 0.15,
    "throttled periods": 0.06,
    "periods": 0.06,
    "requests": 0.05,
    "queued": 0.2,
}
"""By how much the model may be off, in the units of `statistics`; latencies below."""
_LATENCY_FLOOR: Final = 0.15
_ROUGH: Final = {
    "used": 0.15,
    "throttled": 0.5,
    "throttled periods": 0.15,
    "periods": 0.15,
    "requests": 0.15,
    "queued": 0.5,
}
_LATENCY_ROUGH: Final = 0.35
_ROUGH_PERIODS: Final = 25
_SMALL_MS: Final = 5.0
"""Throttled ms a second that do not matter beside more."""
_FAST_MS: Final = 0.3
"""A latency below is what any request takes to be handed over."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What was measured under the limit of `now`, in `seconds`; None where unknown. Units as `Seen`."""

    seconds: float
    period: float
    now: LimitChange
    used: float
    throttled: float
    periods: float
    throttled_periods: float
    queued: float | None
    requests: float | None
    latency: Mapping[int, float]
    log: RequestLog | None = None

    @property
    def statistics(self) -> dict[str, float]:
        values = dict(_common(self, self.period))
        if self.requests:
            values["requests"] = math.log(self.requests)
        return values


def _common(seen: Seen | Observed, period: float) -> Iterator[tuple[str, float]]:
    """Yield logarithms of times, and parts of the periods as angles, whose noise does not depend on size."""
    yield "used", math.log(seen.used + 0.5)
    yield "throttled", math.log(seen.throttled + _SMALL_MS)
    yield "throttled periods", _angle(seen.throttled_periods * period / 1000)
    if seen.queued is not None:
        yield "queued", math.log(seen.queued + _SMALL_MS)
    yield "periods", _angle(seen.periods * period / 1000)
    for percent, value in seen.latency.items():
        yield f"p{percent}", math.log(value + _FAST_MS)


def _angle(part: float) -> float:
    return math.asin(math.sqrt(min(max(part, 0.0), 1.0)))


def statistics(seen: Seen, period: float) -> dict[str, float]:
    values = dict(_common(seen, period))
    values["requests"] = math.log(max(seen.requests, 0.01))
    return values


def rough_distance(shape: Shape, observed: Observed) -> float:
    """Return how far one simulation is from what was measured, as a sum of squares.

    Half of the time is enough, unless a queue grows all the time.
    """
    part = 1.0 if observed.log and observed.log.falls_behind else 0.5
    seconds = max(observed.seconds * part, _ROUGH_PERIODS * observed.period / 1000)
    run = simulated(shape, observed.now, observed.period, min(seconds, observed.seconds), 1)
    seen = statistics(run, observed.period)
    total = 0.0
    for name, value in observed.statistics.items():
        scale = _ROUGH.get(name, _LATENCY_ROUGH)
        total += min(((value - seen.get(name, 0.0)) / scale) ** 2, 100.0)
    return total


@dataclass(frozen=True, slots=True)
class Match:
    """The logarithm of the likelihood, up to a constant that all shapes share.

    `misfit` is how far the statistic is off that fits least, in deviations; `throttled` what the model shows,
    in ms a second.
    """

    score: float
    misfit: float
    throttled: float


def match(shape: Shape, observed: Observed, seeds: Sequence[int]) -> Match:
    """Compare several simulations of a shape with what was measured."""
    seen = [simulated(shape, observed.now, observed.period, observed.seconds, seed) for seed in seeds]
    runs = [statistics(each, observed.period) for each in seen]
    total = worst = 0.0
    for name, value in observed.statistics.items():
        values = [run[name] for run in runs if name in run]
        if not values:
            return Match(-math.inf, math.inf, 0.0)
        mean = sum(values) / len(values)
        spread = sum((each - mean) ** 2 for each in values) / max(len(values) - 1, 1)
        variance = spread * (1 + 1 / len(values)) + _FLOOR.get(name, _LATENCY_FLOOR) ** 2
        # Beyond a few deviations one statistic counts no more: no shape is right in all.
        square = min((value - mean) ** 2 / variance, 25.0)
        worst = max(worst, square)
        total -= 0.5 * (square + math.log(variance))
    throttled = sum(each.throttled for each in seen) / len(seen)
    return Match(total, math.sqrt(worst), throttled)
