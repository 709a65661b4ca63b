"""The allocation of a node's CPUs: pods in the ledger, their containers' runs, and the moves between them.

Theory of operation. The ledger holds the target. Each run has at most one order outstanding, and the CPUs
that it may be using meanwhile count as occupied (see `cpu_moves`), so orders may be carried out in any order
and any of them may be lost in a crash. A change of the ledger is the first instruction of its batch: it is on
disk before any other.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from corelane.agent.allocation import cpu_moves, events, instructions, records
from corelane.agent.allocation.cpu_moves import CPUAllocation, OccupiedCPUs
from corelane.agent.allocation.events import AgentEvent, ContainerRun
from corelane.agent.allocation.instructions import Instruction
from corelane.agent.allocation.modes import Mode
from corelane.agent.allocation.outbox import (
    AllocationEvents,
    AllocationReporter,
    NodeChange,
    NodeRules,
    Outbox,
)
from corelane.agent.allocation.records import (
    NO_CPUS,
    AdmissionResult,
    BoundPod,
    PodCPUs,
    RunCPUs,
    StatusReason,
    all_runs,
    unlisted_request,
)
from corelane.cpuset import CPUSet
from corelane.node.entries import Phase, Sharing
from corelane.node.ledger import Decision, NodeState, mark, release, reserve_again, started
from corelane.node.recovery.rebasing import exclusive_shortfall
from corelane.node.recovery.takeover import pinned
from corelane.node.recovery.unplaced import (
    OTHERS,
    adopted,
    has_own_cpus,
    is_unplaced,
    keep_in_pool,
    keep_where_it_runs,
    left_in_place,
)
from corelane.runtime.base import KEEP, ObservedResources, ResourceUpdate
from corelane.workload.request import PodRequest

RETRY_AFTER: Final = 5.0
RESTORE_AFTER: Final = 10.0
"""Seconds between two writes of one pod's annotations that another writer keeps changing."""


class Allocation:
    """The CPUs of one node. `validate` checks the invariants after every batch (AssertionError)."""

    def __init__(
        self,
        ledger: NodeState,
        *,
        reporter: AllocationReporter | None = None,
        validate: bool = False,
        follows_kubelet: bool = False,
    ) -> None:
        """With `follows_kubelet`, CPUs pinned by a kubelet stay in the ledger until KubeletStateRead."""
        self.ledger = ledger
        self.pods: dict[str, PodCPUs] = {}
        self.outbox = Outbox()
        self.reporter = reporter or AllocationReporter()
        self.recorder = AllocationEvents(self.outbox, self.reporter)
        self._rules = NodeRules(ledger.config, self.outbox)
        self._saved = ledger
        self._runs: dict[str, RunCPUs] = {}
        self._differing: set[str] = set()
        """Pods whose annotations do not say what the ledger allocates."""
        self._follows_kubelet = follows_kubelet
        self._validate = validate
        self._handlers: dict[type[AgentEvent], Callable[[Any], None]] = {
            events.Pinned: self._pinned,
            events.PinFailed: self._pin_failed,
            events.Observed: self._observed,
            events.KubeletStateRead: self._follow,
            events.MachineChanged: self._follow,
            events.ConfigChanged: self._follow,
            events.ModeChanged: self._follow,
        }

    def start_from(self, ledger: NodeState) -> None:
        """Start from another ledger, before the first event: another agent wrote it meanwhile."""
        self.ledger = self._saved = ledger
        self._rules.config = ledger.config

    def note(self, event: AgentEvent) -> None:
        """Apply an event about CPUs; what follows is ordered later, and returned by `take`."""
        self._handlers[type(event)](event)

    def take(self) -> list[Instruction]:
        """Return the instructions collected since the last call; a changed ledger is saved first."""
        orders = self.outbox.take()
        if self.ledger is not self._saved:
            self._saved = self.ledger
            orders = [instructions.SaveLedger(self.ledger), *orders, instructions.PublishTopology()]
        if self._validate:
            cpu_moves.assert_no_conflict(self.pods.values(), self.ledger)
        return orders

    def is_routine(self, event: AgentEvent) -> bool:
        """Whether an event is a reading that shows unchanged CPUs."""
        if not isinstance(event, events.Observed):
            return False
        run = self._runs.get(event.id)
        if run is None:
            return True
        return cpu_moves.is_unchanged(run, event.allowed) and event.resources in (None, run.resources)

    def needs_ticks(self, now: float) -> bool:
        """Whether passing time alone may lead to an instruction; errs on the side of true."""
        runs = all_runs(self.pods.values())
        return bool(self._differing) or any(run.drifted or run.fault or now < run.retry_at for run in runs)

    # -- pods

    def pod(self, uid: str) -> PodCPUs:
        """Return the pod's record; a new one for a pod that was not listed yet."""
        if uid not in self.pods:
            pod = BoundPod(unlisted_request(uid, self.ledger))
            unmanaged, held = left_in_place(self.ledger, uid), is_unplaced(self.ledger, uid)
            self.pods[uid] = PodCPUs(pod, unmanaged=unmanaged, held=held)
        return self.pods[uid]

    def admit(self, pod: PodCPUs) -> AdmissionResult:
        """Allocate a pod's CPUs, or return why there are none for it."""
        before = self.ledger
        self.ledger, result = records.admit_pod(before, pod)
        pod.admitted = result.refusal is None
        if pod.admitted:
            pod.held, pod.unmanaged, pod.unplaced = False, False, None
            for run in pod.runs:  # one may still be in the shared pool, although its pod has exclusive CPUs
                target = self.target(run.uid, run.container)
                if target is None or not target.sharing.exclusive:
                    run.pooled = False
                elif run.id and not has_own_cpus(before, run.possible_cpus):
                    run.pooled |= not run.possible_cpus <= target.cpus
        if result.decision and result.decision.admitted:
            self._confirm_again(pod)
        self.outbox.touch(pod.uid)
        if pod.admitted and result.decision is None and not pod.unmanaged:
            self._follow_resize(pod, pod.pod.request)
        self._note_shortfall(pod)
        if pod.admitted:
            self.recorder.admitted(pod, result)
            update = records.annotation_update(self.ledger, pod.pod.request, result)
            if update and not pod.unmanaged:
                self._differing.discard(pod.uid)
                self.outbox.put(update)
        return result

    def place_again(self, pod: PodCPUs) -> bool:
        """Allocate other CPUs to a pod without processes that lost some; return whether there are any.

        Where there are none it keeps what is left, or its place in the shared pool.
        """
        ledger, result = records.admit_pod(release(self.ledger, pod.uid), pod)
        if result.refusal is None:
            self.ledger = ledger
            self._note_shortfall(pod)
            self.recorder.admitted(pod, result)
            record = records.record_of(ledger, pod.uid)
            reasons = result.decision.reasons if result.decision else ()
            self.outbox.put(instructions.Annotate(pod.uid, record.cpus, record.zone, reasons))
        return result.refusal is None

    def see(self, pod: PodCPUs, bound: BoundPod) -> None:
        """Record what was read of a pod; whether its annotations say what is allocated is decided later."""
        before, pod.present = pod.pod.request, True
        pod.pod = _with_shared(bound, before.shared)
        if pod.admitted and not pod.unmanaged:
            self._follow_resize(pod, before)
        if bound.record is not None:
            self._differing.add(pod.uid)

    def _follow_resize(self, pod: PodCPUs, before: PodRequest) -> None:
        """Take over requests that were changed in place; containers stay where they are.

        One that was placed in the pool is recorded, as a ledger that is lost must not make it exclusive.
        """
        resized = records.follow(self.ledger, pod.pod.request, before)
        if resized.ledger is not self.ledger:
            self.ledger = resized.ledger
            self.outbox.touch(pod.uid)
        for container, cpus in resized.exclusive:
            self.recorder.cpus_kept(pod, container, cpus)
        if resized.shared and pod.unplaced is None:
            for container in resized.shared:
                self.recorder.pool_kept(pod, container)
            pod.pod = _with_shared(pod.pod, {container.name for container in resized.shared})
            self.outbox.put(instructions.RecordResized(pod.uid, pod.pod.request.shared))

    def restore_annotations(self, now: float) -> None:
        """Write the annotations of admitted pods that another writer changed, each once in a while."""
        if not self._differing or self.ledger.config.policy == "none":
            self._differing.clear()
            return
        for uid in list(self._differing):
            pod = self.pods.get(uid)
            placed = pod is not None and pod.present and pod.admitted and pod.unplaced is None
            if pod is None or not placed or pod.unmanaged or not self.may_write(pod):
                self._differing.discard(uid)
            elif pod.pod.record == (record := records.record_of(self.ledger, uid)):
                self._differing.discard(uid)
                pod.recorded = True
            elif now >= pod.restore_at:
                self._differing.discard(uid)
                pod.restore_at = now + RESTORE_AFTER
                self.outbox.put(instructions.Annotate(uid, record.cpus, record.zone))
                if pod.recorded:
                    self.recorder.restored(pod, now)

    def keep(self, pod: PodCPUs, refusal: StatusReason, decision: Decision | None = None) -> None:
        """Enter a pod that cannot be placed, as it is there all the same: where it runs, or in its pool."""
        before, after = self.ledger, self._left_where_it_runs(pod)
        is_news = _amounts(before, pod.uid) != _amounts(after, pod.uid)
        if is_news:
            self.ledger = after
            self._confirm_again(pod)
        pod.held, pod.admitted, pod.unmanaged = False, True, left_in_place(self.ledger, pod.uid)
        pod.unplaced, pod.refused_with = refusal, room(self.ledger)
        self.outbox.touch(pod.uid)
        if is_news:
            self.recorder.kept(pod, refusal, decision, before)

    def hold(self, pod: PodCPUs, at: float) -> None:
        """Enter a running pod of which no more is known: where it runs, or in the shared pool."""
        stays = any(has_own_cpus(self.ledger, run.seen) for run in pod.runs)
        self.ledger = self._left_where_it_runs(pod)
        pod.admitted, pod.unmanaged = False, pod.unmanaged or stays
        pod.held, pod.held_at = True, pod.held_at or at
        self._confirm_again(pod)
        self.outbox.touch(pod.uid)

    def hold_again(self) -> None:
        """Hold CPUs of unmanaged pods that another owner has released meanwhile."""
        for pod in self.pods.values():
            if pod.unmanaged:
                after = self._left_where_it_runs(pod)
                if after.bound != self.ledger.bound:
                    self.ledger = after
                    self._confirm_again(pod)

    def _confirm_again(self, pod: PodCPUs) -> None:
        """Read the CPUs of a pod's runs again: its entries in the ledger are new."""
        for run in pod.runs:
            run.confirmed, run.unread = False, True
            self.ledger = started(self.ledger, run.uid, run.container)
            self.mark(run, Phase.APPLIED)

    def _left_where_it_runs(self, pod: PodCPUs) -> NodeState:
        """Return the ledger with a pod where its containers run; of one that is held, where they ran, too."""
        running = {run.container: run.possible_cpus for run in pod.runs}
        if pod.held:
            before = {entry.container: entry.cpus for entry in adopted(self.ledger, pod.uid)}
            running = before | {
                name: cpus
                for name, cpus in running.items()
                if has_own_cpus(self.ledger, cpus) or not before.get(name)
            }
        # The reservation is topped up at the end only: it must not take what the pod runs on.
        without = replace(release(self.ledger, pod.uid), reserved=self.ledger.reserved)
        return reserve_again(keep_where_it_runs(without, pod.pod.request, running))

    def enter_others(self, pod: PodCPUs, names: Iterable[str]) -> None:
        """Enter containers beside those of the pod's request, such as ephemeral ones, in its pool."""
        names = {*names, *(run.container for run in pod.runs)}
        missing = sorted(name for name in names if (pod.uid, name) not in self.ledger.entries)
        if missing:
            self.ledger = keep_in_pool(self.ledger, pod.pod.request, missing)

    def release(self, pod: PodCPUs) -> None:
        """Release the CPUs of a pod without processes."""
        pod.admitted, pod.unplaced, pod.unmanaged, pod.held = False, None, False, False
        self.ledger = release(self.ledger, pod.uid)

    def forget(self, uid: str) -> None:
        """Drop the record of a released pod."""
        del self.pods[uid]

    def release_unlisted(self, remaining: frozenset[str] = frozenset()) -> None:
        """Release all pods without a record, but for `remaining` and those of a kubelet beside the agent."""
        of_kubelet = {entry.uid for entry in pinned(self.ledger)} if self._follows_kubelet else set()
        for uid in self.ledger.pods.keys() - self.pods.keys() - of_kubelet - remaining - {OTHERS}:
            self.ledger = release(self.ledger, uid)

    # -- runs of containers

    def run(self, run_id: str) -> RunCPUs | None:
        """Return the record of a run, of which a process may exist."""
        return self._runs.get(run_id)

    def runs(self) -> list[RunCPUs]:
        """Return all runs that were started."""
        return list(self._runs.values())

    def target(self, uid: str, container: str) -> CPUAllocation | None:
        """Return what the ledger allocates to a container; None if there is no entry."""
        return cpu_moves.allocation_of(self.ledger, uid, container)

    def occupied(self) -> OccupiedCPUs:
        """Return the CPUs that runs may be using."""
        return cpu_moves.occupied_cpus(all_runs(self.pods.values()), self.ledger)

    def ordered(self) -> OccupiedCPUs:
        """Return the CPUs that are ordered for runs."""
        return cpu_moves.occupied_cpus(all_runs(self.pods.values()), self.ledger, observed=False)

    def order_start(self, pod: PodCPUs, container: str, cpus: CPUSet) -> RunCPUs:
        """Record that a run is ordered on these CPUs."""
        run = RunCPUs(pod.uid, container, pending=cpus)
        pod.runs.append(run)
        return run

    def note_started(self, run: RunCPUs, run_id: str) -> None:
        """Record that an ordered run is up."""
        cpu_moves.note_started(run, run_id)
        self._runs[run_id] = run
        self.ledger = started(self.ledger, run.uid, run.container)
        self.mark(run, Phase.APPLIED)

    def order_creation(self, pod: PodCPUs, container: str, run_id: str, cpus: CPUSet, now: float) -> RunCPUs:
        """Record that the runtime is to create a container on these CPUs."""
        run = self.order_start(pod, container, cpus)
        run.id, run.creating, run.recorded_at = run_id, True, now
        self._runs[run_id] = run
        return run

    def update_on(self, run: RunCPUs, cpus: CPUSet) -> ResourceUpdate:
        """Return what a container on these CPUs is to have."""
        target = self.target(run.uid, run.container)
        exclusive = target is not None and target.sharing.exclusive and not run.pooled
        return ResourceUpdate(
            cpus=cpus,
            mems=target.mems if target and self._rules.policy.mems else None,
            quota_us=None if exclusive and self._rules.policy.quota else KEEP,
        )

    def note_created(self, run: RunCPUs, listed: ContainerRun) -> None:
        """Record that the runtime created a container as it was answered."""
        cpu_moves.note_created(run, listed.allowed)
        run.resources = listed.resources
        self.ledger = started(self.ledger, run.uid, run.container)
        self.mark(run, Phase.APPLIED)

    def note_ended(self, run: RunCPUs) -> None:
        """Record that no process of a run is left, or that it was not started."""
        pod = self.pods[run.uid]
        pod.runs.remove(run)
        self._runs.pop(run.id, None)
        if pod.unmanaged and not pod.runs and not pod.held:
            pod.unmanaged = pod.admitted = False
            self.ledger = release(self.ledger, pod.uid)
        others = [other for other in pod.runs if other.container == run.container]
        if not others:
            self.mark(run, Phase.RESERVED)
        for other in others:
            self.mark(other, Phase.CONFIRMED if other.confirmed else Phase.APPLIED)

    def adopt(self, listed: ContainerRun) -> RunCPUs | None:
        """Record a run that an earlier agent started; None if it has ended.

        One on other CPUs than those allocated will be moved to them; one that the runtime would bring back to
        others is pinned again, which changes the runtime's record alone.
        """
        pod = self.pod(listed.uid)
        self.ledger = started(self.ledger, listed.uid, listed.container)
        if not listed.live:
            return None
        target = self.target(listed.uid, listed.container)
        run = RunCPUs(listed.uid, listed.container, listed.id, seen=listed.allowed, unread=True)
        settled = target and listed.allowed == target.cpus and not listed.record_differs
        run.applied, run.adopted = target.cpus if target and settled else NO_CPUS, True
        run.resources, run.record_differs = listed.resources, listed.record_differs
        pod.runs.append(run)
        self._runs[run.id] = run
        return run

    def mark(self, run: RunCPUs, phase: Phase) -> None:
        """Set the phase of a container's ledger entry, unless it is being released."""
        entry = self.ledger.entries.get((run.uid, run.container))
        if entry is not None and entry.phase is not Phase.RELEASING:
            self.ledger = mark(self.ledger, run.uid, run.container, phase)

    # -- orders that are due

    def order_moves(self, now: float) -> None:
        """Order the moves and the changes of resources that are due."""
        self.hold_again()
        self._take_as_applied(now)
        for run, target in cpu_moves.due_moves(self.pods.values(), self.ledger):
            if now >= run.retry_at and self.may_write(self.pods[run.uid]):
                own = self.target(run.uid, run.container)
                if own is not None and own.sharing.exclusive and target.cpus != own.cpus:
                    run.pooled, target = True, replace(target, sharing=Sharing.POOL)  # for the time being
                self._order_pin(run, target.cpus, self._due_change(run, target))
        for pod in self.pods.values():
            for run in pod.runs if not pod.unmanaged and self.may_write(pod) else ():
                self._order_change(run, now)

    def _take_as_applied(self, now: float) -> None:
        """Let runs that were on their CPUs before anything was ordered stay there, without an order."""
        for run in self.runs():
            pod = self.pods[run.uid]
            new = run.seen and run.movable and not run.applied and not run.record_differs
            if new and not pod.unmanaged and self.may_write(pod):
                target = self.target(run.uid, run.container)
                if target is not None and target.cpus == run.seen:
                    cpu_moves.note_in_place(run)
                    self.confirm(run, now)

    def _order_change(self, run: RunCPUs, now: float) -> None:
        """Order a change of memory nodes or quota that is due while the CPUs stay."""
        target = self.target(run.uid, run.container)
        if target is None or run.resources is None or not run.movable or now < run.retry_at:
            return
        if not run.applied or (target.sharing.exclusive and run.applied != target.cpus):
            return  # it waits for its CPUs
        change = self._due_change(run, target)
        if change is None:
            run.attempted = None
        elif run.attempted != (change, run.resources):  # else it had no effect
            self._order_pin(run, run.applied, change)

    def _order_pin(self, run: RunCPUs, cpus: CPUSet, change: ResourceUpdate | None) -> None:
        run.attempted = (change, run.resources) if change else None
        cpu_moves.note_move_ordered(run, cpus)
        self.outbox.put(instructions.Pin(run.id, replace(change or ResourceUpdate(), cpus=cpus)))

    def _due_change(self, run: RunCPUs, target: CPUAllocation) -> ResourceUpdate | None:
        containers = self.pods[run.uid].pod.request.containers
        return cpu_moves.due_change(
            run.resources,
            target,
            limit=next((spec.cpu_limit for spec in containers if spec.name == run.container), 0),
            nodes=cpu_moves.memory_nodes(self.ledger.machine),
            policy=self._rules.policy,
        )

    def order_observations(self) -> None:
        """Order to read the CPUs of new runs."""
        for run in self.runs():
            if run.unread and run.pending is None:
                run.unread = False
                self.outbox.put(instructions.Observe(run.id))

    # -- what runtime and kernel report

    def _pinned(self, event: events.Pinned) -> None:
        if run := self._runs.get(event.id):
            cpu_moves.note_applied(
                run,
                event.cpus,
                event.allowed,
                in_cpuset=_in_cpuset(event.resources),
                retry_at=event.now + RETRY_AFTER,
            )
            run.resources, run.applied_at = event.resources, event.now
            self.reporter.pinned(self.pods[run.uid].pod, run.container, event.cpus)
            self.confirm(run, event.now)

    def _pin_failed(self, event: events.PinFailed) -> None:
        if run := self._runs.get(event.id):
            target = run.pending or run.applied
            cpu_moves.note_pin_failure(run, event.now + RETRY_AFTER, event.message)
            self.recorder.pin_failed(self.pods[run.uid], run, target, event.message, event.now)
            self.confirm(run, event.now)

    def _observed(self, event: events.Observed) -> None:
        run = self._runs.get(event.id)
        if run is None or run.pending is not None:
            return
        if event.began is not None and event.began < run.applied_at:
            return
        if self.pods[run.uid].unmanaged:
            run.seen = event.allowed
            return
        run.resources = event.resources
        if not self.may_write(self.pods[run.uid]):  # another owner of the cpusets decides
            run.applied, run.seen, run.confirmed = NO_CPUS, event.allowed, False
        elif cpu_moves.is_loss(run, event.allowed, self.ledger.machine.usable):
            run.seen, run.confirmed = event.allowed, False
        else:
            cpu_moves.note_allowed(run, event.allowed, in_cpuset=_in_cpuset(event.resources))
            self.confirm(run, event.now)

    def confirm(self, run: RunCPUs, now: float) -> None:
        """Compare the kernel's allowed CPUs with the applied ones, and record what changed."""
        pod, before = self.pods[run.uid], run.confirmed
        target, beside = self.target(run.uid, run.container), ""
        run.pooled &= target is None or not run.possible_cpus <= target.cpus
        result = cpu_moves.confirm(run)
        if target is not None and target.sharing.exclusive:
            beside = self.not_exclusive(target.cpus)
        overlaps = cpu_moves.overlaps(run, self._runs.values(), self.ledger) or bool(beside)
        run.overlapped, run.beside = run.confirmed and overlaps, beside if run.confirmed else ""
        run.confirmed &= not run.overlapped
        if not (run.confirmed and before):
            self.outbox.touch(run.uid)
        self.mark(run, Phase.CONFIRMED if run.confirmed else Phase.APPLIED)
        if result is cpu_moves.Confirmation.DRIFTED:
            self.recorder.drifted(pod, run, now)
        elif run.confirmed and not before:
            self.recorder.confirmed(pod, run, target.sharing if target else None)

    def not_exclusive(self, cpus: CPUSet) -> str:
        """Return why CPUs may be used by what corelane does not confine; "" if nothing is known there."""
        return ""

    # -- what the node's owner changes

    @property
    def mode(self) -> Mode | None:
        """What the agent may do; None before a mode was decided: everything."""
        return self._rules.mode

    def may_write(self, pod: PodCPUs, mode: Mode | None = None) -> bool:
        """Whether a mode, by default the one of the last event, lets corelane write a pod's cpusets."""
        return self._rules.may_write(pod, mode)

    def _follow(self, event: NodeChange) -> None:
        """Follow a change of the node; a container with exclusive CPUs again is still in the shared pool."""
        requests = [pod.pod.request for pod in self.pods.values() if pod.present]
        ledger = self._rules.follow(event, self.ledger, requests)
        cpu_moves.note_exclusive_again(self._runs.values(), self.ledger, ledger)
        self.ledger = ledger
        for pod in self.pods.values():
            self._note_shortfall(pod)

    def _note_shortfall(self, pod: PodCPUs) -> None:
        shortfall = exclusive_shortfall(self.ledger, pod.pod.request)
        if shortfall != pod.shortfall:
            pod.shortfall = shortfall
            self.outbox.touch(pod.uid)


def _with_shared(bound: BoundPod, shared: AbstractSet[str]) -> BoundPod:
    """Return a pod whose record of containers resized in the shared pool may not be written yet."""
    if shared <= bound.request.shared:
        return bound
    return replace(bound, request=replace(bound.request, shared=bound.request.shared | shared))


def room(ledger: NodeState) -> object:
    """Return a value that is the same while a pod that was refused would be refused again."""
    return ledger.bound, ledger.requested, ledger.config, ledger.machine


def _amounts(ledger: NodeState, uid: str) -> object:
    """Return what the ledger has of a pod, but for the phases of its entries."""
    entries = {
        entry.container: (entry.cpus, entry.sharing, entry.cpu_request) for entry in ledger.of_pod(uid)
    }
    return entries, ledger.pods.get(uid)


def _in_cpuset(observed: ObservedResources | None) -> bool:
    """Whether a cpuset confines the container, rather than its tasks' affinity."""
    return observed is not None and bool(observed.cgroup)
