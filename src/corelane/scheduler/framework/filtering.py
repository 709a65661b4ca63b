"""Filters on one node, with the pods counted for which the node is nominated.

Upstream: `RunFilterPluginsWithNominatedPods`. A pod must fit beside the nominated pods of equal and higher
priority, whose place it must not take, and without them too, since they may get another node.
"""

from collections.abc import Iterable

from corelane.scheduler.cache import hypothetical
from corelane.scheduler.cache.nodes import NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.plugin import Cycle, FilterPlugin, PreFilterExtensions, Rejection


def first_rejection(filters: Iterable[FilterPlugin], cycle: Cycle, node: NodeInfo) -> Rejection | None:
    """Return the rejection by the first filter that rejects the pod."""
    return next(filter(None, (plugin.filter(cycle, node) for plugin in filters)), None)


def rejection(filters: Iterable[FilterPlugin], cycle: Cycle, node: NodeInfo) -> Rejection | None:
    """Return why the pod does not fit, with the nominated pods on the node or without."""
    filters = tuple(filters)
    return beside_nominated(filters, cycle, node) or first_rejection(filters, cycle, node)


def beside_nominated(filters: Iterable[FilterPlugin], cycle: Cycle, node: NodeInfo) -> Rejection | None:
    """Return why the pod does not fit beside the nominated pods of equal and higher priority on the node."""
    nominated = list(_before(cycle.pod, cycle.cluster.nominations.on(node.name)))
    if not nominated:
        return None
    filters, copied = tuple(filters), cycle.copy()
    add(filters, copied, nominated, node)
    return first_rejection(filters, copied, hypothetical.with_pods(node, nominated))


def add(filters: Iterable[FilterPlugin], cycle: Cycle, pods: Iterable[PodInfo], node: NodeInfo) -> None:
    """Have the plugins of a copied cycle answer as if the pods were on the node too."""
    extensions = [plugin for plugin in filters if isinstance(plugin, PreFilterExtensions)]
    for pod in pods if extensions else ():
        for plugin in extensions:
            plugin.add_pod(cycle, pod, node)


def remove(filters: Iterable[FilterPlugin], cycle: Cycle, pods: Iterable[PodInfo], node: NodeInfo) -> None:
    """Have the plugins of a copied cycle answer as if the pods were not on the node."""
    extensions = [plugin for plugin in filters if isinstance(plugin, PreFilterExtensions)]
    for pod in pods if extensions else ():
        for plugin in extensions:
            plugin.remove_pod(cycle, pod, node)


def _before(pod: PodInfo, nominated: Iterable[PodInfo]) -> Iterable[PodInfo]:
    priority = pod.pod.spec.priority
    return (one for one in nominated if one.uid != pod.uid and one.pod.spec.priority >= priority)
