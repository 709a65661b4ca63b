"""The optimal allocator on a machine of 128 CPUs, against counting over its cores one by one."""

import random
from itertools import combinations

import pytest

from corelane.cpuset import format_list, parse_list
from corelane.machine.spec import parse_spec
from corelane.placement import topology
from corelane.placement.koordinator import allocator
from corelane.placement.optimal import demand as demands
from corelane.placement.optimal import search
from corelane.placement.optimal.demand import Demand, Occupancy
from corelane.workload.placement_spec import BindPolicy, ExclusivePolicy, NUMAStrategy

EIGHT = demands.from_machine(parse_spec("socket:2 numa:4 core:8 smt:2"))
CORES = tuple(EIGHT.cores())
FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS


def states(chance):
    """Free CPUs, and the CPUs of PCPULevel pods: whole cores and single threads taken; many are shared."""
    load, lonely = chance.random() * 0.8, chance.random()
    free, same = EIGHT.all, 0
    for core in CORES:
        if chance.random() < load:
            taken = core if chance.random() < 0.4 else chance.choice([core & -core, core & core - 1])
            free &= ~taken
            same |= taken if chance.random() < lonely else 0
    return free, same


def least_shared(free, same, n, bind, count, farthest):
    """The fewest cores that break the bind policy, and of these shared ones, in so many near NUMA nodes."""
    found = []
    for nodes in combinations(range(len(EIGHT.nodes)), count):
        if EIGHT.farthest(nodes) <= farthest:
            here = sum(EIGHT.nodes[i] for i in nodes)
            found.append(over_cores([core for core in CORES if core & here], free, same, n, bind))
    return min(one for one in found if one is not None)


def over_cores(cores, free, same, n, bind):
    """(Broken, shared) at their least for n CPUs of these cores; None where there are not as many."""
    least = {0: (0, 0)}
    for core in cores:
        for before, (broken, shared) in sorted(least.items(), reverse=True):
            for own in range(1, min((core & free).bit_count(), n - before) + 1):
                breaks = own > 1 if bind is SPREAD else own < 2
                after = (broken + breaks, shared + bool(core & same))
                least[before + own] = min(after, least.get(before + own, after))
    return least.get(n)


@pytest.mark.parametrize("bind", [FULL, SPREAD])
def test_no_exclusivity_is_dropped_that_could_be_kept_as_near_and_as_whole(bind):
    chance = random.Random(bind)
    wanted = {"bind": bind, "exclusive_policy": ExclusivePolicy.PCPU_LEVEL}
    for _ in range(150):
        free, same = states(chance)
        n = chance.randint(2, min(24, free.bit_count()))
        answer = search.place(EIGHT, Demand(n, **wanted), free, Occupancy(same_core=same))
        values = answer.values
        counts = sorted(((node & free).bit_count() for node in EIGHT.nodes), reverse=True)
        fewest = next(count for count in range(1, 9) if sum(counts[:count]) >= n)
        assert values["numa-nodes"] == fewest
        least = least_shared(free, same, n, bind, fewest, values["distance"])
        assert (values["bind"], values["exclusive"]) == least


def test_exclusivity_is_kept_where_koordinator_drops_it():
    """Its picker shares both cores of the other pod, though the other socket is wholly free."""
    rows = topology.build([(cpu, cpu // 2, cpu // 8, cpu // 8, cpu // 8) for cpu in range(16)])
    there, policy = parse_list("0,2"), ExclusivePolicy.PCPU_LEVEL
    request = allocator.Request(SPREAD, policy, NUMAStrategy.MOST_ALLOCATED)
    theirs = allocator.take_valid(rows, rows.all & ~there, 6, request, allocator.Held(there))
    assert format_list(theirs) == "1,3-7"
    demand = Demand(6, SPREAD, exclusive_policy=policy, strategy=NUMAStrategy.MOST_ALLOCATED)
    answer = search.place(demands.from_topology(rows), demand, rows.all & ~there, Occupancy(same_core=there))
    assert format_list(answer.cpus) == "8-12,14"
