"""The 99th percentile before and after: only from data that can carry it, else bounds on the delay.

Counters of every period show each run of throttled periods, its work and how long it was held back; replayed
under another quota they give the delay that work meets. A measured latency carries a prediction where the
fitted bursts show it too; else it bounds one, as lifting a limit takes away no more than the stops in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from corelane.limits.advice import evidence as data
from corelane.limits.advice import fitting
from corelane.limits.advice.facts import Evidence, Latency, Range, Slot
from corelane.limits.advice.fitting import Change, Fit, Shape

__all__ = ["COLLECT", "Tail", "stop", "tail"]

COLLECT: Final = (
    "a p99 needs counters of every period (--every-period on the node, or limits watch --interval 0.1 "
    "-o json) or a measured latency (--latency)"
)
_CLOSE: Final = 0.3
_PERCENT: Final = 99.0


@dataclass(frozen=True, slots=True)
class Tail:
    """The p99 in ms: of what, now and after, and how it was had (`model`, `replay`, `bounds`)."""

    of: str
    now: float
    after: Range
    how: str


@dataclass(frozen=True, slots=True)
class _Run:
    """Throttled periods on end: its CPU time and how long it was held back, in ms, on how many CPUs."""

    work: float
    throttled: float
    elapsed: float

    @property
    def cpus(self) -> float:
        return max((self.work + self.throttled) / self.elapsed, 0.01) if self.elapsed else 1.0


def stop(one: Fit, change: Change) -> Range:
    """How long a stop may last, in ms: at least for all CPUs together, at most for one of a few that ran."""
    if change.limit is None:
        return Range(0.0, 0.0)
    most = min(one.cpus, change.threads or one.cpus)
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
    if one.shape is Shape.BURSTS:
        modelled = fitting.outcome(one, fitting.Change(one.quota / one.period, one.burst)).latency[99]
        middle = (modelled.low + modelled.high) / 2
        if middle and abs(middle - now) <= _CLOSE * now:
            after = fitting.outcome(one, change).latency[99]
            return Tail(
                "latency", now, Range(now * after.low / middle, now * after.high / middle), "model"
            ), ""
    return _bounded(one, change, now), ""


def _bounded(one: Fit, change: Change, now: float) -> Tail:
    """In so long a request there were at most so many stops, of which the change takes away a part."""
    stops = math.floor(now / one.period) + 1
    saved = stop(one, Change(one.quota / one.period, one.burst)).high - stop(one, change).high
    return Tail("latency", now, Range(max(0.0, now - stops * max(saved, 0.0)), now), "bounds")


def _replayed(one: Fit, change: Change, slots: Sequence[Slot]) -> tuple[Tail | None, str]:
    runs = _runs(slots)
    if not runs:
        return Tail("delay", 0.0, Range(0.0, 0.0), "replay"), ""
    if sum(run.elapsed for run in runs) > 0.9 * sum(slot.seconds * 1000 for slot in slots):
        return None, "it is throttled without a pause: delay grows with the queue, which counters do not show"
    now = Change(one.quota / one.period, one.burst)
    shown = sum(_delay(run, now, one.period)[1] * run.cpus for run in runs)
    measured = sum(run.throttled for run in runs)
    if abs(shown - measured) > _CLOSE * measured:
        return None, (
            f"replaying its periods gives {shown:.0f} ms of throttling where {measured:.0f} were counted, "
            "so no p99 is made of them"
        )
    return Tail(
        "delay",
        _percentile(runs, slots, now, one)[1],
        Range(*_percentile(runs, slots, change, one)),
        "replay",
    ), ""


def _runs(slots: Sequence[Slot]) -> list[_Run]:
    """Readings in which it was throttled, on end. A stop counts when it ends, maybe a reading later."""
    found: list[_Run] = []
    held: list[Slot] = []
    for slot in (*slots, Slot(0.0, 0.0, 0.0)):
        if slot.throttled > 0:
            held.append(slot)
        elif held:
            rest = slot if slot.used else Slot(0.0, 0.0, 0.0)
            found.append(
                _Run(
                    sum(one.used for one in held) + rest.used,
                    sum(one.throttled for one in held),
                    sum(one.seconds for one in held) * 1000,
                )
            )
            held = []
    return found


def _delay(run: _Run, change: Change, period: float) -> tuple[float, float]:
    """How much longer a run takes than unlimited, in ms: when its periods begin luckily, and on average.

    The fluid rule of a quota: n CPUs use Q up in Q/n, then wait for the next refill, which comes anywhere
    within a period from the start of the run.
    """
    if change.limit is None or change.limit >= run.cpus:
        return 0.0, 0.0
    quota, first = change.limit * period, change.limit * period + change.burst
    delays = [_delayed(run, quota, first, period, phase / 8 * period) for phase in range(1, 9)]
    return min(delays), sum(delays) / len(delays)


def _delayed(run: _Run, quota: float, first: float, period: float, refill: float) -> float:
    left, now, budget = run.work, 0.0, first
    while left > 1e-9:
        ran = min(left, budget, (refill - now) * run.cpus)
        left, budget, now = left - ran, budget - ran, now + ran / run.cpus
        if left > 1e-9:
            now, refill, budget = refill, refill + period, min(budget + quota, first)
    return now - run.work / run.cpus


def _percentile(runs: Sequence[_Run], slots: Sequence[Slot], change: Change, one: Fit) -> tuple[float, float]:
    """Of all CPU time, the hundredth that is held up longest is held up at least so long."""
    left = sum(slot.used for slot in slots) * (1 - _PERCENT / 100)
    found = []
    for which in (0, 1):
        delays = sorted(((_delay(run, change, one.period)[which], run.work) for run in runs), reverse=True)
        rest, answer = left, 0.0
        for delay, work in delays:
            rest -= work
            if rest <= 0:
                answer = delay
                break
        found.append(answer)
    return min(found), max(found)
