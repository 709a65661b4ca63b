"""Which shapes of load explain what was measured: drawn at random, simulated, the likeliest varied further.

Population Monte Carlo: many draws are simulated once, the nearest several times; those that are likely are
varied and simulated in turn. All draws come from a fixed seed, so the same measurement has the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Final

from corelane.limits.advice.effects import LimitChange, LoadShape, Seen, Shape, simulated
from corelane.limits.measure import RequestLog

# How likely a shape of load is to show what was measured: a synthetic likelihood.
#
# A shape is simulated several times; each measured statistic is compared with mean and deviation of the
# simulated ones, plus what the model itself may be off (S. N. Wood, Nature 466, 2010).


_OFF: Final = {
    "used": (0.05, 0.15),
    "throttled": (0.15, 0.5),
    "throttled periods": (0.06, 0.15),
    "periods": (0.06, 0.15),
    "requests": (0.05, 0.15),
    "queued": (0.2, 0.5),
}
"""By how much the model may be off, in the units of `statistics`; and the scale of a rough distance."""
_LATENCY_OFF: Final = (0.15, 0.35)
_ROUGH_PERIODS: Final = 25
_SMALL_MS: Final = 5.0
"""Throttled ms a second that do not matter beside more."""
_FAST_MS: Final = 0.3
"""A latency below is what any request takes to be handed over."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A measurement under the limit of `now`, in `seconds`; None where unknown. Units as `Seen`."""

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
        _, scale = _OFF.get(name, _LATENCY_OFF)
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
        off, _ = _OFF.get(name, _LATENCY_OFF)
        variance = spread * (1 + 1 / len(values)) + off**2
        # Beyond a few deviations one statistic counts no more: no shape is right in all.
        square = min((value - mean) ** 2 / variance, 25.0)
        worst = max(worst, square)
        total -= 0.5 * (square + math.log(variance))
    throttled = sum(each.throttled for each in seen) / len(seen)
    return Match(total, math.sqrt(worst), throttled)


_KINDS: Final = (LoadShape.REQUESTS, LoadShape.CLIENTS, LoadShape.SHARED, LoadShape.SHARED_CLIENTS)
_MOST_THREADS: Final = 64
_MOST_AT_ONCE: Final = 100
_PACKED: Final = 0.4
_WEIGHT_DOUBT: Final = 1.2
_MOST_CPUS: Final = {False: 16, True: 4}
"""CPUs that are simulated, without and with neighbours on each."""
_SEEDS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Hints:
    """Facts beside the counters: `cpus` 0 and `threads` None where unknown.

    `waiters` is how many threads waited for a CPU, `contended` whether other processes used CPU time there;
    `weight` that of these together, where its own is 1, if they left no CPU idle and it is known.
    """

    cpus: int = 0
    threads: int | None = None
    waiters: int = 0
    contended: bool = False
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class Effort:
    """Number of shapes drawn, of those simulated several times, and of those varied in each later round."""

    drawn: int = 120
    close: int = 30
    varied: int = 40
    rounds: int = 1


FULL: Final = Effort()
QUICK: Final = Effort(120, 24, 20, 1)
"""For totals without a latency, of which a cluster may have hundreds."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A shape, and how well it matches what was measured."""

    shape: Shape
    match: Match

    @property
    def score(self) -> float:
        return self.match.score


def candidates(observed: Observed, hints: Hints, effort: Effort = FULL) -> list[Candidate]:
    """Return the shapes that were looked at closely, the likeliest first."""
    chance = Random("shapes")  # noqa: S311 - has to be reproducible
    prior = Prior(observed, hints, chance)
    drawn = [
        (rough_distance(shape, observed), number, shape) for number, shape in enumerate(prior.draws(effort))
    ]
    drawn.sort(key=lambda each: each[:2])
    scored = [_scored(shape, observed) for _, _, shape in drawn[: effort.close]]
    for _ in range(effort.rounds):
        scored.sort(key=lambda each: -each.score)
        parents = chance.choices(scored, _weights(scored, _TEMPERATURE), k=effort.varied)
        scored += [_scored(prior.varied(parent.shape), observed) for parent in parents]
    return sorted(scored, key=lambda each: -each.score)


def _scored(shape: Shape, observed: Observed) -> Candidate:
    return Candidate(shape, match(shape, observed, _SEEDS))


_TEMPERATURE: Final = 4.0
"""Flattens the likelihood where parents are chosen, so that more than one kind of load goes on."""


def _weights(ranked: Sequence[Candidate], temperature: float) -> list[float]:
    """Relative likelihoods of sorted candidates; equal where none shows a latency, as of rare requests."""
    best = ranked[0].score
    if math.isinf(best):
        return [1.0] * len(ranked)
    return [math.exp(max((each.score - best) / temperature, -700)) for each in ranked]


_CORRELATED: Final = 3.0


def sample(ranked: Sequence[Candidate], count: int) -> tuple[Shape, ...]:
    """Return shapes of sorted candidates as often as they are likely; the likeliest comes first.

    Percentiles of the same latencies, and times that the same stops cause, are not independent evidence: a
    third of the likelihood's logarithm counts (a composite likelihood, tempered).
    """
    chance = Random("sample")  # noqa: S311 - has to be reproducible
    chosen = chance.choices(ranked, _weights(ranked, _CORRELATED), k=count - 1)
    return (ranked[0].shape, *(each.shape for each in chosen))


class Prior:
    """Draws shapes that use as much CPU time, and answer as many requests, as was measured."""

    def __init__(self, observed: Observed, hints: Hints, chance: Random) -> None:
        self._observed, self._hints, self._chance = observed, hints, chance
        self._cpus = min(hints.cpus or min(hints.threads or 8, 8), _MOST_CPUS[hints.contended])
        log = observed.log
        self._mean = log.mean if log else _mean(observed.latency)
        self._clients = log.in_flight if log else 0
        self._kinds = kinds(log)

    def draws(self, effort: Effort) -> list[Shape]:
        """Return shapes of all kinds in turn, every second one with background work."""
        kinds = self._kinds
        return [
            self._draw(kinds[number % len(kinds)], background=number // len(kinds) % 2 == 1)
            for number in range(effort.drawn)
        ]

    def _log(self, low: float, high: float) -> float:
        return math.exp(self._chance.uniform(math.log(low), math.log(max(high, low))))

    def _draw(self, kind: LoadShape, *, background: bool) -> Shape:
        chance, used = self._chance, self._observed.used
        part = chance.uniform(0.1, 0.75) if background else 0.0
        rate = self._observed.requests or 0.0
        if not rate:  # not counted: by sizes from small to several quotas
            quota = (self._observed.now.limit or 1.0) * self._observed.period
            rest = used * (1 - part)
            smallest = max(quota / 64, rest * self._observed.period / 1000 / 32)
            largest = max(min(16 * quota, rest * self._observed.seconds / 3), smallest)
            rate = max(rest, 0.01) / self._log(smallest, largest)
        rate *= self._log(0.95, 1.05)
        work = used * (1 - part) / rate * self._log(0.95, 1.05)
        shape = Shape(kind, self._cpus, self._threads(kind), work, chance.uniform(0.05, 1.1), rate)
        if kind.closed:
            clients = self._clients or round(self._log(1, 32))
            shape = replace(shape, per_second=0.0, clients=clients, think=self._think(clients, rate))
        elif log := self._observed.log:
            shape = replace(shape, moments=log.moments, every=log.seconds * 1000)
        else:
            batch = 1 if chance.random() < 0.5 else round(self._log(2, min(max(rate, 2.0), _MOST_AT_ONCE)))
            variation = 1.0 if chance.random() < 0.6 else chance.uniform(0.05, 1.0)
            shape = replace(shape, batch=batch, variation=variation)
        if part:
            every = self._log(80, 2000)
            shape = replace(shape, background=used * part * every / 1000, background_every=every)
        return replace(shape, weight=self._weight(), packed=self._cpus > 1 and chance.random() < _PACKED)

    def _weight(self) -> float:
        """Neighbours' weight: counted, or of any size, or none although others use CPU time."""
        if self._hints.weight is not None:
            return self._hints.weight * self._log(1 / _WEIGHT_DOUBT, _WEIGHT_DOUBT)
        if self._hints.contended and self._chance.random() < 0.5:
            return self._log(0.05, 5)
        return 0.0

    def _threads(self, kind: LoadShape) -> int:
        chance, hints = self._chance, self._hints
        if hints.threads:
            return min(hints.threads, _MOST_THREADS)
        most = min(max(hints.waiters or 2 * self._cpus, 1), _MOST_THREADS)
        if kind.shared:
            return chance.choice((min(self._cpus, max(most, 2)), max(2, round(self._log(2, max(most, 2))))))
        return chance.choice((1, min(self._cpus, most), most, max(round(self._log(1, most)), 1)))

    def _think(self, clients: int, rate: float) -> float:
        """By Little's law: clients are waiting for an answer, or thinking."""
        mean = self._mean if self._mean is not None else self._log(1, 1000)
        doubt = 1.05 if self._observed.log else 1.2
        return max(1000 * clients / rate - mean * self._log(1 / doubt, doubt), 0.0)

    def varied(self, shape: Shape) -> Shape:
        """Return a shape near another one."""
        chance = self._chance

        def near(value: float, by: float) -> float:
            return value * math.exp(chance.gauss(0, by))

        shape = replace(
            shape,
            work=near(shape.work, 0.05),
            sigma=min(max(shape.sigma + chance.gauss(0, 0.12), 0.0), 1.5),
            per_second=near(shape.per_second, 0.05),
            think=near(shape.think, 0.12),
            background=near(shape.background, 0.12),
            background_every=near(shape.background_every, 0.2),
            weight=near(shape.weight, 0.4 if self._hints.weight is None else 0.05),
        )
        if chance.random() < 0.3 and not self._hints.threads:
            shape = replace(shape, threads=self._threads(shape.kind))
        if shape.kind.closed and not self._clients and chance.random() < 0.4:
            clients = max(round(near(shape.clients, 0.4)), 1)
            rate = 1000 * shape.clients / (shape.think + (self._mean or shape.work))
            shape = replace(shape, clients=clients, think=self._think(clients, rate))
        if not shape.kind.closed and not shape.moments and chance.random() < 0.5:
            batch = min(max(round(near(shape.batch, 0.25)), 1), _MOST_AT_ONCE)
            variation = min(max(near(shape.variation, 0.3), 0.05), 1.0)
            shape = replace(shape, batch=batch, variation=variation)
        return shape


_LEAST_OPEN: Final = 0.75
_DOUBT: Final = 0.1


def kinds(log: RequestLog | None) -> tuple[LoadShape, ...]:
    """Leave out open or closed loads where recorded requests rule them out.

    One of n clients meets at most the n - 1 others; a request at random meets the average of all times.
    """
    if log is None:
        return _KINDS
    crowding, clients = log.crowding, log.in_flight
    if crowding < _LEAST_OPEN:
        return tuple(kind for kind in _KINDS if kind.closed)
    if crowding > (clients - 1) / clients + _DOUBT:
        return tuple(kind for kind in _KINDS if not kind.closed)
    return _KINDS


def _mean(latency: Mapping[int, float]) -> float | None:
    """The mean of a distribution known at a few percentiles, between which it is taken as linear."""
    percentiles = sorted(latency.items())
    if not percentiles:
        return None
    points = [(0.0, 0.7 * percentiles[0][1]), *((float(percent), value) for percent, value in percentiles)]
    points.append((100.0, points[-1][1] * 1.2))
    areas = ((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(points))
    return sum(areas) / 100
