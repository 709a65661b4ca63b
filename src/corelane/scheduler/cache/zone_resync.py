"""Which pods an exporter's zones count already, so that they are not taken off again.

The rule is that of scheduler-plugins' OverReserve cache: an object counts the pods of its fingerprint. Where
that is of other pods than are known here, the object waits, and the former zones stay in force with all pods
that they do not count. An object without a fingerprint counts the pods that were seen started before it came;
pods without exclusive resources, which change no zone, count from their start.
"""

from collections.abc import Iterable, Iterator

from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import exported_zones
from corelane.node.zones.alignment import is_device, requested
from corelane.node.zones.pods_fingerprint import fingerprint
from corelane.node.zones.zone_state import ZonesState
from corelane.scheduler.cache.pods import PodInfo
from corelane.workload import ContainerKind, PodRequest, QOSClass


def counted(published: NodeResourceTopology, pods: Iterable[PodInfo]) -> frozenset[str] | None:
    """Return the UIDs of the node's pods that the object counts; None where its fingerprint is of others."""
    bound = [info for info in pods if info.pod.spec.node_name]
    running = [info for info in bound if started(info)]
    expected = exported_zones.pods_fingerprint(published)
    if not expected.text:
        return _uids(running)
    names = {resource.name for zone in published.zones for resource in zone.resources}
    for candidates in (running, bound):
        signed = [info for info in candidates if not expected.exclusive_only or _is_exclusive(info, names)]
        if fingerprint(_names(signed)) == expected.text:
            return _uids(candidates)
    return None


def counts_from_start(state: ZonesState, published: NodeResourceTopology, info: PodInfo) -> bool:
    """Return whether a started pod changes no zone, and no fingerprint will tell that it is counted."""
    names = {name for zone in state.zones for name in zone.available}
    return not exported_zones.pods_fingerprint(published).text and not _is_exclusive(info, names)


def started(info: PodInfo) -> bool:
    """Return whether the kubelet has admitted the pod."""
    return bool(info.pod.spec.node_name) and info.pod.status.phase not in ("", "Pending")


def started_uids(pods: Iterable[PodInfo]) -> frozenset[str]:
    """Return the UIDs of the pods that the kubelet has admitted."""
    return _uids(filter(started, pods))


def _uids(pods: Iterable[PodInfo]) -> frozenset[str]:
    return frozenset(info.uid for info in pods)


def _names(pods: Iterable[PodInfo]) -> Iterator[tuple[str, str]]:
    return ((info.pod.metadata.namespace, info.pod.metadata.name) for info in pods)


def _is_exclusive(info: PodInfo, names: set[str]) -> bool:
    return info.request is not None and has_exclusive_resources(info.request, names)


def has_exclusive_resources(request: PodRequest, names: set[str]) -> bool:
    """Upstream's `AreExclusiveForPod`: devices in some zone, integer CPUs or memory of a Guaranteed pod."""
    guaranteed = request.qos is QOSClass.GUARANTEED
    lasting = (one for one in request.containers if one.kind is not ContainerKind.INIT)
    amounts = [pair for container in lasting for pair in requested(container).items()]
    return any(
        name in names if is_device(name) else guaranteed and _is_exclusive_amount(name, amount)
        for name, amount in amounts
    )


def _is_exclusive_amount(name: str, amount: int) -> bool:
    if name == "cpu":
        return amount > 0 and amount % 1000 == 0
    return amount > 0 and (name == "memory" or name.startswith("hugepages-"))
