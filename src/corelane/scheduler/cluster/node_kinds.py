"""Nodes by who published their CPUs: the one judge for all kinds, and what is left on each NUMA node.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import TranslationError, exported_zones, koordlet, node_labels
from corelane.kube.translate.crane import CraneTopology, crane_zones
from corelane.machine.model import Machine
from corelane.node.admission import capacity_refusal
from corelane.node.config import NodeConfig
from corelane.node.koordinator import admission as koordinator_admission
from corelane.node.koordinator.zone_shares import left_by_zone
from corelane.node.kubelet.cpu_manager import pod_cpus
from corelane.node.ledger import Decision, NodeState
from corelane.node.managers import held
from corelane.node.pools import classes
from corelane.node.pools.classes import NodePolicies, requests_exclusive_cpus
from corelane.node.recovery.unplaced import record
from corelane.node.zone_needs import CORES, FREE, L3, WHOLE
from corelane.node.zones import alignment
from corelane.node.zones.zone_state import Zone, ZonesState, assume
from corelane.placement.memory_blocks import MEMORY
from corelane.reasons import Code, Reason
from corelane.workload import BindPolicy, CPUPolicy, NUMAPolicy, PodQOS
from corelane.workload.request import Amounts, PodRequest

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
class UncountedState:
    """A node of whose CPUs nothing is known by NUMA node; `problem` is "" where nothing is published."""

    problem: str = ""


CPUState: TypeAlias = NodeState | ZonesState | UncountedState
"""What `admit` decides on. All are frozen."""


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
    except TranslationError as error:
        return NodeCPUs(NodeKind.DAMAGED, UncountedState(str(error)), str(error))


def read_crane(published: CraneTopology) -> NodeCPUs:
    """Return the kind of a node with an object of gocrane's only."""
    try:
        return NodeCPUs(NodeKind.ZONES, crane_zones(published))
    except TranslationError as error:
        return NodeCPUs(NodeKind.DAMAGED, UncountedState(str(error)), str(error))


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
        # Settings that answer exactly as another program does are not those of corelane's agent.
        if state.config.koordinator is not None:
            return admit_as_koordinator(state, request)
        return (admit_as_kubelet if replays_kubelet(state) else nodes.admit)(state, request)
    if isinstance(state, ZonesState):
        if state.crane:
            return alignment.crane_admit(state, request)
        refusal = class_refusal_of_kubelet(request)
        return (state, Decision(False, refusal)) if refusal else alignment.admit(state, request)
    if requests_exclusive_cpus(request):
        return state, Decision(False, Reason(Code.NO_CPU_TOPOLOGY, (state.problem,)))
    return state, Decision(True)


def admit_as_koordinator(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Gocrane's `cpu-policy` has no word of Koordinator's: such pods are judged as by corelane's agent."""
    if (reason := capacity_refusal(state, request)) is not None:
        return state, Decision(False, reason, shared=state.shared_pool)
    if request.placement_spec.cpu_policy is not None:
        return nodes.admit(state, request)
    return koordinator_admission.admit(state, request)


def is_amplified(config: NodeConfig) -> bool:
    """Return whether more CPUs are allocatable on nodes with these settings than they have."""
    return config.policy == "pools" and config.pools.amplification > 1


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
    if refusal := class_refusal_of_kubelet(request):
        return refusal
    here, topology = state.config.pools, state.topology
    resolved = classes.resolve(
        request.placement_spec,
        NodePolicies(here.node_bind, here.strategy, here.numa),  # the kubelet's options
        None,
        cpus=pod_cpus(request),
        threads=topology.cpus_per_core,
        most_threads=topology.threads,
        as_code=True,
    )
    return resolved if isinstance(resolved, Reason) and resolved.code not in _LEFT_TO_THE_KUBELET else None


def class_refusal_of_kubelet(request: PodRequest) -> Reason | None:
    """Return why a kubelet cannot serve a pod whose labels name exclusive CPUs: it looks at amounts only."""
    spec = request.placement_spec
    exclusive = [what for what in (spec.qos, spec.cpu_policy) if what in _EXCLUSIVE]
    if not exclusive or any(map(request.exclusive_cpus, request.containers)):
        return None
    return Reason(Code.KUBELET_EXCLUSIVE_CPUS, (str(exclusive[0]),))


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


# What is left on each NUMA node, as plain numbers: the columns are made of these.


HUGEPAGES: Final = "hugepages-"
_NONE: Final[Amounts] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ZoneAmounts:
    """What a pod could still get from one NUMA node. None is an amount that is not counted by NUMA node."""

    numa: int
    """Id of the NUMA node."""
    cpu: int
    """MilliCPU that may still become exclusive; of zones without CPU ids, what the exporter has left."""
    cores: int | None = None
    """Cores of which every CPU is free."""
    memory: int | None = None
    """Bytes that may still be allocated here."""
    hugepages: Amounts = field(default_factory=lambda: _NONE)
    """Resource name (`hugepages-2Mi`) to bytes."""
    devices: Amounts = field(default_factory=lambda: _NONE)
    """Extended resource to count."""
    whole: int | None = None
    """CPUs of the cores of which every CPU is free."""
    touchable: int | None = None
    """Cores with a CPU that may become exclusive."""
    quiet: int | None = None
    """CPUs that may become exclusive, in L3 domains where no pod has CPUs."""

    @property
    def cpus(self) -> int:
        """Whole CPUs."""
        return self.cpu // 1000


def zone_amounts(state: CPUState) -> tuple[ZoneAmounts, ...]:
    """Return what is left by NUMA node, in the order of the machine; () where nothing is known.

    Amounts are upper bounds: `admit` gives no pod more of a NUMA node than this. Of a ZonesState
    they bind Guaranteed pods, and devices of all pods, and only under policy single-numa-node.
    """
    if isinstance(state, NodeState):
        return tuple(_of_ledger(state))
    if isinstance(state, ZonesState):
        return tuple(map(_of_zone, state.free))
    return ()


def _of_ledger(state: NodeState) -> Iterator[ZoneAmounts]:
    free = state.free_exclusive.mask
    topology = state.topology
    full = topology.full_cores(free) if free else 0
    devices = _devices_by_node(state)
    # CPUs of L3 domains where no pod has CPUs.
    quiet = free & sum(cpus for _, cpus in state.machine.l3_masks if not cpus & state.bound.mask)
    numa = dict(zip(topology.numa_ids, topology.numa, strict=True))
    for node in state.machine.nodes:
        cpus = numa.get(node.id, 0)
        memory = state.memory.get(node.id)
        yield ZoneAmounts(
            node.id,
            1000 * (free & cpus).bit_count(),
            topology.cores_of(full & cpus).bit_count(),
            memory.free.get(MEMORY, 0) if memory else None,
            {name: size for name, size in memory.free.items() if name != MEMORY} if memory else _NONE,
            devices.get(node.id, _NONE),
            (full & cpus).bit_count(),
            topology.cores_of(free & cpus).bit_count(),
            (quiet & cpus).bit_count(),
        )


def free_devices(state: NodeState) -> dict[str, int]:
    """Return how many devices of each resource no pod has."""
    used = held(state.entries.values()) if state.config.devices else {}
    return {name: len(of.keys() - used.get(name, set())) for name, of in state.config.devices.items()}


def _devices_by_node(state: NodeState) -> Mapping[int, dict[str, int]]:
    """NUMA node to the free devices near it; one whose place is unknown counts everywhere."""
    if not state.config.devices:
        return {}
    used = held(state.entries.values())
    counts = {node.id: dict.fromkeys(state.config.devices, 0) for node in state.machine.nodes}
    for resource, inventory in state.config.devices.items():
        for device, near in inventory.items():
            if device in used.get(resource, ()):
                continue
            for node, here in counts.items():
                here[resource] += not near or near >> node & 1
    return counts


def _of_zone(zone: Zone) -> ZoneAmounts:
    available = zone.available
    return ZoneAmounts(
        zone.id,
        available.get("cpu", 0),
        memory=available.get(MEMORY),
        hugepages={name: amount for name, amount in available.items() if name.startswith(HUGEPAGES)},
        devices={name: amount for name, amount in available.items() if "/" in name},
    )


# What is left of each resource on each NUMA node of a state as one array, and of the node as a whole.
#
# Row 0 is the node as a whole, each other row one NUMA node. Amounts are upper bounds: `admit`
# gives no pod more, so a pod that needs more is rejected. An amount that is not counted by NUMA node is
# `UNLIMITED`.


UNLIMITED: Final = 1 << 60
_NOTHING: Final = (0, 0, 0, 0)
_NOT_COUNTED: Final = UNLIMITED >> 16
"""As good as unlimited, and so is the sum over NUMA nodes."""
_FIXED: Final = (FREE, WHOLE, CORES, L3)
MOST_RESOURCES: Final = 64
"""Resources with a column; others are left to `admit`."""


class ResourceIndex:
    """Numbers the columns of a table; resources are added as they appear, and keep their column."""

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns = {name: number for number, name in enumerate(_FIXED)}

    def __len__(self) -> int:
        return len(self._columns)

    def column(self, name: str) -> int | None:
        """Return the column of a resource, which is added if it is new; None where there are too many."""
        number = self._columns.get(name)
        if number is None and len(self._columns) < MOST_RESOURCES:
            number = self._columns[name] = len(self._columns)
        return number

    def vector(self, amounts: Amounts) -> NDArray[np.int64]:
        """Return amounts by column; resources without one are left out."""
        columns = [(self.column(name), amount) for name, amount in amounts.items()]
        vector = np.zeros(len(self._columns), dtype=np.int64)
        for column, amount in columns:
            if column is not None:
                vector[column] = min(amount, UNLIMITED)
        return vector


def table_of(state: CPUState, amounts: Sequence[ZoneAmounts], index: ResourceIndex) -> NDArray[np.int64]:
    """Return the table of a state, whose amounts by NUMA node these are."""
    named = _named(state, amounts)
    zones = [_fixed(one) for one in amounts] + [_NOTHING] * (len(named) - len(amounts))
    columns = {name: index.column(name) for here in named for name in here}
    beyond = [UNLIMITED] * (len(index) - len(_FIXED))
    rows = [[*map(sum, zip(_NOTHING, *zones, strict=True)), *beyond], *([*zone, *beyond] for zone in zones)]
    totals = free_devices(state) if columns and isinstance(state, NodeState) else {}
    for name, column in columns.items():
        if column is not None:
            here = [max(0, min(one.get(name, 0), UNLIMITED)) for one in named]
            rows[0][column] = min(totals.get(name, sum(here)), UNLIMITED)
            for row, amount in zip(rows[1:], here, strict=True):
                row[column] = amount
    return np.array(rows, dtype=np.int64)


def _fixed(zone: ZoneAmounts) -> tuple[int, int, int, int]:
    whole, touchable, quiet = zone.whole, zone.touchable, zone.quiet
    if whole is None or touchable is None or quiet is None:
        return max(0, zone.cpus), _NOT_COUNTED, _NOT_COUNTED, _NOT_COUNTED
    return zone.cpus, whole, touchable, quiet


def _named(state: CPUState, amounts: Sequence[ZoneAmounts]) -> list[Mapping[str, int]]:
    """Memory, huge pages, devices and others by name, in the order of the NUMA nodes, then of other zones."""
    if isinstance(state, ZonesState):
        return [zone.available for zone in state.free]
    if isinstance(state, NodeState) and state.config.koordinator is not None:
        left = left_by_zone(state)
        numbered = [left.pop(one.numa, {}) for one in amounts]
        return numbered + list(left.values())
    return [dict(_named_of_ledger(one)) for one in amounts] if isinstance(state, NodeState) else []


def _named_of_ledger(zone: ZoneAmounts) -> Iterator[tuple[str, int]]:
    if zone.memory is not None:
        yield "memory", zone.memory
    yield from zone.hugepages.items()
    yield from zone.devices.items()
