"""Pods to what they ask for: QoS class, requests, and the CPUs that a scheduler proposed."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from corelane import quantity
from corelane.kube.meta import ResourceList
from corelane.kube.pod import Container, Pod, ResourceRequirements
from corelane.kube.translate import placement_spec, proposals
from corelane.kube.translate.annotations import amount
from corelane.workload import ContainerKind, ContainerRequest, PodRequest, PodResources, QOSClass, peak

__all__ = ["qos", "request", "requests"]

_COUNTED = ("cpu", "memory")
_HUGEPAGES = "hugepages-"
_QUOTA = "requests."
_POD_LEVEL = ("cpu", "memory", _HUGEPAGES)


def request(pod: Pod) -> PodRequest:
    """What a pod asks for, with the proposal in its annotations once it is bound to a node.

    Raises TranslationError for a quantity, a label or an annotation that makes no sense.
    """
    containers = tuple(_container(*found) for found in _containers(pod))
    names = [container.name for container in containers]
    meta, bound = pod.metadata, bool(pod.spec.node_name)
    return PodRequest(
        meta.uid,
        meta.namespace,
        meta.name,
        qos(pod),
        containers,
        proposals.read(meta.annotations, names) if bound else {},
        labels=meta.labels,
        placement_spec=placement_spec.read(pod),
        level=_level(pod.spec.resources),
        zone=proposals.zone(meta.annotations) if bound else None,
    )


def qos(pod: Pod) -> QOSClass:
    """The pod's QoS class: what its status says, else worked out as upstream does (`ComputePodQOS`, 1.36)."""
    if pod.status.qos_class in set(QOSClass):
        return QOSClass(pod.status.qos_class)
    level = pod.spec.resources
    if level is not None:
        path = "spec.resources"
        parts = [(_nano(f"{path}.requests", level.requests), _nano(f"{path}.limits", level.limits))]
        must_be_limited = bool(level.limits)
    else:
        parts = [
            (
                _nano(f"{path}.requests", _defaulted(container)),
                _nano(f"{path}.limits", container.resources.limits),
            )
            for path, _, container in _containers(pod)
        ]
        must_be_limited = True
    return _classify(parts, must_be_limited)


def _classify(parts: list[tuple[dict[str, int], dict[str, int]]], must_be_limited: bool) -> QOSClass:
    requested = _sum(requests for requests, _ in parts)
    limited = _sum(limits for _, limits in parts)
    if not requested and not limited:
        return QOSClass.BEST_EFFORT
    all_limited = not must_be_limited or all(len(limits) == len(_COUNTED) for _, limits in parts)
    return QOSClass.GUARANTEED if all_limited and requested == limited else QOSClass.BURSTABLE


def _sum(lists: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amounts in lists:
        for name, more in amounts.items():
            total[name] = total.get(name, 0) + more
    return total


def _nano(path: str, listed: ResourceList) -> dict[str, int]:
    """CPU and memory above zero, exactly, in billionths."""
    amounts = {
        n: _read(path, listed, n, lambda text: quantity.parse(text).nano) for n in _COUNTED if n in listed
    }
    return {name: nano for name, nano in amounts.items() if nano > 0}


def requests(pod: Pod) -> dict[str, int]:
    """What a pod's containers request at once, with its overhead: CPU in milliCPU, all else in whole units.

    As upstream's `resourcehelper.PodRequests`: sidecars stay once started, init containers run one by one
    (KEP-753), and pod-level CPU, memory and huge pages stand in for their containers' (KEP-2837).
    """
    found = list(_containers(pod))
    amounts = [(kind, _amounts(f"{path}.requests", _defaulted(container))) for path, kind, container in found]
    names = {name for _, listed in amounts for name in listed}
    total = {name: peak((kind, listed.get(name, 0)) for kind, listed in amounts) for name in names}
    if pod.spec.resources is not None:
        level = pod.spec.resources.requests
        named = {name: value for name, value in level.items() if name.startswith(_POD_LEVEL)}
        total |= _amounts("spec.resources.requests", named)
    return _sum([total, _amounts("spec.overhead", pod.spec.overhead)])


def _containers(pod: Pod) -> Iterator[tuple[str, ContainerKind, Container]]:
    """Path of its resources, kind, and container; init containers first, as they run."""
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
        _read(f"{path}.requests", requested, "cpu", quantity.milli),
        _read(f"{path}.limits", limits, "cpu", quantity.milli),
        _read(f"{path}.requests", requested, "memory", quantity.value),
        _read(f"{path}.limits", limits, "memory", quantity.value),
        _hugepages(f"{path}.requests", requested),
        _devices(f"{path}.limits", limits),
    )


def _level(resources: ResourceRequirements | None) -> PodResources | None:
    """What a pod asks for as a whole; None where it names nothing that a pod may (KEP-2837)."""
    if resources is None:
        return None
    listed = resources.limits | resources.requests
    if not any(name.startswith(_POD_LEVEL) for name in listed):
        return None
    path = "spec.resources.requests"
    return PodResources(
        _read(path, listed, "cpu", quantity.milli),
        _read(path, listed, "memory", quantity.value),
        _hugepages(path, listed),
    )


def _devices(path: str, listed: ResourceList) -> dict[str, int]:
    """Extended resources, whose limit is their request: names with a domain that is not Kubernetes' own."""
    return {name: _read(path, listed, name, quantity.value) for name in listed if _is_extended(name)}


def _is_extended(name: str) -> bool:
    """As upstream's `IsExtendedResourceName`."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith(_QUOTA)


def _hugepages(path: str, listed: ResourceList) -> dict[int, int]:
    """Page size in KiB to bytes."""
    sizes = [name.removeprefix(_HUGEPAGES) for name in listed if name.startswith(_HUGEPAGES)]
    return {
        _read(path, {_HUGEPAGES + size: size}, _HUGEPAGES + size, quantity.value) // 1024: _read(
            path, listed, _HUGEPAGES + size, quantity.value
        )
        for size in sizes
    }


def _defaulted(container: Container) -> ResourceList:
    """Requests, each absent one taken from its limit, as the API server does to what it stores."""
    return container.resources.limits | container.resources.requests


def _amounts(path: str, listed: ResourceList) -> dict[str, int]:
    return {
        name: _read(path, listed, name, quantity.milli if name == "cpu" else quantity.value)
        for name in listed
    }


def _read(path: str, listed: ResourceList, name: str, reader: Callable[[str], int]) -> int:
    return amount(f"{path}.{name}", listed.get(name, "0"), reader)
