"""What a changed limit does to a container, by the fitted model: throttled and used time, stops, and the p99.

A `Fit` says what the container looks like to the model; `forecast` simulates that under a change. The p99
comes only from data that can carry fit, else it has bounds: counters of every period show each run of
throttled periods, its work and its delay; replayed under another quota they give the delay of that work. A
measured latency carries a forecast where the fitted model shows it too; else it bounds one, as a higher limit
saves no more than the stops in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from corelane.limits.measure.throttling import Latency, Measurement, PeriodUse
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
_MIN_SLOTS: Final = 100
_SLACK: Final = 1.6
"""A reading so many periods after the last still counts as one in every period: timers are late at times."""
_TIMES: Final = {"bursts": 40, "requests": 300}
"""How many are simulated, so that phases and sizes average out; within the seconds below."""
_SECONDS: Final = {"bursts": (10.0, 300.0), "requests": (5.0, 100.0)}
_GOLDEN: Final = 0.382
COLLECT: Final = (
    "a p99 requires counters of every period (--every-period on the node, or limits watch --interval 0.1 "
    "-o json) or a measured latency (--latency)"
)
_TAIL_CLOSE: Final = 0.3
_PERCENT: Final = 99.0
_NOTHING: Final = 1e-9


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
        _around([each.throttled for each in forecasts]),
        _around([each.used for each in forecasts]),
        {percent: _around([each.latency[percent] for each in forecasts]) for percent in forecasts[0].latency},
    )


def _around(ranges: Sequence[Range]) -> Range:
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


# The 99th percentile.


@dataclass(frozen=True, slots=True)
class Tail:
    """The p99 in ms: of what, now and after, and its origin (`model`, `replay`, `bounds`)."""

    of: str
    now: float
    after: Range
    how: str


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive throttled periods: CPU time, throttled time, elapsed time, in ms; on how many CPUs."""

    work: float
    throttled: float
    elapsed: float
    cpus: float


def longest_stop(fit: Fit, change: LimitChange) -> Range:
    """How long a stop may last, in ms: at least for all CPUs together, at most for one of a few that ran."""
    if change.limit is None:
        return Range(0.0, 0.0)
    most = min(fit.widest, change.threads or math.inf)
    if change.limit >= most:
        return Range(0.0, 0.0)
    longest = fit.period * (1 - (change.limit / most if math.isfinite(most) else 0.0))
    return Range(0.0, longest)


def tail(fit: Fit, change: LimitChange, measured: Measurement) -> tuple[Tail | None, str]:
    """Forecast the p99 where the data can carry it; else None, and why not."""
    if measured.latency:
        return _from_latency(fit, change, measured.latency)
    why = _no_periods(measured.slots, fit.period)
    if why:
        return None, COLLECT if len(measured.slots) < 2 else f"{why}: {COLLECT}"
    return _replayed(fit, change, measured.slots)


def _from_latency(fit: Fit, change: LimitChange, latency: Latency) -> tuple[Tail | None, str]:
    now = latency.quantiles.get(_PERCENT)
    if now is None:
        return None, "the latency has no 99th percentile"
    if scaled := [_scaled(each, change, now) for each in fit.explanations if _shows(each, now)]:
        return Tail("latency", now, _around(scaled), "model"), ""
    return _bounded(fit, change, now), ""


def agreeing(fit: Fit, latency: Latency | None) -> Fit:
    """Keep the explanations that show the measured p99, too; all of them where none does."""
    now = latency.quantiles.get(_PERCENT) if latency else None
    agree = [each for each in (replace(fit, rivals=()), *fit.rivals) if now and _shows(each, now)]
    return replace(agree[0], rivals=tuple(agree[1:])) if agree else fit


def _shows(fit: Fit, now: float) -> bool:
    """Whether the model's p99 is near what was measured."""
    return bool(fit.explanations) and abs(_modelled_now(fit) - now) <= _TAIL_CLOSE * now


def _scaled(fit: Fit, change: LimitChange, now: float) -> Range:
    """The measured p99, scaled as the model's changes."""
    after, before = forecast(fit, change).latency[99], _modelled_now(fit)
    return Range(now * after.low / before, now * after.high / before)


def _modelled_now(fit: Fit) -> float:
    p99 = forecast(fit, fit.now).latency[99]
    return (p99.low + p99.high) / 2


def _bounded(fit: Fit, change: LimitChange, now: float) -> Tail:
    """A request of that length had at most so many stops, of which the change saves a part."""
    stops = math.floor(now / fit.period) + 1
    saved = longest_stop(fit, fit.now).high - longest_stop(fit, change).high
    return Tail("latency", now, Range(max(0.0, now - stops * max(saved, 0.0)), now), "bounds")


def _replayed(fit: Fit, change: LimitChange, slots: Sequence[PeriodUse]) -> tuple[Tail | None, str]:
    runs = _runs(slots, fit.cpus if fit.shape is LoadShape.BURSTS else None)
    if not runs:
        return Tail("delay", 0.0, Range(0.0, 0.0), "replay"), ""
    if sum(run.elapsed for run in runs) > 0.9 * sum(slot.seconds * 1000 for slot in slots):
        return (
            None,
            "throttled almost without a pause: delay grows with the queue, which counters do not show",
        )
    shown = sum(_held(run, fit.now, fit.period)[0] * run.cpus for run in runs)
    measured = sum(run.throttled for run in runs)
    if abs(shown - measured) > _TAIL_CLOSE * measured:
        return None, (
            f"a replay of its periods gives {shown:.0f} ms throttled, {measured:.0f} were counted: too far "
            "apart for a p99"
        )
    everything = sum(slot.used for slot in slots)
    counted = _percentile([(run.throttled / run.cpus, run.work) for run in runs], everything)
    after = [(_after(run, fit.now, change, fit.period), run.work) for run in runs]
    usual, worst = (
        _percentile([(delays[which], work) for delays, work in after], everything) for which in (0, 1)
    )
    return Tail("delay", counted, Range(usual, worst), "replay"), ""


def _runs(slots: Sequence[PeriodUse], width: float | None) -> list[_Run]:
    """Consecutive readings with throttling, each run with the reading before and the one after.

    A stop is counted when it ends, so a run begins in the reading before; its last work may lie one later.
    """
    runs: list[_Run] = []
    held: list[PeriodUse] = []
    before = nothing = PeriodUse(0.0, 0.0, 0.0)
    for slot in (*slots, nothing):
        if slot.throttled > 0:
            held.append(slot)
            continue
        if held:
            runs.append(_run([before, *held, slot], width or max(map(_width, held))))
            held = []
        before = slot
    return runs


def _run(parts: Sequence[PeriodUse], width: float) -> _Run:
    work, throttled = sum(part.used for part in parts), sum(part.throttled for part in parts)
    return _Run(work, throttled, sum(part.seconds for part in parts[1:-1]) * 1000, width)


def _width(slot: PeriodUse) -> float:
    """CPUs that were busy or throttled."""
    return max((slot.used + slot.throttled) / (slot.seconds * 1000), 0.01) if slot.seconds else 1.0


def _after(run: _Run, now: LimitChange, change: LimitChange, period: float) -> tuple[float, float]:
    """A run's delay after the change, in ms: the counted fit, scaled as the replay's; usually, at worst.

    Not all of a run's work was there from its start, so its replay shows too long a delay, before and after.
    Fewer threads take longer by themselves.
    """
    slower = run.work / min(run.cpus, change.threads or run.cpus) - run.work / run.cpus
    shown, counted = _held(run, now, period)[0], run.throttled / run.cpus
    scale = counted / shown if shown else 1.0
    usual, worst = _held(run, change, period)
    return slower + scale * usual, slower + scale * worst


def _held(run: _Run, change: LimitChange, period: float) -> tuple[float, float]:
    """How long a quota delays a run, in ms: on average, and with the worst phase of refills.

    The fluid rule of a quota: n CPUs use Q up in Q/n, then wait for the next refill, of which the first comes
    anywhere within a period from the start of the run.
    """
    cpus = min(run.cpus, change.threads or run.cpus)
    if change.limit is None or change.limit >= cpus:
        return 0.0, 0.0
    quota, first = change.limit * period, change.limit * period + change.burst
    delays = [_delayed(run.work, cpus, quota, first, period, phase / 8 * period) for phase in range(1, 9)]
    return sum(delays) / len(delays), max(delays)


def _delayed(work: float, cpus: float, quota: float, first: float, period: float, refill: float) -> float:
    left, now, budget = work, 0.0, first
    while left > _NOTHING:
        ran = min(left, budget, (refill - now) * cpus)
        left, budget, now = left - ran, budget - ran, now + ran / cpus
        if left > _NOTHING:
            now, refill, budget = refill, refill + period, min(budget + quota, first)
    return now - work / cpus


def _percentile(delays: list[tuple[float, float]], work: float) -> float:
    """The hundredth of all CPU time that is delayed longest is delayed at least so long."""
    left = work * (1 - _PERCENT / 100)
    for delay, held in sorted(delays, reverse=True):
        left -= held
        if left <= 0:
            return delay
    return 0.0


def _no_periods(slots: tuple[PeriodUse, ...], period_ms: float) -> str:
    """Why readings are not counters of every period; empty where they are."""
    if not slots:
        return "no counters of every period"
    if len(slots) < _MIN_SLOTS:
        return f"{len(slots)} readings are too few for a 99th percentile: at least {_MIN_SLOTS} are required"
    late = sum(slot.seconds * 1000 > _SLACK * period_ms for slot in slots)
    if late > len(slots) * 0.05:
        return f"{late} of {len(slots)} readings came more than a period after the previous one"
    return ""
