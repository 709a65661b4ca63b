"""Pods whose containers corelane starts itself: a pure state machine over their progress.

Theory of operation. An event only records a fact; those about CPUs are allocation's. After it, `_settle`
compares the recorded state with the target and orders what is missing: admissions, stops, moves to other
CPUs, starts, and last the statuses that changed. Each container has at most one order outstanding, so orders
may be carried out in any order, and any of them may be lost in a crash.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from corelane import quantity
from corelane.agent.allocation import cpu_moves, events
from corelane.agent.allocation.allocation import RETRY_AFTER, Allocation
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.instructions import Instruction
from corelane.agent.allocation.outbox import Outbox
from corelane.agent.allocation.records import (
    UNDECODABLE,
    AdmissionResult,
    BoundPod,
    PodCPUs,
    StatusReason,
    admission_order,
    unlisted_request,
)
from corelane.cpuset import CPUSet, named
from corelane.embedded.pods import pod_steps
from corelane.embedded.pods.pod_steps import PodHost
from corelane.embedded.pods.records import (
    ContainerExit,
    ContainerProgress,
    ContainerStage,
    DeletePod,
    DrainRequested,
    LifecycleReporter,
    PodIndex,
    PodPlan,
    PodRecord,
    PublishStatus,
    Remove,
    RemovePod,
    RestartPolicy,
    Start,
    Started,
    StartFailed,
    Stop,
    StopFailed,
    Termination,
    container_records,
)
from corelane.node import admit
from corelane.node.entries import Phase
from corelane.node.ledger import NodeState, release
from corelane.runtime.base import OOM_KILLED

ORPHAN_GRACE: Final = 30.0
"""Seconds for the processes of a deleted pod whose grace period is unknown."""
SHORTEST_GRACE: Final = 1.0
_ONCE_A_NODE: Final = frozenset({"ImageIgnored", "MemoryLimitsIgnored"})
"""Reasons of warnings that apply to every pod; only the first pod gets the event."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Number of pods, and bytes of memory for them (0 for no check), before memory withheld by settings."""

    pods: int = 110
    memory: int = 0


def exceeded_capacity(
    plan: BoundPod, pods: Iterable[PodCPUs], capacity: NodeCapacity, withheld: int
) -> StatusReason | None:
    """Return why a pod does not fit beside the admitted ones; None if it does."""
    admitted = [pod.pod.request for pod in pods if pod.admitted and pod.uid != plan.uid]
    if len(admitted) >= capacity.pods:
        return _out_of("pods", 1, len(admitted), capacity.pods)
    used = sum(request.memory_request for request in admitted)
    allocatable = max(capacity.memory - withheld, 0)
    if capacity.memory and used + plan.request.memory_request > allocatable:
        return _out_of("memory", plan.request.memory_request, used, allocatable)
    return None


def _out_of(resource: str, requested: int, used: int, capacity: int) -> StatusReason:
    return StatusReason(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, "
        f"requested: {requested}, used: {used}, capacity: {capacity}",
    )


class Lifecycle:
    """The pods of one node; their CPUs are in `allocation`, whose events this machine takes as well."""

    def __init__(
        self,
        allocation: Allocation,
        *,
        host: PodHost | None = None,
        capacity: NodeCapacity | None = None,
        reporter: LifecycleReporter | None = None,
    ) -> None:
        self.allocation = allocation
        self.index = PodIndex()
        self.pods = self.index.pods
        self.draining = False
        self._host = host or PodHost()
        self._capacity = capacity or NodeCapacity()
        self._pods_listed = False
        self.needs_ticks = False
        """Whether passing time alone may lead to an instruction."""
        self._outbox = allocation.outbox
        self._reporter = reporter or LifecycleReporter()
        self._recorder = LifecycleEvents(self._outbox, self._reporter)
        self._handlers: dict[type[AgentEvent], Callable[[Any], None]] = {
            events.ContainersListed: self._containers_listed,
            events.PodSeen: self._pod_seen,
            events.PodUndecodable: self._pod_undecodable,
            events.PodGone: self._pod_gone,
            events.PodsListed: self._all_pods_listed,
            Started: self._started,
            StartFailed: self._start_failed,
            events.Exited: self._exited,
            StopFailed: self._stop_failed,
            DrainRequested: self._drain_requested,
            events.TimePassed: lambda _: None,
        }

    def handle(self, *batch: AgentEvent) -> list[Instruction]:
        """Apply events, and return the instructions that follow; a changed ledger is saved first."""
        relevant = [event for event in batch if not self._is_routine(event)]
        for event in relevant:
            self._handlers.get(type(event), self.allocation.note)(event)
        if relevant and (self._pods_listed or self.draining):
            self._settle(relevant[-1].at, relevant[-1].now)
        return self.allocation.take()

    def _is_routine(self, event: AgentEvent) -> bool:
        """Whether an event changes nothing: time that no pod waits for, or unchanged CPUs."""
        if isinstance(event, events.TimePassed):
            return not self.needs_ticks
        return self.allocation.is_routine(event)

    @property
    def ledger(self) -> NodeState:
        """Current CPU allocation."""
        return self.allocation.ledger

    @property
    def drained(self) -> bool:
        """Whether a drain was requested and no process is left."""
        return self.draining and not any(pod.live for pod in self.pods.values())

    # -- events

    def _containers_listed(self, event: events.ContainersListed) -> None:
        for run in sorted(event.runs, key=lambda run: run.attempt):
            request = unlisted_request(run.uid, self.ledger)
            unlisted = PodPlan(request, (), restart_policy=RestartPolicy.NEVER)
            pod = self.pods.get(run.uid) or self._add(unlisted)
            pod_steps.adopt_run(pod, run, self.allocation.adopt(run), event.at)

    def _add(self, plan: PodPlan) -> PodRecord:
        pod = PodRecord(plan, container_records(plan.containers), self.allocation.pod(plan.uid))
        self.pods[plan.uid] = pod
        return pod

    def _pod_seen(self, event: events.PodSeen) -> None:
        plan = event.pod
        assert isinstance(plan, PodPlan)
        pod = self.pods.get(plan.uid) or self._add(plan)
        pod.plan, new = plan, not pod.present or pod.undecodable
        self.allocation.see(pod.cpus, plan)
        if new:
            pod.undecodable = False
            pod_steps.adopt_plan(pod, plan, event.at, event.now)
            if pod.finished:  # the ledger may be older than its end: it could not be written then
                self.allocation.release(pod.cpus)
        self._outbox.touch(plan.uid)
        if plan.deletion_grace is not None:
            self._terminate(pod, event.now + plan.deletion_grace, event.now)
        elif plan.ended and not pod.finished:
            self._terminate(pod, event.now + plan.grace, event.now)

    def _pod_undecodable(self, event: events.PodUndecodable) -> None:
        """Leave the containers of a pod that was not seen yet as they run; others continue as last seen."""
        pod = self.pods.get(event.uid)
        if pod is not None and not pod.present:
            pod.cpus.present = pod.undecodable = True

    def _pod_gone(self, event: events.PodGone) -> None:
        pod = self.pods.get(event.uid)
        if pod is None:
            return
        pod.cpus.present = False
        if pod.finished:
            self._forget(pod)
            return
        grace = pod.plan.grace if pod.plan.deletion_grace is None else pod.plan.deletion_grace
        self._terminate(pod, event.now + grace, event.now)

    def _all_pods_listed(self, event: events.PodsListed) -> None:
        self._pods_listed = True
        for pod in list(self.pods.values()):
            if not pod.present:
                self._terminate(pod, event.now + ORPHAN_GRACE, event.now)
        self.allocation.release_unlisted()

    def _started(self, event: Started) -> None:
        if starting := self.index.starting(event.uid, event.container, event.attempt):
            pod, container = starting
            self._note_running(pod, container, event.id, event.started_at, event.now)

    def _start_failed(self, event: StartFailed) -> None:
        starting = self.index.starting(event.uid, event.container, event.attempt)
        if starting is None:
            return
        pod, container = starting
        reason = StatusReason(event.reason, event.message)
        self._recorder.start_failed(pod, container, reason)
        if event.exit_code is None:
            self._end_run(container)
            pod_steps.note_start_failure(container, reason, event.now + RETRY_AFTER)
            self._outbox.touch(pod.uid)
            return
        self._note_started(pod, container, "", event.at, event.now)
        ended = ContainerExit(event.exit_code, event.at, event.at, reason=event.reason, message=event.message)
        self._note_exit(pod, container, ended, event.now)

    def _exited(self, event: events.Exited) -> None:
        run = event.run
        records = self.index.container(run.uid, run.container)
        if not records or not records[1].live or records[1].attempt != run.attempt:
            return
        pod, container = records
        if container.stage is ContainerStage.STARTING:
            self._note_running(pod, container, run.id, run.started_at or event.at, event.now)
        self._note_exit(pod, container, pod_steps.exit_of(run, event.at), event.now)

    def _stop_failed(self, event: StopFailed) -> None:
        run = self.allocation.run(event.id)
        records = run and self.index.container(run.uid, run.container)
        if records and records[1].stage is ContainerStage.STOPPING:
            pod_steps.note_stop_failure(records[1], event.now + RETRY_AFTER)
            self._recorder.stop_failed(*records, event.message)

    def _drain_requested(self, event: DrainRequested) -> None:
        self.draining = True

    # -- orders that follow

    def _settle(self, at: float, now: float) -> None:
        for cpus in admission_order(self.ledger, self.allocation.pods.values()):
            if not self.pods[cpus.uid].finished:
                self._progress(self.pods[cpus.uid], at, now)
        self.allocation.restore_annotations(now)
        self.allocation.order_moves(now)
        self._start_due(now)
        self.allocation.order_observations()
        for uid in self._outbox.take_touched():
            if uid in self.pods:
                self._publish(self.pods[uid], at, now)
        self.needs_ticks = self.allocation.needs_ticks(now) or any(
            pod_steps.needs_ticks(pod, now) for pod in self.pods.values()
        )

    def _progress(self, pod: PodRecord, at: float, now: float) -> None:
        if pod.cpus.admitted and pod.cpus.shortfall and not pod.live and not pod_steps.is_ending(pod):
            # Allocated anew: no process would notice. A pod that never ran is admitted again, or rejected.
            placed = self.allocation.place_again(pod.cpus)
            if not placed and not any(container.ran for container in pod.containers.values()):
                self.allocation.release(pod.cpus)
        if not pod.cpus.admitted and not pod_steps.is_ending(pod) and not self.draining:
            self._admit(pod, at, now)
        if pod.termination is None and pod_steps.exceeds_deadline(pod, now):
            self._terminate(pod, now + pod.plan.grace, now, pod_steps.DEADLINE_EXCEEDED)
        if self.draining or pod_steps.is_ending(pod):
            for container in pod_steps.due_to_stop(pod):
                self._stop(pod, container, now)
        if pod_steps.has_ended(pod) and not self.draining:
            self._finish(pod, at, now)

    def _admit(self, pod: PodRecord, at: float, now: float) -> None:
        if pod.undecodable:
            if pod.uid not in self.ledger.pods:
                self.allocation.keep(pod.cpus, UNDECODABLE)
            return
        refusal = self._refusal(pod)
        result = AdmissionResult(refusal=refusal) if refusal else self.allocation.admit(pod.cpus)
        if result.refusal and pod.live:
            self.allocation.keep(pod.cpus, result.refusal)
        elif result.refusal and (ending := self._ending_pods_in_the_way(pod)):
            if pod_steps.note_waiting_for_pods(pod, [blocker.plan.key for blocker in ending], result.refusal):
                self._outbox.touch(pod.uid)
        elif result.refusal:
            pod.rejected = result.refusal
            self.allocation.recorder.refused(pod.cpus, result.refusal, result.decision, self.ledger)
            self._finish(pod, at, now)
        elif result.decision:
            self._recorder.warn_of_ignored_fields(pod)

    def _refusal(self, pod: PodRecord) -> StatusReason | None:
        """Return why a pod must not start, regardless of CPUs; None for one that runs or was admitted."""
        if pod.live or pod.uid in self.ledger.pods:
            return None
        withheld = self.ledger.withheld_memory
        return pod.plan.refusal or exceeded_capacity(
            pod.plan, self.allocation.pods.values(), self._capacity, withheld
        )

    def _ending_pods_in_the_way(self, pod: PodRecord) -> list[PodRecord]:
        """Return the pods that are ending, if a refused pod fits once their processes are gone; else none.

        A pod deleted without a grace period is gone from the API server, and so for the scheduler, before.
        """
        ending = [other for other in self.pods.values() if other.cpus.admitted and pod_steps.is_ending(other)]
        uids = {other.uid for other in ending}
        others = (other for other in self.allocation.pods.values() if other.uid not in uids)
        ledger, withheld = self.ledger, self.ledger.withheld_memory
        if not ending or pod.plan.refusal or exceeded_capacity(pod.plan, others, self._capacity, withheld):
            return []
        for uid in uids:
            ledger = release(ledger, uid)
        return ending if admit(ledger, pod.cpus.pod.request)[1].admitted else []

    def _terminate(self, pod: PodRecord, by: float, now: float, reason: StatusReason | None = None) -> None:
        """End a pod by a time; of several times the earliest applies, with the first reason."""
        if pod.termination is None:
            pod.termination = Termination(by, reason)
            self._outbox.touch(pod.uid)
        elif by < pod.termination.by:
            pod.termination = Termination(by, pod.termination.reason)
            for container in pod.containers.values():
                if container.stage is ContainerStage.STOPPING:
                    self._outbox.put(Stop(container.id, max(by - now, SHORTEST_GRACE)))
        if pod.finished and pod.present and pod.plan.deletion_grace is not None:
            self._delete(pod)

    def _stop(self, pod: PodRecord, container: ContainerProgress, now: float) -> None:
        if now < container.retry_at:
            return
        grace = pod.termination.by - now if pod.termination else pod.plan.grace
        container.stage = ContainerStage.STOPPING
        if container.cpus and not self.draining:
            self.allocation.mark(container.cpus, Phase.RELEASING)
        self._recorder.stopping(pod, container)
        self._outbox.put(Stop(container.id, max(grace, SHORTEST_GRACE)))

    def _finish(self, pod: PodRecord, at: float, now: float) -> None:
        """Release the CPUs of a pod without processes, and publish its last status."""
        pod.finished = True
        self.allocation.release(pod.cpus)
        if not pod.present:
            self._forget(pod)
            return
        self._publish(pod, at, now)
        if pod.plan.deletion_grace is not None:
            self._delete(pod)

    def _forget(self, pod: PodRecord) -> None:
        del self.pods[pod.uid]
        self.allocation.forget(pod.uid)
        self._outbox.put(RemovePod(pod.uid))

    def _start_due(self, now: float) -> None:
        if self.draining:
            return
        occupied = self.allocation.occupied()
        for pod in list(self.pods.values()):
            if pod.cpus.admitted:
                for container in pod_steps.due_to_start(pod):
                    self._start(pod, container, occupied, now)

    def _start(
        self, pod: PodRecord, container: ContainerProgress, occupied: cpu_moves.OccupiedCPUs, now: float
    ) -> None:
        target = self.allocation.target(pod.uid, container.name)
        if target is None or now < container.retry_at or self._backs_off(pod, container, now):
            return
        cpus = cpu_moves.start_cpus(target, occupied)
        if not cpus:
            if pod_steps.note_waiting(container, target.cpus):
                self._outbox.touch(pod.uid)
                self._reporter.waiting(pod.plan, container.name, target.cpus)
            return
        pod_steps.note_start_ordered(container, self.allocation.order_start(pod.cpus, container.name, cpus))
        occupied.add(cpus, target.sharing, target.group)
        self._outbox.touch(pod.uid)
        order = Start(pod.plan, container.name, container.attempt, cpus, target.mems)
        self._outbox.put(order)

    def _backs_off(self, pod: PodRecord, container: ContainerProgress, now: float) -> bool:
        if not pod_steps.in_backoff(container, now):
            return False
        if container.backoff_reported != container.attempt:
            container.backoff_reported = container.attempt
            self._recorder.backs_off(pod, container)
            self._outbox.touch(pod.uid)
        return True

    # -- used by several of the above

    def _note_running(
        self, pod: PodRecord, container: ContainerProgress, run_id: str, started_at: float, now: float
    ) -> None:
        """Record that a process runs, or ran so briefly that its end was noticed before its start."""
        self._note_started(pod, container, run_id, started_at, now)
        if container.cpus:
            self._recorder.started(pod, container, container.cpus.applied)

    def _note_started(
        self, pod: PodRecord, container: ContainerProgress, run_id: str, started_at: float, now: float
    ) -> None:
        obsolete = pod_steps.note_started(container, run_id, started_at, now)
        if container.cpus:
            self.allocation.note_started(container.cpus, run_id)
        if obsolete:
            self._outbox.put(Remove(obsolete))
        self._outbox.touch(pod.uid)

    def _note_exit(
        self, pod: PodRecord, container: ContainerProgress, ended: ContainerExit, now: float
    ) -> None:
        self._end_run(container)
        pod_steps.note_exit(container, ended, now)
        self._outbox.touch(pod.uid)
        if ended.reason == OOM_KILLED:
            self._recorder.out_of_memory(pod, container, ended)
        self._reporter.ended(pod.plan, container.name, ended)

    def _end_run(self, container: ContainerProgress) -> None:
        if container.cpus:
            self.allocation.note_ended(container.cpus)

    def _publish(self, pod: PodRecord, at: float, now: float) -> None:
        """Publish a pod's status, unless it is unchanged, or the API server has a terminal one."""
        if not pod.present or pod.plan.ended or pod.undecodable:
            return
        status = pod_steps.pod_status(pod, at, now, self._host)
        if status != pod.published:
            pod.published = status
            self._outbox.put(PublishStatus(pod.uid, status))

    def _delete(self, pod: PodRecord) -> None:
        """Delete an ended pod from the API server; ordered once."""
        if not pod.deletion_ordered:
            pod.deletion_ordered = True
            self._outbox.put(DeletePod(pod.uid))


class LifecycleEvents:
    """Records what happened to containers; a pod that was deleted gets no Kubernetes events."""

    def __init__(self, outbox: Outbox, reporter: LifecycleReporter) -> None:
        self._outbox = outbox
        self._reporter = reporter
        self._warned: set[str] = set()

    def warn_of_ignored_fields(self, pod: PodRecord) -> None:
        """An admitted pod has fields that corelane ignores."""
        for warning in pod.plan.warnings:
            if warning.reason in _ONCE_A_NODE:
                if warning.reason in self._warned:
                    continue
                self._warned.add(warning.reason)
            self._record(pod, warning.reason, warning.message, warning=True)

    def backs_off(self, pod: PodRecord, container: ContainerProgress) -> None:
        """A container failed and is restarted after a delay."""
        name = pod_steps.full_name(pod)
        text = f"Back-off restarting failed container {container.name} in pod {name}"
        self._record(pod, "BackOff", text, warning=True)

    def started(self, pod: PodRecord, container: ContainerProgress, cpus: CPUSet) -> None:
        """A container runs on these CPUs."""
        self._record(pod, "Started", f"Container {container.name} started on {named(cpus.mask)}")
        self._reporter.started(pod.plan, container.name, container.attempt, cpus)

    def start_failed(self, pod: PodRecord, container: ContainerProgress, reason: StatusReason) -> None:
        """A container could not be started; a pod that is terminating gets no event about it."""
        if pod.termination is None:
            self._record(pod, "Failed", f"Error: {reason.message}", warning=True)
        self._reporter.start_failed(pod.plan, container.name, reason)

    def out_of_memory(self, pod: PodRecord, container: ContainerProgress, ended: ContainerExit) -> None:
        """A container ended after the kernel had ended a process of it for lack of memory."""
        request = pod.plan.request
        limits = (request.memory_limit_of(part) for part in request.containers if part.name == container.name)
        limit = next(limits, 0)
        at = f" at its memory limit of {quantity.of_value(limit, quantity.BINARY_SI)}" if limit else ""
        text = f"Container {container.name} was out of memory{at}: the kernel killed a process"
        self._record(pod, OOM_KILLED, f"{text}; exit code {ended.exit_code}", warning=True)

    def stopping(self, pod: PodRecord, container: ContainerProgress) -> None:
        """A container is being stopped."""
        self._record(pod, "Killing", f"Stopping container {container.name}")

    def stop_failed(self, pod: PodRecord, container: ContainerProgress, message: str) -> None:
        """A container could not be stopped."""
        self._record(pod, "FailedKillPod", f"error killing pod: {message}", warning=True)
        self._reporter.stop_failed(pod.plan, container.name, message)

    def _record(self, pod: PodRecord, reason: str, message: str, *, warning: bool = False) -> None:
        self._outbox.record(pod.cpus, reason, message, warning=warning)
