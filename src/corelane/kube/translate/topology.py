"""A node's hardware and ledger as a NodeResourceTopology, and back.

Zones say it to everybody (see `zones`); the exact CPUs are in annotations, Koordinator's where it has one.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from operator import eq
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.node import NodeResourceTopology, Zone
from corelane.kube.translate import counts, koordinator, kubelets, ledgers, machines, nodesettings, zones
from corelane.kube.translate.annotations import amount
from corelane.kube.translate.errors import TranslationError
from corelane.kube.translate.zones import HUGEPAGES, NODE, NODE_PREFIX
from corelane.machine.facts import CPUFacts
from corelane.machine.model import MAX_NODE, Machine, NUMANode, default_distances
from corelane.node import Entry, NodeConfig, Origin, PoolOptions
from corelane.node.config import Level
from corelane.node.entries import Sharing
from corelane.node.ledger import NodeState, usable_topology, with_entries
from corelane.placement.memory import MEMORY
from corelane.workload import PodQOS

__all__ = [
    "as_patch",
    "is_damaged",
    "is_koordlets",
    "machine_from_topology",
    "machine_from_zones",
    "same_machine",
    "state_from_topology",
    "topology",
]

Version: TypeAlias = Literal["v1alpha1", "v1alpha2"]

_WHOLE_POD: Final = "*"
"""Stands for a container where only the pod is known."""
_UPSTREAMS: Final = PoolOptions(
    allocator="koordinator", guaranteed_default=PodQOS.LS, be_minimum=0, system_exclusive=True
)
_NO_FACTS: Final = CPUFacts()
_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})


def topology(
    machine: Machine,
    node_name: str,
    state: NodeState,
    *,
    owner_uid: str = "",
    facts: CPUFacts = _NO_FACTS,
    node_annotations: Mapping[str, str] = _NO_ANNOTATIONS,
    levels: Collection[Level] | None = None,
    version: Version = "v1alpha2",
) -> dict[str, Any]:
    """The whole NodeResourceTopology object of a node, owned by the Node whose UID is given.

    `node_annotations` are the Node's, of which some are repeated here. `levels` are those of the zones; None
    is as the node's settings say. v1alpha1 has no attributes of its own.
    """
    api = NodeResourceTopology.api
    metadata: dict[str, Any] = {
        "name": node_name,
        "labels": {keys.MANAGED_BY: "corelane"},
        "annotations": {
            keys.MACHINE: machines.dump(machine),
            **koordinator.annotations(machine, state, facts, node_annotations),
            keys.CPU_ALLOCATIONS: ledgers.dump(state),
        },
    }
    if owner_uid:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": owner_uid}
        ]
    policy, scope = koordinator.aligned(state)
    attributes = [
        {"name": "topologyManagerPolicy", "value": policy},
        {"name": "topologyManagerScope", "value": scope},
    ]
    return {
        "apiVersion": f"{api.group}/{version}",
        "kind": api.kind,
        "metadata": metadata,
        "topologyPolicies": kubelets.topology_policies(policy, scope),
        **({"attributes": attributes} if version == "v1alpha2" else {}),
        "zones": zones.zones(machine, state, state.config.zones if levels is None else levels),
    }


def as_patch(body: Mapping[str, Any]) -> dict[str, Any]:
    """The object of `topology` as a merge patch, which takes annotations away that it has no longer."""
    metadata = body["metadata"]
    annotations = dict.fromkeys(koordinator.OPTIONAL) | metadata["annotations"]
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def is_damaged(told: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """Whether an object, as the API server has it, lacks what `topology` says; others may add to it.

    Amounts in zones are not compared: others may have changed them, and the next change of the node's brings
    them back.
    """
    annotations = told["metadata"].get("annotations") or {}
    if any(annotations.get(key) != text for key, text in body["metadata"]["annotations"].items()):
        return True
    zones = [zone.get("name") for zone in told.get("zones") or () if isinstance(zone, dict)]
    return any(zone["name"] not in zones for zone in body["zones"])


def machine_from_topology(published: NodeResourceTopology) -> Machine:
    """The hardware of a node, as its agent (or Koordinator's) published it.

    Raises TranslationError where an annotation or zone is broken, or none names the CPUs.
    """
    annotations, name = published.metadata.annotations, published.metadata.name
    nodes = _numa_nodes(published)
    if keys.MACHINE in annotations:
        return machines.load(annotations[keys.MACHINE], name, nodes)
    if keys.CPU_TOPOLOGY in annotations:
        return machines.load_detail(annotations[keys.CPU_TOPOLOGY], name, nodes)
    why = f"neither {keys.MACHINE} nor {keys.CPU_TOPOLOGY} is there, so the CPUs are unknown"
    raise TranslationError("metadata.annotations", sorted(annotations), why)


def _is_memory(name: str) -> bool:
    return name == MEMORY or name.startswith(HUGEPAGES)


def machine_from_zones(published: NodeResourceTopology) -> Machine:
    """The hardware as far as zones alone tell, the rest assumed: see `counts`. Raises TranslationError."""
    return counts.machine(published, _node_zones(published), _numa_nodes(published).values())


def same_machine(one: NodeResourceTopology, other: NodeResourceTopology) -> bool:
    """Whether two versions of an object describe the same hardware, so that it need not be read again."""
    return all(map(eq, _hardware(one), _hardware(other)))


def _hardware(published: NodeResourceTopology) -> Iterator[object]:
    """CPUs, then what each NUMA node has, and how far it is."""
    yield published.metadata.annotations.get(keys.MACHINE)
    yield published.metadata.annotations.get(keys.CPU_TOPOLOGY)
    yield [
        (zone.name, zone.costs, [(one.name, one.capacity) for one in zone.resources if _is_memory(one.name)])
        for zone in published.zones
        if zone.type == NODE
    ]


def is_koordlets(published: NodeResourceTopology) -> bool:
    """Whether no agent of ours published it, so that the labels of its Node are not in it."""
    return not published.metadata.annotations.get(keys.CPU_ALLOCATIONS)


def state_from_topology(
    published: NodeResourceTopology,
    machine: Machine | None = None,
    labels: Mapping[str, str] = _NO_ANNOTATIONS,
) -> NodeState:
    """The node's state: its machine (read from the object if not given) and who has CPUs alone on it.

    The entries of the shared pool are not in it. An object of koordlet's is a node under policy pools, with
    the pods that a kubelet gave CPUs, and without the CPUs that are kept from pods; what the `labels` of the
    Node say of policies counts there. Raises TranslationError.
    """
    known = machine or machine_from_topology(published)
    if is_koordlets(published):
        return _state_of_koordlet(published, known, labels)
    return ledgers.load(published.metadata.annotations[keys.CPU_ALLOCATIONS], known)


def _state_of_koordlet(
    published: NodeResourceTopology, machine: Machine, labels: Mapping[str, str]
) -> NodeState:
    state = _koordlets_pools(published, machine, labels)
    entries, pods = {}, {}
    for one in koordinator.pod_allocations(published.metadata.annotations):
        if cpus := one.cpus & state.usable:
            entry = Entry(
                one.uid,
                _WHOLE_POD,
                f"{one.namespace}/{one.name}",
                cpus,
                Sharing.ALONE,
                cls=PodQOS.LSR.value,
                origin=Origin.KUBELET,
                cpu_request=1000 * len(cpus),
            )
            entries[entry.key], pods[one.uid] = entry, entry.cpu_request
    return with_entries(state, entries, pods) if entries else state


def _koordlets_pools(
    published: NodeResourceTopology, machine: Machine, labels: Mapping[str, str]
) -> NodeState:
    """Pools by upstream's rules, without the CPUs that kubelet, reservation and SYSTEM pods keep."""
    said = nodesettings.read(labels, published.metadata.annotations)
    if said.faults:
        raise said.faults[0]
    kubelet, cpus = kubelets.read(published), usable_topology(machine)
    options = nodesettings.pool_options(said, kubelet, _UPSTREAMS, cpus)
    reserved = kubelet.reserved & machine.usable
    return NodeState(machine, NodeConfig("pools", reserved or None, pools=options), cpus, reserved)


def _node_zones(published: NodeResourceTopology) -> Iterator[counts.NodeZone]:
    seen = set()
    for index, zone in enumerate(published.zones):
        if zone.type == NODE:
            path = f"zones[{index}]"
            if (number := _number(f"{path}.name", zone.name)) in seen:
                raise TranslationError(f"{path}.name", zone.name, "another zone has this name")
            seen.add(number)
            yield path, number, zone


def _numa_nodes(published: NodeResourceTopology) -> dict[int, NUMANode]:
    annotations = published.metadata.annotations
    koordlets = keys.CPU_TOPOLOGY in annotations and keys.MACHINE not in annotations
    nodes = dict(_numa_node(*one) for one in _node_zones(published))
    if koordlets:
        nodes = {numa: replace(node, memory=node.memory + _in_pages(node)) for numa, node in nodes.items()}
    return {
        numa: node if node.distances else replace(node, distances=default_distances(numa, nodes))
        for numa, node in nodes.items()
    }


def _numa_node(path: str, number: int, zone: Zone) -> tuple[int, NUMANode]:
    memory, hugepages = _memory(path, zone)
    distances = {
        _number(f"{path}.costs[{i}].name", cost.name): cost.value for i, cost in enumerate(zone.costs)
    }
    return number, NUMANode(number, CPUSet(), memory, hugepages, distances)


def _in_pages(node: NUMANode) -> int:
    """Bytes of huge pages, which koordlet takes off the memory that it reports."""
    return sum(1024 * kib * count for kib, count in node.hugepages.items())


def _number(path: str, name: str) -> int:
    number = name.removeprefix(NODE_PREFIX)
    if not name.startswith(NODE_PREFIX) or not (number.isascii() and number.isdecimal()) or len(number) > 9:
        raise TranslationError(path, name, "not the name of a NUMA node's zone, such as 'node-0'")
    if int(number) > MAX_NODE:
        raise TranslationError(path, name, f"NUMA nodes have ids up to {MAX_NODE}")
    return int(number)


def _memory(path: str, zone: Zone) -> tuple[int, Mapping[int, int]]:
    memory, hugepages = 0, {}
    for index, resource in enumerate(zone.resources):
        where = f"{path}.resources[{index}]"
        if resource.name == MEMORY:
            memory = amount(f"{where}.capacity", resource.capacity, quantity.value)
        elif resource.name.startswith(HUGEPAGES):
            kib = amount(f"{where}.name", resource.name.removeprefix(HUGEPAGES), quantity.value) // 1024
            if kib <= 0:
                raise TranslationError(f"{where}.name", resource.name, "not a size of pages")
            hugepages[kib] = amount(f"{where}.capacity", resource.capacity, quantity.value) // (kib * 1024)
    return memory, hugepages
