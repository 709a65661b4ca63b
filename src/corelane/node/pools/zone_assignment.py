"""Pods without CPUs of their own: in which NUMA nodes' part of the shared pool they stay, if in any."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node.decision import Refusal
from corelane.node.entries import Sharing
from corelane.node.ledger import NodeState
from corelane.node.pools import zones
from corelane.node.pools.classes import PodClass
from corelane.node.pools.memory_devices import nodes_with
from corelane.placement.optimal.demand import Resource
from corelane.reasons import Code, Reason
from corelane.workload import NUMAPolicy, PodRequest, peak

__all__ = ["STRICT", "ZoneAssignment", "assign_zone"]

STRICT: Final = (NUMAPolicy.RESTRICTED, NUMAPolicy.SINGLE_NUMA_NODE)
"""The policies under which a pod does not come in where it cannot lie together."""


@dataclass(frozen=True, slots=True)
class ZoneAssignment:
    """The NUMA nodes, None for all of the pool, and why."""

    zone: CPUSet | None = None
    why: Reason | None = None
    burst: int = 0
    """MilliCPU up to which a pod confined there may burst."""
    repicked: bool = False


def assign_zone(
    state: NodeState,
    request: PodRequest,
    decided: PodClass,
    numa: NUMAPolicy,
    wanted: tuple[Resource, ...] = (),
) -> ZoneAssignment:
    """Where the pod's containers stay, beside the devices and memory that are `wanted`.

    Raises Refusal where it must stay somewhere, but has no room.
    """
    _check_wishes_need_cpus(request, decided)
    strict = numa in STRICT
    if decided.sharing is not Sharing.POOL or not (decided.confined or decided.local or strict):
        return ZoneAssignment()
    milli = _limit(request) if decided.confined else request.cpu_request
    most = _most(state, decided, numa, milli)
    rooms = zones.room(state, bursts=decided.confined)
    if most == 1:
        rooms = nodes_with(rooms, wanted)
    burst = milli if decided.confined else 0
    if request.zone and _fits(request.zone, rooms, milli, most):
        why = Reason(Code.ZONE_PROPOSAL_USED, (request.zone.mask, milli))
        return ZoneAssignment(request.zone, why, burst)
    zone = zones.fitting(rooms, milli, most, request.placement_spec.strategy or state.config.pools.strategy)
    if zone is None and (decided.confined or strict):
        what = "limit" if decided.confined else "request"
        raise Refusal(Code.INSUFFICIENT_NUMA, most, what, milli, tuple(rooms.items()))
    return ZoneAssignment(zone, _why(request, zone, rooms, milli), burst, repicked=bool(request.zone))


def _check_wishes_need_cpus(request: PodRequest, decided: PodClass) -> None:
    placement_spec = request.placement_spec
    if placement_spec.exclusive and placement_spec.exclusive.required:
        what = "exclusivity"
    elif any(one.required for one in placement_spec.affinities):
        what = "CPU affinity"
    else:
        return
    raise Refusal(Code.REQUIREMENT_NEEDS_CPUS, what, decided.why)


def _limit(request: PodRequest) -> int:
    return peak((one.kind, one.cpu_limit) for one in request.containers)


def _most(state: NodeState, decided: PodClass, numa: NUMAPolicy, milli: int) -> int:
    """The most NUMA nodes in which it may be."""
    if decided.confined or numa is NUMAPolicy.SINGLE_NUMA_NODE:
        return 1
    if numa is NUMAPolicy.RESTRICTED:
        return zones.fewest_idle(state, milli)
    return len(state.topology.numa)


def _fits(zone: CPUSet, rooms: Mapping[int, int], milli: int, most: int) -> bool:
    inside = [rooms[node] for node in zone if node in rooms]
    return len(inside) == len(zone) <= most and (sum(inside) >= milli or not milli)


def _why(request: PodRequest, zone: CPUSet | None, rooms: Mapping[int, int], milli: int) -> Reason:
    by_node = tuple(rooms.items())
    if zone is None:
        return Reason(Code.ZONE_WHOLE_POOL, (milli, by_node))
    proposed = request.zone.mask if request.zone else 0
    return Reason(Code.ZONE_ASSIGNED, (zone.mask, milli, by_node, proposed))
