"""Scores of a pod's CPUs on a node, by the answers that CPUPlacement left in the cycle.

They are separate plugins, so that a profile can weigh them. Over columns NUMALocality, SnugFit and
PlacementQuality are upper bounds. Nodes that Koordinator's rules judge have the best score: NodeNUMAResource
alone puts them in order, as upstream.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import accumulate
from operator import or_
from typing import Any, Final, Literal, NamedTuple, get_args
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from corelane import settings
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import pod_class
from corelane.node.pools.pool_admission import binding_of
from corelane.node.zones import scoring
from corelane.node.zones.zone_state import ZonesState
from corelane.placement.optimal.demand import Demand, from_topology
from corelane.placement.optimal.search import evaluate
from corelane.reasons import Code
from corelane.scheduler.cluster.columns import Columns, Integers, RowKind, Rows, Scores
from corelane.scheduler.cluster.needs import Needs, by_koordinator, needs
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import Shape as PodShape
from corelane.scheduler.cluster.states import Answer, CanonicalState, Fact
from corelane.scheduler.framework.plugin import BEST, Cycle, Depends, Scope
from corelane.scheduler.plugins.node_resources import scoring_strategy
from corelane.workload.request import PodRequest

_HALF: Final = BEST / 2
NEUTRAL: Final = BEST / 2
"""Score of a node that names no CPUs for a pod with exclusive CPUs."""
_EXCLUSIVE: Final = int(Fact.EXCLUSIVE)


class _ScoreOfAnswer(ABC):
    """A Score of what CPUPlacement's question to the node's ledger was answered."""

    scope = Scope.ROW

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        answer = cycle.admissions.admitted.get(node.name)
        if answer is None:
            return 0.0
        return BEST if by_koordinator(answer.before, cycle.shape) else self._of(cycle, node, answer)

    @abstractmethod
    def _of(self, cycle: Cycle, node: NodeInfo, answer: Answer) -> float:
        """The score of an answer that is not by Koordinator's rules."""


class NUMALocality(_ScoreOfAnswer):
    """The mean over containers: 100 for CPUs, memory and devices on one NUMA node, 50 on two, and so on.

    Over pods, where the node aligns these as a whole. 0 where the published zones do not hold the pod.
    """

    name = "NUMALocality"
    depends = Depends.CPUS
    exact = False

    def _of(self, cycle: Cycle, node: NodeInfo, answer: Answer) -> float:
        spans: tuple[int, ...] | None = answer.spans
        if isinstance(state := answer.before.state, ZonesState):
            if self.name not in answer.derived:
                assert cycle.shape.request is not None
                answer.derived[self.name] = scoring.spans(state, cycle.shape.request)
            spans = answer.derived[self.name]
            if spans is None:
                return 0.0
        return BEST * sum(1 / span for span in spans) / len(spans) if spans else BEST

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        """All on one NUMA node where one has as many CPUs, else two; several containers may lie apart."""
        shape, scores = cycle.shape, np.full(len(rows), BEST)
        if shape.request is None or len(shape.request.containers) > 1:
            return scores
        table, config = needs(columns, shape), columns.config[rows]
        scores[columns.facts[rows, Fact.FREE_ZONE] < table.cpus[config]] = _HALF
        return table.with_koordinators(scores, config, BEST)


class SnugFit(_ScoreOfAnswer):
    """Best fit: NUMA nodes in use are filled before others, which keeps whole ones free for large pods."""

    name = "SnugFit"
    depends = Depends.CPUS
    exact = False

    def _of(self, cycle: Cycle, node: NodeInfo, answer: Answer) -> float:
        if not answer.decision.assignments:
            return _without_cpus(answer.before, cycle.shape)
        snugness: float | None = answer.derived.get(self.name)
        if snugness is None:
            state = answer.state.state
            assert isinstance(state, NodeState)
            taken = reduce(or_, (cpus.mask for cpus in answer.decision.assignments.values()))
            touched = reduce(or_, (numa for numa in state.topology.numa if numa & taken), 0)
            left = (touched & state.free_exclusive.mask).bit_count()
            snugness = answer.derived[self.name] = BEST * (1 - left / touched.bit_count())
        return snugness

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        """The fullest NUMA node that has as many CPUs."""
        shape = cycle.shape
        if shape.request is None or len(shape.request.containers) > 1:
            return np.full(len(rows), BEST)
        table, config = needs(columns, shape), columns.config[rows]
        cpus = table.cpus[config]
        free = columns.zones("free CPUs", _free).take(rows, 0)
        size = columns.zones("CPUs", _sizes).take(rows, 0)
        fits = (free >= cpus[:, None]) & (size > 0)
        left = np.where(fits, (free - cpus[:, None]) / np.maximum(size, 1), 1.0).min(axis=1)
        scores: Scores = BEST * (1 - np.where(fits.any(axis=1) & (cpus > 0), left, 0.0))
        return table.with_koordinators(scores, config, BEST)


class PoolPressure(_ScoreOfAnswer):
    """The share of the pod's pool that is not requested, this pod included; 0 without a ledger.

    Requests for exclusive CPUs that best effort may use as well do not count.
    """

    name = "PoolPressure"

    def _of(self, cycle: Cycle, node: NodeInfo, answer: Answer) -> float:
        if not isinstance(answer.before.state, NodeState):
            return 0.0
        if answer.decision.assignments:
            return BEST
        state, request = answer.state.state, cycle.shape.request
        assert isinstance(state, NodeState)
        assert request is not None
        pool = state.shared_pool
        if state.config.policy == "pools":
            pool = state.pool_of(pod_class(request, state.config.pools).sharing)
        shared = node.admitted + cycle.shape.milli - 1000 * len(state.exclusive)
        return BEST * max(0.0, min(1.0, 1 - shared / (1000 * len(pool))))

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        table, config = needs(columns, cycle.shape), columns.config[rows]
        if table.always_bound:
            return np.full(len(rows), BEST)
        if len(table.by_config) == 1 and not table.any_koordinator:
            size = 1000 * columns.facts[rows, table.pool[0]]
            shared = columns.admitted[rows] + cycle.shape.milli - 1000 * columns.facts[rows, _EXCLUSIVE]
            return BEST * _share(size, shared)
        facts = columns.facts.take(rows, 0)
        size = 1000 * facts[np.arange(len(rows)), table.pool[config]]
        shared = columns.admitted[rows] + cycle.shape.milli - 1000 * facts[:, _EXCLUSIVE]
        scores = BEST * np.where(table.cpus[config] > 0, 1.0, _share(size, shared))
        return table.with_koordinators(scores, config, BEST)

    def score_of_kind(self, cycle: Cycle, kind: RowKind) -> float:
        """Return the value of `scores` for a kind."""
        need = needs(cycle.cluster.columns, cycle.shape).by_config[kind.config]
        if need.cpus or need.demand is not None:
            return BEST
        facts = kind.state.facts
        size = 1000 * facts.item(need.pool or Fact.SHARED)
        if size <= 0:
            return 0.0
        shared = kind.admitted + cycle.shape.milli - 1000 * facts.item(_EXCLUSIVE)
        return BEST * min(max(1 - float(shared) / float(size), 0.0), 1.0)


def _share(size: Integers, shared: Integers) -> Scores:
    """The share of pools that is not requested, from 0 to 1; 0 of an empty one. Both are in milliCPU."""
    share: Scores = np.minimum(np.maximum(1 - shared / np.maximum(size, 1), 0.0), 1.0)
    if np.count_nonzero(size) < len(size):
        share[size <= 0] = 0.0
    return share


def _free(canonical: CanonicalState) -> list[int]:
    """CPUs of each NUMA node that may become exclusive."""
    return [amount.cpus for amount in canonical.amounts]


def _sizes(canonical: CanonicalState) -> list[int]:
    """CPUs of each NUMA node; 0 where they have no ids."""
    state = canonical.state
    if not isinstance(state, NodeState):
        return [0] * len(canonical.amounts)
    numa = dict(zip(state.topology.numa_ids, state.topology.numa, strict=True))
    return [numa.get(amount.numa, 0).bit_count() for amount in canonical.amounts]


class _Cache(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Facts about upstream's cache: pods of all schedulers count, by the fingerprint that an object names."""

    foreign_pods_detect: Literal["All"] = "All"
    resync_method: Literal["Autodetect"] = "Autodetect"
    informer_mode: Literal["Dedicated"] = "Dedicated"
    resync_scope: Literal["All"] = "All"


class NodeResourceTopologyMatch:
    """Scores nodes of which only amounts by NUMA node are known, by scheduler-plugins' `scoringStrategy`.

    That is its type, and weights of resources (1 by default). Its Filter is part of CPUPlacement, which
    judges nodes of every kind. A node whose CPUs have ids gets the best score: its decision holds.
    """

    name = "NodeResourceTopologyMatch"
    scope = Scope.ROW
    depends = Depends.CPUS

    def __init__(
        self, strategy: scoring.Strategy = "LeastAllocated", weights: Mapping[str, int] | None = None
    ) -> None:
        self.strategy, self.weights = strategy, dict(weights or {})

    @classmethod
    def of(
        cls,
        scoringStrategy: Mapping[str, Any] | None = None,  # noqa: N803 - upstream's names
        cacheResyncPeriodSeconds: int | None = None,  # noqa: N803
        discardReservedNodes: bool = False,  # noqa: N803
        cache: Mapping[str, Any] | None = None,
    ) -> "NodeResourceTopologyMatch":
        """Read upstream's arguments; of those of its cache, what holds here. Raises ValueError."""
        if cacheResyncPeriodSeconds is not None and cacheResyncPeriodSeconds <= 0:
            raise ValueError(
                f"cacheResyncPeriodSeconds {cacheResyncPeriodSeconds}: pods that were placed are always "
                "counted until an object counts them: use 1 or more, or remove it"
            )
        if discardReservedNodes:
            raise ValueError("discardReservedNodes true is not supported: use false, or remove it")
        try:
            settings.convert(cache or {}, _Cache)
        except settings.SettingsError as error:
            raise ValueError(f"cache.{error}, or remove it") from None
        kind, weights = scoring_strategy(scoringStrategy, get_args(scoring.Strategy))
        return cls(kind, weights)

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        """Nodes in the same canonical state have the same score."""
        scores = np.where(columns.facts[rows, Fact.SHARED] > 0, BEST, 0.0)
        for i in np.flatnonzero(columns.zoned[rows]):
            state = columns.state_of(int(rows[i]))
            if state is not None and isinstance(state.state, ZonesState) and cycle.shape.request is not None:
                scores[i] = scoring.score(state.state, cycle.shape.request, self.strategy, self.weights)
        return scores

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        """Return 0 to 100; 0 too where nothing is published, as upstream."""
        request, state = cycle.shape.request, node.canonical.state
        if request is None or not isinstance(state, ZonesState):
            return BEST if isinstance(state, NodeState) else 0.0
        return float(scoring.score(state, request, self.strategy, self.weights))


# PlacementQuality: the optimal allocator's own terms of the CPUs that a node would give a pod, as one score.
#
# Each term in its order divides what is left of 0 to 100: value v gets the part from 1/(v+2) to 1/(v+1), in
# which the later terms decide. So the first term that differs decides whatever the later ones are, without an
# upper limit of any value. NUMA nodes and memory are NUMALocality's. The terms are made once for each answer
# of a canonical state, for CPUs of other allocators by the objective's definition.

SMALLER_FIRST: Final = ("distance", "l3-domains", "bind", "exclusive", "fallback", "affinity")
"""Terms of which smaller values are better, in the order in which they decide; then "room", larger is."""
TERMS: Final = (*SMALLER_FIRST, "room")
_HALF_ROOM: Final = 64
"""Remaining whole-core capacity that gets half of what the other terms leave."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The terms of an answer by their names, and what they come to."""

    terms: Mapping[str, int]
    score: float


class PlacementQuality(_ScoreOfAnswer):
    """The allocator's terms: distance, L3 domains, cores, exclusivity, affinity, whole-core capacity left."""

    name = "PlacementQuality"
    depends = Depends.CPUS
    exact = False

    def __init__(self) -> None:
        self._free: WeakKeyDictionary[CanonicalState, _Free] = WeakKeyDictionary()

    def _of(self, cycle: Cycle, node: NodeInfo, answer: Answer) -> float:
        if answer.decision.assignments and isinstance(answer.before.state, NodeState):
            return self._quality(cycle, answer).score
        return _without_cpus(answer.before, cycle.shape)

    def details(self, cycle: Cycle, node: NodeInfo) -> Mapping[str, int]:
        """Return the terms of the node's answer by their names; {} where it names no CPUs."""
        answer = cycle.admissions.admitted.get(node.name)
        if answer is None or not answer.decision.assignments or by_koordinator(answer.before, cycle.shape):
            return {}
        return self._quality(cycle, answer).terms if isinstance(answer.before.state, NodeState) else {}

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
        """Return the most that `rate` can give any placement of as many CPUs where these are free.

        No placement on one NUMA node has fewer L3 domains; one with as many has no more whole cores.
        """
        if need.demand is not None:
            return BEST
        if not need.cpus or not isinstance(canonical.state, NodeState):
            return _without_cpus(canonical, shape)
        free = self._free.get(canonical)
        if free is None:
            free = self._free[canonical] = _Free.of(canonical.state)
        near = [part for part in free.near if part.cpus and part.cpus[-1] >= need.cpus]
        parts, distances = (near, 0) if near else ([free.far], 1)
        domains, broken = min(part.least(free.threads, need.cpus) for part in parts)
        return _rate(distances, domains, 0 if need.spread else broken, free.room)

    def _quality(self, cycle: Cycle, answer: Answer) -> Quality:
        if self.name not in answer.derived:
            state, request = answer.before.state, cycle.shape.request
            assert isinstance(state, NodeState)
            assert request is not None
            answer.derived[self.name] = _quality_of(state, request, answer)
        quality: Quality = answer.derived[self.name]
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
    """CPUs on whole free cores."""

    @classmethod
    def of(cls, free: int, whole: int, domains: Iterable[int]) -> "_Part":
        counts = [((unit & free).bit_count(), (unit & whole).bit_count()) for unit in domains]
        cpus, cores = (sorted(of, reverse=True) for of in zip(*counts, strict=True)) if counts else ((), ())
        return cls(tuple(accumulate(cpus)), tuple(accumulate(cores)))

    def least(self, threads: int, cpus: int) -> tuple[int, int]:
        """Return the fewest L3 domains with as many CPUs, and the fewest cores taken in part there."""
        domains = min(bisect_left(self.cpus, cpus), len(self.cpus) - 1)
        missing = max(0, cpus - self.whole[domains])
        return domains + 1, -(-missing // max(1, threads - 1))


class _Free(NamedTuple):
    """The parts of a canonical state that bound the terms."""

    near: tuple[_Part, ...]
    """By NUMA node."""
    far: _Part
    """All NUMA nodes together."""
    room: int
    threads: int

    @classmethod
    def of(cls, state: NodeState) -> "_Free":
        shape, free = from_topology(state.topology), state.free_exclusive.mask
        whole = shape.full_cores(free)
        sizes = [(unit & whole).bit_count() for unit in (*shape.domains, *shape.nodes)]
        room = sum(size // n for size in sizes for n in state.config.pools.profile)
        near = tuple(_Part.of(free, whole, [shape.domains[i] for i in inside]) for inside in shape.inside)
        return cls(near, _Part.of(free, whole, shape.domains), room, shape.threads)


@lru_cache(4096)
def _rate(distances: int, domains: int, broken: int, room: int) -> float:
    terms = {"l3-domains": domains, "bind": broken, "room": room}
    return rate(dict.fromkeys(SMALLER_FIRST, 0) | terms, distances)


def _without_cpus(canonical: CanonicalState, shape: PodShape) -> float:
    """A ledger's answer without CPUs is of a pod without exclusive ones."""
    return NEUTRAL if shape.binds and not isinstance(canonical.state, NodeState) else BEST


def _quality_of(state: NodeState, request: PodRequest, answer: Answer) -> Quality:
    """The allocator's own values where it has them, else by their definition."""
    shape = from_topology(state.topology)
    taken = reduce(or_, (cpus.mask for cpus in answer.decision.assignments.values()))
    own = next((one for one in answer.decision.reasons if one.code is Code.PICKED_BY_OPTIMAL), None)
    pooled = state.config.policy == "pools" and state.config.koordinator is None
    if own is not None and own.values[1] == taken:
        values = own.values[2]
    elif pooled and (asked := binding_of(state, request)) is not None:
        values = evaluate(shape, asked.demand, asked.available | taken, taken, asked.others)
    else:
        demand = Demand(taken.bit_count(), bind=answer.decision.bind, sizes=state.config.pools.profile)
        values = evaluate(shape, demand, state.free_exclusive.mask | taken, taken)
    by_name = dict(values)
    terms = {name: by_name[name] for name in TERMS}
    if sum(bool(node & taken) for node in shape.nodes) == 1:
        return Quality(terms, rate(terms, 0))
    # How many of the machine's distances are smaller; several NUMA nodes are never as near as one.
    apart = {distance for i, row in enumerate(shape.distances) for distance in row[:i]}
    return Quality(terms, rate(terms, 1 + sum(distance < terms["distance"] for distance in apart)))
