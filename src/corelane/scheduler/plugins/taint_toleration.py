"""TaintToleration: taints that the pod does not tolerate keep it off a node, or make the node worse."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from corelane.kube.objects import Node, Taint
from corelane.kube.pod import Pod, Toleration
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo, taints_of
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import Cycle, Depends, Rejection, Scope
from corelane.scheduler.plugins.form_helpers import by_maximum

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


def untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps the pod off the node."""
    tolerations = pod.spec.tolerations
    repelling = (taint for taint in taints if taint.effect in _REPELLING)
    return next((taint for taint in repelling if not tolerated(taint, tolerations)), None)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether a toleration matches the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Upstream's `ToleratesTaint`: an empty effect or key (with Exists) matches all."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value


class TaintToleration:
    """Rejects nodes with untolerated taints; scores by how few PreferNoSchedule taints are not tolerated."""

    name = "TaintToleration"
    scope = Scope.ROW
    depends = Depends.NODE
    exact = True

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if taint := untolerated(cycle.pod.pod, node.taints):
            reason = Reason(Code.UNTOLERATED_TAINT, (taint.key, taint.value))
            return Rejection.of(self.name, reason, resolvable=False)
        return None

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        return _score(cycle, node.taints)

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        free = [untolerated(cycle.pod.pod, taints) is None for taints in columns.taint_sets]
        return np.array(free, dtype=np.bool_)[columns.taints[rows]]

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        """Rows by the first taint that is not tolerated."""
        first = [untolerated(cycle.pod.pod, taints) for taints in columns.taint_sets]
        reasons = [Reason(Code.UNTOLERATED_TAINT, (one.key, one.value)) if one else None for one in first]
        numbers: dict[Reason | None, int] = {}
        number_of = np.array([numbers.setdefault(reason, len(numbers)) for reason in reasons], np.intp)
        of_row = number_of[columns.taints[rows]]
        for reason, number in numbers.items():
            alike = rows[of_row == number]
            if reason is not None and len(alike):
                yield Rejection.of(self.name, reason, resolvable=False), alike

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        scores = [_score(cycle, taints) for taints in columns.taint_sets]
        return np.array(scores, dtype=np.float64)[columns.taints[rows]]

    def normalize(self, cycle: Cycle, scores: Scores) -> Scores:
        return by_maximum(scores, reverse=True)

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.NODE_ADDED | ChangeKind.NODE_TAINTS: _tolerated_now,
            ChangeKind.POD_ITSELF: always,
        }


def _score(cycle: Cycle, taints: Iterable[Taint]) -> float:
    """How many taints with effect PreferNoSchedule are not tolerated."""
    soft = [taint for taint in taints if taint.effect == "PreferNoSchedule"]
    tolerations = cycle.pod.pod.spec.tolerations if soft else ()
    of_effect = [one for one in tolerations if one.effect in {"", "PreferNoSchedule"}]
    return float(sum(not tolerated(taint, of_effect) for taint in soft))


def _tolerated_now(pod: PodInfo, change: ClusterChange) -> bool:
    new, old = change.new, change.old
    if not isinstance(new, Node):
        return True
    if untolerated(pod.pod, taints_of(new)):
        return False
    return not isinstance(old, Node) or untolerated(pod.pod, taints_of(old)) is not None
