"""Hooks for what can be observed of starting and stopping containers."""

from corelane.agent.allocation.pods import BoundPod, StatusReason
from corelane.agent.allocation.reporting import AllocationReporter
from corelane.agent.lifecycle.records import ContainerExit
from corelane.cpuset import CPUSet


class LifecycleReporter(AllocationReporter):
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""

    def started(self, pod: BoundPod, container: str, attempt: int, cpus: CPUSet) -> None:
        """A container was started."""

    def start_failed(self, pod: BoundPod, container: str, reason: StatusReason) -> None:
        """A container could not be started."""

    def ended(self, pod: BoundPod, container: str, ended: ContainerExit) -> None:
        """A container's run ended."""

    def stop_failed(self, pod: BoundPod, container: str, message: str) -> None:
        """A container could not be stopped; the stop is retried."""
