"""A machine as nested units: sockets, NUMA nodes and L3 domains inside one another, as far as they nest."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from corelane.cpuset import bits
from corelane.machine.model import CPU, Machine, NUMANode

_KINDS = ("Socket", "NUMA node", "L3")
_UNITS = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))


@dataclass(frozen=True, slots=True)
class Core:
    """A core with its threads, ascending by id."""

    id: int
    cpus: tuple[CPU, ...]

    @property
    def kind(self) -> str:
        return self.cpus[0].kind


@dataclass(slots=True)
class Unit:
    """A group of CPUs. `names` has more than one where units hold the same CPUs (a socket with one node)."""

    kind: str
    names: list[str]
    mask: int
    nodes: list[NUMANode] = field(default_factory=list)
    children: list["Unit"] = field(default_factory=list)

    @property
    def title(self) -> str:
        return " · ".join(self.names)


def nest(machine: Machine) -> tuple[Unit, list[Unit]]:
    """Return the machine as a tree, and the units that cross another and so are not in it.

    An L3 shared by two sockets crosses, or a hypervisor's NUMA nodes.
    """
    root = Unit("Machine", [machine.name], machine.cpus_mask)
    units = [
        Unit(kind, [f"{kind} {number}"], mask, _nodes(machine, kind, number))
        for kind, number, mask in _groups(machine)
    ]
    crossing = [unit for unit in units if not _insert(root, unit)]
    _sort(root)
    return root, crossing


def _groups(machine: Machine) -> list[tuple[str, int, int]]:
    """Return (kind, id, mask), the largest first and sockets before nodes before caches."""
    tables = (machine.socket_masks, machine.numa_masks, machine.l3_masks)
    groups = [
        (kind, number, mask) for kind, table in zip(_KINDS, tables, strict=True) for number, mask in table
    ]
    return sorted(groups, key=lambda group: (-group[2].bit_count(), _KINDS.index(group[0]), group[1]))


def _nodes(machine: Machine, kind: str, number: int) -> list[NUMANode]:
    return [machine.node(number)] if kind == "NUMA node" else []


def _insert(parent: Unit, unit: Unit) -> bool:
    for child in parent.children:
        if child.mask == unit.mask:
            child.names += unit.names
            child.nodes += unit.nodes
            return True
        if child.mask & unit.mask == unit.mask:
            return _insert(child, unit)
        if child.mask & unit.mask:
            return False
    parent.children.append(unit)
    return True


def _sort(unit: Unit) -> None:
    unit.children.sort(key=lambda child: child.mask & -child.mask)
    for child in unit.children:
        _sort(child)


def cores(machine: Machine, mask: int) -> Iterator[Core]:
    """Yield the cores with CPUs in `mask`, ascending by id."""
    for number, members in machine.core_masks:
        if members & mask:
            yield Core(number, tuple(machine.cpu(cpu) for cpu in bits(members & mask)))


def counts(machine: Machine) -> str:
    """`2 sockets · 8 NUMA nodes · 16 L3 domains · 128 cores · 256 CPUs · 512 GiB`."""
    parts = [
        plural(len(machine.socket_masks), "socket"),
        plural(len(machine.nodes), "NUMA node"),
        plural(len(machine.l3_masks), "L3 domain"),
        plural(len(machine.core_masks), "core"),
        plural(len(machine.cpus), "CPU"),
    ]
    total = memory(machine)
    return " · ".join([*parts, size(total)] if total else parts)


def memory(machine: Machine) -> int:
    """Return the memory of all nodes, in bytes."""
    return sum(node.memory for node in machine.nodes)


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def size(count: int) -> str:
    """Format bytes in the largest binary unit that keeps at least one digit before the point: `62.5 GiB`."""
    for name, shift in _UNITS:
        if count >> shift:
            return f"{count / (1 << shift):.1f}".removesuffix(".0") + f" {name}"
    return f"{count} B"
