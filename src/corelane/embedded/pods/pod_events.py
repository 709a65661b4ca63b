"""Kubernetes events about starting and stopping containers."""

from typing import Final

from corelane import quantity
from corelane.agent.allocation.pod_events import Outbox
from corelane.agent.allocation.records import StatusReason
from corelane.cpuset import CPUSet, named
from corelane.embedded.pods import reported_status
from corelane.embedded.pods.records import ContainerExit, ContainerProgress, PodRecord
from corelane.embedded.pods.reporting import LifecycleReporter
from corelane.runtime.base import OOM_KILLED

_ONCE_A_NODE: Final = frozenset({"ImageIgnored", "MemoryLimitsIgnored"})
"""Reasons of warnings that apply to every pod; only the first pod gets the event."""


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
        name = reported_status.full_name(pod)
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
        limits = (request.memory_limit_of(one) for one in request.containers if one.name == container.name)
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
