"""A pod's part of each NUMA node: remaining amounts, the division of a request, CPUs, and scores.

`resource_manager.go` and `node_allocation.go`. Upstream orders the nodes by what zones have whose ids are the
nodes' places in the list, so a request that the nodes hold together may be refused; kept, since its
scheduler decides so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from corelane.node.config import amplify
from corelane.node.entries import Origin
from corelane.node.koordinator.pod_demand import PodDemand, bound_cpus, options_of
from corelane.node.ledger import NodeState
from corelane.placement.koordinator import allocator, cpu_picker
from corelane.placement.koordinator.allocator import NotSatisfied
from corelane.placement.koordinator.cpu_picker import Held, Request
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy
from corelane.workload.request import Amounts, summed

Shares = Mapping[int, Amounts]
"""NUMA node to the amounts of a pod there."""
_LACKING: Final = "Insufficient NUMA {}"


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod's amounts by NUMA node, {} where these are not counted, and its CPUs as a mask."""

    shares: Shares
    cpus: int = 0


class Zones:
    """A node's zones for one pod: amounts left, CPUs left (a mask), and what other pods hold."""

    __slots__ = ("available", "demand", "free", "held", "offered", "single", "spanned", "state")

    def __init__(self, state: NodeState, demand: PodDemand, free: int) -> None:
        self.state, self.demand, self.free = state, demand, free
        self.offered = options_of(state).zones
        self.held, self.single, self.spanned = _held(state)
        self.available = left_by_zone(state)
        if demand.bind_required:
            # A required bind policy counts only the CPUs that it can use.
            request = self._request(required=True)
            for node, amounts in self.available.items():
                if milli := amounts.get("cpu", 0):
                    usable = allocator.usable(self.state.topology, self.free & self.cpus_of(node), request)
                    self.available[node] = {**amounts, "cpu": min(milli, 1000 * usable.bit_count())}

    def cpus_of(self, node: int) -> int:
        """Return the CPUs of a NUMA node as a mask."""
        topology = self.state.topology
        return topology.numa[topology.numa_ids.index(node)] if node in topology.numa_ids else 0

    def place(self, nodes: Sequence[int] | None) -> Placement:
        """Return the pod's part of each of these NUMA nodes, or its CPUs alone. Raises NotSatisfied."""
        shares = self._divided(nodes) if nodes is not None else {}
        return Placement(shares, self._cpus(shares) if self.demand.cpus else 0)

    def may_hold(self, nodes: Sequence[int]) -> bool:
        """Return whether these NUMA nodes have enough in sum: necessary for `place`, and cheap."""
        return all(
            sum(self.available[node].get(name, 0) for node in nodes) >= amount
            for name, amount in self.demand.amounts.items()
            if any(name in amounts for amounts in self.available.values())
        )

    def _divided(self, nodes: Sequence[int]) -> Shares:
        shares: dict[int, dict[str, int]] = {}
        named = {name for amounts in self.available.values() for name in amounts}
        for name, amount in self.demand.amounts.items():
            if name not in named:
                continue
            rest = amount
            for visited, node in enumerate(self._order(nodes, name)):
                part = self._part(name, rest, len(nodes) - visited)
                if taken := min(part, self.available[node].get(name, 0)):
                    shares.setdefault(node, {})[name] = taken
                    rest -= taken
            if rest:
                raise NotSatisfied(_LACKING.format(name), "numa")
        return {node: shares[node] for node in sorted(shares)}

    def _order(self, nodes: Sequence[int], name: str) -> list[int]:
        """Upstream's insertion sort, whose comparison does not look at the nodes; see the module."""
        ordered = list(nodes)
        left = [self.available.get(place, {}).get(name, 0) for place in range(len(ordered))]
        for i in range(1, len(ordered)):
            for j in range(i, 0, -1):
                if left[j] >= left[j - 1]:
                    break
                ordered[j - 1], ordered[j] = ordered[j], ordered[j - 1]
        return ordered

    def _part(self, name: str, rest: int, nodes: int) -> int:
        """An even part: of CPUs to be bound whole ones, and whole cores where these are required."""
        if name != "cpu" or not self.demand.cpus:
            return rest // nodes
        unit = 1
        if self.demand.bind_required and self.demand.bind is BindPolicy.FULL_PCPUS:
            unit = self.state.topology.cpus_per_core
        return 1000 * (-(-rest // 1000) // unit // nodes * unit)

    def _cpus(self, shares: Shares) -> int:
        demand, topology = self.demand, self.state.topology
        free = allocator.usable(topology, self.free, self._request(required=demand.bind_required))
        if free.bit_count() < demand.cpus:
            raise NotSatisfied("not enough cpus available to satisfy request", "cpus")
        taken, request = 0, self._request(required=False)
        for node, amounts in shares.items():
            here = free & self.cpus_of(node)
            n = min(here.bit_count(), amounts.get("cpu", 0) // 1000)
            taken |= allocator.take_valid(topology, here, n, request, self.held)
        if not shares:
            taken = allocator.take_valid(topology, free, demand.cpus, request, self.held)
        if taken.bit_count() != demand.cpus:
            raise NotSatisfied("not enough cpus available to satisfy request", "cpus")
        if demand.bind_required and not self._lies_as_required(taken):
            raise NotSatisfied(f"insufficient CPUs to satisfy required cpu bind policy {demand.bind}", "bind")
        return taken

    def _lies_as_required(self, cpus: int) -> bool:
        cores = cpu_picker.of(self.state.topology)
        touched = cores.cores_of(cpus)
        if self.demand.bind is BindPolicy.FULL_PCPUS:
            return touched.bit_count() * self.state.topology.cpus_per_core == cpus.bit_count()
        return touched.bit_count() == cpus.bit_count()

    def _request(self, *, required: bool) -> Request:
        demand = self.demand
        return Request(demand.bind, demand.exclusive, demand.strategy, required=required)


def allocated_by_zone(state: NodeState) -> dict[int, Amounts]:
    """Return what pods have of each zone, by their `resource-status`; CPUs in cpusets count amplified."""
    options = options_of(state)
    allocated: dict[int, dict[str, int]] = {node: {} for node in options.zones}
    for placed in state.placed_pods.values():
        for node, amounts in placed.amounts.items():
            of_zone = allocated.get(node)
            for name, amount in amounts.items() if of_zone is not None else ():
                assert of_zone is not None
                of_zone[name] = of_zone.get(name, 0) + amount
    if options.amplification > 1:
        bound = bound_cpus(state)
        for node, of_zone in allocated.items():
            if of_zone and node in state.topology.numa_ids:
                numa = state.topology.numa[state.topology.numa_ids.index(node)]
                milli = 1000 * (numa & bound).bit_count()
                of_zone["cpu"] = of_zone.get("cpu", 0) - milli + amplify(milli, options.amplification)
    return dict(allocated)


def left_by_zone(state: NodeState) -> dict[int, Amounts]:
    """Return what zones have left by NUMA node."""
    zones = zip(options_of(state).zones.items(), allocated_by_zone(state).values(), strict=True)
    return {node: _left(offered, allocated) for (node, offered), allocated in zones}


def _left(offered: Amounts, allocated: Amounts) -> Amounts:
    names = {**offered, **allocated}
    return {name: max(0, offered.get(name, 0) - allocated.get(name, 0)) for name in names}


def _held(state: NodeState) -> tuple[Held, int, int]:
    """Return the CPUs of exclusive policies, and NUMA nodes (masks of ids) of pods on one and on several."""
    topology, masks = state.topology, dict[str, int]()
    for entry in state.entries.values():
        if entry.cpus and entry.origin is not Origin.KUBELET:
            masks[entry.uid] = masks.get(entry.uid, 0) | entry.cpus.mask
    cores = nodes = single = spanned = 0
    for uid, mask in masks.items():
        placed = state.placed_pods.get(uid)
        policy = placed.exclusive_policy if placed else ExclusivePolicy.NONE
        cores |= mask if policy is ExclusivePolicy.PCPU_LEVEL else 0
        nodes |= mask if policy is ExclusivePolicy.NUMA_NODE_LEVEL else 0
        numa = zip(topology.numa_ids, topology.numa, strict=True)
        ids = sum(1 << node for node, cpus in numa if cpus & mask)
        if ids.bit_count() == 1:
            single |= ids
        else:
            spanned |= ids
    return Held(cores, nodes), single & ~spanned, spanned


# Scores: shares of CPU and memory, 0 to 100. `scoring.go`, `least_allocated.go` and `most_allocated.go`;
# weights are 1 for CPU and for memory by default.


Strategy: TypeAlias = Literal["LeastAllocated", "MostAllocated"]
Weights: TypeAlias = Mapping[str, int]
WEIGHTS: Final[Weights] = {"cpu": 1, "memory": 1}
BEST: Final = 100


def hint_score(zones: Zones, nodes: Sequence[int]) -> int:
    """Return the score of a set of NUMA nodes among sets of its size, by the scheduler's strategy."""
    total: dict[str, int] = {}
    used: dict[str, int] = {}
    for node in nodes:
        for name, amount in zones.offered[node].items():
            total[name] = total.get(name, 0) + amount
            used[name] = used.get(name, 0) + amount - zones.available[node].get(name, 0)
    used = {name: max(0, amount) for name, amount in used.items()}
    demand = zones.demand
    return allocated_score(used, total, demand.scored, "MostAllocated" if demand.packs else "LeastAllocated")


def by_zone(state: NodeState, demand: PodDemand) -> bool:
    """Return whether a pod is scored by the NUMA nodes that it gets, else by the totals of the node.

    Upstream's Filter chooses none under `BestEffort`, and leaves the only one of a machine open.
    """
    if demand.numa is NUMAPolicy.SINGLE_NUMA_NODE:
        return len(options_of(state).zones) > 1
    return demand.numa is NUMAPolicy.RESTRICTED


def bound_milli(state: NodeState) -> int:
    """Return the milliCPU of all pods in cpusets, amplified."""
    return amplify(1000 * bound_cpus(state).bit_count(), options_of(state).amplification)


def zones_score(
    state: NodeState,
    demand: PodDemand,
    shares: Shares,
    strategy: Strategy = "LeastAllocated",
    weights: Weights = WEIGHTS,
) -> int:
    """Return the score of the NUMA nodes in `shares`; CPUs in cpusets are those of the whole node."""
    zones, allocated = options_of(state).zones, allocated_by_zone(state)
    used = summed([allocated[node] for node in shares])
    if demand.cpus:
        used["cpu"] = bound_milli(state)
    return allocated_score(used, summed([zones[node] for node in shares]), demand.scored, strategy, weights)


def totals_score(
    state: NodeState,
    demand: PodDemand,
    allocatable: Amounts,
    requested: Amounts,
    strategy: Strategy = "LeastAllocated",
    weights: Weights = WEIGHTS,
) -> int:
    """Return the score of a node by what is allocatable on it, and requested by all of its pods."""
    used = dict(requested)
    if demand.numa and demand.cpus:
        used["cpu"] = bound_milli(state)
    elif not demand.numa and demand.amounts.get("cpu"):
        used["cpu"] = used.get("cpu", 0) + bound_milli(state) - 1000 * bound_cpus(state).bit_count()
    return allocated_score(used, allocatable, demand.scored, strategy, weights)


def allocated_score(
    used: Amounts,
    total: Amounts,
    pod: Amounts,
    strategy: Strategy = "LeastAllocated",
    weights: Weights = WEIGHTS,
) -> int:
    """Return the weighted mean of the shares that are free, or with MostAllocated in use, with the pod."""
    score = sum_of_weights = 0
    for name, weight in weights.items():
        capacity, requested = total.get(name, 0), used.get(name, 0) + pod.get(name, 0)
        if capacity <= 0:
            continue
        counted = requested if strategy == "MostAllocated" else capacity - requested
        score += weight * (max(0, min(counted, capacity)) * BEST // capacity)
        sum_of_weights += weight
    return score // sum_of_weights if sum_of_weights else 0
