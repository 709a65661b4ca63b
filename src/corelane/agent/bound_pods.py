"""Pods as the kubelet or the API server has them, as events for the allocation."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from msgspec import structs

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.records import INVALID_RECORD, BoundPod, CPURecord, StatusReason
from corelane.agent.event_loop import Clocks
from corelane.agent.reporting import AgentReporter
from corelane.kube import translate
from corelane.kube.decode import Malformed
from corelane.kube.meta import condition
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass

SCHEDULER: Final = "corelane-scheduler"
UNEXPECTED: Final = "UnexpectedAdmissionError"


def bound_pod(uid: str, pod: Pod) -> BoundPod:
    """Return what the allocation needs of a pod that runs under `uid`; invalid annotations are left out."""
    (request, _), applied = pod_request(pod), translate.running_cpu(pod)
    containers = tuple(_as_applied(one, applied) for one in request.containers)
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


class PodEvents:
    """Turns changes of a `PodList` into events; `forget` drops what waits to be written about a pod."""

    def __init__(
        self,
        put: Callable[[AgentEvent], None],
        forget: Callable[[str], None],
        reporter: AgentReporter,
        clocks: Clocks,
    ) -> None:
        self._put = put
        self._forget = forget
        self._reporter = reporter
        self._clocks = clocks

    def pod_seen(self, uid: str, pod: Pod) -> None:
        self._put(events.PodSeen(pod=bound_pod(uid, pod), **self._clocks.times()))

    def pod_malformed(self, uid: str, bad: Malformed) -> None:
        self._reporter.malformed(str(bad))
        self._put(
            events.PodUndecodable(uid=uid, namespace=bad.namespace, name=bad.name, **self._clocks.times())
        )

    def pod_gone(self, uid: str) -> None:
        self._forget(uid)
        self._put(events.PodGone(uid=uid, **self._clocks.times()))

    def pods_listed(self, remaining: frozenset[str], began: float | None) -> None:
        self._put(events.PodsListed(remaining=remaining, began=began, **self._clocks.times()))
