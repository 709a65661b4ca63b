"""Instructions collected while events are handled: Kubernetes events about pods, and the rules of the node.

The rules are what all allocations follow: the node's settings, the agent's mode, and CPUs that a kubelet
pinned. Each change is fitted into the ledger; what that could not keep is an event.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from corelane.agent.allocation import events
from corelane.agent.allocation.cpu_moves import ResourcePolicy, is_first_report
from corelane.agent.allocation.instructions import Instruction, PublishEvent
from corelane.agent.allocation.modes import Mode, ModeName
from corelane.agent.allocation.records import (
    NO_POD_OBJECT,
    AdmissionResult,
    BoundPod,
    PodCPUs,
    RunCPUs,
    StatusReason,
)
from corelane.cpuset import CPUSet, named
from corelane.node.config import NodeConfig
from corelane.node.entries import Entry, Sharing
from corelane.node.invariants import Problem
from corelane.node.ledger import Decision, NodeState
from corelane.node.recovery.rebasing import rebase
from corelane.node.recovery.takeover import follow, pinned
from corelane.reasons import Code
from corelane.workload.request import ContainerRequest, PodRequest


class AllocationReporter:
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""

    def admitted(self, pod: BoundPod, decision: Decision) -> None:
        """A pod was admitted by a decision."""

    def adopted(self, pod: BoundPod, runs: int) -> None:
        """A pod of an earlier run of the agent was adopted, with that many live containers."""

    def refused(self, pod: BoundPod, reason: StatusReason) -> None:
        """A pod was rejected. Alarm on it where `pod.bound_by_corelane`: the scheduler chose this node."""

    def left_unmanaged(self, pod: BoundPod, reason: StatusReason) -> None:
        """The ledger cannot hold a running pod's CPUs; its containers are left unchanged."""

    def unplaced(self, pod: BoundPod, reason: StatusReason) -> None:
        """A pod runs in the shared pool for lack of room: beside a kubelet, this is what a rejection is."""

    def waiting(self, pod: BoundPod, container: str, cpus: CPUSet) -> None:
        """A container waits to start until other containers have left its CPUs."""

    def pinned(self, pod: BoundPod, container: str, cpus: CPUSet) -> None:
        """A running container was moved to these CPUs."""

    def pin_failed(self, pod: BoundPod, container: str, cpus: CPUSet, message: str) -> None:
        """A running container could not be moved to these CPUs; the move is retried."""

    def confirmed(self, pod: BoundPod, container: str, cpus: CPUSet) -> None:
        """The kernel confines a container to its CPUs."""

    def drifted(self, pod: BoundPod, container: str, cpus: CPUSet, allowed: CPUSet) -> None:
        """The kernel allows a container CPUs that were not applied; its CPUs are applied again."""


REPEAT_AFTER: Final = 600.0
"""Seconds between two events about one container's drift, or failing changes: another program may go on."""
_MOST_PODS: Final = 8
_EXCLUSIVITY: Final = {Sharing.ALONE: "exclusive", Sharing.SHARED_WITH_BE: "exclusive, shared with BE"}


class Outbox:
    """Instructions in the order in which they are to be carried out, and the pods whose status may differ."""

    def __init__(self) -> None:
        self._orders: list[Instruction] = []
        self._touched: set[str] = set()

    def put(self, order: Instruction) -> None:
        self._orders.append(order)

    def take(self) -> list[Instruction]:
        """Return all instructions so far, and start a new batch."""
        orders, self._orders = self._orders, []
        return orders

    def touch(self, uid: str) -> None:
        """Mark a pod whose status may have changed."""
        self._touched.add(uid)

    def take_touched(self) -> set[str]:
        """Return the pods marked since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def record(self, pod: PodCPUs, reason: str, message: str, *, warning: bool = False) -> None:
        """Record a Kubernetes event about a pod; a pod that was deleted gets none."""
        if pod.present:
            self.put(PublishEvent(pod.uid, reason, message, warning))


@dataclass(frozen=True, slots=True)
class Drifts:
    """How often containers were found on other CPUs than those applied; `last` in words, at `last_now`."""

    count: int = 0
    last_now: float = 0.0
    """In seconds of the monotonic clock."""
    last: str = ""


class AllocationEvents:
    """Records what happened to the CPUs of pods and containers."""

    def __init__(self, outbox: Outbox, reporter: AllocationReporter) -> None:
        self.drifts = Drifts()
        self._outbox = outbox
        self._reporter = reporter

    def admitted(self, pod: PodCPUs, result: AdmissionResult) -> None:
        """A pod was admitted by a decision, or was in the ledger already."""
        if result.decision:
            self._reporter.admitted(pod.pod, result.decision)
        else:
            self._reporter.adopted(pod.pod, len(pod.runs))

    def kept(self, pod: PodCPUs, refusal: StatusReason, decision: Decision | None, ledger: NodeState) -> None:
        """A pod cannot be placed, and is left where it runs, or in its pool; lack of CPUs has remedies."""
        if pod.unmanaged:
            self._outbox.record(pod, "CPUsUnknown", refusal.message, warning=True)
            self._reporter.left_unmanaged(pod.pod, refusal)
            return
        if pod.present:
            text = f"runs in the shared pool: {refusal.message}"
            rejected = _for_remedies(pod, decision, ledger)
            self._outbox.put(PublishEvent(pod.uid, "CPUsUnavailable", text, True, rejected))
        self._reporter.unplaced(pod.pod, refusal)

    def unlisted(self, pods: Sequence[PodCPUs]) -> None:
        """Pods run that neither the kubelet nor the API server has listed; an event of the Node says so."""
        more = f" and {len(pods) - _MOST_PODS} more" if len(pods) > _MOST_PODS else ""
        titles = "; ".join(unlisted_text(pod) for pod in pods[:_MOST_PODS]) + more
        text = (
            f"{titles}: running, but listed neither by the kubelet nor by the API server; they are admitted, "
            "and get exclusive CPUs, once they are listed: see sources in corelane agent status"
        )
        self._outbox.put(PublishEvent("", "PodsNotListed", text, True))

    def refused(
        self, pod: PodCPUs, refusal: StatusReason, decision: Decision | None, ledger: NodeState
    ) -> None:
        """A pod was rejected; for lack of CPUs, the event names remedies."""
        if pod.present:
            rejected = _for_remedies(pod, decision, ledger)
            self._outbox.put(PublishEvent(pod.uid, refusal.reason, refusal.message, True, rejected))
        self._reporter.refused(pod.pod, refusal)

    def pin_failed(self, pod: PodCPUs, run: RunCPUs, cpus: CPUSet, message: str, now: float) -> None:
        """The runtime failed to apply these CPUs."""
        if is_first_report(run, cpus, message):
            self._reporter.pin_failed(pod.pod, run.container, cpus, message)
        text = f"Container {run.container} could not be pinned to {named(cpus.mask)}: {message}; retrying"
        self._warn(pod, run, "PinFailed", text, now)

    def drifted(self, pod: PodCPUs, run: RunCPUs, now: float) -> None:
        """The kernel allows CPUs that were not applied; no news of a container to which none were yet."""
        if not run.applied:
            return
        if is_first_report(run, run.applied, run.seen):
            self._reporter.drifted(pod.pod, run.container, run.applied, run.seen)
            last = f"{pod.pod.key}/{run.container} on CPUs {run.seen}, allocated {run.applied}"
            self.drifts = Drifts(self.drifts.count + 1, now, last)
        text = (
            f"Container {run.container}: kernel allows {named(run.seen.mask)}, "
            f"allocated {named(run.applied.mask)}; applying the allocation again"
        )
        self._warn(pod, run, "CPUsDrifted", text, now)

    def confirmed(self, pod: PodCPUs, run: RunCPUs, sharing: Sharing | None) -> None:
        """The kernel confines a container to its CPUs; `sharing` is None without an allocation."""
        self._reporter.confirmed(pod.pod, run.container, run.applied)
        if sharing is not None and sharing.exclusive:
            cpus = named(run.applied.mask)
            how = _EXCLUSIVITY[sharing]
            text = f"Container {run.container} pinned to {cpus} ({how}), confirmed by the kernel"
            self._outbox.record(pod, "CPUsPinned", text)

    def restored(self, pod: PodCPUs, now: float) -> None:
        """Another writer changed the pod's annotations; one event of it no sooner than REPEAT_AFTER."""
        if pod.restored_at is None or now >= pod.restored_at + REPEAT_AFTER:
            pod.restored_at = now
            text = (
                "annotations of the pod's CPUs were changed by another writer and are written again as "
                "allocated; they record the allocation, and do not change it"
            )
            self._outbox.record(pod, "AnnotationRestored", text, warning=True)

    def cpus_kept(self, pod: PodCPUs, container: ContainerRequest, cpus: CPUSet) -> None:
        """A container with exclusive CPUs was resized in place, which does not move it."""
        text = (
            f"Container {container.name}: CPU request {container.cpu_request}m after a resize; its exclusive "
            f"CPUs {cpus} stay, create the pod again for another number"
        )
        self._outbox.record(pod, "ExclusiveCPUsKept", text)

    def pool_kept(self, pod: PodCPUs, container: ContainerRequest) -> None:
        """A resize in the shared pool made a container's CPU request an integer, which does not move it."""
        text = (
            f"Container {container.name}: CPU request {container.cpu_request}m after a resize; it stays in "
            "the shared pool, create the pod again for exclusive CPUs"
        )
        self._outbox.record(pod, "SharedPoolKept", text)

    def _warn(self, pod: PodCPUs, run: RunCPUs, reason: str, message: str, now: float) -> None:
        """Record a problem with a container's CPUs, and one of its kind no sooner than REPEAT_AFTER."""
        if now >= run.warned_at.get(reason, now - REPEAT_AFTER) + REPEAT_AFTER:
            run.warned_at[reason] = now
            self._outbox.record(pod, reason, message, warning=True)


def unlisted_text(pod: PodCPUs) -> str:
    """Return the name of a pod that is not listed, and how its containers are left."""
    cpus = CPUSet(cpu for run in pod.runs for cpu in run.seen)
    where = f"left on {named(cpus.mask)}" if pod.unmanaged else "in the shared pool"
    return f"pod {pod.pod.key.removeprefix('/')} {where}"


def _for_remedies(
    pod: PodCPUs, decision: Decision | None, ledger: NodeState
) -> tuple[NodeState, PodRequest] | None:
    """Return ledger and request for the remedies in an event, where CPUs are lacking."""
    lacks_cpus = decision and decision.refusal and decision.refusal.code is Code.INSUFFICIENT_CPUS
    return (ledger, pod.pod.request) if lacks_cpus else None


_MOST_NAMES: Final = 8
NodeChange: TypeAlias = (
    events.KubeletStateRead | events.ModeChanged | events.ConfigChanged | events.MachineChanged
)


class NodeRules:
    """The rules in force. Each change returns the ledger that follows; `requests` are of the pods listed."""

    def __init__(self, config: NodeConfig, outbox: Outbox) -> None:
        self.mode: Mode | None = None
        self.policy = ResourcePolicy()
        self.config = config
        self._outbox = outbox
        self._kubelet: events.KubeletStateRead | None = None

    def may_write(self, pod: PodCPUs, mode: Mode | None = None) -> bool:
        """Whether the mode lets corelane write the cpusets of a pod's containers.

        The kubelet lists no pods for a moment after it starts, and none of the API server's while it cannot
        reach that: a pod is not the kubelet's only if it was found without a pod object for a while.
        """
        managed = pod.present or pod.unplaced is not NO_POD_OBJECT
        mode = mode or self.mode
        return mode is None or mode.may_write_cpus(kubelet_manages=managed)

    def follow(self, event: NodeChange, ledger: NodeState, requests: Sequence[PodRequest]) -> NodeState:
        """Follow what changed on the node."""
        machine = ledger.machine
        match event:
            case events.KubeletStateRead():
                return self._follow_kubelet(event, ledger, requests)
            case events.ModeChanged():
                self.mode, reason = event.mode, "ModeChanged"
                self.policy = ResourcePolicy(mems=event.mode.writes_mems, quota=event.quotas)
            case events.ConfigChanged():
                self.config, reason = event.config, "SettingsChanged"
            case events.MachineChanged():
                machine, reason = event.machine, "CPUsLost"
        policy = self.mode.policy(self.config.policy) if self.mode else self.config.policy
        ledger, problems = rebase(ledger, machine, replace(self.config, policy=policy))
        for problem in problems:
            self._outbox.put(PublishEvent(problem.uid, reason, problem.text, warning=True))
        return self._follow_kubelet(self._kubelet, ledger, requests) if self._kubelet else ledger

    def _follow_kubelet(
        self, read: events.KubeletStateRead, ledger: NodeState, requests: Iterable[PodRequest]
    ) -> NodeState:
        """Hold the CPUs that a kubelet pinned, and release those that it released."""
        self._kubelet = read
        if self.mode and not self.mode.holds_kubelet_cpus:
            return ledger
        beside = self.mode is not None and self.mode.name is ModeName.KUBELET
        after, problems = follow(ledger, read.checkpoint, requests, read.running, read.names, holds=beside)
        for node_event in takeover_events(ledger, after, problems):
            self._outbox.put(node_event)
        return after


def takeover_events(
    before: NodeState, after: NodeState, problems: Iterable[Problem]
) -> Iterator[PublishEvent]:
    """Yield the Node's events about CPUs that a kubelet pinned or released."""
    was, now = pinned(before), pinned(after)
    if added := _missing_from(was, now):
        yield _event("KubeletCPUsHeld", f"CPUs {_cpus(added)} pinned by a kubelet: {_titles(added)}")
    if released := _missing_from(now, was):
        yield _event("KubeletCPUsFreed", f"CPUs {_cpus(released)} released by a kubelet: {_titles(released)}")
    for problem in problems:
        yield _event("KubeletCPUsConflict", f"pinned by a kubelet: {problem.text}", warning=True)
    if was and not now:
        yield _event("TakeoverDone", "no CPUs are pinned by a kubelet any more: corelane allocates all CPUs")


def _event(reason: str, text: str, *, warning: bool = False) -> PublishEvent:
    return PublishEvent("", reason, text, warning)


def _missing_from(others: Iterable[Entry], entries: Iterable[Entry]) -> list[Entry]:
    keys = {(entry.key, entry.cpus) for entry in others}
    return [entry for entry in entries if entry.cpus and (entry.key, entry.cpus) not in keys]


def _cpus(entries: Iterable[Entry]) -> CPUSet:
    return CPUSet(cpu for entry in entries for cpu in entry.cpus)


def _titles(entries: list[Entry]) -> str:
    names = [f"{entry.pod.removeprefix('/')}/{entry.container}" for entry in entries]
    shown = (name if name.isprintable() else repr(name) for name in names)  # a file may contain anything
    titles = [f"{name} {entry.cpus}" for name, entry in zip(shown, entries, strict=True)]
    more = f" and {len(titles) - _MOST_NAMES} more" if len(titles) > _MOST_NAMES else ""
    return ", ".join(titles[:_MOST_NAMES]) + more
