"""The optimal allocator's objective over sets of ids, and its best answer by trying every set.

Rows are (cpu, core, socket, numa, l3), as for `placement.topology.build`.
"""

from collections.abc import Iterator
from itertools import combinations

from corelane.cpuset import bits
from corelane.placement.optimal.demand import Demand, Occupancy
from corelane.workload.placement_spec import BindPolicy, ExclusivePolicy, NUMAPolicy, NUMAStrategy

Rows = list[tuple[int, int, int, int, int]]
Cpus = frozenset[int]


class World:
    """The units of a machine as sets of ids; an L3 domain is a cache within a NUMA node."""

    def __init__(self, rows: Rows, distances: dict[int, dict[int, int]]) -> None:
        self.rows, self.distances = rows, distances
        self.units = {
            "core": self.grouped(lambda row: (row[3], row[4], row[2], row[1])),
            "l3": self.grouped(lambda row: (row[3], row[4])),
            "numa": self.grouped(lambda row: row[3]),
        }
        self.at = {
            level: {cpu: unit for unit in units.values() for cpu in unit}
            for level, units in self.units.items()
        }
        self.node = {row[0]: row[3] for row in rows}
        self.threads = max(len(core) for core in self.units["core"].values())

    def grouped(self, key) -> dict[object, Cpus]:
        found: dict[object, set[int]] = {}
        for row in self.rows:
            found.setdefault(key(row), set()).add(row[0])
        return {unit: frozenset(cpus) for unit, cpus in found.items()}

    def touched(self, level: str, cpus: Cpus) -> set[Cpus]:
        return {self.at[level][cpu] for cpu in cpus}


def ids(mask: int) -> Cpus:
    return frozenset(bits(mask))


def usable(world: World, demand: Demand, free: Cpus, others: Occupancy) -> Iterator[int]:
    """The CPUs that no hard requirement on single units rules out."""
    bound = ids(others.bound)
    for cpu in sorted(free):
        here = {level: units[cpu] for level, units in world.at.items()}
        if any(cpu not in ids(limit.cpus) for limit in demand.limits):
            continue
        if any(here[guard.level] & ids(guard.cpus) for guard in others.anti_affinity):
            continue
        exclusive = demand.exclusive
        if exclusive and exclusive.required and here[exclusive.level] & bound:
            continue
        if any(bool(here[a.level] & ids(a.cpus)) is a.avoid for a in demand.pod_affinity if a.required):
            continue
        yield cpu


def allowed(world: World, demand: Demand, others: Occupancy, cpus: Cpus) -> bool:
    """Whether a set keeps the hard requirements that concern it as a whole."""
    cores = world.touched("core", cpus)
    if demand.bind_required:
        if demand.bind is BindPolicy.SPREAD_BY_PCPUS:
            if any(len(core & cpus) > 1 for core in cores):
                return False
        elif any(core - cpus for core in cores):
            return False
    nodes = {world.node[cpu] for cpu in cpus}
    strict = demand.numa in (NUMAPolicy.SINGLE_NUMA_NODE, NUMAPolicy.RESTRICTED)
    if demand.numa is NUMAPolicy.SINGLE_NUMA_NODE and len(nodes) > 1:
        return False
    if demand.numa is NUMAPolicy.RESTRICTED and len(nodes) > needed(world, demand):
        return False
    if strict and elsewhere(world, demand, nodes):
        return False
    if demand.numa_exclusive:
        for holder in map(ids, others.holders):
            held = {world.node[cpu] for cpu in holder if cpu in world.node}
            if held & nodes and (len(held) > 1) != (len(nodes) > 1):
                return False
    return True


def needed(world: World, demand: Demand) -> int:
    amounts = [({n: len(c) for n, c in world.units["numa"].items()}, demand.cpus)]
    amounts += [(r.capacity if r.capacity is not None else r.free, r.wanted) for r in demand.resources]
    most = 1
    for held, wanted in amounts:
        count, total = 0, 0
        for amount in sorted((held.get(node, 0) for node in world.units["numa"]), reverse=True):
            if total >= wanted:
                break
            total, count = total + amount, count + 1
        most = max(most, count)
    return most


def elsewhere(world: World, demand: Demand, nodes: set[int]) -> int:
    return sum(sum(r.free.get(node, 0) for node in nodes) < r.wanted for r in demand.resources)


def room(world: World, demand: Demand, free: Cpus) -> int:
    whole = {cpu for core in world.units["core"].values() if core <= free for cpu in core}
    units = (*world.units["l3"].values(), *world.units["numa"].values())
    return sum(len(unit & whole) // size for unit in units for size in demand.sizes)


def terms(world: World, demand: Demand, free: Cpus, others: Occupancy, cpus: Cpus) -> dict[str, int]:
    """The value of every term that is in play, by name."""
    by_node = [len(node & cpus) for node in world.touched("numa", cpus)]
    nodes = {world.node[cpu] for cpu in cpus}
    cores = world.touched("core", cpus)
    spread = demand.bind is BindPolicy.SPREAD_BY_PCPUS
    found = {}
    if demand.strategy is NUMAStrategy.DISTRIBUTE_EVENLY:
        found["uneven"] = max(0, max(by_node) - min(by_node) - (1 if spread else world.threads))
    found["numa-nodes"] = len(nodes)
    found["elsewhere"] = elsewhere(world, demand, nodes)
    far = [max(world.distances[a][b], world.distances[b][a]) for a in nodes for b in nodes if a != b]
    found["distance"] = max(far, default=10)
    found["l3-domains"] = len(world.touched("l3", cpus))
    found["bind"] = sum(len(core & cpus) > 1 if spread else core - cpus != set() for core in cores)
    found |= shared(world, demand, others, cpus)
    if demand.strategy in (NUMAStrategy.MOST_ALLOCATED, NUMAStrategy.LEAST_ALLOCATED):
        squares = sum(len((free - cpus) & node) ** 2 for node in world.units["numa"].values())
        found["allocated" if demand.strategy is NUMAStrategy.MOST_ALLOCATED else "balance"] = squares
    found["room"] = room(world, demand, free - cpus)
    return found


def shared(world: World, demand: Demand, others: Occupancy, cpus: Cpus) -> dict[str, int]:
    found = {"exclusive": 0, "fallback": 0, "affinity": 0}
    exclusive = demand.exclusive
    if exclusive and not exclusive.required:
        bound = ids(others.bound)
        found["exclusive"] += sum(bool(unit & bound) for unit in world.touched(exclusive.level, cpus))
    if demand.exclusive_policy is ExclusivePolicy.PCPU_LEVEL:
        same = ids(others.same_core)
        found["exclusive"] += sum(bool(core & same) for core in world.touched("core", cpus))
    if demand.exclusive_policy is ExclusivePolicy.NUMA_NODE_LEVEL:
        same = ids(others.same_numa)
        conflicts = {node for node in world.touched("numa", cpus) if node & same}
        found["exclusive"] += len(conflicts)
        either = same | ids(others.same_core)
        found["fallback"] += sum(
            bool(core & either) for node in conflicts for core in world.touched("core", cpus & node)
        )
    for one in demand.pod_affinity:
        theirs = ids(one.cpus) & world.node.keys()
        if not one.required and (one.avoid or theirs):
            found["affinity"] += sum(
                bool(unit & theirs) is one.avoid for unit in world.touched(one.level, cpus)
            )
    return found


def order(values: dict[str, int]) -> tuple[int, ...]:
    return tuple(-value if name in ("allocated", "room") else value for name, value in values.items())


def best(
    world: World, demand: Demand, free: Cpus, others: Occupancy, keep=lambda cpus: True
) -> tuple[dict[str, int], Cpus] | None:
    """The best set and its terms, among those that `keep` accepts; None when there is none."""
    found = None
    for one in combinations(usable(world, demand, free, others), demand.cpus):
        cpus = frozenset(one)
        if not keep(cpus) or not allowed(world, demand, others, cpus):
            continue
        values = terms(world, demand, free, others, cpus)
        key = (order(values), one)
        if found is None or key < found[0]:
            found = (key, values, cpus)
    return None if found is None else found[1:]
