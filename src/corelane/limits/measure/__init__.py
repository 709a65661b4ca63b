"""Throttling measured: counters of running containers to rates, and what holds them back."""

from corelane.limits.measure.counters import CounterError, Counters, Quota
from corelane.limits.measure.groups import Reading, allowed, read
from corelane.limits.measure.processors import Processor
from corelane.limits.measure.rates import Rates, Unusable, between
from corelane.limits.measure.verdict import Cause, Level, Surroundings, Verdict, judge

__all__ = [
    "Cause",
    "CounterError",
    "Counters",
    "Level",
    "Processor",
    "Quota",
    "Rates",
    "Reading",
    "Surroundings",
    "Unusable",
    "Verdict",
    "allowed",
    "between",
    "judge",
    "read",
]
