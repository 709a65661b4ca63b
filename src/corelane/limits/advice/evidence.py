"""Whether what was measured can carry advice at all; if not, why, and what to collect instead."""

from __future__ import annotations

from typing import Final

from corelane.limits.advice.facts import Evidence, Slot
from corelane.limits.measure import Rates, Unusable

__all__ = ["MIN_PERIODS", "carries_periods", "refusal"]

MIN_PERIODS: Final = 50
"""Below so many periods the model's own error passes its targets (see the calibration)."""
_MIN_ACTIVE: Final = 5
_MIN_SLOTS: Final = 100
_SLACK: Final = 1.6
"""A reading so many periods after the last still counts as one every period: timers are late at times."""
_POSSIBLE: Final = 1.05


def refusal(evidence: Evidence) -> str:
    """Why nothing can be advised; empty where something can."""
    rates = evidence.rates
    if isinstance(rates, Unusable):
        return f"{rates.why}: measure again"
    if evidence.notes or rates.notes:
        return f"{'; '.join([*evidence.notes, *rates.notes])}: measure again over a time without that"
    return _missing(rates) or _short(rates) or _impossible(rates, evidence.cpus)


def _missing(rates: Rates) -> str:
    if rates.used is None:
        return (
            "its CPU time is not counted: enable the cpuacct controller, or scrape "
            "container_cpu_usage_seconds_total"
        )
    if rates.throttled is None and rates.quota.quota_us is not None:
        return "its throttled time is not counted: scrape container_cpu_cfs_throttled_seconds_total"
    if rates.throttled and rates.quota.quota_us is None:
        return "it is throttled but its quota is not known: scrape container_spec_cpu_quota and …_period"
    if rates.throttled and (rates.periods is None or rates.throttled_periods is None):
        return (
            "its periods are not counted: scrape container_cpu_cfs_periods_total, …_throttled_periods_total"
        )
    return ""


def _short(rates: Rates) -> str:
    period = rates.quota.period_us / 1e6
    if rates.seconds < MIN_PERIODS * period:
        return (
            f"measured for {rates.seconds:.3g} s, {rates.seconds / period:.0f} periods: "
            f"at least {MIN_PERIODS} are needed ({MIN_PERIODS * period:.3g} s); measure longer"
        )
    if rates.throttled and (rates.periods or 0) < _MIN_ACTIVE:
        return (
            f"active in {rates.periods or 0:.0f} periods only, at least {_MIN_ACTIVE} are needed: "
            "measure longer"
        )
    return ""


def _impossible(rates: Rates, cpus: int) -> str:
    """Counters of one container cannot pass the CPUs there are."""
    taken = ((rates.used or 0.0) + (rates.throttled or 0.0)) / 1000
    if cpus and taken > cpus * _POSSIBLE + 0.2:
        return (
            f"used and throttled time are {taken:.3g} s a second, more than the {cpus} CPUs it can run on: "
            "these are not the counters of one container, or the number of CPUs is wrong"
        )
    if (rates.throttled_periods or 0) > (rates.periods or 0) * _POSSIBLE + 1:
        return "more periods were throttled than there were: these counters do not belong together"
    return ""


def carries_periods(slots: tuple[Slot, ...], period_ms: float) -> str:
    """Why readings are not counters of every period; empty where they are."""
    if not slots:
        return "no counters of every period"
    if len(slots) < _MIN_SLOTS:
        return f"{len(slots)} readings are too few for a 99th percentile: at least {_MIN_SLOTS} are needed"
    late = sum(slot.seconds * 1000 > _SLACK * period_ms for slot in slots)
    if late > len(slots) * 0.05:
        return f"{late} of {len(slots)} readings came later than a period after the one before"
    return ""
