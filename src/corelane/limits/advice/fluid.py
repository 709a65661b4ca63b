"""Bursts under a quota as a fluid: n CPUs use Q up in Q/n and wait for the refill; no slices, no ticks.

Good enough to find the bursts that explain some counters among hundreds; the model then has the last word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Counted", "count"]

_BURSTS: Final = 24
_QUIET: Final = 1
"""Periods without work that are still counted: the timer stops at the second (kernel/sched/fair.c)."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What cpu.stat would show in every second: ms, periods, throttled periods."""

    throttled: float
    periods: float
    throttled_periods: float


@dataclass(slots=True)
class _State:
    budget: float
    backlog: float = 0.0
    throttled: float = 0.0
    periods: int = 0
    stopped: int = 0


def count(work: float, cpus: float, every: float, quota: float, period: float, burst: float = 0.0) -> Counted:
    """Bursts of `work` ms of CPU time on `cpus` at once, `every` ms, the first at the start of a period."""
    state, arrivals = _State(quota), [every * number for number in range(_BURSTS)]
    quiet, number, come, end = 0, 0, 0, every * _BURSTS
    while number * period < end:
        start, first = number * period, come
        while come < _BURSTS and arrivals[come] < start + period:
            come += 1
        if come == first and not state.backlog and quiet > _QUIET:
            later = arrivals[come] if come < _BURSTS else end
            number, state.budget = max(number + 1, int(later // period)), quota + burst
            continue
        _period(state, arrivals[first:come], start, period, work, cpus)
        quiet = 0 if come > first or state.backlog else quiet + 1
        state.periods += 1
        state.stopped += state.backlog > 0 and state.budget <= 0
        state.budget = min(state.budget + quota, quota + burst)
        number += 1
    return Counted(state.throttled / end * 1000, state.periods / end * 1000, state.stopped / end * 1000)


def _period(state: _State, due: list[float], start: float, period: float, work: float, cpus: float) -> None:
    """One period: run while there is work and budget, and stand still while there is only work."""
    now = start
    for until in (*due, start + period):
        while now < until and state.backlog > 0:
            if state.budget <= 0:
                state.throttled += (until - now) * cpus
                break
            ran = min((until - now) * cpus, state.backlog, state.budget)
            state.backlog = state.backlog - ran if state.backlog - ran > 1e-9 else 0.0
            state.budget = state.budget - ran if state.budget - ran > 1e-9 else 0.0
            now += ran / cpus
        now = until
        state.backlog += work if until < start + period else 0.0
