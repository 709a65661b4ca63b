"""Claims: pods counted on nodes, from Reserve and Permit before a binding to their release; and nominations.

What a claim changes about its node is reported to the queue, for the pods that wait for such a change, and to
the pods for which the node is nominated. Comparing a node before and after costs some tens of microseconds,
and is done only while some pod waits for a change of that kind. No I/O.

A nomination is what preemption decides. It lasts until the pod gets a node, is gone, or is refused without
hope on its nominated node. While it lasts, pods of lower and of equal priority leave its place free; and the
pod preempts no others while its victims terminate, or their CPUs are not released.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from corelane.kube import keys, translate
from corelane.kube.pod import Pod
from corelane.node import NodeState
from corelane.scheduler.binding.bindings import requests_changed
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.nodes import SKIP, SUCCESS, UNSCHEDULABLE, WAIT, NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import Answer
from corelane.scheduler.framework import changes
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, NodeSummary
from corelane.scheduler.framework.plugin import Cycle, Nomination, Rejection, Wait
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, Evict, PreBindWork, RecordPodEvent, SetCondition
from corelane.scheduler.queue.waiting import Waiting
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
    info = cluster.node(node)
    if answer is None or not info.cpus.writes_cpus:
        record = state.signature | translate.result_annotation(claimed.zone_cpus)
        replays = info.cpus.kind is NodeKind.KUBELET_REPLAY
        return Bind(pod.pod, node, record, work=work, in_order=replays and pod.shape.exclusive_cpus > 0)
    record = dict(state.signature)
    if claimed.pod.metadata.annotations.keys().isdisjoint(_RECORDS):
        if (annotations := answer.derived.get("annotations")) is None:
            annotations = answer.derived["annotations"] = _recorded(answer, claimed)
        record |= annotations  # Alike for all pods of a shape with the same answer.
    else:
        record |= _recorded(answer, claimed)  # A copied manifest has other annotations: they are overwritten.
    if (claimed.proposal or claimed.zone or claimed.numa_amounts) and info.ledger is not None:
        record |= {keys.LEDGER_GENERATION: str(info.ledger.generation)}
    return Bind(pod.pod, node, record, claimed.proposal, work)


def put_pod(state: SchedulerState, node: str, pod: PodInfo, now: float) -> None:
    """Count a pod on a node, and no longer on another."""
    before = state.cluster.node_of(pod.uid)
    if before not in {None, node}:
        release(state, pod.uid, now)
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


def release(state: SchedulerState, uid: str, now: float) -> None:
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
            try_nominated(self._state, change.node, self._now)


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


# Nominated nodes and evictions.


def nominate(
    state: SchedulerState, waiting: Waiting, nomination: Nomination, now: float
) -> Iterator[Evict | SetCondition]:
    """Nominate the node and evict the victims; pods of lower priority look for another node."""
    pod, node, nominations = waiting.info, nomination.node, state.cluster.nominations
    forget_nomination(state, waiting.uid, now)
    nominations.put(pod, node, nomination.victims)
    state.queue.nominate(waiting, node, now)
    for uid in nomination.victims:
        victim = None if uid in nominations.evicting else state.cluster.pod(uid)
        if victim is not None and not victim.pod.metadata.deletion_timestamp:
            nominations.evicting.add(uid)
            yield Evict(victim.pod, pod.pod, node)
    priority = pod.pod.spec.priority
    for lower in [other for other in nominations.on(node) if other.pod.spec.priority < priority]:
        forget_nomination(state, lower.uid, now)
        if pending := state.queue.get(lower.uid):  # It is tried again.
            state.queue.nominate(pending, "", now)
            yield SetCondition(pending.info.pod, "Unschedulable", pending.reason)


def forget_nomination(state: SchedulerState, uid: str, now: float, *, taken: str = "") -> None:
    """End a pod's nomination; what was kept free for it is free, unless the pod has `taken` that node."""
    nominations = state.cluster.nominations
    pod, node = nominations.get(uid), nominations.drop(uid)
    if node and node != taken:
        _report_nominated(state, ChangeKind.POD_REMOVED, node, pod, None, now)


def forget_ended(state: SchedulerState, uid: str, now: float) -> None:
    """Forget a pod that has ended, as a victim or while it was nominated."""
    state.cluster.nominations.evicting.discard(uid)
    forget_nomination(state, uid, now)


def eviction_failed(state: SchedulerState, uid: str, victim: str, now: float) -> None:
    """Try the pods that wait for a victim again after their back-off: it could not be evicted."""
    state.cluster.nominations.evicting.discard(victim)
    for preemptor in sorted({uid, *state.cluster.nominations.waiting_for(victim)}):
        state.queue.back_off(preemptor, now)


def try_nominated(state: SchedulerState, node: str, now: float) -> None:
    """Try the pods again for which a changed node is nominated: they may fit now, or never will."""
    for pod in list(state.cluster.nominations.on(node)):
        state.queue.activate(pod.uid, now)


def nominated_node_deleted(state: SchedulerState, node: str, now: float) -> None:
    """Try the pods again for which a node is nominated that is gone."""
    for pod in list(state.cluster.nominations.on(node)):
        state.cluster.nominations.drop(pod.uid)
        if waiting := state.queue.get(pod.uid):
            state.queue.nominate(waiting, "", now)


def nomination_changed(state: SchedulerState, old: Pod | None, pod: PodInfo, now: float) -> None:
    """Take over what the pod's status says, but not what this scheduler has written earlier itself."""
    nominations = state.cluster.nominations
    before, after = old.status.nominated_node_name if old else "", pod.pod.status.nominated_node_name
    current, waiting = nominations.of(pod.uid), state.queue.get(pod.uid)
    if current and not (after == "" and before == current):
        nominated = nominations.get(pod.uid)
        nominations.refresh(pod)
        if old is not None and requests_changed(old, pod.pod):
            _report_nominated(state, ChangeKind.POD_CHANGED, current, nominated, pod, now)
        return
    if current == after:
        return
    if after:
        nominations.put(pod, after)
    else:
        forget_nomination(state, pod.uid, now)
    if waiting:
        state.queue.nominate(waiting, after, now)


def _report_nominated(
    state: SchedulerState, kind: ChangeKind, node: str, old: PodInfo | None, new: PodInfo | None, now: float
) -> None:
    """A pod for which the node is nominated counts there otherwise, or no longer."""
    if not state.queue.listens(kind):
        state.queue.noted(kind, now)
        return
    after = changes.summary(state.cluster.get(node))
    state.queue.changed(ClusterChange(kind, node, old, new, after=after), now)


def preempted(victim: Pod, preemptor: Pod, node: str, *, claim_only: bool = False) -> RecordPodEvent:
    """Return the victim's event, as upstream's; with `claim_only` the victim was not bound, and lives on."""
    message = f"Preempted by pod {preemptor.metadata.uid} on node {node}"
    if claim_only:
        message += " (before it was bound; it is tried again)"
    return RecordPodEvent(victim, "Normal", "Preempted", message, action="Preempting", related=preemptor)
