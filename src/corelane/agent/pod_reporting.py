"""Hooks for what the agent reports that runs pods itself, and its log."""

from corelane.agent.allocation.pods import BoundPod, StatusReason
from corelane.agent.lifecycle.records import ContainerExit
from corelane.agent.lifecycle.reporting import LifecycleReporter
from corelane.agent.reporting import AgentReporter, LogReporter
from corelane.cpuset import CPUSet


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
