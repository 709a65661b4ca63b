"""Instructions collected while the state machine handles events, and the Kubernetes events among them."""

from collections.abc import Mapping
from typing import Final

from corelane.agent import instructions, pinning, reported_status
from corelane.agent.instructions import Instruction
from corelane.agent.pod_admission import AdmissionResult
from corelane.agent.pod_records import ContainerProgress, PodRecord, StatusReason
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet, named
from corelane.node import Decision, NodeState, Sharing
from corelane.reasons import Code

_ONCE_A_NODE: Final = frozenset({"ImageIgnored"})
"""Reasons of warnings that apply to every pod; only the first pod gets the event."""
_EXCLUSIVITY: Final = {Sharing.ALONE: "exclusive", Sharing.LENT: "exclusive, shared with BE"}


class Outbox:
    """Instructions in the order in which they are to be carried out."""

    def __init__(self, host: reported_status.PodHost) -> None:
        self._host = host
        self._orders: list[Instruction] = []
        self._changed: set[str] = set()

    def put(self, order: Instruction) -> None:
        self._orders.append(order)

    def take(self) -> list[Instruction]:
        """Return all instructions so far, and start a new batch."""
        orders, self._orders = self._orders, []
        return orders

    def touch(self, pod: PodRecord) -> None:
        """Mark a pod whose status may have changed."""
        self._changed.add(pod.uid)

    def publish_touched(self, pods: Mapping[str, PodRecord], at: float) -> None:
        """Publish every status that changed."""
        touched, self._changed = self._changed, set()
        for uid in touched:
            if uid in pods:
                self.publish(pods[uid], at)

    def publish(self, pod: PodRecord, at: float) -> None:
        """Publish a pod's status, unless it is unchanged, or the API server has a terminal one."""
        if not pod.present or pod.plan.ended:
            return
        status = reported_status.pod_status(pod, at, self._host)
        if status != pod.published:
            pod.published = status
            self.put(instructions.PublishStatus(pod.uid, status))

    def delete(self, pod: PodRecord) -> None:
        """Delete an ended pod from the API server; ordered once."""
        if not pod.deletion_ordered:
            pod.deletion_ordered = True
            self.put(instructions.DeletePod(pod.uid))


class EventRecorder:
    """Records what happened to pods and containers; a pod that was deleted gets no Kubernetes events."""

    def __init__(self, outbox: Outbox, reporter: AgentReporter) -> None:
        self._outbox = outbox
        self._reporter = reporter
        self._warned: set[str] = set()

    # -- admission

    def admitted(self, pod: PodRecord, result: AdmissionResult) -> None:
        """A pod was admitted by a decision, was in the ledger already, or runs and is left unchanged."""
        if result.refusal:
            self._record(pod, "CPUsUnknown", result.refusal.message, warning=True)
            self._reporter.left_unmanaged(pod.plan, result.refusal)
        elif result.decision:
            self._reporter.admitted(pod.plan, result.decision)
            self._warn_of_ignored_fields(pod)
        else:
            self._reporter.adopted(pod.plan, sum(c.live for c in pod.containers.values()))

    def refused(
        self, pod: PodRecord, refusal: StatusReason, decision: Decision | None, ledger: NodeState
    ) -> None:
        """A pod was rejected; for lack of CPUs, the event names remedies."""
        if pod.present:
            lacks_cpus = decision and decision.refusal and decision.refusal.code is Code.INSUFFICIENT_CPUS
            rejected = (ledger, pod.plan.request) if lacks_cpus else None
            event = instructions.PublishEvent(pod.uid, refusal.reason, refusal.message, True, rejected)
            self._outbox.put(event)
        self._reporter.refused(pod.plan, refusal)

    def _warn_of_ignored_fields(self, pod: PodRecord) -> None:
        for warning in pod.plan.warnings:
            if warning.reason in _ONCE_A_NODE:
                if warning.reason in self._warned:
                    continue
                self._warned.add(warning.reason)
            self._record(pod, warning.reason, warning.message, warning=True)

    # -- start and end of containers

    def backs_off(self, pod: PodRecord, container: ContainerProgress) -> None:
        """A container failed and is restarted after a delay."""
        name = reported_status.full_name(pod)
        text = f"Back-off restarting failed container {container.name} in pod {name}"
        self._record(pod, "BackOff", text, warning=True)

    def started(self, pod: PodRecord, container: ContainerProgress) -> None:
        """A container runs on the CPUs that were applied."""
        text = f"Container {container.name} started on {named(container.applied.mask)}"
        self._record(pod, "Started", text)
        self._reporter.started(pod.plan, container.name, container.attempt, container.applied)

    def start_failed(self, pod: PodRecord, container: ContainerProgress, reason: StatusReason) -> None:
        """A container could not be started; a pod that is terminating gets no event about it."""
        if pod.termination is None:
            self._record(pod, "Failed", f"Error: {reason.message}", warning=True)
        self._reporter.start_failed(pod.plan, container.name, reason)

    def stopping(self, pod: PodRecord, container: ContainerProgress) -> None:
        """A container is being stopped."""
        self._record(pod, "Killing", f"Stopping container {container.name}")

    def stop_failed(self, pod: PodRecord, container: ContainerProgress, message: str) -> None:
        """A container could not be stopped."""
        self._record(pod, "FailedKillPod", f"error killing pod: {message}", warning=True)
        self._reporter.stop_failed(pod.plan, container.name, message)

    # -- CPUs applied and confirmed

    def pin_failed(self, pod: PodRecord, container: ContainerProgress, cpus: CPUSet, message: str) -> None:
        """The runtime failed to apply these CPUs."""
        if pinning.is_first_report(container, cpus, message):
            self._reporter.pin_failed(pod.plan, container.name, cpus, message)
        text = f"Container {container.name} could not be pinned to {named(cpus.mask)}: {message}; retrying"
        self._warn_once_a_run(pod, container, "PinFailed", text)

    def drifted(self, pod: PodRecord, container: ContainerProgress) -> None:
        """The kernel allows CPUs that were not applied."""
        if pinning.is_first_report(container, container.applied, container.seen):
            self._reporter.drifted(pod.plan, container.name, container.applied, container.seen)
        text = (
            f"Container {container.name}: kernel allows {named(container.seen.mask)}, "
            f"allocated {named(container.applied.mask)}; applying the allocation again"
        )
        self._warn_once_a_run(pod, container, "CPUsDrifted", text)

    def confirmed(self, pod: PodRecord, container: ContainerProgress, sharing: Sharing | None) -> None:
        """The kernel confines a container to its CPUs; `sharing` is None without an allocation."""
        self._reporter.confirmed(pod.plan, container.name, container.applied)
        if sharing is not None and sharing.exclusive:
            cpus = named(container.applied.mask)
            text = (
                f"Container {container.name} pinned to {cpus} ({_EXCLUSIVITY[sharing]}), "
                "confirmed by the kernel"
            )
            self._record(pod, "CPUsPinned", text)

    def _warn_once_a_run(
        self, pod: PodRecord, container: ContainerProgress, reason: str, message: str
    ) -> None:
        """Record a problem with a container's CPUs, once in each of its runs."""
        if not container.drift_reported:
            container.drift_reported = True
            self._record(pod, reason, message, warning=True)

    def _record(self, pod: PodRecord, reason: str, message: str, *, warning: bool = False) -> None:
        if pod.present:
            self._outbox.put(instructions.PublishEvent(pod.uid, reason, message, warning))
