"""Why these CPUs: the next best answer, what each term came to, and what there is to know about the CPUs."""

from collections.abc import Iterable, Iterator

from corelane.cpuset import format_list
from corelane.placement.optimal.answer import answer
from corelane.placement.optimal.lowest import lower
from corelane.placement.optimal.problem import Problem, assemble
from corelane.placement.optimal.result import TERMS, Alternative, Placement, rank
from corelane.placement.reasons import Reason
from corelane.workload.placement_spec import BindPolicy, ExclusivePolicy, TopologyLevel

__all__ = ["explained"]


def explained(problem: Problem, placement: Placement, budget: int) -> Placement:
    """The placement with its runner-up and reasons."""
    second = _runner_up(problem, placement, budget)
    reasons = (*_terms(placement, second), *_verdict(placement, second), *_notes(problem, placement))
    return placement._replace(runner_up=second, reasons=reasons)


def _runner_up(problem: Problem, placement: Placement, budget: int) -> Alternative | None:
    """The best answer without one of the L3 domains chosen; failing that, without one of the cores."""
    cores = (core for core in problem.shape.cores() if core & placement.cpus)
    domains = (domain for domain in problem.shape.domains if domain & placement.cpus)
    return _best_without(problem, domains, budget) or _best_without(problem, cores, budget)


def _best_without(problem: Problem, units: Iterable[int], budget: int) -> Alternative | None:
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
            text = f"{term.number}. {term.text}: {values[term.name]}"
            runner_up = f" (runner-up {others[term.name]})" if others else ""
            yield Reason(term.name, text + runner_up)


def _verdict(placement: Placement, second: Alternative | None) -> Iterator[Reason]:
    """What decided, and whether it is proven."""
    yield Reason("decided", _decided(placement, second))
    if not placement.proven:
        bound = "" if placement.bound is None else f", and cannot be better than {placement.bound}"
        yield Reason("proof", f"the search ran out of steps: {placement.unproven_term} is not proven{bound}")


def _decided(placement: Placement, second: Alternative | None) -> str:
    chosen = format_list(placement.cpus)
    if second is None:
        return f"nothing but {chosen} fits"
    other = format_list(second.cpus)
    for term in TERMS:
        for (name, value), (_, theirs) in zip(placement.terms, second.terms, strict=True):
            if name == term.name and value != theirs:
                return f"{chosen} rather than {other}: {term.text} decides, {value} against {theirs}"
    return f"{chosen} rather than {other}: they are equally good, and the lower ids win"


def _notes(problem: Problem, placement: Placement) -> Iterator[Reason]:
    """What wishes came to."""
    demand, values = problem.demand, placement.values
    if demand.spread and problem.shape.threads == 1:
        yield Reason("bind", f"{BindPolicy.SPREAD_BY_PCPUS} makes no difference: no core has a second thread")
    if not demand.spread and values["bind"]:
        yield Reason("bind", _broken(problem, placement.cpus))
    if demand.exclusive_policy and values["exclusive"]:
        yield Reason("exclusive", _not_kept(problem, values))
    for one in demand.neighbours:
        if not one.avoid and not one.required and not one.cpus & problem.shape.all:
            yield Reason(
                "affinity", f"nobody to be beside: {one.name or 'the selector'} selects no bound CPUs"
            )


def _broken(problem: Problem, cpus: int) -> str:
    """Which siblings of the CPUs are not with them."""
    siblings = problem.shape.touched(TopologyLevel.CORE, cpus) & ~cpus
    free, held = format_list(siblings & problem.free), format_list(siblings & ~problem.free)
    parts = [f"{free} stay free" if free else "", f"{held} belong to others" if held else ""]
    return "of cores that are not wholly taken, " + " and ".join(part for part in parts if part)


def _not_kept(problem: Problem, values: dict[str, int]) -> str:
    policy, shared = problem.demand.exclusive_policy, values["exclusive"]
    if policy is ExclusivePolicy.NUMA_NODE_LEVEL:
        level = ExclusivePolicy.PCPU_LEVEL
        return f"{policy} cannot be kept, so {level} holds there: {values['fallback']} cores are shared"
    return f"{policy} cannot be kept: {shared} cores are shared"
