"""A demand on a machine as the search wants it: usable CPUs, cores by kind, and scores of touching units."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import NamedTuple

from corelane.placement.optimal.cores import Kind, Rules, rules
from corelane.placement.optimal.demand import Demand, Occupancy
from corelane.placement.optimal.shape import Shape
from corelane.placement.optimal.tables import PAIRS, Table, Tables, tables, tables_of_pairs
from corelane.placement.topology import by_threads
from corelane.workload.placement_spec import ExclusivePolicy, TopologyLevel

__all__ = ["Barrier", "Problem", "Wish", "assemble", "barriers", "build", "most_of", "placement_spec"]


class Barrier(NamedTuple):
    """A hard requirement that rules CPUs out, whatever else is chosen."""

    requirement: str
    text: str
    barred: int


class Wish(NamedTuple):
    """A preferred exclusivity or affinity: what each unit of a level that touches `against` weighs."""

    level: TopologyLevel
    against: int
    weight: int


@dataclass(slots=True, eq=False)
class Problem:
    """Never changed once made. Sequences are by position of NUMA node or L3 domain in the shape."""

    shape: Shape
    demand: Demand
    occupancy: Occupancy
    free: int
    usable: int
    rules: Rules
    tables: Tables
    leads: Sequence[int]
    """The cores (their lowest CPUs) of each kind."""
    counts: Sequence[tuple[int, ...]]
    """Of each domain, the CPUs in whole free cores, and how many cores of each kind."""
    caps: Sequence[int]
    """The most CPUs that each domain can give."""
    touch: Sequence[int]
    """The score of touching each domain at all."""
    whole: Sequence[int]
    """CPUs in whole free cores of each domain."""
    node_caps: Sequence[int]
    node_touch: Sequence[int]
    node_free: Sequence[int]
    node_whole: Sequence[int]
    """CPUs in whole free cores of each node."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self.tables.kinds

    def table(self, domain: int) -> Table:
        """What a domain can give."""
        return self.tables.of(self.counts[domain])

    def alike(self, node: int) -> Hashable:
        """What of a node decides what it can give, and at what score: all but its ids."""
        inside, free = self.shape.inside[node], self.node_free[node] if self.node_free else 0
        counts, touch = self.counts[inside.start : inside.stop], self.touch[inside.start : inside.stop]
        return tuple(counts), tuple(touch), self.node_touch[node], free

    @property
    def grain(self) -> int:
        """Any multiple of this up to the most can be taken from a domain; 0 where it is not so simple."""
        if not self.rules.required or self.rules.spread:
            return 1
        sizes = {kind.size for kind in self.kinds if kind.usable == kind.size}
        return sizes.pop() if len(sizes) == 1 else 0 if sizes else 1


def build(shape: Shape, demand: Demand, free: int, occupancy: Occupancy) -> Problem:
    """The problem of a demand and the CPUs that are free for it. Neither may name CPUs that do not exist."""
    usable = free = free & shape.all
    if not demand.plain or demand.limits or occupancy.guards:
        for barrier in barriers(shape, demand, occupancy):
            usable &= ~barrier.barred
    return assemble(shape, demand, free, usable, occupancy)


def assemble(shape: Shape, demand: Demand, free: int, usable: int, occupancy: Occupancy) -> Problem:
    plain = demand.plain
    wanted = _rules(demand, plain)
    against = (
        [] if plain else [wish for wish in placement_spec(shape, demand, occupancy, wanted) if wish.against]
    )
    on_cores = [wish for wish in against if wish.level is TopologyLevel.CORE] if against else against
    if usable == free and shape.pairs:
        known, leads = _pairs(shape, free, on_cores, wanted)
    else:
        known, leads = _kinds(shape, usable, free, on_cores, wanted)
    counts = _counts(shape, usable, free, known.kinds, leads)
    caps = most_of(known.each, counts)
    whole = [count[0] for count in counts]
    node_whole = _by_node(shape, whole)
    wanted.room(max(node_whole))
    touch, node_touch = [wanted.layout.domains] * len(caps), [0] * len(node_whole)
    for wish in against:
        if wish.level is not TopologyLevel.CORE:
            _add(
                wish,
                *((touch, shape.domains) if wish.level is TopologyLevel.L3 else (node_touch, shape.nodes)),
            )
    return Problem(
        shape,
        demand,
        occupancy,
        free,
        usable,
        rules=wanted,
        tables=known,
        leads=leads,
        counts=counts,
        caps=caps,
        touch=touch,
        whole=whole,
        node_caps=_by_node(shape, caps),
        node_touch=node_touch,
        node_free=[(free & node).bit_count() for node in shape.nodes] if wanted.layout.strategy else (),
        node_whole=node_whole,
    )


def _add(wish: Wish, scores: list[int], units: Sequence[int]) -> None:
    """What touching each unit of a level scores, by this wish too."""
    for i, unit in enumerate(units):
        if wish.against & unit:
            scores[i] += wish.weight


def _by_node(shape: Shape, amounts: Sequence[int]) -> Sequence[int]:
    """The sums of the domains' amounts over each node."""
    if len(shape.domains) == len(shape.nodes):
        return amounts
    return [sum(amounts[inside.start : inside.stop]) for inside in shape.inside]


def most_of(each: Sequence[int], counts: Iterable[tuple[int, ...]]) -> list[int]:
    """The most CPUs of each domain, when a core of each kind gives so many."""
    if len(each) == 2:
        one, other = each
        return [one * count[1] + other * count[2] for count in counts]
    return [sum(map(mul, each, count[1:])) for count in counts]


def _counts(
    shape: Shape, usable: int, free: int, kinds: Sequence[Kind], leads: Sequence[int]
) -> list[tuple[int, ...]]:
    """Of each domain, the CPUs in whole free cores, and how many cores of each kind."""
    if usable == free and kinds is PAIRS:
        half, whole_cores = leads
        return [
            (2 * (count := (whole_cores & unit).bit_count()), (half & unit).bit_count(), count)
            for unit in shape.domains
        ]
    if usable == free and shape.pairs:
        entire = sum([cores for kind, cores in zip(kinds, leads, strict=True) if kind.whole])
        return [
            (2 * (entire & unit).bit_count(), *[(cores & unit).bit_count() for cores in leads])
            for unit in shape.domains
        ]
    each = _columns(shape, leads)
    if usable == free:
        whole = [(kind.size, column) for kind, column in zip(kinds, each, strict=True) if kind.whole]
    else:
        full = _whole(shape, free)
        columns = _columns(shape, [cores for cores, _ in full])
        whole = [(size, column) for (_, size), column in zip(full, columns, strict=True)]
    total = [0] * len(shape.domains)
    for size, column in whole:
        total = [so_far + size * count for so_far, count in zip(total, column, strict=True)]
    return list(zip(total, *each, strict=True))


def _columns(shape: Shape, leads: Sequence[int]) -> list[list[int]]:
    """How many of these cores each domain has."""
    width = len(shape.domains)
    flat = [(cores & unit).bit_count() for cores in leads for unit in shape.domains]
    return [flat[i : i + width] for i in range(0, len(flat), width)]


def _rules(demand: Demand, plain: bool) -> Rules:
    if plain:
        exclusive = affinity = False
    else:
        preferred = demand.exclusive is not None and not demand.exclusive.required
        exclusive = preferred or demand.exclusive_policy is not ExclusivePolicy.NONE
        affinity = any(not one.required for one in demand.neighbours) if demand.neighbours else False
    return rules(demand.spread, demand.bind_required, demand.sizes, exclusive, affinity, demand.steered)


def barriers(shape: Shape, demand: Demand, occupancy: Occupancy) -> Iterator[Barrier]:
    """The hard requirements that rule CPUs out, in the order in which they are told."""
    for limit in demand.limits:
        yield Barrier("limit", limit.name, shape.all & ~limit.cpus)
    for guard in occupancy.guards:
        text = f"{guard.level} units that others have to themselves"
        yield Barrier("guard", text, shape.touched(guard.level, guard.cpus))
    if demand.exclusive is not None and demand.exclusive.required:
        level = demand.exclusive.level
        yield Barrier(
            "exclusive", f"exclusive at {level} level", shape.touched(level, occupancy.bound & shape.all)
        )
    for one in demand.neighbours:
        if one.required:
            touched = shape.touched(one.level, one.cpus & shape.all)
            verb = "avoid" if one.avoid else "prefer"
            text = f"{verb} {one.name or 'others'} at {one.level} level"
            yield Barrier("affinity", text, touched if one.avoid else shape.all & ~touched)


def placement_spec(shape: Shape, demand: Demand, occupancy: Occupancy, rules: Rules) -> Iterator[Wish]:
    """The preferred exclusivity and affinities as the units against them; of cores the lowest CPUs."""
    weights, everything = rules.layout, shape.all
    exclusive = demand.exclusive
    if exclusive is not None and not exclusive.required:
        against = _units(shape, exclusive.level, occupancy.bound & everything)
        yield Wish(exclusive.level, against, weights.exclusive)
    if demand.exclusive_policy is ExclusivePolicy.PCPU_LEVEL:
        yield Wish(TopologyLevel.CORE, shape.cores_of(occupancy.same_core & everything), weights.exclusive)
    if demand.exclusive_policy is ExclusivePolicy.NUMA_NODE_LEVEL and occupancy.same_numa:
        nodes = shape.touched(TopologyLevel.NUMA, occupancy.same_numa & everything)
        same = (occupancy.same_core | occupancy.same_numa) & nodes
        yield Wish(TopologyLevel.NUMA, nodes, weights.exclusive)
        yield Wish(TopologyLevel.CORE, shape.cores_of(same), weights.fallback)
    for one in demand.neighbours:
        cpus = one.cpus & everything
        if not one.required and (one.avoid or cpus):
            theirs = _units(shape, one.level, cpus)
            against = theirs if one.avoid else _units(shape, one.level, everything) & ~theirs
            yield Wish(one.level, against, weights.affinity)


def _units(shape: Shape, level: TopologyLevel, cpus: int) -> int:
    """The units of a level that have one of these CPUs: all their CPUs, of cores only the lowest."""
    return shape.cores_of(cpus) if level is TopologyLevel.CORE else shape.touched(level, cpus)


def _whole(shape: Shape, free: int) -> list[tuple[int, int]]:
    """The cores of which every thread is free, and their number of threads."""
    return [(by_threads(free, *pattern)[-1], len(pattern.offsets) + 1) for pattern in shape.shapes]


def _pairs(shape: Shape, free: int, against: Iterable[Wish], rules: Rules) -> tuple[Tables, Sequence[int]]:
    """The kinds of cores where all have two threads and every free CPU may be used, and the cores of each."""
    _, half, whole = by_threads(free, *shape.shapes[0])
    if not against:
        return tables(rules, PAIRS), (half, whole)
    halves, wholes = {0: half}, {0: whole}
    for wish in against:
        if wish.against & half:
            halves = _split(halves, wish)
        if wish.against & whole:
            wholes = _split(wholes, wish)
    return tables_of_pairs(rules, tuple(halves), tuple(wholes)), (*halves.values(), *wholes.values())


def _kinds(
    shape: Shape, usable: int, free: int, against: Sequence[Wish], rules: Rules
) -> tuple[Tables, Sequence[int]]:
    """The kinds of cores that have usable CPUs, and the cores of each kind."""
    parts = {kind: cores for kind, cores in sorted(_parts(shape, usable, free, against).items()) if cores}
    return tables(rules, tuple(parts)), tuple(parts.values())


def _parts(shape: Shape, usable: int, free: int, against: Sequence[Wish]) -> dict[Kind, int]:
    found: dict[Kind, int] = {}
    for pattern in shape.shapes:
        size, whole = len(pattern.offsets) + 1, by_threads(free, *pattern)[-1]
        for count, leads in enumerate(by_threads(usable, *pattern)):
            for entire in (True, False) if count else ():
                some = leads & (whole if entire else ~whole)
                for kind, cores in _by_cost(size, count, entire, some, against):
                    found[kind] = found.get(kind, 0) | cores
    return found


def _by_cost(
    size: int, usable: int, whole: bool, cores: int, against: Iterable[Wish]
) -> list[tuple[Kind, int]]:
    """These cores by what touching them costs."""
    groups = {0: cores}
    for wish in against:
        groups = _split(groups, wish)
    return [(Kind(size, usable, whole, cost), some) for cost, some in sorted(groups.items())]


def _split(groups: dict[int, int], wish: Wish) -> dict[int, int]:
    """Cores by what touching them costs, with what it costs against one more wish."""
    found = dict[int, int]()
    for cost, cores in groups.items():
        for dearer, some in ((cost, cores & ~wish.against), (cost + wish.weight, cores & wish.against)):
            if some:
                found[dearer] = found.get(dearer, 0) | some
    return dict(sorted(found.items()))
