"""Changes of the cluster, in the words of queueing hints (upstream: `fwk.ClusterEvent`).

Hints compare what a node offers before and after. A rewrite of an object that leaves a node in an equal state
is no change; nor is one by which the state only became worse for pods, where that is cheap to say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeAlias

from msgspec import Struct

from corelane.kube.objects import Taint
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import pod_class
from corelane.reasons import Refusal
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.node_kinds import ZoneAmounts
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import CanonicalState
from corelane.workload import NUMAPolicy
from corelane.workload.request import PodRequest, peak


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """A node at one time. Amounts: CPU in milliCPU, others in whole units."""

    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    """Allocatable and not requested."""
    pods_left: int
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    amplified: bool
    lowest_priority: int | None
    """Lowest priority of the pods on the node; None without any."""
    cpus: CanonicalState
    admitted: int
    """MilliCPU that the ledger and the claims request."""
    unknown: bool
    """Whether no pod may get exclusive CPUs; see `NodeInfo.unknown`."""
    ledger: NodeState | None = None
    """The published ledger."""


def summary(info: NodeInfo | None) -> NodeSummary | None:
    """Return what a node offers now; None for one on which no pod is placed."""
    if info is None or info.node is None:
        return None
    requested = info.requested
    free = {name: amount - requested.get(name, 0) for name, amount in info.allocatable.items()}
    return NodeSummary(
        dict(info.allocatable),
        free,
        info.allocatable.get("pods", 0) - len(info.pods),
        info.labels,
        info.taints,
        info.node.spec.unschedulable,
        info.amplified,
        min((pod.pod.spec.priority for pod in info.pods.values()), default=None),
        info.canonical,
        info.admitted,
        info.unknown,
        info.ledger,
    )


def cpus_differ(before: NodeSummary, after: NodeSummary) -> bool:
    """Return whether the CPUs of the node, or which pods have them, are not as before."""
    if after.cpus is not before.cpus or after.admitted != before.admitted or after.unknown != before.unknown:
        return True
    old, new = before.ledger, after.ledger
    if old is new or old is None or new is None:
        return old is not new
    return old.placed_pods != new.placed_pods or old.entries != new.entries


def goes_by_order(pod: PodInfo, node: NodeSummary) -> bool:
    """Return whether another pod's CPUs may make this one fit: the node's allocator searches no other CPUs.

    So it is where a pod requires what the kubelet may give or not, and with Koordinator's division.
    """
    state, request = node.cpus.state, pod.shape.request
    if request is None or not pod.shape.binds or not isinstance(state, NodeState):
        return False
    spec = request.placement_spec
    required = spec.bind_required or spec.numa is not None
    return state.config.koordinator is not None or (state.config.policy == "static" and required)


def cpus_grew(before: NodeSummary, after: NodeSummary) -> bool:
    """Return whether some pod may be admitted after that was refused before.

    Pods with rules about other pods' CPUs are left out: they look at more than these states have.
    """
    old, new = before.cpus, after.cpus
    if after.admitted < before.admitted or (before.unknown and not after.unknown):
        return True
    if old is new:
        return False
    if old.config != new.config or old.detailed or new.detailed or old.capacity < new.capacity:
        return True
    if not (isinstance(old.state, NodeState) and isinstance(new.state, NodeState)):
        return True
    if new.state.reserved != old.state.reserved:
        return True
    if any(now.mask & ~then.mask for now, then in zip(_POOLS(new.state), _POOLS(old.state), strict=True)):
        return True
    zones = {zone.numa: zone for zone in old.amounts}
    return any(_zone_grew(zones[zone.numa], zone) for zone in new.amounts)


_POOLS: Final = attrgetter("free_exclusive", "shared_pool", "best_effort_pool", "system_pool")


def _zone_grew(before: ZoneAmounts, after: ZoneAmounts) -> bool:
    if (after.memory or 0) > (before.memory or 0):
        return True
    amounts = ((before.hugepages, after.hugepages), (before.devices, after.devices))
    return any(new[name] > old.get(name, 0) for old, new in amounts for name in new)


def cpus_may_suffice(pod: PodInfo, node: NodeSummary) -> bool:
    """Return False where a ledger certainly has too few free CPUs for the pod."""
    state, request = node.cpus.state, pod.shape.request
    if request is None or not isinstance(state, NodeState):
        return True
    if not node.cpus.amplified and node.admitted + pod.shape.milli > node.cpus.capacity and pod.shape.milli:
        return False
    try:
        total, together = exclusive_needs(request, state)
    except Refusal:
        return False
    if not total or state.config.policy == "none":
        return True
    zones = node.cpus.amounts
    return sum(zone.cpus for zone in zones) >= total and any(zone.cpus >= together for zone in zones)


def exclusive_needs(request: PodRequest, state: NodeState) -> tuple[int, int]:
    """Return how many exclusive CPUs a pod needs on this node at once, and on one NUMA node at least."""
    if state.config.policy == "pools":
        decided = pod_class(request, state.config.pools)
        own = decided.common or max(decided.own.values(), default=0)
        strict = request.placement_spec.numa is NUMAPolicy.SINGLE_NUMA_NODE
        return decided.cpus(request), own if strict else 0
    counts = [(one.kind, request.exclusive_cpus(one)) for one in request.containers]
    strict = state.config.numa.policy == "single-numa-node"
    return peak(counts), max((count for _, count in counts), default=0) if strict else 0


class ChangeKind(Flag):
    """Kinds of change that can make a pod schedulable."""

    __hash__ = object.__hash__  # Members are unique objects; that of enum is a function in Python.

    NOTHING = 0
    NODE_ADDED = auto()
    NODE_ALLOCATABLE = auto()
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    """Taints, those derived from conditions included, and `spec.unschedulable`."""
    TOPOLOGY = auto()
    """A node's agent published another machine or ledger."""
    POD_ADDED = auto()
    """A pod runs on a node from now on."""
    POD_REMOVED = auto()
    """A pod ended or was deleted, or its binding failed."""
    POD_CHANGED = auto()
    """Labels or requests of a pod with a node changed."""
    POD_ITSELF = auto()
    """The pending pod was changed."""
    CLAIM = auto()
    """A PersistentVolumeClaim was added or changed."""
    VOLUME = auto()
    """A PersistentVolume was added or changed."""
    STORAGE_CLASS = auto()
    NAMESPACE = auto()
    """Labels of a namespace changed."""
    CSI_NODE = auto()
    """The CSI drivers of a node, and their limits; also when the object is deleted."""
    CSI_DRIVER = auto()
    """A CSIDriver was added, changed or deleted."""
    STORAGE_CAPACITY = auto()
    """Free storage that a CSI driver publishes."""
    VOLUME_ATTACHMENT = auto()
    """A VolumeAttachment was added, changed or deleted."""
    SERVICE = auto()
    """The selector of a Service changed; also when the object is deleted."""
    NODE_REMOVED = auto()
    """A node is gone, and with it what its pods and labels counted for on other nodes."""
    WATCHED = auto()
    """Objects of some kind can be watched again."""
    NODE = NODE_ADDED | NODE_REMOVED | NODE_ALLOCATABLE | NODE_LABELS | NODE_TAINTS


@cache
def members(kinds: ChangeKind) -> tuple[ChangeKind, ...]:
    """Return the single kinds; iterating over a Flag takes ten times as long."""
    return tuple(kinds)


class ClusterChange(Struct, frozen=True):
    """One change: its kinds, the node it is about ("" for none), and the object before and after.

    The object is the Node for NODE kinds, a PodInfo for those of pods, else as its informer shows it.
    `before` and `after` say what the node offers, for all kinds that are about a node; `before` is None for
    a new one, and where several changes are looked at as one; `after` is None for a node that is gone.
    """

    kind: ChangeKind
    node: str = ""
    old: Any = None
    new: Any = None
    before: NodeSummary | None = None
    after: NodeSummary | None = None
    merged: bool = False
    """Several changes of a node, looked at as one: what was in between is not known."""


Hint: TypeAlias = Callable[[PodInfo, ClusterChange], bool]
"""Whether a change can make a pod fit that the plugin rejected. Must be cheap; in doubt True."""


def added(_pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether an object was added or changed: without it no pod fits that did not before."""
    return change.new is not None or change.old is None


def always(_pod: PodInfo, _change: ClusterChange) -> bool:
    """Return True: every change of the kind can help."""
    return True
