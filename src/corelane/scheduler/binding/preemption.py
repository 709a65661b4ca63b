"""Nominated nodes and evictions, from what preemption decides to their end. No I/O.

A nomination lasts until the pod gets a node, is gone, or is refused without hope on its nominated node. While
it lasts, pods of lower and of equal priority leave its place free; and the pod preempts no others while its
victims terminate, or their CPUs are not released.
"""

from collections.abc import Iterator

from corelane.kube.pod import Pod
from corelane.scheduler.binding.bindings import requests_changed
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework import changes
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.framework.plugin import Nomination
from corelane.scheduler.instructions import Evict, RecordPodEvent, SetCondition
from corelane.scheduler.queue.waiting import Waiting
from corelane.scheduler.state import SchedulerState


def nominate(
    state: SchedulerState, waiting: Waiting, nomination: Nomination, now: float
) -> Iterator[Evict | SetCondition]:
    """Nominate the node and evict the victims; pods of lower priority look for another node."""
    pod, node, nominations = waiting.info, nomination.node, state.cluster.nominations
    forget(state, waiting.uid, now)
    nominations.put(pod, node, nomination.victims)
    state.queue.nominate(waiting, node, now)
    for uid in nomination.victims:
        victim = None if uid in nominations.evicting else state.cluster.pod(uid)
        if victim is not None and not victim.pod.metadata.deletion_timestamp:
            nominations.evicting.add(uid)
            yield Evict(victim.pod, pod.pod, node)
    priority = pod.pod.spec.priority
    for lower in [other for other in nominations.on(node) if other.pod.spec.priority < priority]:
        forget(state, lower.uid, now)
        if pending := state.queue.get(lower.uid):  # It is tried again.
            state.queue.nominate(pending, "", now)
            yield SetCondition(pending.info.pod, "Unschedulable", pending.reason)


def forget(state: SchedulerState, uid: str, now: float, *, taken: str = "") -> None:
    """End a pod's nomination; what was kept free for it is free, unless the pod has `taken` that node."""
    nominations = state.cluster.nominations
    pod, node = nominations.get(uid), nominations.drop(uid)
    if node and node != taken:
        _report_change(state, ChangeKind.POD_REMOVED, node, pod, None, now)


def forget_gone(state: SchedulerState, uid: str, now: float) -> None:
    """Forget a pod that has ended, as a victim or while it was nominated."""
    state.cluster.nominations.evicting.discard(uid)
    forget(state, uid, now)


def eviction_failed(state: SchedulerState, uid: str, victim: str, now: float) -> None:
    """Try the pods that wait for a victim again after their back-off: it could not be evicted."""
    state.cluster.nominations.evicting.discard(victim)
    for preemptor in sorted({uid, *state.cluster.nominations.waiting_for(victim)}):
        state.queue.back_off(preemptor, now)


def try_nominated(state: SchedulerState, node: str, now: float) -> None:
    """Try the pods again for which a changed node is nominated: they may fit now, or never will."""
    for pod in list(state.cluster.nominations.on(node)):
        state.queue.activate(pod.uid, now)


def node_deleted(state: SchedulerState, node: str, now: float) -> None:
    """Try the pods again for which a node is nominated that is gone."""
    for pod in list(state.cluster.nominations.on(node)):
        state.cluster.nominations.drop(pod.uid)
        if waiting := state.queue.get(pod.uid):
            state.queue.nominate(waiting, "", now)


def status_changed(state: SchedulerState, old: Pod | None, pod: PodInfo, now: float) -> None:
    """Take over what the pod's status says, but not what this scheduler has written earlier itself."""
    nominations = state.cluster.nominations
    before, after = old.status.nominated_node_name if old else "", pod.pod.status.nominated_node_name
    current, waiting = nominations.of(pod.uid), state.queue.get(pod.uid)
    if current and not (after == "" and before == current):
        nominated = nominations.get(pod.uid)
        nominations.refresh(pod)
        if old is not None and requests_changed(old, pod.pod):
            _report_change(state, ChangeKind.POD_CHANGED, current, nominated, pod, now)
        return
    if current == after:
        return
    if after:
        nominations.put(pod, after)
    else:
        forget(state, pod.uid, now)
    if waiting:
        state.queue.nominate(waiting, after, now)


def _report_change(
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
