"""The optimal allocator's own terms of the CPUs that a node would give a pod, as one score.

Theory of operation. Each term in its order divides what is left of 0 to 100: value v gets the part from
1/(v+2) to 1/(v+1), in which the later terms decide. So the first term that differs decides whatever the later
ones are, without an upper limit of any value. NUMA nodes and memory are NUMALocality's. The terms are made
once for each answer of a canonical state, for CPUs of other allocators by the objective's definition.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate
from operator import or_
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from corelane.node.ledger import NodeState
from corelane.node.pools.pool_admission import binding_of
from corelane.placement.optimal.demand import Demand, Shape, from_topology
from corelane.placement.optimal.search import evaluate
from corelane.reasons import Code
from corelane.scheduler.cluster.columns import Columns, Rows, Scores
from corelane.scheduler.cluster.needs import Needs, by_koordinator, needs
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import Shape as PodShape
from corelane.scheduler.cluster.states import Answer, CanonicalState
from corelane.scheduler.framework.plugin import BEST, Cycle, Depends, Scope
from corelane.workload.request import PodRequest

SMALLER_FIRST: Final = ("distance", "l3-domains", "bind", "exclusive", "fallback", "affinity")
"""Terms of which smaller values are better, in the order in which they decide; then "room", larger is."""
TERMS: Final = (*SMALLER_FIRST, "room")
NEUTRAL: Final = BEST / 2
"""Score of a node that names no CPUs for a pod with exclusive CPUs."""
_HALF_ROOM: Final = 64
"""Remaining whole-core capacity that gets half of what the other terms leave."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The terms of an answer by their names, and what they come to."""

    terms: Mapping[str, int]
    score: float


class PlacementQuality:
    """The allocator's terms: distance, L3 domains, cores, exclusivity, affinity, whole-core capacity left."""

    name = "PlacementQuality"
    scope = Scope.ROW
    depends = Depends.CPUS
    exact = False

    def __init__(self) -> None:
        self._free: WeakKeyDictionary[CanonicalState, _Free] = WeakKeyDictionary()

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        answer = cycle.admissions.admitted.get(node.name)
        if answer is None:
            return 0.0
        if by_koordinator(answer.before, cycle.shape):
            return BEST
        if answer.assignments and isinstance(answer.before.state, NodeState):
            return self._quality(cycle, answer).score
        return _without_cpus(answer.before, cycle.shape)

    def details(self, cycle: Cycle, node: NodeInfo) -> Mapping[str, int]:
        """Return the terms of the node's answer by their names; {} where it names no CPUs."""
        answer = cycle.admissions.admitted.get(node.name)
        if answer is None or not answer.assignments or not isinstance(answer.before.state, NodeState):
            return {}
        if by_koordinator(answer.before, cycle.shape):
            return {}
        return self._quality(cycle, answer).terms

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        """An upper bound: the fewest L3 domains by their free CPUs, the most capacity by free cores."""
        shape, scores = cycle.shape, np.full(len(rows), BEST)
        if shape.request is None:
            return scores
        table = needs(columns, shape).by_config
        for i, row in enumerate(rows):
            canonical = columns.state_of(int(row))
            if canonical is not None:
                scores[i] = self._most(canonical, table[columns.config[row]], shape)
        return scores

    def _most(self, canonical: CanonicalState, need: Needs, shape: PodShape) -> float:
        if need.demand is not None:
            return BEST
        if not need.cpus or not isinstance(canonical.state, NodeState):
            return _without_cpus(canonical, shape)
        free = self._free.get(canonical)
        if free is None:
            free = self._free[canonical] = _free(canonical.state)
        return _bound(free, need.cpus, spread=need.spread)

    def _quality(self, cycle: Cycle, answer: Answer) -> Quality:
        quality: Quality | None = answer.derived.get(self.name)
        if quality is None:
            state, request = answer.before.state, cycle.shape.request
            assert isinstance(state, NodeState)
            assert request is not None
            quality = answer.derived[self.name] = _of_answer(state, request, answer)
        return quality


def rate(terms: Mapping[str, int], distances: int) -> float:
    """Return 0 to 100 for the terms of a placement; `distances`: how many of the machine's are smaller."""
    low, width = 0.0, 1.0
    for name in SMALLER_FIRST:
        value = distances if name == "distance" else terms[name] - (name == "l3-domains")
        low, width = low + width / (value + 2), width / ((value + 1) * (value + 2))
    return BEST * (low + width * terms["room"] / (terms["room"] + _HALF_ROOM))


class _Part(NamedTuple):
    """CPUs that may become exclusive on the 1, 2, … L3 domains with the most; of all nodes, or of one."""

    cpus: tuple[int, ...]
    whole: tuple[int, ...]
    """Those on whole free cores."""


class _Free(NamedTuple):
    """What of a canonical state bounds the terms."""

    near: tuple[_Part, ...]
    """By NUMA node."""
    far: _Part
    """Of all NUMA nodes."""
    room: int
    threads: int


def _free(state: NodeState) -> _Free:
    shape, free = from_topology(state.topology), state.free_exclusive.mask
    whole = shape.full_cores(free)
    sizes = [(unit & whole).bit_count() for unit in (*shape.domains, *shape.nodes)]
    room = sum(size // n for size in sizes for n in state.config.pools.profile)
    near = tuple(_part(free, whole, [shape.domains[i] for i in inside]) for inside in shape.inside)
    return _Free(near, _part(free, whole, shape.domains), room, shape.threads)


def _part(free: int, whole: int, domains: Iterable[int]) -> _Part:
    domains = tuple(domains)
    return _Part(tuple(_added(free, domains)), tuple(_added(whole, domains)))


def _added(mask: int, units: Iterable[int]) -> Iterator[int]:
    return accumulate(sorted(((unit & mask).bit_count() for unit in units), reverse=True))


def _bound(free: _Free, cpus: int, *, spread: bool) -> float:
    """Return the most that `rate` can give any placement of as many CPUs where these are free.

    No placement on one NUMA node has fewer L3 domains; one with as many, no more whole cores than the best.
    """
    near = [part for part in free.near if part.cpus and part.cpus[-1] >= cpus]
    parts, distances = (near, 0) if near else ([free.far], 1)
    domains, broken = min(_least(part, free.threads, cpus) for part in parts)
    return _rate(distances, domains, 0 if spread else broken, free.room)


def _least(part: _Part, threads: int, cpus: int) -> tuple[int, int]:
    """The fewest L3 domains with as many CPUs, and the fewest cores there of which not all CPUs are taken."""
    domains = min(bisect_left(part.cpus, cpus), len(part.cpus) - 1)
    missing = max(0, cpus - part.whole[domains])
    return domains + 1, -(-missing // max(1, threads - 1))


@lru_cache(4096)
def _rate(distances: int, domains: int, broken: int, room: int) -> float:
    terms = {"l3-domains": domains, "bind": broken, "room": room}
    return rate(dict.fromkeys(SMALLER_FIRST, 0) | terms, distances)


def _without_cpus(canonical: CanonicalState, shape: PodShape) -> float:
    """A ledger's answer without CPUs is of a pod without exclusive ones."""
    return NEUTRAL if shape.binds and not isinstance(canonical.state, NodeState) else BEST


def _of_answer(state: NodeState, request: PodRequest, answer: Answer) -> Quality:
    shape = from_topology(state.topology)
    terms = dict(_terms(state, request, answer, shape))
    return Quality(terms, rate(terms, _nearer(shape, answer, terms["distance"])))


def _nearer(shape: Shape, answer: Answer, distance: int) -> int:
    """How many of the machine's distances are smaller; several NUMA nodes are never as near as one."""
    if sum(bool(node & _taken(answer)) for node in shape.nodes) == 1:
        return 0
    apart = {one for i, row in enumerate(shape.distances) for one in row[:i]}
    return 1 + sum(one < distance for one in apart)


def _taken(answer: Answer) -> int:
    return reduce(or_, (cpus.mask for cpus in answer.assignments.values()))


def _terms(state: NodeState, request: PodRequest, answer: Answer, shape: Shape) -> Iterator[tuple[str, int]]:
    """The allocator's own values where it has them, else by their definition."""
    taken = _taken(answer)
    own = next((one for one in answer.decision.reasons if one.code is Code.PICKED_BY_OPTIMAL), None)
    if own is not None and own.values[1] == taken:
        values = dict(own.values[2])
    else:
        values = dict(_evaluated(state, request, answer, shape))
    for name in TERMS:
        yield name, values[name]


def _evaluated(
    state: NodeState, request: PodRequest, answer: Answer, shape: Shape
) -> tuple[tuple[str, int], ...]:
    taken = _taken(answer)
    pooled = state.config.policy == "pools" and state.config.koordinator is None
    if pooled and (asked := binding_of(state, request)) is not None:
        return evaluate(shape, asked.demand, asked.available | taken, taken, asked.others)
    demand = Demand(taken.bit_count(), bind=answer.decision.bind, sizes=state.config.pools.profile)
    return evaluate(shape, demand, state.free_exclusive.mask | taken, taken)
