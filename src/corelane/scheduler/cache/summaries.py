"""What one node offers, as queueing hints compare it before and after a change; and what differs.

A rewrite of an object that leaves a node in an equal state is no change. Where it is cheap to say that a
state only became worse for pods, that is no change either.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from corelane.kube.objects import Taint
from corelane.node import NodeState
from corelane.node.pools.classes import pod_class
from corelane.reasons import Refusal
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.states import CanonicalState
from corelane.scheduler.cache.zone_amounts import ZoneAmounts
from corelane.workload import NUMAPolicy, PodRequest, peak


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
    """Of the pods on the node; None without any."""
    cpus: CanonicalState
    admitted: int
    """MilliCPU that the ledger and the claims request."""
    unknown: bool
    """Whether no pod may get exclusive CPUs; see `NodeInfo.unknown`."""
    ledger: NodeState | None = None
    """As published."""


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


def allocatable_grew(before: NodeSummary, after: NodeSummary) -> bool:
    """Return whether more of some resource is allocatable."""
    return any(amount > before.allocatable.get(name, 0) for name, amount in after.allocatable.items())


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
    if isinstance(old.state, NodeState) and isinstance(new.state, NodeState):
        return _ledger_grew(old.state, new.state, old.amounts, new.amounts)
    return True


def _ledger_grew(
    before: NodeState, after: NodeState, old: tuple[ZoneAmounts, ...], new: tuple[ZoneAmounts, ...]
) -> bool:
    if after.reserved != before.reserved:
        return True
    sets = ("free_exclusive", "shared_pool", "best_effort_pool", "system_pool")
    if any(getattr(after, name).mask & ~getattr(before, name).mask for name in sets):
        return True
    zones = {zone.numa: zone for zone in old}
    return any(_zone_grew(zones[zone.numa], zone) for zone in new)


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
