"""Term 10: of all equally good ways to take CPUs from the cores of a domain, the one with the lowest ids.

Of two sets of the same size the lower is the one that has the smallest id of those in which they differ, so
that what is lowest in each part is lowest altogether, and a greedy choice by id is exact.
"""

from corelane.cpuset import bits, lowest
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.shape import Shape
from corelane.placement.optimal.tables import Table
from corelane.workload.placement_spec import TopologyLevel

__all__ = ["lower", "pick"]


def lower(a: int, b: int) -> int:
    """The lower of two sets of equal size."""
    apart = a ^ b
    return a if a & apart & -apart else b


def pick(problem: Problem, domain: int, taken: int) -> int:
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


def _of_kind(shape: Shape, table: Table, kind: int, leads: int, usable: int, cpus: int, cores: int) -> int:
    """The lowest CPUs on exactly so many cores of a kind that break the bind policy as little as can be."""
    size, threads, _, _ = table.kinds[kind]
    if threads == size and not table.rules.spread:
        return _whole(shape, lowest(leads, cores), cpus % size)
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


def _whole(shape: Shape, leads: int, rest: int) -> int:
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
    """How many more CPUs with ids above `after` the open cores give, and as many more as may be opened."""
    left = {core: (mask >> after + 1).bit_count() for core, mask in spare.items()}
    closed = sorted((left[core] for core in left if core not in opened), reverse=True)
    return sum(left[core] for core in opened) + sum(closed[: few - len(opened)])
