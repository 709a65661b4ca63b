"""NUMA nodes: their CPUs, memory, huge pages and distances."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from corelane.cpuset import CPUSet
from corelane.kernel.files import Tree
from corelane.machine.model import CPU, IRQ, Device, NUMANode, default_distances, device_kind
from corelane.machine.sysfs.states import numbered, read_int, read_list, read_mask

_NODE_DIR = "devices/system/node"
_MEM_TOTAL = re.compile(r"MemTotal:\s*([0-9]{1,18})\s*kB", re.ASCII)
_TOLERANCE = 64
"""Differences up to this part of the machine's memory are no contradiction."""
_PAGE_DIR = re.compile(r"hugepages-([0-9]{1,12})kB", re.ASCII)


@dataclass(frozen=True, slots=True)
class RawNode:
    """A node as its directory tells: `mask` may name offline CPUs, or such as other nodes name too."""

    id: int
    mask: int
    memory: int
    hugepages: Mapping[int, int]
    distances: tuple[int, ...]


def read(sys: Tree, proc: Tree, notes: list[str]) -> list[RawNode]:
    """The nodes in order of id; a kernel without NUMA has one node, 0, with all CPUs and all memory."""
    ids = numbered(sys.names(_NODE_DIR), "node")
    total = _memory(proc.read("meminfo"))
    if ids:
        return _reconciled([_read_node(sys, node) for node in ids], total, notes)
    return [RawNode(0, -1, total, _hugepages(sys, "kernel/mm/hugepages"), ())]


def _reconciled(nodes: list[RawNode], total: int, notes: list[str]) -> list[RawNode]:
    """Give a single node all memory of the machine, in bytes, where it reports less.

    A virtual machine may get memory after its start that its node never counts. Of several nodes none can
    be told to have it, so they stay.
    """
    reported = sum(node.memory for node in nodes)
    if not reported or total - reported <= total // _TOLERANCE:
        return nodes
    differs = (
        f"/proc/meminfo reports {total >> 20} MiB of memory, the NUMA nodes {reported >> 20} MiB "
        "(memory added to a running virtual machine, or a hypervisor that hides it)"
    )
    if len(nodes) > 1:
        notes.append(f"{differs}: the nodes' values are used")
        return nodes
    notes.append(f"{differs}: all of it taken for NUMA node {nodes[0].id}")
    return [replace(nodes[0], memory=total)]


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
    """The kernel's row has one number a node; a row of any other length is ignored."""
    if len(node.distances) == len(ids):
        return dict(zip(ids, node.distances, strict=True))
    return default_distances(node.id, ids)


_PCI_DIR = "bus/pci/devices"
_CLASS = re.compile("0x[0-9a-f]{6}")
_OWNER_WRITES = 0o200


def read_pci(sys: Tree, cpus: Sequence[CPU]) -> tuple[Device, ...]:
    """The devices, by address, without those of the chipset."""
    online = sum(1 << cpu.id for cpu in cpus)
    numa = {cpu.id: cpu.numa for cpu in cpus}
    found = (_read_device(sys, address, online, numa) for address in sys.names(_PCI_DIR))
    return tuple(device for device in found if device)


def _read_device(sys: Tree, address: str, online: int, numa: dict[int, int]) -> Device | None:
    where = f"{_PCI_DIR}/{address}"
    pci_class = (sys.read(f"{where}/class") or "").strip()
    kind = device_kind(int(pci_class, 16) >> 8) if _CLASS.fullmatch(pci_class) else None
    if kind is None:
        return None
    local = (read_mask(sys, f"{where}/local_cpulist", f"{where}/local_cpus") or 0) & online
    return Device(
        address=address,
        kind=kind,
        numa=_device_node(
            read_int(sys, f"{where}/numa_node"), {numa[cpu] for cpu in CPUSet.from_mask(local)}
        ),
        local_cpus=CPUSet.from_mask(local),
        pci_class=pci_class,
        vendor=(sys.read(f"{where}/vendor") or "").strip(),
        product=(sys.read(f"{where}/device") or "").strip(),
        driver=sys.target(f"{where}/driver") or "",
    )


def _device_node(reported: int | None, near: set[int]) -> int | None:
    """The node that firmware reports.

    Where it does not (-1), the one node that holds all the device's near CPUs.
    """
    if reported is not None and reported >= 0:
        return reported
    return near.pop() if len(near) == 1 else None


def read_irqs(proc: Tree) -> tuple[IRQ, ...]:
    """The interrupts whose affinity is not writable, as Linux since 6.11 shows what it manages itself."""
    found = (_read_irq(proc, number) for number in numbered(proc.names("irq"), ""))
    return tuple(irq for irq in found if irq)


def _read_irq(proc: Tree, number: int) -> IRQ | None:
    where = f"irq/{number}"
    mode = proc.mode(f"{where}/smp_affinity_list")
    if not mode or mode & _OWNER_WRITES:
        return None
    cpus = read_list(proc, f"{where}/effective_affinity_list") or read_list(
        proc, f"{where}/smp_affinity_list"
    )
    handlers = [name for name in proc.names(where) if proc.names(f"{where}/{name}")]
    return IRQ(number, CPUSet.from_mask(cpus or 0), ",".join(handlers))
