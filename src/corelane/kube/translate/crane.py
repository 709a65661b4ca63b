"""Read the NodeResourceTopology of gocrane (`topology.crane.io/v1alpha1`); its result on pods both ways.

It gives amounts by NUMA node, the policies of gocrane's agent, and the reserved CPUs. corelane only reads it,
and `kube.client` refuses to write it: every ten seconds gocrane's agent replaces all zones by its own and
removes foreign attributes, and its scheduler counts zones of other types than Node as NUMA nodes.
"""

# ruff: noqa: D101 - the API reference documents its own structs

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube.meta import API, Object, ResourceList, Wire
from corelane.kube.objects import CostInfo
from corelane.kube.translate import topology_zones
from corelane.kube.translate.exported_zones import MOST
from corelane.kube.translate.fields import (
    TranslationError,
    amount,
    cpus,
    crane_node_id,
)
from corelane.machine.model import Machine, NUMANode, default_distances
from corelane.node.pools.classes import NodePolicies
from corelane.node.zones.zone_state import CraneRules, Zone, ZonesState
from corelane.workload import NUMAPolicy

_RESERVED_CPUS: Final = "go.crane.io/reserved-system-cpus"
_NUMA_POLICIES: Final = {
    "SingleNUMANodePodLevel": NUMAPolicy.SINGLE_NUMA_NODE,
    "None": NUMAPolicy.NONE,
    "": None,
}


class CraneManagerPolicy(Wire, frozen=True):
    """`cpuManagerPolicy` is None or Static, of gocrane's agent and not of the kubelet."""

    cpu_manager_policy: str = ""
    topology_manager_policy: str = ""


class CraneResources(Wire, frozen=True):
    capacity: ResourceList = msgspec.field(default_factory=dict)
    allocatable: ResourceList = msgspec.field(default_factory=dict)
    reserved_cpu_nums: int = msgspec.field(name="reservedCPUNums", default=0)


class CraneZone(Wire, frozen=True):
    name: str = ""
    type: str = ""
    costs: tuple[CostInfo, ...] = ()
    resources: CraneResources = CraneResources()


class CraneTopology(Object, frozen=True):
    """One for each node, of the same name. Neither spec nor status: all fields are top level."""

    api: ClassVar[API] = API(
        "topology.crane.io",
        "v1alpha1",
        "NodeResourceTopology",
        "noderesourcetopologies",
        namespaced=False,
        optional=True,
    )
    crane_manager_policy: CraneManagerPolicy = CraneManagerPolicy()
    reserved: ResourceList = msgspec.field(default_factory=dict)
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    zones: tuple[CraneZone, ...] = ()


@dataclass(frozen=True, slots=True)
class CraneNUMA:
    """A NUMA node: milliCPU and bytes of memory, capacity and allocatable."""

    id: int
    cpu: int
    cpu_allocatable: int
    memory: int
    memory_allocatable: int
    reserved_cpus: int = 0
    distances: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CraneNode:
    """A node as gocrane's agent describes it."""

    pins: bool
    """Whether gocrane's agent pins pods here, and not the kubelet's static policy."""
    policies: NodePolicies
    reserved: CPUSet
    """CPUs that the kubelet reserves by id; empty where it reserves by amount."""
    numa: tuple[CraneNUMA, ...]


def crane_node(published: CraneTopology) -> CraneNode:
    """Read a gocrane NodeResourceTopology. Raises TranslationError."""
    policy = published.crane_manager_policy
    if policy.topology_manager_policy not in _NUMA_POLICIES:
        where = "craneManagerPolicy.topologyManagerPolicy"
        raise TranslationError(where, policy.topology_manager_policy, "use None or SingleNUMANodePodLevel")
    if policy.cpu_manager_policy not in ("None", "Static"):
        where = "craneManagerPolicy.cpuManagerPolicy"
        raise TranslationError(where, policy.cpu_manager_policy, "use None or Static")
    zones = [(f"zones[{i}]", zone) for i, zone in enumerate(published.zones) if zone.type == "Node"]
    numa = tuple(_numa(where, zone) for where, zone in zones)
    for index, node in enumerate(numa):
        if node.id in (other.id for other in numa[:index]):
            raise TranslationError(f"{zones[index][0]}.name", f"node{node.id}", "another zone has this name")
    return CraneNode(
        policy.cpu_manager_policy == "Static",
        NodePolicies(numa=_NUMA_POLICIES[policy.topology_manager_policy]),
        cpus(f"attributes[{_RESERVED_CPUS}]", published.attributes.get(_RESERVED_CPUS)),
        numa,
    )


def crane_machine(published: CraneTopology) -> Machine:
    """Return the hardware in the zones, and assume the rest (`topology_zones.ASSUMED`).

    Raises TranslationError.
    """
    numa = crane_node(published).numa
    ids = [node.id for node in numa]
    nodes = (
        NUMANode(node.id, CPUSet(), node.memory, {}, node.distances or default_distances(node.id, ids))
        for node in numa
    )
    counts = {node.id: node.cpu // 1000 for node in numa}
    return topology_zones.assumed_machine(published.metadata.name, counts, nodes)


def crane_zones(published: CraneTopology) -> ZonesState:
    """Return the CPUs allocatable by NUMA node, under gocrane's rules. Raises TranslationError."""
    node = crane_node(published)
    zones = (Zone(numa.id, {"cpu": min(numa.cpu_allocatable, MOST)}, numa.distances) for numa in node.numa)
    aware = node.policies.numa is NUMAPolicy.SINGLE_NUMA_NODE
    return ZonesState(tuple(zones), crane=CraneRules(node.pins, aware))


def _numa(where: str, zone: CraneZone) -> CraneNUMA:
    resources = zone.resources
    cpu, memory = _amounts(f"{where}.resources.capacity", resources.capacity)
    cpu_allocatable, memory_allocatable = _amounts(f"{where}.resources.allocatable", resources.allocatable)
    costs = enumerate(zone.costs)
    return CraneNUMA(
        crane_node_id(f"{where}.name", zone.name),
        cpu,
        cpu_allocatable,
        memory,
        memory_allocatable,
        resources.reserved_cpu_nums,
        {crane_node_id(f"{where}.costs[{i}].name", cost.name): cost.value for i, cost in costs},
    )


def _amounts(where: str, amounts: ResourceList) -> tuple[int, int]:
    """MilliCPU and bytes."""
    cpu = amount(f"{where}.cpu", amounts.get("cpu"), quantity.milli)
    return cpu, amount(f"{where}.memory", amounts.get("memory"), quantity.value)
