"""The 99th percentile before and after: only from data that can carry it, else bounds on the delay.

Counters of every period show each run of throttled periods, its work and how long it was held back; replayed
under another quota they give the delay that work meets. A measured latency carries a prediction where the
fitted bursts show it too; else it bounds one, as lifting a limit takes away no more than the stops in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from corelane.limits.advice import evidence as data
from corelane.limits.advice import fitting
from corelane.limits.advice.facts import Evidence, Latency, Range, Slot
from corelane.limits.advice.fitting import Change, Fit, Shape

__all__ = ["COLLECT", "Tail", "agreeing", "stop", "tail"]

COLLECT: Final = (
    "a p99 needs counters of every period (--every-period on the node, or limits watch --interval 0.1 "
    "-o json) or a measured latency (--latency)"
)
_CLOSE: Final = 0.3
_PERCENT: Final = 99.0
_NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Tail:
    """The p99 in ms: of what, now and after, and how it was had (`model`, `replay`, `bounds`)."""

    of: str
    now: float
    after: Range
    how: str


@dataclass(frozen=True, slots=True)
class _Run:
    """Throttled periods on end: CPU time, time held back, time that all took, in ms; on how many CPUs."""

    work: float
    throttled: float
    elapsed: float
    cpus: float


def stop(one: Fit, change: Change) -> Range:
    """How long a stop may last, in ms: at least for all CPUs together, at most for one of a few that ran."""
    if change.limit is None:
        return Range(0.0, 0.0)
    most = min(one.widest, change.threads or math.inf)
    if change.limit >= most:
        return Range(0.0, 0.0)
    longest = one.period * (1 - (change.limit / most if math.isfinite(most) else 0.0))
    return Range(0.0, longest)


def tail(one: Fit, change: Change, evidence: Evidence) -> tuple[Tail | None, str]:
    """A prediction where the data can carry one; else None, and why not."""
    if evidence.latency:
        return _from_latency(one, change, evidence.latency)
    why = data.carries_periods(evidence.slots, one.period)
    if why:
        return None, COLLECT if len(evidence.slots) < 2 else f"{why}: {COLLECT}"
    return _replayed(one, change, evidence.slots)


def _from_latency(one: Fit, change: Change, latency: Latency) -> tuple[Tail | None, str]:
    now = latency.quantiles.get(_PERCENT)
    if now is None:
        return None, "the latency given has no 99th percentile"
    if found := [_scaled(each, change, now) for each in one.explanations if _shows(each, now)]:
        after = Range(min(each.low for each in found), max(each.high for each in found))
        return Tail("latency", now, after, "model"), ""
    return _bounded(one, change, now), ""


def agreeing(one: Fit, latency: Latency | None) -> Fit:
    """Of several explanations those that show the measured p99, too; all of them where none does."""
    now = latency.quantiles.get(_PERCENT) if latency else None
    found = [each for each in (replace(one, rivals=()), *one.rivals) if now and _shows(each, now)]
    return replace(found[0], rivals=tuple(found[1:])) if found else one


def _shows(one: Fit, now: float) -> bool:
    """Whether the model's p99 is near what was measured."""
    return bool(one.explanations) and abs(_modelled(one, one.now) - now) <= _CLOSE * now


def _scaled(one: Fit, change: Change, now: float) -> Range:
    """What was measured, changed as the model's p99 is."""
    after, before = fitting.outcome(one, change).latency[99], _modelled(one, one.now)
    return Range(now * after.low / before, now * after.high / before)


def _modelled(one: Fit, change: Change) -> float:
    found = fitting.outcome(one, change).latency[99]
    return (found.low + found.high) / 2


def _bounded(one: Fit, change: Change, now: float) -> Tail:
    """In so long a request there were at most so many stops, of which the change takes away a part."""
    stops = math.floor(now / one.period) + 1
    saved = stop(one, one.now).high - stop(one, change).high
    return Tail("latency", now, Range(max(0.0, now - stops * max(saved, 0.0)), now), "bounds")


def _replayed(one: Fit, change: Change, slots: Sequence[Slot]) -> tuple[Tail | None, str]:
    runs = _runs(slots, one.cpus if one.shape is Shape.BURSTS else None)
    if not runs:
        return Tail("delay", 0.0, Range(0.0, 0.0), "replay"), ""
    if sum(run.elapsed for run in runs) > 0.9 * sum(slot.seconds * 1000 for slot in slots):
        return None, "it is throttled without a pause: delay grows with the queue, which counters do not show"
    shown = sum(_held(run, one.now, one.period)[0] * run.cpus for run in runs)
    measured = sum(run.throttled for run in runs)
    if abs(shown - measured) > _CLOSE * measured:
        return None, (
            f"replaying its periods gives {shown:.0f} ms of throttling where {measured:.0f} were counted, "
            "so no p99 is made of them"
        )
    everything = sum(slot.used for slot in slots)
    counted = _percentile([(run.throttled / run.cpus, run.work) for run in runs], everything)
    after = [(_after(run, one.now, change, one.period), run.work) for run in runs]
    usual, worst = (
        _percentile([(delays[which], work) for delays, work in after], everything) for which in (0, 1)
    )
    return Tail("delay", counted, Range(usual, worst), "replay"), ""


def _runs(slots: Sequence[Slot], width: float | None) -> list[_Run]:
    """Readings in which it was throttled, on end, each with the one before and the one after.

    A stop is counted when it ends, so a run begins in the reading before; its last work may lie one later.
    """
    found: list[_Run] = []
    held: list[Slot] = []
    before = nothing = Slot(0.0, 0.0, 0.0)
    for slot in (*slots, nothing):
        if slot.throttled > 0:
            held.append(slot)
            continue
        if held:
            found.append(_run([before, *held, slot], width or max(map(_width, held))))
            held = []
        before = slot
    return found


def _run(parts: Sequence[Slot], width: float) -> _Run:
    work, throttled = sum(one.used for one in parts), sum(one.throttled for one in parts)
    return _Run(work, throttled, sum(one.seconds for one in parts[1:-1]) * 1000, width)


def _width(slot: Slot) -> float:
    """CPUs that were busy or held back."""
    return max((slot.used + slot.throttled) / (slot.seconds * 1000), 0.01) if slot.seconds else 1.0


def _after(run: _Run, now: Change, change: Change, period: float) -> tuple[float, float]:
    """How long a run will be held up, in ms: what was counted, changed as the replay's is; usually, at worst.

    Not all of a run's work was there from its start, so its replay shows too long a delay, before and after.
    Fewer threads take longer by themselves.
    """
    slower = run.work / min(run.cpus, change.threads or run.cpus) - run.work / run.cpus
    shown, counted = _held(run, now, period)[0], run.throttled / run.cpus
    scale = counted / shown if shown else 1.0
    usual, worst = _held(run, change, period)
    return slower + scale * usual, slower + scale * worst


def _held(run: _Run, change: Change, period: float) -> tuple[float, float]:
    """How long a quota holds a run up, in ms: on average, and when its refills come worst.

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
    """Of all CPU time, the hundredth that is held up longest is held up at least so long."""
    left = work * (1 - _PERCENT / 100)
    for delay, held in sorted(delays, reverse=True):
        left -= held
        if left <= 0:
            return delay
    return 0.0
