"""NUMA nodes, CPU states, PCI devices and interrupts from sysfs and procfs, and the values in their files."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from corelane.cpuset import MAX_CPU, CPUSet, CPUSetError, bits, named, parse_hex, parse_list, verb
from corelane.kernel.files import Tree
from corelane.machine.model import CPU, IRQ, Device, MachineError, NUMANode, default_distances, device_kind

_BLANKS = "\0 \t\n"
"""Around a value; cluster_cpus_list ended with a NUL on the first kernels that had it."""


def read_int(tree: Tree, path: str) -> int | None:
    """A decimal number, possibly negative; None when there is none."""
    text = (tree.read(path) or "").strip(_BLANKS)
    return int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20 else None


def read_list(tree: Tree, path: str) -> int | None:
    """The mask of a list such as `0-3,8`; None when the file is missing or holds none (`(null)`, say)."""
    return _parsed(parse_list, tree, path)


def read_mask(tree: Tree, *paths: str, holding: int = 0) -> int | None:
    """The first CPU set among files that holds the CPUs of the mask `holding`.

    Files whose name ends in `list` have lists, others hexadecimal masks.
    """
    for path in paths:
        mask = _parsed(parse_list if path.endswith("list") else parse_hex, tree, path)
        if mask is not None and mask & holding == holding:
            return mask
    return None


def _parsed(parse: Callable[[str], int], tree: Tree, path: str) -> int | None:
    text = tree.read(path)
    try:
        return None if text is None else parse(text.strip(_BLANKS))
    except CPUSetError:
        return None


def numbered(names: Iterable[str], prefix: str) -> list[int]:
    """The numbers in names such as `cpu7`, ascending; other names are passed over."""
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isascii() and tail.isdecimal() and len(tail) < 6)


def first_of(*values: int | None) -> int:
    """The first value that is neither missing nor 0; else 0."""
    return next((value for value in values if value), 0)


_RANGE = re.compile(r"([0-9]+|N)(?:-([0-9]+|N)(?::([0-9]+)/([0-9]+))?)?", re.ASCII)
_FLAG = re.compile(r"[a-z_]+")


def argument(cmdline: str, name: str) -> str:
    """The value of the last `name=value`; "" when it is not given."""
    values = [word.partition("=")[2] for word in cmdline.split() if word.startswith(f"{name}=")]
    return values[-1].strip('"') if values else ""


def kernel_list(text: str, possible: int) -> int:
    """The mask of a list with `all`, `N` (the last CPU) and strides `0-31:2/8`, cut to the `possible` CPUs.

    0 when it is malformed: the kernel ignores such a parameter too.
    """
    if text == "all":
        return possible
    mask = 0
    for piece in text.split(",") if text else ():
        match = _RANGE.fullmatch(piece)
        if not match:
            return 0
        mask |= _range_mask(match, max(possible.bit_length() - 1, 0))
    return mask & possible


def _range_mask(match: re.Match[str], last_cpu: int) -> int:
    first, last = (last_cpu if end == "N" else int(end) for end in (match[1], match[2] or match[1]))
    used, group = int(match[3] or 1), int(match[4] or 1)
    last = min(last, MAX_CPU)
    if group == 0 or used > group:
        return 0
    return sum(1 << cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)


def isolcpus(cmdline: str, possible: int) -> tuple[int, int]:
    """The masks (kept from scheduling domains, kept from managed interrupts) of `isolcpus=[flag,…]list`."""
    words = argument(cmdline, "isolcpus").split(",")
    flags = {word for word in words if _FLAG.fullmatch(word) and word != "all"}
    mask = kernel_list(",".join(word for word in words if word not in flags), possible)
    domain = mask if not flags or "domain" in flags else 0
    return domain, mask if "managed_irq" in flags else 0


CPU_DIR = "devices/system/cpu"


@dataclass(frozen=True, slots=True)
class States:
    """Masks of CPUs."""

    online: int
    offline: int
    isolated: int
    nohz_full: int
    managed_irq: int


def read_states(sys: Tree, proc: Tree, source: str, notes: list[str], running: int = 0) -> States:
    """From the kernel's lists, else from the CPUs' directories and the kernel's command line.

    `running` is the mask of CPUs that this process may run on, which proves them to be online.
    """
    directories = sum(1 << cpu for cpu in numbered(sys.names(CPU_DIR), "cpu"))
    if not directories:
        raise MachineError(
            f"{source}: no CPUs under {CPU_DIR}; give a directory or an archive that holds a copy of /sys"
        )
    present = first_of((read_list(sys, f"{CPU_DIR}/present") or 0) & directories, directories)
    present |= running & directories
    online = _online(sys, present, running, notes)
    cmdline = proc.read("cmdline") or ""
    isolated, managed_irq = isolcpus(cmdline, present)
    return States(
        online=online,
        offline=present & ~online,
        isolated=first_of(read_list(sys, f"{CPU_DIR}/isolated"), isolated) & present,
        nohz_full=first_of(
            read_list(sys, f"{CPU_DIR}/nohz_full"), kernel_list(argument(cmdline, "nohz_full"), present)
        )
        & present,
        managed_irq=managed_irq,
    )


def _online(sys: Tree, present: int, running: int, notes: list[str]) -> int:
    """The list of online CPUs; each CPU's own file where it lacks a running one (lxcfs renumbers it)."""
    listed = read_list(sys, f"{CPU_DIR}/online") or 0
    if listed & ~present:
        gone = listed & ~present
        notes.append(f"{named(gone)} {verb(gone)} listed as online but {verb(gone)} not there: left out")
    if running & ~present:
        notes.append(
            f"this process may run on {named(running & ~present)}, missing from {CPU_DIR}: not the kernel's "
            "(lxcfs in a container?); run corelane outside of the container for the whole machine"
        )
    own = {cpu: (sys.read(f"{CPU_DIR}/cpu{cpu}/online") or "").strip() for cpu in bits(present & ~listed)}
    if not listed & present:
        return present & ~sum(1 << cpu for cpu, text in own.items() if text == "0")
    # A CPU that goes off-line meanwhile has 0 in its own file.
    hidden = sum(1 << cpu for cpu, text in own.items() if text == "1" and running >> cpu & 1)
    if not hidden:
        return listed & present
    notes.append(
        f"{CPU_DIR}/online lists {named(listed)}, but this process may run on {named(hidden)}: the file is "
        "not the kernel's (lxcfs in a container?); each CPU's own file used"
    )
    return listed & present | sum(1 << cpu for cpu, text in own.items() if text == "1")


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


def read_nodes(sys: Tree, proc: Tree, notes: list[str]) -> list[RawNode]:
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


def build_nodes(raw: Sequence[RawNode], cpus: Sequence[CPU]) -> tuple[NUMANode, ...]:
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
    devices = (_read_device(sys, address, online, numa) for address in sys.names(_PCI_DIR))
    return tuple(device for device in devices if device)


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
    irqs = (_read_irq(proc, number) for number in numbered(proc.names("irq"), ""))
    return tuple(irq for irq in irqs if irq)


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
