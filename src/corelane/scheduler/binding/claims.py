"""Claims: pods counted on nodes, from Reserve and Permit before a binding to their release. No I/O.

What a claim changes about its node is reported to the queue, for the pods that wait for such a change, and to
the pods for which the node is nominated. Comparing a node before and after costs some tens of microseconds,
and is done only while some pod waits for a change of that kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from corelane.kube import keys, translate
from corelane.kube.pod import Pod
from corelane.node import NodeState
from corelane.scheduler.binding import preemption
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.nodes import SKIP, SUCCESS, UNSCHEDULABLE, WAIT, NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import Answer
from corelane.scheduler.framework import changes
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, NodeSummary
from corelane.scheduler.framework.plugin import Cycle, Rejection, Wait
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, PreBindWork
from corelane.scheduler.state import SchedulerState

LONGEST_WAIT: Final = 15 * 60.0
"""Seconds; upstream's `maxTimeout` of Permit."""
_COMPARED: Final = ChangeKind.NODE | ChangeKind.TOPOLOGY
_RECORDS: Final = (keys.RESOURCE_STATUS, keys.CONTAINER_CPUSETS)


def claim(
    state: SchedulerState,
    pod: PodInfo,
    node: str,
    answer: Answer | None,
    work: tuple[PreBindWork, ...],
    now: float,
) -> Bind:
    """Count the pod on its node, with the CPUs of the node's `answer`; return the binding, after `work`."""
    cluster = state.cluster
    with NodeComparison(state, ChangeKind.POD_ADDED, node, now, None, pod):
        claimed = cluster.claim(node, pod, answer)
    if answer is None or not cluster.writes_cpus(node):
        record = state.signature | translate.result_annotation(claimed.zone_cpus)
        info = cluster.get(node)
        replays = info is not None and info.cpus.kind is NodeKind.KUBELET_REPLAY
        return Bind(pod.pod, node, record, work=work, in_order=replays and pod.shape.exclusive_cpus > 0)
    record = dict(state.signature)
    if claimed.pod.metadata.annotations.keys().isdisjoint(_RECORDS):
        if (annotations := answer.derived.get("annotations")) is None:
            annotations = answer.derived["annotations"] = _recorded(answer, claimed)
        record |= annotations  # Alike for all pods of a shape with the same answer.
    else:
        record |= _recorded(answer, claimed)  # A copied manifest has other annotations: they are overwritten.
    if claimed.proposal or claimed.zone or claimed.numa_amounts:
        info = cluster.get(node)
        if info is not None and info.ledger is not None:
            record |= {keys.LEDGER_GENERATION: str(info.ledger.generation)}
    return Bind(pod.pod, node, record, claimed.proposal, work)


def put_pod(state: SchedulerState, node: str, pod: PodInfo, now: float) -> None:
    """Count a pod on a node, and no longer on another."""
    before = state.cluster.node_of(pod.uid)
    if before not in {None, node}:
        drop_pod(state, pod.uid, now)
    kind = ChangeKind.POD_CHANGED if before == node else ChangeKind.POD_ADDED
    with NodeComparison(state, kind, node, now, state.cluster.pod(pod.uid), pod):
        state.cluster.put_pod(node, pod)


def refresh_pod(state: SchedulerState, pod: Pod, now: float) -> None:
    """Take over a placed pod's status: zones of an exporter may count it from its start."""
    name = state.cluster.node_of(pod.metadata.uid)
    node = state.cluster.get(name) if name else None
    if node is None or node.cpus.kind is not NodeKind.ZONES:
        state.cluster.refresh_pod(pod)
        return
    with NodeComparison(state, ChangeKind.TOPOLOGY, node.name, now):
        state.cluster.refresh_pod(pod)


def drop_pod(state: SchedulerState, uid: str, now: float) -> None:
    """Count a pod on its node no longer."""
    pod, node = state.cluster.pod(uid), state.cluster.node_of(uid)
    if node is not None:
        with NodeComparison(state, ChangeKind.POD_REMOVED, node, now, pod):
            state.cluster.drop_pod(uid)


def _recorded(answer: Answer, claimed: PodInfo) -> Mapping[str, str]:
    decision, state = answer.decision, answer.state.state
    machine = state.machine if isinstance(state, NodeState) else None
    counted = isinstance(state, NodeState) and state.config.koordinator is not None
    amounts = claimed.numa_amounts if counted else None
    record = translate.proposal_annotations(claimed.proposal, claimed.pod, machine, claimed.zone, amounts)
    if claimed.proposal or claimed.zone or amounts:
        record |= translate.reasons_annotation(decision.reasons)
        record |= translate.resolved_spec(claimed.pod, decision.bind, required=decision.bind_required)
    return record


@dataclass(frozen=True, slots=True)
class Prepared:
    """The answers of the Reserve, Permit and PreBind plugins about a pod on its node."""

    rejection: Rejection | None = None
    """After a rejection nothing is reserved."""
    denied: bool = False
    """Whether a Permit plugin rejected the pod."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """Permit plugins that hold the binding, and for how long, in s."""
    work: tuple[PreBindWork, ...] = ()
    """Tasks of the shell before it binds the pod."""


def prepare(profile: Profile, cycle: Cycle, node: NodeInfo) -> Prepared:
    """Reserve, then ask the Permit and PreBind plugins; a rejection or an error undoes what was reserved."""
    try:
        prepared = _prepare(profile, cycle, node)
    except Exception:
        cycle.cluster.points.failed()
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
        raise
    if prepared.rejection:
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
    return prepared


def _prepare(profile: Profile, cycle: Cycle, node: NodeInfo) -> Prepared:
    points = cycle.cluster.points
    points.begin("Reserve")
    for reserving in profile.reserves:
        if rejection := reserving.reserve(cycle, node):
            points.end(UNSCHEDULABLE)
            return Prepared(rejection)
    points.end()
    points.begin("Permit")
    waits: dict[str, float] = {}
    for plugin in profile.permits:
        match plugin.permit(cycle, node):
            case Rejection() as denial:
                points.end(UNSCHEDULABLE)
                return Prepared(denial, denied=True)
            case Wait(seconds):
                waits[plugin.name] = min(max(seconds, 0.0), LONGEST_WAIT)
    points.end(WAIT if waits else SUCCESS)
    points.begin("PreBindPreFlight")
    answers = (preparing.pre_bind_work(cycle, node) for preparing in profile.pre_binds)
    work = tuple(part for part in answers if part is not None)
    points.end(SUCCESS if work else SKIP)
    return Prepared(waits=waits, work=work)


def unreserve(profile: Profile, pod: PodInfo, node: str, cluster: NodeCache) -> None:
    """Undo what is reserved, in reverse order; also the part of the others where a plugin raises an error."""
    points = cluster.points
    begun = points.now()
    for plugin in reversed(profile.reserves):
        try:
            plugin.unreserve(pod, node)
        except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
            cluster.faults.add(plugin.name, "unreserve", error)
    points.alone("Unreserve", profile.name, begun)


class NodeComparison:
    """Reports to the queue what the body of its `with` changes about a node.

    Of kinds NODE and TOPOLOGY those are reported that really changed; a change of a pod is reported as such.
    """

    __slots__ = ("_before", "_change", "_listening", "_now", "_state")

    def __init__(
        self,
        state: SchedulerState,
        kind: ChangeKind,
        node: str,
        now: float,
        old: object = None,
        new: object = None,
    ) -> None:
        """`old` and `new` are the object that changes: the pod, the node, or its topology."""
        self._state, self._change, self._now = state, ClusterChange(kind, node, old, new), now

    def __enter__(self) -> None:
        state, change = self._state, self._change
        self._listening = state.queue.listens(change.kind)
        self._before = changes.summary(state.cluster.get(change.node)) if self._listening else None

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is not None:
            return
        change, cluster, queue = self._change, self._state.cluster, self._state.queue
        if not self._listening:
            queue.noted(change.kind, self._now)
        else:
            after, kind = changes.summary(cluster.get(change.node)), change.kind
            if kind & _COMPARED:
                kind &= difference(self._before, after)
            if kind:
                change = ClusterChange(kind, change.node, change.old, change.new, self._before, after)
                queue.changed(change, self._now)
        if cluster.nominations:
            preemption.try_nominated(self._state, change.node, self._now)


def difference(before: NodeSummary | None, after: NodeSummary | None) -> ChangeKind:
    """Return what changed about a node, as far as it can help a pod."""
    if after is None:
        return ChangeKind.NOTHING if before is None else ChangeKind.NODE_REMOVED
    if before is None:
        return _COMPARED & ~ChangeKind.NODE_REMOVED
    kind = ChangeKind.NOTHING
    if any(amount > before.allocatable.get(name, 0) for name, amount in after.allocatable.items()):
        kind |= ChangeKind.NODE_ALLOCATABLE
    if after.labels != before.labels:
        kind |= ChangeKind.NODE_LABELS
    if (after.taints, after.unschedulable) != (before.taints, before.unschedulable):
        kind |= ChangeKind.NODE_TAINTS
    if after.amplified != before.amplified or changes.cpus_differ(before, after):
        kind |= ChangeKind.TOPOLOGY
    return kind
