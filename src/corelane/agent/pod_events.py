"""What people are told of the pods: each pod's events at the API server, and the reporter's hooks."""

from typing import Final

from corelane.agent import messages, runs, status
from corelane.agent.admission import Verdict
from corelane.agent.outbox import Outbox
from corelane.agent.pods import Container, Ended, Pod, Reason
from corelane.agent.reporter import Reporter
from corelane.cpuset import CPUSet, named
from corelane.node import NodeState, Sharing
from corelane.reasons import Code, label
from corelane.reasons import Reason as DecisionReason

_INSUFFICIENT_CPUS: Final = label(DecisionReason(Code.INSUFFICIENT_CPUS))
ONCE: Final = frozenset({"ImageIgnored"})
"""Reasons of warnings that one pod hears for all."""
_WHOSE: Final = {Sharing.ALONE: "to itself", Sharing.LENT: "that only best effort shares"}


class EventRecorder:
    """Says what became of pods and containers; a pod that the API server has no more gets no events."""

    def __init__(self, outbox: Outbox, reporter: Reporter) -> None:
        self._outbox = outbox
        self._reporter = reporter
        self._warned: set[str] = set()

    # -- a pod comes in, or does not

    def admitted(self, pod: Pod, verdict: Verdict) -> None:
        """A pod has come in by a decision, was known to the ledger, or runs and is left as it is."""
        if verdict.refusal:
            self._tell(pod, "CPUsUnknown", verdict.refusal.message, warning=True)
            self._reporter.untouchable(pod.plan, verdict.refusal)
        elif verdict.decision:
            self._reporter.admitted(pod.plan, verdict.decision)
            self._warn(pod)
        else:
            self._reporter.adopted(pod.plan, sum(c.live for c in pod.containers.values()))

    def refused(self, pod: Pod, refusal: Reason, ledger: NodeState) -> None:
        """Say why a pod was refused and, where CPUs are what it lacks, what would let it in."""
        if pod.present:
            refused = (ledger, pod.plan.request) if refusal.reason == _INSUFFICIENT_CPUS else None
            self._outbox.put(messages.Tell(pod.uid, refusal.reason, refusal.message, True, refused))
        self._reporter.refused(pod.plan, refusal)

    def _warn(self, pod: Pod) -> None:
        """Say what the pod will not get; what holds for every pod is said once."""
        for warning in pod.plan.warnings:
            if warning.reason in ONCE:
                if warning.reason in self._warned:
                    continue
                self._warned.add(warning.reason)
            self._tell(pod, warning.reason, warning.message, warning=True)

    # -- its containers start and end

    def waiting(self, pod: Pod, container: Container, cpus: CPUSet) -> None:
        """It cannot start before others have left these CPUs."""
        self._reporter.waiting(pod.plan, container.name, cpus)

    def backs_off(self, pod: Pod, container: Container) -> None:
        """It failed, and waits before it is started again."""
        text = f"Back-off restarting failed container {container.name} in pod {status.full_name(pod)}"
        self._tell(pod, "BackOff", text, warning=True)

    def started(self, pod: Pod, container: Container) -> None:
        """It runs on the CPUs that were applied."""
        text = f"Container {container.name} started on {named(container.applied.mask)}"
        self._tell(pod, "Started", text)
        self._reporter.started(pod.plan, container.name, container.attempt, container.applied)

    def start_failed(self, pod: Pod, container: Container, reason: Reason) -> None:
        """It could not be started; of a pod that has to end anyway, that is no event."""
        if pod.doom is None:
            self._tell(pod, "Failed", f"Error: {reason.message}", warning=True)
        self._reporter.start_failed(pod.plan, container.name, reason)

    def stopping(self, pod: Pod, container: Container) -> None:
        """It is told to end."""
        self._tell(pod, "Killing", f"Stopping container {container.name}")

    def stop_failed(self, pod: Pod, container: Container, message: str) -> None:
        """It could not be ended."""
        self._tell(pod, "FailedKillPod", f"error killing pod: {message}", warning=True)
        self._reporter.stop_failed(pod.plan, container.name, message)

    def ended(self, pod: Pod, container: Container, ended: Ended) -> None:
        """Its run is over."""
        self._reporter.ended(pod.plan, container.name, ended)

    # -- they are held to their CPUs, or not

    def pinned(self, pod: Pod, container: Container, cpus: CPUSet) -> None:
        """The runtime gave it these CPUs."""
        self._reporter.pinned(pod.plan, container.name, cpus)

    def pin_failed(self, pod: Pod, container: Container, wanted: CPUSet, message: str) -> None:
        """The runtime could not give it the CPUs that it wants for it."""
        if runs.is_news(container, wanted, message):
            self._reporter.pin_failed(pod.plan, container.name, wanted, message)
        text = f"Container {container.name}: {named(wanted.mask)}: {message}"
        self._warn_once(pod, container, "PinFailed", text)

    def drifted(self, pod: Pod, container: Container) -> None:
        """The kernel allows it CPUs that were not applied."""
        if runs.is_news(container, container.applied, container.seen):
            self._reporter.drifted(pod.plan, container.name, container.applied, container.seen)
        text = (
            f"Container {container.name} was given {named(container.applied.mask)}, but the kernel "
            f"allows it {container.seen}; applying them again"
        )
        self._warn_once(pod, container, "CPUsDrifted", text)

    def confirmed(self, pod: Pod, container: Container, sharing: Sharing | None) -> None:
        """The kernel holds it to its CPUs; `sharing` is None where the ledger grants it none."""
        self._reporter.confirmed(pod.plan, container.name, container.applied)
        if sharing is not None and sharing.exclusive:
            text = (
                f"Container {container.name} has {named(container.applied.mask)} {_WHOSE[sharing]}; "
                "the kernel confirms it"
            )
            self._tell(pod, "CPUsPinned", text)

    def _warn_once(self, pod: Pod, container: Container, reason: str, message: str) -> None:
        """Warn of trouble with a container's CPUs, once in each of its runs."""
        if not container.drift_told:
            container.drift_told = True
            self._tell(pod, reason, message, warning=True)

    def _tell(self, pod: Pod, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about a pod that is still there."""
        if pod.present:
            self._outbox.put(messages.Tell(pod.uid, reason, message, warning))
