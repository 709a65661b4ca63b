"""TaintToleration: taints that the pod does not tolerate keep it off a node, or make the node worse."""

from collections.abc import Iterable, Iterator

import numpy as np

from corelane.kube.node_terms import tolerated, untolerated
from corelane.kube.objects import Node, Taint
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo, taints_of
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import Cycle, Depends, Rejection, Scope
from corelane.scheduler.plugins.rows import RowScore, by_maximum


class TaintToleration(RowScore):
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
