"""NodeResourcesFit: amounts requested against amounts allocatable, as totals of a node."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeVar, get_args

import numpy as np

from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.columns import CPU, Columns, Integers, Mask, RowKind, Rows, Scores
from corelane.scheduler.cluster.needs import needs
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
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
from corelane.scheduler.framework.configuration_file import shown
from corelane.scheduler.framework.plugin import BEST, Cycle, Rejection, Scope
from corelane.scheduler.plugins.rows import RowScore

Strategy = Literal["LeastAllocated", "MostAllocated"]
Share = TypeVar("Share", float, Scores)
_SCORED: Final = tuple(
    [{"name": name} | ({"weight": 1} if number in weighted else {}) for number, name in enumerate(names)]
    for names in (("cpu", "memory"), ("memory", "cpu"))
    for weighted in ((), (0,), (1,), (0, 1))
)
"""What `scoringStrategy.resources` may be."""
_ANYTHING: Final = np.iinfo(np.int64).min
"""More than this is left of every resource."""


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
        strategy = dict(scoringStrategy or {})
        kind = strategy.pop("type", "LeastAllocated")
        if kind not in get_args(Strategy):
            raise ValueError(f"scoringStrategy.type {kind!r}: use one of {', '.join(get_args(Strategy))}")
        resources = strategy.pop("resources", [{"name": "cpu"}, {"name": "memory"}])
        if resources not in _SCORED:
            raise ValueError(
                f"scoringStrategy.resources {shown(resources)}: only cpu and memory, weight 1, are scored; "
                "use [{name: cpu, weight: 1}, {name: memory, weight: 1}], or remove the field"
            )
        if strategy:
            raise ValueError(f"scoringStrategy.{next(iter(strategy))} is not supported: remove it")
        return cls(kind)

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        lacking = tuple(_lacking(cycle, node))
        if not lacking:
            return None
        resolvable = not any(_beyond(cycle, node, reason) for reason in lacking)
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
        """As `feasible`."""
        if _needed(cycle, cycle.cluster.columns) is None:
            return False
        left = kind.left
        for index, amount in needs(cycle.cluster.columns, cycle.shape).needed:
            if left[index] < amount and not (index == CPU and kind.amplified):
                return False
        return True

    def score_of_kind(self, cycle: Cycle, kind: RowKind) -> float:
        """As `scores`."""
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
                beyond |= lacks & (amount > _allocatable(columns, rows, name))
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
    """What must be left of each resource, in the order of the columns; None if no node has one of them."""
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


def _allocatable(columns: Columns, rows: Rows, name: str) -> Integers:
    """What each row has of a resource; all of it is lacking where no node has it."""
    index = columns.column(name)
    return columns.allocatable[rows, index] if index >= 0 else np.zeros(len(rows), dtype=np.int64)


def _beyond(cycle: Cycle, node: NodeInfo, lacking: Reason) -> bool:
    """Whether the node has less than the pod requests even without other pods; too many pods can go."""
    if lacking.code is not Code.INSUFFICIENT_RESOURCE:
        return False
    name = lacking.values[0]
    return cycle.pod.requests[name] > node.allocatable.get(name, 0)


def _lacking(cycle: Cycle, node: NodeInfo) -> Iterator[Reason]:
    if len(node.pods) + 1 > node.allocatable.get("pods", 0):
        yield Reason(Code.TOO_MANY_PODS)
    for name, requested in sorted(cycle.pod.requests.items()):
        if name == "cpu" and node.amplified:
            continue  # Its ledger checks amplified CPUs.
        if requested > 0 and requested > node.allocatable.get(name, 0) - node.requested.get(name, 0):
            yield Reason(Code.INSUFFICIENT_RESOURCE, (name,))


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
