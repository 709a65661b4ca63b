"""NodeAffinity: node selector and node affinity, required and preferred."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from corelane.kube import pod as pods
from corelane.kube.node_terms import (
    is_valid,
    matches_required_affinity,
    named_nodes,
    preferred_weight,
    rule_matches,
    selects,
    term_is_valid,
)
from corelane.kube.objects import Node
from corelane.kube.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.configuration_file import first_fault
from corelane.scheduler.framework.plugin import SKIP, Cycle, Depends, Rejection, Scope, Skip
from corelane.scheduler.plugins.form_helpers import by_maximum


def labels_mask(labels: Mapping[str, str], columns: Columns, rows: Rows) -> Mask:
    """Return which nodes have all these labels."""
    mask = np.ones(len(rows), np.bool_)
    for key, value in labels.items():
        mask &= columns.label(key)[rows] == columns.label_value(key, value)
    return mask


def selector_mask(selector: NodeSelector, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes one of the terms matches."""
    mask = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms:
        mask |= term_mask(term, columns, rows)
    return mask


def labels_selector_mask(selector: NodeSelector, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes one of the terms matches by labels; fields are not looked at."""
    mask = np.zeros(len(rows), np.bool_)
    for term in selector.node_selector_terms:
        mask |= _labels_mask(term, columns, rows)
    return mask


def _labels_mask(term: NodeSelectorTerm, columns: Columns, rows: Rows) -> Mask:
    if not term_is_valid(term):
        return np.zeros(len(rows), np.bool_)
    mask = np.ones(len(rows), np.bool_)
    for rule in term.match_expressions:
        mask &= _by_value(rule, columns)[columns.label(rule.key)[rows]]
    return mask


def term_mask(term: NodeSelectorTerm, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes a term matches: none if it is empty or invalid."""
    mask = _labels_mask(term, columns, rows)
    for rule in term.match_fields:
        mask &= _by_name(rule, columns, rows)
    return mask


def _by_value(rule: NodeSelectorRequirement, columns: Columns) -> Mask:
    """Whether the rule holds by the id of the label's value; the last one is of nodes without the label."""
    values = columns.label_values(rule.key)
    table = np.full(len(values) + 1, rule.operator in {"NotIn", "Exists"})
    if rule.operator in {"In", "NotIn"}:
        for value in rule.values:
            if value in values:
                table[values[value]] = rule.operator == "In"
    elif rule.operator in {"Gt", "Lt"}:
        for value, number in values.items():
            table[number] = rule_matches(rule, {rule.key: value})
    table[-1] = rule_matches(rule, {})
    return table


def _by_name(rule: NodeSelectorRequirement, columns: Columns, rows: Rows) -> Mask:
    names = columns.names
    holds = (rule_matches(rule, {"metadata.name": names[row]}) for row in rows.tolist())
    return np.fromiter(holds, np.bool_, len(rows))


_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

_MOST_WEIGHT: Final = 100


class NodeAffinity:
    """Rejects nodes that do not match; scores by the weights of the preferred terms that match.

    `addedAffinity` is a node affinity that every pod of the profile has beside its own.
    """

    name = "NodeAffinity"
    scope = Scope.ROW
    depends = Depends.NODE
    exact = True

    def __init__(self, addedAffinity: Mapping[str, Any] | None = None) -> None:  # noqa: N803 - upstream's name
        if fault := first_fault(addedAffinity or {}, pods.NodeAffinity):
            raise ValueError(f"addedAffinity.{fault.path}: {fault.problem}: {fault.remedy}")
        self.added = msgspec.convert(addedAffinity or {}, pods.NodeAffinity)
        for number, term in enumerate(self.added.preferred):
            if not 0 <= term.weight <= _MOST_WEIGHT:
                where = f"preferredDuringSchedulingIgnoredDuringExecution[{number}].weight"
                raise ValueError(f"addedAffinity.{where} {term.weight}: use 1 to {_MOST_WEIGHT}")
        for rule in _rules(self.added):
            if rule.operator not in _OPERATORS:
                allowed = ", ".join(_OPERATORS)
                raise ValueError(f"addedAffinity: operator {rule.operator!r}: use one of {allowed}")
            if not is_valid(rule):
                values = ", ".join(rule.values)
                raise ValueError(
                    f"addedAffinity: {rule.key} {rule.operator} [{values}] can match no node: use a label's "
                    "key, values with In and NotIn, none with Exists and DoesNotExist, an integer with Gt, Lt"
                )

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        if self.idle(cycle.pod):
            return SKIP
        if named_nodes(_required(cycle.pod)) == frozenset():
            return Rejection.of(self.name, Reason(Code.AFFINITY_TERMS_CONFLICT), resolvable=False)
        return None

    def idle(self, pod: PodInfo) -> bool:
        return not pod.pod.spec.node_selector and _required(pod) is None and not self.added.required

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        assert node.node is not None
        if self.added.required is not None and not selects(self.added.required, node.node):
            return Rejection.of(self.name, Reason(Code.ENFORCED_AFFINITY_MISMATCH), resolvable=False)
        if matches_required_affinity(cycle.pod.pod, node.node):
            return None
        names = named_nodes(_required(cycle.pod))
        code = (
            Code.NODE_NOT_NAMED
            if names is not None and node.name not in names
            else Code.NODE_AFFINITY_MISMATCH
        )
        return Rejection.of(self.name, Reason(code), resolvable=False)

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        mask = labels_mask(cycle.pod.pod.spec.node_selector, columns, rows)
        for required in (_required(cycle.pod), self.added.required):
            if required is not None:
                mask &= selector_mask(required, columns, rows)
        return mask

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        """Rows by the rule that they violate, in the order of `filter`."""
        enforced = np.zeros(len(rows), np.bool_)
        if self.added.required is not None:
            enforced = ~selector_mask(self.added.required, columns, rows)
        names = named_nodes(_required(cycle.pod))
        others = np.zeros(len(rows), np.bool_)
        if names is not None:
            named = [info.row for name in names if (info := cycle.cluster.get(name))]
            others = ~np.isin(rows, np.array(named, np.intp))
        for code, mask in (
            (Code.ENFORCED_AFFINITY_MISMATCH, enforced),
            (Code.NODE_NOT_NAMED, others & ~enforced),
            (Code.NODE_AFFINITY_MISMATCH, ~others & ~enforced),
        ):
            if mask.any():
                yield Rejection.of(self.name, Reason(code), resolvable=False), rows[mask]

    def pre_score(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> Skip | None:
        return None if self._preferred(cycle) else SKIP

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        assert node.node is not None
        return float(preferred_weight(self._preferred(cycle), node.node))

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        total = np.zeros(len(rows))
        for one in self._preferred(cycle):
            total += one.weight * term_mask(one.preference, columns, rows)
        return total

    def _preferred(self, cycle: Cycle) -> tuple[pods.PreferredSchedulingTerm, ...]:
        affinity = cycle.pod.pod.spec.affinity
        own = affinity.node_affinity.preferred if affinity and affinity.node_affinity else ()
        return (*self.added.preferred, *own)

    def normalize(self, cycle: Cycle, scores: Scores) -> Scores:
        return by_maximum(scores)

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.NODE_ADDED | ChangeKind.NODE_LABELS: self._matches_now,
            ChangeKind.POD_ITSELF: always,
        }

    def _matches_now(self, pod: PodInfo, change: ClusterChange) -> bool:
        new, old = change.new, change.old
        if not isinstance(new, Node):
            return True
        return self._matches(pod, new) and not (isinstance(old, Node) and self._matches(pod, old))

    def _matches(self, pod: PodInfo, node: Node) -> bool:
        added = self.added.required
        return matches_required_affinity(pod.pod, node) and (added is None or selects(added, node))


def _rules(affinity: pods.NodeAffinity) -> Iterator[pods.NodeSelectorRequirement]:
    terms = [one.preference for one in affinity.preferred]
    terms += affinity.required.node_selector_terms if affinity.required else ()
    for term in terms:
        yield from (*term.match_expressions, *term.match_fields)


def _required(info: PodInfo) -> pods.NodeSelector | None:
    affinity = info.pod.spec.affinity
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None
