"""Kinds of cores on machines whose cores are not equal: P, M and E, from most to least powerful."""

from collections.abc import Mapping
from itertools import pairwise
from typing import TypeVar

__all__ = ["by_value"]

_T = TypeVar("_T")

_SAME_KIND = 0.85
"""Cores within 15 % of the next faster one are of its kind: favoured cores are up to 10 % faster."""


def by_value(values: Mapping[_T, int]) -> dict[_T, str]:
    """The kind of each core by its capacity or maximum frequency (any unit, 0 = unknown).

    Distinct values are sorted, and a new kind starts where one falls below 85 % of the one before. With a
    single kind, or an unknown value, everything is "". The first kind is P, the last E, any between M.
    """
    levels = sorted(set(values.values()), reverse=True)
    if not levels or levels[-1] <= 0:
        return dict.fromkeys(values, "")
    rank = {levels[0]: 0}
    for faster, slower in pairwise(levels):
        rank[slower] = rank[faster] + (slower < faster * _SAME_KIND)
    last = rank[levels[-1]]
    return {unit: _letter(rank[value], last) for unit, value in values.items()}


def _letter(rank: int, last: int) -> str:
    if last == 0:
        return ""
    return "P" if rank == 0 else "E" if rank == last else "M"
