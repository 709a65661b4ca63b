"""What is left on each NUMA node of a node of any kind, as plain numbers: the columns are made of these."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from corelane.machine.model import MaskTable
from corelane.node import NodeState
from corelane.node.managers import held
from corelane.node.zones.zone_state import Zone, ZonesState
from corelane.placement.memory_blocks import MEMORY
from corelane.workload import Amounts

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
