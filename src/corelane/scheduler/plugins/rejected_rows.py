"""A filter over rows whose rules each name the rows that they reject; the first rule counts."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np

from corelane.scheduler.cache.columns import Mask, Rows
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.framework.plugin import Cycle, Rejection

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
