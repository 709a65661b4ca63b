"""CPUPlacement: asks each node's ledger, as its agent will.

Filter leaves the answers in the cycle's state, for scores (see `cpu_scores`) and for the claim. Its
vectorised form states necessary conditions; the answer for a finalist holds for all nodes in the same
canonical state.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

import numpy as np

from corelane.reasons import Code, Reason, label
from corelane.scheduler.cache.columns import Columns, Mask, Rows
from corelane.scheduler.cache.needs import enough
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.row_kinds import RowKind
from corelane.scheduler.cache.states import MOST_ANSWERS, Answer, looks_at_others
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import Cycle, Depends, NodeReason, Rejection, Scope
from corelane.scheduler.plugins.node_hints import cpus_may_fit, grown_node_may_fit, others_cpus_may_fit
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


@dataclass(slots=True)
class Admissions:
    """The ledgers' answers in one cycle, by node name."""

    admitted: dict[str, Answer] = field(default_factory=dict)
    """For nodes with a ledger, or zones."""
    lacking: dict[str, NodeInfo] = field(default_factory=dict)
    """Nodes that only lack CPUs."""

    def copy(self) -> "Admissions":
        """Return answers for nodes with other pods: none so far."""
        return Admissions()


def admissions(cycle: Cycle) -> Admissions:
    """Return the cycle's answers so far."""
    found: Admissions = cycle.state.setdefault(NAME, Admissions())
    return found


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
            admissions(cycle).admitted[node.name] = answer
            return None
        assert answer.refusal is not None
        if answer.refusal.code is Code.INSUFFICIENT_CPUS:
            admissions(cycle).lacking[node.name] = node
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
        return not looks_at_others(cycle.shape)

    def rejections(self, cycle: Cycle, columns: Columns, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
        """One node is asked for all in the same canonical state with, or without, capacity for the pod."""
        short = ~self.room(cycle, columns, rows)
        if alone := looks_at_others(cycle.shape) or bool(columns.unknown[rows].any()):
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
            admissions(cycle).lacking[node.name] = node
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
