"""The objective by its definition: the value of every term for any set of CPUs, whoever chose it.

The search does not use this; tests hold the search to it, and what others chose is compared by it.
"""

from collections.abc import Mapping
from functools import lru_cache

from corelane.placement.optimal.demand import NOBODY, Demand, Occupancy
from corelane.placement.optimal.problem import Problem, assemble, placement_spec
from corelane.placement.optimal.result import TERMS, Values
from corelane.placement.optimal.shape import Shape
from corelane.workload.placement_spec import NUMAStrategy

__all__ = ["evaluate", "names", "room"]


def evaluate(shape: Shape, demand: Demand, free: int, cpus: int, occupancy: Occupancy = NOBODY) -> Values:
    """Terms 2 to 9 for `cpus`, which must be some of the `free` ones; hard requirements are not looked at."""
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
            "bind": _broken(shape, demand, cpus),
            **_shared(problem, cpus),
            "allocated": squares,
            "balance": squares,
            "room": room(shape, demand, problem.free & ~cpus),
        },
    )


def _in_play(demand: Demand, values: Mapping[str, int]) -> Values:
    """The terms that a demand has, in their order, with their values."""
    played = names(demand.strategy)
    return tuple(zip(played, map(values.__getitem__, played), strict=True))


@lru_cache
def names(strategy: NUMAStrategy | None) -> tuple[str, ...]:
    """The terms that a demand with this strategy has."""
    only = {
        "uneven": NUMAStrategy.DISTRIBUTE_EVENLY,
        "allocated": NUMAStrategy.MOST_ALLOCATED,
        "balance": NUMAStrategy.LEAST_ALLOCATED,
    }
    return tuple(term.name for term in TERMS if only.get(term.name, strategy) is strategy)


def room(shape: Shape, demand: Demand, free: int) -> int:
    """Term 9 of a set of free CPUs: over L3 domains, NUMA nodes and sizes, how often a size fits."""
    whole = sum(core for core in shape.cores() if not core & ~free)
    counts = [(whole & unit).bit_count() for unit in (*shape.domains, *shape.nodes)]
    return sum(count // size for count in counts for size in demand.sizes)


def _uneven(problem: Problem, counts: list[int]) -> int:
    granule = 1 if problem.rules.spread else problem.shape.threads
    return max(0, max(counts) - min(counts) - granule)


def _broken(shape: Shape, demand: Demand, cpus: int) -> int:
    cores = [(core, core & cpus) for core in shape.cores() if core & cpus]
    if demand.spread:
        return sum(ours.bit_count() > 1 for _, ours in cores)
    return sum(core != ours for core, ours in cores)


def _shared(problem: Problem, cpus: int) -> dict[str, int]:
    """Term 7: per wish the touched units that are against it."""
    layout = problem.rules.layout
    found = {"exclusive": 0, "fallback": 0, "affinity": 0}
    for wish in placement_spec(problem.shape, problem.demand, problem.occupancy, problem.rules):
        units = problem.shape.units(wish.level)
        against = sum(1 for unit in units if unit & cpus and unit & wish.against)
        name = next(name for name in found if getattr(layout, name) == wish.weight)
        found[name] += against
    return found
