"""Why these CPUs: the next best answer, what each term came to, and what there is to know about the CPUs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from corelane.placement.optimal import infeasible
from corelane.placement.optimal.demand import UNOCCUPIED, Demand, Occupancy, preferences
from corelane.placement.optimal.problem import PlacementProblem, assemble, build, lower
from corelane.placement.optimal.result import TERMS, Alternative, Infeasible, Placement, Values, names, rank
from corelane.placement.optimal.search import BUDGET, answer
from corelane.placement.optimal.shape import Shape
from corelane.reasons import Code, Reason
from corelane.workload.placement_spec import BindPolicy, ExclusivePolicy, TopologyLevel


def explain(
    shape: Shape, demand: Demand, free: int, occupancy: Occupancy = UNOCCUPIED, *, budget: int = BUDGET
) -> Placement | Infeasible:
    """As `place`, with the runner-up and reasons, or with what would make the demand fit.

    It takes some ten times as long.
    """
    problem = build(shape, demand, free, occupancy)
    placement = answer(problem, budget)
    if placement is None:
        return replace(infeasible.why_not(problem), changes=infeasible.changes(problem))
    second = _runner_up(problem, placement, budget)
    reasons = (*_terms(placement, second), *_verdict(placement, second), *_notes(problem, placement))
    return placement._replace(runner_up=second, reasons=reasons)


def _runner_up(problem: PlacementProblem, placement: Placement, budget: int) -> Alternative | None:
    """The best answer without one of the L3 domains chosen; failing that, without one of the cores."""
    cores = (core for core in problem.shape.cores() if core & placement.cpus)
    domains = (domain for domain in problem.shape.domains if domain & placement.cpus)
    return _best_without(problem, domains, budget) or _best_without(problem, cores, budget)


def _best_without(problem: PlacementProblem, units: Iterable[int], budget: int) -> Alternative | None:
    best: Alternative | None = None
    for unit in units:
        rest = assemble(
            problem.shape, problem.demand, problem.free, problem.usable & ~unit, problem.occupancy
        )
        found = answer(rest, budget)
        if found is not None and (best is None or _better(found, best)):
            best = Alternative(found.cpus, found.terms)
    return best


def _better(one: Placement, other: Alternative) -> bool:
    first, second = rank(one.terms), rank(other.terms)
    return first < second or (first == second and lower(one.cpus, other.cpus) == one.cpus)


def _terms(placement: Placement, second: Alternative | None) -> Iterator[Reason]:
    """What every term came to, here and for the runner-up."""
    others = dict(second.terms) if second else {}
    values = placement.values
    for term in TERMS:
        if term.name in values:
            runner_up = others[term.name] if others else None
            yield Reason(Code.TERM, (term.name, term.number, term.text, values[term.name], runner_up))


def _verdict(placement: Placement, second: Alternative | None) -> Iterator[Reason]:
    """What decided, and whether it is proven."""
    yield _decided(placement, second)
    if not placement.proven:
        yield Reason(Code.NOT_PROVEN, (placement.unproven_term, placement.bound))


def _decided(placement: Placement, second: Alternative | None) -> Reason:
    if second is None:
        return Reason(Code.ONLY_ANSWER, (placement.cpus,))
    both = placement.cpus, second.cpus
    for term in TERMS:
        for (name, value), (_, theirs) in zip(placement.terms, second.terms, strict=True):
            if name == term.name and value != theirs:
                return Reason(Code.TERM_DECIDES, (*both, term.text, value, theirs))
    return Reason(Code.LOWER_IDS_WIN, both)


def _notes(problem: PlacementProblem, placement: Placement) -> Iterator[Reason]:
    """What wishes came to."""
    demand, values = problem.demand, placement.values
    if demand.spread and problem.shape.threads == 1:
        yield Reason(Code.SPREAD_WITHOUT_SMT, (BindPolicy.SPREAD_BY_PCPUS,))
    if not demand.spread and values["bind"]:
        yield _broken(problem, placement.cpus)
    if demand.exclusive_policy and values["exclusive"]:
        yield _not_kept(problem, values)
    for one in demand.pod_affinity:
        if not one.avoid and not one.required and not one.cpus & problem.shape.all:
            yield Reason(Code.AFFINITY_SELECTS_NOTHING, (one.name or "the selector",))


def _broken(problem: PlacementProblem, cpus: int) -> Reason:
    """Which siblings of the CPUs are not with them."""
    siblings = problem.shape.touched(TopologyLevel.CORE, cpus) & ~cpus
    return Reason(Code.CORES_PARTLY_USED, (siblings & problem.free, siblings & ~problem.free))


def _not_kept(problem: PlacementProblem, values: dict[str, int]) -> Reason:
    policy = problem.demand.exclusive_policy
    if policy is ExclusivePolicy.NUMA_NODE_LEVEL:
        return Reason(Code.EXCLUSIVE_POLICY_FALLBACK, (policy, values["fallback"]))
    return Reason(Code.EXCLUSIVE_POLICY_UNMET, (policy, values["exclusive"]))


def evaluate(shape: Shape, demand: Demand, free: int, cpus: int, occupancy: Occupancy = UNOCCUPIED) -> Values:
    """Return terms 2 to 9 by their definition for any `cpus` of the `free` ones.

    Hard requirements are not looked at. The search does not use this: tests compare the two, and the choices
    of other allocators are rated by it.
    """
    problem = assemble(shape, demand, free & shape.all, cpus, occupancy)
    nodes = [i for i, node in enumerate(shape.nodes) if node & cpus]
    squares = sum((problem.free & node & ~cpus).bit_count() ** 2 for node in shape.nodes)
    return _in_play(
        demand,
        {
            "uneven": _uneven(problem, [(shape.nodes[i] & cpus).bit_count() for i in nodes]),
            "numa-nodes": len(nodes),
            "elsewhere": sum(
                sum(one.free.get(shape.node_ids[i], 0) for i in nodes) < one.wanted
                for one in demand.resources
            ),
            "distance": shape.farthest(nodes),
            "l3-domains": sum(1 for domain in shape.domains if domain & cpus),
            "bind": _cores_broken(shape, demand, cpus),
            **_shared(problem, cpus),
            "allocated": squares,
            "balance": squares,
            "room": _room(shape, demand, problem.free & ~cpus),
        },
    )


def _in_play(demand: Demand, values: Mapping[str, int]) -> Values:
    """The terms that a demand has, in their order, with their values."""
    played = names(demand.strategy)
    return tuple(zip(played, map(values.__getitem__, played), strict=True))


def _room(shape: Shape, demand: Demand, free: int) -> int:
    """Term 9 of a set of free CPUs: over L3 domains, NUMA nodes and sizes, how often a size fits."""
    whole = sum(core for core in shape.cores() if not core & ~free)
    counts = [(whole & unit).bit_count() for unit in (*shape.domains, *shape.nodes)]
    return sum(count // size for count in counts for size in demand.sizes)


def _uneven(problem: PlacementProblem, counts: list[int]) -> int:
    granule = 1 if problem.rules.spread else problem.shape.threads
    return max(0, max(counts) - min(counts) - granule)


def _cores_broken(shape: Shape, demand: Demand, cpus: int) -> int:
    cores = [(core, core & cpus) for core in shape.cores() if core & cpus]
    if demand.spread:
        return sum(ours.bit_count() > 1 for _, ours in cores)
    return sum(core != ours for core, ours in cores)


def _shared(problem: PlacementProblem, cpus: int) -> dict[str, int]:
    """Term 7: per preference the touched units that are against it."""
    layout = problem.rules.layout
    found = {"exclusive": 0, "fallback": 0, "affinity": 0}
    for preference in preferences(problem.shape, problem.demand, problem.occupancy, layout):
        units = problem.shape.units(preference.level)
        against = sum(1 for unit in units if unit & cpus and unit & preference.against)
        name = next(name for name in found if getattr(layout, name) == preference.weight)
        found[name] += against
    return found
