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
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import TranslationError, exported_zones, koordlet_state, node_labels
from corelane.kube.translate.crane import CraneTopology, crane_zones
from corelane.machine.model import Machine
from corelane.node import Decision, NodeState, PoolOptions
from corelane.node.admission import capacity_refusal
from corelane.node.koordinator import admission as koordinator_admission
from corelane.node.pools.classes import pod_class
from corelane.node.recovery.recorded import record
from corelane.node.zones import alignment, crane
from corelane.node.zones.zone_state import ZonesState, assume
from corelane.reasons import Code, Reason, Refusal
from corelane.scheduler.cache import kubelet_replay
from corelane.scheduler.cache.zone_amounts import CPUState, UncountedState, ZoneAmounts, zone_amounts
from corelane.workload import PodRequest

__all__ = [
    "CPUState",
    "NodeCPUs",
    "NodeKind",
    "UncountedState",
    "ZoneAmounts",
    "admit",
    "read",
    "read_crane",
    "requests_exclusive_cpus",
    "running",
    "zone_amounts",
]


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
        state = koordlet_state.static_state(published, machine, reserved_count)
        return NodeCPUs(NodeKind.KUBELET_REPLAY, state)
    state = koordlet_state.pools_state(published, machine, labels, annotations, allocatable)
    return NodeCPUs(NodeKind.KOORDLET, state)


def with_settings(known: NodeCPUs, newer: NodeCPUs) -> NodeCPUs:
    """Return the former zones under the settings of a newer object, whose amounts do not count yet."""
    before, after = known.state, newer.state
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
        return crane.subtract(state, request.zone_cpus)
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
            return crane.admit(state, request)
        refusal = kubelet_replay.class_refusal(request)
        return (state, Decision(False, refusal)) if refusal else alignment.admit(state, request)
    if requests_exclusive_cpus(request):
        return state, Decision(False, Reason(Code.NO_CPU_TOPOLOGY, (state.problem,)))
    return state, Decision(True)


def _judge(state: NodeState) -> Callable[[NodeState, PodRequest], tuple[NodeState, Decision]]:
    """Settings that answer exactly as another program does are not those of corelane's agent."""
    if state.config.koordinator is not None:
        return _admit_as_koordinator
    return kubelet_replay.admit if kubelet_replay.replayed(state) else nodes.admit


def _admit_as_koordinator(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
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
