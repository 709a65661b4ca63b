"""The machine as the optimal allocator sees it, a demand on it, and what the demand rules out.

Everything about other pods is already resolved to masks of CPUs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from corelane.cpuset import bits
from corelane.machine.model import LOCAL_DISTANCE, REMOTE_DISTANCE, Machine
from corelane.placement import topology as topologies
from corelane.placement.optimal.domain_tables import ScoreLayout
from corelane.placement.topology import Pattern, Patterned, Topology, patterns_of, remembered, without_leads
from corelane.reasons import Code, Reason
from corelane.workload.placement_spec import (
    BindPolicy,
    ExclusivePolicy,
    Exclusivity,
    NUMAPolicy,
    NUMAStrategy,
    TopologyLevel,
)

# The machine: NUMA nodes, in them L3 domains, in them cores, as bit masks. An L3 domain that reaches over
# several NUMA nodes counts as one domain in each of them: with sub-NUMA clusters a node's memory is cached in
# the node's own part. So the units are a tree, and every CPU lies in one of each.


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


def _distances(ids: Sequence[int], distances: Mapping[int, Mapping[int, int]]) -> tuple[tuple[int, ...], ...]:
    def one(a: int, b: int) -> int:
        far = LOCAL_DISTANCE if a == b else REMOTE_DISTANCE
        return max(distances.get(a, {}).get(b, far), distances.get(b, {}).get(a, far))

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


PROFILE: Final = (2, 4, 8, 16)
"""Sizes in CPUs of the requests for which room should be left: term 9's demand profile."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A hard rule that only certain CPUs will do: those of a core kind, say. `name` is for people."""

    name: str
    cpus: int


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """The CPUs of the pods that a named affinity selects, to be avoided or sought at a level.

    Every touched unit that has such a CPU (avoid), or has none (prefer), violates it. A `prefer` that is not
    required, and selects no pod, has no effect.
    """

    avoid: bool
    level: TopologyLevel
    cpus: int
    required: bool = False
    name: str = ""

    @property
    def rule(self) -> Reason:
        return Reason(Code.RULE_AFFINITY, (self.avoid, self.name, self.level))


@dataclass(frozen=True, slots=True)
class Resource:
    """Devices, memory or huge pages that should lie on the NUMA nodes of the CPUs: amounts by NUMA node id.

    `capacity` is what the empty machine has (the same as `free` where not given): a Restricted pod may have
    as many nodes as it would need there.
    """

    name: str
    wanted: int
    free: Mapping[int, int]
    capacity: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """CPUs of a pod that bars others from all units that it touches at a level."""

    level: TopologyLevel
    cpus: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """CPUs of other pods, as masks; a holder is a pod that must be moved to free its CPUs."""

    holders: tuple[int, ...] = ()
    """The bound CPUs of each holder."""
    same_core: int = 0
    """CPUs of the pods whose exclusive policy is PCPULevel."""
    same_numa: int = 0
    """CPUs of the pods whose exclusive policy is NUMANodeLevel."""
    anti_affinity: tuple[AntiAffinity, ...] = ()

    @property
    def bound(self) -> int:
        return union(self.holders)


UNOCCUPIED: Final = Occupancy()


@dataclass(frozen=True, slots=True)
class Demand:
    """A number of CPUs, and how they are wanted; the terms of the objective are those of docs/placement.md.

    Raises ValueError for a number below 1, sizes below 1, and ConstrainedBurst, which binds no CPU.
    """

    cpus: int
    bind: BindPolicy | None = None
    """None is FullPCPUs, preferred."""
    bind_required: bool = False
    exclusive: Exclusivity | None = None
    """Against the bound CPUs of every other holder."""
    exclusive_policy: ExclusivePolicy = ExclusivePolicy.NONE
    """Koordinator's, preferred, against pods of the same policy."""
    pod_affinity: tuple[PodAffinityTerm, ...] = ()
    limits: tuple[Limit, ...] = ()
    numa: NUMAPolicy = NUMAPolicy.NONE
    """SingleNUMANode and Restricted are hard, for CPUs and resources; Restricted allows as many nodes as the
    empty machine would need."""
    numa_exclusive: bool = False
    """Nodes of holders that span several are not for a pod that needs one, and the other way round."""
    strategy: NUMAStrategy | None = None
    resources: tuple[Resource, ...] = ()
    sizes: tuple[int, ...] = PROFILE
    plain: bool = field(init=False, repr=False, compare=False)
    """Whether nothing is asked that concerns others."""

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise ValueError(f"cpus: {self.cpus} is not a number of CPUs to place; request 1 or more")
        if self.bind is BindPolicy.CONSTRAINED_BURST:
            raise ValueError("bind: ConstrainedBurst binds no CPUs; choose the shared pool of a NUMA node")
        if any(size < 1 for size in self.sizes):
            raise ValueError(f"sizes: {self.sizes} must all be 1 CPU or more")
        plain = (
            self.exclusive is None and self.exclusive_policy is ExclusivePolicy.NONE and not self.pod_affinity
        )
        object.__setattr__(self, "plain", plain)

    @property
    def spread(self) -> bool:
        return self.bind is BindPolicy.SPREAD_BY_PCPUS

    @property
    def steered(self) -> bool:
        """Whether how full NUMA nodes are matters: term 8."""
        return self.strategy is NUMAStrategy.MOST_ALLOCATED or self.strategy is NUMAStrategy.LEAST_ALLOCATED


def union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


class HardRequirement(NamedTuple):
    """A hard requirement that rules CPUs out, whatever else is chosen: its short key, why, and the CPUs."""

    requirement: str
    rule: Reason
    barred: int


class Preference(NamedTuple):
    """A preferred exclusivity or affinity: what each unit of a level that touches `against` weighs.

    Of cores `against` has the lowest CPUs, of other units all CPUs.
    """

    level: TopologyLevel
    against: int
    weight: int


def requirements(shape: Shape, demand: Demand, occupancy: Occupancy) -> Iterator[HardRequirement]:
    """The hard requirements that rule CPUs out, in the order in which they are reported."""
    for limit in demand.limits:
        yield HardRequirement("limit", Reason(Code.RULE_CPUS, (limit.name,)), shape.all & ~limit.cpus)
    for other in occupancy.anti_affinity:
        rule = Reason(Code.RULE_OTHERS_EXCLUSIVE, (other.level,))
        yield HardRequirement("guard", rule, shape.touched(other.level, other.cpus))
    if demand.exclusive is not None and demand.exclusive.required:
        level = demand.exclusive.level
        barred = shape.touched(level, occupancy.bound & shape.all)
        yield HardRequirement("exclusive", Reason(Code.RULE_EXCLUSIVE, (level,)), barred)
    for affinity in demand.pod_affinity:
        if affinity.required:
            touched = shape.touched(affinity.level, affinity.cpus & shape.all)
            yield HardRequirement(
                "affinity", affinity.rule, touched if affinity.avoid else shape.all & ~touched
            )


def preferences(
    shape: Shape, demand: Demand, occupancy: Occupancy, weights: ScoreLayout
) -> Iterator[Preference]:
    """The preferred exclusivity and affinities that a demand has."""
    everything = shape.all
    exclusive = demand.exclusive
    if exclusive is not None and not exclusive.required:
        against = _units(shape, exclusive.level, occupancy.bound & everything)
        yield Preference(exclusive.level, against, weights.exclusive)
    if demand.exclusive_policy is ExclusivePolicy.PCPU_LEVEL:
        yield Preference(
            TopologyLevel.CORE, shape.cores_of(occupancy.same_core & everything), weights.exclusive
        )
    if demand.exclusive_policy is ExclusivePolicy.NUMA_NODE_LEVEL and occupancy.same_numa:
        nodes = shape.touched(TopologyLevel.NUMA, occupancy.same_numa & everything)
        same = (occupancy.same_core | occupancy.same_numa) & nodes
        yield Preference(TopologyLevel.NUMA, nodes, weights.exclusive)
        yield Preference(TopologyLevel.CORE, shape.cores_of(same), weights.fallback)
    for affinity in demand.pod_affinity:
        cpus = affinity.cpus & everything
        if not affinity.required and (affinity.avoid or cpus):
            theirs = _units(shape, affinity.level, cpus)
            against = theirs if affinity.avoid else _units(shape, affinity.level, everything) & ~theirs
            yield Preference(affinity.level, against, weights.affinity)


def _units(shape: Shape, level: TopologyLevel, cpus: int) -> int:
    """The units of a level that have one of these CPUs: all their CPUs, of cores only the lowest."""
    return shape.cores_of(cpus) if level is TopologyLevel.CORE else shape.touched(level, cpus)
