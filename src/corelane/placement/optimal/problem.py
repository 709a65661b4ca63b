"""A demand on a machine as the search wants it: usable CPUs, cores by kind, and scores of touching units."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from corelane.placement.optimal.cores import Kind, Rules, Table, rules
from corelane.placement.optimal.demand import Demand, Occupancy
from corelane.placement.optimal.score import layout
from corelane.placement.optimal.shape import Shape
from corelane.placement.topology import Pattern
from corelane.workload.wishes import ExclusivePolicy, Level, Strategy

__all__ = ["Barrier", "Problem", "Wish", "barriers", "build", "wishes"]


class Barrier(NamedTuple):
    """A hard requirement that rules CPUs out, whatever else is chosen."""

    requirement: str
    text: str
    barred: int


class Wish(NamedTuple):
    """A preferred exclusivity or affinity: what each unit of a level that touches `against` weighs."""

    level: Level
    against: int
    weight: int


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Sequences are by position of NUMA node or L3 domain in the shape."""

    shape: Shape
    demand: Demand
    occupancy: Occupancy
    free: int
    usable: int
    rules: Rules
    kinds: tuple[Kind, ...]
    leads: tuple[int, ...]
    """The cores (their lowest CPUs) of each kind."""
    tables: tuple[Table, ...]
    caps: tuple[int, ...]
    """The most CPUs that each domain can give."""
    touch: tuple[int, ...]
    """The score of touching each domain at all."""
    node_caps: tuple[int, ...]
    node_touch: tuple[int, ...]
    node_free: tuple[int, ...]
    node_whole: tuple[int, ...]
    """CPUs in whole free cores of each node."""

    @property
    def grain(self) -> int:
        """Any multiple of this up to the most can be taken from a domain; 0 where it is not so simple."""
        if not self.rules.required or self.rules.spread:
            return 1
        sizes = {kind.size for kind in self.kinds if kind.usable == kind.size}
        return sizes.pop() if len(sizes) == 1 else 0 if sizes else 1


def build(shape: Shape, demand: Demand, free: int, occupancy: Occupancy) -> Problem:
    """The problem of a demand and the CPUs that are free for it. Neither may name CPUs that do not exist."""
    free &= shape.all
    usable = free
    for barrier in barriers(shape, demand, occupancy):
        usable &= ~barrier.barred
    return assemble(shape, demand, free, usable, occupancy)


def assemble(shape: Shape, demand: Demand, free: int, usable: int, occupancy: Occupancy) -> Problem:
    wanted = _rules(demand)
    against = list(wishes(shape, demand, occupancy, wanted))
    kinds, leads = _kinds(shape, usable, free, [wish for wish in against if wish.level is Level.CORE])
    whole = _whole(shape, free)
    wholes = [sum((lead & domain).bit_count() * size for lead, size in whole) for domain in shape.domains]
    counts = [tuple((lead & domain).bit_count() for lead in leads) for domain in shape.domains]
    tables = tuple(wanted.table(kinds, count, size) for count, size in zip(counts, wholes, strict=True))
    caps = tuple(table.most for table in tables)
    return Problem(
        shape=shape,
        demand=demand,
        occupancy=occupancy,
        free=free,
        usable=usable,
        rules=wanted,
        kinds=kinds,
        leads=leads,
        tables=tables,
        caps=caps,
        touch=tuple(_touch(against, Level.L3, unit) + wanted.layout.domains for unit in shape.domains),
        node_caps=tuple(sum(caps[i] for i in inside) for inside in shape.inside),
        node_touch=tuple(_touch(against, Level.NUMA, unit) for unit in shape.nodes),
        node_free=tuple((free & node).bit_count() for node in shape.nodes),
        node_whole=tuple(sum(wholes[i] for i in inside) for inside in shape.inside),
    )


def _rules(demand: Demand) -> Rules:
    preferred = demand.exclusive is not None and not demand.exclusive.required
    fields = layout(
        exclusive=preferred or demand.exclusive_policy is not ExclusivePolicy.NONE,
        affinity=any(not neighbour.required for neighbour in demand.neighbours),
        strategy=demand.strategy in (Strategy.MOST_ALLOCATED, Strategy.LEAST_ALLOCATED),
    )
    return rules(demand.spread, demand.bind_required, demand.sizes, fields)


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


def wishes(shape: Shape, demand: Demand, occupancy: Occupancy, rules: Rules) -> Iterator[Wish]:
    """The preferred exclusivity and affinities as the units against them."""
    weights, everything = rules.layout, shape.all
    exclusive = demand.exclusive
    if exclusive is not None and not exclusive.required:
        against = shape.touched(exclusive.level, occupancy.bound & everything)
        yield Wish(exclusive.level, against, weights.exclusive)
    if demand.exclusive_policy is ExclusivePolicy.PCPU_LEVEL:
        against = shape.touched(Level.CORE, occupancy.same_core & everything)
        yield Wish(Level.CORE, against, weights.exclusive)
    if demand.exclusive_policy is ExclusivePolicy.NUMA_NODE_LEVEL:
        nodes = shape.touched(Level.NUMA, occupancy.same_numa & everything)
        same = (occupancy.same_core | occupancy.same_numa) & everything
        yield Wish(Level.NUMA, nodes, weights.exclusive)
        yield Wish(Level.CORE, shape.touched(Level.CORE, same) & nodes, weights.fallback)
    for one in demand.neighbours:
        cpus = one.cpus & everything
        if not one.required and (one.avoid or cpus):
            touched = shape.touched(one.level, cpus)
            yield Wish(one.level, touched if one.avoid else everything & ~touched, weights.affinity)


def _touch(against: list[Wish], level: Level, unit: int) -> int:
    return sum(wish.weight for wish in against if wish.level is level and wish.against & unit)


def _exactly(cpus: int, pattern: Pattern) -> list[int]:
    """Element i has the cores with exactly i of the CPUs."""
    leads, offsets = pattern
    if len(offsets) == 2:
        low, high = cpus & leads, cpus >> offsets[1] & leads
        return [leads & ~(low | high), low ^ high, low & high]
    found = [leads] + [0] * len(offsets)
    for offset in offsets:
        have = cpus >> offset & leads
        for i in range(len(offsets), 0, -1):
            found[i] = found[i] & ~have | found[i - 1] & have
        found[0] &= ~have
    return found


def _whole(shape: Shape, free: int) -> list[tuple[int, int]]:
    """The cores of which every thread is free, and their number of threads."""
    patterns = shape.topology.patterns
    return [(_exactly(free, pattern)[-1], len(pattern.offsets)) for pattern in patterns]


def _kinds(
    shape: Shape, usable: int, free: int, against: list[Wish]
) -> tuple[tuple[Kind, ...], tuple[int, ...]]:
    """The kinds of cores that have usable CPUs, and the cores of each kind."""
    found: dict[Kind, int] = {}
    for pattern in shape.topology.patterns:
        size, whole = len(pattern.offsets), _exactly(free, pattern)[-1]
        for count, leads in enumerate(_exactly(usable, pattern)):
            for entire in (True, False) if count else ():
                some = leads & (whole if entire else ~whole)
                for kind, cores in _by_cost(Kind(size, count, entire), some, against):
                    found[kind] = found.get(kind, 0) | cores
    kept = {kind: cores for kind, cores in sorted(found.items()) if cores}
    return tuple(kept), tuple(kept.values())


def _by_cost(kind: Kind, cores: int, against: list[Wish]) -> Iterator[tuple[Kind, int]]:
    """The same cores by what touching them costs."""
    groups = [(kind, cores)]
    for wish in against:
        groups = [
            part
            for one, some in groups
            for part in (
                (one._replace(cost=one.cost + wish.weight), some & wish.against),
                (one, some & ~wish.against),
            )
            if part[1]
        ]
    return iter(groups)
