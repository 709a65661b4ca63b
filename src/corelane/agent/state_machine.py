"""The agent's pure state machine: events in, instructions out, over the pods of one node and its ledger.

Theory of operation. An event only records a fact. After it, `_settle` compares the recorded state with the
target and orders what is missing: admissions, stops, moves to other CPUs, starts, and last the statuses that
changed. Each container has at most one order outstanding, and the CPUs that it may be running on meanwhile
count as occupied (see `pinning`), so orders may be carried out in any order and any of them may be lost in a
crash. A change of the ledger is the first instruction of its batch: it is on disk before any other.
"""

from collections.abc import Callable
from typing import Any, Final

from corelane.agent import container_lifecycle as lifecycle
from corelane.agent import instructions, kubelet_state, pinning, pod_admission
from corelane.agent.instructions import AgentEvent, Instruction
from corelane.agent.pod_events import EventRecorder, Outbox
from corelane.agent.pod_records import (
    NO_CPUS,
    ContainerExit,
    ContainerProgress,
    ContainerStage,
    PodIndex,
    PodRecord,
    StatusReason,
    Termination,
    container_records,
)
from corelane.agent.reported_status import PodHost
from corelane.agent.reporting import AgentReporter
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState, Phase, mark, rebase, release, started
from corelane.node.recovery.takeover import follow, pinned

ORPHAN_GRACE: Final = 30.0
"""Seconds for the processes of a deleted pod whose grace period is unknown."""
SHORTEST_GRACE: Final = 1.0
RETRY_AFTER: Final = 5.0


class StateMachine:
    """The state of one agent. `validate` checks the invariants after every event (AssertionError)."""

    def __init__(
        self,
        ledger: NodeState,
        *,
        host: PodHost | None = None,
        capacity: pod_admission.NodeCapacity | None = None,
        reporter: AgentReporter | None = None,
        validate: bool = False,
        follows_kubelet: bool = False,
    ) -> None:
        """With `follows_kubelet`, CPUs pinned by a kubelet stay in the ledger until KubeletStateRead."""
        self.ledger = ledger
        self._follows_kubelet = follows_kubelet
        self._kubelet: instructions.KubeletStateRead | None = None
        self.index = PodIndex()
        self.pods = self.index.pods
        self.draining = False
        self._capacity = capacity or pod_admission.NodeCapacity()
        self._validate = validate
        self._pods_listed = False
        self._needs_ticks = False
        self._outbox = Outbox(host or PodHost())
        self._reporter = reporter or AgentReporter()
        self._recorder = EventRecorder(self._outbox, self._reporter)
        self._handlers: dict[type[AgentEvent], Callable[[Any], None]] = {
            instructions.ContainersListed: self._containers_listed,
            instructions.PodSeen: self._pod_seen,
            instructions.PodGone: self._pod_gone,
            instructions.PodsListed: self._all_pods_listed,
            instructions.Started: self._started,
            instructions.StartFailed: self._start_failed,
            instructions.Exited: self._exited,
            instructions.StopFailed: self._stop_failed,
            instructions.Pinned: self._pinned,
            instructions.PinFailed: self._pin_failed,
            instructions.AllowedCPUsRead: self._allowed_cpus_read,
            instructions.KubeletStateRead: self._kubelet_state_read,
            instructions.MachineChanged: self._machine_changed,
            instructions.ConfigChanged: self._config_changed,
            instructions.DrainRequested: self._drain_requested,
            instructions.TimePassed: lambda _: None,
        }

    def handle(self, *events: AgentEvent) -> list[Instruction]:
        """Apply events, and return the instructions that follow; a changed ledger is saved first."""
        before = self.ledger
        relevant = [event for event in events if not self._is_routine(event)]
        for event in relevant:
            self._handlers[type(event)](event)
        if relevant and (self._pods_listed or self.draining):
            self._settle(relevant[-1].at)
        orders = self._outbox.take()
        if self.ledger is not before:
            orders = [instructions.SaveLedger(self.ledger), *orders, instructions.PublishTopology()]
        if self._validate:
            pinning.assert_no_conflict(self.pods.values(), self.ledger)
        return orders

    def _is_routine(self, event: AgentEvent) -> bool:
        """Whether an event changes nothing: time that no pod waits for, or unchanged CPUs."""
        if isinstance(event, instructions.TimePassed):
            return not self._needs_ticks
        if isinstance(event, instructions.AllowedCPUsRead):
            _, container = self.index.by_run(event.id)
            return container is None or pinning.is_unchanged(container, event.allowed)
        return False

    @property
    def drained(self) -> bool:
        """Whether a drain was requested and no process is left."""
        return self.draining and not any(pod.live for pod in self.pods.values())

    # -- events

    def _containers_listed(self, event: instructions.ContainersListed) -> None:
        for run in sorted(event.runs, key=lambda run: run.attempt):
            pod = self.pods.get(run.uid)
            if pod is None:
                plan = pod_admission.plan_from_ledger(run.uid, self.ledger)
                pod = self.pods[run.uid] = PodRecord(plan, {}, present=False)
            allocation = pinning.allocation_of(self.ledger, run.uid, run.container)
            container = lifecycle.adopt_run(pod, run, allocation.cpus if allocation else NO_CPUS, event.at)
            self.index.add_run(run.id, pod, container)
            self.ledger = started(self.ledger, run.uid, run.container)

    def _pod_seen(self, event: instructions.PodSeen) -> None:
        plan = event.plan
        pod = self.pods.get(plan.uid)
        if pod is None:
            pod = self.pods[plan.uid] = PodRecord(plan, container_records(plan.containers), present=False)
        if not pod.present:
            pod_admission.adopt_plan(pod, plan, event.at)
        pod.plan = plan
        self._outbox.touch(pod)
        if plan.deletion_grace is not None:
            self._terminate(pod, event.at + plan.deletion_grace, event.at)
        elif plan.ended and not pod.finished:
            self._terminate(pod, event.at + plan.grace, event.at)

    def _pod_gone(self, event: instructions.PodGone) -> None:
        pod = self.pods.get(event.uid)
        if pod is None:
            return
        pod.present = False
        if pod.finished:
            self._forget(pod)
            return
        grace = pod.plan.grace if pod.plan.deletion_grace is None else pod.plan.deletion_grace
        self._terminate(pod, event.at + grace, event.at)

    def _all_pods_listed(self, event: instructions.PodsListed) -> None:
        self._pods_listed = True
        for pod in list(self.pods.values()):
            if not pod.present:
                self._terminate(pod, event.at + ORPHAN_GRACE, event.at)
        of_kubelet = {entry.uid for entry in pinned(self.ledger)} if self._follows_kubelet else set()
        for uid in self.ledger.pods.keys() - self.pods.keys() - of_kubelet:
            self.ledger = release(self.ledger, uid)

    def _started(self, event: instructions.Started) -> None:
        starting = self.index.starting(event.uid, event.container, event.attempt)
        if starting is None:
            return
        pod, container = starting
        self._note_started(pod, container, event.id, event.started_at, event.at)
        self.ledger = started(self.ledger, pod.uid, container.name)
        self._mark(pod, container, Phase.APPLIED)
        self._recorder.started(pod, container)

    def _start_failed(self, event: instructions.StartFailed) -> None:
        starting = self.index.starting(event.uid, event.container, event.attempt)
        if starting is None:
            return
        pod, container = starting
        reason = StatusReason(event.reason, event.message)
        self._recorder.start_failed(pod, container, reason)
        if event.exit_code is None:
            lifecycle.note_start_failure(container, reason, event.at + RETRY_AFTER)
            self._outbox.touch(pod)
            return
        self._note_started(pod, container, "", event.at, event.at)
        ended = ContainerExit(event.exit_code, event.at, event.at, reason=event.reason, message=event.message)
        self._note_exit(pod, container, ended)

    def _exited(self, event: instructions.Exited) -> None:
        run = event.run
        pod = self.pods.get(run.uid)
        container = pod and pod.containers.get(run.container)
        if not pod or not container or not container.live or container.attempt != run.attempt:
            return
        if container.stage is ContainerStage.STARTING:
            self._note_started(pod, container, run.id, run.started_at or event.at, event.at)
        self._note_exit(pod, container, lifecycle.exit_of(run, event.at))

    def _stop_failed(self, event: instructions.StopFailed) -> None:
        pod, container = self.index.by_run(event.id)
        if pod and container and container.stage is ContainerStage.STOPPING:
            lifecycle.note_stop_failure(container, event.at + RETRY_AFTER)
            self._recorder.stop_failed(pod, container, event.message)

    def _pinned(self, event: instructions.Pinned) -> None:
        pod, container = self.index.by_run(event.id)
        if pod and container:
            pinning.note_applied(container, event.cpus, event.allowed)
            self._reporter.pinned(pod.plan, container.name, event.cpus)
            self._confirm(pod, container)

    def _pin_failed(self, event: instructions.PinFailed) -> None:
        pod, container = self.index.by_run(event.id)
        if not pod or not container:
            return
        target = container.pending or container.applied
        pinning.note_pin_failure(container, event.at + RETRY_AFTER)
        self._recorder.pin_failed(pod, container, target, event.message)
        self._confirm(pod, container)

    def _allowed_cpus_read(self, event: instructions.AllowedCPUsRead) -> None:
        pod, container = self.index.by_run(event.id)
        if pod and container and container.pending is None and not pod.unmanaged:
            pinning.note_allowed(container, event.allowed)
            self._confirm(pod, container)

    def _kubelet_state_read(self, event: instructions.KubeletStateRead) -> None:
        self._kubelet = event
        before, requests = self.ledger, [pod.plan.request for pod in self.pods.values() if pod.present]
        self.ledger, problems = follow(before, event.checkpoint, requests, event.running, event.names)
        for node_event in kubelet_state.takeover_events(before, self.ledger, problems):
            self._outbox.put(node_event)

    def _machine_changed(self, event: instructions.MachineChanged) -> None:
        self._rebase(event.machine, self.ledger.config, "CPUsLost")

    def _config_changed(self, event: instructions.ConfigChanged) -> None:
        self._rebase(self.ledger.machine, event.config, "SettingsChanged")

    def _rebase(self, machine: Machine, config: NodeConfig, reason: str) -> None:
        self.ledger, problems = rebase(self.ledger, machine, config)
        for problem in problems:
            self._outbox.put(instructions.PublishEvent(problem.uid, reason, problem.text, warning=True))
        if self._kubelet is not None:
            self._kubelet_state_read(self._kubelet)

    def _drain_requested(self, event: instructions.DrainRequested) -> None:
        self.draining = True

    # -- orders that follow

    def _settle(self, at: float) -> None:
        for pod in pod_admission.admission_order(self.ledger, self.pods.values()):
            if not pod.finished:
                self._progress(pod, at)
        self._move_due(at)
        self._start_due(at)
        for container, _ in self.index.live():
            if container.unread and container.pending is None:
                container.unread = False
                self._outbox.put(instructions.ReadAllowedCPUs(container.id))
        self._outbox.publish_touched(self.pods, at)
        self._needs_ticks = any(lifecycle.needs_ticks(pod, at) for pod in self.pods.values())

    def _progress(self, pod: PodRecord, at: float) -> None:
        if pod.unmanaged and not pod.live:
            pod.unmanaged = pod.admitted = False
        if not pod.admitted and not lifecycle.is_ending(pod) and not self.draining:
            self._admit(pod, at)
        if pod.termination is None and lifecycle.exceeds_deadline(pod, at):
            self._terminate(pod, at + pod.plan.grace, at, lifecycle.DEADLINE_EXCEEDED)
        if self.draining or lifecycle.is_ending(pod):
            for container in lifecycle.due_to_stop(pod):
                self._stop(pod, container, at)
        if lifecycle.has_ended(pod) and not self.draining:
            self._finish(pod, at)

    def _admit(self, pod: PodRecord, at: float) -> None:
        self.ledger, result = pod_admission.admit_pod(self.ledger, pod, self.pods.values(), self._capacity)
        pod.admitted = result.refusal is None or result.unmanaged
        pod.unmanaged = result.unmanaged
        self._outbox.touch(pod)
        if result.refusal and not result.unmanaged:
            pod.rejected = result.refusal
            self._recorder.refused(pod, result.refusal, result.decision, self.ledger)
            self._finish(pod, at)
            return
        self._recorder.admitted(pod, result)
        if update := pod_admission.annotation_update(self.ledger, pod.plan.request, result):
            self._outbox.put(update)

    def _terminate(self, pod: PodRecord, by: float, at: float, reason: StatusReason | None = None) -> None:
        """End a pod by a time; of several times the earliest applies, with the first reason."""
        if pod.termination is None:
            pod.termination = Termination(by, reason)
            self._outbox.touch(pod)
        elif by < pod.termination.by:
            pod.termination = Termination(by, pod.termination.reason)
            for container in pod.containers.values():
                if container.stage is ContainerStage.STOPPING:
                    self._outbox.put(instructions.Stop(container.id, max(by - at, SHORTEST_GRACE)))
        if pod.finished and pod.present and pod.plan.deletion_grace is not None:
            self._outbox.delete(pod)

    def _stop(self, pod: PodRecord, container: ContainerProgress, at: float) -> None:
        if at < container.retry_at:
            return
        grace = pod.termination.by - at if pod.termination else pod.plan.grace
        container.stage = ContainerStage.STOPPING
        if not self.draining:
            self._mark(pod, container, Phase.RELEASING)
        self._recorder.stopping(pod, container)
        self._outbox.put(instructions.Stop(container.id, max(grace, SHORTEST_GRACE)))

    def _finish(self, pod: PodRecord, at: float) -> None:
        """Release the CPUs of a pod without processes, and publish its last status."""
        pod.finished = True
        self.ledger = release(self.ledger, pod.uid)
        if not pod.present:
            self._forget(pod)
            return
        self._outbox.publish(pod, at)
        if pod.plan.deletion_grace is not None:
            self._outbox.delete(pod)

    def _forget(self, pod: PodRecord) -> None:
        del self.pods[pod.uid]
        self._outbox.put(instructions.RemovePod(pod.uid))

    def _move_due(self, at: float) -> None:
        for container, target in list(pinning.due_moves(self.pods.values(), self.ledger)):
            if at >= container.retry_at:
                pinning.note_move_ordered(container, target.cpus)
                self._outbox.put(instructions.Pin(container.id, target.cpus, target.mems))

    def _start_due(self, at: float) -> None:
        if self.draining:
            return
        occupied = pinning.occupied_cpus(self.pods.values(), self.ledger)
        for pod in list(self.pods.values()):
            if pod.admitted and not pod.finished:
                for container in lifecycle.due_to_start(pod):
                    self._start(pod, container, occupied, at)

    def _start(
        self, pod: PodRecord, container: ContainerProgress, occupied: pinning.OccupiedCPUs, at: float
    ) -> None:
        allocation = pinning.allocation_of(self.ledger, pod.uid, container.name)
        if allocation is None or at < container.retry_at or self._backs_off(pod, container, at):
            return
        cpus = pinning.start_cpus(allocation, occupied)
        if not cpus:
            if pinning.note_waiting(container, allocation.cpus):
                self._outbox.touch(pod)
                self._reporter.waiting(pod.plan, container.name, allocation.cpus)
            return
        lifecycle.note_start_ordered(container, cpus)
        occupied.add(cpus, allocation.sharing, allocation.group)
        self._outbox.touch(pod)
        order = instructions.Start(pod.plan, container.name, container.attempt, cpus, allocation.mems)
        self._outbox.put(order)

    def _backs_off(self, pod: PodRecord, container: ContainerProgress, at: float) -> bool:
        if not lifecycle.in_backoff(container, at):
            return False
        if container.backoff_reported != container.attempt:
            container.backoff_reported = container.attempt
            self._recorder.backs_off(pod, container)
            self._outbox.touch(pod)
        return True

    # -- used by several of the above

    def _note_started(
        self, pod: PodRecord, container: ContainerProgress, run_id: str, started_at: float, at: float
    ) -> None:
        obsolete = lifecycle.note_started(container, run_id, started_at, at)
        self.index.add_run(run_id, pod, container)
        if obsolete:
            self._outbox.put(instructions.Remove(obsolete))
        self._outbox.touch(pod)

    def _note_exit(self, pod: PodRecord, container: ContainerProgress, ended: ContainerExit) -> None:
        self.index.drop_run(ended.id)
        lifecycle.note_exit(container, ended)
        self._mark(pod, container, Phase.RESERVED)
        self._outbox.touch(pod)
        self._reporter.ended(pod.plan, container.name, ended)

    def _mark(self, pod: PodRecord, container: ContainerProgress, phase: Phase) -> None:
        entry = self.ledger.entries.get((pod.uid, container.name))
        if entry is not None and entry.phase is not Phase.RELEASING:
            self.ledger = mark(self.ledger, pod.uid, container.name, phase)

    def _confirm(self, pod: PodRecord, container: ContainerProgress) -> None:
        """Compare the kernel's allowed CPUs with the applied ones, and record what changed."""
        before = container.confirmed
        confirmation = pinning.confirm(container)
        if container.confirmed != before:
            self._outbox.touch(pod)
        self._mark(pod, container, Phase.CONFIRMED if container.confirmed else Phase.APPLIED)
        if confirmation is pinning.Confirmation.DRIFTED:
            self._recorder.drifted(pod, container)
        elif container.confirmed and not before:
            allocation = pinning.allocation_of(self.ledger, pod.uid, container.name)
            self._recorder.confirmed(pod, container, allocation.sharing if allocation else None)
