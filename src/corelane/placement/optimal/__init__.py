"""Our own allocator: exact by a lexicographic objective of ten terms (docs/placement.md), with reasons."""

from corelane.placement.optimal.allocator import BUDGET, place
from corelane.placement.optimal.demand import (
    NOBODY,
    PROFILE,
    Demand,
    Guard,
    Limit,
    Neighbour,
    Occupancy,
    Resource,
)
from corelane.placement.optimal.objective import evaluate
from corelane.placement.optimal.result import TERMS, Alternative, Change, Infeasible, Placement, Term
from corelane.placement.optimal.shape import Shape, build, from_machine

__all__ = [
    "BUDGET",
    "NOBODY",
    "PROFILE",
    "TERMS",
    "Alternative",
    "Change",
    "Demand",
    "Guard",
    "Infeasible",
    "Limit",
    "Neighbour",
    "Occupancy",
    "Placement",
    "Resource",
    "Shape",
    "Term",
    "build",
    "evaluate",
    "from_machine",
    "place",
]
