"""May a pod run on a node with these zones? The rules of NodeResourceTopologyMatch, and gocrane's.

Upstream: `pkg/noderesourcetopology/filter.go` and `numaresources.go` of kubernetes-sigs/scheduler-plugins.
Only policy single-numa-node is judged, since the other policies let every pod run. Of a pod that is not
Guaranteed, CPU, memory and huge pages need only be known in some zone; devices always count. Init
containers, sidecars included, are tried one by one and release what they had.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from corelane.node.ledger import Decision
from corelane.node.zone_needs import FREE, ZoneNeeds
from corelane.node.zones.zone_state import Zone, ZonesState, assume
from corelane.placement.memory_blocks import hugepages
from corelane.reasons import Code, Reason
from corelane.workload import CPUPolicy
from corelane.workload.request import Amounts, ContainerKind, ContainerRequest, PodRequest, QOSClass, summed

_HUGEPAGES: Final = "hugepages-"
_ON_NODE: Final = frozenset({"ephemeral-storage", "storage"})
"""Native resources that need not be in any zone."""
_MOST_ZONES: Final = 64
"""Ids that upstream's bit mask holds; zones with others never fit."""


def admit(state: ZonesState, request: PodRequest) -> tuple[ZonesState, Decision]:
    """Assume the pod on the node, or return why it does not fit; the kubelet may still reject it."""
    if request.uid in state.assumed:
        return state, Decision(True)
    refusal = _refusal(state, request)
    if refusal:
        return state, Decision(False, refusal)
    return assume(state, request.uid, effective(request)), Decision(True)


def _refusal(state: ZonesState, request: PodRequest) -> Reason | None:
    if request.qos is QOSClass.BEST_EFFORT and not has_devices(request):
        return None
    if state.policy != "single-numa-node":
        return None
    free = {zone.id: dict(zone.available) for zone in state.free if zone.id < _MOST_ZONES}
    if state.scope == "pod":
        _, reason = _fit(free, effective(request), request.qos, "pod", "")
        return reason
    apps = [container for container in request.containers if container.kind is ContainerKind.APP]
    for container in request.containers:
        if container.kind is not ContainerKind.APP:
            kind = "init container" if container.kind is ContainerKind.INIT else "sidecar container"
            _, reason = _fit(free, requested(container), request.qos, kind, container.name)
            if reason:
                return reason
    for container in apps:
        amounts = requested(container)
        numa, reason = _fit(free, amounts, request.qos, "container", container.name)
        if reason:
            return reason
        here = free.get(numa, {})
        qos = request.qos
        for name, amount in amounts.items():
            if name in here and (qos is QOSClass.GUARANTEED or not is_aligned(name)):
                here[name] -= amount
    return None


def _fit(
    free: Mapping[int, Amounts], amounts: Amounts, qos: QOSClass, kind: str, container: str
) -> tuple[int, Reason | None]:
    """The NUMA node that the kubelet would take, the lowest that has everything; or why none has."""
    fitting = set(range(_MOST_ZONES))
    for name, amount in amounts.items():
        if not amount:
            continue
        having = {numa: here[name] for numa, here in free.items() if name in here}
        if not having and (is_device(name) or name in _ON_NODE):
            continue
        any_amount = qos is not QOSClass.GUARANTEED and is_aligned(name)
        fitting &= {numa for numa, left in having.items() if any_amount or left >= amount}
        if not fitting:
            values = (kind, container, name, amount, tuple(sorted(having.items())))
            return 0, Reason(Code.ZONES_NOT_ALIGNED, values)
    return min(fitting), None


def has_devices(request: PodRequest) -> bool:
    """Return whether a pod requests resources that are not Kubernetes' own."""
    return any(is_device(name) for container in request.containers for name in requested(container))


def is_aligned(name: str) -> bool:
    """Whether the kubelet aligns the resource for Guaranteed pods only: CPU, memory and huge pages."""
    return name in ("cpu", "memory") or name.startswith(_HUGEPAGES)


def is_device(name: str) -> bool:
    """Whether a resource is not one of Kubernetes' own (`IsNativeResource` is false)."""
    return "/" in name and "kubernetes.io/" not in name


def requested(container: ContainerRequest) -> Amounts:
    """Return what a container requests by resource name, as listed; else what its other fields tell."""
    if container.requests:
        return container.requests
    amounts = {"cpu": container.cpu_request, "memory": container.memory_request}
    pages = {hugepages(kib): size for kib, size in container.hugepages.items()}
    return {name: n for name, n in amounts.items() if n} | pages | dict(container.devices)


def effective(request: PodRequest) -> Amounts:
    """Return the pod's request as upstream's `GetPodEffectiveRequest`.

    That is the sum of the containers, or the largest init container or sidecar where that is more, and the
    overhead.
    """
    apps = (container for container in request.containers if container.kind is ContainerKind.APP)
    amounts = summed(map(requested, apps))
    for container in request.containers:
        if container.kind is not ContainerKind.APP:
            for name, amount in requested(container).items():
                amounts[name] = max(amounts.get(name, 0), amount)
    return summed((amounts, request.overhead))


# gocrane's agent pins pods inside the NUMA nodes chosen by its scheduler. Upstream:
# `pkg/plugins/noderesourcetopology` of gocrane/crane-scheduler. Only regular containers whose CPU request is
# their limit, an integer, count; all together, from one NUMA node where the pod or the node is aware of the
# topology, else from those with the most free CPUs. Unlike upstream, a pod that does not fit whole is
# refused.


_BEST = 100


def crane_admit(state: ZonesState, request: PodRequest) -> tuple[ZonesState, Decision]:
    """Return the state with the pod, and the decision with its CPUs by NUMA node; none where none count."""
    cpus = target_cpus(request)
    if state.crane is None or not state.crane.pins or not cpus:
        return state, Decision(True)
    chosen = _chosen(state, request, cpus)
    if not chosen:
        free = tuple((zone.id, zone.available.get("cpu", 0)) for zone in state.zones)
        return state, Decision(False, Reason(Code.CRANE_INSUFFICIENT, (cpus, free)))
    return subtract(state, chosen), Decision(True, zone_cpus=chosen)


def target_cpus(request: PodRequest) -> int:
    """Return the CPUs of the containers that gocrane's agent pins."""
    if request.placement_spec.cpu_policy is CPUPolicy.NONE:
        return 0
    apps = (container for container in request.containers if container.kind is ContainerKind.APP)
    return sum(app.whole_cpus for app in apps if app.cpu_request == app.cpu_limit)


def _chosen(state: ZonesState, request: PodRequest, cpus: int) -> Mapping[int, int]:
    """NUMA node to CPUs, the emptiest first; empty where the pod does not fit."""
    assert state.crane is not None
    own = request.placement_spec.topology_aware
    aware = state.crane.aware if own is None else own
    free = sorted(((zone.available.get("cpu", 0), -zone.id) for zone in state.zones), reverse=True)
    if aware:
        return {-free[0][1]: cpus} if free and free[0][0] >= 1000 * cpus else {}
    chosen: dict[int, int] = {}
    for milli, numa in free:
        if taken := min(cpus, max(0, milli // 1000)):
            chosen[-numa] = taken
            cpus -= taken
    return {} if cpus else chosen


def subtract(state: ZonesState, cpus: Mapping[int, int]) -> ZonesState:
    """Return the state without these CPUs, by NUMA node."""
    if not cpus:
        return state
    return replace(state, zones=tuple(_less(zone, 1000 * cpus.get(zone.id, 0)) for zone in state.zones))


def _less(zone: Zone, milli: int) -> Zone:
    return replace(zone, available={**zone.available, "cpu": zone.available.get("cpu", 0) - milli})


def score(state: ZonesState, request: PodRequest) -> int:
    """Return upstream's score, 100 over the number of NUMA nodes; 0 for pods that gocrane does not pin."""
    zones = len(crane_admit(state, request)[1].zone_cpus)
    return _BEST // zones if zones else 0


def zone_needs_of(state: ZonesState, request: PodRequest) -> ZoneNeeds:
    """Return the needs of nodes that publish amounts by NUMA node only."""
    if state.crane is not None:
        cpus = target_cpus(request) if state.crane.pins else 0
        own = request.placement_spec.topology_aware
        aware = state.crane.aware if own is None else own
        return ZoneNeeds({FREE: cpus}, ({FREE: cpus},) if aware else ())
    free = request.qos is QOSClass.BEST_EFFORT and not has_devices(request)
    if free or state.policy != "single-numa-node":
        return ZoneNeeds()
    if state.scope == "pod":
        parts: Iterable[Amounts] = (effective(request),)
    else:
        parts = map(requested, request.containers)
    return ZoneNeeds(zones=tuple(_counted(part, request.qos) for part in parts))


def _counted(part: Amounts, qos: QOSClass) -> Amounts:
    if qos is QOSClass.GUARANTEED:
        return part
    return {name: n for name, n in part.items() if not is_aligned(name)}
