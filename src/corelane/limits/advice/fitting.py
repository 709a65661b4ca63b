"""The model fitted to a container's counters and latency: threads that never stop, or shapes of load.

Busy throughout, a quota Q for n busy CPUs leaves throttled = n - Q: used plus throttled time is n, and less
where other processes hold back threads that never pause, as looks at them show. Otherwise, and wherever a
latency was measured, shapes are sought that show what was measured (see `inference`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from corelane.kernel.cpu_time.counters import Rates
from corelane.limits.advice import inference
from corelane.limits.advice.effects import NOTICED_MS, Fit
from corelane.limits.advice.inference import FULL, QUICK, Hints
from corelane.limits.advice.likelihood import Match, Observed
from corelane.limits.advice.shapes import PERCENTILES, LoadShape
from corelane.limits.measure.throttling import Latency, Measurement

_FULL: Final = 0.95
"""A container that used so much of its quota, throttled in most periods, never stops."""
_MISFIT: Final = 3.0
"""In deviations: where the likeliest shape is farther off in any statistic, it explains nothing."""
_APART: Final = 2.0
_SAMPLE: Final = 32
_PAUSED: Final = 0.01
"""The part of the looks at idle threads below which a container never pauses."""
_CONTENDED: Final = 0.2
"""The part of the CPUs that others must have used to be looked for as neighbours."""
_SATURATED: Final = 0.9
"""The part of the CPUs that is used where neighbours are always ready to run."""
_MOST_PER_SECOND: Final = 1000
"""Requests a second beyond which simulating each would take minutes."""
_LONGEST: Final = {True: 30.0, False: 10.0}
"""Seconds that are simulated at most, with a latency and without one."""


def fit(measured: Measurement, rates: Rates, threads: int | None = None) -> Fit:
    """Fit the model to rates with a quota. `threads` run at once by its settings (None: unknown)."""
    used, throttled = rates.used or 0.0, rates.throttled or 0.0
    quota, period = (rates.quota.quota_us or 0) / 1000, rates.quota.period_us / 1000
    requests = bool(_percentiles(measured.latency))
    plain = Fit(
        LoadShape.BUSY,
        (used + throttled) / 1000,
        used,
        throttled,
        quota,
        period,
        rates.quota.burst_us / 1000,
        seconds=min(rates.seconds, _LONGEST[requests]),
        requests=requests,
        p99=_percentiles(measured.latency).get(99),
    )
    cpus = measured.cpus
    if _never_pauses(measured, rates) and not plain.requests:
        wants = _demand(plain, rates, threads, cpus)
        return replace(plain, cpus=used / 1000, wants=wants, held_back=True)
    if _is_busy(rates, plain) and not plain.requests:
        modelled = max(0.0, plain.cpus * 1000 - quota / period * 1000)
        return replace(plain, modelled=modelled, wants=_demand(plain, rates, threads, cpus))
    if used <= 0:
        return _unfitted(plain, threads, cpus)
    hints = Hints(cpus, threads, rates.waiters, _is_contended(measured, rates), _weight(measured, rates))
    found = inference.candidates(_observed(plain, rates, measured), hints, FULL if plain.requests else QUICK)
    found = [each for each in found if _shows(each.match, throttled)]
    if not found or found[0].match.misfit > _MISFIT:
        return _unfitted(plain, threads, cpus)
    best = found[0]
    return replace(
        plain,
        shape=best.shape.kind,
        cpus=float(best.shape.widest),
        modelled=best.match.throttled,
        sample=inference.sample(found, _SAMPLE),
    )


def _shows(match: Match, throttled: float) -> bool:
    """Whether the throttled time is near, on average: a large deviation alone explains anything."""
    low, high = sorted((match.throttled + NOTICED_MS, throttled + NOTICED_MS))
    return high <= _APART * low


def _percentiles(latency: Latency | None) -> Mapping[int, float]:
    """The percentiles that the model has, too."""
    if latency is None or (latency.per_second or 0.0) > _MOST_PER_SECOND:
        return {}
    return {percent: latency.quantiles[percent] for percent in PERCENTILES if percent in latency.quantiles}


def _observed(plain: Fit, rates: Rates, measured: Measurement) -> Observed:
    latency = measured.latency
    return Observed(
        plain.seconds,
        plain.period,
        plain.now,
        plain.used,
        plain.throttled,
        (rates.periods or 0.0) / rates.seconds,
        (rates.throttled_periods or 0.0) / rates.seconds,
        rates.queued,
        latency.per_second if latency and plain.requests else None,
        _percentiles(latency),
        latency.log if latency and plain.requests else None,
    )


def _weight(measured: Measurement, rates: Rates) -> float | None:
    """The weight of neighbours that leave no CPU idle; None where they do, or are not known."""
    beside, cpus = measured.competition, measured.cpus
    if beside is None or not cpus or not _is_contended(measured, rates):
        return None
    busy = (beside.used + (rates.used or 0.0)) >= _SATURATED * 1000 * cpus
    return beside.relative if busy and beside.relative > 0 else None


def _is_contended(measured: Measurement, rates: Rates) -> bool:
    if measured.competition is not None and measured.cpus:
        return measured.competition.used > _CONTENDED * 1000 * measured.cpus
    load = measured.load
    if load is None:
        return measured.waited > 0
    return load.busy - (rates.used or 0.0) > _CONTENDED * 1000 * load.cpus


def _unfitted(plain: Fit, threads: int | None, cpus: int) -> Fit:
    most = min(filter(None, (cpus, threads)), default=math.inf)
    return replace(plain, shape=LoadShape.UNFITTED, cpus=most, why=_UNLIKE)


_UNLIKE: Final = (
    "neither steady load, nor requests at random or in batches, nor clients that wait for answers, nor "
    "requests that threads share show this throttling"
)


def _is_busy(rates: Rates, candidate: Fit) -> bool:
    if not rates.periods or candidate.used < _FULL * candidate.quota / candidate.period * 1000:
        return False
    return (rates.throttled_periods or 0) >= 0.9 * rates.periods


def _never_pauses(measured: Measurement, rates: Rates) -> bool:
    """Whether its threads were seen runnable all the time beside others.

    What they leave it keeps such a container from using up its quota in every period.
    """
    paused = measured.losses.paused if measured.losses else None
    return paused is not None and paused < _PAUSED and _is_contended(measured, rates)


def _demand(candidate: Fit, rates: Rates, threads: int | None, cpus: int) -> float:
    """CPUs that the threads may use. Throttled time is counted once a CPU: waiting threads show more demand.

    Since Linux 6.18 the threads of a throttled group tend to be stacked so (task-based throttling).
    """
    demands = [candidate.cpus, float(threads or 0), (candidate.used + (rates.queued or 0.0)) / 1000]
    return max(candidate.cpus, min(cpus, max(demands)))
