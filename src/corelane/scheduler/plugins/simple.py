"""NodeName: a pod that names its node runs there only."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from corelane.kube.node_terms import tolerated
from corelane.kube.objects import Taint
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import SKIP, BindContext, Cycle, Depends, Rejection, Scope, Skip


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


class PodValidity:
    """Rejects a pod with invalid amounts, labels, annotations, affinity or spread constraints."""

    name = "PodValidity"

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip:
        if cycle.pod.problem:
            return Rejection.of(self.name, Reason(Code.POD_INVALID, (cycle.pod.problem,)), resolvable=False)
        return SKIP

    def idle(self, pod: PodInfo) -> bool:
        return not pod.problem

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.POD_ITSELF: always}


class PrioritySort:
    """Orders the queue by priority, then by creation."""

    name = "PrioritySort"

    def sort_key(self, pod: PodInfo) -> tuple[Any, ...]:
        return (-pod.pod.spec.priority, pod.pod.metadata.creation_timestamp)


class SchedulingGates:
    """Keeps gated pods out of the queue."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        gates = pod.pod.spec.scheduling_gates
        if not gates:
            return None
        names = tuple(gate.name for gate in gates)
        return Rejection.of(self.name, Reason(Code.SCHEDULING_GATES, names), resolvable=False)

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.POD_ITSELF: always}


class DynamicResources:
    """Rejects pods with `spec.resourceClaims`."""

    name = "DynamicResources"

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        claims = cycle.pod.pod.spec.resource_claims
        if not claims:
            return Skip()
        names = ", ".join(claim.name for claim in claims)
        return Rejection.of(self.name, Reason(Code.RESOURCE_CLAIMS_UNSUPPORTED, (names,)), resolvable=False)

    def idle(self, _pod: PodInfo) -> bool:
        return True

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.POD_ITSELF: always}


class DefaultBinder:
    """Sends what the core decided; the API server merges annotations and node into the pod in one write."""

    name = "DefaultBinder"

    async def bind(self, context: BindContext) -> bool:
        """Bind the pod. Raises APIError."""
        pod, bind = context.pod.metadata, context.bind
        await context.client.bind(pod.namespace, pod.name, pod.uid, bind.node, bind.annotations)
        return True
