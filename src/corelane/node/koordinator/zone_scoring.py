"""The score of a hint, by Koordinator's plugin NodeNUMAResource: free shares of CPU and memory, in integers.

`scoring.go` and `least_allocated.go`; weights are 1 for CPU and for memory.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from corelane.node.koordinator.zone_shares import Zones
from corelane.workload import Amounts

WEIGHTS: Final[Mapping[str, int]] = {"cpu": 1, "memory": 1}
BEST: Final = 100


def hint_score(zones: Zones, nodes: Sequence[int]) -> int:
    """Return the score of a set of NUMA nodes among sets of its size: the least allocated is best."""
    total: dict[str, int] = {}
    used: dict[str, int] = {}
    for node in nodes:
        for name, amount in zones.offered[node].items():
            total[name] = total.get(name, 0) + amount
            used[name] = used.get(name, 0) + amount - zones.available[node].get(name, 0)
    used = {name: max(0, amount) for name, amount in used.items()}
    return allocated_score(used, total, zones.demand.scored)


def allocated_score(used: Amounts, total: Amounts, pod: Amounts) -> int:
    """Return the weighted mean of the shares, 0 to 100, that are free with the pod."""
    score = weights = 0
    for name, weight in WEIGHTS.items():
        capacity, requested = total.get(name, 0), used.get(name, 0) + pod.get(name, 0)
        if not capacity:
            continue
        score += weight * (max(0, capacity - requested) * BEST // capacity)
        weights += weight
    return score // weights if weights else 0
