"""From what the search found to an answer: the values of the terms, and what is not proven."""

from corelane.placement.optimal.filling import Budget
from corelane.placement.optimal.objective import names
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.result import Placement, Values
from corelane.placement.optimal.search import Found, search
from corelane.placement.optimal.single import in_one_domain
from corelane.workload.placement_spec import NUMAStrategy

__all__ = ["answer"]


def answer(problem: Problem, budget: int) -> Placement | None:
    """The best placement within so many steps; None when nothing fits."""
    found = in_one_domain(problem) or search(problem, Budget(budget))
    if found is None:
        return None
    terms = _values(problem, found)
    if found.proven:
        return Placement(found.cpus, terms)
    term, bound = _unproven(problem, found, dict(terms))
    return Placement(found.cpus, terms, False, term, bound)


def _values(problem: Problem, found: Found) -> Values:
    """The terms of what was found, from its rank and score."""
    *shared, strategy, shape = problem.rules.layout.unpack(found.score)
    values = [*found.rank, *shared]
    if problem.demand.strategy is not NUMAStrategy.DISTRIBUTE_EVENLY:
        del values[0]
    if problem.rules.layout.strategy:
        values.append(_left_over(problem, strategy))
    values.append(_room_before(problem) - shape)
    return tuple(zip(names(problem.demand.strategy), values, strict=True))


def _left_over(problem: Problem, score: int) -> int:
    """Term 8: the squares of what is left free, from their part of the score."""
    lost = score
    if problem.demand.strategy is NUMAStrategy.LEAST_ALLOCATED:
        lost = 2 * problem.demand.cpus * max(problem.node_free) - score
    return _squares(problem) - lost


def _squares(problem: Problem) -> int:
    return sum([free * free for free in problem.node_free])


def _room_before(problem: Problem) -> int:
    """Term 9 if nothing were taken."""
    room = problem.rules.rooms.__getitem__
    return sum(map(room, problem.whole)) + sum(map(room, problem.node_whole))


def _unproven(problem: Problem, found: Found, terms: dict[str, int]) -> tuple[str, int | None]:
    """The first term that may not be the best possible, and what it cannot beat."""
    bounds = {"l3-domains": found.fewest, "bind": _least_broken(problem), "room": _room_before(problem)}
    bounds |= {"allocated": _squares(problem), "balance": 0}
    for name, value in terms.items():
        if name in ("uneven", "numa-nodes", "elsewhere", "distance"):
            continue
        if value != bounds.get(name, 0):
            return name, bounds.get(name, 0)
    return "ids", None


def _least_broken(problem: Problem) -> int:
    """Cores that break the bind policy however the CPUs are chosen: one, where their number asks for it."""
    size = problem.shape.core_size
    return int(not problem.rules.spread and size > 1 and problem.demand.cpus % size > 0)
