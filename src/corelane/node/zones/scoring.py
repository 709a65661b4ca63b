"""Score of a node with these zones for a pod, 0 to 100: scheduler-plugins' four strategies.

Upstream: `pkg/noderesourcetopology/score.go`, `least_numa.go`, `*_allocated.go` and `balanced_allocation.go`.
Integer arithmetic is upstream's, CPUs rounded up to whole ones included. Where upstream crashes (a Guaranteed
pod with a container without requests, ids of zones that are not 0 to n-1) or returns no number (the variance
of one resource), the answer is what its formula gives otherwise; see docs/reference/scheduler-differences.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Final, Literal, TypeAlias

from corelane.node.zones import alignment
from corelane.node.zones.alignment import effective, requested
from corelane.node.zones.zone_state import Zone, ZonesState
from corelane.workload.request import Amounts, PodRequest, QOSClass

Strategy: TypeAlias = Literal["MostAllocated", "LeastAllocated", "BalancedAllocation", "LeastNUMANodes"]
Weights: TypeAlias = Mapping[str, int]
_Row: TypeAlias = tuple[str, int, int, int]
"""Resource, amount, amount in whole units, and weight."""
_BEST: Final = 100
_UNKNOWN_DISTANCE: Final = 255
_MOST_COMBINATIONS: Final = 20_000
"""Sets of NUMA nodes of one size; with more, no larger set is looked at."""


def score(state: ZonesState, request: PodRequest, strategy: Strategy, weights: Weights | None = None) -> int:
    """Return 0 to 100 for a node on which the pod is not assumed yet.

    All nodes are equally good for a pod that is not Guaranteed. `weights` are by resource name, 1 by default.
    """
    if state.crane:
        return alignment.score(state, request)
    if request.qos is not QOSClass.GUARANTEED:
        return _BEST
    if strategy == "LeastNUMANodes":
        needs = _needs(state, request)
        if needs is None:
            return 0
        if not needs:
            return _BEST
        step, most = _BEST // state.max_numa_nodes, max(len(zones) for zones, _ in needs)
        return _BEST - most * step + (step // 2 if all(nearest for _, nearest in needs) else 0)
    if state.policy != "single-numa-node":
        return 0
    scores = [_best_zone(state.free, part, strategy, weights or {}) for part in _parts(state, request)]
    return sum(scores) // len(scores) if scores else 0


def _parts(state: ZonesState, request: PodRequest) -> list[Amounts]:
    """Yield the requests that the kubelet aligns at a time: the pod's, or each container's."""
    if state.scope == "pod":
        return [effective(request)]
    return [requested(container) for container in request.containers]


def _best_zone(zones: Iterable[Zone], amounts: Amounts, strategy: Strategy, weights: Weights) -> int:
    """The lowest score of the zones that fit, as upstream, 0 where none does."""
    if strategy == "BalancedAllocation":
        scores = [_balanced(amounts, zone.available) for zone in zones]
    else:
        rows = [(name, n, _units(name, n), _weight(weights, name)) for name, n in amounts.items()]
        total = sum(row[3] for row in rows)
        left = strategy == "LeastAllocated"
        scores = [_allocated(rows, zone.available, left=left) // total for zone in zones] if total else []
    return min((score for score in scores if score), default=0)


def _units(name: str, amount: int) -> int:
    """`Quantity.Value()`: whole units, CPUs rounded up."""
    return -(-amount // 1000) if name == "cpu" else amount


def _weight(weights: Weights, name: str) -> int:
    return max(1, weights.get(name, 1))


def _allocated(rows: Iterable[_Row], available: Amounts, *, left: bool) -> int:
    """The weighted sum of the shares left, or taken; 0 for a resource of which there is too little."""
    total = 0
    for name, amount, taken, weight in rows:
        capacity = available.get(name, 0)
        if capacity and amount <= capacity:
            units = -(-capacity // 1000) if name == "cpu" else capacity
            total += weight * ((units - taken if left else taken) * _BEST // units)
    return total


def _balanced(amounts: Amounts, available: Amounts) -> int:
    shares = [_fraction(name, amount, available) for name, amount in amounts.items()]
    if any(share > 1 for share in shares):
        return 0
    return int((1 - _variance(shares)) * _BEST)


def _fraction(name: str, amount: int, available: Amounts) -> float:
    capacity = _units(name, available.get(name, 0))
    return _units(name, amount) / capacity if capacity else 1.0


def _variance(values: Sequence[float]) -> float:
    """The unbiased variance, by the corrected two-pass algorithm; 0 of fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    deviations = [value - mean for value in values]
    squares, compensation = sum(deviation * deviation for deviation in deviations), sum(deviations)
    return (squares - compensation * compensation / len(values)) / (len(values) - 1)


# LeastNUMANodes.


def spans(state: ZonesState, request: PodRequest) -> tuple[int, ...] | None:
    """Return the fewest NUMA nodes that hold each container, or the pod; () where nothing is by NUMA node.

    None where all of them together do not hold it.
    """
    if state.crane:
        zones = len(alignment.crane_admit(state, request)[1].zone_cpus)
        return (zones,) if zones else ()
    if request.qos is not QOSClass.GUARANTEED or state.policy == "single-numa-node":
        return ()  # Under that policy nothing is admitted but what has one NUMA node.
    needs = _needs(state, request)
    return None if needs is None else tuple(len(zones) for zones, _ in needs)


def _needs(state: ZonesState, request: PodRequest) -> list[tuple[tuple[int, ...], bool]] | None:
    """Of each part the zones that it needs, and whether no others are closer; None where one does not fit.

    Parts without a resource of any zone are left out.
    """
    free = [dict(zone.available) for zone in state.free]
    needs = []
    for part in _parts(state, request):
        if any(name in zone for name in part for zone in free):
            needed = _zones_needed(state.zones, free, part)
            if needed is None:
                return None
            needs.append(needed)
            _take(part, [free[index] for index in needed[0]])
    return needs


def _zones_needed(
    zones: Sequence[Zone], free: Sequence[Amounts], part: Amounts
) -> tuple[tuple[int, ...], bool] | None:
    """The fewest zones that together hold a part, and whether no others of that number are closer."""
    for size in range(1, len(zones) + 1):
        if comb(len(zones), size) > _MOST_COMBINATIONS:
            return None
        if nearest := _nearest(zones, free, part, size):
            return nearest
    return None


def _nearest(
    zones: Sequence[Zone], free: Sequence[Amounts], part: Amounts, size: int
) -> tuple[tuple[int, ...], bool] | None:
    """The closest set of that size that fits.

    Distances are summed over all pairs, of which all sets have equally many. A set whose mean distance is
    above 255 is never taken, as upstream.
    """
    distances = {chosen: _distance(zones, chosen) for chosen in combinations(range(len(zones)), size)}
    least = min(_UNKNOWN_DISTANCE * size * size, *distances.values())
    best, nearest = None, (_UNKNOWN_DISTANCE + 1) * size * size
    for chosen in _fitting(free, part, distances):
        if distances[chosen] == least:
            return chosen, True
        if distances[chosen] < nearest:
            best, nearest = chosen, distances[chosen]
    return (best, False) if best else None


def _distance(zones: Sequence[Zone], chosen: Iterable[int]) -> int:
    indexes = tuple(chosen)
    return sum(
        zones[each].distances.get(zones[other].id, _UNKNOWN_DISTANCE) for each in indexes for other in indexes
    )


def _fitting(
    free: Sequence[Amounts], part: Amounts, sets: Iterable[tuple[int, ...]]
) -> Iterator[tuple[int, ...]]:
    """The sets of zones that all know every resource, and together have enough of it."""
    for chosen in sets:
        zones = [free[index] for index in chosen]
        if all(
            all(name in zone for zone in zones) and (not n or sum(zone[name] for zone in zones) >= n)
            for name, n in part.items()
        ):
            yield chosen


def _take(part: Amounts, zones: Iterable[dict[str, int]]) -> None:
    """Take a part off the zones, the first ones first."""
    missing = dict(part)
    for zone in zones:
        for name in missing.keys() & zone.keys():
            taken = min(missing[name], zone[name])
            missing[name] -= taken
            zone[name] -= taken
