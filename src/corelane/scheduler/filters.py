"""The filters: may this pod run on that node? Reasons are kube-scheduler's, so that people know them."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from corelane.kube.meta import Wire
from corelane.kube.objects import Taint
from corelane.kube.pod import Pod
from corelane.node import Decision
from corelane.node.pools.binding import INSUFFICIENT_CPUS
from corelane.scheduler import matching
from corelane.scheduler.cluster import NodeInfo, PodInfo
from corelane.scheduler.plugins import Cycle, Filter, PreFilter, Wake
from corelane.workload import NUMAPolicy

__all__ = ["FILTERS", "PREFILTERS"]

_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
_TOLD_IN_FULL: Final = frozenset(
    {"CPUPolicyConflict", "NUMAPolicyConflict", "InvalidCPURequest", "SMTAlignmentError", "CoreKindMissing"}
)
"""Reasons of the ledger whose messages say the same of all nodes that are set up alike."""


_AMPLIFIED: Final = "Insufficient amplified cpu"
_NOT_ENOUGH: Final = "not enough cpus available to satisfy request"
_NOT_AS_REQUIRED: Final = "insufficient CPUs to satisfy required cpu bind policy"
_NOT_ON_NODES: Final = "node(s) Insufficient NUMA Node resources"
_ALIGNED: Final = tuple(f"{policy}: " for policy in NUMAPolicy if policy)


class _PodAffinity(Wire, frozen=True):
    required: list[msgspec.Raw] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class _Spread(Wire, frozen=True):
    when_unsatisfiable: str = ""


def understood(info: PodInfo) -> str:
    return info.problem


def supported(info: PodInfo) -> str:
    """Demands that this scheduler does not weigh must not be passed over in silence."""
    try:
        return "; ".join(_unsupported(info.pod))
    except msgspec.MsgspecError as error:
        return f"affinity or topologySpreadConstraints cannot be read: {error}"


def _unsupported(pod: Pod) -> Iterator[str]:
    affinity = pod.spec.affinity
    if affinity and any(map(_demands, (affinity.pod_affinity, affinity.pod_anti_affinity))):
        yield "required affinity to other pods is not supported: make it preferred, or use another scheduler"
    if _must_spread(pod.spec.topology_spread_constraints):
        yield "topologySpreadConstraints are supported with whenUnsatisfiable: ScheduleAnyway only"


def _demands(raw: msgspec.Raw) -> bool:
    affinity = msgspec.json.decode(raw, type=_PodAffinity | None) if bytes(raw) else None
    return affinity is not None and bool(affinity.required)


def _must_spread(raw: msgspec.Raw) -> bool:
    spreads = msgspec.json.decode(raw, type=list[_Spread] | None) if bytes(raw) else None
    return any(spread.when_unsatisfiable != "ScheduleAnyway" for spread in spreads or ())


def node_unschedulable(cycle: Cycle, node: NodeInfo) -> Iterable[str]:
    assert node.node is not None
    tolerations = cycle.info.pod.spec.tolerations
    if node.node.spec.unschedulable and not matching.tolerated(_UNSCHEDULABLE, tolerations):
        yield "node(s) were unschedulable"


def taint_toleration(cycle: Cycle, node: NodeInfo) -> Iterable[str]:
    assert node.node is not None
    if taint := matching.untolerated(cycle.info.pod, node.node):
        yield f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"


def node_affinity(cycle: Cycle, node: NodeInfo) -> Iterable[str]:
    assert node.node is not None
    if not matching.matches_required_affinity(cycle.info.pod, node.node):
        yield "node(s) didn't match Pod's node affinity/selector"


def resources_fit(cycle: Cycle, node: NodeInfo) -> Iterable[str]:
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        yield "Too many pods"
    for name, wanted in sorted(cycle.info.requests.items()):
        if name == "cpu" and node.amplified:
            continue  # its ledger knows what a CPU counts for
        if wanted > 0 and wanted > node.allocatable.get(name, 0) - node.requested.get(name, 0):
            yield f"Insufficient {name}"


def cpus_fit(cycle: Cycle, node: NodeInfo) -> Iterable[str]:
    """Ask the node's ledger, as its agent will: exclusive CPUs, NUMA nodes, and the shared pool."""
    request = cycle.info.request
    assert request is not None
    answer = node.admission(request, cycle.shape)
    if answer is None:
        if cycle.info.binds:
            yield _unknown_cpus(node)
        return
    decision = answer[1]
    if decision.admitted:
        cycle.admitted[node.name] = answer
        return
    if decision.reason == INSUFFICIENT_CPUS:
        cycle.lacking[node.name] = answer[0]
    yield _refusal(decision, cycle.info)


def _refusal(decision: Decision, info: PodInfo) -> str:
    """In words that are the same for all nodes with the same reason, so that they can be counted.

    What stands before a colon is Koordinator's, where it has such a reason, and behind it what is the case.
    """
    match decision.reason:
        case "OutOfcpu":
            return _AMPLIFIED if decision.message.startswith(_AMPLIFIED) else "Insufficient cpu"
        case reason if reason == INSUFFICIENT_CPUS:
            return _too_few(decision.message.partition(" (")[0], info)
        case "InsufficientNUMA":
            return decision.message.partition(": ")[0]
        case "SharedPoolExhausted":
            return "node(s) had no CPU left for the shared pool"
        case "BestEffortExhausted":
            return "node(s) had too few CPUs left for best effort"
        case reason if reason in _TOLD_IN_FULL:
            return decision.message
    return f"node(s) had too few CPUs free for exclusive use ({info.exclusive_cpus} wanted)"


def _too_few(why: str, info: PodInfo) -> str:
    assert info.request is not None
    placement_spec = info.request.placement_spec
    if why.startswith((_NOT_ENOUGH, _NOT_AS_REQUIRED, _NOT_ON_NODES)):
        return why
    if why.startswith(_ALIGNED):
        return f"{_NOT_ON_NODES}: {why}"
    known = (
        f"{_NOT_AS_REQUIRED} {placement_spec.bind}"
        if placement_spec.bind_required and placement_spec.bind
        else _NOT_ENOUGH
    )
    return f"{known}: {why}"


def _unknown_cpus(node: NodeInfo) -> str:
    published = f"what is published is broken ({node.problem})" if node.problem else "none is published"
    return f"node(s) invalid CPU Topology: {published}, so no CPUs can be bound"


PREFILTERS: Final = (PreFilter("Understood", understood), PreFilter("Supported", supported))
FILTERS: Final = (
    Filter("NodeUnschedulable", node_unschedulable, Wake.NODE),
    Filter("TaintToleration", taint_toleration, Wake.NODE),
    Filter("NodeAffinity", node_affinity, Wake.NODE),
    Filter("NodeResourcesFit", resources_fit, Wake.NODE | Wake.FREED),
    Filter("CPULanes", cpus_fit, Wake.NODE | Wake.FREED | Wake.LEDGER),
)
