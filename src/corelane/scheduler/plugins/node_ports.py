"""NodePorts: a host port is used by one pod of a node, for each protocol and address."""

from collections.abc import Iterator

import numpy as np

from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import ANY_ADDRESS, HostPort, PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import Cycle, Rejection, Scope, Skip


class NodePorts:
    """Rejects nodes where a pod has one of the host ports; address 0.0.0.0 includes every address."""

    name = "NodePorts"
    scope = Scope.ROW
    exact = True

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        return None if cycle.pod.facts.host_ports else Skip()

    def idle(self, _pod: PodInfo) -> bool:
        return True

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        if any(_conflict(cycle.pod, pod) for pod in node.pods.values() if pod.facts.host_ports):
            return Rejection.of(self.name, Reason(Code.PORTS_TAKEN))
        return None

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        taken = {row for port in cycle.pod.facts.host_ports for row in _rows_with(cycle, port)}
        return ~np.isin(rows, np.fromiter(taken, np.intp, len(taken)))

    def rejections(self, _cycle: Cycle, _columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        yield Rejection.of(self.name, Reason(Code.PORTS_TAKEN)), rows

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.POD_REMOVED: _frees_port,
            ChangeKind.NODE_ADDED | ChangeKind.POD_ITSELF: always,
        }


def _rows_with(cycle: Cycle, port: HostPort) -> Iterator[int]:
    """The rows of nodes where a pod has the port, on the address or on every one."""
    rows = cycle.cluster.index.ports.get((port.port, port.protocol), {})
    for row, addresses in rows.items():
        if port.address == ANY_ADDRESS or port.address in addresses or ANY_ADDRESS in addresses:
            yield row


def _conflict(pod: PodInfo, other: PodInfo) -> bool:
    return any(one.conflicts(port) for port in other.facts.host_ports for one in pod.facts.host_ports)


def _frees_port(pod: PodInfo, change: ClusterChange) -> bool:
    return not isinstance(change.old, PodInfo) or _conflict(pod, change.old)
