"""CPUPlacement asks each node's ledger, as its agent will; three scores say how well a pod's CPUs lie.

Filter leaves the answers in the cycle, for scores and for the claim. Its vectorised form states necessary
conditions; the answer for a finalist holds for all nodes in the same canonical state. The scores are separate
plugins, so that a profile can weigh them; over columns NUMALocality and SnugFit are upper bounds. Nodes that
Koordinator's rules judge have the best score: NodeNUMAResource alone puts them in order, as upstream.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Any, Final, TypeVar

import numpy as np

from corelane.cpuset import CPUSet
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import pod_class
from corelane.node.zones import scoring
from corelane.node.zones.zone_state import ZonesState
from corelane.reasons import Code, Reason, label
from corelane.scheduler.cluster.columns import Columns, Integers, Mask, RowKind, Rows, Scores
from corelane.scheduler.cluster.needs import by_koordinator, enough, needs
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import MOST_ANSWERS, Answer, CanonicalState, Fact
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import BEST, Cycle, Depends, NodeReason, Rejection, Scope
from corelane.scheduler.plugins.node_resources import cpus_may_fit, grown_node_may_fit, others_cpus_may_fit
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy, NUMAStrategy, SchedulerDefaults
from corelane.workload.placement_spec import NO_DEFAULTS

E = TypeVar("E", bound=StrEnum)
NAME: Final = "CPUPlacement"
_SAME_EVERYWHERE: Final = frozenset(
    {"CPUPolicyConflict", "NUMAPolicyConflict", "InvalidCPURequest", "SMTAlignmentError", "CoreKindMissing"}
)
"""Labels of refusals whose sentences are equal for all nodes with equal settings."""
_OF_KOORDINATOR: Final = frozenset(
    {Code.KOORDINATOR_NOT_ENOUGH, Code.KOORDINATOR_BIND_POLICY, Code.KOORDINATOR_NUMA}
)
_OF_PODS_ONLY: Final = frozenset({BindPolicy.CONSTRAINED_BURST})
"""Policies that are no default of a profile."""
_AGENT_FAULTS: Final = frozenset(
    {Code.AGENT_LEASE_EXPIRED, Code.AGENT_LEASE_RELEASED, Code.AGENT_LEASE_MISSING}
)
_AGENT_ABSENT: Final = Reason(Code.AGENT_ABSENT)
_OF_NODE: Final = frozenset({Code.CPUS_UNKNOWN, Code.OUT_OF_CPU, Code.OUT_OF_AMPLIFIED_CPU, *_AGENT_FAULTS})
"""Refusals that follow from a node, and are found out again each time."""
_STEPS_OF_ADMISSION: Final = 64
_STEPS_OF_REASON: Final = 4
_OF_CAPACITY: Final = (
    Reason(Code.INSUFFICIENT_RESOURCE, ("cpu",)),
    Reason(Code.INSUFFICIENT_RESOURCE, ("amplified cpu",)),
)
_SHORT: Final = {
    Code.OUT_OF_CPU: Reason(Code.INSUFFICIENT_RESOURCE, ("cpu",)),
    Code.OUT_OF_AMPLIFIED_CPU: Reason(Code.INSUFFICIENT_RESOURCE, ("amplified cpu",)),
    Code.INSUFFICIENT_NUMA: Reason(Code.KOORDINATOR_NUMA),
    Code.SHARED_POOL_EXHAUSTED: Reason(Code.POOL_WITHOUT_CPU),
    Code.BEST_EFFORT_EXHAUSTED: Reason(Code.BEST_EFFORT_WITHOUT_CPU),
}
"""kube-scheduler's or Koordinator's text where there is one."""


class CPUPlacement:
    """Rejects a node whose ledger does not admit the pod: exclusive CPUs, NUMA nodes, shared pool."""

    name = NAME
    scope = Scope.ROW
    depends = Depends.CPUS
    exact = False

    def __init__(self, defaults: SchedulerDefaults = NO_DEFAULTS) -> None:
        self.defaults = defaults
        """Policies of pods and nodes that name none."""

    @classmethod
    def of(
        cls,
        bindPolicy: str = "",  # noqa: N803 - written as upstream's arguments are
        exclusivePolicy: str = "",  # noqa: N803
        numaAllocateStrategy: str = "",  # noqa: N803
        numaTopologyPolicy: str = "",  # noqa: N803
    ) -> "CPUPlacement":
        """Read the profile's defaults, in the words of Koordinator's annotations. Raises ValueError."""
        return cls(
            SchedulerDefaults(
                _one_of(BindPolicy, "bindPolicy", bindPolicy),
                _one_of(ExclusivePolicy, "exclusivePolicy", exclusivePolicy),
                _one_of(NUMAStrategy, "numaAllocateStrategy", numaAllocateStrategy),
                _one_of(NUMAPolicy, "numaTopologyPolicy", numaTopologyPolicy),
            )
        )

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        answer = node.answer(cycle.shape)
        if answer.admitted:
            cycle.admissions.admitted[node.name] = answer
            return None
        assert answer.refusal is not None
        if answer.refusal.code is Code.INSUFFICIENT_CPUS:
            cycle.admissions.lacking[node.name] = node
        key = _key_of_words(cycle)
        rejection: Rejection | None = answer.derived.get(key)
        if rejection is None:
            states = cycle.cluster.states
            rejection = states.shared_words(Rejection(self.name, (_refusal(answer.refusal, cycle.pod),)))
            answer.derived[key] = rejection
            states.worded += answer.refusal.code not in _OF_NODE
        return rejection

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        """Enough of every amount that the shape needs with the node's settings, on a NUMA node too."""
        return enough(columns, cycle.shape, rows)

    def room(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        """Capacity for the pod's request, exact but for amplified nodes; CPUs that can be exclusive."""
        milli = cycle.shape.milli
        room: Mask = columns.room[rows] >= milli if milli else np.ones(len(rows), dtype=np.bool_)
        return room & ~columns.unknown[rows] if cycle.shape.binds else room

    def room_of_kind(self, cycle: Cycle, kind: RowKind) -> bool:
        """As `room`."""
        shape = cycle.shape
        return not (shape.milli and kind.room < shape.milli) and not (shape.binds and kind.unknown)

    def for_state(self, cycle: Cycle, rejection: Rejection) -> bool:
        """Capacity and unknown CPUs are of a node; pods with rules about others are judged on more."""
        reason = rejection.reasons[0].reason
        if reason.code is Code.CPUS_UNKNOWN or reason in (_AGENT_ABSENT, *_OF_CAPACITY):
            return False
        return not cycle.shape.looks_at_others

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        """One node is asked for all in the same canonical state with, or without, capacity for the pod."""
        short = ~self.room(cycle, columns, rows)
        if alone := cycle.shape.looks_at_others or bool(columns.unknown[rows].any()):
            kinds: Any = np.arange(len(rows))
        else:
            kinds = 2 * columns.state[rows] + short
        order = np.argsort(kinds, kind="stable")
        ordered, ends = rows[order], (np.flatnonzero(np.diff(kinds[order])) + 1).tolist()
        in_portions = len(ends) < MOST_ANSWERS // 2  # The answers so far stay known.
        by_state = set() if alone or columns.amplified[rows].any() else set(rows[~short].tolist())
        key, begin = _key_of_words(cycle), 0
        for end in (*ends, len(rows)):
            group, begin = ordered[begin:end], end
            row = int(group[0])
            node = cycle.cluster.by_row[row]
            if node is None:
                continue
            rejection = self._known_words(cycle, node, key) if row in by_state else None
            rejection = rejection or self._worded(cycle, node, in_portions=in_portions)
            if rejection is not None:
                yield rejection, group

    @staticmethod
    def _known_words(cycle: Cycle, node: NodeInfo, key: str) -> Rejection | None:
        """The rejection of a node by its canonical state alone, if it was asked for before."""
        answer = cycle.cluster.states.recent(node.canonical, cycle.shape)
        if answer is None or answer.admitted:
            return None
        rejection: Rejection | None = answer.derived.get(key)
        if rejection is not None and answer.refusal and answer.refusal.code is Code.INSUFFICIENT_CPUS:
            cycle.admissions.lacking[node.name] = node
        return rejection

    def _worded(self, cycle: Cycle, node: NodeInfo, *, in_portions: bool) -> Rejection | None:
        """The rejection of a node; what was not known counts as steps of the attempt. Raises Unfinished."""
        states = cycle.cluster.states
        misses, worded = states.misses, states.worded
        rejection = self.filter(cycle, node)
        steps = _STEPS_OF_ADMISSION * (states.misses - misses) + _STEPS_OF_REASON * (states.worded - worded)
        if in_portions and steps:
            cycle.cluster.index.spend(steps)
        return rejection

    def hints(self) -> dict[ChangeKind, Hint]:
        kinds = ChangeKind.NODE_ADDED | ChangeKind.TOPOLOGY | ChangeKind.POD_REMOVED | ChangeKind.POD_CHANGED
        others = {ChangeKind.POD_ADDED: others_cpus_may_fit, ChangeKind.POD_ITSELF: always}
        return {kinds: cpus_may_fit, ChangeKind.NODE_ALLOCATABLE: grown_node_may_fit} | others


def _key_of_words(cycle: Cycle) -> str:
    """Where an answer has its rejection: the text names what the pod requests itself, without defaults."""
    return f"{NAME} {cycle.pod.shape.id}"


def _one_of(kind: type[E], name: str, text: str) -> E | None:
    if not text:
        return None
    allowed = {str(one.value): one for one in kind if one.value and one not in _OF_PODS_ONLY}
    if text not in allowed:
        raise ValueError(f"{name} {text!r}: use one of {', '.join(allowed)}")
    return allowed[text]


def _refusal(refusal: Reason, info: PodInfo) -> NodeReason:
    """Koordinator's or kube-scheduler's text where there is one, with the ledger's reason as the detail."""
    if refusal.code in _SHORT:
        return NodeReason(_SHORT[refusal.code])
    if refusal.code in _AGENT_FAULTS:
        return NodeReason(_AGENT_ABSENT, refusal)
    if refusal.code is Code.NO_CPU_TOPOLOGY:
        return NodeReason(Reason(Code.INVALID_CPU_TOPOLOGY), refusal)
    if refusal.code is Code.CRANE_INSUFFICIENT:
        return NodeReason(Reason(Code.CRANE_INSUFFICIENT_NUMA), refusal)
    if refusal.code is Code.ZONES_NOT_ALIGNED:
        return NodeReason(Reason(Code.ZONES_CANNOT_ALIGN, refusal.values[:1]), refusal)
    if refusal.code in (Code.KUBELET_EXCLUSIVE_CPUS, Code.CPUS_UNKNOWN) or refusal.code in _OF_KOORDINATOR:
        return NodeReason(refusal)
    if refusal.code is Code.ZONE_LOADED:
        return NodeReason(Reason(Code.KOORDINATOR_NUMA), refusal)
    if refusal.code is Code.INSUFFICIENT_CPUS:
        return _too_few(refusal.values[0], info)
    if label(refusal) in _SAME_EVERYWHERE:
        return NodeReason(refusal)
    return NodeReason(Reason(Code.TOO_FEW_EXCLUSIVE, (info.exclusive_cpus,)))


def _too_few(cause: Reason, info: PodInfo) -> NodeReason:
    """Koordinator's text, or the nearest one to the optimal allocator's cause."""
    assert info.request is not None
    if cause.code in _OF_KOORDINATOR:
        return NodeReason(cause)
    spec = info.request.placement_spec
    if cause.values[0] == "numa":
        nearest = Reason(Code.KOORDINATOR_NUMA)
    elif spec.bind_required and spec.bind:
        nearest = Reason(Code.KOORDINATOR_BIND_POLICY, (spec.bind,))
    else:
        nearest = Reason(Code.KOORDINATOR_NOT_ENOUGH)
    return NodeReason(nearest, cause)


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
        answer = cycle.admissions.admitted.get(node.name)
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
        shape, scores = cycle.shape, np.full(len(rows), BEST)
        if shape.request is None or len(shape.request.containers) > 1:
            return scores
        table, config = needs(columns, shape), columns.config[rows]
        scores[columns.facts[rows, Fact.FREE_ZONE] < table.cpus[config]] = _HALF
        return table.with_koordinators(scores, config, BEST)


class SnugFit:
    """Best fit: NUMA nodes in use are filled before others, which keeps whole ones free for large pods."""

    name = "SnugFit"
    scope = Scope.ROW
    depends = Depends.CPUS
    exact = False

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        answer = cycle.admissions.admitted.get(node.name)
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
        scores: Scores = BEST * (1 - np.where(fits.any(axis=1) & (cpus > 0), left, 0.0))
        return table.with_koordinators(scores, config, BEST)


class PoolPressure:
    """The share of the pod's pool that is not requested, this pod included; 0 without a ledger.

    Requests for exclusive CPUs that best effort may use as well do not count.
    """

    name = "PoolPressure"
    scope = Scope.ROW

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        answer = cycle.admissions.admitted.get(node.name)
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
        scores = BEST * np.where(table.cpus[config] > 0, 1.0, _share(size, shared))
        return table.with_koordinators(scores, config, BEST)

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
