"""A machine as the optimal allocator sees it: NUMA nodes, in them L3 domains, in them cores, as bit masks.

An L3 domain that reaches over several NUMA nodes counts as one domain in each of them: with sub-NUMA clusters
a node's memory is cached in the node's own part. So the units are a tree, and every CPU lies in one of each.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from corelane.cpuset import bits
from corelane.machine.model import LOCAL_DISTANCE, REMOTE_DISTANCE, Machine
from corelane.placement import topology as topologies
from corelane.placement.topology import Pattern, Patterned, Topology, patterns_of, remembered, without_leads
from corelane.workload.placement_spec import TopologyLevel

Nearness = tuple[int, tuple[tuple[int, ...], ...]]
"""A distance, and the largest groups of NUMA nodes (positions) that are all no farther from each other."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape(Patterned):
    """Units as masks; NUMA nodes and L3 domains are known by their positions in these tuples."""

    all: int
    nodes: tuple[int, ...]
    node_ids: tuple[int, ...]
    domains: tuple[int, ...]
    """L3 domains, node after node."""
    inside: tuple[range, ...]
    """The positions of the domains of each node."""
    patterns: tuple[Pattern, ...]
    """Cores by the shape of their threads; one pattern on all but hybrid or partly off-line machines."""
    shapes: tuple[Pattern, ...]
    threads: int
    """The most threads that any core has."""
    core_size: int
    """The number of threads that every core has; 0 where cores differ."""
    pairs: bool
    """Whether every core has two threads, all equally far apart."""
    distances: tuple[tuple[int, ...], ...]
    """Between nodes, by position; the larger one where firmware has two."""
    nearness: tuple[Nearness, ...]
    """By distance, nearest first; the last has all nodes in one group."""

    def cores(self) -> Iterator[int]:
        """The mask of every core, by the id of its lowest CPU."""
        return (self.threads_of(1 << lead) for lead in bits(self.cores_of(self.all)))

    def units(self, level: TopologyLevel) -> Sequence[int]:
        """The masks of all units of a level."""
        if level is TopologyLevel.CORE:
            return tuple(self.cores())
        return self.domains if level is TopologyLevel.L3 else self.nodes

    def touched(self, level: TopologyLevel, cpus: int) -> int:
        """All CPUs of the units of a level that have one of `cpus`."""
        if not cpus:
            return 0
        if level is TopologyLevel.CORE:
            return self.whole_cores(cpus)
        return sum([unit for unit in self.units(level) if unit & cpus])

    def farthest(self, nodes: Sequence[int]) -> int:
        """The largest distance between any two of these nodes (positions); 10, local, where it is one."""
        pairs = (self.distances[a][b] for i, a in enumerate(nodes) for b in nodes[:i])
        return max(pairs, default=LOCAL_DISTANCE)


def from_machine(machine: Machine) -> Shape:
    """Return the shape of a machine's usable CPUs. Raises ValueError when it has none."""
    return from_topology(topologies.from_machine(machine))


@remembered
def from_topology(topology: Topology) -> Shape:
    """Return the shape of a topology, computed once; unknown distances of NUMA nodes count as 20."""
    domains: list[int] = []
    inside: list[range] = []
    for node in topology.numa:
        parts = sorted((part for cache in topology.uncore if (part := cache & node)), key=_lowest)
        inside.append(range(len(domains), len(domains) + len(parts)))
        domains += parts
    patterns = patterns_of(_cores(topology, domains))
    sizes = {len(pattern.offsets) for pattern in patterns}
    core_size = min(sizes) if len(sizes) == 1 else 0
    between = _distances(topology.numa_ids, topology.distances)
    return Shape(
        all=topology.all,
        nodes=topology.numa,
        node_ids=topology.numa_ids,
        domains=tuple(domains),
        inside=tuple(inside),
        patterns=patterns,
        shapes=without_leads(patterns),
        threads=max(sizes),
        core_size=core_size,
        pairs=core_size == 2 and len(patterns) == 1,
        distances=between,
        nearness=tuple(_nearness(between)),
    )


def _lowest(mask: int) -> int:
    return mask & -mask


def _cores(topology: Topology, domains: Iterable[int]) -> Iterator[int]:
    """The cores; one that reaches over several domains, which no hardware has, is one in each."""
    for domain in domains:
        left = domain
        while left:
            core = topology.whole_cores(left & -left) & domain
            yield core
            left ^= core


def _distances(ids: Sequence[int], known: Mapping[int, Mapping[int, int]]) -> tuple[tuple[int, ...], ...]:
    def one(a: int, b: int) -> int:
        far = LOCAL_DISTANCE if a == b else REMOTE_DISTANCE
        return max(known.get(a, {}).get(b, far), known.get(b, {}).get(a, far))

    return tuple(tuple(one(a, b) for b in ids) for a in ids)


def _nearness(distances: Sequence[Sequence[int]]) -> Iterator[Nearness]:
    """Every distance that occurs between two nodes, with its groups; ends when one group has all nodes."""
    count = len(distances)
    every = tuple(range(count))
    for far in sorted({distances[a][b] for a in every for b in range(a)}):
        near = [sum(1 << b for b in every if b != a and distances[a][b] <= far) for a in every]
        groups = sorted(tuple(bits(group)) for group in _cliques(0, (1 << count) - 1, 0, near))
        yield far, tuple(groups)
        if len(groups) == 1:
            return
    if count == 1:
        yield LOCAL_DISTANCE, ((0,),)


def _cliques(chosen: int, candidates: int, seen: int, near: Sequence[int]) -> Iterator[int]:
    """The largest groups of nodes that are all near to each other (Bron and Kerbosch 1973, with pivot)."""
    if not candidates | seen:
        yield chosen
        return
    pivot = max(bits(candidates | seen), key=lambda node: (near[node] & candidates).bit_count())
    for node in bits(candidates & ~near[pivot]):
        yield from _cliques(chosen | 1 << node, candidates & near[node], seen & near[node], near)
        candidates ^= 1 << node
        seen |= 1 << node
