"""Pods as the kubelet or the API server has them, as events for the allocation."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.pods import BoundPod
from corelane.agent.clocks import Clocks
from corelane.agent.lifecycle.pod_manifest import cpu_record, pod_request, seconds, was_bound_by_corelane
from corelane.agent.reporting import AgentReporter
from corelane.kube import translate
from corelane.kube.decode import Malformed
from corelane.kube.pod import Pod
from corelane.workload import ContainerRequest


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
