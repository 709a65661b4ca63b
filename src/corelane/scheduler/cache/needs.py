"""What a pod of some shape needs at least of a node with given settings: necessary conditions."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corelane.node import NodeState
from corelane.node.entries import Sharing
from corelane.node.koordinator.pod_demand import PodDemand, pod_demand
from corelane.node.pools.classes import PodClass, pod_class
from corelane.node.pools.pool_admission import binding_of
from corelane.reasons import Refusal
from corelane.scheduler.cache.columns import Columns, Scores
from corelane.scheduler.cache.node_kinds import requests_exclusive_cpus
from corelane.scheduler.cache.pods import Shape
from corelane.scheduler.cache.states import CanonicalState, Fact
from corelane.scheduler.cache.zone_amounts import UncountedState
from corelane.workload import BindPolicy, NUMAPolicy, PodRequest, peak

MOST_SHAPES: Final = 4096
_POOLS: Final = {Sharing.BEST_EFFORT: Fact.BEST_EFFORT, Sharing.SYSTEM: Fact.SYSTEM}


@dataclass(frozen=True, slots=True)
class Needs:
    """The least of each fact that a node must have, and where the pod would run."""

    least: NDArray[np.int64]
    cpus: int = 0
    """CPUs that it is bound to, 0 in a pool."""
    pool: Fact | None = None
    """The size of its pool; None for a bound pod, or where pools are not known."""
    spread: bool = False
    """Whether its CPUs are to lie on cores of their own."""
    demand: PodDemand | None = None
    """What it asks of a node that is judged by Koordinator's rules."""


def needs_of(canonical: CanonicalState, shape: Shape) -> Needs:
    """Return the needs of pods of a shape on nodes with the settings and machine of this state."""
    state, request = canonical.state, shape.request
    least = np.zeros(len(Fact), dtype=np.int64)
    assert request is not None
    if isinstance(state, UncountedState):
        least[Fact.COUNTED] = int(requests_exclusive_cpus(request))
        return Needs(least)
    if not isinstance(state, NodeState):
        return Needs(least)
    if state.config.koordinator is not None:
        return _of_koordinator(canonical, shape, least)
    if state.config.policy == "pools":
        return _of_pools(state, request, least)
    return _of_static(state, request, least)


def _of_koordinator(canonical: CanonicalState, shape: Shape, least: NDArray[np.int64]) -> Needs:
    """Gocrane's `cpu-policy` may have the pod judged by other rules."""
    state, request = canonical.state, shape.request
    assert isinstance(state, NodeState)
    assert request is not None
    try:
        demand = pod_demand(state, request)
    except Refusal:
        return Needs(least, pool=Fact.SHARED)  # `admit` says it in words.
    if not by_koordinator(canonical, shape):
        return Needs(least, pool=Fact.SHARED)
    if not demand.cpus:
        return Needs(least, pool=Fact.SHARED, demand=demand)
    least[Fact.FREE] = demand.cpus
    if demand.numa is NUMAPolicy.SINGLE_NUMA_NODE:
        least[Fact.FREE_ZONE] = demand.cpus
    return Needs(least, demand.cpus, spread=demand.bind is BindPolicy.SPREAD_BY_PCPUS, demand=demand)


def _of_pools(state: NodeState, request: PodRequest, least: NDArray[np.int64]) -> Needs:
    try:
        found = pod_class(request, state.config.pools)
        if not found.bound:
            return Needs(least, pool=_POOLS.get(found.sharing, Fact.SHARED))
        binding = binding_of(state, request)
    except Refusal:
        return Needs(least, pool=Fact.SHARED)  # `admit` says it in words.
    assert binding is not None
    cpus = found.cpus(request)
    least[Fact.FREE] = cpus
    if binding.demand.numa is NUMAPolicy.SINGLE_NUMA_NODE:
        least[Fact.FREE_ZONE] = _together(found, cpus)
    return Needs(least, cpus, spread=binding.demand.spread)


def _together(found: PodClass, cpus: int) -> int:
    """CPUs that must come from one NUMA node, at least."""
    return cpus if found.common else max(found.own.values(), default=0)


def _of_static(state: NodeState, request: PodRequest, least: NDArray[np.int64]) -> Needs:
    if state.config.policy == "none":
        return Needs(least, pool=Fact.SHARED)
    gate = state.config.pod_level
    sizes = [(one.kind, request.exclusive_cpus(one, gate=gate)) for one in request.containers]
    largest, cpus = max((size for _, size in sizes), default=0), peak(sizes)
    if not largest:
        return Needs(least, pool=Fact.SHARED)
    least[Fact.FREE] = largest if state.config.exact else cpus
    if state.config.numa.policy == "single-numa-node":
        least[Fact.FREE_ZONE] = largest
    return Needs(least, cpus)


@dataclass(slots=True)
class NeedsTable:
    """The needs of one shape, by the configurations of nodes as `Columns.config` numbers them."""

    by_config: list[Needs] = field(default_factory=list)
    table: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, len(Fact)), dtype=np.int64))
    """What is needed at least: a row for each configuration, a column for each fact."""
    cpus: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """CPUs that a pod is bound to, 0 in a pool."""
    pool: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The fact that is the size of its pool."""

    resources: NDArray[np.int64] | None = None
    """What must be left of each resource, in the order of the columns; see `NodeResourcesFit`."""
    scored: NDArray[np.float64] | None = None
    """MilliCPU and bytes of memory that are requested."""
    always_bound: bool = False
    """Whether it is bound to CPUs with all settings."""
    koordinator: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Whether it is judged by Koordinator's rules."""
    any_koordinator: bool = False
    """Whether it is so with some settings."""

    def scored_requests(self, shape: Shape) -> NDArray[np.float64]:
        """Return the milliCPU and bytes of memory that pods of the shape request."""
        if self.scored is None:
            self.scored = np.array([float(shape.requests.get(name, 0)) for name in ("cpu", "memory")])
        return self.scored

    def with_koordinators(self, found: Scores, config: NDArray[np.int32], score: float) -> Scores:
        """Return the scores of rows (by their `config`) with this one where Koordinator's rules judge."""
        if self.any_koordinator:
            found[self.koordinator[config]] = score
        return found

    def complete(self, columns: Columns, shape: Shape) -> None:
        """Add what new configurations need."""
        for canonical in columns.configs[len(self.by_config) :]:
            self.by_config.append(needs_of(canonical, shape))
        self.table = np.array([one.least for one in self.by_config], dtype=np.int64)
        self.cpus = np.array([one.cpus for one in self.by_config], dtype=np.int64)
        self.always_bound = bool(self.cpus.all())
        self.koordinator = np.array([one.demand is not None for one in self.by_config], dtype=np.bool_)
        self.any_koordinator = bool(self.koordinator.any())
        self.pool = np.array([one.pool or Fact.SHARED for one in self.by_config], dtype=np.int64)


def by_koordinator(canonical: CanonicalState, shape: Shape) -> bool:
    """Return whether Koordinator's rules judge pods of a shape on this state, and score the node."""
    state, request = canonical.state, shape.request
    if not isinstance(state, NodeState) or state.config.koordinator is None or request is None:
        return False
    return request.placement_spec.cpu_policy is None


def needs(columns: Columns, shape: Shape) -> NeedsTable:
    """Return the needs of a shape by configuration."""
    table = columns.needs.get(shape.id)
    if table is None:
        if len(columns.needs) >= MOST_SHAPES:
            columns.needs.clear()
        table = columns.needs[shape.id] = NeedsTable()
    if len(table.by_config) < len(columns.configs):
        table.complete(columns, shape)
    return table
