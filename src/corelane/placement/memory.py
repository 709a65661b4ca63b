"""NUMA hints for memory and huge pages, as the kubelet's memory manager gives them to its topology manager.

Upstream: `calculateHints` in `pkg/kubelet/cm/memorymanager/policy_static.go` (v1.36, KEP-1769). Sizes are in
bytes; a resource is `memory` or `hugepages-<size>`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from corelane.cpuset import bits
from corelane.placement import families
from corelane.placement.families import Family

__all__ = ["MemoryNode", "memory_hints"]


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """The memory of one NUMA node: by resource what pods may have at most, and what of it is free."""

    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    group: int = 0
    """The nodes (a mask of ids) over which assignments here stretch; 0 stands for this one alone."""
    assignments: int = 0
    """How many assignments there are here."""


def memory_hints(
    nodes: Mapping[int, MemoryNode],
    wanted: Mapping[str, int],
    reusable: Mapping[int, Mapping[str, int]] | None = None,
) -> Family | None:
    """The sets of nodes on which each resource fits into what is free; one family for all of `wanted`.

    Preferred are those of the smallest size that could hold it on the idle machine. A node never serves
    assignments to itself and to a group, nor to two groups. `reusable` is what a pod's init containers lend,
    by the exact set of nodes (a mask of ids). None, which is no preference, not only when nothing is wanted
    but, as upstream, also when nothing fits: the allocation fails later. Raises TooManyNodes.
    """
    ids = sorted(nodes)
    if not wanted:
        return None
    count = len(ids)
    sets = possible = families.both(
        *(
            families.covering([nodes[i].allocatable.get(name, 0) for i in ids], n)
            for name, n in wanted.items()
        )
    )
    sets = families.both(possible, _fitting(nodes, wanted, reusable or {}))
    sets = families.both(sets, _ungrouped(nodes))
    if 1 not in sets[1:]:
        return None
    return families.preferring(count, b"\0" + sets[1:], families.smallest(count, possible))


def _fitting(
    nodes: Mapping[int, MemoryNode], wanted: Mapping[str, int], reusable: Mapping[int, Mapping[str, int]]
) -> bytes:
    """The sets with enough free, and those that have it with what is lent to just them."""
    ids = sorted(nodes)
    free = {name: [nodes[i].free.get(name, 0) for i in ids] for name in wanted}
    fitting = bytearray(families.both(*(families.covering(free[name], n) for name, n in wanted.items())))
    for lenders, lent in reusable.items():
        one = _positions(ids, lenders)
        fitting[one] = all(
            sum(free[name][i] for i in bits(one)) + lent.get(name, 0) >= n for name, n in wanted.items()
        )
    return bytes(fitting)


def _ungrouped(nodes: Mapping[int, MemoryNode]) -> bytes:
    """The sets that keep to the groups that there are: a grouped node only with its group."""
    ids = sorted(nodes)
    count = len(ids)
    singles = families.of_size(count, 1)
    allowed = b"\1" * (1 << count)
    groups = []
    for position, node in enumerate(ids):
        group = nodes[node].group or 1 << node
        alone = group.bit_count() == 1
        without = families.without_and_with(count, position)[0]
        if nodes[node].assignments:
            allowed = families.both(allowed, families.either(without, singles))
            if not alone:
                groups.append(_positions(ids, group))
        if not alone:
            allowed = allowed[: 1 << position] + b"\0" + allowed[(1 << position) + 1 :]
    return _with_groups(allowed, groups, nodes)


def _with_groups(allowed: bytes, groups: list[int], nodes: Mapping[int, MemoryNode]) -> bytes:
    """A group as a whole is allowed when all its used nodes are in just this group."""
    ids, found = sorted(nodes), bytearray(allowed)
    for group in groups:
        members = [nodes[ids[i]] for i in bits(group)]
        found[group] = all(
            not node.assignments or _positions(ids, node.group or 0) == group for node in members
        )
    return bytes(found)


def _positions(ids: list[int], nodes: int) -> int:
    return sum(1 << i for i, node in enumerate(ids) if nodes >> node & 1)
