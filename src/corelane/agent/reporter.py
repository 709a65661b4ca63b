"""What can be observed of an agent. Every hook is empty: logs and metrics override what they need."""

from corelane.agent.pods import Ended, PodPlan, Reason
from corelane.cpuset import CPUSet
from corelane.node import Decision, NodeConfig


class Reporter:
    """Override what you want to hear of. Hooks must not raise and must not block."""

    def admitted(self, plan: PodPlan, decision: Decision) -> None:
        """A pod got its CPUs."""

    def adopted(self, plan: PodPlan, runs: int) -> None:
        """A pod that ran before this start of the agent was taken over, with that many live containers."""

    def refused(self, plan: PodPlan, reason: Reason) -> None:
        """A pod was refused. Where `plan.lane_bound`, the scheduler's promise was broken: alarm on it."""

    def untouchable(self, plan: PodPlan, reason: Reason) -> None:
        """A running pod's CPUs could not be brought into the ledger; it is left where it is."""

    def waiting(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        """A container cannot start yet, because something still runs on its CPUs."""

    def started(self, plan: PodPlan, container: str, attempt: int, cpus: CPUSet) -> None:
        """A container runs."""

    def start_failed(self, plan: PodPlan, container: str, reason: Reason) -> None:
        """A container could not be started."""

    def ended(self, plan: PodPlan, container: str, ended: Ended) -> None:
        """A container's run ended."""

    def stop_failed(self, plan: PodPlan, container: str, message: str) -> None:
        """A container could not be ended; it is tried again."""

    def pinned(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        """A running container was given other CPUs."""

    def pin_failed(self, plan: PodPlan, container: str, cpus: CPUSet, message: str) -> None:
        """A running container could not be given its CPUs; it is tried again."""

    def confirmed(self, plan: PodPlan, container: str, cpus: CPUSet) -> None:
        """The kernel was seen to hold a container to its CPUs."""

    def drifted(self, plan: PodPlan, container: str, cpus: CPUSet, allowed: CPUSet) -> None:
        """The kernel allows a container other CPUs than it was given; they are applied again."""

    def ledger_lost(self, path: str, backup: str, why: str) -> None:
        """The ledger's file could not be read; it is kept as `backup`, and a new one made from what runs."""

    def setting_refused(self, text: str) -> None:
        """A label or annotation of the node cannot be meant or honoured: the earlier settings stay."""

    def kubelet_unreadable(self, text: str) -> None:
        """A kubelet's state file cannot be read; what it said before holds on."""

    def configured(self, config: NodeConfig) -> None:
        """The node's settings are others than they were."""

    def ledger_changed(self, problem: str) -> None:
        """Something in the ledger could not be kept, because machine or settings have changed."""

    def checkpoint_failed(self, path: str, why: str) -> None:
        """The ledger could not be written; nothing is done until it is."""

    def checkpointed(self, generation: int, seconds: float) -> None:
        """The ledger was written to disk."""

    def api_failed(self, what: str, error: Exception) -> None:
        """A write to the API server failed; it is tried again unless it makes no sense any more."""

    def malformed(self, text: str) -> None:
        """A pod of this node cannot be read, and is left out."""

    def malfunction(self, what: str, error: BaseException) -> None:
        """Something failed that must not; the agent goes on."""
