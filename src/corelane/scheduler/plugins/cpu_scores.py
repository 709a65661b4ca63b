"""How well a pod's CPUs lie: fewest NUMA nodes, best fit, and pressure on the shared pool.

They are separate plugins, so that a profile can weigh them. Over columns the first two are upper bounds,
which the ledger's answer replaces for finalists and all nodes in the same canonical state. Nodes that
Koordinator's rules judge have the best score: NodeNUMAResource alone puts them in order, as upstream.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from corelane.cpuset import CPUSet
from corelane.node import NodeState
from corelane.node.pools.classes import pod_class
from corelane.node.zones import scoring
from corelane.node.zones.zone_state import ZonesState
from corelane.scheduler.cache.columns import Columns, Integers, Rows, Scores
from corelane.scheduler.cache.needs import by_koordinator, needs
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.row_kinds import RowKind
from corelane.scheduler.cache.states import Answer, CanonicalState, Fact
from corelane.scheduler.framework.plugin import BEST, Cycle, Depends, Scope
from corelane.scheduler.plugins.cpus import admissions

_HALF: Final = BEST / 2
_EXCLUSIVE: Final = int(Fact.EXCLUSIVE)


class NUMALocality:
    """The mean over containers: 100 for CPUs, memory and devices on one NUMA node, 50 on two, and so on.

    Over pods, where the node aligns these as a whole. 0 where the published zones do not hold the pod.
    """

    name = "NUMALocality"
    scope = Scope.ROW
    depends = Depends.CPUS
    exact = False

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        answer = admissions(cycle).admitted.get(node.name)
        if answer is None:
            return 0.0
        if by_koordinator(answer.before, cycle.shape):
            return BEST
        spans: tuple[int, ...] | None = answer.spans
        if isinstance(answer.before.state, ZonesState):
            spans = self._spans_over_zones(cycle, answer)
            if spans is None:
                return 0.0
        return BEST * sum(1 / span for span in spans) / len(spans) if spans else BEST

    def _spans_over_zones(self, cycle: Cycle, answer: Answer) -> tuple[int, ...] | None:
        if self.name not in answer.derived:
            assert isinstance(answer.before.state, ZonesState)
            assert cycle.shape.request is not None
            answer.derived[self.name] = scoring.spans(answer.before.state, cycle.shape.request)
        spans: tuple[int, ...] | None = answer.derived[self.name]
        return spans

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        """All on one NUMA node where one has as many CPUs, else two; several containers may lie apart."""
        shape, found = cycle.shape, np.full(len(rows), BEST)
        if shape.request is None or len(shape.request.containers) > 1:
            return found
        table, config = needs(columns, shape), columns.config[rows]
        found[columns.facts[rows, Fact.FREE_ZONE] < table.cpus[config]] = _HALF
        return table.with_koordinators(found, config, BEST)


class SnugFit:
    """Best fit: NUMA nodes in use are filled before others, which keeps whole ones free for large pods."""

    name = "SnugFit"
    scope = Scope.ROW
    depends = Depends.CPUS
    exact = False

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        answer = admissions(cycle).admitted.get(node.name)
        if answer is None:
            return 0.0
        if not answer.assignments and cycle.shape.binds and not isinstance(answer.before.state, NodeState):
            return _HALF  # Nothing says which CPUs it gets.
        if not answer.assignments or by_koordinator(answer.before, cycle.shape):
            return BEST
        return _derived(answer, self.name, _snugness)

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
        found: Scores = BEST * (1 - np.where(fits.any(axis=1) & (cpus > 0), left, 0.0))
        return table.with_koordinators(found, config, BEST)


class PoolPressure:
    """The share of the pod's pool that is not requested, this pod included; 0 without a ledger.

    Requests for exclusive CPUs that best effort may use as well do not count.
    """

    name = "PoolPressure"
    scope = Scope.ROW

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        answer = admissions(cycle).admitted.get(node.name)
        if answer is None or not isinstance(answer.before.state, NodeState):
            return 0.0
        if answer.assignments or by_koordinator(answer.before, cycle.shape):
            return BEST
        state = answer.state.state
        assert isinstance(state, NodeState)
        shared = node.admitted + cycle.shape.milli - 1000 * len(state.exclusive)
        return BEST * max(0.0, min(1.0, 1 - shared / (1000 * len(_pool(cycle, state)))))

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
        found = BEST * np.where(table.cpus[config] > 0, 1.0, _share(size, shared))
        return table.with_koordinators(found, config, BEST)

    def score_of_kind(self, cycle: Cycle, kind: RowKind) -> float:
        """As `scores`."""
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


def _derived(answer: Answer, name: str, make: Callable[[NodeState, Answer], float]) -> float:
    value: float | None = answer.derived.get(name)
    if value is None:
        assert isinstance(answer.state.state, NodeState)
        value = answer.derived[name] = make(answer.state.state, answer)
    return value


def _snugness(state: NodeState, answer: Answer) -> float:
    taken = reduce(or_, (cpus.mask for cpus in answer.assignments.values()))
    touched = reduce(or_, (numa for numa in state.topology.numa if numa & taken), 0)
    left = touched & state.free_exclusive.mask
    return BEST * (1 - left.bit_count() / touched.bit_count())


def _pool(cycle: Cycle, state: NodeState) -> CPUSet:
    """The pool of a pod without exclusive CPUs."""
    assert cycle.shape.request is not None
    if state.config.policy != "pools":
        return state.shared_pool
    return state.pool_of(pod_class(cycle.shape.request, state.config.pools).sharing)
