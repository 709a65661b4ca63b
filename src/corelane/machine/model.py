"""The hardware as plain, frozen values: logical CPUs with their place, NUMA nodes, devices, and mask tables.

A machine is read once and shared; whatever a hot loop asks is prepared here as bare int masks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from corelane.cpuset import MAX_CPU, CPUSet, bits

MaskTable = tuple[tuple[int, int], ...]
"""Pairs of (id, mask of CPUs), ascending by id."""

MAX_CPUS = 8192
"""Most CPUs of a machine under Linux."""
MAX_NODE = 1023
"""The highest NUMA node that Linux can have."""

_NONE = CPUSet()
LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20


class MachineError(ValueError):
    """A machine that cannot be read or makes no sense; the message names the file or field and what to do."""


@dataclass(frozen=True, slots=True)
class CPU:
    """One online logical CPU and its place.

    `core` is the lowest logical CPU id among the SMT siblings, as in the kubelet, so it is unique in the
    machine; `core_id` is the kernel's, unique only within a socket. `socket` is the physical package id.
    `die` is the kernel's, within the socket. `cluster` is the lowest CPU id of the CPUs that share a
    cluster (an L2 cache, mostly), the core where there are none. `l3` is the kernel's id of the L3 cache;
    see docs/machines.md for what stands in when the kernel has none. `numa` is the id of the NUMA node.
    `uncore` is the id by which a kubelet knows the L3 where `kubelet_uncore_ids` cannot derive it.
    `kind` is "" on machines with equal cores, else "P", "M" or "E" (most to least powerful).
    `capacity` is the kernel's relative performance, at most 1024; 0 is unknown, as for `max_khz`.
    """

    id: int
    core: int
    core_id: int
    socket: int
    die: int
    cluster: int
    l3: int
    numa: int
    kind: str = ""
    max_khz: int = 0
    capacity: int = 0
    uncore: int | None = None


@dataclass(frozen=True, slots=True)
class NUMANode:
    """A NUMA node; one without CPUs is memory only.

    `memory` is in bytes, `hugepages` maps a page size in KiB to the number of pages in the pool, and
    `distances` maps every node's id to the distance from here (10 = local).
    """

    id: int
    cpus: CPUSet
    memory: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict, hash=False)
    distances: Mapping[int, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Device:
    """A PCI device: where it sits. `numa` is None where firmware does not say.

    `kind` is a word for the PCI base class (network, storage, display, accelerator …); `pci_class`,
    `vendor` and `product` are sysfs' hexadecimal ids, `driver` is the bound driver's name or "".
    """

    address: str
    kind: str
    numa: int | None
    local_cpus: CPUSet
    pci_class: str = ""
    vendor: str = ""
    product: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True)
class IRQ:
    """An interrupt whose affinity the kernel manages: it cannot be moved away from `cpus`."""

    number: int
    cpus: CPUSet
    name: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Machine:
    """A machine's hardware. `cpus` holds the online CPUs, ascending by id.

    `offline` are the CPUs that are present but switched off; `allowed` those this process may use;
    `isolated` are taken from the scheduler's domains (isolcpus), `nohz_full` run without a tick, and
    `managed_irq` are kept free of managed interrupts (isolcpus=managed_irq). `notes` are sentences: where
    the source contradicted itself, and what was assumed. `source` is where the machine was read.

    The tables are derived: `core_masks`, `l3_masks`, `socket_masks` and `numa_masks` (nodes with CPUs only)
    pair an id with the mask of its CPUs. A restricted machine keeps the ids of the whole one.
    """

    name: str
    cpus: tuple[CPU, ...]
    nodes: tuple[NUMANode, ...]
    online: CPUSet
    offline: CPUSet = _NONE
    allowed: CPUSet = _NONE
    isolated: CPUSet = _NONE
    nohz_full: CPUSet = _NONE
    managed_irq: CPUSet = _NONE
    devices: tuple[Device, ...] = ()
    irqs: tuple[IRQ, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""

    cpus_mask: int = field(init=False, repr=False, compare=False)
    core_masks: MaskTable = field(init=False, repr=False, compare=False)
    l3_masks: MaskTable = field(init=False, repr=False, compare=False)
    numa_masks: MaskTable = field(init=False, repr=False, compare=False)
    socket_masks: MaskTable = field(init=False, repr=False, compare=False)
    _by_id: Mapping[int, CPU] = field(init=False, repr=False, compare=False)
    _siblings: Mapping[int, int] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_id = {cpu.id: cpu for cpu in self.cpus}
        if len(by_id) != len(self.cpus):
            raise MachineError(f"machine {self.name}: field cpus: a CPU id appears twice")
        _check_ids(f"machine {self.name}: field cpus: CPU", by_id, MAX_CPU)
        nodes = {cpu.numa for cpu in self.cpus} | {node.id for node in self.nodes}
        _check_ids(f"machine {self.name}: field nodes: NUMA node", nodes, MAX_NODE)
        cores = _table(self.cpus, lambda cpu: cpu.core)
        derived = {
            "cpus_mask": CPUSet(by_id).mask,
            "core_masks": cores,
            "l3_masks": _table(self.cpus, lambda cpu: cpu.l3),
            "numa_masks": _table(self.cpus, lambda cpu: cpu.numa),
            "socket_masks": _table(self.cpus, lambda cpu: cpu.socket),
            "_by_id": by_id,
            "_siblings": {cpu: mask for _, mask in cores for cpu in bits(mask)},
            "_hash": hash((self.name, self.source, self.cpus, self.online, self.allowed)),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return self._hash

    @property
    def usable(self) -> CPUSet:
        """The CPUs that are online and allowed to us."""
        return self.online & self.allowed

    def cpu(self, cpu: int) -> CPU:
        """The logical CPU with this id; MachineError when it is not online here."""
        try:
            return self._by_id[cpu]
        except KeyError:
            raise MachineError(f"unknown CPU ID: {cpu}") from None

    def siblings(self, cpu: int) -> int:
        """The mask of the SMT siblings of a CPU, itself included; MachineError when it is not online here."""
        try:
            return self._siblings[cpu]
        except KeyError:
            raise MachineError(f"unknown CPU ID: {cpu}") from None

    def node(self, numa: int) -> NUMANode:
        """The NUMA node with this id; MachineError when there is none."""
        for node in self.nodes:
            if node.id == numa:
                return node
        raise MachineError(f"unknown NUMA node: {numa}")

    def restricted(self, mask: int) -> "Machine":
        """The same machine with only the CPUs in `mask`; cores, caches and nodes keep ids and memory."""
        keep = CPUSet.from_mask(mask & self.cpus_mask)
        return replace(
            self,
            cpus=tuple(cpu for cpu in self.cpus if cpu.id in keep),
            nodes=tuple(replace(node, cpus=node.cpus & keep) for node in self.nodes),
            online=self.online & keep,
            offline=_NONE,
            allowed=self.allowed & keep,
            isolated=self.isolated & keep,
            nohz_full=self.nohz_full & keep,
            managed_irq=self.managed_irq & keep,
        )


def _check_ids(what: str, ids: Iterable[int], most: int) -> None:
    for id_ in ids:
        if not 0 <= id_ <= most:
            raise MachineError(f"{what} {id_} is not between 0 and {most}")


def _table(cpus: Iterable[CPU], key: Callable[[CPU], int]) -> MaskTable:
    masks: dict[int, int] = {}
    for cpu in cpus:
        unit = key(cpu)
        masks[unit] = masks.get(unit, 0) | 1 << cpu.id
    return tuple(sorted(masks.items()))


def from_rows(name: str, rows: Iterable[tuple[int, int, int, int, int]], *, source: str = "") -> Machine:
    """A machine from rows (cpu, core, socket, NUMA node, L3), as scheduler caches and test vectors hold them.

    The core ids may be of any numbering that is unique within a socket; they are kept as `core_id`. The L3 is
    what a kubelet sees as its uncore cache.
    """
    rows = sorted(rows)
    online = CPUSet(row[0] for row in rows)
    first: dict[tuple[int, int], int] = {}
    for cpu, core, socket, _, _ in rows:
        first.setdefault((socket, core), cpu)
    cpus = tuple(
        CPU(cpu, first[socket, core], core, socket, 0, first[socket, core], l3, numa, uncore=l3)
        for cpu, core, socket, numa, l3 in rows
    )
    members = _table(cpus, lambda cpu: cpu.numa)
    nodes = tuple(
        NUMANode(numa, CPUSet.from_mask(mask), distances=default_distances(numa, (n for n, _ in members)))
        for numa, mask in members
    )
    return Machine(name, cpus, nodes, online, allowed=online, source=source)


def crossings(cpus: Sequence[CPU]) -> Iterator[str]:
    """A note where sockets and NUMA nodes cross: each has CPUs that the other lacks (hypervisors do that)."""
    sockets, nodes = _table(cpus, lambda cpu: cpu.socket), _table(cpus, lambda cpu: cpu.numa)
    pairs = [
        (socket, node)
        for socket, members in sockets
        for node, mask in nodes
        if members & mask and members & ~mask and mask & ~members
    ]
    if pairs:
        these = (",".join(str(number) for number in sorted(set(side))) for side in zip(*pairs, strict=True))
        crossing, crossed = these
        yield (
            f"sockets {crossing} and NUMA nodes {crossed} cross: each has CPUs that the other lacks; "
            "memory is as near as the NUMA node says"
        )


def default_distances(numa: int, nodes: Iterable[int]) -> dict[int, int]:
    """10 to itself, 20 to any other: what Linux assumes without a SLIT table."""
    return {other: LOCAL_DISTANCE if other == numa else REMOTE_DISTANCE for other in nodes}


_T = TypeVar("_T")

_SAME_KIND = 0.85
"""Cores within 15 % of the next faster one are of its kind: favoured cores are up to 10 % faster."""


def core_kinds(values: Mapping[_T, int]) -> dict[_T, str]:
    """The kind of each core by its capacity or maximum frequency (any unit, 0 = unknown).

    Distinct values are sorted, and a new kind starts where one falls below 85 % of the one before. With a
    single kind, or an unknown value, everything is "". The first kind is P, the last E, any between M.
    """
    levels = sorted(set(values.values()), reverse=True)
    if not levels or levels[-1] <= 0:
        return dict.fromkeys(values, "")
    rank = {levels[0]: 0}
    for faster, slower in pairwise(levels):
        rank[slower] = rank[faster] + (slower < faster * _SAME_KIND)
    last = rank[levels[-1]]
    return {unit: _letter(rank[value], last) for unit, value in values.items()}


def _letter(rank: int, last: int) -> str:
    if last == 0:
        return ""
    return "P" if rank == 0 else "E" if rank == last else "M"


_DEVICE_KINDS = {
    0x00: "other",
    0x01: "storage",
    0x02: "network",
    0x03: "display",
    0x04: "multimedia",
    0x07: "communication",
    0x09: "input",
    0x0A: "docking",
    0x0B: "co-processor",
    0x0C: "serial bus",
    0x0D: "wireless",
    0x0E: "controller",
    0x0F: "satellite",
    0x10: "encryption",
    0x12: "accelerator",
    0x13: "instrument",
    0x40: "co-processor",
    0xFF: "other",
}
_INFINIBAND = (0x0207, 0x0C06)


def device_kind(pci_class: int) -> str | None:
    """A word for a class code of base class and subclass (0x0200); None for what belongs to the chipset.

    That is memory controllers (05), bridges (06), system peripherals (08) and signal processors (11; on
    servers the uncore counters). Source: PCI Code and ID Assignment Specification 1.11.
    """
    return "infiniband" if pci_class in _INFINIBAND else _DEVICE_KINDS.get(pci_class >> 8)


def kubelet_uncore_ids(cpus: Iterable[CPU]) -> dict[int, int]:
    """CPU to the id of its uncore cache in the kubelet; `cpus` are all that are online.

    An L3 counts as the node's if it holds as many CPUs as the node would if all its cores were like this one.
    """
    cpus = tuple(cpus)
    sharing = Counter(cpu.l3 for cpu in cpus)
    threads = Counter((cpu.numa, cpu.core) for cpu in cpus)
    cores = Counter(numa for numa, _ in threads)

    def of(cpu: CPU) -> int:
        if cpu.uncore is not None:
            return cpu.uncore
        whole = sharing[cpu.l3] == cores[cpu.numa] * threads[cpu.numa, cpu.core]
        return cpu.socket if whole else cpu.l3

    return {cpu.id: of(cpu) for cpu in cpus}
