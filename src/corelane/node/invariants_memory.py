"""What must hold of memory and devices in every ledger."""

from collections import Counter
from collections.abc import Iterator

from corelane.cpuset import bits
from corelane.node import memory
from corelane.node.entries import Entry
from corelane.node.ledger import NodeState
from corelane.placement.memory import MemoryBlock
from corelane.workload import ContainerKind

__all__ = ["doubled_devices", "wrong_memory"]


def blocks(state: NodeState) -> Iterator[MemoryBlock]:
    """Every block that counts: a bubble's once, and those of containers that are in none."""
    bubbles = {entry.uid: entry.bubble for entry in state.entries.values() if entry.bubble}
    for bubble in bubbles.values():
        yield from bubble.memory
    for entry in state.entries.values():
        if not entry.bubble:
            yield from entry.memory


def wrong_memory(state: NodeState) -> Iterator[str]:
    """Where the memory of the nodes and the blocks of the containers disagree, in words."""
    assignments: Counter[int] = Counter()
    held: Counter[str] = Counter()
    for block in blocks(state):
        held[block.resource] += block.size
        assignments.update(block.nodes)
    for number, node in state.memory.items():
        for resource, allocatable in node.allocatable.items():
            if not 0 <= node.free.get(resource, 0) <= allocatable:
                free = node.free.get(resource, 0)
                yield f"NUMA node {number} has {free} bytes of {resource} free of {allocatable}"
        if node.assignments != assignments[number]:
            yield f"NUMA node {number} has {node.assignments} assignments, containers {assignments[number]}"
        if gone := [one for one in bits(node.group) if one not in state.memory]:
            yield f"NUMA node {number} is in a group with {gone}, which are not there"
    resources = {name for node in state.memory.values() for name in node.allocatable} | held.keys()
    for resource in sorted(resources):
        reserved = sum(node.reserved(resource) for node in state.memory.values())
        if reserved != held[resource]:
            yield f"nodes keep {reserved} bytes of {resource} for containers, which have {held[resource]}"


def doubled_devices(state: NodeState) -> Iterator[tuple[Entry, str]]:
    """Entries with a device that another has too, less those that an init container of the pod lends."""
    owners: dict[tuple[str, str], Entry] = {}
    for entry in state.entries.values():
        for resource, ids in entry.devices.items():
            for one in ids:
                before = owners.get((resource, one))
                if before and (before.uid != entry.uid or before.kind is not ContainerKind.INIT):
                    yield entry, f"{resource} {one} belongs to {before.pod}/{before.container} as well"
                owners[resource, one] = entry


def loose(entry: Entry) -> bool:
    """Whether memory is kept for an entry on other nodes than it is bound to."""
    return bool(entry.memory) and entry.mems != memory.mems(entry.memory)
