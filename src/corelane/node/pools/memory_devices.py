"""Devices and memory of pods under policy `pools`: wanted on the NUMA nodes of the CPUs, handed out there.

The managers are the kubelet's; only the NUMA nodes are chosen otherwise: with the CPUs, or with the zone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from corelane.cpuset import bits
from corelane.node import memory
from corelane.node.entries import Entry
from corelane.node.managers import Managers
from corelane.placement.optimal.demand import Resource
from corelane.placement.topologymanager import NUMAAffinity
from corelane.reasons import Code, Reason
from corelane.workload import ContainerRequest, PodRequest

__all__ = ["hand_out", "nodes_with", "of_entry", "reasons", "resources"]


def resources(more: Managers | None, request: PodRequest) -> tuple[Resource, ...]:
    """What the pod wants beside CPUs, and where it is free."""
    return () if more is None else (*_devices(more, request), *_memory(more, request))


def _devices(more: Managers, request: PodRequest) -> Iterator[Resource]:
    if more.devices is None:
        return
    for name, n in more.devices.of_pod(request).items():
        all_ = more.devices.inventory[name]
        free = _count((all_[one] for one in more.devices.free(name)), more.devices.nodes)
        yield Resource(name, n, free, _count(all_.values(), more.devices.nodes))


def _count(near: Iterable[int], nodes: int) -> dict[int, int]:
    """NUMA node to the devices near it; one of which nothing is known counts everywhere."""
    found = dict.fromkeys(bits(nodes), 0)
    for mask in near:
        for node in bits(mask or nodes):
            found[node] += 1
    return found


def _memory(more: Managers, request: PodRequest) -> Iterator[Resource]:
    if more.memory is None:
        return
    nodes = more.memory.nodes
    for name, size in memory.of_pod(request).items():
        free = {node: one.free.get(name, 0) for node, one in nodes.items()}
        yield Resource(name, size, free, {node: one.allocatable.get(name, 0) for node, one in nodes.items()})


def nodes_with(rooms: Mapping[int, int], wanted: Iterable[Resource]) -> dict[int, int]:
    """Of these NUMA nodes, those that have all of what is wanted."""
    wanted = tuple(wanted)
    return {
        node: milli
        for node, milli in rooms.items()
        if all(one.free.get(node, 0) >= one.wanted for one in wanted)
    }


def hand_out(more: Managers, request: PodRequest, nodes: int) -> None:
    """Give all containers their devices and memory, on these NUMA nodes first. Raises Refusal."""
    affinity = NUMAAffinity(nodes or None, preferred=False, admit=True)
    for container in request.containers:
        more.allocate_devices(container, affinity)
        more.allocate_memory(container, affinity)


def reasons(entry: Entry) -> Iterator[Reason]:
    """Yield which devices and memory a container has."""
    for resource, ids in entry.devices.items():
        yield Reason(Code.DEVICES, (resource, ids), entry.container)
    for block in entry.memory:
        yield Reason(Code.MEMORY, (block.resource, block.size, block.nodes.mask), entry.container)


def of_entry(more: Managers | None, container: ContainerRequest) -> dict[str, Any]:
    """What a container's entry says of its devices and memory."""
    if more is None:
        return {}
    blocks = more.memory.blocks.get(container.name, ()) if more.memory else ()
    devices = more.devices.given.get(container.name, {}) if more.devices else {}
    return {"mems": memory.mems(blocks), "memory": blocks, "devices": devices}
