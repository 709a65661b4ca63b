"""Queueing hints about amounts: whether a node may have, after a change, what a pod lacks.

A hint that says no must be right: the node's filters would still reject the pod. Where pods of lower priority
are on the node, those count as free, for the pod may preempt them.
"""

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.states import looks_at_others
from corelane.scheduler.cache.summaries import (
    NodeSummary,
    cpus_differ,
    cpus_grew,
    cpus_may_suffice,
    goes_by_order,
)
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange


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
    if looks_at_others(pod.shape):
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
    if node is None or not (looks_at_others(pod.shape) or goes_by_order(pod, node)):
        return False
    return cpus_may_fit(pod, change)


def may_preempt(pod: PodInfo, node: NodeSummary) -> bool:
    """Return whether the node has pods that the pod may preempt."""
    spec = pod.pod.spec
    if spec.preemption_policy == "Never" or node.lowest_priority is None:
        return False
    return node.lowest_priority < spec.priority
