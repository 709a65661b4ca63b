"""What is known of a node's CPUs, by who published it, and the one judge for all kinds.

| kind | published by | judged by |
|---|---|---|
| ledger | corelane's agent | the ledger: the very CPUs |
| kubelet-replay | corelane's agent beside a kubelet with policy static | as below |
| koordlet | koordlet, kubelet policy none | Koordinator's rules: the very CPUs |
| kubelet-replay | koordlet, kubelet policy static | the kubelet's own algorithm; no CPU ids are written |
| zones | NFD, scheduler-plugins' exporters, gocrane | amounts by NUMA node; no promise of zero rejections |
| totals | nothing | the node's totals alone; pods with exclusive CPUs stay away |
| damaged | invalid | as totals, with a problem to show |

A pod says in Koordinator's words how its CPUs are to lie. A kubelet does not read them: a pod that requires
something is placed only where the kubelet will do so by itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import TranslationError, exported_zones, koordlet, node_labels
from corelane.kube.translate.crane import CraneTopology, crane_zones
from corelane.machine.model import Machine
from corelane.node.admission import capacity_refusal
from corelane.node.config import PoolOptions
from corelane.node.koordinator import admission as koordinator_admission
from corelane.node.kubelet.cpu_manager import pod_cpus
from corelane.node.ledger import Decision, NodeState
from corelane.node.pools import classes
from corelane.node.pools.classes import NodePolicies, pod_class
from corelane.node.recovery.unplaced import record
from corelane.node.zones import alignment
from corelane.node.zones.zone_state import ZonesState, assume
from corelane.reasons import Code, Reason, Refusal
from corelane.scheduler.cluster.zones import CPUState, UncountedState
from corelane.workload import BindPolicy, CPUPolicy, NUMAPolicy, PodQOS
from corelane.workload.request import PodRequest

_EXCLUSIVE: Final = frozenset({PodQOS.LSE, PodQOS.LSR, CPUPolicy.EXCLUSIVE, CPUPolicy.IMMOVABLE})

_LEFT_TO_THE_KUBELET: Final = frozenset({Code.POD_NOT_MULTIPLE_OF_CORE, Code.BIND_POLICY_NEEDS_SMT})
"""Whether CPUs are whole cores is seen by what it chooses; without SMT each CPU is one, and spread too."""


class NodeKind(StrEnum):
    """How a node's CPUs are known; see the table above."""

    LEDGER = "ledger"
    KOORDLET = "koordlet"
    KUBELET_REPLAY = "kubelet-replay"
    ZONES = "zones"
    TOTALS = "totals"
    DAMAGED = "damaged"


_WRITING: Final = frozenset({NodeKind.LEDGER, NodeKind.KOORDLET})


@dataclass(frozen=True, slots=True)
class NodeCPUs:
    """A node's kind, and its state as published, before any claim."""

    kind: NodeKind = NodeKind.TOTALS
    state: CPUState = field(default_factory=UncountedState)
    problem: str = ""
    """Why what was published cannot be used, or not all of it."""
    leased: bool = False
    """Whether exclusive CPUs are applied by an agent that renews a Lease as long as it runs."""

    @property
    def writes_cpus(self) -> bool:
        """Whether a binding names CPUs: some agent on the node carries them out."""
        return self.kind in _WRITING


NOTHING: Final = NodeCPUs()
_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})


def read(
    published: NodeResourceTopology | None,
    labels: Mapping[str, str],
    machine: Machine | None = None,
    reserved_count: int = 0,
    annotations: Mapping[str, str] = _NO_ANNOTATIONS,
    allocatable: int = 0,
) -> NodeCPUs:
    """Return the kind of a node and its state, from its NodeResourceTopology, and its Node's labels and more.

    `machine` is the object's where it is known already; `reserved_count` CPUs are the kubelet's own where
    koordlet does not name them; `allocatable` is the Node's milliCPU where CPUs are amplified. What cannot be
    read makes the node `damaged`, with the fault as problem.
    """
    if published is None:
        return NOTHING
    try:
        return _read(published, labels, machine, reserved_count, annotations, allocatable)
    except TranslationError as error:
        return NodeCPUs(NodeKind.DAMAGED, UncountedState(str(error)), str(error))


def read_crane(published: CraneTopology) -> NodeCPUs:
    """Return the kind of a node with an object of gocrane's only."""
    try:
        return NodeCPUs(NodeKind.ZONES, crane_zones(published))
    except TranslationError as error:
        return NodeCPUs(NodeKind.DAMAGED, UncountedState(str(error)), str(error))


def _read(
    published: NodeResourceTopology,
    labels: Mapping[str, str],
    machine: Machine | None,
    reserved_count: int,
    annotations: Mapping[str, str],
    allocatable: int,
) -> NodeCPUs:
    if not translate.names_cpus(published):
        problem = "; ".join(exported_zones.topology_manager(published).problems)
        return NodeCPUs(NodeKind.ZONES, exported_zones.zones_state(published), problem)
    machine = machine or translate.machine_from_topology(published)
    static = node_labels.published_kubelet(published).policy == "static"
    if not translate.is_koordlets(published):
        ledger = translate.state_from_topology(published, machine)
        if not static or ledger.config.policy != "none":
            leased = ledger.config.policy != "none" and translate.is_leased(published)
            return NodeCPUs(NodeKind.LEDGER, ledger, leased=leased)
    if static:
        state = koordlet.static_state(published, machine, reserved_count)
        return NodeCPUs(NodeKind.KUBELET_REPLAY, state)
    state = koordlet.pools_state(published, machine, labels, annotations, allocatable)
    return NodeCPUs(NodeKind.KOORDLET, state)


def with_settings(former: NodeCPUs, newer: NodeCPUs) -> NodeCPUs:
    """Return the former zones under the settings of a newer object, whose amounts do not count yet."""
    before, after = former.state, newer.state
    assert isinstance(before, ZonesState)
    assert isinstance(after, ZonesState)
    state = replace(before, policy=after.policy, scope=after.scope, max_numa_nodes=after.max_numa_nodes)
    return replace(newer, state=state)


def running(state: CPUState, request: PodRequest, *, recorded: bool = False) -> CPUState:
    """Return the state with a pod that is bound or claimed: a fact, where `admit` might refuse it today.

    With `recorded`, its CPUs are a fact that no ledger has, or this scheduler's own decision, and count as
    taken whatever today's rules say; else it is admitted as the agent on its node will.
    """
    if isinstance(state, ZonesState) and state.crane:
        return alignment.subtract(state, request.zone_cpus)
    if isinstance(state, ZonesState):
        return assume(state, request.uid, alignment.effective(request))
    if not isinstance(state, NodeState):
        return state
    if recorded or state.config.koordinator:
        state = record(state, request)
    return state if state.config.koordinator else nodes.admit(state, request)[0]


def admit(state: CPUState, request: PodRequest) -> tuple[CPUState, Decision]:
    """Return the state with the pod, and the decision; the state is the claim. Alike for all kinds."""
    if isinstance(state, NodeState):
        return _judge(state)(state, request)
    if isinstance(state, ZonesState):
        if state.crane:
            return alignment.crane_admit(state, request)
        refusal = class_refusal_of_kubelet(request)
        return (state, Decision(False, refusal)) if refusal else alignment.admit(state, request)
    if requests_exclusive_cpus(request):
        return state, Decision(False, Reason(Code.NO_CPU_TOPOLOGY, (state.problem,)))
    return state, Decision(True)


def _judge(state: NodeState) -> Callable[[NodeState, PodRequest], tuple[NodeState, Decision]]:
    """Settings that answer exactly as another program does are not those of corelane's agent."""
    if state.config.koordinator is not None:
        return admit_as_koordinator
    return admit_as_kubelet if replays_kubelet(state) else nodes.admit


def admit_as_koordinator(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Gocrane's `cpu-policy` has no word of Koordinator's: such pods are judged as by corelane's agent."""
    if (reason := capacity_refusal(state, request)) is not None:
        return state, Decision(False, reason, shared=state.shared_pool)
    if request.placement_spec.cpu_policy is not None:
        return nodes.admit(state, request)
    return koordinator_admission.admit(state, request)


def requests_exclusive_cpus(request: PodRequest) -> bool:
    """Return whether a pod is to be bound to CPUs, the settings of nodes not considered."""
    if any(map(request.exclusive_cpus, request.containers)):
        return True
    try:
        return pod_class(request, PoolOptions()).bound
    except Refusal:
        return True


# The kubelet: what it will choose, and whether that is enough.


def admit_as_kubelet(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Return the state that the kubelet will be in, and the decision.

    The pod options of the state's settings are the kubelet's policies in Koordinator's words.
    """
    if reason := refusal_of_kubelet(state, request):
        return state, Decision(False, reason, shared=state.shared_pool)
    after, decision = nodes.admit(state, request)
    missed = _missed(after, request, decision)
    return (state, Decision(False, missed, shared=state.shared_pool)) if missed else (after, decision)


def replays_kubelet(state: NodeState) -> bool:
    """Return whether a node is of this kind."""
    return state.config.exact and state.config.policy == "static" and state.config.koordinator is None


def refusal_of_kubelet(state: NodeState, request: PodRequest) -> Reason | None:
    """Return why the pod contradicts the node's settings, whatever runs there."""
    return class_refusal_of_kubelet(request) or _conflict(state, request)


def class_refusal_of_kubelet(request: PodRequest) -> Reason | None:
    """Return why a kubelet cannot serve a pod whose labels name exclusive CPUs: it looks at amounts only."""
    spec = request.placement_spec
    exclusive = [what for what in (spec.qos, spec.cpu_policy) if what in _EXCLUSIVE]
    if not exclusive or any(map(request.exclusive_cpus, request.containers)):
        return None
    return Reason(Code.KUBELET_EXCLUSIVE_CPUS, (str(exclusive[0]),))


def _conflict(state: NodeState, request: PodRequest) -> Reason | None:
    """Return where the pod contradicts the kubelet's options, by Koordinator's rules."""
    here, topology = state.config.pools, state.topology
    resolved = classes.resolve(
        request.placement_spec,
        NodePolicies(here.node_bind, here.strategy, here.numa),
        None,
        cpus=pod_cpus(request),
        threads=topology.cpus_per_core,
        most_threads=topology.threads,
        as_code=True,
    )
    return resolved if isinstance(resolved, Reason) and resolved.code not in _LEFT_TO_THE_KUBELET else None


def _missed(after: NodeState, request: PodRequest, decision: Decision) -> Reason | None:
    """Return which of the pod's requirements the kubelet's choice does not meet."""
    spec, topology = request.placement_spec, after.topology
    masks = [cpus.mask for cpus in decision.assignments.values()]
    if spec.bind_required and spec.bind and not all(_lies(after, spec.bind, mask) for mask in masks):
        return Reason(Code.KOORDINATOR_BIND_POLICY, (spec.bind,))
    pod = 0
    for mask in masks:
        pod |= mask
    if spec.numa is NUMAPolicy.SINGLE_NUMA_NODE and topology.nodes_of(pod).bit_count() > 1:
        return Reason(Code.KOORDINATOR_NUMA)
    return None


def _lies(state: NodeState, bind: BindPolicy, cpus: int) -> bool:
    if bind is BindPolicy.FULL_PCPUS:
        return state.topology.full_cores(cpus) == cpus
    if bind is BindPolicy.SPREAD_BY_PCPUS:
        return state.topology.cores_of(cpus).bit_count() == cpus.bit_count()
    return True
