"""The kubelet's general predicates for resources other than CPUs: number of pods, and memory."""

from collections.abc import Iterable
from dataclasses import dataclass

from corelane.agent.allocation.records import BoundPod, PodCPUs, StatusReason


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Number of pods, and bytes of memory for them (0 for no check), before memory withheld by settings."""

    pods: int = 110
    memory: int = 0


def exceeded_capacity(
    plan: BoundPod, pods: Iterable[PodCPUs], capacity: NodeCapacity, withheld: int
) -> StatusReason | None:
    """Return why a pod does not fit beside the admitted ones; None if it does."""
    admitted = [pod.pod.request for pod in pods if pod.admitted and pod.uid != plan.uid]
    if len(admitted) >= capacity.pods:
        return _out_of("pods", 1, len(admitted), capacity.pods)
    used = sum(request.memory_request for request in admitted)
    allocatable = max(capacity.memory - withheld, 0)
    if capacity.memory and used + plan.request.memory_request > allocatable:
        return _out_of("memory", plan.request.memory_request, used, allocatable)
    return None


def _out_of(resource: str, requested: int, used: int, capacity: int) -> StatusReason:
    return StatusReason(
        f"OutOf{resource}",
        f"Node didn't have enough resource: {resource}, "
        f"requested: {requested}, used: {used}, capacity: {capacity}",
    )
