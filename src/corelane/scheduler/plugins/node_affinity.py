"""NodeAffinity: node selector and node affinity, required and preferred."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from corelane import settings
from corelane.kube import pod as pods
from corelane.kube.node_terms import is_valid, matches_required_affinity, named_nodes, selects
from corelane.kube.objects import Node
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import SKIP, Cycle, Depends, Rejection, Scope, Skip
from corelane.scheduler.plugins.rows import (
    RowFilter,
    RowScore,
    by_maximum,
    required_mask,
    selector_mask,
    term_mask,
)

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

_MOST_WEIGHT: Final = 100
_MISMATCH: Final = tuple(
    Rejection.of("NodeAffinity", Reason(code), resolvable=False)
    for code in (Code.ENFORCED_AFFINITY_MISMATCH, Code.NODE_NOT_NAMED, Code.NODE_AFFINITY_MISMATCH)
)


class NodeAffinity(RowFilter, RowScore):
    """Rejects nodes that do not match; scores by the weights of the preferred terms that match.

    `addedAffinity` is a node affinity that every pod of the profile has beside its own.
    """

    name = "NodeAffinity"
    scope = Scope.ROW
    depends = Depends.NODE
    exact = True

    def __init__(self, addedAffinity: Mapping[str, Any] | None = None) -> None:  # noqa: N803 - upstream's name
        try:
            self.added = settings.convert(addedAffinity or {}, pods.NodeAffinity, strict=True)
        except settings.SettingsError as error:
            raise ValueError(f"addedAffinity.{error}") from None
        for number, term in enumerate(self.added.preferred):
            if not 0 <= term.weight <= _MOST_WEIGHT:
                where = f"preferredDuringSchedulingIgnoredDuringExecution[{number}].weight"
                raise ValueError(f"addedAffinity.{where} {term.weight}: use 1 to {_MOST_WEIGHT}")
        terms = [one.preference for one in self.added.preferred]
        terms += self.added.required.node_selector_terms if self.added.required else ()
        for rule in (rule for term in terms for rule in (*term.match_expressions, *term.match_fields)):
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
        """Judge the given Node object, which may differ from the one in the columns."""
        assert node.node is not None
        if self.added.required is not None and not selects(self.added.required, node.node):
            return _MISMATCH[0]
        if matches_required_affinity(cycle.pod.pod, node.node):
            return None
        names = named_nodes(_required(cycle.pod))
        return _MISMATCH[1] if names is not None and node.name not in names else _MISMATCH[2]

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        """For all nodes alike: the profile's affinity, names that the pod requires, its other rules."""
        columns = cycle.cluster.columns
        if self.added.required is not None:
            yield _MISMATCH[0], ~selector_mask(self.added.required, columns, rows)
        matches = required_mask(cycle.pod.pod, columns, rows)
        names = named_nodes(_required(cycle.pod))
        if names is not None:
            named = [info.row for name in names if (info := cycle.cluster.get(name))]
            yield _MISMATCH[1], ~matches & ~np.isin(rows, np.array(named, np.intp))
        yield _MISMATCH[2], ~matches

    def pre_score(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> Skip | None:
        return None if self._preferred(cycle) else SKIP

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        total = np.zeros(len(rows))
        for term in self._preferred(cycle):
            total += term.weight * term_mask(term.preference, columns, rows)
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


def _required(info: PodInfo) -> pods.NodeSelector | None:
    affinity = info.pod.spec.affinity
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None
