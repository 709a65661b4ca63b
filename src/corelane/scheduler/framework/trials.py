"""Trials of filters on one node: as it is, beside the pods nominated there, and with pods gone or added.

Upstream: `RunFilterPluginsWithNominatedPods`. A pod must fit beside the nominated pods of equal and higher
priority, whose place it must not take, and without them too, since they may get another node.

A node as it would be with other pods has the exact state, by the functions that the agent uses. Pods that
leave release the very CPUs that they have; where an exporter counts by NUMA node and does not say which pod
is where, they release none of them.
"""

from collections.abc import Iterable, Sequence

from corelane import node as nodes
from corelane.node.ledger import NodeState
from corelane.node.zones import zone_state
from corelane.node.zones.zone_state import ZonesState
from corelane.scheduler.cluster import node_kinds
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.plugin import Cycle, FilterPlugin, PreFilterExtensions, Rejection


def without(node: NodeInfo, pods: Iterable[PodInfo]) -> NodeInfo:
    """Return the node as it is once these pods of it have ended."""
    gone = {info.uid for info in pods}
    if not gone:
        return node
    state = node.state
    for uid in sorted(gone):
        if isinstance(state, NodeState):
            state = nodes.release(state, uid)
        elif isinstance(state, ZonesState):
            state = zone_state.forget(state, uid)
    return node.variant({uid: info for uid, info in node.pods.items() if uid not in gone}, state)


def with_pods(node: NodeInfo, pods: Iterable[PodInfo]) -> NodeInfo:
    """Return the node as it is with these pods too; one that its CPUs do not admit counts by its amounts."""
    added = {info.uid: info for info in pods if info.uid not in node.pods}
    state = node.state
    for info in added.values():
        if info.request is not None:
            state = node_kinds.admit(state, info.request)[0]
    return node.variant({**node.pods, **added}, state)


def first_rejection(filters: Iterable[FilterPlugin], cycle: Cycle, node: NodeInfo) -> Rejection | None:
    """Return the rejection by the first filter that rejects the pod."""
    return next(filter(None, (plugin.filter(cycle, node) for plugin in filters)), None)


def beside_nominated(filters: tuple[FilterPlugin, ...], cycle: Cycle, node: NodeInfo) -> Rejection | None:
    """Return why the pod does not fit beside the nominated pods of equal and higher priority on the node."""
    pod, priority = cycle.pod, cycle.pod.pod.spec.priority
    others = (one for one in cycle.cluster.nominations.on(node.name) if one.uid != pod.uid)
    nominated = [one for one in others if one.pod.spec.priority >= priority]
    if not nominated:
        return None
    copied = cycle.copy()
    for plugin in filters:
        if isinstance(plugin, PreFilterExtensions):
            for one in nominated:
                plugin.add_pod(copied, one, node)
    return first_rejection(filters, copied, with_pods(node, nominated))


def remove(filters: Iterable[FilterPlugin], cycle: Cycle, pods: Sequence[PodInfo], node: NodeInfo) -> None:
    """Have the plugins of a copied cycle answer as if the pods were not on the node."""
    for plugin in filters:
        if isinstance(plugin, PreFilterExtensions):
            for pod in pods:
                plugin.remove_pod(cycle, pod, node)
