"""NodeUnschedulable: cordoned nodes run only pods that tolerate it."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from corelane.kube.objects import Taint
from corelane.reasons import Code, Reason
from corelane.scheduler.cache.columns import Columns, Mask, Rows
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import Cycle, Depends, Rejection, Scope
from corelane.scheduler.plugins.tolerations import tolerated

_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    """Rejects a cordoned node."""

    name = "NodeUnschedulable"
    scope = Scope.ROW
    depends = Depends.NODE
    exact = True

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        assert node.node is not None
        tolerations = cycle.pod.pod.spec.tolerations
        if node.node.spec.unschedulable and not tolerated(_UNSCHEDULABLE, tolerations):
            return Rejection.of(self.name, Reason(Code.NODE_UNSCHEDULABLE), resolvable=False)
        return None

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        if tolerated(_UNSCHEDULABLE, cycle.pod.pod.spec.tolerations):
            return np.ones(len(rows), dtype=np.bool_)
        return ~columns.unschedulable[rows]

    def rejections(self, _cycle: Cycle, _columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        yield Rejection.of(self.name, Reason(Code.NODE_UNSCHEDULABLE), resolvable=False), rows

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.NODE_ADDED | ChangeKind.NODE_TAINTS | ChangeKind.POD_ITSELF: always}
