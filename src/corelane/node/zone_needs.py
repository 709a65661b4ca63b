"""What a pod needs at least of a node, and of one of its NUMA nodes: necessary conditions, for each policy.

A pod that the node admits finds all of this, whatever else runs there. What is not certain is left out: what
init containers leave to others, sets of several NUMA nodes, preferences. The scheduler compares these amounts
with what every node has left before it asks a ledger.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from corelane.node import managers, memory_manager
from corelane.node.config import Inventory
from corelane.node.entries import Sharing
from corelane.node.koordinator.pod_demand import PodDemand
from corelane.node.kubelet import cpu_manager
from corelane.node.ledger import NodeState
from corelane.node.pools.binding import Binding
from corelane.node.pools.classes import PodClass
from corelane.node.pools.zones import fewest_idle
from corelane.node.zones import alignment
from corelane.node.zones.zone_state import ZonesState
from corelane.placement.optimal.demand import Resource
from corelane.workload import BindPolicy, NUMAPolicy, TopologyLevel
from corelane.workload.request import Amounts, ContainerKind, ContainerRequest, PodRequest, QOSClass, peak

FREE: Final = "CPUs"
"""CPUs that may become exclusive."""
WHOLE: Final = "CPUs of whole cores"
"""Of these, the ones on cores of which every CPU is free."""
CORES: Final = "cores"
"""Cores with a CPU that may become exclusive."""
L3: Final = "CPUs of whole L3 domains"
"""CPUs that may become exclusive in L3 domains where no pod has any."""
_STRICT: Final = (NUMAPolicy.RESTRICTED, NUMAPolicy.SINGLE_NUMA_NODE)


@dataclass(frozen=True, slots=True)
class ZoneNeeds:
    """Amounts by the names above, or of the resource."""

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
