"""Plugins of a few lines each, with kube-scheduler's names where it has them."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from corelane.kube.node_terms import tolerated, untolerated
from corelane.kube.objects import Node, Taint
from corelane.kube.pod import Pod
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo, taints_of
from corelane.scheduler.cluster.pods import ANY_ADDRESS, PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always
from corelane.scheduler.framework.plugin import (
    BEST,
    SKIP,
    BindContext,
    Cycle,
    Depends,
    Rejection,
    Scope,
    Skip,
)
from corelane.scheduler.plugins.rows import IdleForPlainPods, RowFilter, RowScore, by_maximum

_OTHER_NODE: Final = Rejection.of("NodeName", Reason(Code.NODE_NAME_MISMATCH), resolvable=False)


class NodeName(IdleForPlainPods):
    """Rejects other nodes than `spec.nodeName`; pods in the queue have none, those of an extender may."""

    name = "NodeName"
    scope = Scope.CLUSTER

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        return None if cycle.pod.pod.spec.node_name else SKIP

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        return None if cycle.pod.pod.spec.node_name in {"", node.name} else _OTHER_NODE

    def rejections(self, _cycle: Cycle, _columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        yield _OTHER_NODE, rows

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.NODE_ADDED | ChangeKind.POD_ITSELF: always}


_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
_CORDONED: Final = Rejection.of("NodeUnschedulable", Reason(Code.NODE_UNSCHEDULABLE), resolvable=False)


class NodeUnschedulable(RowFilter):
    """Rejects a cordoned node."""

    name = "NodeUnschedulable"
    scope = Scope.ROW
    depends = Depends.NODE
    exact = True

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        """Judge the given Node object, which may differ from the one in the columns."""
        assert node.node is not None
        tolerations = cycle.pod.pod.spec.tolerations
        return (
            _CORDONED if node.node.spec.unschedulable and not tolerated(_UNSCHEDULABLE, tolerations) else None
        )

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        if not tolerated(_UNSCHEDULABLE, cycle.pod.pod.spec.tolerations):
            yield _CORDONED, cycle.cluster.columns.unschedulable[rows]

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.NODE_ADDED | ChangeKind.NODE_TAINTS | ChangeKind.POD_ITSELF: always}


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
        """Return how many taints with effect PreferNoSchedule are not tolerated."""
        scores = []
        for taints in columns.taint_sets:
            soft = [taint for taint in taints if taint.effect == "PreferNoSchedule"]
            tolerations = cycle.pod.pod.spec.tolerations if soft else ()
            of_effect = [one for one in tolerations if one.effect in {"", "PreferNoSchedule"}]
            scores.append(sum(not tolerated(taint, of_effect) for taint in soft))
        return np.array(scores, dtype=np.float64)[columns.taints[rows]]

    def normalize(self, cycle: Cycle, scores: Scores) -> Scores:
        return by_maximum(scores, reverse=True)

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.NODE_ADDED | ChangeKind.NODE_TAINTS: _tolerated_now,
            ChangeKind.POD_ITSELF: always,
        }


def _tolerated_now(pod: PodInfo, change: ClusterChange) -> bool:
    new, old = change.new, change.old
    if not isinstance(new, Node):
        return True
    if untolerated(pod.pod, taints_of(new)):
        return False
    return not isinstance(old, Node) or untolerated(pod.pod, taints_of(old)) is not None


_PORTS_TAKEN: Final = Rejection.of("NodePorts", Reason(Code.PORTS_TAKEN))


class NodePorts(IdleForPlainPods, RowFilter):
    """Rejects nodes where a pod has one of the host ports; address 0.0.0.0 includes every address."""

    name = "NodePorts"
    scope = Scope.ROW
    exact = True

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        return None if cycle.pod.facts.host_ports else SKIP

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        """Judge the given node, which may have other pods than in the columns."""
        others = (pod for pod in node.pods.values() if pod.facts.host_ports)
        return _PORTS_TAKEN if any(_conflict(cycle.pod, pod) for pod in others) else None

    def rejected(self, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Mask]]:
        """Rows where a pod has one of the ports, on the address or on every one."""
        taken = set()
        for port in cycle.pod.facts.host_ports:
            using = cycle.cluster.index.ports.get((port.port, port.protocol), {})
            for row, addresses in using.items():
                if port.address == ANY_ADDRESS or port.address in addresses or ANY_ADDRESS in addresses:
                    taken.add(row)
        yield _PORTS_TAKEN, np.isin(rows, np.fromiter(taken, np.intp, len(taken)))

    def hints(self) -> dict[ChangeKind, Hint]:
        return {
            ChangeKind.POD_REMOVED: _frees_port,
            ChangeKind.NODE_ADDED | ChangeKind.POD_ITSELF: always,
        }


def _conflict(pod: PodInfo, other: PodInfo) -> bool:
    return any(one.conflicts(port) for port in other.facts.host_ports for one in pod.facts.host_ports)


def _frees_port(pod: PodInfo, change: ClusterChange) -> bool:
    return not isinstance(change.old, PodInfo) or _conflict(pod, change.old)


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


class DynamicResources(IdleForPlainPods):
    """Rejects pods with `spec.resourceClaims`."""

    name = "DynamicResources"

    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        claims = cycle.pod.pod.spec.resource_claims
        if not claims:
            return SKIP
        names = ", ".join(claim.name for claim in claims)
        return Rejection.of(self.name, Reason(Code.RESOURCE_CLAIMS_UNSUPPORTED, (names,)), resolvable=False)

    def hints(self) -> dict[ChangeKind, Hint]:
        return {ChangeKind.POD_ITSELF: always}


_LEAST: Final = 23 << 20
_MOST_OF_CONTAINER: Final = 1000 << 20
"""Sizes in bytes: less is worth nothing, more is worth no more."""


class ImageLocality(RowScore):
    """Scores nodes by the images that they need not pull."""

    name = "ImageLocality"
    scope = Scope.CLUSTER

    def pre_score(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> Skip | None:
        there = cycle.cluster.images.by_name
        return None if there and any(name in there for name in _images(cycle.pod.pod)) else SKIP

    def scores(self, cycle: Cycle, _columns: Columns, rows: Rows) -> Scores:
        cluster, pod = cycle.cluster, cycle.pod.pod
        total = int(cluster.topology.live.sum())
        sums = np.zeros(len(rows))
        for name in _images(pod):
            if name in cluster.images.by_name:
                spread = cluster.images.nodes(name) / total
                sums += np.floor(cluster.images.sizes(name, cluster.topology.capacity)[rows] * spread)
        most = _MOST_OF_CONTAINER * (len(pod.spec.containers) + len(pod.spec.init_containers))
        return np.floor(BEST * (np.clip(sums, _LEAST, most) - _LEAST) / (most - _LEAST))


def _images(pod: Pod) -> list[str]:
    spec = pod.spec
    images = [container.image for container in (*spec.init_containers, *spec.containers)]
    images += [volume.image.reference for volume in spec.volumes if volume.image is not None]
    return list(map(normalized, images))


@lru_cache(4096)
def normalized(image: str) -> str:
    """Return an image's name with its tag, `latest` by default."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


class DefaultBinder:
    """Sends what the core decided; the API server merges annotations and node into the pod in one write."""

    name = "DefaultBinder"

    async def bind(self, context: BindContext) -> bool:
        """Bind the pod. Raises APIError."""
        pod, bind = context.pod.metadata, context.bind
        await context.client.bind(pod.namespace, pod.name, pod.uid, bind.node, bind.annotations)
        return True
