"""Queueing hints about amounts: whether a node may have, after a change, what a pod lacks.

A hint that says no must be right: the node's filters would still reject the pod. Where pods of lower priority
are on the node, those count as free, for the pod may preempt them.
"""

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.states import looks_at_others
from corelane.scheduler.cache.summaries import NodeSummary, cpus_grew, cpus_may_suffice
from corelane.scheduler.framework.changes import ClusterChange


def amounts_may_fit(pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether the node's totals may suffice for the pod."""
    node = change.after
    if node is None:
        return False
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
    if looks_at_others(pod.shape):
        return True
    if change.before is not None and not cpus_grew(change.before, node):
        return False
    return may_preempt(pod, node) or cpus_may_suffice(pod, node)


def may_preempt(pod: PodInfo, node: NodeSummary) -> bool:
    """Return whether the node has pods that the pod may preempt."""
    spec = pod.pod.spec
    if spec.preemption_policy == "Never" or node.lowest_priority is None:
        return False
    return node.lowest_priority < spec.priority
