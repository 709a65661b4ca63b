"""Pods counted on nodes, those about to be bound included; what that changes is told to the queue. No I/O."""

from collections.abc import Mapping
from typing import Final

from corelane.kube import keys, translate
from corelane.kube.pod import Pod
from corelane.node import NodeState
from corelane.scheduler import reserving
from corelane.scheduler.attempts import Attempt
from corelane.scheduler.cache.node_kinds import NodeKind
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.states import Answer
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, PreBindWork
from corelane.scheduler.plugins.cpus import admissions
from corelane.scheduler.preempting import Preemption
from corelane.scheduler.queue import SchedulingQueue, Waiting
from corelane.scheduler.queue.observing import Observed

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
        reserving.unreserve(profile, pod, node, self._cluster)

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
