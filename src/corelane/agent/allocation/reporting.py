"""Hooks for what can be observed of the allocation of CPUs."""

from corelane.agent.allocation.pods import BoundPod, StatusReason
from corelane.cpuset import CPUSet
from corelane.node import Decision


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
