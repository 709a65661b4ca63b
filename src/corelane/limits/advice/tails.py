"""What a changed limit does to the 99th percentile: scaled by the model, replayed, or within bounds.

The p99 comes only from data that can carry it, else it has bounds: counters of every period show each run of
throttled periods, its work and its delay; replayed under another quota they give the delay of that work. A
measured latency carries a forecast where the fitted model shows it too; else it bounds one, as a higher limit
saves no more than the stops in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from corelane.limits.advice.effects import Fit, LimitChange, LoadShape, Range, around, forecast
from corelane.limits.measure.throttling import Latency, Measurement, PeriodUse

COLLECT: Final = (
    "a p99 requires counters of every period (--every-period on the node, or limits watch --interval 0.1 "
    "-o json) or a measured latency (--latency)"
)
_MIN_SLOTS: Final = 100
_SLACK: Final = 1.6
"""A reading so many periods after the last still counts as one in every period: timers are late at times."""
_TAIL_CLOSE: Final = 0.3
_PERCENT: Final = 99.0
_NOTHING: Final = 1e-9


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
        return Tail("latency", now, around(scaled), "model"), ""
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
