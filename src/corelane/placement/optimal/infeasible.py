"""Why nothing fits, and the smallest changes that would make it fit: fewer CPUs, a wish less, some moved."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations, islice

from corelane.cpuset import format_list
from corelane.placement.optimal.demand import (
    AntiAffinity,
    Demand,
    HardRequirement,
    Occupancy,
    requirements,
    union,
)
from corelane.placement.optimal.problem import Problem, assemble, build
from corelane.placement.optimal.result import Change, Infeasible
from corelane.placement.optimal.spans import possible
from corelane.workload.placement_spec import BindPolicy, Exclusivity, NUMAPolicy

__all__ = ["changes", "why_not"]

_TRIES = 100
"""How many sets of holders are tried; beyond it, one that may be larger than needed is looked for."""
_STRICT = (NUMAPolicy.RESTRICTED, NUMAPolicy.SINGLE_NUMA_NODE)

Stage = tuple[str, str, Problem]
"""A requirement, what it says, and the problem with it and all before it."""


def why_not(problem: Problem) -> Infeasible:
    """The first hard requirement that cannot be kept together with those before it."""
    for requirement, text, stage in _stages(problem):
        if not possible(stage):
            return Infeasible(requirement, text)
    raise AssertionError("asked why a demand does not fit that does")


def changes(problem: Problem) -> tuple[Change, ...]:
    """What would help: one set of holders to move, how many CPUs do fit, and every wish that stands alone.

    Where none of these suffices, one wish softened and something else beside it.
    """
    return _single(problem) or tuple(_together(problem))


def _single(problem: Problem) -> tuple[Change, ...]:
    return tuple(chain(_releases(problem), _fewer(problem), _softer(problem)))


def _together(problem: Problem) -> Iterator[Change]:
    for requirement, softer in _softened(problem.demand):
        rest = build(problem.shape, softer, problem.free, problem.occupancy)
        for change in islice(_single(rest), 1):
            text = f"without: {requirement}, {change.text}"
            yield Change("soften", text, requirement=requirement, also=change)


def _stages(problem: Problem) -> Iterator[Stage]:
    demand, shape, others = problem.demand, problem.shape, problem.occupancy
    plain = replace(
        demand, bind_required=False, numa=NUMAPolicy.NONE, numa_exclusive=False, resources=(), strategy=None
    )
    usable = problem.free

    def stage(asked: Demand) -> Problem:
        return assemble(shape, asked, problem.free, usable, others)

    yield "cpus", _count(usable, demand.cpus, "free"), stage(plain)
    for rule in requirements(shape, demand, others):
        usable &= ~rule.barred
        yield rule.requirement, _barred(rule, problem.free, usable, demand.cpus), stage(plain)
    plain = replace(plain, bind_required=demand.bind_required)
    yield "bind", _bind(problem, usable), stage(plain)
    plain = replace(plain, numa=demand.numa)
    yield "numa", _numa(problem), stage(plain)
    plain = replace(plain, numa_exclusive=demand.numa_exclusive)
    yield (
        "numa-exclusive",
        "a NUMA node is for pods inside one node, or for those that span several",
        stage(plain),
    )
    alone = ((one, replace(demand, resources=(one,))) for one in demand.resources)
    lacking = [one for one, asked in alone if not possible(stage(asked))] or demand.resources
    names = ", ".join(one.name for one in lacking)
    yield "resources", f"{demand.numa or 'the'} NUMA nodes that have the CPUs lack {names}", stage(demand)


def _count(cpus: int, wanted: int, word: str) -> str:
    found = cpus.bit_count()
    return f"{_asked(wanted)}, {found} {'is' if found == 1 else 'are'} {word}"


def _asked(cpus: int) -> str:
    return "1 CPU is asked for" if cpus == 1 else f"{cpus} CPUs are asked for"


def _barred(rule: HardRequirement, free: int, usable: int, wanted: int) -> str:
    out = format_list(free & rule.barred) or "none"
    return f"{rule.text}: {_count(usable, wanted, 'left')} (ruled out here: {out})"


def _bind(problem: Problem, usable: int) -> str:
    demand = problem.demand
    name = demand.bind or BindPolicy.FULL_PCPUS
    most = sum(problem.node_caps)
    if demand.spread:
        return f"{name} is required: {_asked(demand.cpus)}, {most} cores have one"
    if demand.cpus <= most:
        return f"{name} is required: {demand.cpus} CPUs are no whole number of the cores that are free"
    cpus = f"of {usable.bit_count()} CPUs" if usable else "of none"
    return f"{name} is required: {_asked(demand.cpus)}, {most} {cpus} are in whole cores"


def _numa(problem: Problem) -> str:
    demand, ids = problem.demand, problem.shape.node_ids
    caps = ", ".join(f"{node}: {cap}" for node, cap in zip(ids, problem.node_caps, strict=True))
    return f"{demand.numa}: {_asked(demand.cpus)}, usable by NUMA node are {caps}"


def _fits(problem: Problem, demand: Demand) -> bool:
    return possible(build(problem.shape, demand, problem.free, problem.occupancy))


def _fewer(problem: Problem) -> Iterator[Change]:
    """The most CPUs, fewer than asked for, that do fit."""
    most = min(problem.demand.cpus - 1, sum(problem.node_caps))
    for cpus in range(most, 0, -1):
        if possible(replace(problem, demand=replace(problem.demand, cpus=cpus))):
            yield Change("fewer", f"{cpus} CPU{'s' * (cpus > 1)} would fit", amount=cpus)
            return


def _softer(problem: Problem) -> Iterator[Change]:
    """Each hard requirement that, were it only preferred, would let the demand fit."""
    for requirement, softer in _softened(problem.demand):
        if _fits(problem, softer):
            yield Change("soften", f"it would fit without: {requirement}", requirement=requirement)


def _softened(demand: Demand) -> Iterator[tuple[str, Demand]]:
    for i, limit in enumerate(demand.limits):
        yield limit.name, replace(demand, limits=(*demand.limits[:i], *demand.limits[i + 1 :]))
    if demand.exclusive is not None and demand.exclusive.required:
        level = demand.exclusive.level
        yield f"exclusive at {level} level", replace(demand, exclusive=Exclusivity(level))
    for i, one in enumerate(demand.pod_affinity):
        if one.required:
            wish = f"{'avoid' if one.avoid else 'prefer'} {one.name or 'others'} at {one.level} level"
            rest = (*demand.pod_affinity[:i], replace(one, required=False), *demand.pod_affinity[i + 1 :])
            yield wish, replace(demand, pod_affinity=rest)
    if demand.bind_required:
        yield f"required {demand.bind or BindPolicy.FULL_PCPUS}", replace(demand, bind_required=False)
    if demand.numa in _STRICT:
        # Who may span NUMA nodes keeps nobody off them, as the node's own rules have it.
        yield demand.numa, replace(demand, numa=NUMAPolicy.BEST_EFFORT, numa_exclusive=False)
    if demand.numa_exclusive:
        yield "required exclusive NUMA node", replace(demand, numa_exclusive=False)


def _releases(problem: Problem) -> Iterator[Change]:
    """The fewest holders, and of these the smallest, without which the demand would fit."""
    found = _smallest(problem) or _irreducible(problem)
    if found:
        cpus = union(problem.occupancy.holders[i] for i in found)
        text = f"it would fit if the holders of {format_list(cpus)} were elsewhere"
        yield Change("release", text, holders=found, cpus=cpus)


def _smallest(problem: Problem) -> tuple[int, ...]:
    """One holder, or else two, as far as there are tries for."""
    holders = problem.occupancy.holders
    order = sorted(range(len(holders)), key=lambda i: (holders[i].bit_count(), i))
    pairs = sorted(combinations(order, 2), key=lambda pair: sum(holders[i].bit_count() for i in pair))
    sets: Iterable[tuple[int, ...]] = chain(((one,) for one in order), pairs)
    return next((one for one in islice(sets, _TRIES) if _fits_without(problem, one)), ())


def _irreducible(problem: Problem) -> tuple[int, ...]:
    """Some holders, none of whom could stay; empty where all together are not enough."""
    holders = problem.occupancy.holders
    kept = tuple(range(len(holders)))
    if not _fits_without(problem, kept):
        return ()
    for one in sorted(kept, key=lambda i: (-holders[i].bit_count(), i)):
        fewer = tuple(i for i in kept if i != one)
        if _fits_without(problem, fewer):
            kept = fewer
    return kept


def _fits_without(problem: Problem, gone: tuple[int, ...]) -> bool:
    others, demand = problem.occupancy, problem.demand
    cpus = union(others.holders[i] for i in gone)
    rest = Occupancy(
        tuple(holder for i, holder in enumerate(others.holders) if i not in gone),
        others.same_core & ~cpus,
        others.same_numa & ~cpus,
        tuple(AntiAffinity(one.level, one.cpus & ~cpus) for one in others.anti_affinity),
    )
    pod_affinity = tuple(replace(one, cpus=one.cpus & ~cpus) for one in demand.pod_affinity)
    asked = replace(demand, pod_affinity=pod_affinity)
    return possible(build(problem.shape, asked, problem.free | cpus, rest))
