"""NodeNUMAResource: scores koordlet's nodes as Koordinator's plugin does, by shares of CPU and memory.

Its Filter and Reserve are part of CPUPlacement, which judges nodes of every kind; all others get the best
score here. Two parts make up the score of a node, of which one is 0: the NUMA nodes that the pod gets, which
follow from the canonical state, and the totals of a node where upstream chooses no NUMA nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import numpy as np

from corelane.node.koordinator import zone_shares
from corelane.node.koordinator.pod_demand import PodDemand, bound_cpus, options_of
from corelane.node.koordinator.zone_shares import allocated_by_zone
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster.columns import (
    CPU,
    MEMORY,
    Columns,
    Integers,
    Mask,
    Rows,
    Scores,
    sorted_values,
)
from corelane.scheduler.cluster.needs import by_koordinator, needs, needs_of
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.states import CanonicalState
from corelane.scheduler.framework.plugin import BEST, SKIP, Cycle, Depends, Scope, Skip
from corelane.scheduler.plugins.node_resources import scoring_strategy
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy, NUMAStrategy, SchedulerDefaults
from corelane.workload.placement_spec import NO_DEFAULTS

NAME: Final = "NodeNUMAResource"
_SCORED: Final = ("cpu", "memory")
_BIND_POLICIES: Final = (str(BindPolicy.FULL_PCPUS), str(BindPolicy.SPREAD_BY_PCPUS))
_HEAD: Final = 2
"""Numbers of a row before those of its zones: milliCPU in cpusets, and how much more they are amplified."""
_EACH: Final = 5
"""Numbers of each zone: CPU and memory that it offers, those allocated, and free CPUs."""
_MOST: Final = 1 << 50
"""Amounts beyond it are as good as this one: a hundred times those of some zones fit into a column."""


class NodeNUMAResource:
    """Scores by upstream's `scoringStrategy`: its type, and weights of CPU and memory."""

    name = NAME
    scope = Scope.ROW
    exact = False

    def __init__(
        self,
        strategy: zone_shares.Strategy = "LeastAllocated",
        weights: zone_shares.Weights = zone_shares.WEIGHTS,
    ) -> None:
        self.parts = ZonesPart(strategy, weights), TotalsPart(strategy, weights)
        self.defaults = NO_DEFAULTS
        """Policies of pods and nodes that name none."""

    @classmethod
    def of(
        cls,
        scoringStrategy: Mapping[str, Any] | None = None,  # noqa: N803 - upstream's names
        defaultCPUBindPolicy: str = "",  # noqa: N803
        numaScoringStrategy: Mapping[str, Any] | None = None,  # noqa: N803
    ) -> "NodeNUMAResource":
        """Read upstream's arguments; the last two are defaults of the profile. Raises ValueError."""
        types = get_args(zone_shares.Strategy)
        kind, given = scoring_strategy(scoringStrategy, types)
        weights = dict(zone_shares.WEIGHTS) if given is None else given
        if not weights or weights.keys() - set(_SCORED):
            listed, scored = ", ".join(weights) or "none", " and ".join(_SCORED)
            raise ValueError(f"scoringStrategy.resources {listed}: use {scored}: no other is scored")
        if defaultCPUBindPolicy not in ("", *_BIND_POLICIES):
            allowed = ", ".join(_BIND_POLICIES)
            raise ValueError(f"defaultCPUBindPolicy {defaultCPUBindPolicy!r}: use one of {allowed}")
        bind, numa = BindPolicy(defaultCPUBindPolicy) if defaultCPUBindPolicy else None, None
        if numaScoringStrategy is not None:
            name = "numaScoringStrategy"
            order, of_numa = scoring_strategy(numaScoringStrategy, types, name)
            if of_numa not in (None, weights):
                raise ValueError(
                    f"{name}.resources {of_numa}: the weights of scoringStrategy.resources count, in "
                    "Koordinator too: use these, or remove the field"
                )
            numa = NUMAStrategy(order)
        made = cls(kind, weights)
        made.defaults = SchedulerDefaults(bind, strategy=numa)
        return made

    def pre_score(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> Skip | None:
        """Skip where no node is koordlet's: all scores are equal."""
        return None if cycle.cluster.columns.any_koordinator else SKIP

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        by_zone, by_totals = self.parts
        scores: Scores = by_zone.scores(cycle, columns, rows) + by_totals.scores(cycle, columns, rows)
        return scores

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        return sum(part.score(cycle, node) for part in self.parts)


@dataclass(frozen=True, eq=False)
class ZonesPart:
    """The score by the NUMA nodes that a pod gets. Over columns: those that it gets by amounts and CPUs."""

    strategy: zone_shares.Strategy
    weights: zone_shares.Weights
    name = NAME
    scope = Scope.ROW
    depends = Depends.CPUS
    exact = False

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        state, demand = node.canonical.state, _demand(cycle, node.canonical)
        if demand is None or not isinstance(state, NodeState):
            return BEST
        if not zone_shares.by_zone(state, demand):
            return 0.0
        answer = cycle.admissions.admitted.get(node.name)
        if answer is None or not isinstance(answer.before.state, NodeState):
            return 0.0
        shares = answer.decision.numa_amounts
        if not shares:
            return _of_totals(node, state, demand, self.strategy, self.weights)
        score: float | None = answer.derived.get(self.name)
        if score is None:
            before = answer.before.state
            score = answer.derived[self.name] = float(
                zone_shares.zones_score(before, demand, shares, self.strategy, self.weights)
            )
        return score

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        table = needs(columns, cycle.shape)
        if not table.any_koordinator:
            return np.full(len(rows), BEST)
        scores = np.where(table.koordinator[columns.config[rows]], 0.0, BEST)
        for chosen, demand in _by_demand(cycle, columns, rows, by_zone=True):
            scores[chosen] = self._estimated(columns, rows[chosen], demand)
        return scores

    def _estimated(self, columns: Columns, rows: Rows, demand: PodDemand) -> Scores:
        """The best NUMA node that has the amounts and the CPUs, else all of them together.

        Of both the higher one, where a pod that fits by amounts may still need several.
        """
        numbers = columns.zones(NAME, _numbers).take(rows, 0)
        zones = numbers[:, _HEAD : _HEAD + (numbers.shape[1] - _HEAD) // _EACH * _EACH]
        if not zones.shape[1]:
            return np.zeros(len(rows))  # No object has zones.
        zones = zones.reshape(len(rows), -1, _EACH)
        offered, used = zones[:, :, 0:2].transpose(2, 0, 1), zones[:, :, 2:4].transpose(2, 0, 1)
        asked = [demand.amounts.get(name, 0) for name in _SCORED]
        fits = (zones[:, :, 4] >= demand.cpus) & (offered[0] > 0)
        for amount, total, taken in zip(asked, offered, used, strict=True):
            fits &= (total - taken >= amount) | ~total.any(axis=1)[:, None]
        hint: zone_shares.Strategy = "MostAllocated" if demand.packs else "LeastAllocated"
        hints = _allocated(offered, np.minimum(used, offered), demand, hint)
        best = np.where(fits, hints, -1).argmax(axis=1)
        one = np.arange(len(rows)), best
        alone = fits.any(axis=1)
        near = self._score(offered[:, *one], used[:, *one], numbers, demand)
        far = self._score(offered.sum(axis=2), used.sum(axis=2), numbers, demand)
        return np.where(alone, np.maximum(near, far) if _may_spread(demand) else near, far)

    def _score(self, total: Integers, used: Integers, numbers: Integers, demand: PodDemand) -> Scores:
        if demand.cpus:
            used = np.stack([numbers[:, 0], used[MEMORY]])
        return _allocated(total, used, demand, self.strategy, self.weights).astype(np.float64)


@dataclass(frozen=True, eq=False)
class TotalsPart:
    """The score by all that is allocatable on a node, and requested; exact."""

    strategy: zone_shares.Strategy
    weights: zone_shares.Weights
    name = NAME
    scope = Scope.ROW

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        state, demand = node.canonical.state, _demand(cycle, node.canonical)
        if demand is None or not isinstance(state, NodeState) or zone_shares.by_zone(state, demand):
            return 0.0
        return _of_totals(node, state, demand, self.strategy, self.weights)

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        scores = np.zeros(len(rows))
        if not needs(columns, cycle.shape).any_koordinator:
            return scores
        for chosen, demand in _by_demand(cycle, columns, rows, by_zone=False):
            some = rows[chosen]
            bound = columns.zones(NAME, _numbers).take(some, 0)[:, :_HEAD].T
            total = columns.allocatable.take(some, 0)[:, [CPU, MEMORY]].T
            used = columns.requested.take(some, 0)[:, [CPU, MEMORY]].T.copy()
            if demand.numa and demand.cpus:
                used[CPU] = bound[0]
            elif not demand.numa and demand.amounts.get("cpu"):
                used[CPU] += bound[1]
            scores[chosen] = _allocated(total, used, demand, self.strategy, self.weights)
        return scores


def _demand(cycle: Cycle, canonical: CanonicalState) -> PodDemand | None:
    """Return the pod's request where Koordinator's rules judge it; None elsewhere."""
    if not by_koordinator(canonical, cycle.shape):
        return None
    return needs_of(canonical, cycle.shape).demand


def _by_demand(
    cycle: Cycle, columns: Columns, rows: Rows, *, by_zone: bool
) -> list[tuple[Mask | Rows, PodDemand]]:
    """Groups of places in `rows` with one demand each, of koordlet's nodes that are scored so."""
    table, config = needs(columns, cycle.shape), columns.config[rows]
    groups: dict[tuple[object, ...], tuple[list[int], PodDemand]] = {}
    for number in sorted_values(config).tolist():
        demand, state = table.by_config[number].demand, columns.configs[number].state
        if demand is None or not isinstance(state, NodeState):
            continue
        if zone_shares.by_zone(state, demand) is by_zone:
            key = bool(demand.numa), demand.cpus, demand.scored.get("cpu")
            groups.setdefault(key, ([], demand))[0].append(number)
    return [(np.flatnonzero(np.isin(config, numbers)), demand) for numbers, demand in groups.values()]


def _may_spread(demand: PodDemand) -> bool:
    """Whether a NUMA node with the amounts and the CPUs may be unfit: the rest is not in the columns."""
    if demand.numa is NUMAPolicy.SINGLE_NUMA_NODE:
        return False
    if demand.bind_required or demand.apart or demand.exclusive is not ExclusivePolicy.NONE:
        return True
    return any(amount for name, amount in demand.amounts.items() if name not in _SCORED)


def _of_totals(
    node: NodeInfo,
    state: NodeState,
    demand: PodDemand,
    strategy: zone_shares.Strategy,
    weights: zone_shares.Weights,
) -> float:
    score = zone_shares.totals_score(state, demand, node.allocatable, node.requested, strategy, weights)
    return float(score)


def _numbers(canonical: CanonicalState) -> list[int]:
    """See `_HEAD` and `_EACH`; zones in the order of their ids."""
    state = canonical.state
    if not isinstance(state, NodeState) or state.config.koordinator is None:
        return []
    bound, free = zone_shares.bound_milli(state), state.free_exclusive.mask
    numbers = [bound, bound - 1000 * bound_cpus(state).bit_count()]
    allocated = allocated_by_zone(state)
    cpus = dict(zip(state.topology.numa_ids, state.topology.numa, strict=True))
    for number, offered in options_of(state).zones.items():
        numbers += [offered.get(name, 0) for name in _SCORED]
        numbers += [allocated[number].get(name, 0) for name in _SCORED]
        numbers.append((cpus.get(number, 0) & free).bit_count())
    return [min(max(number, -_MOST), _MOST) for number in numbers]


def _allocated(
    total: Integers,
    used: Integers,
    demand: PodDemand,
    strategy: zone_shares.Strategy = "LeastAllocated",
    weights: zone_shares.Weights = zone_shares.WEIGHTS,
) -> Integers:
    """`zone_scoring.allocated_score` over arrays, whose first axis is CPU and memory."""
    score: Integers = np.zeros(total.shape[1:], dtype=np.int64)
    counted = np.zeros(total.shape[1:], dtype=np.int64)
    for index, name in enumerate(_SCORED):
        if not (weight := weights.get(name, 0)):
            continue
        capacity = np.maximum(total[index], 0)
        taken = used[index] + demand.scored.get(name, 0)
        share = np.clip(taken if strategy == "MostAllocated" else capacity - taken, 0, capacity)
        score += weight * (share * 100 // np.maximum(capacity, 1))
        counted += weight * (capacity > 0)
    return score // np.maximum(counted, 1)
