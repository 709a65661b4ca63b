"""Pods that a kubelet starts and ends: a pure state machine over their CPUs.

Theory of operation. The kubelet has admitted a pod before corelane sees it, so none is refused: a pod without
room runs in the shared pool. A container gets its CPUs in one of two ways. Where the runtime asks before it
creates a container (NRI), other containers leave its CPUs first, as the kernel confirms, and then the answer
goes out; where that cannot be done by the deadline, it starts in the shared pool. Without NRI it
starts on any CPUs. In both cases it is moved to its own CPUs as soon as other containers have left them.
Events may be late or lost: a list of all containers, at any time, puts records right. The ledger and the
running containers are enough for moves and repairs; only admissions wait until containers and pods were
listed once.

What is not known is no fact. A running pod whose object is not known is held: on the CPUs on which it runs,
where these are not the shared pool's, and no other container is given them. It is admitted once the object is
known, and released only once a list that began after its end lacks it.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from corelane.agent.allocation import cpu_moves, events
from corelane.agent.allocation.allocation import Allocation, room
from corelane.agent.allocation.cpu_moves import pinned_condition
from corelane.agent.allocation.events import AgentEvent, ContainerRun
from corelane.agent.allocation.instructions import AnswerCreate, Instruction, PublishCondition
from corelane.agent.allocation.modes import Mode
from corelane.agent.allocation.records import (
    NO_CPUS,
    NO_POD_OBJECT,
    NOT_LISTED,
    UNDECODABLE,
    BoundPod,
    PodCPUs,
    RunCPUs,
    admission_order,
    named_request,
)
from corelane.cpuset import named
from corelane.node.ledger import NodeState
from corelane.node.recovery.unplaced import has_own_cpus, is_unplaced
from corelane.runtime.base import ResourceUpdate

UNLISTED_GRACE: Final = 30.0
"""Seconds for which a pod runs before a list without it shows that there is no pod object."""
POOL_GRACE: Final = 2.0
"""Seconds for a pod to be listed, before a container of it leaves the exclusive CPUs of others."""
CREATION_GRACE: Final = 30.0
"""Seconds for the runtime to create a container after the answer, before a list may prove it missing."""


@dataclass(slots=True)
class Creation:
    """A container whose creation waits for CPUs, and what was changed for it meanwhile."""

    asked: events.ContainerCreating
    updates: dict[str, ResourceUpdate] = field(default_factory=dict)


class KubeletPods:
    """The pods of one node beside its kubelet; their CPUs are in `allocation`.

    `mode` holds until ModeChanged; without one everything may be allocated and written.
    """

    def __init__(self, allocation: Allocation, mode: Mode | None = None) -> None:
        self.allocation = allocation
        if mode is not None:
            allocation.note(events.ModeChanged(mode=mode, at=0.0, now=0.0))
        self._containers_are_listed = self._pods_are_listed = False
        self._creations: dict[Hashable, Creation] = {}
        self._undecodable: set[str] = set()
        self._list_began = -math.inf
        self._remaining: frozenset[str] = frozenset()
        self._handlers: dict[type[AgentEvent], Callable[[Any], None]] = {
            events.ContainersListed: self._containers_listed,
            events.ContainerSeen: lambda event: self._see(event.run, event.now),
            events.ContainerCreating: self._container_creating,
            events.CreationLost: self._creation_lost,
            events.Exited: self._exited,
            events.PodSeen: self._pod_seen,
            events.PodUndecodable: self._pod_undecodable,
            events.PodGone: self._pod_gone,
            events.PodsListed: self._pods_listed,
            events.Pinned: self._pinned,
            events.ModeChanged: self._mode_changed,
            events.TimePassed: lambda _: None,
        }

    def handle(self, *batch: AgentEvent) -> list[Instruction]:
        """Apply events, and return the instructions that follow; a changed ledger is saved first."""
        relevant = [event for event in batch if not self._is_routine(event)]
        for event in relevant:
            self._handlers.get(type(event), self.allocation.note)(event)
        if relevant:
            self._settle(relevant[-1].at, relevant[-1].now)
        return self.allocation.take()

    def _is_routine(self, event: AgentEvent) -> bool:
        """Whether an event changes nothing: time that nothing waits for, or what is recorded already."""
        match event:
            case events.TimePassed():
                return not self._needs_ticks(event.now)
            case events.ContainersListed():
                recorded = {run.id for run in self.runs()}
                live = {run.id for run in event.runs if run.live}
                return self._containers_are_listed and recorded == live and not self.creating
            case events.PodSeen():
                pod = self.pods.get(event.pod.uid)
                unchanged = pod is not None and pod.present and pod.pod == event.pod
                return unchanged and event.pod.uid not in self._undecodable
        return self.allocation.is_routine(event)

    @property
    def creating(self) -> bool:
        """Whether the runtime was answered about a container that was not seen yet."""
        return any(run.creating for run in self.allocation.runs())

    def _needs_ticks(self, now: float) -> bool:
        waiting = (pod.live and not pod.admitted for pod in self.allocation.pods.values())
        return bool(self._creations) or any(waiting) or self.allocation.needs_ticks(now)

    @property
    def ledger(self) -> NodeState:
        """Current CPU allocation."""
        return self.allocation.ledger

    @property
    def pods(self) -> dict[str, PodCPUs]:
        """Pods by UID, listed ones and others that run."""
        return self.allocation.pods

    @property
    def live_pods(self) -> frozenset[str] | None:
        """UIDs of the pods of which a process may exist; None before containers were listed."""
        if not self._containers_are_listed:
            return None
        return frozenset(pod.uid for pod in self.pods.values() if pod.live)

    def has_cpus(self, uid: str) -> bool:
        """Whether the ledger has CPUs for a pod's containers alone."""
        return any(entry.cpus for entry in self.ledger.of_pod(uid))

    def allocated_pods(self) -> dict[str, str]:
        """Return `namespace/name` by UID of the pods that the ledger has, and that have an object."""
        unlisted = {pod.uid for pod in self.pods.values() if pod.unplaced is NO_POD_OBJECT}
        entries = self.ledger.entries.values()
        return {entry.uid: entry.pod for entry in entries if entry.uid not in unlisted}

    @property
    def writes_cpus(self) -> bool:
        """Whether the mode lets corelane write the cpusets of the kubelet's containers."""
        mode = self.allocation.mode
        return mode is not None and mode.may_write_cpus(kubelet_manages=True)

    def runs(self) -> list[RunCPUs]:
        """Return the runs of which a process may exist, without those that are only being created."""
        return [run for run in self.allocation.runs() if not run.creating]

    # -- containers

    def _containers_listed(self, event: events.ContainersListed) -> None:
        began = event.now if event.began is None else event.began
        live = {run.id for run in event.runs if run.live}
        for run in self.allocation.runs():
            grace = CREATION_GRACE if run.creating else 0.0
            if run.id not in live and run.recorded_at + grace <= began:
                self._end(run, event.now)
        for listed in sorted(event.runs, key=lambda listed: listed.attempt):
            self._see(listed, event.now)
        self._containers_are_listed = True

    def _see(self, listed: ContainerRun, now: float) -> None:
        run = self.allocation.run(listed.id)
        if run is not None and run.creating and listed.live:
            self.allocation.note_created(run, listed)
        elif run is None and listed.live:
            self._adopt(listed, now)

    def _adopt(self, listed: ContainerRun, now: float) -> None:
        self._pod(listed.uid, listed.namespace, listed.pod)
        run = self.allocation.adopt(listed)
        assert run is not None
        run.recorded_at = now
        target = self.allocation.target(run.uid, run.container)
        run.pooled = not run.seen <= target.cpus if target else not run.seen.isdisjoint(self.ledger.reserved)

    def _pod(self, uid: str, namespace: str, name: str) -> PodCPUs:
        """Return the pod's record; a new one has these names."""
        new = uid not in self.allocation.pods
        pod = self.allocation.pod(uid)
        if new and name:
            pod.pod = BoundPod(named_request(uid, namespace, name))
        return pod

    def _exited(self, event: events.Exited) -> None:
        if run := self.allocation.run(event.run.id):
            self._end(run, event.now)

    def _end(self, run: RunCPUs, now: float) -> None:
        pod = self.pods[run.uid]
        pod.idle_since = max(pod.idle_since, now)
        self.allocation.note_ended(run)

    def _container_creating(self, event: events.ContainerCreating) -> None:
        self._pod(event.uid, event.namespace, event.pod)
        self._creations[event.token] = Creation(event)

    def _creation_lost(self, event: events.CreationLost) -> None:
        self._creations.pop(event.token, None)

    def _pinned(self, event: events.Pinned) -> None:
        self.allocation.note(event)
        for creation in self._creations.values():
            creation.updates[event.id] = ResourceUpdate(cpus=event.cpus)

    # -- pods

    def _pod_seen(self, event: events.PodSeen) -> None:
        pod = self.allocation.pod(event.pod.uid)
        self.allocation.see(pod, event.pod)
        pod.listed = True
        self._undecodable.discard(pod.uid)

    def _pod_undecodable(self, event: events.PodUndecodable) -> None:
        self._pod(event.uid, event.namespace, event.name).present = True
        self._undecodable.add(event.uid)

    def _pod_gone(self, event: events.PodGone) -> None:
        self._undecodable.discard(event.uid)
        if pod := self.allocation.pods.get(event.uid):
            pod.present, pod.listed = False, True

    def _pods_listed(self, event: events.PodsListed) -> None:
        self._pods_are_listed, self._remaining = True, event.remaining
        self._list_began = event.now if event.began is None else event.began

    def _mode_changed(self, event: events.ModeChanged) -> None:
        """Apply a mode; once it allocates, pods that came before it are admitted anew."""
        before = self.allocation.mode
        self.allocation.note(event)
        if event.mode.allocates and before is not None and not before.allocates:
            for pod in self.pods.values():
                if not self.has_cpus(pod.uid):
                    self.allocation.release(pod)

    # -- orders that follow

    def _settle(self, at: float, now: float) -> None:
        if self._containers_are_listed:
            self._hold_unknown(at, now)
        if self._containers_are_listed and self._pods_are_listed:
            asked = {creation.asked.uid for creation in self._creations.values()}
            for pod in admission_order(self.ledger, self.allocation.pods.values()):
                if pod.live or pod.uid in asked or (pod.present and not pod.pod.ended):
                    self._enter(pod, now)
                elif pod.present:
                    self.allocation.release(pod)
                elif self._is_gone(pod):
                    self.allocation.release(pod)
                    self.allocation.forget(pod.uid)
            self.allocation.release_unlisted(self._remaining)
            self.allocation.restore_annotations(now)
        self._report_unlisted(at, now)
        if self._containers_are_listed:  # before, containers that are not known yet may be on any CPUs
            self.allocation.order_moves(now)
        self._answer_creations(now)
        self.allocation.order_observations()
        self._publish_conditions(at)

    def _is_gone(self, pod: PodCPUs) -> bool:
        """Whether a pod without processes is known to be gone, or has nothing to lose if it is not."""
        proved = pod.listed or pod.idle_since <= self._list_began or (pod.held and not pod.unmanaged)
        return proved and pod.uid not in self._remaining

    def _enter(self, pod: PodCPUs, now: float) -> None:
        """Bring a pod into the ledger, with all of its containers."""
        if self._is_known(pod):
            # One that was refused, and runs in its pool, may be admitted by now.
            refused = pod.unplaced is not None and not pod.unmanaged
            may_have_room = refused and pod.refused_with != room(self.ledger)
            if not (pod.admitted and pod.uid in self.ledger.pods) or may_have_room:
                result = self.allocation.admit(pod)
                if result.refusal:
                    self.allocation.keep(pod, result.refusal, result.decision)
        elif pod.held and pod.unplaced is NOT_LISTED and self._has_no_object(pod):
            pod.unplaced = NO_POD_OBJECT
            self.allocation.reporter.unplaced(pod.pod, NO_POD_OBJECT)
        if pod.uid in self.ledger.pods and not pod.held:
            questions = (creation.asked for creation in self._creations.values())
            self.allocation.enter_others(
                pod, {asked.container for asked in questions if asked.uid == pod.uid}
            )

    def _is_known(self, pod: PodCPUs) -> bool:
        return pod.present and pod.uid not in self._undecodable

    def _has_no_object(self, pod: PodCPUs) -> bool:
        """Whether a list that began well after its start proves that a pod has no object on this node."""
        if pod.uid in self._remaining or pod.present or not pod.live:
            return False
        return min(run.recorded_at for run in pod.runs) + UNLISTED_GRACE <= self._list_began

    def _hold_unknown(self, at: float, now: float) -> None:
        """Hold running pods without a known object; those on the fewest CPUs, and Guaranteed ones, first.

        Where nothing is allocated, they are held once they are known to have no pod object.
        """
        unknown = [pod for pod in self.pods.values() if pod.live and not self._is_known(pod)]
        allocates = self.allocation.mode is None or self.allocation.mode.allocates
        for pod in sorted(unknown, key=_hold_order):
            entered = pod.uid in self.ledger.pods and not is_unplaced(self.ledger, pod.uid)
            missing = [run for run in pod.runs if (run.uid, run.container) not in self.ledger.entries]
            if entered or not missing:
                continue
            # Containers are entered once they may have CPUs of their own, or it is time.
            due = any(now >= run.recorded_at + POOL_GRACE for run in missing) or any(
                has_own_cpus(self.ledger, run.seen) for run in missing
            )
            undecodable = pod.uid in self._undecodable
            if undecodable or (due if allocates else self._has_no_object(pod)):
                self.allocation.hold(pod, at)
                pod.idle_since = now  # at the earliest: a list that began before did not ask for it
                pod.unplaced = UNDECODABLE if undecodable else NOT_LISTED
            if undecodable:
                self.allocation.recorder.kept(pod, UNDECODABLE, None, self.ledger)

    def _report_unlisted(self, at: float, now: float) -> None:
        """Record an event of the Node about pods that run unlisted for long; each is named once."""
        pods = [pod for pod in self.pods.values() if pod.unplaced is NOT_LISTED and not pod.reported]
        late = [pod for pod in pods if at >= pod.held_at + UNLISTED_GRACE]
        if late:
            self.allocation.recorder.unlisted(late)
        for pod in late:
            pod.reported = True

    def _answer_creations(self, now: float) -> None:
        if not self._creations:
            return
        occupied = self.allocation.occupied()
        for token, creation in list(self._creations.items()):
            asked = creation.asked
            if self.allocation.run(asked.id):  # created without the answer
                del self._creations[token]
                continue
            pod = self.allocation.pods[asked.uid]
            target = self.allocation.target(asked.uid, asked.container)
            if not self.allocation.may_write(pod):
                self._answer(token, None)
                continue
            ready = target and self._containers_are_listed
            cpus = cpu_moves.start_cpus(target, occupied) if target and ready else NO_CPUS
            late = not cpus
            if late and now < asked.deadline:
                continue
            if late:
                cpus = self.ledger.shared_pool - self.allocation.ordered().conflicting(cpu_moves.POOL)
            run = self.allocation.order_creation(pod, asked.container, asked.id, cpus, now)
            run.pooled = late
            if late:
                own = target.cpus if target else NO_CPUS
                reason = (
                    f"other containers are still on {named(own.mask)}"
                    if own
                    else "its pod was not listed yet"
                )
                text = (
                    f"Container {run.container} is created in the shared pool: {reason}; "
                    "it is moved to its CPUs as soon as they are free"
                )
                self.allocation.outbox.record(pod, "CPUsNotReady", text, warning=True)
                self.allocation.reporter.waiting(pod.pod, run.container, own)
            for part, sharing, group in cpu_moves.occupancy(run, self.ledger, observed=True):
                occupied.add(part, sharing, group)
            self._answer(token, self.allocation.update_on(run, cpus), "" if late else run.id)

    def _answer(self, token: Hashable, adjust: ResourceUpdate | None, placed: str = "") -> None:
        creation = self._creations.pop(token)
        settled = {run.id for run in self.allocation.runs() if run.pending is None}
        updates = tuple((run, update) for run, update in creation.updates.items() if run in settled)
        self.allocation.outbox.put(AnswerCreate(token, adjust, updates, placed))

    def _publish_conditions(self, at: float) -> None:
        """Publish the condition of pods that have, should have, or had exclusive CPUs."""
        for uid in self.allocation.outbox.take_touched():
            pod = self.allocation.pods.get(uid)
            if pod is None or not pod.present or not pod.live:
                continue
            exclusive = any(entry.exclusive for entry in self.ledger.of_pod(uid))
            condition = pinned_condition(pod)
            concerned = exclusive or pod.unplaced or pod.shortfall or pod.condition
            if concerned and condition != pod.condition:
                pod.condition = condition
                reason, message = condition
                order = PublishCondition(uid, not reason, reason or "Confirmed", message, at)
                self.allocation.outbox.put(order)


def _hold_order(pod: PodCPUs) -> tuple[int, bool]:
    groups = [run.resources.cgroup for run in pod.runs if run.resources]
    guaranteed = not any("burstable" in group or "besteffort" in group for group in groups)
    return min(len(run.possible_cpus) for run in pod.runs), not guaranteed
