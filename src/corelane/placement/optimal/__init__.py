"""Our own allocator: exact by a lexicographic objective of ten terms (docs/placement.md), with reasons.

`place` answers a demand; `explain` does so with the runner-up, reasons and remedies; `evaluate` rates any
CPUs.
"""

from corelane.placement.optimal.demand import (
    PROFILE,
    UNOCCUPIED,
    AntiAffinity,
    Demand,
    Limit,
    Occupancy,
    PodAffinityTerm,
    Resource,
    Shape,
    from_machine,
    from_topology,
)
from corelane.placement.optimal.infeasible import TERMS, Alternative, Change, Infeasible, Placement, Term
from corelane.placement.optimal.search import BUDGET, evaluate, explain, place

__all__ = [
    "BUDGET",
    "PROFILE",
    "TERMS",
    "UNOCCUPIED",
    "Alternative",
    "AntiAffinity",
    "Change",
    "Demand",
    "Infeasible",
    "Limit",
    "Occupancy",
    "Placement",
    "PodAffinityTerm",
    "Resource",
    "Shape",
    "Term",
    "evaluate",
    "explain",
    "from_machine",
    "from_topology",
    "place",
]
