"""A node as it would be with other pods: the exact state, by the functions that the agent uses.

What is given is never changed. Pods that leave release the very CPUs that they have; where an exporter counts
by NUMA node and does not say which pod is where, they release none of them.
"""

from collections.abc import Iterable

from corelane import node as nodes
from corelane.node import NodeState
from corelane.node.zones import zone_state
from corelane.node.zones.zone_state import ZonesState
from corelane.scheduler.cache import node_kinds
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.zone_amounts import CPUState


def without(node: NodeInfo, pods: Iterable[PodInfo]) -> NodeInfo:
    """Return the node as it is once these pods of it have ended."""
    gone = {info.uid for info in pods}
    if not gone:
        return node
    state = node.state
    for uid in sorted(gone):
        state = _released(state, uid)
    return node.variant({uid: info for uid, info in node.pods.items() if uid not in gone}, state)


def with_pods(node: NodeInfo, pods: Iterable[PodInfo]) -> NodeInfo:
    """Return the node as it is with these pods too; one that its CPUs do not admit counts by its amounts."""
    added = {info.uid: info for info in pods if info.uid not in node.pods}
    state = node.state
    for info in added.values():
        if info.request is not None:
            state = node_kinds.admit(state, info.request)[0]
    return node.variant({**node.pods, **added}, state)


def _released(state: CPUState, uid: str) -> CPUState:
    if isinstance(state, NodeState):
        return nodes.release(state, uid)
    return zone_state.forget(state, uid) if isinstance(state, ZonesState) else state
