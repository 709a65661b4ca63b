"""Scores of Koordinator's plugin NodeNUMAResource: shares of CPU and memory, in integers from 0 to 100.

`scoring.go`, `least_allocated.go` and `most_allocated.go`; weights are 1 for CPU and for memory by default.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from corelane.node.amplification import amplify
from corelane.node.koordinator.pod_demand import PodDemand, options_of
from corelane.node.koordinator.zone_shares import Shares, Zones, allocated_by_zone, bound_cpus
from corelane.node.ledger import NodeState
from corelane.workload import Amounts, NUMAPolicy

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
    used = _sum([allocated[node] for node in shares])
    if demand.cpus:
        used["cpu"] = bound_milli(state)
    return allocated_score(used, _sum([zones[node] for node in shares]), demand.scored, strategy, weights)


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


def _sum(parts: Sequence[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


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
