"""A node's hardware and ledger as a NodeResourceTopology, and back.

Zones say it to everybody: one of type Node for every NUMA node (`node-0`), one of type Socket for every
socket. The exact CPUs are in annotations, Koordinator's where it has one. Of a zone's CPUs, `capacity` is the
hardware, `allocatable` what may become exclusive, `available` what still can.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from corelane.cpuset import CPUSet
from corelane.kube import keys, quantity
from corelane.kube.node import NodeResourceTopology, Zone
from corelane.kube.quantity import BINARY_SI, QuantityError
from corelane.kube.translate import ledgers, machines
from corelane.kube.translate.errors import TranslationError
from corelane.machine.model import Machine, NUMANode
from corelane.node.ledger import NodeState

__all__ = ["machine_from_topology", "same_machine", "state_from_topology", "topology"]

_NODE_ZONE: Final = "Node"
_SOCKET_ZONE: Final = "Socket"
_NODE_PREFIX: Final = "node-"
_HUGEPAGES: Final = "hugepages-"
_POLICIES: Final = {
    ("best-effort", "container"): "BestEffortContainerLevel",
    ("best-effort", "pod"): "BestEffortPodLevel",
    ("restricted", "container"): "RestrictedContainerLevel",
    ("restricted", "pod"): "RestrictedPodLevel",
    ("single-numa-node", "container"): "SingleNUMANodeContainerLevel",
    ("single-numa-node", "pod"): "SingleNUMANodePodLevel",
}


def topology(machine: Machine, node_name: str, state: NodeState, *, owner_uid: str = "") -> dict[str, Any]:
    """The whole NodeResourceTopology object of a node, owned by the Node whose UID is given."""
    api = NodeResourceTopology.api
    metadata: dict[str, Any] = {
        "name": node_name,
        "labels": {keys.MANAGED_BY: "corelane"},
        "annotations": _annotations(machine, state),
    }
    if owner_uid:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": owner_uid}
        ]
    policy, scope = _policy(state)
    return {
        "apiVersion": api.api_version,
        "kind": api.kind,
        "metadata": metadata,
        "topologyPolicies": [_POLICIES[policy, scope] if policy != "none" else "None"],
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ],
        "zones": [*_socket_zones(machine), *_node_zones(machine, state)],
    }


def _policy(state: NodeState) -> tuple[str, str]:
    """How CPUs are aligned to NUMA nodes, in the kubelet's words."""
    config = state.config
    return (config.numa.policy if config.policy != "none" else "none"), config.numa.scope


def _annotations(machine: Machine, state: NodeState) -> dict[str, str]:
    return {
        keys.MACHINE: machines.dump(machine),
        keys.CPU_TOPOLOGY: machines.detail(machine),
        keys.CPU_SHARED_POOLS: _shared_pools(machine, state),
        keys.CPU_ALLOCATIONS: ledgers.dump(state),
    }


def _shared_pools(machine: Machine, state: NodeState) -> str:
    """Koordinator's form: the pool by socket and NUMA node."""
    pool: dict[tuple[int, int], int] = {}
    for cpu in machine.cpus:
        if cpu.id in state.shared_pool:
            place = cpu.socket, cpu.numa
            pool[place] = pool.get(place, 0) | 1 << cpu.id
    parts = [
        {"socket": socket, "node": node, "cpuset": str(CPUSet.from_mask(mask))}
        for (socket, node), mask in sorted(pool.items())
    ]
    return msgspec.json.encode(parts).decode()


def _socket_zones(machine: Machine) -> Iterator[dict[str, Any]]:
    for socket, _ in machine.socket_masks:
        yield {"name": f"socket-{socket}", "type": _SOCKET_ZONE}


def _node_zones(machine: Machine, state: NodeState) -> Iterator[dict[str, Any]]:
    for node in machine.nodes:
        zone: dict[str, Any] = {"name": f"{_NODE_PREFIX}{node.id}", "type": _NODE_ZONE}
        if parent := _socket_of(machine, node):
            zone["parent"] = parent
        if node.distances:
            zone["costs"] = [
                {"name": f"{_NODE_PREFIX}{other}", "value": distance}
                for other, distance in sorted(node.distances.items())
            ]
        yield zone | {"resources": [_cpu_resource(node, state), *_memory_resources(node)]}


def _socket_of(machine: Machine, node: NUMANode) -> str:
    """The one socket that holds all CPUs of a NUMA node, "" where there is no such."""
    sockets = [socket for socket, mask in machine.socket_masks if mask & node.cpus.mask]
    return f"socket-{sockets[0]}" if len(sockets) == 1 else ""


def _cpu_resource(node: NUMANode, state: NodeState) -> dict[str, str]:
    usable = node.cpus & state.usable
    if state.config.policy == "none":
        allocatable = available = usable
    else:
        allocatable, available = usable - state.reserved, usable & state.free_exclusive
    return _resource("cpu", *(str(len(cpus)) for cpus in (node.cpus, allocatable, available)))


def _memory_resources(node: NUMANode) -> Iterator[dict[str, str]]:
    if node.memory:
        yield _resource("memory", str(node.memory))
    for kib, pages in sorted(node.hugepages.items()):
        size = quantity.of_value(kib * 1024, BINARY_SI)
        yield _resource(f"{_HUGEPAGES}{size}", str(quantity.of_value(pages * kib * 1024, BINARY_SI)))


def _resource(name: str, capacity: str, allocatable: str = "", available: str = "") -> dict[str, str]:
    return {
        "name": name,
        "capacity": capacity,
        "allocatable": allocatable or capacity,
        "available": available or capacity,
    }


def machine_from_topology(published: NodeResourceTopology) -> Machine:
    """The hardware of a node, as its agent (or Koordinator's) published it.

    Raises TranslationError where an annotation or zone is broken, or none names the CPUs.
    """
    annotations, name = published.metadata.annotations, published.metadata.name
    nodes = dict(_numa_nodes(published))
    if keys.MACHINE in annotations:
        return machines.load(annotations[keys.MACHINE], name, nodes)
    if keys.CPU_TOPOLOGY in annotations:
        return machines.load_detail(annotations[keys.CPU_TOPOLOGY], name, nodes)
    why = f"neither {keys.MACHINE} nor {keys.CPU_TOPOLOGY} is there, so the CPUs are unknown"
    raise TranslationError("metadata.annotations", sorted(annotations), why)


def same_machine(one: NodeResourceTopology, other: NodeResourceTopology) -> bool:
    """Whether two versions of an object describe the same CPUs, so that `machine` need not be read again."""
    described = (keys.MACHINE, keys.CPU_TOPOLOGY)
    return all(one.metadata.annotations.get(key) == other.metadata.annotations.get(key) for key in described)


def state_from_topology(published: NodeResourceTopology, machine: Machine | None = None) -> NodeState:
    """The node's state: its machine (read from the object if not given) and who has CPUs alone on it.

    The entries of the shared pool are not in it. Raises TranslationError.
    """
    known = machine or machine_from_topology(published)
    return ledgers.load(published.metadata.annotations.get(keys.CPU_ALLOCATIONS, ""), known)


def _numa_nodes(published: NodeResourceTopology) -> Iterator[tuple[int, NUMANode]]:
    for index, zone in enumerate(published.zones):
        if zone.type != _NODE_ZONE:
            continue
        path = f"zones[{index}]"
        number = _number(f"{path}.name", zone.name)
        memory, hugepages = _memory(path, zone)
        distances = {
            _number(f"{path}.costs[{i}].name", cost.name): cost.value for i, cost in enumerate(zone.costs)
        }
        yield number, NUMANode(number, CPUSet(), memory, hugepages, distances)


def _number(path: str, name: str) -> int:
    number = name.removeprefix(_NODE_PREFIX)
    if not name.startswith(_NODE_PREFIX) or not (number.isascii() and number.isdecimal()) or len(number) > 9:
        raise TranslationError(path, name, "not the name of a NUMA node's zone, such as 'node-0'")
    return int(number)


def _memory(path: str, zone: Zone) -> tuple[int, Mapping[int, int]]:
    memory, hugepages = 0, {}
    for index, resource in enumerate(zone.resources):
        where = f"{path}.resources[{index}]"
        if resource.name == "memory":
            memory = _value(f"{where}.capacity", resource.capacity)
        elif resource.name.startswith(_HUGEPAGES):
            kib = _value(f"{where}.name", resource.name.removeprefix(_HUGEPAGES)) // 1024
            if kib <= 0:
                raise TranslationError(f"{where}.name", resource.name, "not a size of pages")
            hugepages[kib] = _value(f"{where}.capacity", resource.capacity) // (kib * 1024)
    return memory, hugepages


def _value(path: str, amount: str | int) -> int:
    try:
        return quantity.value(str(amount))
    except QuantityError as error:
        raise TranslationError(path, amount, str(error)) from error
