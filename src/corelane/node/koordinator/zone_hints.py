"""Which NUMA nodes a pod is to come from: hints by trial allocation, merged by the topology policy.

`GetTopologyHints` of the plugin and `frameworkext/topologymanager`. Every set of nodes that holds the pod in
a trial is a hint for each resource that all of these nodes have left. So the hints of all resources are
subsets of one list, and the preferred set on which all agree is found without their cross product.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod
from typing import Final

from corelane.node.koordinator import zone_scoring
from corelane.node.koordinator.zone_shares import Zones
from corelane.placement.koordinator.allocator import NotSatisfied
from corelane.workload import NUMAPolicy

MOST_TRIALS: Final = 4096
"""Sets of NUMA nodes that are tried; upstream tries all, 2 to the power of their number."""
_MOST_PERMUTATIONS: Final = 20_000


@dataclass(slots=True)
class _Hints:
    """The sets of nodes (ascending ids) that hold the pod, with their scores, as each resource sees them."""

    by_resource: dict[str, list[tuple[int, ...]]]
    scores: dict[tuple[int, ...], int] = field(default_factory=dict)


def affinity(zones: Zones, policy: NUMAPolicy) -> tuple[int, ...] | None:
    """Return the NUMA nodes for the pod; None leaves them open. Raises NotSatisfied where none will do."""
    hints, agreed = _hints(zones, policy)
    every = tuple(zones.offered)
    if not hints.by_resource:
        best: tuple[int, ...] | None = every if _keeps_apart(zones, every) else None
        agreed = [] if best is None else [every]
    if agreed:
        best = _best(agreed, hints)
        return None if policy is NUMAPolicy.SINGLE_NUMA_NODE and best == every else best
    if policy is not NUMAPolicy.BEST_EFFORT:
        raise NotSatisfied("node(s) Insufficient NUMA Node resources", "numa")
    return _overlap(zones, hints)


def _hints(zones: Zones, policy: NUMAPolicy) -> tuple[_Hints, list[tuple[int, ...]]]:
    """The hints, and the sets that all resources prefer; larger sets are not tried once there are some."""
    every = list(zones.offered)
    named = {name for amounts in zones.offered.values() for name in amounts}
    hints = _Hints({name: [] for name in zones.demand.amounts if name in named})
    lacking = {
        name: {node for node, amounts in zones.available.items() if not amounts.get(name)}
        for name in hints.by_resource
    }
    widest = 1 if policy is NUMAPolicy.SINGLE_NUMA_NODE else len(every)
    trials = 0
    for size in range(1, widest + 1):
        for nodes in combinations(every, size):
            if not zones.may_hold(nodes):
                continue
            trials += 1
            if trials > MOST_TRIALS:
                return hints, []
            try:
                zones.place(nodes)
            except NotSatisfied:
                continue
            hints.scores[nodes] = zone_scoring.hint_score(zones, nodes)
            for name, sets in hints.by_resource.items():
                if not lacking[name].intersection(nodes):
                    sets.append(nodes)
        if agreed := _agreed(zones, hints, policy, size):
            return hints, agreed
    return hints, []


def _agreed(zones: Zones, hints: _Hints, policy: NUMAPolicy, size: int) -> list[tuple[int, ...]]:
    """The sets of this size that all resources prefer: the narrowest of each, or any under Restricted."""
    lists = list(hints.by_resource.values())
    if not lists or not all(lists):
        return []
    if policy is not NUMAPolicy.RESTRICTED and any(len(sets[0]) != size for sets in lists):
        return []
    found = [nodes for nodes in lists[0] if len(nodes) == size]
    return [nodes for nodes in found if all(nodes in sets for sets in lists) and _keeps_apart(zones, nodes)]


def _keeps_apart(zones: Zones, nodes: Sequence[int]) -> bool:
    """Whether pods on one NUMA node and pods across several do not meet, where that is required."""
    barred = zones.spanned if len(nodes) == 1 else zones.single
    return not zones.demand.apart or not any(barred >> node & 1 for node in nodes)


def _mask(nodes: Sequence[int]) -> int:
    return sum(1 << node for node in nodes)


def _best(agreed: Sequence[tuple[int, ...]], hints: _Hints) -> tuple[int, ...]:
    """The last that is better than the one before: a lower mask, or a higher score."""
    best = agreed[0]
    for nodes in agreed[1:]:
        lower = _mask(nodes) < _mask(best)
        if lower or hints.scores.get(nodes, 0) > hints.scores.get(best, 0):
            best = nodes
    return best


def _overlap(zones: Zones, hints: _Hints) -> tuple[int, ...]:
    """Of BestEffort, where resources prefer different sets: all nodes, or the narrowest set of them all."""
    every = tuple(zones.offered)
    best, best_score, satisfied = _mask(every), 0, True
    for chosen in _permutations(hints):
        merged, masks = _mask(every), [_mask(nodes) for nodes in chosen if nodes is not None]
        for mask in masks:
            merged &= mask
        if not merged:
            continue
        score = sum(hints.scores.get(nodes, 0) for nodes in chosen if nodes and _mask(nodes) == merged)
        size, best_size = merged.bit_count(), best.bit_count()
        if (size, merged) < (best_size, best) or (size == best_size and score > best_score):
            widest = max((mask.bit_count() for mask in masks), default=size)
            best, best_score = merged, score
            satisfied = None not in chosen and (not masks or widest == size)
    return tuple(node for node in every if best >> node & 1) if satisfied else every


def _permutations(hints: _Hints) -> Iterator[tuple[tuple[int, ...] | None, ...]]:
    """One hint of each resource; None of a resource without any. Of too many, those that are all equal."""
    lists: list[Sequence[tuple[int, ...] | None]] = [
        sets or [None] for _, sets in sorted(hints.by_resource.items())
    ]
    if prod(map(len, lists)) <= _MOST_PERMUTATIONS:
        return iter(product(*lists))
    return iter([tuple(nodes for _ in lists) for nodes in hints.scores])
