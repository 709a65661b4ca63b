"""Pods as the kubelet or the API server has them, as the allocation takes them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from msgspec import structs

from corelane.agent.allocation.records import INVALID_RECORD, BoundPod, CPURecord, StatusReason
from corelane.kube import translate
from corelane.kube.meta import condition
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass

SCHEDULER: Final = "corelane-scheduler"
UNEXPECTED: Final = "UnexpectedAdmissionError"


def bound_pod(uid: str, pod: Pod) -> BoundPod:
    """Return what the allocation needs of a pod that runs under `uid`; invalid annotations are left out."""
    (request, _), applied = pod_request(pod), translate.running_cpu(pod)
    containers = tuple(_as_applied(container, applied) for container in request.containers)
    shared = translate.resized_in_pool(pod)
    return BoundPod(
        replace(request, uid=uid, containers=containers, shared=shared),
        created_at=seconds(pod.metadata.creation_timestamp),
        ended=pod.ended,
        bound_by_corelane=was_bound_by_corelane(pod),
        record=cpu_record(pod),
    )


def _as_applied(container: ContainerRequest, applied: Mapping[str, tuple[int, int]]) -> ContainerRequest:
    """Return a container with both of what the kubelet has applied: a resize may be in the spec alone."""
    milli, limit = applied.get(container.name, (container.cpu_request, container.cpu_limit))
    return replace(container, cpu_request=milli, cpu_limit=limit)


def was_bound_by_corelane(pod: Pod) -> bool:
    """Whether corelane's scheduler bound the pod; it may have been created with a node's name."""
    scheduled = condition(pod.status.conditions, "PodScheduled")
    ours = pod.spec.scheduler_name == SCHEDULER
    return ours and scheduled is not None and scheduled.status == "True"


def seconds(timestamp: str) -> float:
    """Return the Unix seconds of an RFC 3339 timestamp; 0 for an empty or invalid one."""
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
    except ValueError:
        return 0.0


def pod_request(pod: Pod) -> tuple[PodRequest, StatusReason | None]:
    """Return the pod's request, and a refusal if its annotations or labels are invalid.

    The request then leaves them out, because a pod that runs already has to go on; if that is invalid, too,
    it is empty.
    """
    try:
        return translate.request(pod), None
    except TranslationError as error:
        refusal = StatusReason(UNEXPECTED, str(error))
    meta = pod.metadata
    try:
        bare = structs.replace(pod, metadata=structs.replace(meta, annotations={}, labels={}))
        return translate.request(bare), refusal
    except TranslationError:
        return PodRequest(meta.uid, meta.namespace, meta.name, QOSClass.BEST_EFFORT, ()), refusal


def cpu_record(pod: Pod) -> CPURecord:
    """Return what a pod's annotations say of its CPUs."""
    names = [container.name for container in (*pod.spec.init_containers, *pod.spec.containers)]
    record = translate.recorded_cpus(pod.metadata.annotations, names)
    return INVALID_RECORD if record is None else CPURecord(*record)
