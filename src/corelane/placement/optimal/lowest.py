"""Term 10: of all equally good ways to take CPUs from the cores of a domain, the one with the lowest ids.

Of two sets of the same size the lower is the one that has the smallest id of those in which they differ, so
that what is lowest in each part is lowest altogether, and a greedy choice by id is exact.
"""

from collections.abc import Sequence

from corelane.cpuset import bits, lowest
from corelane.placement.optimal.cores import Table
from corelane.placement.topology import Topology

__all__ = ["lower", "pick"]


def lower(a: int, b: int) -> int:
    """The lower of two sets of equal size."""
    apart = a ^ b
    return a if a & apart & -apart else b


def pick(
    topology: Topology, table: Table, leads: Sequence[int], usable: int, cpus: int, broken: int, kind: int = 0
) -> int:
    """The lowest CPUs of a domain for an entry of its table; `leads` are the domain's cores of each kind.

    0 where the table has no such entry.
    """
    best = table.best(kind, cpus)
    if kind == len(leads) or best is None:
        return 0
    found = 0
    for own, rest, portion in table.splits(kind, cpus):
        after = table.best(kind + 1, rest)
        left = broken - portion.broken
        if after is None or left < 0 or not after[1] >> left & 1 or portion.score + after[0] != best[0]:
            continue
        mask = pick(topology, table, leads, usable, rest, left, kind + 1)
        if own:
            mask |= _of_kind(topology, table, kind, leads[kind], usable, own, portion.cores)
        found = lower(found, mask) if found else mask
    return found


def _of_kind(
    topology: Topology, table: Table, kind: int, leads: int, usable: int, cpus: int, cores: int
) -> int:
    """The lowest CPUs on exactly so many cores of a kind that break the bind policy as little as can be."""
    size, threads = table.kinds[kind].size, table.kinds[kind].usable
    pool = leads if size == 1 else topology.threads_of(leads) & usable
    if threads == 1:
        return lowest(pool, cpus)
    if table.rules.spread:
        return _spread(topology, pool, cpus, cores, _doubled(table, kind, cpus, threads))
    if threads == size:
        return _whole(topology, lowest(leads, cores), cpus % size)
    first = lowest(_firsts(topology, pool), cores)
    return first | lowest(topology.whole_cores(first) & pool & ~first, cpus - cores)


def _whole(topology: Topology, leads: int, rest: int) -> int:
    """All threads of these cores; with a rest, of one of them only its lowest so many."""
    threads = topology.threads_of(leads)
    if not rest:
        return threads
    spare = [topology.threads_of(1 << lead) for lead in bits(leads)]
    spare = [core & ~lowest(core, rest) for core in spare]
    return threads & ~max(spare, key=lambda core: core & -core)


def _firsts(topology: Topology, pool: int) -> int:
    """The lowest CPU in the pool of every core that has one."""
    found = 0
    for cpu in bits(pool):
        if not topology.whole_cores(1 << cpu) & found:
            found |= 1 << cpu
    return found


def _doubled(table: Table, kind: int, cpus: int, threads: int) -> int:
    """The fewest cores that must give more than one CPU."""
    return max(0, -(-(cpus - table.counts[kind]) // (threads - 1)))


def _spread(topology: Topology, pool: int, cpus: int, cores: int, doubled: int) -> int:
    """One CPU of each of so many cores, and the others from `doubled` of these cores."""
    taken = lowest(_firsts(topology, pool), cores)
    rest = cpus - cores
    spare = {cpu: topology.whole_cores(1 << cpu) & pool & ~taken for cpu in bits(taken)}
    open_cores: set[int] = set()
    core_of = {cpu: first for first, mask in spare.items() for cpu in bits(mask)}
    for cpu in sorted(core_of):
        if not rest:
            break
        tried = open_cores | {core_of[cpu]}
        if len(tried) <= doubled and _room(spare, tried, doubled, cpu) >= rest - 1:
            taken |= 1 << cpu
            rest -= 1
            open_cores = tried
    return taken


def _room(spare: dict[int, int], open_cores: set[int], doubled: int, after: int) -> int:
    """How many more CPUs with ids above `after` the open cores give, and as many more as may be opened."""
    left = {first: (mask >> after + 1).bit_count() for first, mask in spare.items()}
    closed = sorted((left[first] for first in left if first not in open_cores), reverse=True)
    return sum(left[first] for first in open_cores) + sum(closed[: doubled - len(open_cores)])
