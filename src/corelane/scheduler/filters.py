"""Pre-filters and filters: may this pod run on that node? The rules and texts are kube-scheduler's.

A pre-filter looks at the pod alone and returns why no node can run it. A filter yields the reasons why a pod
cannot run on a node, none if it can; only the first filter with reasons counts. `cpus_fit` asks the node's
ledger, as its agent will, and leaves the answer in the `Cycle` for scores and binding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import msgspec

from corelane.kube.meta import Wire
from corelane.kube.objects import Node, Taint
from corelane.kube.pod import NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration
from corelane.node import Decision, NodeState
from corelane.reasons import Code, Reason, label, sentence
from corelane.scheduler.node_cache import NodeInfo, PodInfo
from corelane.scheduler.queue import Wake

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")
_SAME_EVERYWHERE: Final = frozenset(
    {"CPUPolicyConflict", "NUMAPolicyConflict", "InvalidCPURequest", "SMTAlignmentError", "CoreKindMissing"}
)
"""Labels of refusals whose sentences are equal for all nodes with equal settings."""
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


@dataclass(slots=True)
class Cycle:
    """One attempt to place one pod; filters add what later steps need."""

    info: PodInfo
    shape: str
    admitted: dict[str, tuple[NodeState, Decision]] = field(default_factory=dict)
    """Node name to its state with the pod, and the decision, for nodes with a ledger."""
    lacking: dict[str, NodeState] = field(default_factory=dict)
    """Node name to its state, for nodes that only lack CPUs."""


class NodeReason(NamedTuple):
    """Why a node cannot run a pod: a text that many nodes share, and what differs between nodes."""

    text: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.detail}" if self.detail else self.text


PreFilter: TypeAlias = Callable[[PodInfo], str]
"""Returns why no node can run the pod, or ""."""


@dataclass(frozen=True, slots=True)
class Filter:
    """`reasons` yields why a pod cannot run on a node; the changes in `helped_by` can alter its result."""

    name: str
    reasons: Callable[[Cycle, NodeInfo], Iterable[NodeReason]]
    helped_by: Wake


class _PodAffinity(Wire, frozen=True):
    required: list[msgspec.Raw] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class _Spread(Wire, frozen=True):
    when_unsatisfiable: str = ""


def valid(info: PodInfo) -> str:
    """Reject a pod with an invalid quantity, label or annotation."""
    return info.problem


def supported(info: PodInfo) -> str:
    """Reject a pod with hard requirements that this scheduler does not implement."""
    try:
        return "; ".join(_unsupported(info.pod))
    except msgspec.MsgspecError as error:
        return f"affinity or topologySpreadConstraints cannot be read: {error}"


def _unsupported(pod: Pod) -> Iterator[str]:
    affinity = pod.spec.affinity
    if affinity and any(map(_has_required, (affinity.pod_affinity, affinity.pod_anti_affinity))):
        yield "required affinity to other pods is not supported: make it preferred, or use another scheduler"
    if _must_spread(pod.spec.topology_spread_constraints):
        yield "topologySpreadConstraints are supported with whenUnsatisfiable: ScheduleAnyway only"


def _has_required(raw: msgspec.Raw) -> bool:
    affinity = msgspec.json.decode(raw, type=_PodAffinity | None) if bytes(raw) else None
    return affinity is not None and bool(affinity.required)


def _must_spread(raw: msgspec.Raw) -> bool:
    spreads = msgspec.json.decode(raw, type=list[_Spread] | None) if bytes(raw) else None
    return any(spread.when_unsatisfiable != "ScheduleAnyway" for spread in spreads or ())


# Taints and tolerations.


def node_unschedulable(cycle: Cycle, node: NodeInfo) -> Iterable[NodeReason]:
    """Reject a cordoned node, unless the pod tolerates it."""
    assert node.node is not None
    tolerations = cycle.info.pod.spec.tolerations
    if node.node.spec.unschedulable and not tolerated(_UNSCHEDULABLE, tolerations):
        yield NodeReason("node(s) were unschedulable")


def taint_toleration(cycle: Cycle, node: NodeInfo) -> Iterable[NodeReason]:
    """Reject a node with a taint that the pod does not tolerate."""
    if taint := untolerated(cycle.info.pod, node.taints):
        yield NodeReason(f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}")


def untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps the pod off the node."""
    tolerations = pod.spec.tolerations
    repelling = (taint for taint in taints if taint.effect in _REPELLING)
    return next((taint for taint in repelling if not tolerated(taint, tolerations)), None)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Return whether a toleration matches the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Upstream's `ToleratesTaint`: an empty effect or key (with Exists) matches all."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value


# Node selector and node affinity.


def node_affinity(cycle: Cycle, node: NodeInfo) -> Iterable[NodeReason]:
    """Reject a node that the pod's node selector or required node affinity does not match."""
    assert node.node is not None
    if not matches_required_affinity(cycle.info.pod, node.node):
        yield NodeReason("node(s) didn't match Pod's node affinity/selector")


def matches_required_affinity(pod: Pod, node: Node) -> bool:
    """Return whether the pod's node selector and required node affinity match the node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if not affinity or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in affinity.required.node_selector_terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether all of the term's requirements match; an empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_matches(rule, node.metadata.labels) for rule in term.match_expressions) and all(
        _matches(rule, fields) for rule in term.match_fields
    )


def _matches(rule: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(rule.key)
    match rule.operator:
        case "In":
            return value in rule.values if value is not None else False
        case "NotIn":
            return value not in rule.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(rule, value)
    return False


def _compares(rule: NodeSelectorRequirement, value: str | None) -> bool:
    if value is None or len(rule.values) != 1:
        return False
    try:
        number, bound = int(value), int(rule.values[0])
    except ValueError:
        return False
    return number > bound if rule.operator == "Gt" else number < bound


# Amounts and CPUs.


def resources_fit(cycle: Cycle, node: NodeInfo) -> Iterable[NodeReason]:
    """Reject a node with too little of a requested resource."""
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        yield NodeReason("Too many pods")
    for name, requested in sorted(cycle.info.requests.items()):
        if name == "cpu" and node.amplified:
            continue  # Its ledger checks amplified CPUs.
        if requested > 0 and requested > node.allocatable.get(name, 0) - node.requested.get(name, 0):
            yield NodeReason(f"Insufficient {name}")


def cpus_fit(cycle: Cycle, node: NodeInfo) -> Iterable[NodeReason]:
    """Reject a node whose ledger does not admit the pod: exclusive CPUs, NUMA nodes, shared pool."""
    request = cycle.info.request
    assert request is not None
    admission = node.admission(request, cycle.shape)
    if admission is None:
        if cycle.info.binds:
            yield _unknown_cpus(node)
        return
    state, decision = admission
    if decision.admitted:
        cycle.admitted[node.name] = admission
        return
    assert decision.refusal is not None
    if decision.refusal.code is Code.INSUFFICIENT_CPUS:
        cycle.lacking[node.name] = state
    yield _refusal(decision.refusal, cycle.info)


def _refusal(refusal: Reason, info: PodInfo) -> NodeReason:
    """Koordinator's or kube-scheduler's text where there is one, with the ledger's reason as the detail."""
    if refusal.code in _SHORT:
        return NodeReason(_SHORT[refusal.code])
    if refusal.code is Code.INSUFFICIENT_CPUS:
        return _too_few(refusal.values[0], info)
    if label(refusal) in _SAME_EVERYWHERE:
        return NodeReason(sentence(refusal))
    return NodeReason(f"node(s) had too few CPUs free for exclusive use ({info.exclusive_cpus} requested)")


def _too_few(cause: Reason, info: PodInfo) -> NodeReason:
    """Koordinator's text, or the nearest one to the optimal allocator's cause."""
    assert info.request is not None
    if cause.code in _OF_KOORDINATOR:
        return NodeReason(sentence(cause))
    spec = info.request.placement_spec
    if cause.values[0] == "numa":
        nearest = Reason(Code.KOORDINATOR_NUMA)
    elif spec.bind_required and spec.bind:
        nearest = Reason(Code.KOORDINATOR_BIND_POLICY, (spec.bind,))
    else:
        nearest = Reason(Code.KOORDINATOR_NOT_ENOUGH)
    return NodeReason(sentence(nearest), sentence(cause))


def _unknown_cpus(node: NodeInfo) -> NodeReason:
    topology = f"invalid NodeResourceTopology ({node.problem})" if node.problem else "no NodeResourceTopology"
    return NodeReason("node(s) invalid CPU Topology", f"{topology}, so that no CPUs can be bound")


PREFILTERS: Final[tuple[PreFilter, ...]] = (valid, supported)
FILTERS: Final = (
    Filter("NodeUnschedulable", node_unschedulable, Wake.NODE),
    Filter("TaintToleration", taint_toleration, Wake.NODE),
    Filter("NodeAffinity", node_affinity, Wake.NODE),
    Filter("NodeResourcesFit", resources_fit, Wake.NODE | Wake.FREED),
    Filter("CPUsFit", cpus_fit, Wake.NODE | Wake.FREED | Wake.LEDGER),
)
"""Cheap filters first."""
