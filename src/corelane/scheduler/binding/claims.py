"""Pods counted on nodes, those about to be bound included; what that changes is told to the queue. No I/O."""

from collections.abc import Callable, Mapping
from typing import Final

from corelane.kube import keys, translate
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.binding.preemption import Preemption
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.nodes import SKIP, SUCCESS, UNSCHEDULABLE, WAIT, NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import Answer
from corelane.scheduler.events import (
    BudgetChanged,
    ClaimChanged,
    CSIDriverChanged,
    CSINodeChanged,
    NamespaceChanged,
    ObjectChanged,
    ServiceChanged,
    StorageCapacityChanged,
    StorageClassChanged,
    Unwatched,
    VolumeAttachmentChanged,
    VolumeChanged,
)
from corelane.scheduler.framework import changes
from corelane.scheduler.framework.attempts import Attempt
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, NodeSummary
from corelane.scheduler.framework.plugin import Cycle, Rejection, Wait
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, PreBindWork
from corelane.scheduler.plugins.cpus import admissions
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue
from corelane.scheduler.queue.waiting import Waiting

LONGEST_WAIT: Final = 15 * 60.0
"""Seconds; upstream's `maxTimeout` of Permit."""


def reserve(profile: Profile, cycle: Cycle, node: NodeInfo) -> Rejection | None:
    """Let each plugin book what it keeps for the pod; if one rejects or raises an error, undo all."""
    points = cycle.cluster.points
    points.begin("Reserve")
    try:
        for plugin in profile.reserves:
            if rejection := plugin.reserve(cycle, node):
                points.end(UNSCHEDULABLE)
                unreserve(profile, cycle.pod, node.name, cycle.cluster)
                return rejection
    except Exception:
        points.failed()
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
        raise
    points.end()
    return None


def unreserve(profile: Profile, pod: PodInfo, node: str, cluster: NodeCache) -> None:
    """Undo `reserve`, in reverse order; also the part of the others where a plugin raises an error."""
    points = cluster.points
    begun = points.now()
    for plugin in reversed(profile.reserves):
        try:
            plugin.unreserve(pod, node)
        except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
            cluster.faults.add(plugin.name, "unreserve", error)
    points.alone("Unreserve", profile.name, begun)


def permit(profile: Profile, cycle: Cycle, node: NodeInfo) -> Rejection | dict[str, float]:
    """Ask all Permit plugins: the first rejection, or the plugins that hold the binding, for how long (s).

    Where one raises an error, what was reserved is undone.
    """
    points = cycle.cluster.points
    points.begin("Permit")
    try:
        waits = _waits(profile, cycle, node)
    except Exception:
        points.failed()
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
        raise
    points.end(UNSCHEDULABLE if isinstance(waits, Rejection) else WAIT if waits else SUCCESS)
    return waits


def _waits(profile: Profile, cycle: Cycle, node: NodeInfo) -> Rejection | dict[str, float]:
    waits: dict[str, float] = {}
    for plugin in profile.permits:
        match plugin.permit(cycle, node):
            case Rejection() as rejection:
                return rejection
            case Wait(seconds):
                waits[plugin.name] = min(max(seconds, 0.0), LONGEST_WAIT)
    return waits


def reserve_and_permit(profile: Profile, cycle: Cycle, node: NodeInfo) -> Rejection | dict[str, float]:
    """Reserve, then ask the Permit plugins; after a rejection nothing is reserved."""
    if rejection := reserve(profile, cycle, node):
        return rejection
    waits = permit(profile, cycle, node)
    if isinstance(waits, Rejection):
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
    return waits


def pre_bind_work(profile: Profile, cycle: Cycle, node: NodeInfo) -> tuple[PreBindWork, ...]:
    """Return what the shell has to do before it binds the pod to the node.

    Where a plugin raises an error, what was reserved is undone.
    """
    points = cycle.cluster.points
    points.begin("PreBindPreFlight")
    try:
        every = [plugin.pre_bind_work(cycle, node) for plugin in profile.pre_binds]
    except Exception:
        points.failed()
        unreserve(profile, cycle.pod, node.name, cycle.cluster)
        raise
    work = tuple(one for one in every if one is not None)
    points.end(SUCCESS if work else SKIP)
    return work


# Makes changes for the queue of what happens to a node: the node is compared before and after.
#
# Comparing costs some tens of microseconds, and is done only while some pod waits for a change of that kind.


_COMPARED = ChangeKind.NODE | ChangeKind.TOPOLOGY


class Observed:
    """Reports to the queue what the body of its `with` changes about the node of the change.

    Of kinds NODE and TOPOLOGY those are reported that really changed; a change of a pod is reported as such.
    """

    __slots__ = ("_before", "_change", "_listening", "_nodes", "_now", "_queue", "_then")

    def __init__(
        self,
        queue: SchedulingQueue,
        nodes: NodeCache,
        change: ClusterChange,
        now: float,
        then: Callable[[str, float], None],
    ) -> None:
        """`then` is called last, with the name of the node and the time."""
        self._queue, self._nodes, self._change, self._now, self._then = queue, nodes, change, now, then

    def __enter__(self) -> None:
        self._listening = self._queue.listens(self._change.kind)
        self._before = changes.summary(self._nodes.get(self._change.node)) if self._listening else None

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            self._report()
            self._then(self._change.node, self._now)

    def _report(self) -> None:
        change = self._change
        if not self._listening:
            self._queue.noted(change.kind, self._now)
            return
        after, kind = changes.summary(self._nodes.get(change.node)), change.kind
        if kind & _COMPARED:
            kind &= difference(self._before, after)
        if kind:
            found = ClusterChange(kind, change.node, change.old, change.new, self._before, after)
            self._queue.changed(found, self._now)


def difference(before: NodeSummary | None, after: NodeSummary | None) -> ChangeKind:
    """Return what changed about a node, as far as it can help a pod."""
    if after is None:
        return ChangeKind.NOTHING if before is None else ChangeKind.NODE_REMOVED
    if before is None:
        return _COMPARED & ~ChangeKind.NODE_REMOVED
    kind = ChangeKind.NOTHING
    if changes.allocatable_grew(before, after):
        kind |= ChangeKind.NODE_ALLOCATABLE
    if after.labels != before.labels:
        kind |= ChangeKind.NODE_LABELS
    if (after.taints, after.unschedulable) != (before.taints, before.unschedulable):
        kind |= ChangeKind.NODE_TAINTS
    if after.amplified != before.amplified or changes.cpus_differ(before, after):
        kind |= ChangeKind.TOPOLOGY
    return kind


_RECORDS: Final = (keys.RESOURCE_STATUS, keys.CONTAINER_CPUSETS)


class Claims:
    """Counts pods on nodes."""

    def __init__(
        self, cluster: NodeCache, queue: SchedulingQueue, preemption: Preemption, identity: str
    ) -> None:
        """`identity` names this replica in every binding."""
        self._cluster = cluster
        self._queue = queue
        self._preemption = preemption
        self._signature = {keys.SCHEDULED_BY: identity} if identity else {}

    def unreserve(self, profile: Profile, pod: PodInfo, node: str) -> None:
        """Undo what the profile's plugins have reserved for the pod."""
        unreserve(profile, pod, node, self._cluster)

    def put_pod(self, node: str, info: PodInfo, now: float) -> None:
        """Count a pod on a node, and no longer on another."""
        before = self._cluster.node_of(info.uid)
        if before not in {None, node}:
            self.drop_pod(info.uid, now)
        kind = ChangeKind.POD_CHANGED if before == node else ChangeKind.POD_ADDED
        with self.observed(kind, node, now, self._cluster.pod(info.uid), info):
            self._cluster.put_pod(node, info)

    def refresh_pod(self, pod: Pod, now: float) -> None:
        """Take over a placed pod's status: zones of an exporter may count it from its start."""
        name = self._cluster.node_of(pod.metadata.uid)
        node = self._cluster.get(name) if name else None
        if node is None or node.cpus.kind is not NodeKind.ZONES:
            self._cluster.refresh_pod(pod)
            return
        with self.observed(ChangeKind.TOPOLOGY, node.name, now, None, None):
            self._cluster.refresh_pod(pod)

    def drop_pod(self, uid: str, now: float) -> None:
        """Count a pod on its node no longer."""
        info, node = self._cluster.pod(uid), self._cluster.node_of(uid)
        if node is not None:
            with self.observed(ChangeKind.POD_REMOVED, node, now, info, None):
                self._cluster.drop_pod(uid)

    def observed(self, kind: ChangeKind, node: str, now: float, old: object, new: object) -> Observed:
        """Report what the body of a `with` changes about a node to the queue, and to nominated pods."""
        change = ClusterChange(kind, node, old, new)
        return Observed(self._queue, self._cluster, change, now, self._preemption.node_changed)

    def claim(self, waiting: Waiting, attempt: Attempt, work: tuple[PreBindWork, ...], now: float) -> Bind:
        """Count the pod on its node, with its CPUs, and return the binding, before which `work` is done."""
        assert attempt.node is not None
        info, cycle, node = waiting.info, attempt.cycle, attempt.node.name
        answer = admissions(cycle).admitted.get(node)
        with self.observed(ChangeKind.POD_ADDED, node, now, None, info):
            claimed = self._cluster.claim(node, info, answer)
        if answer is None or not self._cluster.writes_cpus(node):
            record = self._signature | translate.result_annotation(claimed.zone_cpus)
            return Bind(info.pod, node, record, work=work, in_order=self._in_order(info, node))
        record = self._signature | dict(_annotations(answer, claimed))
        if claimed.proposal or claimed.zone or claimed.numa_amounts:
            record |= self._decided_on(node)
        return Bind(info.pod, node, record, claimed.proposal, work)

    def _in_order(self, info: PodInfo, node: str) -> bool:
        """Whether the node's kubelet allocates CPUs for the pod, in the order of what it sees."""
        there = self._cluster.get(node)
        return there is not None and there.cpus.kind is NodeKind.KUBELET_REPLAY and info.exclusive_cpus > 0

    def _decided_on(self, node: str) -> dict[str, str]:
        """The generation of the node's published ledger, as an annotation."""
        info = self._cluster.get(node)
        ledger = info.ledger if info else None
        return {keys.LEDGER_GENERATION: str(ledger.generation)} if ledger else {}


def _annotations(answer: Answer, claimed: PodInfo) -> Mapping[str, str]:
    """The annotations of a binding, alike for all pods of a shape with the same answer."""
    if not claimed.pod.metadata.annotations.keys().isdisjoint(_RECORDS):
        return _recorded(answer, claimed)  # What a copied manifest says is overwritten.
    known: Mapping[str, str] | None = answer.derived.get("annotations")
    if known is None:
        known = answer.derived["annotations"] = _recorded(answer, claimed)
    return known


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


def apply(cluster: NodeCache, event: ObjectChanged) -> ClusterChange | None:
    """Update the cache, and return the change that may help pods in the queue."""
    one = event.new or event.old
    assert one is not None
    kind, name = ChangeKind.NOTHING, one.metadata.name
    match event:
        case NamespaceChanged():
            if cluster.objects.put_namespace(name, event.new):
                cluster.index.namespace_changed(name)
                kind = ChangeKind.NAMESPACE
        case ClaimChanged():
            cluster.objects.put_claim(one.key, event.new)
            kind = ChangeKind.CLAIM
        case VolumeChanged():
            cluster.objects.put_volume(name, event.new)
            kind = ChangeKind.VOLUME
        case StorageClassChanged():
            cluster.objects.put_class(name, event.new)
            kind = ChangeKind.STORAGE_CLASS
        case ServiceChanged():
            if cluster.objects.put_service(one.key, event.new):
                kind = ChangeKind.SERVICE
        case BudgetChanged():
            cluster.budgets.put(one.key, event.new)
        case CSINodeChanged():
            cluster.objects.put_csi_node(name, event.new)
            kind = ChangeKind.CSI_NODE
        case CSIDriverChanged():
            cluster.objects.put_csi_driver(name, event.new)
            kind = ChangeKind.CSI_DRIVER
        case StorageCapacityChanged():
            cluster.objects.put_capacity(one.key, event.new)
            kind = ChangeKind.STORAGE_CAPACITY
        case VolumeAttachmentChanged():
            cluster.objects.put_attachment(name, event.new)
            kind = ChangeKind.VOLUME_ATTACHMENT
    return ClusterChange(kind, "", event.old, event.new) if kind else None


def unwatched(cluster: NodeCache, event: Unwatched) -> ClusterChange | None:
    """Note that objects of a kind cannot be listed and watched; or can be again, which may help pods."""
    kinds = cluster.objects.unwatched
    before = kinds.pop(event.plural, None)
    if event.error:
        kinds[event.plural] = event.error
        return None
    return ClusterChange(ChangeKind.WATCHED) if before else None
