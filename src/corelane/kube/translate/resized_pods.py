"""Pods that are resized in place: what their status says beside their spec (KEP-1287)."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from corelane import quantity
from corelane.kube import keys
from corelane.kube.meta import ResourceList
from corelane.kube.pod import Pod, ResourceRequirements
from corelane.kube.translate.fields import TranslationError, annotation, items, json_object
from corelane.quantity import QuantityError

_PENDING: Final = "PodResizePending"


@dataclass(frozen=True, slots=True)
class Resize:
    """Requests with which a container runs, and those that the node has admitted."""

    running: ResourceList
    allocated: ResourceList


@dataclass(frozen=True, slots=True)
class Resizes:
    """What is other than the spec, or says the same while another container is resized."""

    of_containers: Mapping[str, Resize]
    of_pod: Resize | None = None
    infeasible: bool = False
    """The node cannot carry out the resize: what the spec requests does not count."""


def resizes(pod: Pod) -> Resizes | None:
    """Return what a pod's status says of resources; None where the spec says all."""
    of_containers = dict(_of_containers(pod))
    status, level = pod.status, pod.spec.resources
    of_pod = _resize(status.resources, status.allocated_resources)
    requests = {one.name: one.resources.requests for one in (*pod.spec.init_containers, *pod.spec.containers)}
    same = all(_same(one, requests.get(name, {})) for name, one in of_containers.items())
    if same and (of_pod is None or (level is not None and _same(of_pod, level.requests))):
        return None
    pending = next((one for one in status.conditions if one.type == _PENDING), None)
    return Resizes(of_containers, of_pod, pending is not None and pending.reason == "Infeasible")


def _of_containers(pod: Pod) -> Iterator[tuple[str, Resize]]:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if resize := _resize(status.resources, status.allocated_resources):
            yield status.name, resize


def _resize(resources: ResourceRequirements | None, allocated: ResourceList | None) -> Resize | None:
    return Resize(resources.requests, allocated or {}) if resources is not None else None


def _same(resize: Resize, requests: ResourceList) -> bool:
    return resize.running == requests and resize.allocated == requests


def running_cpu(pod: Pod) -> dict[str, tuple[int, int]]:
    """Return CPU request and limit (milliCPU, 0: none) that the kubelet has applied, by container.

    A resize that it has deferred, or cannot carry out, is in the spec alone. Containers whose status has no
    resources, as before they start, are left out, and amounts that are invalid.
    """
    applied = {}
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.resources is not None:
            with suppress(QuantityError):
                limit = quantity.milli(str(status.resources.limits.get("cpu", "0")))
                request = quantity.milli(str(status.resources.requests.get("cpu", f"{limit}m")))
                applied[status.name] = (request, limit)
    return applied


def resized_in_pool(pod: Pod) -> frozenset[str]:
    """Return the containers that an agent recorded by `in_pool_annotation`; none of another pod's record."""
    where = annotation(keys.RESIZED_IN_POOL)
    try:
        record = json_object(where, pod.metadata.annotations.get(keys.RESIZED_IN_POOL, ""))
        names = [name for _, name in items(f"{where}.containers", record.get("containers"))]
    except TranslationError:
        return frozenset()
    if record.get("uid") != pod.metadata.uid:
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str))


def in_pool_annotation(pod: Pod, containers: Iterable[str]) -> dict[str, str]:
    """Return the annotation that records containers resized in the shared pool; it is for this pod alone."""
    record = {"uid": pod.metadata.uid, "containers": sorted(containers)}
    return {keys.RESIZED_IN_POOL: msgspec.json.encode(record).decode()}


def resized(pod: Pod) -> Any:
    """Return a value that is equal for pods whose status changes their requests alike; None for most."""
    found = resizes(pod)
    if found is None:
        return None
    containers = {name: (one.running, one.allocated) for name, one in sorted(found.of_containers.items())}
    of_pod = (found.of_pod.running, found.of_pod.allocated) if found.of_pod else None
    return containers, of_pod, found.infeasible
