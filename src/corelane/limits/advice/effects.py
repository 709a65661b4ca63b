"""What a changed limit does to a container, by the fitted model: throttled and used time.

A `Fit` says what the container looks like to the model; `forecast` simulates that under a change. For the p99
see `tails`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from corelane.limits.model.bandwidth import CFSLimit
from corelane.limits.model.clock import MS, US
from corelane.limits.model.scenario import (
    ContainerResult,
    Scenario,
    ScenarioContainer,
    ScenarioPod,
    SimulatedMachine,
    run,
)
from corelane.limits.model.workloads import Bursts, Duration, Open, ThreadPoolServer

SEEDS: Final = (1, 2, 3)
CLOSE: Final = 0.15
"""How far modelled and measured throttled time may be apart."""
_SURE: Final = 1 + CLOSE
"""By so much a forecast may be off as well."""
_TIMES: Final = {"bursts": 40, "requests": 300}
"""How many are simulated, so that phases and sizes average out; within the seconds below."""
_SECONDS: Final = {"bursts": (10.0, 300.0), "requests": (5.0, 100.0)}
_GOLDEN: Final = 0.382


@dataclass(frozen=True, slots=True)
class Range:
    """Lowest and highest possible amount; equal for a point."""

    low: float
    high: float


class LoadShape(StrEnum):
    """What the counters look like."""

    BUSY = "busy"
    """Threads that never stop."""
    BURSTS = "bursts"
    """Work that comes and goes, all threads at once; single bursts exceed the quota."""
    REQUESTS = "requests"
    """Requests at random, one thread each; at times there are more than the quota can serve."""
    UNFITTED = "unfitted"
    """None of these reproduces what was counted."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What the container looks like to the model. Times in ms; CPU time in ms a second.

    `cpus` is how many its threads keep busy at once (infinite where unknown), `work` the CPU time of
    one burst, all threads together, or of one request, `sigma` the spread of its logarithm. `modelled` is
    what the model shows where `throttled` was measured.
    """

    shape: LoadShape
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
    """CPUs that busy threads may use once no limit stops them: some shared a CPU, or waited for others."""
    sigma: float = 0.0
    rivals: tuple[Fit, ...] = ()
    """Other fits that explain the counters: a forecast is a range over all of them."""

    @property
    def now(self) -> LimitChange:
        """No change."""
        return LimitChange(self.quota / self.period, self.burst)

    @property
    def explanations(self) -> tuple[Fit, ...]:
        """Everything that the model confirms, the best first; none for what is busy or unfitted."""
        if self.shape in (LoadShape.BUSY, LoadShape.UNFITTED):
            return ()
        alone = replace(self, modelled=0.0, rivals=())
        return (alone, *(replace(rival, modelled=0.0) for rival in self.rivals))

    @property
    def widest(self) -> float:
        """CPUs that may be busy at once, by any explanation."""
        return max((self.wants, self.cpus, *(rival.cpus for rival in self.rivals)))


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A change. `limit` in CPUs, None for no limit; `threads` None for as many as now."""

    limit: float | None
    burst: float = 0.0
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The model's answer: throttled and used ms a second, and the latency in ms by percentile."""

    throttled: Range
    used: Range
    latency: dict[int, Range]


@lru_cache(maxsize=4096)
def simulated(fit: Fit, change: LimitChange, seed: int) -> ContainerResult:
    """Simulate the fitted work under a changed limit, long enough that phases and sizes average out."""
    width = max(1, min(int(fit.cpus), change.threads or int(fit.cpus)))
    every = fit.work / fit.used * 1000
    workload = _bursts(fit, width, every) if fit.shape is LoadShape.BURSTS else _requests(fit, width, every)
    limit = None if change.limit is None else _limit(change, fit.period)
    container = ScenarioContainer("subject", (workload,), 100, limit)
    least, most = _SECONDS[fit.shape]
    seconds = min(max(_TIMES[fit.shape] * every / 1000, least), most)
    scenario = Scenario(
        "fit", "", SimulatedMachine(width), (ScenarioPod("pod", (container,)),), seconds=seconds
    )
    return run(scenario, seed).of("pod/subject")


def _bursts(fit: Fit, width: int, every: float) -> Bursts:
    run_for = Duration(int(fit.work * MS / width))
    return Bursts(run_for, every_ns=int(sweeping(every, fit.period) * MS), threads=width)


def _requests(fit: Fit, width: int, every: float) -> ThreadPoolServer:
    return ThreadPoolServer(Duration(int(fit.work * MS), fit.sigma), Open(1000 / every), threads=width)


def _limit(change: LimitChange, period: float) -> CFSLimit:
    quota = max(int((change.limit or 0.0) * period * 1000), 1000) * US
    return CFSLimit(quota, int(period * MS), min(int(change.burst * MS), quota))


def sweeping(every: float, period: float) -> float:
    """Return an interval near `every` at which bursts meet periods at ever new phases, as real ones do."""
    if every < 5 * period:
        return every
    return (math.floor(every / period) + _GOLDEN) * period


# Throttled and used time.


def forecast(fit: Fit, change: LimitChange) -> Forecast:
    """Forecast a change by every explanation that holds."""
    if fit.shape is LoadShape.BUSY:
        return _of_busy(fit, change)
    if fit.shape is LoadShape.UNFITTED:
        return _of_anything(fit, change)
    # Where there are several, their spread is wider than that of chance.
    seeds = SEEDS[:1] if fit.rivals else SEEDS
    return _together([_of_model(each, change, seeds) for each in fit.explanations])


def _together(forecasts: Sequence[Forecast]) -> Forecast:
    return Forecast(
        around([each.throttled for each in forecasts]),
        around([each.used for each in forecasts]),
        {percent: around([each.latency[percent] for each in forecasts]) for percent in forecasts[0].latency},
    )


def around(ranges: Sequence[Range]) -> Range:
    """Return the range that has all of these."""
    return Range(min(each.low for each in ranges), max(each.high for each in ranges))


def _of_busy(fit: Fit, change: LimitChange) -> Forecast:
    """Threads that never stop use up the quota in every period: a burst never saves anything for them."""
    most = min(max(fit.cpus, fit.wants), change.threads or math.inf)
    least = min(fit.cpus, most)
    limit = most if change.limit is None else min(change.limit, most)
    low, high = (
        0.0 if change.limit is None else max(0.0, width - change.limit) * 1000 for width in (least, most)
    )
    return Forecast(Range(low, high), Range(min(fit.used, limit * 1000), limit * 1000), {})


def _of_model(fit: Fit, change: LimitChange, seeds: tuple[int, ...]) -> Forecast:
    """The measured time, scaled as the model's changes: the model's own error cancels out."""
    pairs = [(simulated(fit, fit.now, seed), simulated(fit, change, seed)) for seed in seeds]
    parts = [per_second(then) / per_second(now) for now, then in pairs if now.stat.throttled_ns] or [1.0]
    most = fit.throttled if _is_looser(fit, change) else math.inf
    used = [then.cpus_used * 1000 for _, then in pairs]
    return Forecast(
        Range(*(min(fit.throttled * part, most) for part in (min(parts) / _SURE, max(parts) * _SURE))),
        Range(min(used), max(used)),
        {percent: _latency([then for _, then in pairs], percent) for percent in (50, 99)},
    )


def _is_looser(fit: Fit, change: LimitChange) -> bool:
    """Whether the change can only reduce throttling."""
    return (change.limit is None or change.limit >= fit.quota / fit.period) and change.burst >= fit.burst


def _latency(results: Sequence[ContainerResult], percent: int) -> Range:
    latencies = [result.latency.get(percent, 0) / MS for result in results]
    return Range(min(latencies), max(latencies))


def per_second(result: ContainerResult) -> float:
    return result.stat.throttled_ns / MS / result.seconds


def _of_anything(fit: Fit, change: LimitChange) -> Forecast:
    """Without a fit: no throttling without a limit or with one of all CPUs; else at most as much as now."""
    used = Range(fit.used, fit.used + fit.throttled)
    if change.limit is None or change.limit >= min(fit.cpus, change.threads or fit.cpus):
        return Forecast(Range(0.0, 0.0), used, {})
    return Forecast(Range(0.0, fit.throttled), used, {})
