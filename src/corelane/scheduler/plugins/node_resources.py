"""Amounts and CPUs requested against those allocatable: NodeResourcesFit and CPUPlacement.

NodeResourcesFit compares totals of a node. CPUPlacement asks each node's ledger, as its agent will. Its
Filter leaves the answers in the cycle, for scores (`cpu_scores`) and for the claim. Its vectorised form
states necessary conditions; the answer for a finalist holds for all nodes in the same canonical state.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import numpy as np
from msgspec import Meta, Struct

from corelane import settings
from corelane.reasons import Code, Reason, label
from corelane.scheduler.cluster.columns import CPU, Columns, Integers, Mask, RowKind, Rows, Scores
from corelane.scheduler.cluster.needs import enough, needs
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import MOST_ANSWERS
from corelane.scheduler.framework.changes import (
    ChangeKind,
    ClusterChange,
    Hint,
    NodeSummary,
    always,
    cpus_differ,
    cpus_grew,
    cpus_may_suffice,
    goes_by_order,
)
from corelane.scheduler.framework.plugin import BEST, Cycle, Depends, NodeReason, Rejection, Scope
from corelane.scheduler.plugins.rows import RowScore
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy, NUMAStrategy, SchedulerDefaults
from corelane.workload.placement_spec import NO_DEFAULTS

E = TypeVar("E", bound=StrEnum)
K = TypeVar("K", bound=str)
Strategy = Literal["LeastAllocated", "MostAllocated"]
Share = TypeVar("Share", float, Scores)
_ANYTHING: Final = np.iinfo(np.int64).min
"""More than this is left of every resource."""
CPU_PLACEMENT: Final = "CPUPlacement"
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
    Code.OUT_OF_CPU: _OF_CAPACITY[0],
    Code.OUT_OF_AMPLIFIED_CPU: _OF_CAPACITY[1],
    Code.INSUFFICIENT_NUMA: Reason(Code.KOORDINATOR_NUMA),
    Code.SHARED_POOL_EXHAUSTED: Reason(Code.POOL_WITHOUT_CPU),
    Code.BEST_EFFORT_EXHAUSTED: Reason(Code.BEST_EFFORT_WITHOUT_CPU),
}
"""kube-scheduler's or Koordinator's text where there is one."""
_DETAILED: Final = {
    **dict.fromkeys(_AGENT_FAULTS, _AGENT_ABSENT),
    Code.NO_CPU_TOPOLOGY: Reason(Code.INVALID_CPU_TOPOLOGY),
    Code.CRANE_INSUFFICIENT: Reason(Code.CRANE_INSUFFICIENT_NUMA),
}
"""The same, with the ledger's reason as the detail."""


class _Resource(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, description="the name of a resource")]
    weight: Annotated[int, Meta(ge=0, description="an integer of 1 or more")] = 1
    """0 as without one, as upstream."""


class _ScoringStrategy(Struct, frozen=True, forbid_unknown_fields=True):
    type: str = "LeastAllocated"
    resources: tuple[_Resource, ...] | None = None


def scoring_strategy(
    given: Mapping[str, Any] | None, types: Sequence[K], name: str = "scoringStrategy"
) -> tuple[K, dict[str, int] | None]:
    """Return the type, and the weight of each resource, None without any. Raises ValueError."""
    try:
        strategy = settings.convert(given or {}, _ScoringStrategy)
    except settings.SettingsError as error:
        raise ValueError(f"{name}.{error}") from None
    kind = next((kind for kind in types if kind == strategy.type), None)
    if kind is None:
        raise ValueError(f"{name}.type {strategy.type!r} is unknown: use one of {', '.join(types)}")
    if strategy.resources is None:
        return kind, None
    names = [resource.name for resource in strategy.resources]
    if twice := next((one for one in names if names.count(one) > 1), ""):
        raise ValueError(f"{name}.resources: {twice!r} is given twice: name a resource once")
    return kind, {resource.name: resource.weight or 1 for resource in strategy.resources}


class NodeResourcesFit(RowScore):
    """Rejects nodes with too little of a requested resource; scores by how empty or how full they are.

    For scores, a container without a request counts with kube-scheduler's 100m of CPU and 200 MiB of memory.
    """

    name = "NodeResourcesFit"
    scope = Scope.ROW
    exact = True

    def __init__(self, strategy: Strategy = "LeastAllocated") -> None:
        self.strategy = strategy

    @classmethod
    def of(cls, scoringStrategy: Mapping[str, Any] | None = None) -> "NodeResourcesFit":  # noqa: N803 - upstream's name
        """Read upstream's arguments: the type of the scoring strategy. Raises ValueError."""
        kind, weights = scoring_strategy(scoringStrategy, get_args(Strategy))
        if weights not in (None, {"cpu": 1, "memory": 1}):
            given = ", ".join(f"{name}: {weight}" for name, weight in (weights or {}).items()) or "none"
            raise ValueError(
                f"scoringStrategy.resources {given}: only cpu and memory, weight 1, are scored; "
                "use [{name: cpu, weight: 1}, {name: memory, weight: 1}], or remove the field"
            )
        return cls(kind)

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        lacking = tuple(_lacking(cycle, node))
        if not lacking:
            return None
        # Without other pods it may have enough, but for what is more than allocatable; too many pods can go.
        names = [reason.values[0] for reason in lacking if reason.code is Code.INSUFFICIENT_RESOURCE]
        resolvable = all(cycle.pod.requests[name] <= node.allocatable.get(name, 0) for name in names)
        return Rejection.of(self.name, *lacking, resolvable=resolvable)

    def feasible(self, cycle: Cycle, columns: Columns, rows: Rows) -> Mask:
        least = _needed(cycle, columns)
        if least is None:
            return np.zeros(len(rows), dtype=np.bool_)
        enough: Mask = columns.left.take(rows, 0) >= least
        if columns.any_amplified:
            enough[:, CPU] |= columns.amplified[rows]
        fits: Mask = np.logical_and.reduce(enough, axis=1)
        return fits

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        used = columns.share.take(rows, 0)
        used *= needs(columns, cycle.shape).scored_requests(cycle.shape)
        used += columns.used.take(rows, 0)
        np.minimum(used, 1.0, out=used)
        return self._score((used[:, 0] + used[:, 1]) / columns.weighed[rows])

    def passes_kind(self, cycle: Cycle, kind: RowKind) -> bool:
        """Return the value of `feasible` for a kind."""
        if _needed(cycle, cycle.cluster.columns) is None:
            return False
        left = kind.left
        for index, amount in needs(cycle.cluster.columns, cycle.shape).needed:
            if left[index] < amount and not (index == CPU and kind.amplified):
                return False
        return True

    def score_of_kind(self, cycle: Cycle, kind: RowKind) -> float:
        """Return the value of `scores` for a kind."""
        cpu, memory = map(float, cycle.shape.scored)
        (of_cpu, of_memory), (used_cpu, used_memory) = kind.share, kind.used
        used = min(cpu * of_cpu + used_cpu, 1.0) + min(memory * of_memory + used_memory, 1.0)
        return self._score(used / kind.weighed)

    def _score(self, allocated: Share) -> Share:
        return BEST * (allocated if self.strategy == "MostAllocated" else 1 - allocated)

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        """Rows by what they lack, and by whether they would lack it without any pod."""
        lacking = [(Reason(Code.TOO_MANY_PODS), _lack(columns, rows, "pods", 1))]
        beyond = np.zeros(len(rows), dtype=np.bool_)
        for name, amount in sorted(cycle.shape.requests.items()):
            if amount > 0:
                reason = Reason(Code.INSUFFICIENT_RESOURCE, (name,))
                lacks = _lack(columns, rows, name, amount)
                lacking.append((reason, lacks))
                index = columns.column(name)
                beyond |= lacks & (amount > columns.allocatable[rows, index]) if index >= 0 else lacks
        table = np.array([*(mask for _, mask in lacking), beyond]).T
        # Rows as bytes: several times as fast as by axis.
        packed = np.ascontiguousarray(np.packbits(table, axis=1))
        packed = packed.view(f"V{packed.shape[1]}") if packed.shape[1] > 1 else packed
        _, first, kind = np.unique(packed, return_index=True, return_inverse=True)
        for number, pattern in enumerate(table[first]):
            reasons = [reason for (reason, _), lack in zip(lacking, pattern[:-1], strict=True) if lack]
            rejection = Rejection.of(self.name, *reasons, resolvable=not pattern[-1])
            yield rejection, rows[kind.reshape(-1) == number]

    def hints(self) -> dict[ChangeKind, Hint]:
        kinds = ChangeKind.NODE_ADDED | ChangeKind.NODE_ALLOCATABLE | ChangeKind.POD_REMOVED
        kinds |= ChangeKind.POD_CHANGED | ChangeKind.TOPOLOGY
        return {kinds: amounts_may_fit, ChangeKind.POD_ITSELF: always}


def _needed(cycle: Cycle, columns: Columns) -> Integers | None:
    """Return what must be left of each resource, by column; None if no node has one of them."""
    table, width = needs(columns, cycle.shape), columns.left.shape[1]
    if table.resources is None or len(table.resources) != width:
        requests = cycle.shape.requests.items()
        amounts = {"pods": 1} | {name: amount for name, amount in requests if amount > 0 and name != "pods"}
        indices = [columns.column(name) for name in amounts]
        if min(indices) < 0:
            return None
        table.resources = np.full(width, _ANYTHING)
        table.resources[indices] = list(amounts.values())
        table.needed = list(zip(indices, amounts.values(), strict=True))
    return table.resources


def _lack(columns: Columns, rows: Rows, name: str, amount: int) -> Mask:
    """Whether each row has too little of a resource; amplified CPUs are checked by the node's ledger."""
    index = columns.column(name)
    if index < 0:
        return np.ones(len(rows), dtype=np.bool_)
    lack: Mask = amount > columns.allocatable[rows, index] - columns.requested[rows, index]
    return lack & ~columns.amplified[rows] if name == "cpu" else lack


def _lacking(cycle: Cycle, node: NodeInfo) -> Iterator[Reason]:
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        yield Reason(Code.TOO_MANY_PODS)
    for name, requested in sorted(cycle.pod.requests.items()):
        if name == "cpu" and node.amplified:
            continue  # Its ledger checks amplified CPUs.
        if requested > 0 and requested > node.allocatable.get(name, 0) - node.requested.get(name, 0):
            yield Reason(Code.INSUFFICIENT_RESOURCE, (name,))


class CPUPlacement:
    """Rejects a node whose ledger does not admit the pod: exclusive CPUs, NUMA nodes, shared pool."""

    name = CPU_PLACEMENT
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
        if answer.decision.admitted:
            cycle.admissions.admitted[node.name] = answer
            return None
        refusal = answer.decision.refusal
        assert refusal is not None
        if refusal.code is Code.INSUFFICIENT_CPUS:
            cycle.admissions.lacking[node.name] = node
        key = _key_of_words(cycle)
        rejection: Rejection | None = answer.derived.get(key)
        if rejection is None:
            states = cycle.cluster.states
            rejection = states.shared_words(Rejection(self.name, (_refusal(refusal, cycle.pod),)))
            answer.derived[key] = rejection
            states.worded += refusal.code not in _OF_NODE
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
        """Return the value of `room` for a kind."""
        shape = cycle.shape
        return not (shape.milli and kind.room < shape.milli) and not (shape.binds and kind.unknown)

    def for_state(self, cycle: Cycle, rejection: Rejection) -> bool:
        """Capacity and unknown CPUs are of a node; pods with rules about others are judged on more."""
        reason = rejection.reasons[0].reason
        if reason.code is Code.CPUS_UNKNOWN or reason in (_AGENT_ABSENT, *_OF_CAPACITY):
            return False
        return not cycle.shape.looks_at_others

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        """One node is asked for all in the same canonical state with, or without, capacity for the pod.

        Answers that were not known count as steps of the attempt. Raises Unfinished.
        """
        short, states = ~self.room(cycle, columns, rows), cycle.cluster.states
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
            rejection, answer = None, states.recent(node.canonical, cycle.shape) if row in by_state else None
            if answer is not None and not answer.decision.admitted:
                # By the canonical state alone, if it was asked for before.
                rejection, refusal = answer.derived.get(key), answer.decision.refusal
                if rejection is not None and refusal and refusal.code is Code.INSUFFICIENT_CPUS:
                    cycle.admissions.lacking[node.name] = node
            if rejection is None:
                misses, worded = states.misses, states.worded
                rejection = self.filter(cycle, node)
                steps = _STEPS_OF_ADMISSION * (states.misses - misses)
                steps += _STEPS_OF_REASON * (states.worded - worded)
                if in_portions and steps:
                    cycle.cluster.index.spend(steps)
            if rejection is not None:
                yield rejection, group

    def hints(self) -> dict[ChangeKind, Hint]:
        kinds = ChangeKind.NODE_ADDED | ChangeKind.TOPOLOGY | ChangeKind.POD_REMOVED | ChangeKind.POD_CHANGED
        others = {ChangeKind.POD_ADDED: others_cpus_may_fit, ChangeKind.POD_ITSELF: always}
        return {kinds: cpus_may_fit, ChangeKind.NODE_ALLOCATABLE: grown_node_may_fit} | others


def _key_of_words(cycle: Cycle) -> str:
    """Where an answer has its rejection: the text names what the pod requests itself, without defaults."""
    return f"{CPU_PLACEMENT} {cycle.pod.shape.id}"


def _one_of(kind: type[E], name: str, text: str) -> E | None:
    if not text:
        return None
    allowed = {str(one.value): one for one in kind if one.value and one not in _OF_PODS_ONLY}
    if text not in allowed:
        raise ValueError(f"{name} {text!r}: use one of {', '.join(allowed)}")
    return allowed[text]


def _refusal(refusal: Reason, info: PodInfo) -> NodeReason:
    """Koordinator's or kube-scheduler's text where there is one, with the ledger's reason as the detail."""
    code = refusal.code
    if code in _SHORT:
        return NodeReason(_SHORT[code])
    if code in _DETAILED:
        return NodeReason(_DETAILED[code], refusal)
    if code is Code.ZONES_NOT_ALIGNED:
        return NodeReason(Reason(Code.ZONES_CANNOT_ALIGN, refusal.values[:1]), refusal)
    if code is Code.INSUFFICIENT_CPUS:
        return _too_few(refusal.values[0], info)
    if code in (Code.KUBELET_EXCLUSIVE_CPUS, Code.CPUS_UNKNOWN) or code in _OF_KOORDINATOR:
        return NodeReason(refusal)
    if label(refusal) in _SAME_EVERYWHERE:
        return NodeReason(refusal)
    return NodeReason(Reason(Code.TOO_FEW_EXCLUSIVE, (info.shape.exclusive_cpus,)))


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


# Hints: whether a node may have, after a change, what a pod lacks.
#
# One that says no must be right: the node's filters would still reject the pod. Pods of lower priority count
# as free, for the pod may preempt them.


def amounts_may_fit(pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether the node's totals may suffice for the pod."""
    node, before = change.after, change.before
    if node is None:
        return False
    if change.kind is ChangeKind.TOPOLOGY and before is not None and before.amplified == node.amplified:
        return False  # Of CPUs only: no total differs.
    preempts = may_preempt(pod, node)
    if node.pods_left < 1 and not preempts:
        return False
    available = node.allocatable if preempts else node.free
    counted = (item for item in pod.requests.items() if not (node.amplified and item[0] == "cpu"))
    return all(amount <= available.get(name, 0) for name, amount in counted if amount > 0)


def cpus_may_fit(pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether the node's CPUs are in a better state than before, and may suffice for the pod."""
    node = change.after
    if node is None:
        return False
    before = change.before
    if pod.shape.looks_at_others:
        return before is None or cpus_differ(before, node)
    if before is not None:
        differ = cpus_differ if goes_by_order(pod, node) else cpus_grew
        if not differ(before, node):
            return False
    return may_preempt(pod, node) or cpus_may_suffice(pod, node)


def grown_node_may_fit(pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether the node has become large enough for the pod: smaller ones are not asked about."""
    node, before, milli = change.after, change.before, pod.requests.get("cpu", 0)
    if node is None or (before is not None and before.allocatable.get("cpu", 0) >= milli):
        return False
    return may_preempt(pod, node) or cpus_may_suffice(pod, node)


def others_cpus_may_fit(pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether a pod that came may make this one fit: its CPUs are those that others avoid, or seek."""
    node = change.after
    if node is None or not (pod.shape.looks_at_others or goes_by_order(pod, node)):
        return False
    return cpus_may_fit(pod, change)


def may_preempt(pod: PodInfo, node: NodeSummary) -> bool:
    """Return whether the node has pods that the pod may preempt."""
    spec = pod.pod.spec
    if spec.preemption_policy == "Never" or node.lowest_priority is None:
        return False
    return node.lowest_priority < spec.priority
