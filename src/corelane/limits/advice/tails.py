"""What a changed limit does to the 99th percentile of latency, and how long a single stop may last."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from corelane.limits.advice.effects import TAIL, Fit, Forecast, LimitChange, LoadShape, Range
from corelane.limits.measure.throttling import Latency

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
    """How long a stop may last, in ms: at least for all CPUs together, at most for one of a few that ran."""
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
