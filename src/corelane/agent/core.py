"""The agent's pure core: events in, instructions out, over the pods of one node and its ledger.

Theory of operation. An event only records a fact. After it, `_settle` looks at everything and orders
whatever is missing between what is and what is to be: admissions, stops, moves to other CPUs, starts, and
last the statuses that changed. Each container has at most one order on its way, and what it may be running
on meanwhile counts as taken (see `pins`), so orders may be carried out in any order and any of them may be
lost with a crash. A change of the ledger is the first instruction of its batch: it is on disk before
anything is done because of it.
"""

from typing import TYPE_CHECKING, Any, Final

from corelane.agent import admission, kubelet, lifecycle, messages, pins, restarts, runs, status
from corelane.agent.messages import Event, Instruction
from corelane.agent.outbox import Outbox
from corelane.agent.pod_events import EventRecorder
from corelane.agent.pod_index import PodIndex
from corelane.agent.pods import NO_CPUS, Container, Ended, Pod, Reason, Stage, Termination, records
from corelane.agent.reporter import Reporter
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState, Phase, mark, rebase, release, started
from corelane.node.pools.takeover import follow, pinned

if TYPE_CHECKING:
    from collections.abc import Callable

ORPHAN_GRACE: Final = 30.0
"""Seconds for processes of a pod that is gone and took its grace period with it."""
SHORTEST_GRACE: Final = 1.0
RETRY_AFTER: Final = 5.0


class Core:
    """The state of one agent. `validate` checks the invariants after every event (AssertionError)."""

    def __init__(
        self,
        ledger: NodeState,
        *,
        place: status.Place | None = None,
        capacity: admission.Capacity | None = None,
        reporter: Reporter | None = None,
        validate: bool = False,
        follows_kubelet: bool = False,
    ) -> None:
        """With `follows_kubelet` what a kubelet pinned stays in the ledger until KubeletSaid takes it out."""
        self.ledger = ledger
        self._follows_kubelet = follows_kubelet
        self._kubelet: messages.KubeletSaid | None = None
        self.roster = PodIndex()
        self.pods = self.roster.pods
        self.draining = False
        self._capacity = capacity or admission.Capacity()
        self._validate = validate
        self._synced = False
        self._restless = False
        self._outbox = Outbox(place or status.Place())
        self._announce = EventRecorder(self._outbox, reporter or Reporter())
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            messages.Found: self._found,
            messages.PodSeen: self._pod_seen,
            messages.PodGone: self._pod_gone,
            messages.Synced: self._all_seen,
            messages.Started: self._started,
            messages.StartFailed: self._start_failed,
            messages.Exited: self._exited,
            messages.StopFailed: self._stop_failed,
            messages.Pinned: self._pinned,
            messages.PinFailed: self._pin_failed,
            messages.Observed: self._observed,
            messages.KubeletSaid: self._kubelet_said,
            messages.MachineChanged: self._machine_changed,
            messages.Configured: self._configured,
            messages.Drain: self._drain,
            messages.Tick: lambda _: None,
        }

    def handle(self, *events: Event) -> list[Instruction]:
        """Take in what happened; what is to be done because of all of it, a checkpoint first."""
        before = self.ledger
        news = [event for event in events if not self._is_routine(event)]
        for event in news:
            self._handlers[type(event)](event)
        if news and (self._synced or self.draining):
            self._settle(news[-1].at)
        out = self._outbox.take()
        if self.ledger is not before:
            out = [messages.Checkpoint(self.ledger), *out, messages.PublishTopology(self.ledger)]
        if self._validate:
            pins.check(self.pods.values(), self.ledger)
        return out

    def _is_routine(self, event: Event) -> bool:
        """Whether an event tells nothing new: time that nobody waits for, or CPUs as they were."""
        if isinstance(event, messages.Tick):
            return not self._restless
        if isinstance(event, messages.Observed):
            _, container = self.roster.by_id(event.id)
            return container is None or runs.is_as_before(container, event.allowed)
        return False

    @property
    def drained(self) -> bool:
        """Whether everything was to be stopped, and is."""
        return self.draining and not any(pod.live for pod in self.pods.values())

    # -- events: what became known

    def _found(self, event: messages.Found) -> None:
        for run in sorted(event.runs, key=lambda run: run.attempt):
            pod = self.pods.get(run.uid)
            if pod is None:
                pod = self.pods[run.uid] = Pod(
                    admission.unknown_plan(run.uid, self.ledger), {}, present=False
                )
            lane = pins.granted(self.ledger, run.uid, run.container)
            container = runs.adopt(pod, run, lane.cpus if lane else NO_CPUS, event.at)
            self.roster.note_run(run.id, pod, container)
            self.ledger = started(self.ledger, run.uid, run.container)

    def _pod_seen(self, event: messages.PodSeen) -> None:
        plan = event.plan
        pod = self.pods.get(plan.uid)
        if pod is None:
            pod = self.pods[plan.uid] = Pod(plan, records(plan.containers), present=False)
        if not pod.present:
            admission.introduce(pod, plan, event.at)
        pod.plan = plan
        self._outbox.touch(pod)
        if plan.deletion_grace is not None:
            self._doom(pod, event.at + plan.deletion_grace, event.at)
        elif plan.ended and not pod.over:
            self._doom(pod, event.at + plan.grace, event.at)

    def _pod_gone(self, event: messages.PodGone) -> None:
        pod = self.pods.get(event.uid)
        if pod is None:
            return
        pod.present = False
        if pod.over:
            self._forget(pod)
            return
        grace = pod.plan.grace if pod.plan.deletion_grace is None else pod.plan.deletion_grace
        self._doom(pod, event.at + grace, event.at)

    def _all_seen(self, event: messages.Synced) -> None:
        self._synced = True
        for pod in list(self.pods.values()):
            if not pod.present:
                self._doom(pod, event.at + ORPHAN_GRACE, event.at)
        kept = {entry.uid for entry in pinned(self.ledger)} if self._follows_kubelet else set()
        for uid in self.ledger.pods.keys() - self.pods.keys() - kept:
            self.ledger = release(self.ledger, uid)

    def _started(self, event: messages.Started) -> None:
        found = self.roster.ordered(event.uid, event.container, event.attempt)
        if found is None:
            return
        pod, container = found
        self._note_run(pod, container, event.id, event.started_at, event.at)
        self.ledger = started(self.ledger, pod.uid, container.name)
        self._mark(pod, container, Phase.APPLIED)
        self._announce.started(pod, container)

    def _start_failed(self, event: messages.StartFailed) -> None:
        found = self.roster.ordered(event.uid, event.container, event.attempt)
        if found is None:
            return
        pod, container = found
        reason = Reason(event.reason, event.message)
        self._announce.start_failed(pod, container, reason)
        if event.exit_code is None:
            runs.unstart(container, reason, event.at + RETRY_AFTER)
            self._outbox.touch(pod)
            return
        self._note_run(pod, container, "", event.at, event.at)
        ended = Ended(event.exit_code, event.at, event.at, reason=event.reason, message=event.message)
        self._note_end(pod, container, ended)

    def _exited(self, event: messages.Exited) -> None:
        run = event.run
        pod = self.pods.get(run.uid)
        container = pod and pod.containers.get(run.container)
        if not pod or not container or not container.live or container.attempt != run.attempt:
            return
        if container.stage is Stage.STARTING:
            self._note_run(pod, container, run.id, run.started_at or event.at, event.at)
        self._note_end(pod, container, runs.end_of(run, event.at))

    def _stop_failed(self, event: messages.StopFailed) -> None:
        pod, container = self.roster.by_id(event.id)
        if pod and container and container.stage is Stage.STOPPING:
            runs.unstop(container, event.at + RETRY_AFTER)
            self._announce.stop_failed(pod, container, event.message)

    def _pinned(self, event: messages.Pinned) -> None:
        pod, container = self.roster.by_id(event.id)
        if pod and container:
            runs.applied(container, event.cpus, event.allowed)
            self._announce.pinned(pod, container, event.cpus)
            self._judge(pod, container)

    def _pin_failed(self, event: messages.PinFailed) -> None:
        pod, container = self.roster.by_id(event.id)
        if not pod or not container:
            return
        wanted = container.pending or container.applied
        runs.failed(container, event.at + RETRY_AFTER)
        self._announce.pin_failed(pod, container, wanted, event.message)
        self._judge(pod, container)

    def _observed(self, event: messages.Observed) -> None:
        pod, container = self.roster.by_id(event.id)
        if pod and container and container.pending is None and not pod.untouched:
            runs.observed(container, event.allowed)
            self._judge(pod, container)

    def _kubelet_said(self, event: messages.KubeletSaid) -> None:
        self._kubelet = event
        before, requests = self.ledger, [pod.plan.request for pod in self.pods.values() if pod.present]
        self.ledger, problems = follow(before, event.checkpoint, requests, event.running, event.names)
        for tell in kubelet.news(before, self.ledger, problems):
            self._outbox.put(tell)

    def _machine_changed(self, event: messages.MachineChanged) -> None:
        self._rebase(event.machine, self.ledger.config, "CPUsLost")

    def _configured(self, event: messages.Configured) -> None:
        self._rebase(self.ledger.machine, event.config, "SettingsChanged")

    def _rebase(self, machine: Machine, config: NodeConfig, reason: str) -> None:
        self.ledger, problems = rebase(self.ledger, machine, config)
        for problem in problems:
            self._outbox.put(messages.Tell(problem.uid, reason, problem.text, warning=True))
        if self._kubelet is not None:
            self._kubelet_said(self._kubelet)

    def _drain(self, event: messages.Drain) -> None:
        self.draining = True

    # -- what follows from them

    def _settle(self, at: float) -> None:
        for pod in admission.in_turn(self.ledger, self.pods.values()):
            if not pod.over:
                self._progress(pod, at)
        self._move(at)
        self._start_due(at)
        for container, _ in self.roster.live():
            if container.unread and container.pending is None:
                container.unread = False
                self._outbox.put(messages.Read(container.id))
        self._outbox.publish_touched(self.pods.get, at)
        self._restless = any(lifecycle.waits_for_time(pod, at) for pod in self.pods.values())

    def _progress(self, pod: Pod, at: float) -> None:
        if pod.untouched and not pod.live:
            pod.untouched = pod.admitted = False
        if not pod.admitted and not lifecycle.ending(pod) and not self.draining:
            self._admit(pod, at)
        if pod.doom is None and lifecycle.outlives_deadline(pod, at):
            self._doom(pod, at + pod.plan.grace, at, lifecycle.DEADLINE)
        if self.draining or lifecycle.ending(pod):
            for container in lifecycle.to_stop(pod):
                self._stop(pod, container, at)
        if lifecycle.over(pod) and not self.draining:
            self._finish(pod, at)

    def _admit(self, pod: Pod, at: float) -> None:
        self.ledger, verdict = admission.decide(self.ledger, pod, self.pods.values(), self._capacity)
        pod.admitted = verdict.refusal is None or verdict.untouched
        pod.untouched = verdict.untouched
        self._outbox.touch(pod)
        if verdict.refusal and not verdict.untouched:
            pod.rejected = verdict.refusal
            self._announce.refused(pod, verdict.refusal, self.ledger)
            self._finish(pod, at)
            return
        self._announce.admitted(pod, verdict)
        record = admission.record(self.ledger, pod.plan.request, verdict)
        if record:
            self._outbox.put(record)

    def _doom(self, pod: Pod, by: float, at: float, reason: Reason | None = None) -> None:
        """The pod has to end; told twice, the earlier time counts."""
        if pod.doom is None:
            pod.doom = Termination(by, reason)
            self._outbox.touch(pod)
        elif by < pod.doom.by:
            pod.doom = Termination(by, pod.doom.reason)
            for container in pod.containers.values():
                if container.stage is Stage.STOPPING:
                    self._outbox.put(messages.Stop(container.id, max(by - at, SHORTEST_GRACE)))
        if pod.over and pod.present and pod.plan.deletion_grace is not None:
            self._outbox.delete(pod)

    def _stop(self, pod: Pod, container: Container, at: float) -> None:
        if at < container.retry_at:
            return
        left = pod.doom.by - at if pod.doom else pod.plan.grace
        container.stage = Stage.STOPPING
        if not self.draining:
            self._mark(pod, container, Phase.RELEASING)
        self._announce.stopping(pod, container)
        self._outbox.put(messages.Stop(container.id, max(left, SHORTEST_GRACE)))

    def _finish(self, pod: Pod, at: float) -> None:
        """Nothing of the pod is left: its CPUs are free, and whoever wants to know is told."""
        pod.over = True
        self.ledger = release(self.ledger, pod.uid)
        if not pod.present:
            self._forget(pod)
            return
        self._outbox.publish(pod, at)
        if pod.plan.deletion_grace is not None:
            self._outbox.delete(pod)

    def _forget(self, pod: Pod) -> None:
        del self.pods[pod.uid]
        self._outbox.put(messages.RemovePod(pod.uid))

    def _move(self, at: float) -> None:
        for container, lane in list(pins.to_move(self.pods.values(), self.ledger)):
            if at >= container.retry_at:
                runs.move(container, lane.cpus)
                self._outbox.put(messages.Pin(container.id, lane.cpus, lane.mems))

    def _start_due(self, at: float) -> None:
        if self.draining:
            return
        occupied = pins.occupation(self.pods.values(), self.ledger)
        for pod in list(self.pods.values()):
            if pod.admitted and not pod.over:
                for container in lifecycle.due(pod):
                    self._start(pod, container, occupied, at)

    def _start(self, pod: Pod, container: Container, occupied: pins.Occupation, at: float) -> None:
        lane = pins.granted(self.ledger, pod.uid, container.name)
        if lane is None or at < container.retry_at or self._backs_off(pod, container, at):
            return
        cpus = pins.start_cpus(lane, occupied)
        if not cpus:
            if runs.lacks_cpus(container, lane.cpus):
                self._outbox.touch(pod)
                self._announce.waiting(pod, container, lane.cpus)
            return
        runs.begin(container, cpus)
        occupied.add(cpus, lane.sharing, lane.group)
        self._outbox.touch(pod)
        self._outbox.put(messages.Start(pod.plan, container.name, container.attempt, cpus, lane.mems))

    def _backs_off(self, pod: Pod, container: Container, at: float) -> bool:
        if not restarts.waits(container, at):
            return False
        if container.told_back_off != container.attempt:
            container.told_back_off = container.attempt
            self._announce.backs_off(pod, container)
            self._outbox.touch(pod)
        return True

    # -- shared by several of the above

    def _note_run(
        self, pod: Pod, container: Container, container_id: str, started_at: float, at: float
    ) -> None:
        outdated = runs.began(container, container_id, started_at, at)
        self.roster.note_run(container_id, pod, container)
        if outdated:
            self._outbox.put(messages.Remove(outdated))
        self._outbox.touch(pod)

    def _note_end(self, pod: Pod, container: Container, ended: Ended) -> None:
        self.roster.drop_run(ended.id)
        runs.ended(container, ended)
        self._mark(pod, container, Phase.RESERVED)
        self._outbox.touch(pod)
        self._announce.ended(pod, container, ended)

    def _mark(self, pod: Pod, container: Container, phase: Phase) -> None:
        entry = self.ledger.entries.get((pod.uid, container.name))
        if entry is not None and entry.phase is not Phase.RELEASING:
            self.ledger = mark(self.ledger, pod.uid, container.name, phase)

    def _judge(self, pod: Pod, container: Container) -> None:
        """Compare what the kernel allows with what was applied, and say what is new."""
        held = container.confirmed
        verdict = runs.judge(container)
        if container.confirmed != held:
            self._outbox.touch(pod)
        self._mark(pod, container, Phase.CONFIRMED if verdict is runs.Verdict.HELD else Phase.APPLIED)
        if verdict is runs.Verdict.ESCAPED:
            self._announce.drifted(pod, container)
        elif verdict is runs.Verdict.HELD and not held:
            lane = pins.granted(self.ledger, pod.uid, container.name)
            self._announce.confirmed(pod, container, lane.sharing if lane else None)
