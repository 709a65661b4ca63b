"""NodeName: a pod that names its node runs there only."""

from collections.abc import Iterator

from corelane.reasons import Code, Reason
from corelane.scheduler.cache.columns import Columns, Rows
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import Cycle, Rejection, Scope, Skip


class NodeName:
    """Rejects other nodes than `spec.nodeName`; pods in the queue have none, those of an extender may."""

    name = "NodeName"
    scope = Scope.CLUSTER

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        return None if cycle.pod.pod.spec.node_name else Skip()

    def idle(self, _pod: PodInfo) -> bool:
        return True

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if cycle.pod.pod.spec.node_name in {"", node.name}:
            return None
        return Rejection.of(self.name, Reason(Code.NODE_NAME_MISMATCH), resolvable=False)

    def rejections(self, _cycle: Cycle, _columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        yield Rejection.of(self.name, Reason(Code.NODE_NAME_MISMATCH), resolvable=False), rows

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.NODE_ADDED | ChangeKind.POD_ITSELF: always}
