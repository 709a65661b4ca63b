"""The zones of a NodeResourceTopology: NUMA nodes, sockets, L3 domains and cores, with what each has to give.

NUMA nodes come first, in the order of their ids: Koordinator's manager takes a zone's place in the list for
its id. Of a zone's CPUs, `capacity` is the hardware; `allocatable` is where Koordinator's scheduler begins,
so it holds the CPUs that annotations name as taken, which it takes off itself; `available`, what
scheduler-plugins goes by, can still become exclusive. Of memory, `allocatable` is without huge pages and, as
`available`, what the memory manager says, where there is one. Devices are in the zones of their NUMA nodes.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube.translate import koordinator
from corelane.machine.model import Machine, NUMANode
from corelane.node import devices
from corelane.node.amplification import amplify
from corelane.node.config import Level
from corelane.node.ledger import NodeState
from corelane.placement.memory import MEMORY, MemoryNode, hugepages
from corelane.quantity import BINARY_SI

__all__ = ["HUGEPAGES", "NODE", "NODE_PREFIX", "zones"]

NODE: Final = "Node"
NODE_PREFIX: Final = "node-"
HUGEPAGES: Final = "hugepages-"
_TYPES: Final[Mapping[Level, str]] = {"socket": "Socket", "node": NODE, "l3": "L3", "core": "Core"}
_DEPTH: Final[Mapping[Level, int]] = {"socket": 0, "node": 1, "l3": 2, "core": 3}
_Resource: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class _Unit:
    """A part of the machine with CPUs of its own."""

    level: Level
    name: str
    cpus: int


def zones(machine: Machine, state: NodeState, levels: Collection[Level]) -> list[dict[str, Any]]:
    """The zones of these levels, each with the smallest other one around it as its parent.

    L3 domains that are the machine's NUMA nodes or sockets would say nothing new and are left out.
    """
    units = [unit for unit in _units(machine) if unit.level in levels]
    nodes = {f"{NODE_PREFIX}{node.id}": node for node in machine.nodes}
    around = sorted((unit for unit in units if unit.level != "core"), key=_size)
    taken = koordinator.named(state)
    return [_zone(unit, _parent(unit, around), nodes.get(unit.name), state, taken) for unit in units]


def _units(machine: Machine) -> Iterator[_Unit]:
    for node in machine.nodes:
        yield _Unit("node", f"{NODE_PREFIX}{node.id}", node.cpus.mask)
    for socket, cpus in machine.socket_masks:
        yield _Unit("socket", f"socket-{socket}", cpus)
    known = {cpus for _, cpus in (*machine.socket_masks, *machine.numa_masks)}
    if any(cpus not in known for _, cpus in machine.l3_masks):
        for cache, cpus in machine.l3_masks:
            yield _Unit("l3", f"l3-{cache}", cpus)
    for core, cpus in machine.core_masks:
        yield _Unit("core", f"core-{core}", cpus)


def _size(unit: _Unit) -> tuple[int, int]:
    """Smaller before larger; of several with the same CPUs, inner before outer."""
    return unit.cpus.bit_count(), -_DEPTH[unit.level]


def _parent(unit: _Unit, around: list[_Unit]) -> str:
    """The smallest unit that holds all CPUs of this one; of several with the same CPUs, the next level up."""
    return next((one.name for one in around if _holds(one, unit)), "")


def _holds(one: _Unit, unit: _Unit) -> bool:
    if not unit.cpus or unit.cpus & ~one.cpus:
        return False
    return one.cpus != unit.cpus or _DEPTH[one.level] < _DEPTH[unit.level]


def _zone(unit: _Unit, parent: str, node: NUMANode | None, state: NodeState, taken: int) -> dict[str, Any]:
    zone: dict[str, Any] = {"name": unit.name, "type": _TYPES[unit.level]}
    if parent:
        zone["parent"] = parent
    if node and node.distances:
        zone["costs"] = [
            {"name": f"{NODE_PREFIX}{other}", "value": distance}
            for other, distance in sorted(node.distances.items())
        ]
    if unit.cpus:
        zone["attributes"] = [{"name": "cpus", "value": str(CPUSet.from_mask(unit.cpus))}]
    if node or unit.level != "socket":
        more = (*_memory(node, state.memory.get(node.id)), *_devices(node, state)) if node else ()
        zone["resources"] = [_cpus(unit.cpus, state, taken), *more]
    return zone


def _cpus(cpus: int, state: NodeState, taken: int) -> _Resource:
    usable = cpus & state.usable.mask
    free = usable if state.config.policy == "none" else usable & state.free_exclusive.mask
    gone = 1000 * (usable & taken).bit_count()
    offered = amplify(1000 * usable.bit_count() - gone, koordinator.ratio(state)) + gone
    return _resource("cpu", str(cpus.bit_count()), str(quantity.of_milli(offered)), str(free.bit_count()))


def _memory(node: NUMANode, kept: MemoryNode | None) -> Iterator[_Resource]:
    pages = {hugepages(kib): 1024 * kib * count for kib, count in sorted(node.hugepages.items())}
    sizes = ({MEMORY: node.memory} if node.memory else {}) | pages
    for name, size in sizes.items():
        own = max(size - sum(pages.values()), 0) if name == MEMORY else size
        offered = kept.allocatable.get(name, 0) if kept else own
        free = kept.free.get(name, 0) if kept else own
        yield _resource(name, *(str(quantity.of_value(one, BINARY_SI)) for one in (size, offered, free)))


def _devices(node: NUMANode, state: NodeState) -> Iterator[_Resource]:
    """The devices near a NUMA node; one that is near several counts in each."""
    used = devices.held(state.entries.values())
    for name, every in sorted(state.config.devices.items()):
        near = {device for device, nodes in every.items() if nodes >> node.id & 1}
        if near:
            all_, free = str(len(near)), str(len(near - used.get(name, set())))
            yield _resource(name, all_, all_, free)


def _resource(name: str, capacity: str, allocatable: str, available: str) -> _Resource:
    return {"name": name, "capacity": capacity, "allocatable": allocatable, "available": available}
