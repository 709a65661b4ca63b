"""The zones of a NodeResourceTopology: sockets, NUMA nodes, L3 domains and cores, with what each has to give.

Of a zone's CPUs, `capacity` is the hardware, `allocatable` what may become exclusive, `available` what still
can. Readers tell zones apart by their type; upstream's schedulers look at those of type Node alone.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from corelane.cpuset import CPUSet
from corelane.kube import quantity
from corelane.kube.quantity import BINARY_SI
from corelane.machine.model import Machine, NUMANode
from corelane.node.ledger import NodeState

__all__ = ["DEFAULT_LEVELS", "HUGEPAGES", "NODE", "NODE_PREFIX", "Level", "zones"]

Level: TypeAlias = Literal["socket", "node", "l3", "core"]
DEFAULT_LEVELS: Final[frozenset[Level]] = frozenset({"socket", "node", "l3"})
NODE: Final = "Node"
NODE_PREFIX: Final = "node-"
HUGEPAGES: Final = "hugepages-"
_TYPES: Final[Mapping[Level, str]] = {"socket": "Socket", "node": NODE, "l3": "L3", "core": "Core"}


@dataclass(frozen=True, slots=True)
class _Unit:
    """A part of the machine with CPUs of its own."""

    level: Level
    name: str
    cpus: int


def zones(
    machine: Machine, state: NodeState, levels: Collection[Level] = DEFAULT_LEVELS
) -> list[dict[str, Any]]:
    """The zones of these levels, each with the smallest published unit around it as its parent.

    L3 domains that are the machine's NUMA nodes or sockets would say nothing new and are left out.
    """
    units = [unit for unit in _units(machine) if unit.level in levels]
    nodes = {f"{NODE_PREFIX}{node.id}": node for node in machine.nodes}
    outer = [unit for unit in units if unit.level != "core"]
    return [_zone(unit, _parent(unit, outer), nodes.get(unit.name), state) for unit in units]


def _units(machine: Machine) -> Iterator[_Unit]:
    """Outer units before those within them."""
    for socket, cpus in machine.socket_masks:
        yield _Unit("socket", f"socket-{socket}", cpus)
    for node in machine.nodes:
        yield _Unit("node", f"{NODE_PREFIX}{node.id}", node.cpus.mask)
    known = {cpus for _, cpus in (*machine.socket_masks, *machine.numa_masks)}
    if any(cpus not in known for _, cpus in machine.l3_masks):
        for cache, cpus in machine.l3_masks:
            yield _Unit("l3", f"l3-{cache}", cpus)
    for core, cpus in machine.core_masks:
        yield _Unit("core", f"core-{core}", cpus)


def _parent(unit: _Unit, outer: list[_Unit]) -> str:
    """The innermost unit of an outer level that holds all CPUs of this one; "" where none does."""
    name = ""
    for other in outer:
        if other.level == unit.level or not unit.cpus:
            break
        if not unit.cpus & ~other.cpus:
            name = other.name
    return name


def _zone(unit: _Unit, parent: str, node: NUMANode | None, state: NodeState) -> dict[str, Any]:
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
        memory = _memory(node) if node else ()
        zone["resources"] = [_cpus(unit.cpus, state), *memory]
    return zone


def _cpus(cpus: int, state: NodeState) -> dict[str, str]:
    usable = cpus & state.usable.mask
    allocatable = available = usable
    if state.config.policy != "none":
        allocatable, available = usable & ~state.reserved.mask, usable & state.free_exclusive.mask
    return _resource("cpu", *(str(part.bit_count()) for part in (cpus, allocatable, available)))


def _memory(node: NUMANode) -> Iterator[dict[str, str]]:
    if node.memory:
        yield _resource("memory", str(node.memory))
    for kib, pages in sorted(node.hugepages.items()):
        size = quantity.of_value(kib * 1024, BINARY_SI)
        yield _resource(f"{HUGEPAGES}{size}", str(quantity.of_value(pages * kib * 1024, BINARY_SI)))


def _resource(name: str, capacity: str, allocatable: str = "", available: str = "") -> dict[str, str]:
    return {
        "name": name,
        "capacity": capacity,
        "allocatable": allocatable or capacity,
        "available": available or capacity,
    }
