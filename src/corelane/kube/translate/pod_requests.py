"""Pods to requests: containers, QoS class, amounts (also while a resize is pending), and proposed CPUs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.meta import ResourceList
from corelane.kube.pod import Container, Pod, ResourceRequirements
from corelane.kube.translate import placement_annotations
from corelane.kube.translate.fields import (
    TranslationError,
    amount,
    annotation,
    crane_node_id,
    items,
    json_list,
    json_object,
    member,
)
from corelane.quantity import QuantityError
from corelane.workload import PlacementSpec
from corelane.workload.request import (
    ContainerKind,
    ContainerRequest,
    PodRequest,
    PodResources,
    QOSClass,
    peak,
    qos_class,
)

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


def pod_resizes(pod: Pod) -> Resizes | None:
    """Return what a pod's status says of resources; None where the spec says all."""
    status, level = pod.status, pod.spec.resources
    statuses = (*status.init_container_statuses, *status.container_statuses)
    if status.resources is None and all(one.resources is None for one in statuses):
        return None
    of_containers = dict(_of_containers(pod))
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
    found = pod_resizes(pod)
    if found is None:
        return None
    containers = {name: (one.running, one.allocated) for name, one in sorted(found.of_containers.items())}
    of_pod = (found.of_pod.running, found.of_pod.allocated) if found.of_pod else None
    return containers, of_pod, found.infeasible


_NO_SPEC = PlacementSpec()
_NOTHING: Mapping[str, int] = MappingProxyType({})
_COUNTED = ("cpu", "memory")
_HUGEPAGES = "hugepages-"
_QUOTA = "requests."
_POD_LEVEL = ("cpu", "memory", _HUGEPAGES)


def request(pod: Pod) -> PodRequest:
    """Return what a pod requests, with the proposal in its annotations once it is bound to a node.

    Raises TranslationError for an invalid quantity, label or annotation.
    """
    containers = tuple(_container(*container) for container in _containers(pod))
    meta = pod.metadata
    proposal, zone, zone_cpus, numa_amounts = placement(pod) if pod.spec.node_name else ({}, None, {}, {})
    may_specify = meta.labels or meta.annotations or pod.spec.priority
    return PodRequest(
        meta.uid,
        meta.namespace,
        meta.name,
        qos(pod),
        containers,
        proposal,
        labels=meta.labels,
        placement_spec=placement_annotations.placement_spec(pod) if may_specify else _NO_SPEC,
        level=_level(pod.spec.resources),
        zone=zone,
        zone_cpus=zone_cpus,
        numa_amounts=numa_amounts,
        overhead=_amounts("spec.overhead", pod.spec.overhead),
    )


Placement: TypeAlias = tuple[
    Mapping[str, CPUSet], CPUSet | None, Mapping[int, int], Mapping[int, Mapping[str, int]]
]
"""A pod's CPUs by container; the NUMA nodes in whose pools it runs; its CPUs by NUMA node, as gocrane records
them; its amounts by NUMA node. As the members of `PodRequest`."""
_RECORDS: Final = (keys.CONTAINER_CPUSETS, keys.RESOURCE_STATUS, keys.CRANE_RESULT)


_LONGEST_KEPT: Final = 2048
"""Characters of records that are kept with what they say, for other pods."""


def placement(pod: Pod) -> Placement:
    """Return what a bound pod's annotations record. Raises TranslationError."""
    annotations = pod.metadata.annotations
    records = tuple((key, annotations[key]) for key in _RECORDS if key in annotations)
    containers = tuple(one.name for one in (*pod.spec.init_containers, *pod.spec.containers))
    short = sum(len(text) for _, text in records) <= _LONGEST_KEPT
    return (_placement if short else _placement.__wrapped__)(records, containers)


@lru_cache(4096)
def _placement(records: tuple[tuple[str, str], ...], containers: tuple[str, ...]) -> Placement:
    """Pods on alike nodes have the same."""
    annotations = dict(records)
    return (
        placement_annotations.proposed_cpus(annotations, containers),
        placement_annotations.proposed_zone(annotations),
        result_cpus(annotations),
        placement_annotations.recorded_amounts(annotations),
    )


def qos(pod: Pod) -> QOSClass:
    """The pod's QoS class: what its status says, else worked out as upstream does (`ComputePodQOS`, 1.36)."""
    if pod.status.qos_class in set(QOSClass):
        return QOSClass(pod.status.qos_class)
    level = pod.spec.resources
    if level is not None:
        path = "spec.resources"
        limits = dict.fromkeys(level.limits, 0) | _nano(f"{path}.limits", level.limits)
        return qos_class([(_nano(f"{path}.requests", level.requests), limits)], of_pod=True)
    return qos_class(
        (
            _nano(f"{path}.requests", _defaulted(container)),
            _nano(f"{path}.limits", container.resources.limits),
        )
        for path, _, container in _containers(pod)
    )


def _nano(path: str, listed: ResourceList) -> dict[str, int]:
    """CPU and memory, exactly, in billionths."""
    return {
        n: _read(path, listed, n, lambda text: quantity.parse(text).nano) for n in _COUNTED if n in listed
    }


def requests(pod: Pod, missing: Mapping[str, int] = _NOTHING) -> dict[str, int]:
    """Return what a pod's containers request at the same time, with its overhead: milliCPU, else whole units.

    As upstream's `resourcehelper.PodRequests`: sidecars stay once started, init containers run one by one
    (KEP-753), pod-level CPU, memory and huge pages stand in for their containers' (KEP-2837), and a pod
    that is resized counts with the most of what it requests, runs with and is allocated (KEP-1287).
    `missing` counts for each container without such a request (upstream: `NonMissingContainerRequests`).
    """
    resizes = pod_resizes(pod)
    amounts = [
        (kind, {**missing, **_counted(f"{path}.requests", container, kind, resizes)})
        for path, kind, container in _containers(pod)
    ]
    names = {name for _, listed in amounts for name in listed}
    total = {name: peak((kind, listed.get(name, 0)) for kind, listed in amounts) for name in names}
    if pod.spec.resources is not None:
        level = pod.spec.resources.requests
        named = {name: value for name, value in level.items() if name.startswith(_POD_LEVEL)}
        of_pod = resizes.of_pod if resizes else None
        total |= _resized("spec.resources.requests", named, of_pod, resizes, named)
    overhead = _amounts("spec.overhead", pod.spec.overhead)
    return {name: total.get(name, 0) + overhead.get(name, 0) for name in total | overhead}


def _counted(path: str, container: Container, kind: ContainerKind, resizes: Resizes | None) -> dict[str, int]:
    """What a container requests, or has while it is resized; init containers but sidecars end before that."""
    requested = _defaulted(container)
    resize = resizes.of_containers.get(container.name) if resizes else None
    if kind is ContainerKind.INIT:
        resize = None
    return _resized(path, requested, resize, resizes)


def _resized(
    path: str,
    requested: ResourceList,
    resize: Resize | None,
    resizes: Resizes | None,
    only: ResourceList | None = None,
) -> dict[str, int]:
    """Upstream's `determineEffectiveRequests`: the highest of requested, running and allocated amounts."""
    amounts = _amounts(path, requested)
    if resize is None or resizes is None:
        return amounts
    highest = {} if resizes.infeasible else amounts
    for listed in (resize.running, resize.allocated):
        for name, number in _amounts("status", listed).items():
            highest[name] = max(highest.get(name, 0), number)
    return {name: highest.get(name, 0) for name in only} if only is not None else highest


def _containers(pod: Pod) -> Iterator[tuple[str, ContainerKind, Container]]:
    """Path of its resources, kind, and container; init containers first, in the order of their start."""
    for index, container in enumerate(pod.spec.init_containers):
        kind = ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT
        yield f"spec.initContainers[{index}].resources", kind, container
    for index, container in enumerate(pod.spec.containers):
        yield f"spec.containers[{index}].resources", ContainerKind.APP, container


def _container(path: str, kind: ContainerKind, container: Container) -> ContainerRequest:
    requested, limits = _defaulted(container), container.resources.limits
    return ContainerRequest(
        container.name,
        kind,
        _read(f"{path}.requests", requested, "cpu", _milli),
        _read(f"{path}.limits", limits, "cpu", _milli),
        _read(f"{path}.requests", requested, "memory", _value),
        _read(f"{path}.limits", limits, "memory", _value),
        _hugepages(f"{path}.requests", requested),
        _devices(f"{path}.limits", limits),
        _amounts(f"{path}.requests", requested),
    )


def _level(resources: ResourceRequirements | None) -> PodResources | None:
    """The pod-level requests; None without a resource that a pod may request (KEP-2837)."""
    if resources is None:
        return None
    listed = resources.limits | resources.requests
    if not any(name.startswith(_POD_LEVEL) for name in listed):
        return None
    path = "spec.resources.requests"
    return PodResources(
        _read(path, listed, "cpu", _milli),
        _read(path, listed, "memory", _value),
        _hugepages(path, listed),
        _read("spec.resources.limits", resources.limits, "memory", _value),
    )


def _devices(path: str, listed: ResourceList) -> dict[str, int]:
    """Extended resources, whose limit is their request: names with a domain that is not Kubernetes' own."""
    return {
        name: _read(path, listed, name, _value)
        for name in listed
        if ("/" in name and "kubernetes.io/" not in name and not name.startswith(_QUOTA))
    }


def _hugepages(path: str, listed: ResourceList) -> dict[int, int]:
    """Page size in KiB to bytes."""
    sizes = [name.removeprefix(_HUGEPAGES) for name in listed if name.startswith(_HUGEPAGES)]
    return {
        _read(path, {_HUGEPAGES + size: size}, _HUGEPAGES + size, _value) // 1024: _read(
            path, listed, _HUGEPAGES + size, _value
        )
        for size in sizes
    }


def _defaulted(container: Container) -> ResourceList:
    """Requests, each absent one taken from its limit, as the API server does to what it stores."""
    return container.resources.limits | container.resources.requests


def _amounts(path: str, listed: ResourceList) -> dict[str, int]:
    return {name: _read(path, listed, name, _milli if name == "cpu" else _value) for name in listed}


@lru_cache(4096)
def _milli(text: str) -> int:
    """Few amounts are distinct, in a cluster of many pods."""
    return quantity.milli(text)


@lru_cache(4096)
def _value(text: str) -> int:
    return quantity.value(text)


def _read(path: str, amounts: ResourceList, name: str, convert: Callable[[str], int]) -> int:
    """One amount of at least 0, in the units of `convert`; an absent one is 0. Raises TranslationError."""
    text = amounts.get(name)
    if text is None:
        return 0
    try:
        number = convert(str(text))
    except QuantityError as error:
        raise TranslationError(f"{path}.{name}", text, str(error)) from error
    if number < 0:
        raise TranslationError(f"{path}.{name}", text, "must be greater than or equal to 0")
    return number


def result_cpus(annotations: Mapping[str, str]) -> Mapping[int, int]:
    """Return NUMA node to CPUs in a pod's `topology-result`.

    As in gocrane, an invalid one is none, and zones of other types than Node are not looked at.
    """
    try:
        text = annotations.get(keys.CRANE_RESULT, "")
        where = annotation(keys.CRANE_RESULT)
        cpus: dict[int, int] = {}
        for path, part in items(where, json_list(where, text)):
            zone = member(path, part)
            if zone.get("type") == "Node":
                numa = crane_node_id(f"{path}.name", zone.get("name"))
                resources = member(f"{path}.resources", zone.get("resources"))
                capacity = member(f"{path}.resources.capacity", resources.get("capacity"))
                milli = amount(f"{path}.resources.capacity.cpu", capacity.get("cpu"), quantity.milli)
                cpus[numa] = cpus.get(numa, 0) + -(-milli // 1000)
        return cpus
    except TranslationError:
        return {}


def result_annotation(cpus: Mapping[int, int]) -> dict[str, str]:
    """Return `topology-result` as gocrane's scheduler writes it for its agent; nothing without CPUs."""
    if not cpus:
        return {}
    zones = [
        {"name": f"node{numa}", "type": "Node", "resources": {"capacity": {"cpu": str(count)}}}
        for numa, count in sorted(cpus.items(), key=lambda pair: f"node{pair[0]}")
    ]
    return {keys.CRANE_RESULT: msgspec.json.encode(zones).decode()}
