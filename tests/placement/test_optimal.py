"""The optimal allocator against the best of all sets, on small machines of every shape, with every wish.

CORELANE_OPTIMAL_EXAMPLES, a number, makes the search as thorough as wanted, on machines of up to 16 CPUs.
"""

import os
from dataclasses import replace
from functools import reduce
from itertools import combinations
from operator import or_

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet, format_list
from corelane.placement import topology
from corelane.placement.optimal import demand as shapes
from corelane.placement.optimal import search
from corelane.placement.optimal.demand import (
    AntiAffinity,
    Demand,
    Limit,
    Occupancy,
    PodAffinityTerm,
    Resource,
)
from corelane.placement.optimal.infeasible import Infeasible
from corelane.workload.placement_spec import (
    BindPolicy,
    ExclusivePolicy,
    Exclusivity,
    NUMAPolicy,
    NUMAStrategy,
    TopologyLevel,
)
from support import optimal_reference as reference

EXAMPLES = int(os.environ.get("CORELANE_OPTIMAL_EXAMPLES", "0"))
LARGEST = 16 if EXAMPLES else 10
SLOW = [HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large]
common = settings(max_examples=EXAMPLES or 150, deadline=None, suppress_health_check=SLOW)
fewer = settings(common, max_examples=EXAMPLES // 4 or 40)

LEVELS = st.sampled_from(list(TopologyLevel))


@st.composite
def machines(draw):
    """Rows of a machine: equal or hybrid cores, caches inside or around nodes, CPUs off, ids with gaps."""
    sockets, nodes, caches = (
        draw(st.sampled_from([1, 1, 2])),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
    )
    hybrid, around = draw(st.booleans()), draw(st.integers(0, 4)) == 0
    threads = draw(st.sampled_from([1, 2, 2, 2, 3, 4]))
    cores = []
    for node in range(sockets * nodes):
        for cache in range(caches):
            l3 = node // nodes if around else node * caches + cache
            for _ in range(draw(st.integers(1, 4))):
                size = draw(st.sampled_from([1, 2, threads])) if hybrid else threads
                cores.append((size, node // nodes, node, l3))
    places = [
        (core, socket, node, l3) for core, (size, socket, node, l3) in enumerate(cores) for _ in range(size)
    ]
    if draw(st.booleans()):
        turns = [thread for size, *_ in cores for thread in range(size)]
        places = [place for _, place in sorted(zip(turns, places, strict=True), key=lambda pair: pair[0])]
    off = draw(st.sets(st.sampled_from(range(len(places))))) if draw(st.integers(0, 2)) == 0 else set()
    step, first = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([0, 0, 3]))
    rows = [(first + step * i, *place) for i, place in enumerate(places) if i not in off]
    rows = rows[:LARGEST] or [(0, *places[0])]
    if draw(st.integers(0, 4)) == 0:
        shuffled = draw(st.permutations([row[0] for row in rows]))
        rows = sorted((cpu, *row[1:]) for cpu, row in zip(shuffled, rows, strict=True))
    return rows


@st.composite
def worlds(draw):
    rows = draw(machines())
    nodes = sorted({row[3] for row in rows})
    far = {a: {b: 10 if a == b else 20 for b in nodes} for a in nodes}
    if len(nodes) > 2 and draw(st.booleans()):
        for a, b in combinations(nodes, 2):
            far[a][b] = far[b][a] = draw(st.sampled_from([11, 12, 21, 32]))
    return reference.World(rows, far)


@st.composite
def masks(draw, cpus, most=None):
    return CPUSet(draw(st.sets(st.sampled_from(sorted(cpus)), max_size=most)) if cpus else ()).mask


@st.composite
def occupancies(draw, world, free):
    """Who holds the CPUs that are not free: some holders, of whom some are exclusive, some nobody's."""
    taken = [cpu for cpu in world.node if not free >> cpu & 1]
    owner = {cpu: draw(st.integers(0, 4)) for cpu in taken}
    holders = tuple(
        CPUSet(c for c in taken if owner[c] == one).mask for one in range(4) if one in owner.values()
    )
    same = [draw(st.sampled_from(["", "core", "numa", "both"])) for _ in holders]
    anti_affinity = tuple(
        AntiAffinity(draw(LEVELS), holder) for holder in holders if draw(st.integers(0, 7)) == 0
    )
    return Occupancy(
        holders,
        same_core=reduce(or_, (h for h, s in zip(holders, same, strict=True) if s in ("core", "both")), 0),
        same_numa=reduce(or_, (h for h, s in zip(holders, same, strict=True) if s in ("numa", "both")), 0),
        anti_affinity=anti_affinity,
    )


def rarely(draw, strategy, otherwise):
    return draw(strategy) if draw(st.integers(0, 3)) == 0 else otherwise


@st.composite
def demands(draw, world, most):
    nodes = sorted(world.units["numa"])
    cpus = sorted(world.node)
    amounts = st.dictionaries(st.sampled_from(nodes), st.integers(0, 4), max_size=len(nodes))
    resources = st.lists(
        st.builds(Resource, st.just("r"), st.integers(1, 6), amounts, st.none() | amounts), max_size=2
    )
    pod_affinity = st.lists(
        st.builds(PodAffinityTerm, st.booleans(), LEVELS, masks(cpus), st.sampled_from([False, False, True])),
        max_size=2,
    )
    return Demand(
        draw(st.integers(1, max(1, most))),
        bind=draw(st.sampled_from([None, BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS])),
        bind_required=rarely(draw, st.booleans(), False),
        exclusive=rarely(draw, st.builds(Exclusivity, LEVELS, st.booleans()), None),
        exclusive_policy=rarely(draw, st.sampled_from(list(ExclusivePolicy)), ExclusivePolicy.NONE),
        pod_affinity=tuple(rarely(draw, pod_affinity, [])),
        limits=tuple(rarely(draw, st.builds(Limit, st.just("kind"), masks(cpus)).map(lambda one: [one]), [])),
        numa=rarely(draw, st.sampled_from(list(NUMAPolicy)), NUMAPolicy.NONE),
        numa_exclusive=rarely(draw, st.booleans(), False),
        strategy=draw(st.sampled_from([None, *NUMAStrategy])),
        resources=tuple(rarely(draw, resources, [])),
        sizes=rarely(draw, st.lists(st.integers(1, 6), max_size=3).map(tuple), shapes.PROFILE),
    )


@st.composite
def cases(draw):
    world = draw(worlds())
    everything = CPUSet(world.node).mask
    free = everything & ~draw(masks(world.node)) if draw(st.booleans()) else everything
    others = draw(occupancies(world, free))
    return world, draw(demands(world, free.bit_count())), free, others


def shape_of(world):
    return shapes.from_topology(topology.build(world.rows, distances=world.distances))


@st.composite
def crowded(draw):
    """Many small L3 domains and NUMA nodes, few CPUs in use and few wishes, so that much is equally good."""
    nodes, caches = draw(st.sampled_from([(1, 4), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (5, 1), (1, 5)]))
    threads = draw(st.sampled_from([1, 2, 2]))
    cores = max(1, LARGEST // (nodes * caches * threads))
    count = nodes * caches * cores
    places = [(core, 0, core // (caches * cores), core // cores) for core in range(count)]
    rows = [(core + thread * count, *place) for thread in range(threads) for core, place in enumerate(places)]
    world = reference.World(rows, {a: {b: 10 if a == b else 20 for b in range(nodes)} for a in range(nodes)})
    free = CPUSet(world.node).mask & ~draw(masks(world.node, 4))
    demand = Demand(
        draw(st.integers(1, free.bit_count())),
        bind=draw(st.sampled_from([None, None, BindPolicy.SPREAD_BY_PCPUS])),
        strategy=draw(st.sampled_from([None, None, *NUMAStrategy])),
    )
    return world, demand, free, draw(occupancies(world, free))


@common
@given(cases() | crowded())
def test_answers_are_the_best_of_all_sets(case):
    world, demand, free, others = case
    expected = reference.best(world, demand, reference.ids(free), others)
    answer = search.place(shape_of(world), demand, free, others)
    if expected is None:
        assert isinstance(answer, Infeasible)
        return
    values, cpus = expected
    assert not isinstance(answer, Infeasible), answer
    assert (dict(answer.terms), format_list(answer.cpus)) == (values, format_list(CPUSet(cpus).mask))
    assert answer.proven
    assert search.evaluate(shape_of(world), demand, free, answer.cpus, others) == answer.terms


@fewer
@given(cases() | crowded())
def test_the_runner_up_is_the_best_that_leaves_out_a_domain_or_else_a_core(case):
    world, demand, free, others = case
    answer = search.explain(shape_of(world), demand, free, others)
    if isinstance(answer, Infeasible):
        return
    chosen = reference.ids(answer.cpus)

    def without(level):
        units = world.touched(level, chosen)
        return lambda cpus: any(not unit & cpus for unit in units)

    expected = reference.best(world, demand, reference.ids(free), others, without("l3"))
    expected = expected or reference.best(world, demand, reference.ids(free), others, without("core"))
    if expected is None:
        assert answer.runner_up is None
    else:
        assert (dict(answer.runner_up.terms), reference.ids(answer.runner_up.cpus)) == expected


@fewer
@given(cases() | crowded(), st.integers(0, 60))
def test_what_is_proven_with_few_steps_is_proven(case, steps):
    """With steps for nothing there is an answer still; its terms up to the first unproven are the best."""
    world, demand, free, others = case
    expected = reference.best(world, demand, reference.ids(free), others)
    answer = search.place(shape_of(world), demand, free, others, budget=steps)
    if expected is None:
        assert isinstance(answer, Infeasible)
        return
    best, cpus = expected
    values = answer.values
    assert search.evaluate(shape_of(world), demand, free, answer.cpus, others) == answer.terms
    assert answer.cpus & ~free == 0
    assert reference.allowed(world, demand, others, reference.ids(answer.cpus))
    if answer.proven:
        assert reference.ids(answer.cpus) == cpus
        return
    for name, value in best.items():
        if name == answer.unproven_term:
            sign = -1 if name in ("allocated", "room") else 1
            assert sign * answer.bound <= sign * value <= sign * values[name]
            return
        assert values[name] == value
    assert answer.unproven_term == "ids"


@fewer
@given(cases())
def test_what_is_said_to_make_a_misfit_fit_does(case):
    world, demand, free, others = case
    answer = search.explain(shape_of(world), demand, free, others)
    if not isinstance(answer, Infeasible):
        return

    def fits(demand, free=free, others=others):
        return reference.best(world, demand, reference.ids(free), others) is not None

    for change in answer.changes:
        if change.also is not None:
            continue
        if change.kind == "fewer":
            assert fits(replace(demand, cpus=change.amount))
            smaller = range(change.amount + 1, demand.cpus)
            assert not any(fits(replace(demand, cpus=cpus)) for cpus in smaller)
        elif change.kind == "release":
            assert fits(*without(demand, free, others, change.holders))
            for one in range(len(others.holders)):
                smaller = len(change.holders) > 1 or (
                    others.holders[one].bit_count() < change.cpus.bit_count()
                )
                assert not smaller or not fits(*without(demand, free, others, [one]))


def without(demand, free, others, gone):
    """The same question when some holders are elsewhere."""
    cpus = reduce(or_, (others.holders[i] for i in gone))
    rest = Occupancy(
        tuple(holder for i, holder in enumerate(others.holders) if i not in gone),
        others.same_core & ~cpus,
        others.same_numa & ~cpus,
        tuple(AntiAffinity(one.level, one.cpus & ~cpus) for one in others.anti_affinity),
    )
    pod_affinity = tuple(replace(one, cpus=one.cpus & ~cpus) for one in demand.pod_affinity)
    return replace(demand, pod_affinity=pod_affinity), free | cpus, rest
