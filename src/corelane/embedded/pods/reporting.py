"""Hooks for what is observed of starting and stopping containers, and the log that uses them."""

from corelane.agent.allocation.pod_events import AllocationReporter
from corelane.agent.allocation.records import BoundPod, StatusReason
from corelane.agent.reporting import AgentReporter, LogReporter
from corelane.cpuset import CPUSet
from corelane.embedded.pods.records import ContainerExit


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


class PodReporter(LifecycleReporter, AgentReporter):
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""


class PodLogReporter(LogReporter, PodReporter):
    """Writes the log, starts and ends of containers included."""

    def started(self, pod: BoundPod, container: str, attempt: int, cpus: CPUSet) -> None:
        self.log.info("container started", pod=pod.key, container=container, attempt=attempt, cpus=str(cpus))

    def start_failed(self, pod: BoundPod, container: str, reason: StatusReason) -> None:
        self.log.warning("container start failed", pod=pod.key, container=container, why=reason.message)

    def ended(self, pod: BoundPod, container: str, ended: ContainerExit) -> None:
        self.log.info("container ended", pod=pod.key, container=container, exit_code=ended.exit_code)

    def stop_failed(self, pod: BoundPod, container: str, message: str) -> None:
        self.log.error("container stop failed", pod=pod.key, container=container, why=message)
