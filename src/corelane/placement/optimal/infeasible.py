"""The result of a placement: CPUs with the terms of the objective, or why nothing fits and what would do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, combinations, islice
from typing import Final, NamedTuple

from corelane.placement.optimal.demand import AntiAffinity, Demand, Occupancy, requirements, union
from corelane.placement.optimal.problem import PlacementProblem, assemble, build
from corelane.placement.optimal.spans import most_nodes, possible
from corelane.reasons import Code, Reason, sentence
from corelane.workload.placement_spec import BindPolicy, Exclusivity, NUMAPolicy, NUMAStrategy


class Term(NamedTuple):
    """A term of the objective: its number and its short stable name; `text` says what the value counts.

    Terms of one kind have one number, and a letter in the order in which they decide.
    """

    number: str
    name: str
    text: str
    larger: bool = False
    """Whether larger values are better."""


TERMS: Final = (
    Term("2a", "uneven", "CPUs by which the NUMA nodes differ beyond one core"),
    Term("2b", "numa-nodes", "NUMA nodes"),
    Term("3", "elsewhere", "resources not local"),
    Term("4", "distance", "maximum NUMA distance"),
    Term("5", "l3-domains", "L3 domains"),
    Term("6", "bind", "cores against the bind policy"),
    Term("7a", "exclusive", "units shared against exclusivity"),
    Term("7b", "fallback", "cores shared despite NUMANodeLevel"),
    Term("7c", "affinity", "units against the pod CPU affinity"),
    Term("8", "allocated", "squared free CPUs left by NUMA node (MostAllocated)", larger=True),
    Term("8", "balance", "squared free CPUs left by NUMA node (LeastAllocated)"),
    Term("9", "room", "whole-core capacity score", larger=True),
)
"""Terms 2 to 9 in the order in which they decide; of 8 at most one is in play, and 10 is the CPUs."""

Values = tuple[tuple[str, int], ...]
"""(name, value) of every term in play, in the order of `TERMS`."""

_LARGER = frozenset(term.name for term in TERMS if term.larger)


@dataclass(frozen=True, slots=True)
class Alternative:
    """An answer that was not chosen."""

    cpus: int
    terms: Values


class Placement(NamedTuple):
    """The CPUs chosen, as a mask, and why.

    Not `proven` means that the search ran out of steps: `unproven_term` is then the first term whose value
    may not be the best, and `bound` a value that it cannot beat (None for term 10, "ids").
    `runner_up` is the best answer that leaves out at least one of the L3 domains chosen or, where none does,
    at least one of the cores; None when not computed, or there is none.
    """

    cpus: int
    terms: Values
    proven: bool = True
    unproven_term: str = ""
    bound: int | None = None
    runner_up: Alternative | None = None
    reasons: tuple[Reason, ...] = ()

    @property
    def values(self) -> dict[str, int]:
        return dict(self.terms)


@dataclass(frozen=True, slots=True)
class Change:
    """Change that would make a demand fit: `kind` is fewer, release or soften.

    `amount` CPUs requested instead (fewer); the positions of `holders` to be moved, and their `cpus`
    (release); or the `rule` to be dropped or only preferred (soften). Where that is not enough, `also` is
    what else it takes.
    """

    kind: str
    amount: int = 0
    holders: tuple[int, ...] = ()
    cpus: int = 0
    rule: Reason | None = None
    also: Change | None = None

    @property
    def requirement(self) -> str:
        """The rule as a sentence."""
        return sentence(self.rule) if self.rule else ""


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The first hard requirement that fails, and changes that would help, smallest first."""

    requirement: str
    reason: Reason
    changes: tuple[Change, ...] = ()

    @property
    def text(self) -> str:
        return sentence(self.reason)


def sort_key(terms: Values) -> tuple[int, ...]:
    """A key that sorts values of the same demand from best to worst, ids left aside."""
    return tuple(-value if name in _LARGER else value for name, value in terms)


@lru_cache
def names(strategy: NUMAStrategy | None) -> tuple[str, ...]:
    """The terms that a demand with this strategy has."""
    only = {
        "uneven": NUMAStrategy.DISTRIBUTE_EVENLY,
        "allocated": NUMAStrategy.MOST_ALLOCATED,
        "balance": NUMAStrategy.LEAST_ALLOCATED,
    }
    return tuple(term.name for term in TERMS if only.get(term.name, strategy) is strategy)


_TRIES = 100
"""Number of sets of holders that are tried; beyond it, one that may be larger than needed is sought."""
_STRICT = (NUMAPolicy.RESTRICTED, NUMAPolicy.SINGLE_NUMA_NODE)

Stage = tuple[str, Reason, PlacementProblem]
"""A requirement, why it may not be met, and the problem with it and all before it."""


def why_not(problem: PlacementProblem) -> Infeasible:
    """Return the first hard requirement that cannot be met together with those before it."""
    for requirement, reason, stage in _stages(problem):
        if not possible(stage):
            return Infeasible(requirement, reason)
    raise AssertionError("the demand fits")


def changes(problem: PlacementProblem) -> tuple[Change, ...]:
    """Return what would help: one set of holders to move, how many CPUs do fit, and each rule to soften.

    Where none of these suffices, one rule softened and something else with it.
    """
    return _single(problem) or tuple(_together(problem))


def _single(problem: PlacementProblem) -> tuple[Change, ...]:
    return tuple(chain(_releases(problem), _fewer(problem), _softer(problem)))


def _together(problem: PlacementProblem) -> Iterator[Change]:
    for rule, softer in _softened(problem.demand):
        rest = build(problem.shape, softer, problem.free, problem.occupancy)
        for change in islice(_single(rest), 1):
            yield Change("soften", rule=rule, also=change)


def _stages(problem: PlacementProblem) -> Iterator[Stage]:
    demand, shape, others = problem.demand, problem.shape, problem.occupancy
    plain = replace(
        demand, bind_required=False, numa=NUMAPolicy.NONE, numa_exclusive=False, resources=(), strategy=None
    )
    usable = problem.free

    def stage(part: Demand) -> PlacementProblem:
        return assemble(shape, part, problem.free, usable, others)

    n = demand.cpus
    yield "cpus", Reason(Code.TOO_FEW_CPUS, (n, usable.bit_count())), stage(plain)
    for requirement in requirements(shape, demand, others):
        usable &= ~requirement.barred
        values = requirement.rule, n, usable.bit_count(), problem.free & requirement.barred
        yield requirement.requirement, Reason(Code.TOO_FEW_CPUS_LEFT, values), stage(plain)
    plain = replace(plain, bind_required=demand.bind_required)
    yield "bind", _bind(problem, usable), stage(plain)
    plain = replace(plain, numa=demand.numa)
    by_node = tuple(zip(shape.node_ids, problem.node_caps, strict=True))
    on_nodes = demand.numa, n, most_nodes(problem), by_node
    yield "numa", Reason(Code.TOO_FEW_CPUS_ON_NUMA_NODES, on_nodes), stage(plain)
    plain = replace(plain, numa_exclusive=demand.numa_exclusive)
    yield "numa-exclusive", Reason(Code.NUMA_EXCLUSIVE_UNMET), stage(plain)
    each = ((resource, replace(demand, resources=(resource,))) for resource in demand.resources)
    lacking = [resource for resource, part in each if not possible(stage(part))] or demand.resources
    names = tuple(resource.name for resource in lacking)
    yield "resources", Reason(Code.RESOURCES_NOT_LOCAL, (demand.numa, names)), stage(demand)


def _bind(problem: PlacementProblem, usable: int) -> Reason:
    demand, most = problem.demand, sum(problem.node_caps)
    policy = demand.bind or BindPolicy.FULL_PCPUS
    if demand.spread:
        return Reason(Code.TOO_FEW_CORES, (policy, demand.cpus, most))
    if demand.cpus <= most:
        return Reason(Code.NOT_WHOLE_CORES, (policy, demand.cpus))
    return Reason(Code.TOO_FEW_WHOLE_CORES, (policy, demand.cpus, most, usable.bit_count()))


def _fits(problem: PlacementProblem, demand: Demand) -> bool:
    return possible(build(problem.shape, demand, problem.free, problem.occupancy))


def _fewer(problem: PlacementProblem) -> Iterator[Change]:
    """The most CPUs, fewer than requested, that do fit."""
    most = min(problem.demand.cpus - 1, sum(problem.node_caps))
    for cpus in range(most, 0, -1):
        if possible(replace(problem, demand=replace(problem.demand, cpus=cpus))):
            yield Change("fewer", amount=cpus)
            return


def _softer(problem: PlacementProblem) -> Iterator[Change]:
    """Each hard requirement that, were it only preferred, would let the demand fit."""
    for rule, softer in _softened(problem.demand):
        if _fits(problem, softer):
            yield Change("soften", rule=rule)


def _softened(demand: Demand) -> Iterator[tuple[Reason, Demand]]:
    for i, limit in enumerate(demand.limits):
        rest = (*demand.limits[:i], *demand.limits[i + 1 :])
        yield Reason(Code.RULE_CPUS, (limit.name,)), replace(demand, limits=rest)
    if demand.exclusive is not None and demand.exclusive.required:
        level = demand.exclusive.level
        yield Reason(Code.RULE_EXCLUSIVE, (level,)), replace(demand, exclusive=Exclusivity(level))
    for i, affinity in enumerate(demand.pod_affinity):
        if affinity.required:
            terms = (
                *demand.pod_affinity[:i],
                replace(affinity, required=False),
                *demand.pod_affinity[i + 1 :],
            )
            yield affinity.rule, replace(demand, pod_affinity=terms)
    if demand.bind_required:
        policy = demand.bind or BindPolicy.FULL_PCPUS
        yield Reason(Code.RULE_BIND_POLICY, (policy,)), replace(demand, bind_required=False)
    if demand.numa in _STRICT:
        # Pods that may span NUMA nodes do not keep others off them, as the node's own rules have it.
        softer = replace(demand, numa=NUMAPolicy.BEST_EFFORT, numa_exclusive=False)
        yield Reason(Code.RULE_NUMA_POLICY, (demand.numa,)), softer
    if demand.numa_exclusive:
        yield Reason(Code.RULE_NUMA_EXCLUSIVE), replace(demand, numa_exclusive=False)


def _releases(problem: PlacementProblem) -> Iterator[Change]:
    """The fewest holders, and of these the smallest, without which the demand would fit."""
    found = _smallest(problem) or _irreducible(problem)
    if found:
        cpus = union(problem.occupancy.holders[i] for i in found)
        yield Change("release", holders=found, cpus=cpus)


def _smallest(problem: PlacementProblem) -> tuple[int, ...]:
    """One holder, or else two, as far as there are tries for."""
    holders = problem.occupancy.holders
    order = sorted(range(len(holders)), key=lambda i: (holders[i].bit_count(), i))
    pairs = sorted(combinations(order, 2), key=lambda pair: sum(holders[i].bit_count() for i in pair))
    sets: Iterable[tuple[int, ...]] = chain(((holder,) for holder in order), pairs)
    return next((one for one in islice(sets, _TRIES) if _fits_without(problem, one)), ())


def _irreducible(problem: PlacementProblem) -> tuple[int, ...]:
    """Some holders, all of which must be moved; empty where all together are not enough."""
    holders = problem.occupancy.holders
    kept = tuple(range(len(holders)))
    if not _fits_without(problem, kept):
        return ()
    for one in sorted(kept, key=lambda i: (-holders[i].bit_count(), i)):
        fewer = tuple(i for i in kept if i != one)
        if _fits_without(problem, fewer):
            kept = fewer
    return kept


def _fits_without(problem: PlacementProblem, gone: tuple[int, ...]) -> bool:
    others, demand = problem.occupancy, problem.demand
    cpus = union(others.holders[i] for i in gone)
    rest = Occupancy(
        tuple(holder for i, holder in enumerate(others.holders) if i not in gone),
        others.same_core & ~cpus,
        others.same_numa & ~cpus,
        tuple(AntiAffinity(affinity.level, affinity.cpus & ~cpus) for affinity in others.anti_affinity),
    )
    pod_affinity = tuple(replace(one, cpus=one.cpus & ~cpus) for one in demand.pod_affinity)
    asked = replace(demand, pod_affinity=pod_affinity)
    return possible(build(problem.shape, asked, problem.free | cpus, rest))
