"""Effects of a changed limit on a container: throttled and used time, and 99th percentile of its latency.

A `Fit` has the shapes of load that explain the measurement; `forecast` simulates each under the change. A
range covers the shapes, the chance in a time as long as the measured one, and what the model may be off.
Where the shapes are farther apart than `THROTTLED` or `TAIL` allow there is no range, but the reason and what
to collect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from corelane.limits.measure import Latency
from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, US
from corelane.limits.model.scenario import Scenario, ScenarioContainer, ScenarioPod, SimulatedMachine, run
from corelane.limits.model.workloads import (
    Arrivals,
    Bursts,
    Closed,
    Duration,
    Open,
    Parallel,
    Recorded,
    Spin,
    ThreadPoolServer,
    Workload,
)


class LoadShape(StrEnum):
    """Kinds of load. The values are part of the JSON output."""

    BUSY = "busy"
    """Threads that never stop."""
    REQUESTS = "requests"
    """Requests at random or in batches, one thread each."""
    CLIENTS = "clients"
    """Clients that each wait for an answer, and think, before the next request (closed loop)."""
    SHARED = "shared-work"
    """Requests, one at a time, each divided among all threads: parallel bursts."""
    SHARED_CLIENTS = "shared-work-clients"
    """The same for clients that wait for their answers."""
    UNFITTED = "unfitted"
    """None of these reproduces what was measured."""

    @property
    def closed(self) -> bool:
        return self in (LoadShape.CLIENTS, LoadShape.SHARED_CLIENTS)

    @property
    def shared(self) -> bool:
        return self in (LoadShape.SHARED, LoadShape.SHARED_CLIENTS)


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A change. `limit` in CPUs, None for no limit; `burst` in ms; `threads` None for as many as now.

    `weight` is that of the container beside its neighbours, where the present one is 1.
    """

    limit: float | None
    burst: float = 0.0
    threads: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A load on `cpus` CPUs. Times in ms.

    `work` is the CPU time of a request, all threads together, and `sigma` the spread of its logarithm. Open
    loads have `per_second`, `batch` and `variation`, or recorded `moments` (ns) of requests, which come again
    `every` ms; closed ones `clients` and `think`. Beside the requests
    `background` ms of CPU time may be used about every `background_every`, by as many threads as CPUs: a
    garbage collector. `weight` is that of busy neighbours on every CPU, where its own is 1; 0 for none.
    `packed` says that threads which find no idle CPU wake on one and the same, where their work comes from.
    """

    kind: LoadShape
    cpus: int
    threads: int
    work: float
    sigma: float = 0.0
    per_second: float = 0.0
    batch: int = 1
    variation: float = 1.0
    moments: tuple[int, ...] = ()
    every: float = 0.0
    clients: int = 0
    think: float = 0.0
    background: float = 0.0
    background_every: float = 0.0
    weight: float = 0.0
    packed: bool = False

    @property
    def widest(self) -> int:
        """CPUs that may be busy at once."""
        return self.cpus if self.background else min(self.cpus, self.threads)

    def workloads(self, threads: int | None) -> Iterator[Workload]:
        """Yield the model's workloads, with fewer threads where that is asked for."""
        count = min(threads or self.threads, self.threads)
        work = Duration(max(int(self.work * MS), _LEAST_WORK_NS), self.sigma)
        arrivals: Arrivals
        if self.moments:
            arrivals = Recorded(self.moments, int(self.every * MS))
        elif self.kind.closed:
            arrivals = Closed(self.clients, int(self.think * MS), 1.0)
        else:
            arrivals = Open(self.per_second, self.batch, self.variation)
        if self.kind.shared:
            yield Parallel(Duration(0), work, 1, arrivals, count, spin_ns=0, imbalance=0.0, overhead_ns=0)
        else:
            yield ThreadPoolServer(work, arrivals, count)
        if self.background:
            wide = min(threads or self.cpus, self.cpus)
            each = Duration(max(int(self.background * MS / wide), 1000))
            yield Bursts(each, every_ns=int(self.background_every * MS), threads=wide)


@dataclass(frozen=True, slots=True)
class Seen:
    """Counters of a container over a time: ms a second of CPU time, periods and requests a second.

    `queued` is what its threads wait on run queues, throttled or not; `latency` is in ms by percentile.
    """

    used: float
    throttled: float
    periods: float
    throttled_periods: float
    queued: float
    requests: float
    latency: dict[int, float]


PERCENTILES: Final = (10, 25, 50, 75, 90, 95, 99)
"""The percentiles of latency that simulations have."""
_LEAST_WORK_NS: Final = 20_000
_WARMUP: Final = 0.5
_REQUEST: Final = 1000
_MOST_REQUESTS: Final = 450
_LEAST_PERIODS: Final = 10


def simulated_seconds(shape: Shape, seconds: float, period: float) -> float:
    """Return how long to simulate: as long as was measured, but no longer than many requests take."""
    if shape.moments:
        return min(seconds, shape.every / 1000)
    rate = shape.per_second
    if shape.kind.closed:
        rate = 1000 * shape.clients / (shape.think + max(shape.work, _LEAST_WORK_NS / MS))
    return min(seconds, max(_MOST_REQUESTS / max(rate, 0.1), _LEAST_PERIODS * period / 1000))


@lru_cache(maxsize=8192)
def simulated(shape: Shape, change: LimitChange, period: float, seconds: float, seed: int) -> Seen:
    """Simulate a shape under a limit with this period in ms."""
    limit = None
    if change.limit is not None:
        quota = max(int(change.limit * period * 1000), 1000) * US
        limit = CFSLimit(quota, int(period * MS), min(int(change.burst * MS), quota))
    workloads = tuple(shape.workloads(change.threads))
    subject = ScenarioContainer("subject", workloads, _REQUEST, limit)
    pods = [ScenarioPod("own", (subject,))]
    if shape.weight:
        beside = ScenarioContainer(
            "beside", (Spin(shape.cpus),), max(int(_REQUEST * shape.weight / change.weight), 1)
        )
        pods.append(ScenarioPod("beside", (beside,)))
    scenario = Scenario(
        "fit",
        "",
        SimulatedMachine(shape.cpus, waker=0 if shape.packed else None),
        tuple(pods),
        seconds=simulated_seconds(shape, seconds, period),
        warmup_seconds=_WARMUP,
    )
    result = run(scenario, seed).of("own/subject")
    return Seen(
        result.cpus_used * 1000,
        result.stat.throttled_ns / MS / result.seconds,
        result.stat.nr_periods / result.seconds,
        result.stat.nr_throttled / result.seconds,
        max(1000 * (result.runnable - result.cpus_used), 0.0),
        result.per_second,
        {percent: value / MS for percent, value in result.latency.items()},
    )


NOTICED_MS: Final = 10.0
"""Throttled ms a second below which amounts are not told apart: of a hundredth of a CPU."""
_OUTSIDE: Final = 0.12
"""The part of the simulations beyond either end of a range."""
_BUSY: Final = 1.05
"""By so much the model may be off as well for threads that never stop, of which the counters say all."""
_PERCENTILE: Final = 99


@dataclass(frozen=True, slots=True)
class Doubt:
    """Largest factor between shapes, and the error of the model: alone, and beside neighbours.

    There, where threads wake and what they get is known less exactly.
    """

    apart: float
    alone: float
    beside: float

    def model(self, fit: Fit) -> float:
        return self.beside if any(shape.weight for shape in fit.sample) else self.alone

    @property
    def collect(self) -> str:
        """Say what to collect where the shapes are farther apart."""
        return (
            f"the loads that explain the measurement disagree by more than a factor of {self.apart:g}: "
            "measure longer, and give the time and the latency of each request (--latency FILE)"
        )


THROTTLED: Final = Doubt(2.5, 1.15, 1.25)
TAIL: Final = Doubt(3.0, 1.3, 1.4)
"""The p99 is one of the slowest requests: chance moves it more than a total."""


@dataclass(frozen=True, slots=True)
class Range:
    """Lowest and highest possible amount; equal for a point."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The container as the model has it. Times in ms; CPU time in ms a second.

    `cpus` is how many its threads keep busy at once (infinite where unknown), `quota` 0 without a limit.
    `modelled` is what the model shows where `throttled` was measured, in `seconds`. `sample` has the shapes
    that explain the measurement, as often as they are likely, the likeliest first; `requests` whether their
    latency was measured.
    """

    shape: LoadShape
    cpus: float
    used: float
    throttled: float
    quota: float
    period: float
    burst: float = 0.0
    modelled: float = 0.0
    why: str = ""
    wants: float = 0.0
    """CPUs that busy threads may use once no limit stops them: some shared a CPU, or waited for others."""
    sample: tuple[Shape, ...] = ()
    seconds: float = 0.0
    requests: bool = False
    p99: float | None = None
    """The measured one in ms."""
    held_back: bool = False
    """Whether other processes held back the busy threads, too, so that `used` and `throttled` are not all."""

    @property
    def now(self) -> LimitChange:
        """No change."""
        return LimitChange(self.quota / self.period if self.quota else None, self.burst)

    @property
    def likeliest(self) -> Shape | None:
        return self.sample[0] if self.sample else None

    @property
    def rivals(self) -> int:
        """Number of other shapes that explain the measurement."""
        return max(len(set(self.sample)) - 1, 0)

    @property
    def widest(self) -> float:
        """CPUs that may be busy at once, by any explanation."""
        widths = [float(shape.widest) for shape in self.sample] or [self.cpus]
        return max(self.wants, *widths)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The model's answer: throttled and used ms a second, and the p99 in ms; None where it has no answer."""

    throttled: Range | None
    used: Range
    p99: Range | None = None


def forecast(fit: Fit, change: LimitChange) -> Forecast:
    """Forecast a change by every explanation that holds."""
    if fit.shape is LoadShape.BUSY:
        # They use up the quota in every period: a burst never saves anything for them.
        most = min(max(fit.cpus, fit.wants), change.threads or math.inf)
        least = min(fit.cpus, most)
        if change.weight != 1.0:  # what their neighbours leave them was not fitted
            return Forecast(None if change.limit else Range(0.0, 0.0), Range(fit.used, most * 1000))
        limit = most if change.limit is None else min(change.limit, most)
        low, high = (
            0.0 if change.limit is None else max(0.0, width - change.limit) * 1000 for width in (least, most)
        )
        if fit.held_back:
            low = _beside_others(fit, change, most)
        off = THROTTLED.beside if fit.held_back else _BUSY
        throttled = Range(0.0, 0.0) if not high else _throttled(Range(low, high), off)
        return Forecast(throttled, Range(min(fit.used, limit * 1000), limit * 1000))
    if fit.shape is LoadShape.UNFITTED:
        # It is certain that no limit, or one of all CPUs, does not throttle.
        used = Range(fit.used, fit.used + fit.throttled)
        wide = change.limit is None or change.limit >= min(fit.cpus, change.threads or fit.cpus)
        return Forecast(Range(0.0, 0.0) if wide else None, used)
    runs = reruns(fit, change)
    unlimited = change.limit is None
    tails = _spread([run.latency.get(_PERCENTILE, 0.0) for run in runs])
    return Forecast(
        Range(0.0, 0.0)
        if unlimited
        else _throttled(_spread([run.throttled for run in runs]), THROTTLED.model(fit)),
        _spread([run.used for run in runs]),
        _agreed(_no_later(tails, fit, change), TAIL.model(fit), TAIL.apart) if fit.requests else None,
    )


def _no_later(tails: Range, fit: Fit, change: LimitChange) -> Range:
    """Alone on its CPUs a container answers no later with more CPU time than with less."""
    relaxed = change.threads is None and (change.limit is None or change.burst >= fit.burst)
    relaxed = relaxed and (change.limit is None or change.limit >= (fit.now.limit or 0.0))
    if fit.p99 is None or not relaxed or any(shape.weight for shape in fit.sample):
        return tails
    return Range(min(tails.low, fit.p99), min(tails.high, fit.p99))


def reruns(fit: Fit, change: LimitChange) -> list[Seen]:
    """Simulate every shape of the sample under a change, each with a seed of its own."""
    return [
        simulated(shape, change, fit.period, fit.seconds, _FIRST_SEED + number)
        for number, shape in enumerate(fit.sample)
    ]


_FIRST_SEED: Final = 1000
"""Not those of the fit, whose chance is the measured one's."""


def _spread(values: Sequence[float]) -> Range:
    ordered = sorted(values)
    last = len(ordered) - 1
    return Range(ordered[round(_OUTSIDE * last)], ordered[round((1 - _OUTSIDE) * last)])


def _throttled(spread: Range, off: float) -> Range | None:
    """Amounts too small to be noticed are not told apart from none."""
    low = spread.low if spread.low >= NOTICED_MS else 0.0
    amount_range = _agreed(Range(low, max(spread.high, NOTICED_MS / off)), off, THROTTLED.apart, NOTICED_MS)
    return amount_range and Range(amount_range.low, max(amount_range.high, NOTICED_MS))


def _agreed(spread: Range, off: float, apart: float, least: float = 0.01) -> Range | None:
    """The range with what the model may be off (`off` times); None where its ends are too far apart.

    Amounts under `least` count as that.
    """
    if max(spread.high, least) > apart * max(spread.low, least):
        return None
    return Range(spread.low / off, spread.high * off)


def _beside_others(fit: Fit, change: LimitChange, busy: float) -> float:
    """Throttled ms a second of threads that never stop, if others take as much of their CPUs as before.

    What they had of the time in which they were not throttled gives how long a quota lasts.
    """
    if change.limit is None or change.threads or fit.now.limit is None:
        return 0.0
    return max(0.0, busy * 1000 - change.limit / fit.now.limit * (busy * 1000 - fit.throttled))


COLLECT_LATENCY: Final = (
    "a p99 requires the measured latency (--latency): at best the time and latency of each request, else "
    "percentiles and requests a second"
)
_PERCENT: Final = 99.0


@dataclass(frozen=True, slots=True)
class Tail:
    """The p99 in ms, now and after."""

    now: float
    after: Range


def longest_stop(fit: Fit, change: LimitChange) -> Range:
    """Return the duration of a stop, in ms: at least for all CPUs together, at most for one of a few."""
    if change.limit is None:
        return Range(0.0, 0.0)
    most = min(fit.widest, change.threads or math.inf)
    if change.limit >= most:
        return Range(0.0, 0.0)
    longest = fit.period * (1 - (change.limit / most if math.isfinite(most) else 0.0))
    return Range(0.0, longest)


def tail(fit: Fit, forecast: Forecast, latency: Latency | None) -> tuple[Tail | None, str]:
    """Return the p99 now and after; None where the data cannot carry it, and what to collect."""
    now = latency.quantiles.get(_PERCENT) if latency else None
    if now is None:
        return None, COLLECT_LATENCY if latency is None else "the latency has no 99th percentile"
    if fit.shape in (LoadShape.BUSY, LoadShape.UNFITTED):
        collect = COLLECT_LATENCY if latency is None or latency.log is None else "measure longer"
        return None, f"no load of the model shows this throttling and this latency: {collect}"
    if forecast.p99 is None:
        return None, TAIL.collect
    return Tail(now, forecast.p99), ""
