"""The rules of gocrane's scheduler for nodes whose agent pins pods inside the NUMA nodes chosen for them.

Upstream: `pkg/plugins/noderesourcetopology` of gocrane/crane-scheduler. Only regular containers whose CPU
request is their limit, an integer, count; all together, from one NUMA node where the pod or the node is aware
of the topology, else from those with the most free CPUs. Unlike upstream, a pod that does not fit whole is
refused.
"""

from collections.abc import Mapping
from dataclasses import replace

from corelane.node.ledger import Decision
from corelane.node.zones.zone_state import Zone, ZonesState
from corelane.reasons import Code, Reason
from corelane.workload import ContainerKind, CPUPolicy, PodRequest

_BEST = 100


def admit(state: ZonesState, request: PodRequest) -> tuple[ZonesState, Decision]:
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
    apps = (one for one in request.containers if one.kind is ContainerKind.APP)
    return sum(one.whole_cpus for one in apps if one.cpu_request == one.cpu_limit)


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
    zones = len(admit(state, request)[1].zone_cpus)
    return _BEST // zones if zones else 0
