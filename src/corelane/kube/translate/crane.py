"""What gocrane knows of a node: amounts by NUMA node, who pins there, and which CPUs are reserved.

Only for reading, and `kube.client` refuses to write it. With gocrane's agent running, writing any field of
its object's body is unsafe: every ten seconds the agent replaces all zones by its own, and takes attributes
of others away. Zones of other types than Node would count as NUMA nodes in its scheduler.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube.crane import CraneTopology, CraneZone
from corelane.kube.translate import counts
from corelane.kube.translate.annotations import amount, cpus
from corelane.kube.translate.errors import TranslationError
from corelane.machine.model import MAX_NODE, Machine, NUMANode, default_distances
from corelane.node.policies import NodePolicies
from corelane.workload import NUMAPolicy

__all__ = ["CraneNUMA", "CraneNode", "machine", "numa_id", "read"]

_RESERVED_CPUS: Final = "go.crane.io/reserved-system-cpus"
_ALIGNED: Final = {"SingleNUMANodePodLevel": NUMAPolicy.SINGLE_NUMA_NODE, "None": NUMAPolicy.NONE, "": None}


@dataclass(frozen=True, slots=True)
class CraneNUMA:
    """A NUMA node: milliCPU and bytes of memory, all and for pods."""

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
    """Whether gocrane's agent pins pods here; where the kubelet is static, it leaves that to it."""
    policies: NodePolicies
    reserved: CPUSet
    """CPUs that the kubelet reserves by name; empty where it reserves by amount."""
    numa: tuple[CraneNUMA, ...]


def read(published: CraneTopology) -> CraneNode:
    """The facts in a gocrane NodeResourceTopology. Raises TranslationError."""
    policy = published.crane_manager_policy
    named = policy.topology_manager_policy
    if named not in _ALIGNED:
        where = "craneManagerPolicy.topologyManagerPolicy"
        raise TranslationError(where, named, "use None or SingleNUMANodePodLevel")
    if policy.cpu_manager_policy not in ("None", "Static"):
        where = "craneManagerPolicy.cpuManagerPolicy"
        raise TranslationError(where, policy.cpu_manager_policy, "use None or Static")
    zones = [(f"zones[{i}]", zone) for i, zone in enumerate(published.zones) if zone.type == "Node"]
    numa = tuple(_numa(where, zone) for where, zone in zones)
    for place, one in enumerate(numa):
        if one.id in (other.id for other in numa[:place]):
            raise TranslationError(f"{zones[place][0]}.name", f"node{one.id}", "another zone has this name")
    return CraneNode(
        policy.cpu_manager_policy == "Static",
        NodePolicies(numa=_ALIGNED[named]),
        cpus(f"attributes[{_RESERVED_CPUS}]", published.attributes.get(_RESERVED_CPUS)),
        numa,
    )


def machine(published: CraneTopology) -> Machine:
    """The hardware as far as the zones tell, the rest assumed: see `counts`. Raises TranslationError."""
    numa = read(published).numa
    ids = [one.id for one in numa]
    nodes = (
        NUMANode(one.id, CPUSet(), one.memory, {}, one.distances or default_distances(one.id, ids))
        for one in numa
    )
    return counts.assumed(published.metadata.name, {one.id: one.cpu // 1000 for one in numa}, nodes)


def _numa(where: str, zone: CraneZone) -> CraneNUMA:
    found = zone.resources
    capacity, allocatable = (
        _amounts(f"{where}.resources.{name}", listed)
        for name, listed in (("capacity", found.capacity), ("allocatable", found.allocatable))
    )
    return CraneNUMA(
        numa_id(f"{where}.name", zone.name),
        *(capacity[0], allocatable[0], capacity[1], allocatable[1]),
        found.reserved_cpu_nums,
        {numa_id(f"{where}.costs[{i}].name", one.name): one.value for i, one in enumerate(zone.costs)},
    )


def _amounts(where: str, listed: Mapping[str, str | int]) -> tuple[int, int]:
    """MilliCPU and bytes."""
    cpu, memory = (
        amount(f"{where}.{name}", listed.get(name, "0"), convert)
        for name, convert in (("cpu", quantity.milli), ("memory", quantity.value))
    )
    return cpu, memory


def numa_id(where: str, name: object) -> int:
    """The NUMA node that gocrane calls `node<id>`. Raises TranslationError."""
    digits = name.removeprefix("node") if isinstance(name, str) and name.startswith("node") else ""
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 6 and int(digits) <= MAX_NODE):
        raise TranslationError(where, name, "not the name of a NUMA node's zone, such as 'node0'")
    return int(digits)
