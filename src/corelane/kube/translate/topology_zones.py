"""Zones of a NodeResourceTopology, both ways, and their owner: NUMA nodes, sockets, L3 domains, cores.

NUMA nodes come first, in the order of their ids: Koordinator's manager takes a zone's place in the list for
its id. Of a zone's CPUs, `capacity` is the hardware; Koordinator's scheduler subtracts the CPUs that
annotations name as taken from `allocatable`, which therefore includes them; `available`, which
scheduler-plugins uses, can still become exclusive. Memory's `allocatable` leaves out huge pages and, as
`available`, follows the memory manager where there is one. Devices are in the zones of their NUMA nodes.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.objects import NodeResourceTopology, TopologyZone
from corelane.kube.translate.fields import TranslationError, amount
from corelane.machine.model import MAX_CPUS, MAX_NODE, Machine, NUMANode, default_distances, from_rows
from corelane.node import managers
from corelane.node.config import Level, amplify
from corelane.node.ledger import NodeState
from corelane.placement.memory_blocks import MEMORY, MemoryNode, hugepages
from corelane.quantity import BINARY_SI

NODE: Final = "Node"
_NODE_PREFIX: Final = "node-"
_NODE_NAME: Final = re.compile(r"node-[0-9]{1,4}", re.ASCII)
_HUGEPAGES: Final = "hugepages-"
_TYPES: Final[Mapping[Level, str]] = {"socket": "Socket", "node": NODE, "l3": "L3", "core": "Core"}
_DEPTH: Final[Mapping[Level, int]] = {"socket": 0, "node": 1, "l3": 2, "core": 3}
_Resource: TypeAlias = dict[str, str]
ASSUMED: Final = (
    "the zones give the number of CPUs of each NUMA node, not their ids: assumed are ids in the order of the "
    "nodes, one core for each CPU and one socket for each node"
)


# Writing.


@dataclass(frozen=True, slots=True)
class _Unit:
    """A part of the machine; `cpus` is a mask."""

    level: Level
    name: str
    cpus: int


def zones(
    machine: Machine, state: NodeState, levels: Collection[Level], taken: int = 0
) -> list[dict[str, Any]]:
    """Return the zones of these levels; a zone's parent is the smallest other zone with all its CPUs.

    L3 domains are left out where each is a NUMA node or a socket. `taken` are the CPUs, as a mask, that
    annotations name as taken.
    """
    return [
        _with_resources(zone, unit, node, state, taken)
        for zone, unit, node in _outline(machine, frozenset(levels))
    ]


@lru_cache(maxsize=16)
def _outline(
    machine: Machine, levels: frozenset[Level]
) -> tuple[tuple[Mapping[str, Any], "_Unit", NUMANode | None], ...]:
    """The zones without their resources, which alone depend on the ledger; of a NUMA node's with the node."""
    units = [unit for unit in _units(machine) if unit.level in levels]
    nodes = {f"{_NODE_PREFIX}{node.id}": node for node in machine.nodes}
    # Smaller before larger; of several with the same CPUs, inner before outer.
    parents = sorted(
        (unit for unit in units if unit.level != "core"),
        key=lambda unit: (unit.cpus.bit_count(), -_DEPTH[unit.level]),
    )
    outline = []
    for unit in units:
        parent = next((parent.name for parent in parents if _holds(parent, unit)), "")
        node = nodes.get(unit.name)
        outline.append((_zone(unit, parent, node), unit, node))
    return tuple(outline)


def _units(machine: Machine) -> Iterator[_Unit]:
    for node in machine.nodes:
        yield _Unit("node", f"{_NODE_PREFIX}{node.id}", node.cpus.mask)
    for socket, cpus in machine.socket_masks:
        yield _Unit("socket", f"socket-{socket}", cpus)
    larger = {cpus for _, cpus in (*machine.socket_masks, *machine.numa_masks)}
    if any(cpus not in larger for _, cpus in machine.l3_masks):
        for cache, cpus in machine.l3_masks:
            yield _Unit("l3", f"l3-{cache}", cpus)
    for core, cpus in machine.core_masks:
        yield _Unit("core", f"core-{core}", cpus)


def _holds(parent: _Unit, unit: _Unit) -> bool:
    if not unit.cpus or unit.cpus & ~parent.cpus:
        return False
    return parent.cpus != unit.cpus or _DEPTH[parent.level] < _DEPTH[unit.level]


def _zone(unit: _Unit, parent: str, node: NUMANode | None) -> dict[str, Any]:
    zone: dict[str, Any] = {"name": unit.name, "type": _TYPES[unit.level]}
    if parent:
        zone["parent"] = parent
    if node and node.distances:
        zone["costs"] = [
            {"name": f"{_NODE_PREFIX}{other}", "value": distance}
            for other, distance in sorted(node.distances.items())
        ]
    if unit.cpus:
        zone["attributes"] = [{"name": "cpus", "value": str(CPUSet.from_mask(unit.cpus))}]
    return zone


def _with_resources(
    zone: Mapping[str, Any], unit: _Unit, node: NUMANode | None, state: NodeState, taken: int
) -> dict[str, Any]:
    if not node and unit.level == "socket":
        return dict(zone)
    more = (*_memory(node, state.memory.get(node.id)), *_devices(node, state)) if node else ()
    cpus = unit.cpus
    usable = cpus & state.usable.mask
    free = usable if state.config.policy == "none" else usable & state.free_exclusive.mask
    taken_milli = 1000 * (usable & taken).bit_count()
    rest = amplify(1000 * usable.bit_count() - taken_milli, amplification(state))
    offered = quantity.of_milli(rest + taken_milli)
    own = _resource("cpu", str(cpus.bit_count()), str(offered), str(free.bit_count()))
    return {**zone, "resources": [own, *more]}


def _memory(node: NUMANode, managed: MemoryNode | None) -> Iterator[_Resource]:
    pages = {hugepages(kib): 1024 * kib * count for kib, count in sorted(node.hugepages.items())}
    sizes = ({MEMORY: node.memory} if node.memory else {}) | pages
    for name, size in sizes.items():
        own = max(size - sum(pages.values()), 0) if name == MEMORY else size
        offered = managed.allocatable.get(name, 0) if managed else own
        free = managed.free.get(name, 0) if managed else own
        yield _resource(
            name, *(str(quantity.of_value(bytes_, BINARY_SI)) for bytes_ in (size, offered, free))
        )


def _devices(node: NUMANode, state: NodeState) -> Iterator[_Resource]:
    """The devices near a NUMA node; a device near several nodes counts in each."""
    used = managers.held(state.entries.values())
    for name, nodes_by_device in sorted(state.config.devices.items()):
        near = {device for device, nodes in nodes_by_device.items() if nodes >> node.id & 1}
        if near:
            count, free = str(len(near)), str(len(near - used.get(name, set())))
            yield _resource(name, count, count, free)


def _resource(name: str, capacity: str, allocatable: str, available: str) -> _Resource:
    return {"name": name, "capacity": capacity, "allocatable": allocatable, "available": available}


# Reading.


def numa_nodes(published: NodeResourceTopology) -> dict[int, NUMANode]:
    """Return memory and distances of each NUMA node, by id, without CPUs. Raises TranslationError."""
    annotations = published.metadata.annotations
    nodes = {number: _numa_node(path, number, zone) for path, number, zone in _node_zones(published)}
    if keys.CPU_TOPOLOGY in annotations and keys.MACHINE not in annotations:
        # koordlet subtracts huge pages from the memory that it reports.
        for numa, node in nodes.items():
            pages = sum(1024 * kib * count for kib, count in node.hugepages.items())
            nodes[numa] = replace(node, memory=node.memory + pages)
    return {
        numa: node if node.distances else replace(node, distances=default_distances(numa, nodes))
        for numa, node in nodes.items()
    }


def hardware(published: NodeResourceTopology) -> list[object]:
    """Return a value that changes only with memory, huge pages or distances of a NUMA node."""
    return [
        (zone.name, zone.costs, [(one.name, one.capacity) for one in zone.resources if _is_memory(one.name)])
        for zone in published.zones
        if zone.type == NODE
    ]


def _is_memory(name: str) -> bool:
    return name == MEMORY or name.startswith(_HUGEPAGES)


def _node_zones(published: NodeResourceTopology) -> Iterator[tuple[str, int, TopologyZone]]:
    """Path, NUMA node id and zone of each NUMA node.

    Beside corelane's annotations, zones of another exporter count only where their names are known.
    """
    seen, metadata = set(), published.metadata
    foreign = keys.MACHINE in metadata.annotations and metadata.labels.get(keys.MANAGED_BY) != "corelane"
    for index, zone in enumerate(published.zones):
        if zone.type == NODE and not (foreign and not _NODE_NAME.fullmatch(zone.name)):
            path = f"zones[{index}]"
            if (number := _number(f"{path}.name", zone.name)) in seen:
                raise TranslationError(f"{path}.name", zone.name, "another zone has this name")
            seen.add(number)
            yield path, number, zone


def _numa_node(path: str, number: int, zone: TopologyZone) -> NUMANode:
    costs = enumerate(zone.costs)
    distances = {_number(f"{path}.costs[{i}].name", cost.name): cost.value for i, cost in costs}
    memory, pages = 0, {}
    for index, resource in enumerate(zone.resources):
        where = f"{path}.resources[{index}]"
        if resource.name == MEMORY:
            memory = amount(f"{where}.capacity", resource.capacity, quantity.value)
        elif resource.name.startswith(_HUGEPAGES):
            kib = amount(f"{where}.name", resource.name.removeprefix(_HUGEPAGES), quantity.value) // 1024
            if kib <= 0:
                raise TranslationError(f"{where}.name", resource.name, "not a size of pages")
            pages[kib] = amount(f"{where}.capacity", resource.capacity, quantity.value) // (kib * 1024)
    return NUMANode(number, CPUSet(), memory, pages, distances)


def _number(path: str, name: str) -> int:
    number = name.removeprefix(_NODE_PREFIX)
    if not name.startswith(_NODE_PREFIX) or not (number.isascii() and number.isdecimal()) or len(number) > 9:
        raise TranslationError(path, name, "not the name of a NUMA node's zone, such as 'node-0'")
    if int(number) > MAX_NODE:
        raise TranslationError(path, name, f"NUMA nodes have ids up to {MAX_NODE}")
    return int(number)


# A machine from CPU counts. Such objects come from node-feature-discovery and resource-topology-exporter. The
# result serves to look at and to try out requests, never for a scheduler.


def machine_from_zones(published: NodeResourceTopology) -> Machine:
    """Return the hardware in the zones, and assume the rest (`ASSUMED`).

    Raises TranslationError where no zone has CPUs.
    """
    counts = {
        numa: amount(f"{path}.resources[{i}].capacity", resource.capacity, quantity.milli) // 1000
        for path, numa, zone in _node_zones(published)
        for i, resource in enumerate(zone.resources)
        if resource.name == "cpu"
    }
    return assumed_machine(published.metadata.name, counts, numa_nodes(published).values())


def assumed_machine(name: str, counts: Mapping[int, int], nodes: Iterable[NUMANode]) -> Machine:
    """Return a machine with `counts` CPUs on each NUMA node. Raises TranslationError without any."""
    total = sum(counts.values())
    if not 0 < total <= MAX_CPUS:
        raise TranslationError("zones", total, f"the NUMA nodes must have 1 to {MAX_CPUS} CPUs in all")
    numa_of_cpu = [numa for numa, count in counts.items() for _ in range(count)]
    rows = ((cpu, cpu, numa, numa, numa) for cpu, numa in enumerate(numa_of_cpu))
    machine = from_rows(name, rows, source="NodeResourceTopology")
    cpus = {node.id: node.cpus for node in machine.nodes}
    with_cpus = {node.id: replace(node, cpus=cpus.get(node.id, CPUSet())) for node in nodes}
    return replace(machine, nodes=tuple(with_cpus[numa] for numa in sorted(with_cpus)), notes=(ASSUMED,))


FIELD_MANAGER: Final = "corelane-agent"
"""The name under which the API server records the fields that the agent writes."""
_EARLIER: Final = "python-httpx"
"""How the names begin that the API server gave releases of the agent without a name of their own."""
_KUBECTL: Final = "kubectl"
CONTENT: Final = ("zones", "topologyPolicies", "attributes")
"""Members of the object that only the owner of the zones writes."""


def zone_owner(stored: Mapping[str, Any]) -> str:
    """Return another program that owns the zones of an object on the API server; "" where none does.

    The owner is the last writer by `managedFields` but kubectl: a person's edit is no exporter, and does not
    last. A server that keeps none leaves the label
    `app.kubernetes.io/managed-by`, which must then name corelane, or nothing.
    """
    metadata = stored.get("metadata") or {}
    fields = metadata.get("managedFields")
    if fields:
        writers = []
        for entry in fields if isinstance(fields, list) else ():
            if isinstance(entry, dict) and "f:zones" in (entry.get("fieldsV1") or {}):
                manager = str(entry.get("manager") or "")
                if manager != _KUBECTL and not manager.startswith(f"{_KUBECTL}-"):
                    writers.append((str(entry.get("time") or ""), manager))
        last = max(writers)[1] if writers else ""
        return "" if is_own(last) else last
    label = str((metadata.get("labels") or {}).get(keys.MANAGED_BY) or "")
    return "" if label == "corelane" else label


def is_own(manager: str) -> bool:
    return manager == FIELD_MANAGER or manager.startswith(_EARLIER)


def without_zones(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of `topology` without what the owner of the zones writes."""
    metadata = {name: part for name, part in body["metadata"].items() if name != "labels"}
    return {name: part for name, part in body.items() if name not in CONTENT} | {"metadata": metadata}


def amplification(state: NodeState) -> Fraction:
    """Return the ratio of offered to physical CPUs.

    Koordinator's scheduler takes the zones of a NodeResourceTopology with this annotation as amplified, and
    amplifies those without it by the ratio on the Node.
    """
    return state.config.pools.amplification if state.config.policy == "pools" else Fraction(1)
