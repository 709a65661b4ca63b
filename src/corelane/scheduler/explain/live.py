"""What would help a pending pod, shortly, for its event: tried on detached copies of a few nodes."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.node.explain.pod_decision import NearestNode
from corelane.scheduler import cycle as cycles
from corelane.scheduler.attempts import Attempt
from corelane.scheduler.cache import hypothetical
from corelane.scheduler.cache.nodes import NodeCache, NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.taints import taints_of
from corelane.scheduler.explain.nearest import Effort, nearest
from corelane.scheduler.framework.filtering import first_rejection
from corelane.scheduler.framework.plugin import Rejection
from corelane.scheduler.framework.profile import Profile

_QUICK: Final = Effort(nodes=3, each=1, names=512, groups=256, fewer=8, moves=False)
_VICTIMS: Final = 4
"""Pods that an event names."""


def help_for(profile: Profile, cluster: NodeCache, tried: Attempt) -> str:
    """Return the nearest node and what would help there as a sentence, "" if nothing is found quickly.

    Of a pod with a nominated node: that node, and the pods that are evicted there.
    """
    uid = tried.cycle.pod.uid
    if node := cluster.nominations.of(uid):
        return _nominated(cluster, uid, node)
    if tried.rejected is not None:
        return ""
    found = nearest(_LiveTrial(profile, cluster), tried.cycle.pod.pod, tried, _QUICK)
    return _nearest(found) if found else ""


def _nearest(found: NearestNode) -> str:
    """Return the amounts that the message has not named, and what would help."""
    lacks = "; ".join(found.amounts)
    helps = "; or ".join(one.text for one in found.changes)
    if not (lacks or helps):
        return ""
    return f"Nearest is {found.name}{f' ({lacks})' if lacks else ''}{f': {helps}' if helps else ''}."


def _nominated(cluster: NodeCache, uid: str, node: str) -> str:
    infos = (cluster.pod(victim) for victim in cluster.nominations.victims(uid))
    titles = sorted(info.pod.title for info in infos if info)
    if not titles:
        return f"Node {node} is nominated."
    more = f" and {len(titles) - _VICTIMS} more pods" if len(titles) > _VICTIMS else ""
    return f"Node {node} is nominated: waiting for {', '.join(titles[:_VICTIMS])}{more} to terminate."


@dataclass(slots=True)
class _LiveTrial:
    """The scheduler's own nodes, which stay as they are; see `nearest.Trying`."""

    profile: Profile
    cluster: NodeCache
    changed: NodeInfo | None = None

    def rejection(self, pod: Pod, node: str) -> Rejection | None:
        info = self.changed or self.cluster.get(node)
        assert info is not None
        only = frozenset({node})
        cycle, skipped, rejected = cycles.begin(self.profile, self.cluster, PodInfo.of(pod), only)
        filters = (plugin for plugin in self.profile.filters if plugin.name not in skipped)
        return rejected or first_rejection(filters, cycle, info)

    @contextmanager
    def node_as(self, node: Node) -> Iterator[None]:
        info = self.cluster.get(node.metadata.name)
        if info is not None and info.node is not node:
            self.changed = info.variant(info.pods, info.state)
            self.changed.node, self.changed.taints = node, tuple(taints_of(node))
        try:
            yield
        finally:
            self.changed = None

    @contextmanager
    def without(self, pods: Iterable[Pod]) -> Iterator[None]:
        gone = list(pods)
        if gone and self.changed is not None:
            self.changed = hypothetical.without(self.changed, map(PodInfo.of, gone))
        yield
