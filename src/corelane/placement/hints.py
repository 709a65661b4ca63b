"""NUMA hints for CPUs, as the kubelet's static policy gives them to its topology manager.

A hint is a set of NUMA nodes (a mask of node ids) that could hold a request; it is preferred when no smaller
set could even on the idle machine. Upstream: `generateCPUTopologyHints` in `policy_static.go` (v1.36).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple, TypeAlias

from corelane.cpuset import bits
from corelane.placement import families
from corelane.placement.families import Family
from corelane.placement.numa import fewest_nodes
from corelane.placement.topology import Topology

__all__ = ["Distances", "Hint", "best_cpu_hint", "cpu_family", "cpu_hints", "distance"]

Distances: TypeAlias = Mapping[int, Mapping[int, int]]
"""NUMA node id to node id to distance (10 is local)."""


class Hint(NamedTuple):
    """`nodes` is a mask of NUMA node ids, or None for any."""

    nodes: int | None
    preferred: bool


def cpu_hints(
    topology: Topology, available: int, reusable: int, n: int, *, by_socket: bool = False
) -> list[Hint]:
    """Every hint for n CPUs out of these, smallest sets first; there may be 2 ** nodes.

    `reusable` CPUs (of the pod's init containers) must lie inside. `by_socket` is align-by-socket: sets that
    touch no more sockets than needed are preferred too.
    """
    counts, required = _counts(topology, available | reusable), topology.nodes_of(reusable)
    is_preferred = _preference(topology, n, by_socket)
    return [
        Hint(_ids(topology, nodes), is_preferred(nodes))
        for size in range(1, len(counts) + 1)
        for nodes in _sets(counts, n, required, size)
    ]


def cpu_family(
    topology: Topology, available: int, reusable: int, n: int, nodes: int, *, by_socket: bool = False
) -> Family:
    """`cpu_hints` as a family over the `nodes` (a mask of ids) of the machine, some of which may have no CPU.

    Raises TooManyNodes beyond 16 nodes.
    """
    ids = list(bits(nodes))
    cpus = dict(zip(topology.numa_ids, topology.numa, strict=True))
    count = len(ids)
    sets = families.covering([(cpus.get(i, 0) & (available | reusable)).bit_count() for i in ids], n)
    for position, node in enumerate(ids):
        without, having = families.without_and_with(count, position)
        if node not in cpus:
            sets = families.both(sets, without)
        elif cpus[node] & reusable:
            sets = families.both(sets, having)
    family = families.preferring(count, sets, _fewest_idle(topology, n))
    if not by_socket:
        return family
    return replace(family, preferred=bytes(_by_socket(topology, family, ids, n)))


def _by_socket(topology: Topology, family: Family, ids: Sequence[int], n: int) -> bytearray:
    preferred, is_preferred = bytearray(family.preferred), _preference(topology, n, True)
    at = {ids.index(node): 1 << i for i, node in enumerate(topology.numa_ids)}
    for one in families.members(family.sets):
        preferred[one] = is_preferred(sum(at[i] for i in bits(one)))
    return preferred


def best_cpu_hint(
    topology: Topology,
    available: int,
    reusable: int,
    n: int,
    *,
    by_socket: bool = False,
    distances: Distances | None = None,
) -> Hint:
    """What merging `cpu_hints` alone comes to, without listing them; nodes are None when there is none.

    The narrowest preferred set, else the narrowest; of equals the closest if `distances` are given
    (prefer-closest-numa-nodes), then the one with the lowest mask.
    """
    counts, required = _counts(topology, available | reusable), topology.nodes_of(reusable)
    nodes = fewest_nodes(counts, n, required)
    if nodes is None:
        return Hint(None, False)
    size = nodes.bit_count()
    preferred = size == _fewest_idle(topology, n)
    if by_socket and not preferred:
        is_preferred = _preference(topology, n, by_socket)
        for larger in range(size, len(counts) + 1):
            if found := [other for other in _sets(counts, n, required, larger) if is_preferred(other)]:
                return Hint(_ids(topology, _closest(topology, found, distances)), True)
    if distances is not None and size > 1:
        nodes = _closest(topology, _sets(counts, n, required, size), distances)
    return Hint(_ids(topology, nodes), preferred)


def distance(nodes: int, distances: Distances) -> float:
    """The mean distance between the nodes of a mask of ids, each to itself included."""
    ids = [i for i in range(nodes.bit_length()) if nodes >> i & 1]
    return sum(distances[a][b] for a in ids for b in ids) / len(ids) ** 2


def _closest(topology: Topology, sets: Iterable[int], distances: Distances | None) -> int:
    if distances is None:
        return min(sets)
    return min(sets, key=lambda nodes: (distance(_ids(topology, nodes), distances), nodes))


def _counts(topology: Topology, cpus: int) -> list[int]:
    return [(node & cpus).bit_count() for node in topology.numa]


def _ids(topology: Topology, nodes: int) -> int:
    """A mask of positions as a mask of NUMA node ids."""
    return sum(1 << node for i, node in enumerate(topology.numa_ids) if nodes >> i & 1)


def _sets(counts: Sequence[int], n: int, required: int, size: int) -> Iterator[int]:
    """Masks of the sets of this size that hold n and everything required, in lexicographic order."""
    for chosen in combinations(range(len(counts)), size):
        nodes = sum(1 << i for i in chosen)
        if not required & ~nodes and sum(counts[i] for i in chosen) >= n:
            yield nodes


def _fewest_idle(topology: Topology, n: int) -> int:
    """How many nodes it would take if every CPU were free, reserved ones included."""
    missing = n
    for taken, size in enumerate(topology.numa_sizes, start=1):
        missing -= size
        if missing <= 0:
            return taken
    return len(topology.numa)


def _preference(topology: Topology, n: int, by_socket: bool) -> Callable[[int], bool]:
    fewest = _fewest_idle(topology, n)
    nodes_per_socket = topology.counters.numa // topology.counters.sockets if topology.counters.sockets else 0
    if not by_socket or not nodes_per_socket:
        return lambda nodes: nodes.bit_count() == fewest
    sockets = -(-fewest // nodes_per_socket)
    return lambda nodes: nodes.bit_count() == fewest or _sockets(topology, nodes) == sockets


def _sockets(topology: Topology, nodes: int) -> int:
    """How many sockets these nodes touch."""
    cpus = sum(mask for i, mask in enumerate(topology.numa) if nodes >> i & 1)
    return sum(1 for socket in topology.sockets if socket & cpus)
