"""A cluster of a caller's own, on which changes can be tried: made of API objects, by the same core.

Everything is tried through the core's events, and undone the same way.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.agent_leases import Agents
from corelane.kube.meta import Object
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node import NodeState
from corelane.scheduler import cycle as cycles
from corelane.scheduler.cache.node_kinds import NodeKind
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cycle import Attempt
from corelane.scheduler.events import NodeChanged, PodChanged, SchedulerEvent, TopologyChanged, Unwatched
from corelane.scheduler.framework.plugin import Rejection
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.object_watches import EVENTS
from corelane.scheduler.scheduling import SchedulerCore

_NO_POD: Final = "-"
"""schedulerName of no pod: the trial's core queues and binds nothing."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster's objects, as they were read."""

    nodes: Mapping[str, Node]
    topologies: Mapping[str, NodeResourceTopology]
    pods: Mapping[str, Pod]
    """By UID, those that have not ended."""
    others: tuple[Object, ...] = ()
    """Further objects that the scheduler looks at: namespaces, claims, volumes."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Kinds (plural names) that could not be read, and why."""
    agents: Agents = field(default_factory=Agents)
    """The nodes' agents, judged when the snapshot was taken."""


@dataclass(slots=True)
class Trial:
    """A core that knows a snapshot, and takes changes back."""

    profile: Profile
    snapshot: Snapshot
    core: SchedulerCore = field(init=False)

    def __post_init__(self) -> None:
        self.core = SchedulerCore(_NO_POD, self.profile)
        self.core.agents = self.snapshot.agents
        self._tell(NodeChanged(0, None, node) for node in self.snapshot.nodes.values())
        self._tell(TopologyChanged(0, None, topology) for topology in self.snapshot.topologies.values())
        self._tell(EVENTS[type(one)](0, None, one) for one in self.snapshot.others)
        self._tell(Unwatched(0, plural, error) for plural, error in self.snapshot.unread.items())
        self._tell(PodChanged(0, None, pod) for pod in self.snapshot.pods.values())

    @property
    def cluster(self) -> NodeCache:
        """The trial's nodes."""
        return self.core.cluster

    def attempt(self, pod: Pod, only: str = "") -> Attempt:
        """Try to place a pod, on any node or on one."""
        names = frozenset({only}) if only else None
        return cycles.attempt(self.profile, self.core.cluster, PodInfo.of(pod), names)

    def rejection(self, pod: Pod, node: str) -> Rejection | None:
        """Return the first rejection of a pod on a node; None where it fits."""
        tried = self.attempt(pod, node)
        return tried.rejected or tried.rejections.get(node)

    @contextmanager
    def node_as(self, node: Node) -> Iterator[None]:
        """Let a node be another within the context."""
        before = self.snapshot.nodes[node.metadata.name]
        self.core.handle(NodeChanged(0, before, node))
        try:
            yield
        finally:
            self.core.handle(NodeChanged(0, node, before))

    @contextmanager
    def without(self, pods: Iterable[Pod]) -> Iterator[None]:
        """Remove pods from their node, and from what its agent published, within the context."""
        gone = list(pods)
        names = {pod.spec.node_name for pod in gone} - {""}
        self._tell(PodChanged(0, pod, None) for pod in gone)
        released = [self._released(name, [pod.metadata.uid for pod in gone]) for name in names]
        changes = [change for change in released if change]
        self._tell(changes)
        try:
            yield
        finally:
            self._tell(TopologyChanged(0, change.new, change.old) for change in changes)
            self._tell(PodChanged(0, None, pod) for pod in gone)

    def _released(self, name: str, uids: Iterable[str]) -> TopologyChanged | None:
        """Return the topology that an agent would publish once these pods had ended."""
        info, published = self.core.cluster.get(name), self.snapshot.topologies.get(name)
        if info is None or published is None or info.cpus.kind is not NodeKind.LEDGER:
            return None
        state = info.cpus.state
        if not isinstance(state, NodeState):
            return None
        for uid in uids:
            state = nodes.release(state, uid) if uid in state.pods else state
        made = msgspec.json.encode(translate.topology(state.machine, name, state, leased=info.cpus.leased))
        return TopologyChanged(0, published, msgspec.json.decode(made, type=NodeResourceTopology))

    def _tell(self, events: Iterable[SchedulerEvent]) -> None:
        for event in events:
            self.core.handle(event)
