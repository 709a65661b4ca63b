"""Samples of counters over time, as Prometheus keeps them, to what was counted: through restarts and gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from corelane.limits.measure.counters import Quota
from corelane.limits.measure.rates import Rates, Unusable

__all__ = ["Growth", "Sample", "growth", "rates", "silence"]

Sample = tuple[float, float]
"""Unix seconds and the counter's value."""
_GAP: Final = 2.5
"""So many times the usual distance between samples is a gap."""
_SMALL: Final = 0.1
"""So much of the time may be a gap: counters went on, and the rest says when."""
_TIMES: Final = {
    "used": "usage",
    "throttled": "throttled",
    "burst": "burst",
    "waiting": "waiting",
    "stalled": "stalled",
    "queued": "queued",
}
_COUNTS: Final = ("periods", "throttled_periods", "bursts")


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a counter grew between its first and last sample, over restarts, and what is missing."""

    amount: float
    seconds: float
    resets: int
    gap_seconds: float
    """The longest time without a sample, 0 where they came as regularly as ever."""


def growth(samples: Sequence[Sample]) -> Growth | Unusable:
    """What was counted. A value below the one before is a restart from 0, as Prometheus takes it."""
    finite = [(at, value) for at, value in samples if math.isfinite(value)]
    if len(finite) < 2:
        return Unusable(
            f"{len(finite) or 'no'} sample{'s' * (len(finite) != 1)} only: no rate can be made of that"
        )
    steps = [(b - a, y - x, y) for (a, x), (b, y) in pairwise(finite)]
    amount = sum(after if grown < 0 else grown for _, grown, after in steps)
    distances = [distance for distance, _, _ in steps]
    longest, usual = max(distances), median(distances)
    if usual <= 0:
        return Unusable("samples out of order")
    gap = longest if longest > _GAP * usual else 0.0
    return Growth(amount, sum(distances), sum(grown < 0 for _, grown, _ in steps), gap)


def silence(samples: Sequence[Sample], now: float) -> float:
    """For how many seconds up to `now` samples have been missing; 0 where the next is not yet due."""
    if len(samples) < 2:
        return 0.0
    usual = median(b - a for (a, _), (b, _) in pairwise(samples))
    late = now - samples[-1][0]
    return late if late > _GAP * usual else 0.0


def rates(series: Mapping[str, Sequence[Sample]], quota: Quota | None = None) -> Rates | Unusable:
    """Rates from counters in seconds (`usage`, `throttled`, …) and in periods, each over its own samples.

    What has no series is None in the result; without any there is nothing to say.
    """
    grown = {name: growth(samples) for name, samples in series.items() if samples}
    usable = {name: one for name, one in grown.items() if isinstance(one, Growth)}
    if not usable:
        bad = next((one for one in grown.values() if isinstance(one, Unusable)), None)
        return bad or Unusable("no series")
    seconds = max(one.seconds for one in usable.values())
    times: dict[str, Any] = {
        name: 1000 * usable[counter].amount / usable[counter].seconds
        for name, counter in _TIMES.items()
        if counter in usable
    }
    counts: dict[str, Any] = {name: usable[name].amount for name in _COUNTS if name in usable}
    gap = max(one.gap_seconds for one in usable.values())
    said = (f"no samples for {gap:.0f} s: what happened there is averaged over the gap",) if gap else ()
    small = gap <= _SMALL * seconds
    return Rates(
        seconds,
        **times,
        **counts,
        quota=quota or Quota(),
        notes=(*_notes(grown, usable), *(() if small else said)),
        remarks=said if small else (),
    )


def _notes(grown: Mapping[str, Growth | Unusable], usable: Mapping[str, Growth]) -> tuple[str, ...]:
    found: list[str] = []
    if resets := max(one.resets for one in usable.values()):
        found.append(f"restarted {resets} time{'s' * (resets != 1)}: what was counted last before is lost")
    missing = sorted(name for name, one in grown.items() if isinstance(one, Unusable))
    if missing:
        found.append(f"too few samples of {', '.join(missing)}")
    return tuple(found)
