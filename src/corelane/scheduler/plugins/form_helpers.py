"""How plugins' scores are brought to 0 to 100, in whole numbers as upstream's `DefaultNormalizeScore`."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np

from corelane.scheduler.cluster.columns import Mask, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.framework.plugin import BEST, Cycle, Rejection


def by_maximum(scores: Scores, *, reverse: bool = False) -> Scores:
    """Return each score's share of the highest; `reverse` makes the lowest the best."""
    highest = float(scores.max(initial=0.0))
    if highest == 0:
        return np.full(len(scores), BEST if reverse else 0.0)
    scaled = np.floor(BEST * scores / highest)
    return BEST - scaled if reverse else scaled


def by_range(scores: Scores) -> Scores:
    """Return where each score is between the lowest and the highest; 0 where all are equal."""
    lowest, highest = float(scores.min(initial=np.inf)), float(scores.max(initial=-np.inf))
    if highest <= lowest:
        return np.zeros(len(scores))
    return np.floor(BEST * ((scores - lowest) / (highest - lowest)))


RejectedRows: TypeAlias = Callable[[Cycle, Rows], Iterable[tuple[Rejection, Mask]]]
"""Yields each rule's rejection, and which of the rows it rejects."""


def first(rejected: RejectedRows, cycle: Cycle, node: NodeInfo) -> Rejection | None:
    """Return why one node is rejected."""
    rules = rejected(cycle, np.array([node.row], np.intp))
    return next((rejection for rejection, mask in rules if mask[0]), None)


def feasible(rejected: RejectedRows, cycle: Cycle, rows: Rows) -> Mask:
    """Return which rows no rule rejects."""
    left = np.ones(len(rows), np.bool_)
    for _, mask in rejected(cycle, rows):
        left &= ~mask
    return left


def grouped(rejected: RejectedRows, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
    """Yield each rejection with the rows that it is the first for."""
    left = np.ones(len(rows), np.bool_)
    for rejection, mask in rejected(cycle, rows):
        if (mask & left).any():
            yield rejection, rows[mask & left]
        left &= ~mask
