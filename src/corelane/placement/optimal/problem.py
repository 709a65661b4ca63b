"""A demand on a machine: usable CPUs, cores by kind, scores of touching units, and the lowest ids.

Term 10 is decided here: of all equally good ways to take CPUs from the cores of a domain, the one with the
lowest ids. Of two sets of the same size the lower is the one that has the smallest id of those in which they
differ, so that what is lowest in each part is lowest altogether, and a greedy choice by id is exact.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import mul

from corelane.cpuset import bits
from corelane.placement.optimal.demand import Demand, Occupancy, Preference, Shape, preferences, requirements
from corelane.placement.optimal.domain_tables import (
    PAIRS,
    CoreKind,
    DomainTable,
    Rules,
    Tables,
    rules,
    tables,
    tables_of_pairs,
)
from corelane.placement.topology import by_threads, lowest
from corelane.workload.placement_spec import ExclusivePolicy, TopologyLevel


@dataclass(slots=True, eq=False)
class PlacementProblem:
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
    def kinds(self) -> tuple[CoreKind, ...]:
        return self.tables.kinds

    def table(self, domain: int) -> DomainTable:
        """Return the capacity of a domain."""
        return self.tables.of(self.counts[domain])

    def alike(self, node: int) -> Hashable:
        """Return what decides a node's capacity and its score: all but its ids."""
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


def build(shape: Shape, demand: Demand, free: int, occupancy: Occupancy) -> PlacementProblem:
    """The problem of a demand and the CPUs that are free for it. Neither may name CPUs that do not exist."""
    usable = free = free & shape.all
    if not demand.plain or demand.limits or occupancy.anti_affinity:
        for requirement in requirements(shape, demand, occupancy):
            usable &= ~requirement.barred
    return assemble(shape, demand, free, usable, occupancy)


def assemble(shape: Shape, demand: Demand, free: int, usable: int, occupancy: Occupancy) -> PlacementProblem:
    plain = demand.plain
    rules_ = _rules(demand, plain)
    against = (
        []
        if plain
        else [each for each in preferences(shape, demand, occupancy, rules_.layout) if each.against]
    )
    on_cores = (
        [preference for preference in against if preference.level is TopologyLevel.CORE]
        if against
        else against
    )
    if usable == free and shape.pairs:
        known, leads = _pairs(shape, free, on_cores, rules_)
    else:
        known, leads = _kinds(shape, usable, free, on_cores, rules_)
    counts = _counts(shape, usable, free, known.kinds, leads)
    caps = most_of(known.each, counts)
    whole = [count[0] for count in counts]
    node_whole = _by_node(shape, whole)
    rules_.room(max(node_whole))
    touch, node_touch = [rules_.layout.domains] * len(caps), [0] * len(node_whole)
    for preference in against:
        if preference.level is not TopologyLevel.CORE:
            _add(
                preference,
                *(
                    (touch, shape.domains)
                    if preference.level is TopologyLevel.L3
                    else (node_touch, shape.nodes)
                ),
            )
    return PlacementProblem(
        shape,
        demand,
        occupancy,
        free,
        usable,
        rules=rules_,
        tables=known,
        leads=leads,
        counts=counts,
        caps=caps,
        touch=touch,
        whole=whole,
        node_caps=_by_node(shape, caps),
        node_touch=node_touch,
        node_free=[(free & node).bit_count() for node in shape.nodes] if rules_.layout.strategy else (),
        node_whole=node_whole,
    )


def _add(preference: Preference, scores: list[int], units: Sequence[int]) -> None:
    """Return the score of touching each unit of a level, by this preference too."""
    for i, unit in enumerate(units):
        if preference.against & unit:
            scores[i] += preference.weight


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
    shape: Shape, usable: int, free: int, kinds: Sequence[CoreKind], leads: Sequence[int]
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
    """Return the number of these cores in each domain."""
    width = len(shape.domains)
    flat = [(cores & unit).bit_count() for cores in leads for unit in shape.domains]
    return [flat[i : i + width] for i in range(0, len(flat), width)]


def _rules(demand: Demand, plain: bool) -> Rules:
    if plain:
        exclusive = affinity = False
    else:
        preferred = demand.exclusive is not None and not demand.exclusive.required
        exclusive = preferred or demand.exclusive_policy is not ExclusivePolicy.NONE
        affinity = any(not each.required for each in demand.pod_affinity) if demand.pod_affinity else False
    return rules(demand.spread, demand.bind_required, demand.sizes, exclusive, affinity, demand.steered)


def _whole(shape: Shape, free: int) -> list[tuple[int, int]]:
    """The cores of which every thread is free, and their number of threads."""
    return [(by_threads(free, *pattern)[-1], len(pattern.offsets) + 1) for pattern in shape.shapes]


def _pairs(
    shape: Shape, free: int, against: Iterable[Preference], rules: Rules
) -> tuple[Tables, Sequence[int]]:
    """The kinds of cores where all have two threads and every free CPU may be used, and the cores of each."""
    _, half, whole = by_threads(free, *shape.shapes[0])
    if not against:
        return tables(rules, PAIRS), (half, whole)
    halves, wholes = {0: half}, {0: whole}
    for preference in against:
        if preference.against & half:
            halves = _split(halves, preference)
        if preference.against & whole:
            wholes = _split(wholes, preference)
    return tables_of_pairs(rules, tuple(halves), tuple(wholes)), (*halves.values(), *wholes.values())


def _kinds(
    shape: Shape, usable: int, free: int, against: Sequence[Preference], rules: Rules
) -> tuple[Tables, Sequence[int]]:
    """The kinds of cores that have usable CPUs, and the cores of each kind."""
    parts = {kind: cores for kind, cores in sorted(_parts(shape, usable, free, against).items()) if cores}
    return tables(rules, tuple(parts)), tuple(parts.values())


def _parts(shape: Shape, usable: int, free: int, against: Sequence[Preference]) -> dict[CoreKind, int]:
    found: dict[CoreKind, int] = {}
    for pattern in shape.shapes:
        size, whole = len(pattern.offsets) + 1, by_threads(free, *pattern)[-1]
        for count, leads in enumerate(by_threads(usable, *pattern)):
            for entire in (True, False) if count else ():
                some = leads & (whole if entire else ~whole)
                for kind, cores in _by_cost(size, count, entire, some, against):
                    found[kind] = found.get(kind, 0) | cores
    return found


def _by_cost(
    size: int, usable: int, whole: bool, cores: int, against: Iterable[Preference]
) -> list[tuple[CoreKind, int]]:
    """These cores by what touching them costs."""
    groups = {0: cores}
    for preference in against:
        groups = _split(groups, preference)
    return [(CoreKind(size, usable, whole, cost), some) for cost, some in sorted(groups.items())]


def _split(groups: dict[int, int], preference: Preference) -> dict[int, int]:
    """Cores by what touching them costs, with what it costs against one more preference."""
    found = dict[int, int]()
    for cost, cores in groups.items():
        for dearer, some in (
            (cost, cores & ~preference.against),
            (cost + preference.weight, cores & preference.against),
        ):
            if some:
                found[dearer] = found.get(dearer, 0) | some
    return dict(sorted(found.items()))


def lower(a: int, b: int) -> int:
    """The lower of two sets of equal size."""
    apart = a ^ b
    return a if a & apart & -apart else b


def pick(problem: PlacementProblem, domain: int, taken: int) -> int:
    """The lowest CPUs of a domain for an entry of its table; none for 0."""
    if not taken:
        return 0
    shape, table, leads = problem.shape, problem.table(domain), problem.leads
    unit, usable, found = shape.domains[domain], problem.usable, 0
    for parts in table.ways(taken):
        mask = 0
        for kind, own, cores in parts:
            mask |= _of_kind(shape, table, kind, leads[kind] & unit, usable, own, cores)
        found = lower(found, mask) if found else mask
    return found


def _of_kind(
    shape: Shape, table: DomainTable, kind: int, leads: int, usable: int, cpus: int, cores: int
) -> int:
    """The lowest CPUs on exactly so many cores of a kind that break the bind policy as little as can be."""
    size, threads, _, _ = table.kinds[kind]
    if threads == size and not table.rules.spread:
        return _on_whole_cores(shape, lowest(leads, cores), cpus % size)
    pool = leads if size == 1 else shape.threads_of(leads) & usable
    if threads == 1:
        return lowest(pool, cpus)
    firsts = lowest(leads if threads == size else shape.one_of_each(pool), cores)
    rest = cpus - cores
    if not rest:
        return firsts
    others = shape.touched(TopologyLevel.CORE, firsts) & pool & ~firsts
    if threads == 2 or not table.rules.spread:
        return firsts | lowest(others, rest)
    doubled = -(-(cpus - table.counts[kind]) // (threads - 1))
    return firsts | _from_few(shape, others, rest, doubled)


def _on_whole_cores(shape: Shape, leads: int, rest: int) -> int:
    """All threads of these cores; with a rest, of one of them only its lowest so many."""
    threads = shape.threads_of(leads)
    if not rest:
        return threads
    if shape.pairs:
        return threads ^ 1 << leads.bit_length() - 1 + shape.patterns[0].offsets[1]
    spare = [shape.threads_of(1 << lead) for lead in bits(leads)]
    spare = [core & ~lowest(core, rest) for core in spare]
    return threads & ~max(spare, key=lambda core: core & -core)


def _from_few(shape: Shape, pool: int, n: int, few: int) -> int:
    """The lowest n CPUs in the pool that come from no more than so many cores, where these just suffice."""
    core_of = {cpu: shape.touched(TopologyLevel.CORE, 1 << cpu) for cpu in bits(pool)}
    spare = {core: core & pool for core in core_of.values()}
    taken, opened = 0, set[int]()
    for cpu, core in core_of.items():
        tried = opened | {core}
        if n and len(tried) <= few and _room(spare, tried, few, cpu) >= n - 1:
            taken |= 1 << cpu
            n -= 1
            opened = tried
    return taken


def _room(spare: dict[int, int], opened: set[int], few: int, after: int) -> int:
    """Count the CPUs with ids above `after` of the open cores, and of as many more as may be opened."""
    left = {core: (mask >> after + 1).bit_count() for core, mask in spare.items()}
    closed = sorted((left[core] for core in left if core not in opened), reverse=True)
    return sum(left[core] for core in opened) + sum(closed[: few - len(opened)])
