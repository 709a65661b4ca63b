"""What holds a container back, its limit or its neighbours, and how much that costs.

Severity is the time lost per second of work and the queueing it causes, never the part of the periods that
read as throttled: at a quota that just suffices half of them do, with a thousandth of the time lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corelane.limits.measure.rates import Rates

__all__ = ["Cause", "Level", "Surroundings", "Verdict", "judge"]

_LOW, _MEDIUM, _HIGH = 0.001, 0.01, 0.1
"""Parts of the wanted CPU time; below the first nobody notices."""
_STALL_MS: Final = 10.0
_WAIT_MS: Final = 20.0
"""Milliseconds a second of waiting that need an explanation."""
_PRESENCE: Final = 0.05
"""Part of the CPUs that others must have used to be the ones that are waited for."""


class Level(StrEnum):
    """How much throttling costs."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Cause(StrEnum):
    """What a container waits for."""

    NOTHING = "nothing"
    LIMIT = "limit"
    LIMIT_ABOVE = "limit above"
    NEIGHBOURS = "neighbours"
    OWN_THREADS = "own threads"
    HYPERVISOR = "hypervisor"
    OTHERS = "neighbours or own threads"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What happened on the CPUs that a container may use, in milliseconds a second, summed over them."""

    cpus: int
    busy: float
    steal: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What it waits for, the worst first; how bad throttling is; and why that is said.

    `waited` is for how long neighbours or the hypervisor held it back, in milliseconds a second.
    """

    causes: tuple[Cause, ...]
    level: Level
    why: str
    waited: float = 0.0


def judge(rates: Rates, around: Surroundings | None = None) -> Verdict:
    """Say what holds a container back. Without `around` neighbours and own threads cannot be told apart."""
    parts = [*_limits(rates), *_waits(rates, around)]
    if rates.throttled is None and rates.waiting is None and rates.queued is None:
        return Verdict((Cause.UNKNOWN,), Level.NONE, "neither throttling nor waiting is counted")
    parts.sort(key=lambda part: -part[1])
    causes = tuple(cause for cause, _, _ in parts) or (Cause.NOTHING,)
    waited = sum(amount for cause, amount, _ in parts if cause in (Cause.NEIGHBOURS, Cause.HYPERVISOR))
    why = "; ".join(why for _, _, why in parts) or "no wait worth naming"
    return Verdict(causes, level(rates), why, waited)


def level(rates: Rates) -> Level:
    """By the part of its CPU time that was lost, and by how long a stop lasts."""
    lost = rates.lost
    if lost is None:
        lost = (rates.throttled or 0.0) / 1000
    stall = rates.stall_ms or 0.0
    if lost >= _HIGH:
        return Level.HIGH
    if lost >= _MEDIUM or (lost >= _LOW and stall >= _STALL_MS):
        return Level.MEDIUM
    return Level.LOW if lost > 0 else Level.NONE


Part = tuple[Cause, float, str]
"""A cause, its milliseconds a second, and what is said of it."""


def _limits(rates: Rates) -> list[Part]:
    found: list[Part] = []
    if rates.throttled and level(rates) is not Level.LOW:
        share = "" if rates.lost is None else f", {rates.lost:.1%} of what it wanted"
        found.append((Cause.LIMIT, rates.throttled, f"throttled for {rates.throttled:.0f} ms/s{share}"))
    if rates.above and rates.above >= _WAIT_MS:
        found.append((Cause.LIMIT_ABOVE, rates.above, f"its pod's limit stops it for {rates.above:.0f} ms/s"))
    return found


def _waits(rates: Rates, around: Surroundings | None) -> list[Part]:
    waited = _beyond_limits(rates, around)
    if waited is None or waited < _WAIT_MS:
        return []
    return [_waited_for(waited, rates, around)]


def _beyond_limits(rates: Rates, around: Surroundings | None) -> float | None:
    """Waiting that throttling does not explain: at least so much, in milliseconds a second.

    Throttling is part of both measures. It is counted once for each CPU, while pressure is wall time and
    run queues count every thread.
    """
    throttled = (rates.throttled or 0.0) + (rates.above or 0.0)
    if rates.waiting is not None:
        return max(0.0, rates.waiting - min(throttled, 1000.0))
    if rates.queued is None:
        return None
    crowd = max(1.0, rates.waiters / around.cpus) if around else 1.0
    return max(0.0, rates.queued - throttled * crowd)


def _waited_for(waited: float, rates: Rates, around: Surroundings | None) -> Part:
    if around is None:
        return Cause.OTHERS, waited, f"waits for a CPU for {waited:.0f} ms/s beside that"
    others = max(0.0, around.busy - (rates.used or 0.0))
    waits, threshold = f"waits for a CPU for {waited:.0f} ms/s", _PRESENCE * 1000 * around.cpus
    if around.steal >= threshold and around.steal > others:
        stolen = f"the hypervisor takes {around.steal:.0f} ms/s of its CPUs"
        return Cause.HYPERVISOR, waited, f"{waits} while {stolen}"
    if others >= threshold:
        used = f"others use {others:.0f} ms/s of its {around.cpus} CPUs"
        return Cause.NEIGHBOURS, waited, f"{waits} while {used}"
    why = f"its own threads wait for each other for {waited:.0f} ms/s on {around.cpus} CPUs"
    return Cause.OWN_THREADS, waited, why
