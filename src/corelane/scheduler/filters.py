"""The filters: may this pod run on that node? Reasons are kube-scheduler's, so that people know them."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from corelane.kube.meta import Wire
from corelane.kube.objects import Taint
from corelane.kube.pod import Pod
from corelane.reasons import Code, Reason, label, sentence
from corelane.scheduler import matching
from corelane.scheduler.cluster import NodeInfo, PodInfo
from corelane.scheduler.plugins import Cycle, Filter, PreFilter, Wake

__all__ = ["FILTERS", "PREFILTERS"]

_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
_SAME_EVERYWHERE: Final = frozenset(
    {"CPUPolicyConflict", "NUMAPolicyConflict", "InvalidCPURequest", "SMTAlignmentError", "CoreKindMissing"}
)
"""Words of refusals whose messages are the same for all nodes that are set up alike."""
_OF_KOORDINATOR: Final = frozenset(
    {Code.KOORDINATOR_NOT_ENOUGH, Code.KOORDINATOR_BIND_POLICY, Code.KOORDINATOR_NUMA}
)
_SHORT: Final = {
    Code.OUT_OF_CPU: "Insufficient cpu",
    Code.OUT_OF_AMPLIFIED_CPU: "Insufficient amplified cpu",
    Code.INSUFFICIENT_NUMA: sentence(Reason(Code.KOORDINATOR_NUMA)),
    Code.SHARED_POOL_EXHAUSTED: "node(s) had no CPU left for the shared pool",
    Code.BEST_EFFORT_EXHAUSTED: "node(s) had too few CPUs left for best effort",
}
"""kube-scheduler's or Koordinator's text where there is one."""


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
    assert decision.refusal is not None
    if decision.refusal.code is Code.INSUFFICIENT_CPUS:
        cycle.lacking[node.name] = answer[0]
    yield _refusal(decision.refusal, cycle.info)


def _refusal(refusal: Reason, info: PodInfo) -> str:
    """In words that are the same for all nodes with the same reason, so that they can be counted.

    What stands before a colon is Koordinator's, where it has such a reason, and behind it what is the case.
    """
    if refusal.code in _SHORT:
        return _SHORT[refusal.code]
    if refusal.code is Code.INSUFFICIENT_CPUS:
        return _too_few(refusal.values[0], info)
    if label(refusal) in _SAME_EVERYWHERE:
        return sentence(refusal)
    return f"node(s) had too few CPUs free for exclusive use ({info.exclusive_cpus} requested)"


def _too_few(cause: Reason, info: PodInfo) -> str:
    """Koordinator's own text, or the one that comes nearest to the optimal allocator's cause."""
    assert info.request is not None
    if cause.code in _OF_KOORDINATOR:
        return sentence(cause)
    spec = info.request.placement_spec
    if cause.values[0] == "numa":
        near = Reason(Code.KOORDINATOR_NUMA)
    elif spec.bind_required and spec.bind:
        near = Reason(Code.KOORDINATOR_BIND_POLICY, (spec.bind,))
    else:
        near = Reason(Code.KOORDINATOR_NOT_ENOUGH)
    return f"{sentence(near)}: {sentence(cause)}"


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
