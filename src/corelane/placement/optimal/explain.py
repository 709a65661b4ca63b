"""Why these CPUs: the next best answer, what each term came to, and what there is to know about the CPUs."""

from collections.abc import Iterable, Iterator

from corelane.placement.optimal.answer import answer
from corelane.placement.optimal.lowest import lower
from corelane.placement.optimal.problem import Problem, assemble
from corelane.placement.optimal.result import TERMS, Alternative, Placement, rank
from corelane.reasons import Code, Reason
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


def _notes(problem: Problem, placement: Placement) -> Iterator[Reason]:
    """What wishes came to."""
    demand, values = problem.demand, placement.values
    if demand.spread and problem.shape.threads == 1:
        yield Reason(Code.SPREAD_WITHOUT_SMT, (BindPolicy.SPREAD_BY_PCPUS,))
    if not demand.spread and values["bind"]:
        yield _broken(problem, placement.cpus)
    if demand.exclusive_policy and values["exclusive"]:
        yield _not_kept(problem, values)
    for one in demand.neighbours:
        if not one.avoid and not one.required and not one.cpus & problem.shape.all:
            yield Reason(Code.AFFINITY_SELECTS_NOTHING, (one.name or "the selector",))


def _broken(problem: Problem, cpus: int) -> Reason:
    """Which siblings of the CPUs are not with them."""
    siblings = problem.shape.touched(TopologyLevel.CORE, cpus) & ~cpus
    return Reason(Code.CORES_PARTLY_USED, (siblings & problem.free, siblings & ~problem.free))


def _not_kept(problem: Problem, values: dict[str, int]) -> Reason:
    policy = problem.demand.exclusive_policy
    if policy is ExclusivePolicy.NUMA_NODE_LEVEL:
        return Reason(Code.EXCLUSIVE_POLICY_FALLBACK, (policy, values["fallback"]))
    return Reason(Code.EXCLUSIVE_POLICY_UNMET, (policy, values["exclusive"]))
