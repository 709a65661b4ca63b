"""What is left on each NUMA node of a node of any kind, as plain numbers: the columns are made of these."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import exported_zones
from corelane.machine.model import MaskTable
from corelane.node.koordinator.zone_shares import left_by_zone
from corelane.node.ledger import Decision, NodeState
from corelane.node.managers import held
from corelane.node.zone_needs import CORES, FREE, L3, WHOLE
from corelane.node.zones.alignment import is_device, requested
from corelane.node.zones.zone_state import Zone, ZonesState, fingerprint
from corelane.placement.memory_blocks import MEMORY
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.pods import PodInfo
from corelane.workload.request import Amounts, ContainerKind, PodRequest, QOSClass

HUGEPAGES: Final = "hugepages-"
_NONE: Final[Amounts] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class UncountedState:
    """A node of whose CPUs nothing is known by NUMA node; `problem` is "" where nothing is published."""

    problem: str = ""


CPUState: TypeAlias = NodeState | ZonesState | UncountedState
"""What `node_kinds.admit` decides on. All are frozen."""


@dataclass(frozen=True, slots=True)
class ZoneAmounts:
    """What a pod could still get from one NUMA node. None is an amount that is not counted by NUMA node."""

    numa: int
    """Id of the NUMA node."""
    cpu: int
    """MilliCPU that may still become exclusive; of zones without CPU ids, what the exporter has left."""
    cores: int | None = None
    """Cores of which every CPU is free."""
    l3_domains: int | None = None
    """L3 domains of which every CPU is free."""
    memory: int | None = None
    """Bytes that may still be allocated here."""
    hugepages: Amounts = field(default_factory=lambda: _NONE)
    """Resource name (`hugepages-2Mi`) to bytes."""
    devices: Amounts = field(default_factory=lambda: _NONE)
    """Extended resource to count."""
    whole: int | None = None
    """CPUs of the cores of which every CPU is free."""
    touchable: int | None = None
    """Cores with a CPU that may become exclusive."""
    quiet: int | None = None
    """CPUs that may become exclusive, in L3 domains where no pod has CPUs."""
    deduction: int = 0
    """MilliCPU of real load that `cpu` is without; 0 until real capacity is measured. See `deductions`."""

    @property
    def cpus(self) -> int:
        """Whole CPUs."""
        return self.cpu // 1000


def zone_amounts(state: CPUState) -> tuple[ZoneAmounts, ...]:
    """Return what is left by NUMA node, in the order of the machine; () where nothing is known.

    Amounts are upper bounds: `node_kinds.admit` gives no pod more of a NUMA node than this. Of a ZonesState
    they bind Guaranteed pods, and devices of all pods, and only under policy single-numa-node.
    """
    if isinstance(state, NodeState):
        return tuple(_of_ledger(state))
    if isinstance(state, ZonesState):
        return tuple(map(_of_zone, state.free))
    return ()


def _of_ledger(state: NodeState) -> Iterator[ZoneAmounts]:
    free = state.free_exclusive.mask
    topology = state.topology
    full = topology.full_cores(free) if free else 0
    devices = _devices_by_node(state)
    quiet = _quiet(state) & free
    numa = dict(zip(topology.numa_ids, topology.numa, strict=True))
    for node in state.machine.nodes:
        cpus = numa.get(node.id, 0)
        memory = state.memory.get(node.id)
        yield ZoneAmounts(
            node.id,
            1000 * (free & cpus).bit_count(),
            topology.cores_of(full & cpus).bit_count(),
            _whole_domains(state.machine.l3_masks, free & cpus, topology.all),
            memory.free.get(MEMORY, 0) if memory else None,
            {name: size for name, size in memory.free.items() if name != MEMORY} if memory else _NONE,
            devices.get(node.id, _NONE),
            (full & cpus).bit_count(),
            topology.cores_of(free & cpus).bit_count(),
            (quiet & cpus).bit_count(),
        )


def _quiet(state: NodeState) -> int:
    """The CPUs of L3 domains where no pod has CPUs, as a mask."""
    bound = state.bound.mask
    return sum(cpus for _, cpus in state.machine.l3_masks if not cpus & bound)


def _whole_domains(domains: MaskTable, free: int, usable: int) -> int:
    return sum(1 for _, cpus in domains if cpus & usable and not cpus & usable & ~free)


def free_devices(state: NodeState) -> dict[str, int]:
    """Return how many devices of each resource no pod has."""
    used = held(state.entries.values()) if state.config.devices else {}
    return {name: len(of.keys() - used.get(name, set())) for name, of in state.config.devices.items()}


def _devices_by_node(state: NodeState) -> Mapping[int, dict[str, int]]:
    """NUMA node to the free devices near it; one whose place is unknown counts everywhere."""
    if not state.config.devices:
        return {}
    used = held(state.entries.values())
    counts = {node.id: dict.fromkeys(state.config.devices, 0) for node in state.machine.nodes}
    for resource, inventory in state.config.devices.items():
        for device, near in inventory.items():
            if device in used.get(resource, ()):
                continue
            for node, here in counts.items():
                here[resource] += not near or near >> node & 1
    return counts


def _of_zone(zone: Zone) -> ZoneAmounts:
    available = zone.available
    return ZoneAmounts(
        zone.id,
        available.get("cpu", 0),
        memory=available.get(MEMORY),
        hugepages={name: amount for name, amount in available.items() if name.startswith(HUGEPAGES)},
        devices={name: amount for name, amount in available.items() if "/" in name},
    )


# What is left of each resource on each NUMA node of a state as one array, and of the node as a whole.
#
# Row 0 is the node as a whole, each other row one NUMA node. Amounts are upper bounds: `node_kinds.admit`
# gives no pod more, so a pod that needs more is rejected. An amount that is not counted by NUMA node is
# `UNLIMITED`.


UNLIMITED: Final = 1 << 60
_NOTHING: Final = (0, 0, 0, 0)
_NOT_COUNTED: Final = UNLIMITED >> 16
"""As good as unlimited, and so is the sum over NUMA nodes."""
_FIXED: Final = (FREE, WHOLE, CORES, L3)
MOST_RESOURCES: Final = 64
"""Resources with a column; others are left to `admit`."""


class ResourceIndex:
    """Numbers the columns of a table; resources are added as they appear, and keep their column."""

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns = {name: number for number, name in enumerate(_FIXED)}

    def __len__(self) -> int:
        return len(self._columns)

    def column(self, name: str) -> int | None:
        """Return the column of a resource, which is added if it is new; None where there are too many."""
        number = self._columns.get(name)
        if number is None and len(self._columns) < MOST_RESOURCES:
            number = self._columns[name] = len(self._columns)
        return number

    def vector(self, amounts: Amounts) -> NDArray[np.int64]:
        """Return amounts by column; resources without one are left out."""
        columns = [(self.column(name), amount) for name, amount in amounts.items()]
        vector = np.zeros(len(self._columns), dtype=np.int64)
        for column, amount in columns:
            if column is not None:
                vector[column] = min(amount, UNLIMITED)
        return vector


def table_of(state: CPUState, amounts: Sequence[ZoneAmounts], index: ResourceIndex) -> NDArray[np.int64]:
    """Return the table of a state, whose amounts by NUMA node these are."""
    named = _named(state, amounts)
    zones = [_fixed(one) for one in amounts] + [_NOTHING] * (len(named) - len(amounts))
    columns = {name: index.column(name) for here in named for name in here}
    beyond = [UNLIMITED] * (len(index) - len(_FIXED))
    rows = [[*map(sum, zip(_NOTHING, *zones, strict=True)), *beyond], *([*zone, *beyond] for zone in zones)]
    totals = free_devices(state) if columns and isinstance(state, NodeState) else {}
    for name, column in columns.items():
        if column is not None:
            here = [max(0, min(one.get(name, 0), UNLIMITED)) for one in named]
            rows[0][column] = min(totals.get(name, sum(here)), UNLIMITED)
            for row, amount in zip(rows[1:], here, strict=True):
                row[column] = amount
    return np.array(rows, dtype=np.int64)


def _fixed(zone: ZoneAmounts) -> tuple[int, int, int, int]:
    whole, touchable, quiet = zone.whole, zone.touchable, zone.quiet
    if whole is None or touchable is None or quiet is None:
        return max(0, zone.cpus), _NOT_COUNTED, _NOT_COUNTED, _NOT_COUNTED
    return zone.cpus, whole, touchable, quiet


def _named(state: CPUState, amounts: Sequence[ZoneAmounts]) -> list[Mapping[str, int]]:
    """Memory, huge pages, devices and others by name, in the order of the NUMA nodes, then of other zones."""
    if isinstance(state, ZonesState):
        return [zone.available for zone in state.free]
    if isinstance(state, NodeState) and state.config.koordinator is not None:
        left = left_by_zone(state)
        numbered = [left.pop(one.numa, {}) for one in amounts]
        return numbered + list(left.values())
    return [dict(_named_of_ledger(one)) for one in amounts] if isinstance(state, NodeState) else []


def _named_of_ledger(zone: ZoneAmounts) -> Iterator[tuple[str, int]]:
    if zone.memory is not None:
        yield "memory", zone.memory
    yield from zone.hugepages.items()
    yield from zone.devices.items()


# What is taken off each NUMA node of one node beside what its pods request: real load, once it is measured.
#
# A canonical state with deductions is another one, so that whatever follows from it (facts, the tables of
# columns, answers) has them. Exported zones have less available; where CPUs have ids, the ledger stays as it
# is, and the CPUs that it would give are compared with what is left: a node that would give some of a loaded
# NUMA node is refused, though another one has room. They are zero for now: nothing sets them.


Deductions: TypeAlias = tuple[tuple[int, int], ...]
"""NUMA node and milliCPU, ascending; only those above 0."""

NONE: Final[Deductions] = ()


def deductions(milli: Mapping[int, int]) -> Deductions:
    """Return NUMA node to milliCPU as a value that can be compared."""
    return tuple(sorted((numa, amount) for numa, amount in milli.items() if amount > 0))


def without(state: ZonesState, off: Deductions) -> ZonesState:
    """Return exported zones with less CPU available."""
    milli = dict(off)
    zones = tuple(
        replace(zone, available={**zone.available, "cpu": max(0, zone.available["cpu"] - milli[zone.id])})
        if zone.id in milli and "cpu" in zone.available
        else zone
        for zone in state.zones
    )
    return replace(state, zones=zones)


def deducted(amounts: Iterable[ZoneAmounts], off: Deductions) -> tuple[ZoneAmounts, ...]:
    """Return the amounts without what is deducted."""
    milli = dict(off)
    return tuple(_deducted(zone, milli.get(zone.numa, 0)) for zone in amounts)


def _deducted(zone: ZoneAmounts, milli: int) -> ZoneAmounts:
    return replace(zone, cpu=max(0, zone.cpu - milli), deduction=milli) if milli else zone


def decided(
    decision: Decision, before: Iterable[ZoneAmounts], after: Iterable[ZoneAmounts], off: Deductions
) -> Decision:
    """Return the decision, a refusal where the pod gets CPUs of which real load leaves too few.

    `before` and `after` are the amounts without and with the pod, nothing deducted.
    """
    milli, left = dict(off), {zone.numa: zone.cpu for zone in after}
    for zone in before:
        taken, load = zone.cpu - left.get(zone.numa, 0), milli.get(zone.numa, 0)
        if decision.admitted and taken > 0 and load and taken > zone.cpu - load:
            return Decision(
                False, Reason(Code.ZONE_LOADED, (zone.numa, taken, max(0, zone.cpu - load), load))
            )
    return decision


# Which pods an exporter's zones count already, so that they are not taken off again.
#
# The rule is that of scheduler-plugins' OverReserve cache: an object counts the pods of its fingerprint.
# Where that is of other pods than are known here, the object waits, and the former zones stay in force with
# all pods that they do not count. An object without a fingerprint counts the pods that were seen started
# before it came; pods without exclusive resources, which change no zone, count from their start.


def counted(published: NodeResourceTopology, pods: Iterable[PodInfo]) -> frozenset[str] | None:
    """Return the UIDs of the node's pods that the object counts; None where its fingerprint is of others."""
    bound = [info for info in pods if info.pod.spec.node_name]
    running = [info for info in bound if started(info)]
    expected = exported_zones.pods_fingerprint(published)
    if not expected.text:
        return _uids(running)
    names = {resource.name for zone in published.zones for resource in zone.resources}
    for candidates in (running, bound):
        signed = [info for info in candidates if not expected.exclusive_only or _is_exclusive(info, names)]
        if fingerprint(_names(signed)) == expected.text:
            return _uids(candidates)
    return None


def counts_from_start(state: ZonesState, published: NodeResourceTopology, info: PodInfo) -> bool:
    """Return whether a started pod changes no zone, and no fingerprint will tell that it is counted."""
    names = {name for zone in state.zones for name in zone.available}
    return not exported_zones.pods_fingerprint(published).text and not _is_exclusive(info, names)


def started(info: PodInfo) -> bool:
    """Return whether the kubelet has admitted the pod."""
    return bool(info.pod.spec.node_name) and info.pod.status.phase not in ("", "Pending")


def started_uids(pods: Iterable[PodInfo]) -> frozenset[str]:
    """Return the UIDs of the pods that the kubelet has admitted."""
    return _uids(filter(started, pods))


def _uids(pods: Iterable[PodInfo]) -> frozenset[str]:
    return frozenset(info.uid for info in pods)


def _names(pods: Iterable[PodInfo]) -> Iterator[tuple[str, str]]:
    return ((info.pod.metadata.namespace, info.pod.metadata.name) for info in pods)


def _is_exclusive(info: PodInfo, names: set[str]) -> bool:
    return info.request is not None and has_exclusive_resources(info.request, names)


def has_exclusive_resources(request: PodRequest, names: set[str]) -> bool:
    """Upstream's `AreExclusiveForPod`: devices in some zone, integer CPUs or memory of a Guaranteed pod."""
    guaranteed = request.qos is QOSClass.GUARANTEED
    lasting = (one for one in request.containers if one.kind is not ContainerKind.INIT)
    amounts = [pair for container in lasting for pair in requested(container).items()]
    return any(
        name in names if is_device(name) else guaranteed and _is_exclusive_amount(name, amount)
        for name, amount in amounts
    )


def _is_exclusive_amount(name: str, amount: int) -> bool:
    if name == "cpu":
        return amount > 0 and amount % 1000 == 0
    return amount > 0 and (name == "memory" or name.startswith("hugepages-"))
