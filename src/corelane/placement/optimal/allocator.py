"""The allocator's one question: which CPUs for this demand, of those that are free."""

from dataclasses import replace
from typing import Final

from corelane.placement.optimal import infeasible
from corelane.placement.optimal.answer import answer
from corelane.placement.optimal.demand import NOBODY, Demand, Occupancy
from corelane.placement.optimal.explain import explained
from corelane.placement.optimal.problem import build
from corelane.placement.optimal.result import Infeasible, Placement
from corelane.placement.optimal.shape import Shape

__all__ = ["BUDGET", "place"]

BUDGET: Final = 40_000
"""Steps of the search, about 20 ms of work."""


def place(
    shape: Shape,
    demand: Demand,
    free: int,
    occupancy: Occupancy = NOBODY,
    *,
    explain: bool = False,
    budget: int = BUDGET,
) -> Placement | Infeasible:
    """The best `demand.cpus` of the CPUs in the mask `free`, by the objective of docs/placement.md.

    `free` are the CPUs that nobody holds; those that the demand may not have are ruled out here. To `explain`
    adds the runner-up and the reasons, or what would make it fit, and takes some ten times as long.
    """
    problem = build(shape, demand, free, occupancy)
    found = answer(problem, budget)
    if found is None:
        missed = infeasible.why_not(problem)
        return replace(missed, changes=infeasible.changes(problem)) if explain else missed
    return explained(problem, found, budget) if explain else found
