"""Prometheus series to rates and percentiles: samples of counters through restarts and gaps, histograms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from corelane.kernel.cpu_time.counters import Quota, Rates, Unusable

Sample = tuple[float, float]
"""Unix seconds and the counter's value."""
_GAP: Final = 2.5
"""A gap is so many times the usual distance between samples."""
_SMALL: Final = 0.1
"""So much of the time may be a gap: counters went on meanwhile."""
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
    """The longest time without a sample, 0 where samples are regular."""


def growth(samples: Sequence[Sample]) -> Growth | Unusable:
    """Return a counter's growth. A value below the previous one is a restart from 0, as in Prometheus."""
    finite = [(at, value) for at, value in samples if math.isfinite(value)]
    if len(finite) < 2:
        return Unusable(
            f"{len(finite) or 'no'} sample{'s' * (len(finite) != 1)} only: at least 2 are required for a rate"
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
    """Seconds up to `now` in which samples are missing; 0 where the next is not yet due."""
    if len(samples) < 2:
        return 0.0
    usual = median(b - a for (a, _), (b, _) in pairwise(samples))
    late = now - samples[-1][0]
    return late if late > _GAP * usual else 0.0


def rates(series: Mapping[str, Sequence[Sample]], quota: Quota | None = None) -> Rates | Unusable:
    """Rates from counters in seconds (`usage`, `throttled`, …) and in periods, each over its own samples.

    A rate without a series is None; without any series the result is unusable.
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
    gaps = (f"no samples for {gap:.0f} s: counters are averaged over the gap",) if gap else ()
    small = gap <= _SMALL * seconds
    return Rates(
        seconds,
        **times,
        **counts,
        quota=quota or Quota(),
        notes=(*_notes(grown, usable), *(() if small else gaps)),
        remarks=gaps if small else (),
    )


def _notes(grown: Mapping[str, Growth | Unusable], usable: Mapping[str, Growth]) -> tuple[str, ...]:
    notes: list[str] = []
    if resets := max(one.resets for one in usable.values()):
        notes.append(f"restarted {resets} time{'s' * (resets != 1)}: the last counts before each are lost")
    missing = sorted(name for name, one in grown.items() if isinstance(one, Unusable))
    if missing:
        notes.append(f"too few samples of {', '.join(missing)}")
    return tuple(notes)


def histogram_quantiles(buckets: Mapping[float, float], percents: Iterable[float]) -> dict[float, float]:
    """Percentiles of cumulative counts by upper bound, as Prometheus' histogram_quantile: linear in a bucket.

    A percentile in the last bucket, which has no upper bound, is left out. Raises ValueError without samples.
    """
    ordered = sorted(buckets.items())
    total = ordered[-1][1] if ordered else 0.0
    if not ordered or not math.isinf(ordered[-1][0]) or not total > 0 or not math.isfinite(total):
        raise ValueError("not a histogram, or an empty one")
    quantiles = {}
    for percent in percents:
        rank = total * percent / 100
        below = (0.0, 0.0)
        for bound, count in ordered:
            if count >= rank:
                if not math.isinf(bound):
                    part = (rank - below[1]) / (count - below[1]) if count > below[1] else 1.0
                    quantiles[percent] = below[0] + (bound - below[0]) * part
                break
            below = (bound, count)
    return quantiles
