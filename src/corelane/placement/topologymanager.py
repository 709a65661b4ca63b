"""The topology manager: merges the hints of all providers into one set of NUMA nodes, and judges it.

Upstream: `pkg/kubelet/cm/topologymanager/policy*.go` (v1.36). Upstream folds over the cross product of all
hints; the order in which it compares is a total one, so the least of the distinct results is the same.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from corelane.placement.hints import Distances, Hint, distance

__all__ = ["Affinity", "Hints", "Policy", "Scope", "is_single", "judge", "merge"]

Policy: TypeAlias = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope: TypeAlias = Literal["container", "pod"]
Hints: TypeAlias = Sequence[Hint] | None
"""What a provider says of one resource: None does not care, no hint at all means that it is impossible."""


class Affinity(NamedTuple):
    """The merged hint, and whether the policy admits on it. `nodes` None leaves every node open."""

    nodes: int | None
    preferred: bool
    admit: bool


def merge(
    providers: Iterable[Hints], nodes: int, policy: Policy, *, distances: Distances | None = None
) -> Affinity:
    """The affinity that a policy makes of the hints of all resources on a machine with these NUMA nodes.

    `nodes` is the mask of all node ids, CPU-less ones included. `distances` is prefer-closest-numa-nodes.
    """
    if policy == "none":
        return Affinity(None, True, True)
    lists = [_normalised(hints) for hints in providers]
    if policy == "single-numa-node":
        lists = [[hint for hint in hints if is_single(hint)] for hints in lists]
        distances = None
    return judge(_best(lists, nodes, distances), nodes, policy)


def judge(best: Hint, nodes: int, policy: Policy) -> Affinity:
    """What a policy says to the best hint."""
    found = nodes if best.nodes is None else best.nodes
    if policy == "single-numa-node" and found == nodes:
        return Affinity(None, best.preferred, best.preferred)
    return Affinity(found, best.preferred, best.preferred or policy == "best-effort")


def _normalised(hints: Hints) -> list[Hint]:
    if hints is None:
        return [Hint(None, True)]
    return list(hints) or [Hint(None, False)]


def is_single(hint: Hint) -> bool:
    """Whether single-numa-node takes the hint into account."""
    return hint.preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)


def _best(lists: Sequence[Sequence[Hint]], nodes: int, distances: Distances | None) -> Hint:
    if not all(lists):
        return Hint(None, False)
    narrow = _narrowness(distances)
    if agreed := _agreed(lists, nodes):
        return Hint(min(agreed, key=narrow), True)
    wanted = max(_narrowest(hints) for hints in lists)
    overlaps = {nodes}
    for hints in lists:
        masks = {nodes if hint.nodes is None else hint.nodes for hint in hints}
        overlaps = {overlap & mask for overlap in overlaps for mask in masks} - {0}
    return Hint(min(overlaps, key=lambda mask: (*_misfit(mask, wanted), *narrow(mask)), default=None), False)


def _agreed(lists: Sequence[Sequence[Hint]], nodes: int) -> set[int]:
    """The sets on which all providers agree as preferred: the very same one, wherever they care."""
    preferred = [{hint.nodes for hint in hints if hint.preferred} for hints in lists]
    agreed = {
        mask & nodes
        for mask in set().union(*preferred)
        if mask is not None and all(mask in own or None in own for own in preferred)
    }
    if all(None in own for own in preferred):
        agreed.add(nodes)
    return agreed - {0}


def _narrowness(distances: Distances | None) -> Callable[[int], tuple[float, ...]]:
    """Fewer nodes, then closer ones where distances are given, then the lowest mask."""
    if distances is None:
        return lambda mask: (mask.bit_count(), mask)
    known = distances
    return lambda mask: (mask.bit_count(), distance(mask, known), mask)


def _narrowest(hints: Sequence[Hint]) -> int:
    return min((hint.nodes.bit_count() for hint in hints if hint.nodes is not None), default=0)


def _misfit(mask: int, wanted: int) -> tuple[int, int]:
    """Sets of the wanted size come first, then smaller ones, the largest of these first, then larger ones."""
    size = mask.bit_count()
    if size == wanted:
        return 0, 0
    return (1, -size) if size < wanted else (2, size)
