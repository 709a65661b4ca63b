"""NUMA nodes: their CPUs, memory, huge pages and distances."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corelane.cpuset import CPUSet
from corelane.kernel.files import Tree
from corelane.machine.model import CPU, NUMANode, default_distances
from corelane.machine.sysfs.values import numbered, read_int, read_mask

__all__ = ["RawNode", "build", "read"]

_NODE_DIR = "devices/system/node"
_MEM_TOTAL = re.compile(r"MemTotal:\s*([0-9]{1,18})\s*kB", re.ASCII)
_PAGE_DIR = re.compile(r"hugepages-([0-9]{1,12})kB", re.ASCII)


@dataclass(frozen=True, slots=True)
class RawNode:
    """A node as its directory tells: `mask` may name offline CPUs, or such as other nodes name too."""

    id: int
    mask: int
    memory: int
    hugepages: Mapping[int, int]
    distances: tuple[int, ...]


def read(sys: Tree, proc: Tree) -> list[RawNode]:
    """The nodes in order of id; a kernel without NUMA has one node, 0, with all CPUs and all memory."""
    ids = numbered(sys.names(_NODE_DIR), "node")
    if ids:
        return [_read_node(sys, node) for node in ids]
    memory = _memory(proc.read("meminfo"))
    return [RawNode(0, -1, memory, _hugepages(sys, "kernel/mm/hugepages"), ())]


def _read_node(sys: Tree, node: int) -> RawNode:
    where = f"{_NODE_DIR}/node{node}"
    mask = read_mask(sys, f"{where}/cpulist", f"{where}/cpumap")
    if mask is None:
        mask = sum(1 << cpu for cpu in numbered(sys.names(where), "cpu"))
    memory = _memory(sys.read(f"{where}/meminfo"))
    distances = (sys.read(f"{where}/distance") or "").split()
    return RawNode(
        node,
        mask,
        memory,
        _hugepages(sys, f"{where}/hugepages"),
        tuple(int(d) for d in distances if d.isdecimal() and len(d) < 6),
    )


def _memory(meminfo: str | None) -> int:
    """Bytes."""
    match = _MEM_TOTAL.search(meminfo or "")
    return int(match[1]) * 1024 if match else 0


def _hugepages(sys: Tree, where: str) -> dict[int, int]:
    sizes = (match for name in sys.names(where) if (match := _PAGE_DIR.fullmatch(name)))
    return {int(match[1]): read_int(sys, f"{where}/{match[0]}/nr_hugepages") or 0 for match in sizes}


def build(raw: Sequence[RawNode], cpus: Sequence[CPU]) -> tuple[NUMANode, ...]:
    """The nodes with the CPUs that really ended up in each."""
    ids = [node.id for node in raw]
    return tuple(
        NUMANode(
            node.id,
            CPUSet(cpu.id for cpu in cpus if cpu.numa == node.id),
            node.memory,
            dict(sorted(node.hugepages.items())),
            _distances(node, ids),
        )
        for node in raw
    )


def _distances(node: RawNode, ids: list[int]) -> dict[int, int]:
    """The kernel's row has one number a node; any other length cannot be told apart and is not believed."""
    if len(node.distances) == len(ids):
        return dict(zip(ids, node.distances, strict=True))
    return default_distances(node.id, ids)
