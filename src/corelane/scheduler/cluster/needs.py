"""What a pod of some shape needs at least of a node with given settings: necessary conditions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corelane.node import managers, memory_manager
from corelane.node.config import Inventory
from corelane.node.entries import Sharing
from corelane.node.koordinator.pod_demand import PodDemand, pod_amounts, pod_demand
from corelane.node.kubelet import cpu_manager
from corelane.node.ledger import NodeState
from corelane.node.pools.binding import Binding
from corelane.node.pools.classes import PodClass, pod_class
from corelane.node.pools.pool_admission import binding_of, policies_of
from corelane.node.pools.zones import check_rules_need_cpus, fewest_idle
from corelane.node.zones import alignment
from corelane.node.zones.zone_state import ZonesState
from corelane.placement.optimal.demand import Resource
from corelane.reasons import Refusal
from corelane.scheduler.cluster import node_kinds
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.node_kinds import requests_exclusive_cpus
from corelane.scheduler.cluster.pods import Shape
from corelane.scheduler.cluster.states import CanonicalState, Fact
from corelane.scheduler.cluster.zones import CORES, FREE, L3, WHOLE, ResourceIndex, UncountedState
from corelane.workload import BindPolicy, NUMAPolicy, TopologyLevel
from corelane.workload.request import Amounts, ContainerKind, ContainerRequest, PodRequest, QOSClass, peak

# What a pod needs of a node, and of one of its NUMA nodes, at least: necessary conditions by kind of node.
#
# A pod that `node_kinds.admit` accepts finds all of this, whatever else is on the node. What is not certain
# is left out: what init containers leave to others, sets of several NUMA nodes, preferences.


_STRICT: Final = (NUMAPolicy.RESTRICTED, NUMAPolicy.SINGLE_NUMA_NODE)


@dataclass(frozen=True, slots=True)
class ZoneNeeds:
    """Amounts by the names of a table's columns; see `zone_table`."""

    node: Amounts = field(default_factory=dict)
    """Of the node as a whole."""
    zones: tuple[Amounts, ...] = ()
    """Each of these of some NUMA node, which may be the same for several."""


# The kubelet's managers.


def of_static(state: NodeState, request: PodRequest) -> ZoneNeeds:
    """Return the needs under policies static and none, as CPU, memory and device manager judge the pod."""
    more = managers.needed(state, request)
    if request.level is not None and cpu_manager.applies(state, request):
        parts = [_as_one(state, request, more)]
        node = parts[0]
    else:
        sizes = [n for _, n in exclusive_sizes(state, request)]
        parts = [{FREE: n, **_more(one, more)} for one, n in zip(request.containers, sizes, strict=True)]
        node = _peaks([(one.kind, part) for one, part in zip(request.containers, parts, strict=True)])
        if state.config.numa.scope == "pod":
            parts = [_of_pod(state, request, more)]
    return ZoneNeeds(_without(node, FREE), tuple(_aligned(state, part) for part in parts))


def exclusive_sizes(state: NodeState, request: PodRequest) -> list[tuple[ContainerKind, int]]:
    """Return the CPUs that the kubelet's CPU manager allocates, by container, or to the pod as one piece."""
    if state.config.policy == "none":
        return [(one.kind, 0) for one in request.containers]
    if request.level is not None and cpu_manager.applies(state, request):
        return [(ContainerKind.APP, cpu_manager.whole_cpus(state, request))]
    gate = state.config.pod_level
    return [(one.kind, request.exclusive_cpus(one, gate=gate)) for one in request.containers]


def _more(container: ContainerRequest, more: managers.Managers | None) -> Amounts:
    """The memory and devices of a container."""
    amounts = dict(more.memory_wanted(container)) if more and more.memory else {}
    return amounts | (more.devices.wanted(container) if more and more.devices else {})


def _of_pod(state: NodeState, request: PodRequest, more: managers.Managers | None) -> dict[str, int]:
    """What is aligned as a whole under scope `pod`."""
    amounts = {FREE: 0 if state.config.policy == "none" else cpu_manager.pod_cpus(request)}
    if more and more.memory:
        amounts |= memory_manager.of_pod(request)
    if more and more.devices:
        amounts |= more.devices.of_pod(request)
    return amounts


def _as_one(state: NodeState, request: PodRequest, more: managers.Managers | None) -> Amounts:
    """What a pod gets as one piece."""
    assert request.level is not None
    amounts = {FREE: cpu_manager.whole_cpus(state, request)}
    if more and more.memory:
        amounts |= memory_manager.wanted(request.level)
    if more and more.devices:
        amounts |= more.devices.of_pod(request)
    return amounts


def _aligned(state: NodeState, part: Amounts) -> Amounts:
    """What of a part must come from one NUMA node."""
    if state.config.numa.policy == "single-numa-node":
        return part
    if state.config.numa.policy != "restricted":
        return {}
    return dict(_narrow(state, part))


def _narrow(state: NodeState, part: Amounts) -> Iterator[tuple[str, int]]:
    """Amounts that one NUMA node would hold if nothing ran: `restricted` admits no more nodes than that."""
    devices = state.config.devices
    memory = {name: n for name, n in part.items() if name != FREE and name not in devices}
    offered = [node.allocatable for node in state.memory.values()]
    together = any(all(here.get(name, 0) >= n for name, n in memory.items()) for here in offered)
    for name, n in part.items():
        if name == FREE:
            if n <= state.topology.numa_sizes[0] and not state.config.options.align_by_socket:
                yield name, n
        elif name in devices:
            if _near_one(devices, name, n, state):
                yield name, n
        elif together:
            yield name, n


def _near_one(devices: Inventory, name: str, n: int, state: NodeState) -> bool:
    near = devices[name].values()
    return any(sum(one >> node.id & 1 for one in near) >= n for node in state.machine.nodes)


# Policy pools.


def of_pools(state: NodeState, request: PodRequest, found: PodClass, numa: NUMAPolicy) -> ZoneNeeds:
    """Return the needs of a pod that is bound to no CPU, under a NUMA policy."""
    more = managers.needed(state, request)
    if more is None:
        return ZoneNeeds()
    milli = request.cpu_request
    one_node = found.confined or numa is NUMAPolicy.SINGLE_NUMA_NODE
    one_node |= numa is NUMAPolicy.RESTRICTED and fewest_idle(state, milli) == 1
    strict = found.confined or numa in _STRICT
    aligned = one_node and strict and found.sharing is Sharing.POOL
    return ZoneNeeds(_totals(request, more), (_resources(request, more),) if aligned else ())


def of_binding(state: NodeState, request: PodRequest, binding: Binding) -> ZoneNeeds:
    """Return the needs of a pod that is bound to CPUs."""
    demand, more = binding.demand, managers.needed(state, request)
    cpus = _bound(demand.cpus, demand.bind if demand.bind_required else None, request)
    resources = {one.name: one.wanted for one in demand.resources}
    one_node = demand.numa is NUMAPolicy.SINGLE_NUMA_NODE
    if demand.numa is NUMAPolicy.RESTRICTED:
        one_node = demand.cpus <= state.topology.numa_sizes[0]
        if state.config.pools.allocator == "optimal":
            one_node &= all(one.wanted <= max(_capacity(one), default=0) for one in demand.resources)
    totals = _totals(request, more) if more else {}
    return ZoneNeeds({**cpus, **totals}, ({**cpus, **resources},) if one_node else ())


def _capacity(resource: Resource) -> Iterable[int]:
    return (resource.free if resource.capacity is None else resource.capacity).values()


def _bound(n: int, required: BindPolicy | None, request: PodRequest) -> dict[str, int]:
    """CPUs by how they must lie."""
    amounts = {FREE: n}
    if required is BindPolicy.FULL_PCPUS:
        amounts[WHOLE] = n
    elif required is BindPolicy.SPREAD_BY_PCPUS:
        amounts[CORES] = n
    exclusive = request.placement_spec.exclusive
    if exclusive is not None and exclusive.required and exclusive.level is TopologyLevel.L3:
        amounts[L3] = n
    return amounts


def _totals(request: PodRequest, more: managers.Managers) -> Amounts:
    """Memory and devices of all containers."""
    return _peaks([(one.kind, _more(one, more)) for one in request.containers])


def _resources(request: PodRequest, more: managers.Managers) -> Amounts:
    """Memory and devices that are aligned."""
    amounts = memory_manager.of_pod(request) if more.memory else {}
    return amounts | (more.devices.of_pod(request) if more.devices else {})


def _peaks(each: Iterable[tuple[ContainerKind, Amounts]]) -> dict[str, int]:
    each = list(each)
    names = dict.fromkeys(name for _, amounts in each for name in amounts)
    return {name: peak((kind, amounts.get(name, 0)) for kind, amounts in each) for name in names}


def _without(amounts: Amounts, name: str) -> Amounts:
    return {other: n for other, n in amounts.items() if other != name}


# Other schedulers' rules.


def of_koordinator(state: NodeState, request: PodRequest, demand: PodDemand) -> ZoneNeeds:
    """Return the needs by Koordinator's rules: amounts by NUMA node count under strict policies only."""
    assert state.config.koordinator is not None
    offered = state.config.koordinator.zones.values()
    named = {name for amounts in offered for name in amounts}
    amounts = {name: n for name, n in demand.amounts.items() if name in named}
    required = demand.bind if demand.bind_required else None
    cpus = _bound(demand.cpus, required, request) if demand.cpus else {}
    strict = demand.numa in _STRICT
    one_node = demand.numa is NUMAPolicy.SINGLE_NUMA_NODE and bool(amounts)
    node = {**cpus, **amounts} if strict else cpus
    return ZoneNeeds(node, ({**cpus, **amounts},) if one_node else ())


def of_zones(state: ZonesState, request: PodRequest) -> ZoneNeeds:
    """Return the needs of nodes that publish amounts by NUMA node only."""
    if state.crane is not None:
        return _of_crane(state, request)
    free = request.qos is QOSClass.BEST_EFFORT and not alignment.has_devices(request)
    if free or state.policy != "single-numa-node":
        return ZoneNeeds()
    if state.scope == "pod":
        parts: Iterable[Amounts] = (alignment.effective(request),)
    else:
        parts = map(alignment.requested, request.containers)
    return ZoneNeeds(zones=tuple(_counted(part, request.qos) for part in parts))


def _counted(part: Amounts, qos: QOSClass) -> Amounts:
    if qos is QOSClass.GUARANTEED:
        return part
    return {name: n for name, n in part.items() if not alignment.is_aligned(name)}


def _of_crane(state: ZonesState, request: PodRequest) -> ZoneNeeds:
    assert state.crane is not None
    cpus = alignment.target_cpus(request) if state.crane.pins else 0
    own = request.placement_spec.topology_aware
    aware = state.crane.aware if own is None else own
    return ZoneNeeds({FREE: cpus}, ({FREE: cpus},) if aware else ())


def simplified(zones: Iterable[Amounts]) -> tuple[list[Amounts], int]:
    """Return the needs of NUMA nodes that no other one includes, and the CPUs of those that name no more."""
    parts = [{name: n for name, n in part.items() if n > 0} for part in zones]
    alone = max((part[FREE] for part in parts if part.keys() == {FREE}), default=0)
    several = [part for part in parts if part.keys() - {FREE}]
    return [one for i, one in enumerate(several) if not _included(one, i, several)], alone


def _included(one: Mapping[str, int], place: int, parts: list[dict[str, int]]) -> bool:
    """Whether another part needs all that this one needs; of equal ones the first stays."""
    return any(
        i != place
        and all(other.get(name, 0) >= n for name, n in one.items())
        and (i < place or dict(other) != dict(one))
        for i, other in enumerate(parts)
    )


MOST_SHAPES: Final = 4096
_IMPOSSIBLE: Final = 2
"""More than the fact COUNTED ever is."""
_NO_AMOUNTS: Final = ZoneNeeds()
_POOLS: Final = {Sharing.BEST_EFFORT: Fact.BEST_EFFORT, Sharing.SYSTEM: Fact.SYSTEM}


@dataclass(frozen=True, slots=True)
class Needs:
    """The least of each fact that a node must have, and where the pod would run."""

    least: NDArray[np.int64]
    cpus: int = 0
    """CPUs that it is bound to, 0 in a pool."""
    pool: Fact | None = None
    """The size of its pool; None for a bound pod, or where pools are not known."""
    spread: bool = False
    """Whether its CPUs are to lie on cores of their own."""
    demand: PodDemand | None = None
    """What it asks of a node that is judged by Koordinator's rules."""
    amounts: ZoneNeeds = _NO_AMOUNTS
    """What it needs beside, of the node and of NUMA nodes."""


def needs_of(canonical: CanonicalState, shape: Shape) -> Needs:
    """Return the needs of pods of a shape on nodes with the settings and machine of this state."""
    state, request = canonical.state, shape.request
    least = np.zeros(len(Fact), dtype=np.int64)
    assert request is not None
    if isinstance(state, UncountedState):
        least[Fact.COUNTED] = int(requests_exclusive_cpus(request))
        return Needs(least)
    if not isinstance(state, NodeState):
        if not state.crane and node_kinds.kubelet_class_refusal(request):
            return _never(least)
        return _with_amounts(Needs(least), of_zones(state, request))
    if state.config.koordinator is not None:
        return _of_koordinator(canonical, shape, least)
    if state.config.policy == "pools":
        return _of_pools(state, request, least)
    return _of_static(state, request, least)


def _never(least: NDArray[np.int64], pool: Fact | None = None) -> Needs:
    """Of a pod that contradicts the settings: no state of such a node admits it, and `admit` says why."""
    least[Fact.COUNTED] = _IMPOSSIBLE
    return Needs(least, pool=pool)


def _with_amounts(found: Needs, amounts: ZoneNeeds) -> Needs:
    """CPUs that no other amount goes with are compared as facts."""
    zones, alone = simplified(amounts.zones)
    node = {name: n for name, n in amounts.node.items() if n > 0}
    least = found.least
    least[Fact.FREE] = max(least[Fact.FREE], node.pop(FREE, 0))
    least[Fact.FREE_ZONE] = max(least[Fact.FREE_ZONE], alone)
    return replace(found, amounts=ZoneNeeds(node, tuple(zones)))


def _of_koordinator(canonical: CanonicalState, shape: Shape, least: NDArray[np.int64]) -> Needs:
    """Gocrane's `cpu-policy` may have the pod judged by other rules."""
    state, request = canonical.state, shape.request
    assert isinstance(state, NodeState)
    assert request is not None
    if not by_koordinator(canonical, shape):
        return Needs(least, pool=Fact.SHARED)
    try:
        demand = pod_demand(state, request)
    except Refusal:
        some = any(pod_amounts(request).values())
        return _never(least, Fact.SHARED) if some else Needs(least, pool=Fact.SHARED)
    amounts = of_koordinator(state, request, demand)
    spread = demand.bind is BindPolicy.SPREAD_BY_PCPUS
    if demand.cpus:
        return _with_amounts(Needs(least, demand.cpus, spread=spread, demand=demand), amounts)
    return _with_amounts(Needs(least, pool=Fact.SHARED, demand=demand), amounts)


def _of_pools(state: NodeState, request: PodRequest, least: NDArray[np.int64]) -> Needs:
    try:
        found = pod_class(request, state.config.pools)
        policies = policies_of(state, request, found)
        if not found.bound:
            check_rules_need_cpus(request, found)
            amounts = of_pools(state, request, found, policies.numa)
            return _with_amounts(Needs(least, pool=_POOLS.get(found.sharing, Fact.SHARED)), amounts)
        binding = binding_of(state, request)
    except Refusal:
        return _never(least, Fact.SHARED)
    assert binding is not None
    cpus = found.cpus(request)
    amounts = of_binding(state, request, binding)
    return _with_amounts(Needs(least, cpus, spread=binding.demand.spread), amounts)


def _of_static(state: NodeState, request: PodRequest, least: NDArray[np.int64]) -> Needs:
    if node_kinds.replays_kubelet(state) and node_kinds.kubelet_refusal(state, request):
        return _never(least, Fact.SHARED)
    amounts = of_static(state, request)
    if state.config.policy == "none":
        return _with_amounts(Needs(least, pool=Fact.SHARED), amounts)
    sizes = exclusive_sizes(state, request)
    largest, cpus = max((size for _, size in sizes), default=0), peak(sizes)
    if not largest:
        return _with_amounts(Needs(least, pool=Fact.SHARED), amounts)
    threads = state.topology.cpus_per_core
    if state.config.options.full_pcpus_only and any(size % threads for _, size in sizes):
        return _never(least)
    least[Fact.FREE] = largest if state.config.exact else cpus
    return _with_amounts(Needs(least, cpus), amounts)


@dataclass(slots=True)
class NeedsTable:
    """The needs of one shape, by the configurations of nodes as `Columns.config` numbers them."""

    by_config: list[Needs] = field(default_factory=list)
    table: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, len(Fact)), dtype=np.int64))
    """What is needed at least: a row for each configuration, a column for each fact."""
    cpus: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """CPUs that a pod is bound to, 0 in a pool."""
    pool: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The fact that is the size of its pool."""

    zones: NDArray[np.int64] | None = None
    """Amounts needed of the node and then of some NUMA node each, by configuration, need and column of
    `zone_table`; None where none are needed."""
    resources: NDArray[np.int64] | None = None
    """What must be left of each resource, in the order of the columns; see `NodeResourcesFit`."""
    needed: list[tuple[int, int]] = field(default_factory=list)
    """The same without the others: the column and the amount."""
    scored: NDArray[np.float64] | None = None
    """MilliCPU and bytes of memory that count for scores."""
    always_bound: bool = False
    """Whether it is bound to CPUs with all settings."""
    koordinator: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Whether it is judged by Koordinator's rules."""
    any_koordinator: bool = False
    """Whether it is so with some settings."""

    def scored_requests(self, shape: Shape) -> NDArray[np.float64]:
        """Return the milliCPU and bytes of memory of the shape's pods that count for scores."""
        if self.scored is None:
            self.scored = np.array(shape.scored, dtype=np.float64)
        return self.scored

    def with_koordinators(self, found: Scores, config: NDArray[np.int32], score: float) -> Scores:
        """Return the scores of rows (by their `config`) with this one where Koordinator's rules judge."""
        if self.any_koordinator:
            found[self.koordinator[config]] = score
        return found

    def complete(self, columns: Columns, shape: Shape) -> None:
        """Add what new configurations need."""
        for canonical in columns.configs[len(self.by_config) :]:
            self.by_config.append(needs_of(canonical, shape))
        self.zones = _padded([one.amounts for one in self.by_config], columns.configs[0].resources)
        self.table = np.array([one.least for one in self.by_config], dtype=np.int64)
        self.cpus = np.array([one.cpus for one in self.by_config], dtype=np.int64)
        self.always_bound = bool(self.cpus.all())
        self.koordinator = np.array([one.demand is not None for one in self.by_config], dtype=np.bool_)
        self.any_koordinator = bool(self.koordinator.any())
        self.pool = np.array([one.pool or Fact.SHARED for one in self.by_config], dtype=np.int64)


def _padded(amounts: Sequence[ZoneNeeds], index: ResourceIndex) -> NDArray[np.int64] | None:
    if not any(one.node or one.zones for one in amounts):
        return None
    for name in {name for one in amounts for part in (one.node, *one.zones) for name in part}:
        index.column(name)
    most = max(len(one.zones) for one in amounts)
    found = np.zeros((len(amounts), 1 + most, len(index)), dtype=np.int64)
    for config, one in enumerate(amounts):
        for place, part in enumerate((one.node, *one.zones)):
            found[config, place] = index.vector(part)
    return found


def enough(columns: Columns, shape: Shape, rows: Rows) -> Mask:
    """Return which rows have all that pods of a shape need at least; the others admit none."""
    table = needs(columns, shape)
    config = columns.config[rows]
    least = table.table.take(config, 0)
    found: Mask = np.logical_and.reduce(columns.facts.take(rows, 0) >= least, axis=1)
    if table.zones is None:
        return found
    needed = table.zones.take(config, 0)
    left = columns.amounts().take(rows, 0)
    width = min(needed.shape[2], left.shape[2])
    needed, left = needed[:, :, :width], left[:, :, :width]
    found &= np.logical_and.reduce(left[:, 0] >= needed[:, 0], axis=1)
    for place in range(1, needed.shape[1]):
        zones: Mask = np.logical_and.reduce(left[:, 1:] >= needed[:, place, None], axis=2)
        found &= np.logical_or.reduce(zones, axis=1)
    return found


def by_koordinator(canonical: CanonicalState, shape: Shape) -> bool:
    """Return whether Koordinator's rules judge pods of a shape on this state, and score the node."""
    state, request = canonical.state, shape.request
    if not isinstance(state, NodeState) or state.config.koordinator is None or request is None:
        return False
    return request.placement_spec.cpu_policy is None


def needs(columns: Columns, shape: Shape) -> NeedsTable:
    """Return the needs of a shape by configuration."""
    table = columns.needs.get(shape.id)
    if table is None:
        if len(columns.needs) >= MOST_SHAPES:
            columns.needs.clear()
        table = columns.needs[shape.id] = NeedsTable()
    if len(table.by_config) < len(columns.configs):
        table.complete(columns, shape)
    return table
