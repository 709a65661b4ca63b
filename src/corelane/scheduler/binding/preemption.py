"""Carries out what preemption decided: nominated nodes, evictions, and their end. No I/O.

A nomination lasts until the pod gets a node, is gone, or is refused without hope on its nominated node. While
it lasts, pods of lower and of equal priority leave its place free; and the pod preempts no others while its
victims terminate, or their CPUs are not released.
"""

from collections.abc import Iterator

from corelane.kube.pod import Pod
from corelane.scheduler.binding.bindings import requests_changed
from corelane.scheduler.cluster.nodes import SUCCESS, UNSCHEDULABLE, NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework import changes
from corelane.scheduler.framework.attempts import Attempt
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.framework.plugin import Nomination, NotNominated
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Evict, Instruction, RecordPodEvent, SetCondition
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue
from corelane.scheduler.queue.waiting import Waiting


def preempted(victim: Pod, preemptor: Pod, node: str, *, claim_only: bool = False) -> RecordPodEvent:
    """Return the victim's event, as upstream's; with `claim_only` the victim was not bound, and lives on."""
    message = f"Preempted by pod {preemptor.metadata.uid} on node {node}"
    if claim_only:
        message += " (before it was bound; it is tried again)"
    return RecordPodEvent(victim, "Normal", "Preempted", message, action="Preempting", related=preemptor)


class Preemption:
    """Nominations and evictions of one scheduler."""

    def __init__(self, cluster: NodeCache, queue: SchedulingQueue) -> None:
        self._cluster = cluster
        self._queue = queue

    def post_filter(self, profile: Profile, attempt: Attempt) -> Nomination | NotNominated:
        """Ask the PostFilter plugins until one nominates a node; messages of the others are joined."""
        points = self._cluster.points
        points.begin("PostFilter")
        result = self._asked(profile, attempt)
        points.end(SUCCESS if isinstance(result, Nomination) else UNSCHEDULABLE)
        return result

    @staticmethod
    def _asked(profile: Profile, attempt: Attempt) -> Nomination | NotNominated:
        messages, keep, plugins = [], False, frozenset[str]()
        for plugin in profile.post_filters:
            result = plugin.post_filter(attempt.cycle, attempt.rejections)
            if isinstance(result, Nomination):
                return result
            if result.unfinished:
                return result
            messages.append(result.message)
            keep |= result.keep
            plugins |= result.plugins
        return NotNominated(" ".join(messages), keep=keep, plugins=plugins)

    def carry_out(
        self, waiting: Waiting, result: Nomination | NotNominated, now: float
    ) -> Iterator[Instruction]:
        """Nominate the node and evict the victims; or clear the nomination that no longer helps."""
        if isinstance(result, NotNominated):
            if not result.keep:
                self.forget(waiting.uid, now)
                self._queue.nominate(waiting, "", now)
            return
        info, nominations = waiting.info, self._cluster.nominations
        self.forget(waiting.uid, now)
        nominations.put(info, result.node, result.victims)
        self._queue.nominate(waiting, result.node, now)
        for uid in result.victims:
            victim = None if uid in nominations.evicting else self._cluster.pod(uid)
            if victim is not None and not victim.pod.metadata.deletion_timestamp:
                nominations.evicting.add(uid)
                yield Evict(victim.pod, info.pod, result.node)
        yield from self._clear_lower(info, result.node, now)

    def failed(self, uid: str, victim: str, now: float) -> None:
        """A victim could not be evicted: the pods that wait for it are tried again after their back-off."""
        self._cluster.nominations.evicting.discard(victim)
        for waiting in sorted({uid, *self._cluster.nominations.waiting_for(victim)}):
            self._queue.back_off(waiting, now)

    def gone(self, uid: str, now: float) -> None:
        """A pod has ended, as a victim or while it was nominated."""
        self._cluster.nominations.evicting.discard(uid)
        self.forget(uid, now)

    def forget(self, uid: str, now: float, *, taken: str = "") -> None:
        """End a pod's nomination; what was kept free for it is free, unless the pod has `taken` that node."""
        info, node = self._cluster.nominations.get(uid), self._cluster.nominations.drop(uid)
        if node and node != taken:
            self._changed(ChangeKind.POD_REMOVED, node, info, None, now)

    def _changed(
        self, kind: ChangeKind, node: str, old: PodInfo | None, new: PodInfo | None, now: float
    ) -> None:
        """A pod for which the node is nominated counts there otherwise, or no longer."""
        if not self._queue.listens(kind):
            self._queue.noted(kind, now)
            return
        after = changes.summary(self._cluster.get(node))
        self._queue.changed(ClusterChange(kind, node, old, new, after=after), now)

    def node_changed(self, node: str, now: float) -> None:
        """Pods nominated for a node are tried again: there they may fit now, or have no hope any more."""
        if not self._cluster.nominations:
            return
        for info in list(self._cluster.nominations.on(node)):
            self._queue.activate(info.uid, now)

    def node_deleted(self, node: str, now: float) -> None:
        """Pods nominated for a node that is gone are tried again."""
        for info in list(self._cluster.nominations.on(node)):
            self._cluster.nominations.drop(info.uid)
            if waiting := self._queue.get(info.uid):
                self._queue.nominate(waiting, "", now)

    def status_changed(self, old: Pod | None, info: PodInfo, now: float) -> None:
        """Take over what the pod's status says, but not what this scheduler has written earlier itself."""
        nominations = self._cluster.nominations
        before, after = old.status.nominated_node_name if old else "", info.pod.status.nominated_node_name
        current, waiting = nominations.of(info.uid), self._queue.get(info.uid)
        if current and not (after == "" and before == current):
            known = nominations.get(info.uid)
            nominations.refresh(info)
            if old is not None and requests_changed(old, info.pod):
                self._changed(ChangeKind.POD_CHANGED, current, known, info, now)
            return
        if current == after:
            return
        if after:
            nominations.put(info, after)
        else:
            self.forget(info.uid, now)
        if waiting:
            self._queue.nominate(waiting, after, now)

    def _clear_lower(self, info: PodInfo, node: str, now: float) -> Iterator[Instruction]:
        """Pods of lower priority may not fit any more on the node nominated for them: they look elsewhere."""
        priority = info.pod.spec.priority
        lower = [one for one in self._cluster.nominations.on(node) if one.pod.spec.priority < priority]
        for one in lower:
            self.forget(one.uid, now)
            if waiting := self._queue.get(one.uid):
                self._queue.nominate(waiting, "", now)
                yield SetCondition(waiting.info.pod, "Unschedulable", waiting.reason)
