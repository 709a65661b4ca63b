"""A decision taken again on a cluster's present state, by the same filters, scores and admission."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec
from msgspec import structs

from corelane import node as nodes
from corelane.kube import keys, translate
from corelane.kube.agent_leases import Agents
from corelane.kube.meta import Object
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node.explain.pod_decision import PodDecision, Source, Verdict
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster import node_kinds
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.events import (
    NodeChanged,
    ObjectChanged,
    PodChanged,
    SchedulerEvent,
    TopologyChanged,
    Unwatched,
)
from corelane.scheduler.explain import nearest, record, report
from corelane.scheduler.framework.plugin import Rejection
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.queue import scheduling_queue

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
    """A core that knows a snapshot; what is tried on it goes through events, and is undone the same way."""

    profile: Profile
    snapshot: Snapshot
    core: SchedulerCore = field(init=False)

    def __post_init__(self) -> None:
        self.core = SchedulerCore(_NO_POD, self.profile)
        self.core.state.agents = self.snapshot.agents
        self._handle(NodeChanged(0, None, node) for node in self.snapshot.nodes.values())
        self._handle(TopologyChanged(0, None, topology) for topology in self.snapshot.topologies.values())
        self._handle(ObjectChanged(0, None, one) for one in self.snapshot.others)
        self._handle(Unwatched(0, plural, error) for plural, error in self.snapshot.unread.items())
        self._handle(PodChanged(0, None, pod) for pod in self.snapshot.pods.values())

    @property
    def cluster(self) -> NodeCache:
        """The trial's nodes."""
        return self.core.cluster

    def attempt(self, pod: Pod, only: str = "") -> Attempt:
        """Try to place a pod, on any node or on one."""
        names = frozenset({only}) if only else None
        return finalists.attempt(self.profile, self.core.cluster, PodInfo.of(pod), names)

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
        self._handle(PodChanged(0, pod, None) for pod in gone)
        released = [self._released(name, [pod.metadata.uid for pod in gone]) for name in names]
        changes = [change for change in released if change]
        self._handle(changes)
        try:
            yield
        finally:
            self._handle(TopologyChanged(0, change.new, change.old) for change in changes)
            self._handle(PodChanged(0, None, pod) for pod in gone)

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

    def _handle(self, events: Iterable[SchedulerEvent]) -> None:
        for event in events:
            self.core.handle(event)


_NAMES: Final = 200
"""Node names of each group."""
_RECORDS: Final = frozenset({keys.RESOURCE_STATUS, keys.CONTAINER_CPUSETS, keys.PLACEMENT_REASONS})


def decide_again(profile: Profile, snapshot: Snapshot, pod: Pod, now: datetime) -> PodDecision:
    """Return what would become of a pod now: see `decide`; an ended pod is not tried."""
    if pod.ended:
        why = f"phase {pod.status.phase}: {pod.status.reason or 'its containers have ended'}"
        return _untried(pod, now, Verdict.ENDED, why, node=pod.spec.node_name)
    decision, node = decide(Trial(profile, snapshot), pod, now), pod.status.nominated_node_name
    if decision.node or pod.spec.node_name or node not in snapshot.nodes:
        return decision
    # With pods that a pod with a nominated node waits for, no change is needed.
    pods = snapshot.pods.values()
    there = (one for one in pods if one.spec.node_name == node and one.metadata.deletion_timestamp)
    titles = sorted(one.title for one in there if one.spec.priority < pod.spec.priority)
    lacking = None if titles else decision.nearest
    return replace(decision, nominated=node, terminating=tuple(titles), nearest=lacking)


def with_today(
    record: PodDecision, profile: Profile, snapshot: Snapshot, pod: Pod, now: datetime
) -> PodDecision:
    """Add to a pending pod's record what would help on today's state."""
    if record.node or pod.spec.node_name:
        return record
    today = decide_again(profile, snapshot, pod, now)
    if today.node:
        return replace(record, notes=(*record.notes, f"on today's state the pod fits on node {today.node}"))
    return replace(
        record,
        nearest=today.nearest,
        nominated=today.nominated,
        terminating=today.terminating,
        notes=(*record.notes, *today.notes),
    )


def decided_by(decision: PodDecision, pod: Pod, scheduler: str) -> Iterator[str]:
    """Yield notes on whose decision it was, where it was not this scheduler's."""
    node, chosen = pod.spec.node_name, decision.node
    if decision.source is Source.RECORDED:
        return
    by = pod.metadata.annotations.get(keys.SCHEDULED_BY, "")
    name = pod.spec.scheduler_name
    if name != scheduler and not by:
        whose = f"the pod's scheduler is {name or 'not named'}, not {scheduler}"
        yield f"{whose}: the node and the scores are those that corelane would choose"
    elif node:
        yield "no record of the decision: the scheduler was not asked, was restarted, or has dropped it"
    if node and chosen and node != chosen:
        yield f"the pod is on node {node}; today, without it, node {chosen} would be chosen"


def decide(trial: Trial, pod: Pod, now: datetime) -> PodDecision:
    """Return what the scheduler would decide about a pod now; about a bound one, as if it were not bound."""
    info = PodInfo.of(pod)
    gates = filter(None, (scheduling_queue.answer(info, one) for one in trial.profile.pre_enqueue))
    if gate := next(gates, None):
        return _untried(pod, now, Verdict.NOT_TRIED, "; ".join(map(str, gate.reasons)))
    with ExitStack() as stack:
        if pod.spec.node_name:
            stack.enter_context(trial.without([pod]))
        unbound = unplaced(pod)
        tried = trial.attempt(unbound)
        made = record.record(now.timestamp(), 0, 0, tried, names=_NAMES)
        notes = report.of_kinds((info.name, info.cpus.kind) for info in trial.cluster.placeable())
        if tried.node is not None:
            notes, request = report.of_kinds([(made.node, made.kind)]), tried.cycle.pod.request
            if request is not None and tried.node.cpus.writes_cpus:
                _, decision = node_kinds.admit(tried.node.state, request)
                made.assignments = decision.assignments
                made.annotations = translate.reasons_annotation(decision.reasons)
        lacking = None if tried.node or tried.rejected else nearest.nearest_node(trial, unbound, tried)
        return PodDecision(
            pod.metadata.namespace,
            pod.metadata.name,
            pod.metadata.uid,
            Source.RECOMPUTED,
            report.rfc3339(now.timestamp()),
            Verdict.BOUND if pod.spec.node_name else Verdict.UNSCHEDULABLE,
            report.message(made),
            scheduler=pod.spec.scheduler_name,
            nearest=lacking,
            notes=tuple(notes),
            **report.parts(made),
        )


def _untried(pod: Pod, now: datetime, verdict: Verdict, why: str, node: str = "") -> PodDecision:
    meta, time = pod.metadata, report.rfc3339(now.timestamp())
    title, name = (meta.namespace, meta.name, meta.uid), pod.spec.scheduler_name
    return PodDecision(*title, Source.RECOMPUTED, time, verdict, why, scheduler=name, node=node)


def unplaced(pod: Pod) -> Pod:
    """Return a bound pod as it was before its binding; another as it is."""
    if not pod.spec.node_name:
        return pod
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key not in _RECORDS}
    meta, spec = structs.replace(pod.metadata, annotations=annotations), pod.spec
    return structs.replace(pod, metadata=meta, spec=structs.replace(spec, node_name=""))
