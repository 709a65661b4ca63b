"""The pools by NUMA node: what is in them, how much room they have, and where a floating pod should stay."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from corelane.cpuset import CPUSet, bits, lowest
from corelane.node.entries import Entry, Sharing
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import PodClass
from corelane.placement.optimal.demand import Resource
from corelane.placement.topology import Topology
from corelane.reasons import Code, Reason, Refusal
from corelane.workload import NUMAPolicy, NUMAStrategy
from corelane.workload.request import ContainerKind, PodRequest, peak


class Zone(NamedTuple):
    """The parts of the pools in one NUMA node of one socket."""

    socket: int
    node: int
    shared: CPUSet
    best_effort: CPUSet


def pools_by_zone(state: NodeState) -> list[Zone]:
    """The shared and the BE pool by socket and NUMA node; nodes without usable CPUs are left out."""
    shared, best = state.shared_pool.mask, state.best_effort_pool.mask
    zones = []
    for socket, package in state.machine.socket_masks:
        for node, cpus in state.machine.numa_masks:
            if mask := package & cpus & state.topology.all:
                parts = CPUSet.from_mask(shared & mask), CPUSet.from_mask(best & mask)
                zones.append(Zone(socket, node, *parts))
    return zones


def best_effort_cpus(state: NodeState, n: int) -> CPUSet:
    """Return n CPUs of the BE pool: reserved ones first, exclusive ones shared with BE last.

    A cpuset knows no order, so this is how best effort prefers reserved CPUs (Koordinator's proposal): they
    are the last that it loses. All of the pool where it has no more than n.
    """
    pool, taken = state.best_effort_pool.mask, 0
    for part in (state.reserved.mask, state.shared_pool.mask, pool):
        taken |= lowest(pool & part & ~taken, n - taken.bit_count())
    return CPUSet.from_mask(taken)


def room(state: NodeState, *, bursts: bool = False) -> dict[int, int]:
    """NUMA node to the milliCPU that its part of the shared pool has beside what pods held there may use.

    That is their requests, or with `bursts` the limits of those of ConstrainedBurst and the requests of the
    others. Nodes without a CPU in the pool are left out.
    """
    pool, held = state.shared_pool.mask, _held(state, bursts=bursts)
    numa = zip(state.topology.numa_ids, state.topology.numa, strict=True)
    return {node: 1000 * cpus.bit_count() - held.get(node, 0) for node, mask in numa if (cpus := mask & pool)}


def kept(
    state: NodeState, available: int, *, barred: int = 0, proposed: int = 0, spread: bool = False
) -> int:
    """Which of the available CPUs must stay in the shared pool, as a mask, for the pods held to their node.

    Each such node keeps what these request, and at least one CPU; reserved CPUs count. Those stay that a
    newcomer misses least: what is `barred` to it, then what leaves it the most whole cores (for one that is
    to `spread`, the most cores), and last what is `proposed` for it.
    """
    staying = 0
    pool = state.shared_pool.mask
    for node, milli in _held(state, bursts=False).items():
        inside = state.cpus_of(CPUSet([node])) & pool
        missing = max(1, -(-milli // 1000)) - (inside & ~available).bit_count()
        if missing > 0:
            usual = inside & available & ~proposed
            order = [*_by_loss(state.topology, usual & barred, spread)]
            order += _by_loss(state.topology, usual & ~barred, spread)
            order += bits(inside & available & proposed)
            staying |= sum(1 << cpu for cpu in order[:missing])
    return staying


def _by_loss(topology: Topology, free: int, spread: bool) -> list[int]:
    """Free CPUs, first those without which the most cores are left whole or, with `spread`, left at all."""
    keys = {}
    for core in bits(topology.cores_of(free)):
        threads = topology.threads_of(1 << core)
        for rank, cpu in enumerate(bits(threads & free)):
            keys[cpu] = -rank if spread else not threads & ~free, -core, cpu
    return sorted(keys, key=keys.__getitem__)


def _held(state: NodeState, *, bursts: bool) -> dict[int, int]:
    """NUMA node to the milliCPU of the pods held to it; one held to several counts evenly in each."""
    held: dict[int, int] = {}
    for uid, (zone, milli) in _zoned(state):
        burst = state.placed_pods[uid].burst if bursts and uid in state.placed_pods else 0
        amount = burst or milli
        for node in zone:
            held[node] = held.get(node, 0) + -(-amount // len(zone))
    return held


def _zoned(state: NodeState) -> Iterator[tuple[str, tuple[CPUSet, int]]]:
    pods: dict[str, tuple[CPUSet, int]] = {}
    for entry in state.entries.values():
        if entry.zone:
            _, milli = pods.get(entry.uid, (entry.zone, 0))
            pods[entry.uid] = entry.zone, milli + _lasting(entry)
    return iter(pods.items())


def _lasting(entry: Entry) -> int:
    return 0 if entry.kind is ContainerKind.INIT else entry.cpu_request


def fitting(
    rooms: Mapping[int, int], milli: int, most: int, strategy: NUMAStrategy | None = None
) -> CPUSet | None:
    """The fewest NUMA nodes, `most` at the most, with room for so much; None if there are none.

    A request of 0 fits everywhere. A single one is the emptiest that
    fits, or with MostAllocated the fullest; several are the emptiest.
    """
    fitting = [node for node, free in rooms.items() if free >= milli or not milli]
    if fitting and most:
        fullest = strategy is NUMAStrategy.MOST_ALLOCATED
        best = min(fitting, key=lambda node: (rooms[node] if fullest else -rooms[node], node))
        return CPUSet([best])
    emptiest = sorted(rooms, key=lambda node: (-rooms[node], node))
    for count in range(2, min(most, len(emptiest)) + 1):
        if sum(rooms[node] for node in emptiest[:count]) >= milli:
            return CPUSet(emptiest[:count])
    return None


def fewest_idle(state: NodeState, milli: int) -> int:
    """Return the number of NUMA nodes that hold so much while nothing runs: a Restricted policy's bound."""
    missing = milli
    for count, size in enumerate(state.topology.numa_sizes, start=1):
        missing -= 1000 * size
        if missing <= 0:
            return count
    return len(state.topology.numa_sizes)


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
    check_rules_need_cpus(request, decided)
    strict = numa in STRICT
    if decided.sharing is not Sharing.POOL or not (decided.confined or decided.local or strict):
        return ZoneAssignment()
    milli = _limit(request) if decided.confined else request.cpu_request
    most = _most(state, decided, numa, milli)
    rooms = room(state, bursts=decided.confined)
    if most == 1:
        rooms = _nodes_with(rooms, wanted)
    burst = milli if decided.confined else 0
    if request.zone and _fits(request.zone, rooms, milli, most):
        why = Reason(Code.ZONE_PROPOSAL_USED, (request.zone.mask, milli))
        return ZoneAssignment(request.zone, why, burst)
    spec = request.placement_spec
    strategy = spec.strategy or state.config.pools.strategy or spec.defaults.strategy
    zone = fitting(rooms, milli, most, strategy)
    if zone is None and (decided.confined or strict):
        what = "limit" if decided.confined else "request"
        raise Refusal(Code.INSUFFICIENT_NUMA, most, what, milli, tuple(rooms.items()))
    return ZoneAssignment(zone, _why(request, zone, rooms, milli), burst, repicked=bool(request.zone))


def check_rules_need_cpus(request: PodRequest, decided: PodClass) -> None:
    """Raises Refusal for a pod without exclusive CPUs that requires something of them."""
    placement_spec = request.placement_spec
    if placement_spec.exclusive and placement_spec.exclusive.required:
        what = "exclusivity"
    elif any(affinity.required for affinity in placement_spec.affinities):
        what = "CPU affinity"
    else:
        return
    raise Refusal(Code.REQUIREMENT_NEEDS_CPUS, what, decided.why)


def _limit(request: PodRequest) -> int:
    return peak((container.kind, container.cpu_limit) for container in request.containers)


def _most(state: NodeState, decided: PodClass, numa: NUMAPolicy, milli: int) -> int:
    """The most NUMA nodes in which it may be."""
    if decided.confined or numa is NUMAPolicy.SINGLE_NUMA_NODE:
        return 1
    if numa is NUMAPolicy.RESTRICTED:
        return fewest_idle(state, milli)
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


def _nodes_with(rooms: Mapping[int, int], wanted: Iterable[Resource]) -> dict[int, int]:
    """Of these NUMA nodes, those that have all of what is wanted."""
    wanted = tuple(wanted)
    return {
        node: milli
        for node, milli in rooms.items()
        if all(one.free.get(node, 0) >= one.wanted for one in wanted)
    }
