"""Nodes that make up the domains of a topology spread constraint, as masks by row."""

from collections.abc import Iterable

from corelane.kube.node_terms import matches_required_affinity
from corelane.kube.pod import Pod
from corelane.scheduler.cache.columns import Mask
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.pod_facts import SpreadConstraint
from corelane.scheduler.plugins.tolerations import untolerated


def with_keys(cluster: NodeCache, constraints: Iterable[SpreadConstraint]) -> Mask:
    """Return the nodes that have the labels of all constraints."""
    mask = cluster.topology.live.copy()
    for one in constraints:
        mask &= cluster.topology.ids(one.topology_key) >= 0
    return mask


def counted_nodes(cluster: NodeCache, pod: Pod, constraint: SpreadConstraint) -> Mask:
    """Return the nodes that count by the constraint's policies: nodeAffinityPolicy and nodeTaintsPolicy."""
    mask = cluster.topology.live
    if constraint.honor_affinity:
        mask = mask & _by_affinity(cluster, pod)
    if constraint.honor_taints:
        mask = mask & _by_taints(cluster, pod)
    return mask


def _by_affinity(cluster: NodeCache, pod: Pod) -> Mask:
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity.required if affinity else None
    if not pod.spec.node_selector and required is None:
        return cluster.topology.live

    def matches(row: int) -> bool:
        info = cluster.at_row(row)
        return info is not None and info.node is not None and matches_required_affinity(pod, info.node)

    key = ("affinity", tuple(sorted(pod.spec.node_selector.items())), required)
    return cluster.masks.get(key, matches)


def _by_taints(cluster: NodeCache, pod: Pod) -> Mask:
    def tolerates(row: int) -> bool:
        info = cluster.at_row(row)
        return info is not None and untolerated(pod, info.taints) is None

    return cluster.masks.get(("taints", pod.spec.tolerations), tolerates)
