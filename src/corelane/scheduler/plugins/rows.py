"""Rules over many nodes at once, as rows of the columns: selectors, forms of plugins, and their scores.

A plugin that says of many rows which rule rejects them (`RowFilter`) has its other forms from that.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np

from corelane.kube.node_terms import rule_matches, term_is_valid
from corelane.kube.pod import NodeSelector, NodeSelectorTerm, Pod
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.labels import Rules
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.plugin import BEST, Cycle, Rejection


class IdleForPlainPods:
    """A PreFilter that skips all plain pods (see `PodInfo`)."""

    def idle(self, _pod: PodInfo) -> bool:
        return True


class RowFilter(ABC):
    """A Filter that is exact over rows: one node is one row.

    A filter by what a Node object says has a `filter` of its own: `explain` asks about changed objects.
    """

    @abstractmethod
    def rejected(self, cycle: Cycle, rows: Rows) -> Iterable[tuple[Rejection, Mask]]:
        """Yield each rule's rejection, and which of the rows it rejects, in the order of the rules."""

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        rules = self.rejected(cycle, np.array([node.row], np.intp))
        return next((rejection for rejection, mask in rules if mask[0]), None)

    def feasible(self, cycle: Cycle, _columns: Columns, rows: Rows) -> Mask:
        passed = np.ones(len(rows), np.bool_)
        for _, mask in self.rejected(cycle, rows):
            passed &= ~mask
        return passed

    def rejections(self, cycle: Cycle, _columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        """Yield each rejection with the rows that it is the first for."""
        left = np.ones(len(rows), np.bool_)
        for rejection, mask in self.rejected(cycle, rows):
            if (mask & left).any():
                yield rejection, rows[mask & left]
            left &= ~mask


class CountsPods(ABC):
    """The `PreFilterExtensions` of a plugin that counts pods."""

    @abstractmethod
    def change(self, cycle: Cycle, pod: PodInfo, node: NodeInfo, number: int) -> None:
        """Answer from now on as if `number` more of the pod were on the node: 1 or -1."""

    def add_pod(self, cycle: Cycle, pod: PodInfo, node: NodeInfo) -> None:
        self.change(cycle, pod, node, 1)

    def remove_pod(self, cycle: Cycle, pod: PodInfo, node: NodeInfo) -> None:
        self.change(cycle, pod, node, -1)


class RowScore(ABC):
    """A Score that is exact over rows: one node is one row."""

    @abstractmethod
    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        """Return a score for each of the rows."""

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        return float(self.scores(cycle, cycle.cluster.columns, np.array([node.row], np.intp))[0])


# Scores in whole numbers from 0 to 100, as upstream's `DefaultNormalizeScore`.


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


# Selectors of nodes.


def required_mask(pod: Pod, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes the pod's node selector and required node affinity match."""
    mask = np.ones(len(rows), np.bool_)
    for key, value in pod.spec.node_selector.items():
        mask &= columns.topology.ids(key)[rows] == columns.topology.value(key, value)
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if affinity and affinity.required is not None:
        mask &= selector_mask(affinity.required, columns, rows)
    return mask


def selector_mask(selector: NodeSelector, columns: Columns, rows: Rows, *, fields: bool = True) -> Mask:
    """Return which nodes one of the terms matches, by labels alone without `fields`."""
    mask = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms:
        mask |= term_mask(term, columns, rows, fields=fields)
    return mask


def term_mask(term: NodeSelectorTerm, columns: Columns, rows: Rows, *, fields: bool = True) -> Mask:
    """Return which nodes a term matches: none if it is empty or invalid."""
    mask = np.full(len(rows), term_is_valid(term))
    if not mask.any():
        return mask
    for rule in term.match_expressions:
        table = _table(rule.key, rule.operator, rule.values, columns, partial(rule_matches, rule))
        mask &= table[columns.topology.ids(rule.key)[rows]]
    for rule in term.match_fields if fields else ():
        names = columns.names
        holds = (rule_matches(rule, {"metadata.name": names[row]}) for row in rows.tolist())
        mask &= np.fromiter(holds, np.bool_, len(rows))
    return mask


def rules_mask(rules: Rules, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes' labels all the rules hold for."""
    mask = np.ones(len(rows), np.bool_)
    for rule in rules:
        table = _table(rule.key, rule.operator, rule.values, columns, rule.holds)
        mask &= table[columns.topology.ids(rule.key)[rows]]
    return mask


def values_mask(key: str, values: Iterable[str], columns: Columns, rows: Rows) -> Mask:
    """Return which nodes have a label with one of the values."""
    return _having(key, values, columns)[columns.topology.ids(key)[rows]]


def _having(key: str, values: Iterable[str], columns: Columns) -> Mask:
    """Whether the value is one of these, by its id; the last one is of nodes without the label."""
    ids = columns.topology.values(key)
    table = np.zeros(len(ids) + 1, np.bool_)
    table[[ids[value] for value in values if value in ids]] = True
    return table


_ALL: Final = {"Exists": True, "DoesNotExist": False}


def _table(
    key: str,
    operator: str,
    values: Iterable[str],
    columns: Columns,
    holds: Callable[[Mapping[str, str]], bool],
) -> Mask:
    """Whether a rule holds by the id of the label's value; the last one is of nodes without the label."""
    ids = columns.topology.values(key)
    table: Mask
    if operator in {"In", "NotIn"}:
        table = _having(key, values, columns) == (operator == "In")
    elif operator in _ALL:
        table = np.full(len(ids) + 1, _ALL[operator])
    else:
        table = np.array([*(holds({key: value}) for value in ids), False])
    table[-1] = holds({})
    return table
