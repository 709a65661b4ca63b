"""What can be observed of the scheduler, as hooks that do nothing: override what you need."""

from collections.abc import Mapping

from corelane.cpuset import CPUSet
from corelane.kube import informer
from corelane.kube.apierrors import APIError
from corelane.kube.pod import Pod

__all__ = ["SchedulerReporter"]


class SchedulerReporter(informer.InformerReporter):
    """Logs, metrics and tests come in here; see also the informers' hooks."""

    def started(self, name: str) -> None:
        """All is known that is needed, and scheduling begins."""

    def binding(self, pod: Pod, node: str, assignments: Mapping[str, CPUSet]) -> None:
        """A pod is given to a node, with these CPUs for its containers."""

    def bound(self, pod: Pod, node: str, seconds: float) -> None:
        """The API server took the binding, after that many seconds."""

    def bind_failed(self, pod: Pod, node: str, error: APIError) -> None:
        """The API server did not take the binding."""

    def unschedulable(self, pod: Pod, reason: str, message: str) -> None:
        """A pod was tried and did not fit, or its binding came to nothing."""

    def unusable_topology(self, node: str, problem: str) -> None:
        """What a node's agent published cannot be used."""

    def write_failed(self, what: str, error: APIError) -> None:
        """A condition or event could not be written; scheduling goes on."""

    def dropped(self, what: str) -> None:
        """A condition or event was not written because too many are waiting."""
