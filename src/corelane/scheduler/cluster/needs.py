"""Which nodes may admit pods of a shape, by necessary conditions: the least of each amount, by settings.

The amounts come from the node rules (`zone_needs`), as facts of a canonical state where one number says it.
A node that lacks one of them is not asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corelane.node import zone_needs
from corelane.node.entries import Sharing
from corelane.node.koordinator import pod_demand
from corelane.node.koordinator.pod_demand import PodDemand, pod_amounts
from corelane.node.kubelet import cpu_manager
from corelane.node.ledger import NodeState
from corelane.node.pools import pool_admission
from corelane.node.pools.classes import pod_class
from corelane.node.pools.pool_admission import binding_of, policies_of
from corelane.node.pools.zones import check_rules_need_cpus
from corelane.node.zone_needs import FREE, ZoneNeeds
from corelane.node.zones import alignment
from corelane.reasons import Refusal
from corelane.scheduler.cluster import node_kinds
from corelane.scheduler.cluster.columns import Columns, Mask, Rows, Scores
from corelane.scheduler.cluster.node_kinds import ResourceIndex, UncountedState
from corelane.scheduler.cluster.pods import Shape
from corelane.scheduler.cluster.states import CanonicalState, Fact
from corelane.workload import BindPolicy
from corelane.workload.request import PodRequest, peak

MOST_SHAPES: Final = 4096
_IMPOSSIBLE: Final = 2
"""More than the fact COUNTED ever is."""
_NO_AMOUNTS: Final = ZoneNeeds()
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
    amounts: ZoneNeeds = _NO_AMOUNTS
    """What it needs beside, of the node and of NUMA nodes."""


def needs_of(canonical: CanonicalState, shape: Shape) -> Needs:
    """Return the needs of pods of a shape on nodes with the settings and machine of this state."""
    state, request = canonical.state, shape.request
    least = np.zeros(len(Fact), dtype=np.int64)
    assert request is not None
    if isinstance(state, UncountedState):
        least[Fact.COUNTED] = int(shape.binds)
        return Needs(least)
    if not isinstance(state, NodeState):
        if not state.crane and node_kinds.class_refusal_of_kubelet(request):
            return _never(least)
        return _with_amounts(Needs(least), alignment.zone_needs_of(state, request))
    if state.config.koordinator is not None:
        return _of_koordinator(canonical, shape, least)
    if state.config.policy == "pools":
        try:
            of_class = pod_class(request, state.config.pools)
            policies = policies_of(state, request, of_class)
            if not of_class.bound:
                check_rules_need_cpus(request, of_class)
                amounts = pool_admission.zone_needs_of(state, request, of_class, policies.numa)
                return _with_amounts(Needs(least, pool=_POOLS.get(of_class.sharing, Fact.SHARED)), amounts)
            binding = binding_of(state, request)
        except Refusal:
            return _never(least, Fact.SHARED)
        assert binding is not None
        cpus = of_class.cpus(request)
        amounts = pool_admission.zone_needs_of_bound(state, request, binding)
        return _with_amounts(Needs(least, cpus, spread=binding.demand.spread), amounts)
    return _of_static(state, request, least)


def _never(least: NDArray[np.int64], pool: Fact | None = None) -> Needs:
    """Of a pod that contradicts the settings: no state of such a node admits it, and `admit` says why."""
    least[Fact.COUNTED] = _IMPOSSIBLE
    return Needs(least, pool=pool)


def _with_amounts(of_pod: Needs, amounts: ZoneNeeds) -> Needs:
    """CPUs that no other amount goes with are compared as facts."""
    zones, alone = zone_needs.simplified(amounts.zones)
    node = {name: n for name, n in amounts.node.items() if n > 0}
    least = of_pod.least
    least[Fact.FREE] = max(least[Fact.FREE], node.pop(FREE, 0))
    least[Fact.FREE_ZONE] = max(least[Fact.FREE_ZONE], alone)
    return replace(of_pod, amounts=ZoneNeeds(node, tuple(zones)))


def _of_koordinator(canonical: CanonicalState, shape: Shape, least: NDArray[np.int64]) -> Needs:
    """Gocrane's `cpu-policy` may have the pod judged by other rules."""
    state, request = canonical.state, shape.request
    assert isinstance(state, NodeState)
    assert request is not None
    if not by_koordinator(canonical, shape):
        return Needs(least, pool=Fact.SHARED)
    try:
        demand = pod_demand.pod_demand(state, request)
    except Refusal:
        some = any(pod_amounts(request).values())
        return _never(least, Fact.SHARED) if some else Needs(least, pool=Fact.SHARED)
    amounts = pod_demand.zone_needs_of(state, request, demand)
    spread = demand.bind is BindPolicy.SPREAD_BY_PCPUS
    if demand.cpus:
        return _with_amounts(Needs(least, demand.cpus, spread=spread, demand=demand), amounts)
    return _with_amounts(Needs(least, pool=Fact.SHARED, demand=demand), amounts)


def _of_static(state: NodeState, request: PodRequest, least: NDArray[np.int64]) -> Needs:
    if node_kinds.replays_kubelet(state) and node_kinds.refusal_of_kubelet(state, request):
        return _never(least, Fact.SHARED)
    amounts = cpu_manager.zone_needs_of(state, request)
    if state.config.policy == "none":
        return _with_amounts(Needs(least, pool=Fact.SHARED), amounts)
    sizes = cpu_manager.exclusive_sizes(state, request)
    largest, cpus = max((size for _, size in sizes), default=0), peak(sizes)
    if not largest:
        return _with_amounts(Needs(least, pool=Fact.SHARED), amounts)
    threads = state.topology.cpus_per_core
    if state.config.options.full_pcpus_only and any(size % threads for _, size in sizes):
        return _never(least)
    least[Fact.FREE] = largest if state.config.exact else cpus
    return _with_amounts(Needs(least, cpus), amounts)


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

    zones: NDArray[np.int64] | None = None
    """Amounts needed of the node and then of some NUMA node each, by configuration, need and column of
    `table_of`; None where none are needed."""
    resources: NDArray[np.int64] | None = None
    """What must be left of each resource, in the order of the columns; see `NodeResourcesFit`."""
    needed: list[tuple[int, int]] = field(default_factory=list)
    """The same without the others: the column and the amount."""
    scored: NDArray[np.float64] | None = None
    """MilliCPU and bytes of memory that count for scores."""
    always_bound: bool = False
    """Whether it is bound to CPUs with all settings."""
    koordinator: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Whether it is judged by Koordinator's rules."""
    any_koordinator: bool = False
    """Whether it is so with some settings."""

    def scored_requests(self, shape: Shape) -> NDArray[np.float64]:
        """Return the milliCPU and bytes of memory of the shape's pods that count for scores."""
        if self.scored is None:
            self.scored = np.array(shape.scored, dtype=np.float64)
        return self.scored

    def with_koordinators(self, scores: Scores, config: NDArray[np.int32], score: float) -> Scores:
        """Return the scores of rows (by their `config`) with this one where Koordinator's rules judge."""
        if self.any_koordinator:
            scores[self.koordinator[config]] = score
        return scores

    def complete(self, columns: Columns, shape: Shape) -> None:
        """Add what new configurations need."""
        for canonical in columns.configs[len(self.by_config) :]:
            self.by_config.append(needs_of(canonical, shape))
        self.zones = _padded([one.amounts for one in self.by_config], columns.configs[0].resources)
        self.table = np.array([one.least for one in self.by_config], dtype=np.int64)
        self.cpus = np.array([one.cpus for one in self.by_config], dtype=np.int64)
        self.always_bound = bool(self.cpus.all())
        self.koordinator = np.array([one.demand is not None for one in self.by_config], dtype=np.bool_)
        self.any_koordinator = bool(self.koordinator.any())
        self.pool = np.array([one.pool or Fact.SHARED for one in self.by_config], dtype=np.int64)


def _padded(amounts: Sequence[ZoneNeeds], index: ResourceIndex) -> NDArray[np.int64] | None:
    if not any(one.node or one.zones for one in amounts):
        return None
    for name in {name for one in amounts for part in (one.node, *one.zones) for name in part}:
        index.column(name)
    most = max(len(one.zones) for one in amounts)
    table = np.zeros((len(amounts), 1 + most, len(index)), dtype=np.int64)
    for config, one in enumerate(amounts):
        for place, part in enumerate((one.node, *one.zones)):
            table[config, place] = index.vector(part)
    return table


def enough(columns: Columns, shape: Shape, rows: Rows) -> Mask:
    """Return which rows have all that pods of a shape need at least; the others admit none."""
    table = needs(columns, shape)
    config = columns.config[rows]
    least = table.table.take(config, 0)
    passed: Mask = np.logical_and.reduce(columns.facts.take(rows, 0) >= least, axis=1)
    if table.zones is None:
        return passed
    needed = table.zones.take(config, 0)
    left = columns.amounts().take(rows, 0)
    width = min(needed.shape[2], left.shape[2])
    needed, left = needed[:, :, :width], left[:, :, :width]
    passed &= np.logical_and.reduce(left[:, 0] >= needed[:, 0], axis=1)
    for place in range(1, needed.shape[1]):
        zones: Mask = np.logical_and.reduce(left[:, 1:] >= needed[:, place, None], axis=2)
        passed &= np.logical_or.reduce(zones, axis=1)
    return passed


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
