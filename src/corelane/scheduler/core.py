"""The scheduler's decisions: `handle(event) -> instructions`. No I/O, no clock: events carry the time, in s.

Theory of operation. A pod of this scheduler without a node waits in the queue. `CycleDue` takes the first
ready one through a cycle: pre-filters, filters, scores. If a node fits, the pod is claimed there (its CPUs
are taken in memory) and a Bind goes out; else it is parked with the reason. A claim lasts until the API
server shows the pod bound, which makes it an ordinary pod of that node, or until the binding has failed: the
pod is deleted, or the server rejected the binding; `bindings` holds the rules. Every pod of this scheduler
is in the queue or being bound. Changes of a node are reported to the queue, for the pods that wait there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from corelane.kube import keys
from corelane.kube.meta import Object
from corelane.kube.objects import Lease, Namespace, PodDisruptionBudget, Service
from corelane.kube.pod import Pod
from corelane.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from corelane.kube.translate.crane import CraneTopology
from corelane.scheduler.binding import claims, steps
from corelane.scheduler.binding.bindings import (
    as_sent,
    expected_node,
    is_claimed,
    requests_changed,
    status_changed,
    stopped,
)
from corelane.scheduler.binding.claims import NodeComparison, Prepared
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.objects import ClusterObjects
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cycle import finalists
from corelane.scheduler.cycle.attempts import Attempt, message
from corelane.scheduler.cycle.finalists import Attempts
from corelane.scheduler.events import (
    AgentLeasesWatched,
    BindFailed,
    BindRequested,
    BindSucceeded,
    CycleDue,
    EvictFailed,
    LookUpFailed,
    NodeChanged,
    ObjectChanged,
    PermitDecided,
    PodChanged,
    PodLookedUp,
    PreBindFailed,
    SchedulerEvent,
    TopologyChanged,
    Unwatched,
)
from corelane.scheduler.failures import (
    attempt_failed,
    explain,
    note_fault,
    retry_after_error,
    unknown_cpus,
)
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.framework.plugin import Nomination, NotNominated
from corelane.scheduler.framework.profile import DEFAULT_NAME, Profile, united
from corelane.scheduler.instructions import Bind, Evict, Instruction, RecordNodeEvent
from corelane.scheduler.plugins import default
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue
from corelane.scheduler.queue.waiting import Backoff, Waiting
from corelane.scheduler.state import DecisionReporter, SchedulerState

SETTLED_AT_ONCE: Final = 512
"""Steps of `NodeCache.settle` in one CycleDue, about 10 ms: after a start, all nodes are new."""
_PARKED_AT_ONCE: Final = 64
"""Pods that are parked in one CycleDue because an equal one fits nowhere."""


class SchedulerCore:
    """The scheduler's state and its transitions; see the theory of operation."""

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        profile: Profile | None = None,
        decisions: DecisionReporter | None = None,
        identity: str = "",
        *,
        profiles: Sequence[Profile] = (),
        backoff: Backoff | None = None,
    ) -> None:
        """`identity` names this replica in every binding; `profiles` stand in for `name` and `profile`."""
        self.profiles: Mapping[str, Profile] = {each.name: each for each in profiles} or {
            name: profile or default.profile(name)
        }
        """By the schedulerName of the pods that they decide about."""
        self.name, self.profile = next(iter(self.profiles.items()))
        self.decisions = DecisionReporter() if decisions is None else decisions
        self.cluster = NodeCache()
        self.cluster.faults.report = self.decisions.plugin_failed
        self.queue = SchedulingQueue(
            united(tuple(self.profiles.values())), self.cluster, backoff, self.decisions.queued
        )
        for each in self.profiles.values():
            each.helped_by(plugin.name for plugin in each.plugins)
            for fault in each.faults:
                self.cluster.faults.add(*fault)
        signature = {keys.SCHEDULED_BY: identity} if identity else {}
        self.state = SchedulerState(
            self.profiles, self.decisions, self.cluster, self.queue, Attempts(self.cluster), signature
        )
        self.bindings = self.state.bindings

    def handle(self, event: SchedulerEvent) -> list[Instruction]:
        """Update the state by an event, and return what to do now."""
        if isinstance(event, ObjectChanged) and isinstance(lease := event.new or event.old, Lease):
            _agent_lease_changed(self.state, lease, event)  # mostly renewals, of which there are many
            return []
        if not isinstance(event, CycleDue):
            self.state.attempts.clear()
        return list(_transition(self.state, event))

    def ready(self, now: float) -> bool:
        """Return whether a CycleDue would do something now."""
        times = (self.bindings.next_time(), self.state.agents.next_time())
        return self.queue.has_ready(now) or any(due is not None and due <= now for due in times)

    def next_time(self) -> float | None:
        """Return when a CycleDue will do something without another event; None for never."""
        times = (self.bindings.next_time(), self.queue.next_time(), self.state.agents.next_time())
        return min((time for time in times if time is not None), default=None)

    def pending(self) -> dict[str, str]:
        """Return UID to the reason why it has no node, for every pod of this scheduler without one."""
        queued = {waiting.info.uid: waiting.pending_because for waiting in self.queue}
        return queued | {binding.uid: binding.doing for binding in self.bindings}


def _transition(state: SchedulerState, event: SchedulerEvent) -> Iterator[Instruction]:
    match event:
        case PodChanged():
            yield from _pod_changed(state, event)
        case CycleDue(now):
            yield from _due(state, now)
            yield from _schedule_next(state, now)
        case NodeChanged():
            yield from _node_changed(state, event)
        case TopologyChanged():
            yield from _topology_changed(state, event)
        case ObjectChanged():
            _object_changed(state, event)
        case AgentLeasesWatched():
            state.agents.watch(event.now, works=event.works)
        case Unwatched():
            _unwatched(state, event)
        case BindSucceeded() | BindFailed() | PreBindFailed() | PodLookedUp() | LookUpFailed():
            if isinstance(event, BindFailed) and event.outcome != "rejected":
                state.decisions.binding_open(event.now, event.uid, event.outcome, event.message)
            if step := state.bindings.handle(event):
                yield from steps.carry_out(state, step, event.now)
        case PermitDecided():
            yield from _permit_decided(state, event)
        case EvictFailed():
            claims.eviction_failed(state, event.uid, event.victim, event.now)
        case BindRequested():
            yield from _bind_requested(state, event)


# Pods.


def _pod_changed(state: SchedulerState, event: PodChanged) -> Iterator[Instruction]:
    pod = event.new
    if pod is None or pod.ended:
        last = event.new or event.old
        assert last is not None
        yield from _remove(state, last.metadata.uid, event.now)
    elif pod.spec.node_name:
        yield from _placed(state, event.old, pod, event.now)
    elif state.schedules(pod):
        yield from _unplaced(state, event.old, pod, event.now)


def _remove(state: SchedulerState, uid: str, now: float) -> Iterator[Instruction]:
    state.decisions.gone(now, uid)
    state.queue.remove(uid, now)
    if binding := state.bindings.drop(uid):
        steps.unreserve(state, binding)
        yield from stopped(binding, "the pod was deleted")
    claims.release(state, uid, now)
    claims.forget_ended(state, uid, now)


def _placed(state: SchedulerState, old: Pod | None, pod: Pod, now: float) -> Iterator[Instruction]:
    """The pod has a node, through this scheduler or another."""
    uid, node = pod.metadata.uid, pod.spec.node_name
    claimed = state.cluster.node_of(uid)
    if claimed == node and old is not None and not requests_changed(old, pod):
        if status_changed(old, pod):
            claims.refresh_pod(state, pod, now)
        return
    binding = state.bindings.drop(uid)
    if binding and claimed == node and is_claimed(binding, pod):
        claims.refresh_pod(state, pod, now)
        yield from steps.bound(state, binding, now)
        return
    state.queue.remove(uid, now)
    info, before = PodInfo.of(pod), state.cluster.pod(uid)
    claims.put_pod(state, node, info, now)
    yield from unknown_cpus(before, info)
    claims.forget_nomination(state, uid, now, taken=node)
    if binding and as_sent(binding, pod):
        yield from steps.bound(state, binding, now)
    elif binding:
        steps.unreserve(state, binding)
        state.decisions.binding_ended(now, uid, "bound-elsewhere", node)
        yield from stopped(binding, f"the pod is on node {node}")


def _unplaced(state: SchedulerState, old: Pod | None, pod: Pod, now: float) -> Iterator[Instruction]:
    uid = pod.metadata.uid
    if pod.metadata.deletion_timestamp:
        yield from _remove(state, uid, now)
        return
    info = PodInfo.of(pod)
    if binding := state.bindings.get(uid):
        binding.waiting.info = info
        return
    if uid not in state.queue:
        state.queue.add(info, now)
    elif old is None or requests_changed(old, pod):
        state.queue.update(info, now)
    else:
        state.queue.refresh(info)
    if pod.status.nominated_node_name or state.cluster.nominations.of(uid):
        claims.nomination_changed(state, old, info, now)


# Nodes and other objects.


def _node_changed(state: SchedulerState, event: NodeChanged) -> Iterator[Instruction]:
    node = event.new or event.old
    assert node is not None
    name, kinds = node.metadata.name, ChangeKind.NODE | ChangeKind.TOPOLOGY
    with NodeComparison(state, kinds, name, event.now, event.old, event.new):
        state.cluster.put_node(name, event.new)
    if event.new is None:
        yield from state.bindings.node_deleted(name)
        claims.nominated_node_deleted(state, name, event.now)


def _topology_changed(state: SchedulerState, event: TopologyChanged) -> Iterator[Instruction]:
    topology = event.new or event.old
    assert topology is not None
    name, agents = topology.metadata.name, state.agents
    with NodeComparison(state, ChangeKind.TOPOLOGY, name, event.now, event.old, event.new):
        state.cluster.put_topology(event.old, event.new)
        node = state.cluster.get(name)
        agents.judge(name, event.now, leased=node is not None and node.cpus.leased)
        state.cluster.put_agent_fault(name, agents.fault(name))
    before, fault = state.topology_faults.pop(name, ""), node.problem if node else ""
    if fault:
        state.topology_faults[name] = fault
    if fault and fault != before:
        yield RecordNodeEvent(name, "InvalidNodeResourceTopology", fault)


def _agent_lease_changed(state: SchedulerState, lease: Lease, event: ObjectChanged) -> None:
    name = lease.metadata.name
    if lease.metadata.namespace != keys.AGENT_NAMESPACE:
        return
    before = state.agents.fault(name)
    state.agents.put(name, lease if event.new else None, event.now)
    if state.agents.fault(name) != before:
        _put_agent_fault(state, name, event.now)


def _put_agent_fault(state: SchedulerState, name: str, now: float) -> None:
    """A node whose agent ended, or runs again, is another node for pods with exclusive CPUs."""
    with NodeComparison(state, ChangeKind.TOPOLOGY, name, now):
        if state.cluster.put_agent_fault(name, state.agents.fault(name)):
            state.attempts.clear()


_PUT: Final[Mapping[type[Object], tuple[ChangeKind, Callable[[ClusterObjects, Any, Any], bool | None]]]] = {
    Namespace: (ChangeKind.NAMESPACE, ClusterObjects.put_namespace),
    PersistentVolumeClaim: (ChangeKind.CLAIM, ClusterObjects.put_claim),
    PersistentVolume: (ChangeKind.VOLUME, ClusterObjects.put_volume),
    StorageClass: (ChangeKind.STORAGE_CLASS, ClusterObjects.put_class),
    Service: (ChangeKind.SERVICE, ClusterObjects.put_service),
    CSINode: (ChangeKind.CSI_NODE, ClusterObjects.put_csi_node),
    CSIDriver: (ChangeKind.CSI_DRIVER, ClusterObjects.put_csi_driver),
    CSIStorageCapacity: (ChangeKind.STORAGE_CAPACITY, ClusterObjects.put_capacity),
    VolumeAttachment: (ChangeKind.VOLUME_ATTACHMENT, ClusterObjects.put_attachment),
}
"""Kinds of object whose changes may help pods in the queue, unless the method returns False."""


def _object_changed(state: SchedulerState, event: ObjectChanged) -> None:
    changed = event.new or event.old
    assert changed is not None
    name = changed.metadata.name
    if isinstance(changed, PodDisruptionBudget):
        state.cluster.budgets.put(changed.key, changed if event.new else None)
        return
    if isinstance(changed, CraneTopology):
        with NodeComparison(state, ChangeKind.TOPOLOGY, name, event.now, event.old, event.new):
            state.cluster.put_crane(name, changed if event.new else None)
        return
    kind, put = _PUT[type(changed)]
    if put(state.cluster.objects, changed.key if changed.api.namespaced else name, event.new) is False:
        return
    if kind is ChangeKind.NAMESPACE:
        state.cluster.index.namespace_changed(name)
    state.queue.changed(ClusterChange(kind, "", event.old, event.new), event.now)


def _unwatched(state: SchedulerState, event: Unwatched) -> None:
    """Objects of a kind cannot be listed and watched; or can be again, which may help pods."""
    kinds = state.cluster.objects.unwatched
    before = kinds.pop(event.plural, None)
    if event.error:
        kinds[event.plural] = event.error
    elif before:
        state.queue.changed(ClusterChange(ChangeKind.WATCHED), event.now)


# Attempts.


def _due(state: SchedulerState, now: float) -> Iterator[Instruction]:
    for name in state.agents.expire(now):
        _put_agent_fault(state, name, now)
    for step in state.bindings.due(now):
        yield from steps.carry_out(state, step, now)


def _schedule_next(state: SchedulerState, now: float) -> Iterator[Instruction]:
    """Try the next ready pod; those that certainly get the same answer as an earlier one are parked."""
    if not state.cluster.settle(SETTLED_AT_ONCE):
        return  # The queue is as it was: the next CycleDue goes on.
    state.queue.ask(now)
    for _ in range(_PARKED_AT_ONCE):
        waiting = state.queue.pop(now)
        if waiting is None:
            return
        verdict = state.queue.verdict(waiting)
        if verdict is None:
            state.cluster.points.start()
            yield from _attempt(state, waiting, now)
            state.cluster.points.finish(waiting.info.pod.spec.scheduler_name)
            return
        state.queue.park_alike(waiting, now, verdict)
        yield from explain(state, waiting, now, "Unschedulable", verdict.message)


def _attempt(state: SchedulerState, waiting: Waiting, now: float) -> Iterator[Instruction]:
    count, profile = state.cluster.count(), state.profile_of(waiting.info.pod)
    try:
        attempt, result = state.attempts.attempt(waiting, profile)
    except Exception as error:  # noqa: BLE001 - of a plugin; those of the core are raised again
        yield from retry_after_error(state, waiting, profile, error, now)
        return
    _report_attempt(state, waiting, profile, attempt, now)
    if attempt.node is not None:
        yield from _place(state, waiting, profile, attempt, attempt.node, now)
        return
    if attempt.unfinished:
        state.queue.again(waiting, doubtful=isinstance(result, NotNominated) and result.doubtful)
        return
    why, plugins = message(attempt, count), attempt.plugins
    if result is not None:
        state.decisions.post_filtered(now, waiting.uid)
    if isinstance(result, Nomination):
        for instruction in claims.nominate(state, waiting, result, now):
            if isinstance(instruction, Evict) and state.bindings.holds(instruction.victim.metadata.uid):
                yield from steps.give_way(state, instruction.victim.metadata.uid, waiting, now)
            else:
                yield instruction
        state.decisions.nominated(now, waiting.uid, result)
    elif result is not None:
        if not result.keep:
            claims.forget_nomination(state, waiting.uid, now)
            state.queue.nominate(waiting, "", now)
        why += f" {result.message}" if result.message else ""
        plugins |= result.plugins
    state.queue.park(waiting, now, plugins, why)
    yield from explain(state, waiting, now, "Unschedulable", why, attempt)


def _report_attempt(
    state: SchedulerState, waiting: Waiting, profile: Profile, attempt: Attempt, now: float
) -> None:
    try:
        state.decisions.attempted(now, waiting, attempt)
    except Exception as error:  # noqa: BLE001 - of a plugin that is asked once more, as above
        note_fault(state, profile, error)


def _place(
    state: SchedulerState,
    waiting: Waiting,
    profile: Profile,
    attempt: Attempt,
    node: NodeInfo,
    now: float,
) -> Iterator[Instruction]:
    """Reserve, Permit, claim, and bind: at once, or when the Permit plugins allow it."""
    try:
        prepared = claims.prepare(profile, attempt.cycle, node)
    except Exception as error:  # noqa: BLE001 - as above
        yield from retry_after_error(state, waiting, profile, error, now)
        return
    if rejection := prepared.rejection:
        why = "; ".join(map(str, rejection.reasons))
        if prepared.denied:
            state.queue.placed(waiting, now, permitted=False)
            yield from steps.deny(state, waiting, rejection.plugin, why, now)
        else:
            state.queue.retry(waiting, now)
            yield from explain(state, waiting, now, "SchedulerError", f"{rejection.plugin}: {why}")
        return
    if state.cluster.nominations:
        claims.forget_nomination(state, waiting.uid, now, taken=node.name)
    state.queue.nominate(waiting, "", now)
    state.queue.placed(waiting, now, permitted=not prepared.waits)
    yield from _claim(state, waiting, profile, attempt, node, prepared, now)
    yield from expected_node(state.bindings[waiting.uid])


def _claim(
    state: SchedulerState,
    waiting: Waiting,
    profile: Profile,
    attempt: Attempt,
    node: NodeInfo,
    prepared: Prepared,
    now: float,
) -> Iterator[Bind]:
    """Claim the pod, and bind it; where Permit plugins hold it, when they allow it."""
    answer = attempt.cycle.admissions.admitted.get(node.name)
    bind = claims.claim(state, waiting.info, node.name, answer, prepared.work, now)
    if prepared.waits:
        state.bindings.hold(waiting, bind, profile, prepared.waits, now)
        waiting.started = state.queue.changes.number  # Its own claim is no change that could help it.
        for plugin, seconds in prepared.waits.items():
            state.decisions.held(now, waiting.uid, plugin, seconds)
        return
    state.decisions.bind_sent(now, bind)
    yield state.bindings.begin(waiting, bind, profile)


def _permit_decided(state: SchedulerState, event: PermitDecided) -> Iterator[Instruction]:
    step = state.bindings.decided(event)
    if isinstance(step, Bind):
        state.decisions.bind_sent(event.now, step)
    if step is not None:
        yield from steps.carry_out(state, step, event.now)
    if isinstance(step, Bind) and state.schedules(step.pod):
        yield from expected_node(state.bindings[event.uid])


def _bind_requested(state: SchedulerState, event: BindRequested) -> Iterator[Instruction]:
    """The pod is of another scheduler: it is in no queue, and its failures are that one's to report.

    Reserve and Permit plugins are asked as for any pod; a binding that they hold is sent later.
    """
    waiting, profile, now = Waiting(PodInfo.of(event.pod)), event.profile, event.now
    try:
        attempt = finalists.attempt(profile, state.cluster, waiting.info, frozenset({event.node}))
        _report_attempt(state, waiting, profile, attempt, now)
        if attempt.node is None:
            return
        prepared = claims.prepare(profile, attempt.cycle, attempt.node)
    except Exception as error:  # noqa: BLE001 - of a plugin; those of the core are raised again
        why = attempt_failed(state, waiting, profile, error, now)
        state.decisions.binding_ended(now, waiting.uid, "released", why)
        return
    if rejection := prepared.rejection:
        why = f"{rejection.plugin}: {'; '.join(map(str, rejection.reasons))}"
        state.decisions.binding_ended(now, waiting.uid, "released", why)
        return
    yield from _claim(state, waiting, profile, attempt, attempt.node, prepared, now)
