"""How Koordinator divides a request among the NUMA nodes that a hint chose, and picks each node's share.

As its `allocateResourcesByHint` means it: upstream looks up what a node has by the place in a list that is
being sorted, so that a request which fits may be refused; here nodes are really visited by what they have.
"""

from collections.abc import Mapping, Sequence

from corelane.placement.koordinator import allocator
from corelane.placement.koordinator.allocator import NOTHING_HELD, Held, NotSatisfied, Request
from corelane.placement.topology import Topology
from corelane.workload.placement_spec import BindPolicy

__all__ = ["split", "take_on"]


def split(
    available: Mapping[int, int], requested: int, *, unit: int = 1, resource: str = "cpu"
) -> dict[int, int]:
    """NUMA node to its part of `requested`: even parts in multiples of `unit`, the poorest nodes first.

    Raises NotSatisfied, naming the resource, where the nodes do not have it in such parts.
    """
    parts, rest = {}, requested
    poorest_first = sorted(available, key=lambda node: (available[node], node))
    for visited, node in enumerate(poorest_first):
        last = visited == len(poorest_first) - 1
        even = rest if last else rest // (len(poorest_first) - visited)
        parts[node] = min(available[node], even) // unit * unit
        rest -= parts[node]
    if rest:
        raise NotSatisfied(f"Insufficient NUMA {resource}", "numa")
    return {node: part for node, part in sorted(parts.items()) if part}


def take_on(
    topology: Topology,
    available: int,
    n: int,
    nodes: Sequence[int],
    request: Request,
    others: Held = NOTHING_HELD,
) -> int:
    """N CPUs, evenly from these NUMA nodes (their ids). Raises NotSatisfied."""
    inside = {node: topology.numa[topology.numa_ids.index(node)] & available for node in nodes}
    counts = {node: allocator.usable(topology, cpus, request).bit_count() for node, cpus in inside.items()}
    whole = request.required and request.bind is BindPolicy.FULL_PCPUS
    taken = 0
    for node, share in split(counts, n, unit=topology.cpus_per_core if whole else 1).items():
        taken |= allocator.take_valid(topology, inside[node], share, request, others)
    return taken
