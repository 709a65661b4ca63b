"""The allocator's one question: which CPUs for this demand, of those that are free."""

from typing import Final

from corelane.placement.optimal.demand import NOBODY, Demand, Occupancy
from corelane.placement.optimal.filling import Budget
from corelane.placement.optimal.misfit import why_not
from corelane.placement.optimal.objective import in_play
from corelane.placement.optimal.problem import Problem, build
from corelane.placement.optimal.result import Misfit, Placement, Values
from corelane.placement.optimal.search import Found, search
from corelane.placement.optimal.shape import Shape
from corelane.placement.optimal.single import in_one_domain
from corelane.workload.wishes import Strategy

__all__ = ["BUDGET", "place"]

BUDGET: Final = 60_000
"""Steps of the search, about 20 ms of work."""


def place(
    shape: Shape, demand: Demand, free: int, occupancy: Occupancy = NOBODY, *, budget: int = BUDGET
) -> Placement | Misfit:
    """The best `demand.cpus` of the CPUs in the mask `free`, by the objective of docs/placement.md.

    `free` are the CPUs that nobody holds; those that the demand may not have are ruled out here.
    """
    problem = build(shape, demand, free, occupancy)
    found = in_one_domain(problem) or search(problem, Budget(budget))
    if found is None:
        return why_not(problem)
    return _placement(problem, found)


def _placement(problem: Problem, found: Found) -> Placement:
    terms = values(problem, found)
    if found.proven:
        return Placement(found.cpus, terms)
    term, bound = _unproven(problem, found, dict(terms))
    return Placement(found.cpus, terms, False, term, bound)


def values(problem: Problem, found: Found) -> Values:
    """The terms of what was found, from its score."""
    parts = problem.rules.layout.unpack(found.score)
    uneven, nodes, elsewhere, distance = found.rank
    return in_play(
        problem.demand,
        {
            "uneven": uneven,
            "numa-nodes": nodes,
            "elsewhere": elsewhere,
            "distance": distance,
            "l3-domains": parts["domains"],
            "bind": parts["bind"],
            "exclusive": parts["exclusive"],
            "fallback": parts["fallback"],
            "affinity": parts["affinity"],
            "squares": _squares(problem) - _lost(problem, parts["strategy"]),
            "room": room_before(problem) - parts["shape"],
        },
    )


def _squares(problem: Problem) -> int:
    return sum(free * free for free in problem.node_free)


def _lost(problem: Problem, strategy: int) -> int:
    """By how much the sum of squares shrinks, from what term 8 adds to the score."""
    if problem.demand.strategy is Strategy.LEAST_ALLOCATED:
        return 2 * problem.demand.cpus * max(problem.node_free) - strategy
    return strategy


def room_before(problem: Problem) -> int:
    """Term 9 if nothing were taken."""
    room = problem.rules.room
    return sum(room(count[0]) for count in problem.counts) + sum(map(room, problem.node_whole))


def _unproven(problem: Problem, found: Found, terms: dict[str, int]) -> tuple[str, int | None]:
    """The first term that may not be the best possible, and what it cannot beat."""
    bounds = {"l3-domains": found.fewest, "bind": _least_broken(problem), "room": room_before(problem)}
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
