"""Memory and huge pages of NUMA nodes as the kubelet's memory manager keeps them: hints, taking, releasing.

Upstream: `pkg/kubelet/cm/memorymanager/policy_static.go` (v1.36, KEP-1769). Sizes are in bytes; a resource is
`memory` or `hugepages-<size>`; a set of nodes is a mask of their ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from corelane.cpuset import CPUSet, bits
from corelane.placement import families
from corelane.placement.families import Family
from corelane.placement.hints import Hint

MEMORY = "memory"


def in_words(size: int) -> str:
    """Bytes as a quantity, in the largest binary unit that divides them: 8589934592 is 8Gi."""
    for shift, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size and not size % (1 << shift):
            return f"{size >> shift}{unit}"
    return str(size)


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """The memory of one NUMA node: by resource what pods may have at most, and what of it is free."""

    allocatable: Mapping[str, int]
    free: Mapping[str, int]
    group: int = 0
    """The nodes (a mask of ids) over which assignments here stretch; 0 stands for this one alone."""
    assignments: int = 0
    """Number of assignments here."""

    def reserved(self, resource: str) -> int:
        """Return the part that containers have."""
        return self.allocatable.get(resource, 0) - self.free.get(resource, 0)


Nodes: TypeAlias = Mapping[int, MemoryNode]
"""NUMA node id to its memory."""


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """Bytes of one resource that a container has somewhere on these NUMA nodes."""

    resource: str
    size: int
    nodes: CPUSet


def hugepages(kib: int) -> str:
    """The resource of huge pages of so many KiB: 2048 is `hugepages-2Mi`."""
    for unit in ("Ki", "Mi", "Gi", "Ti"):
        if kib % 1024:
            return f"hugepages-{kib}{unit}"
        kib //= 1024
    return f"hugepages-{kib}Pi"


def memory_hints(
    nodes: Nodes,
    requested: Mapping[str, int],
    reusable: Mapping[int, Mapping[str, int]] | None = None,
) -> Family | None:
    """The sets of nodes on which each resource fits into what is free; one family for all of `requested`.

    Preferred are those of the smallest size that could hold it on the idle machine. A node never serves
    assignments to itself and to a group, nor to two groups. `reusable` is what a pod's init containers leave,
    by the exact set of nodes (a mask of ids). None, which is no preference, not only when nothing is
    requested but, as upstream, also when nothing fits: the allocation fails later. Raises TooManyNodes.
    """
    ids = sorted(nodes)
    if not requested:
        return None
    count = len(ids)
    sets = possible = families.both(
        *(
            families.covering([nodes[i].allocatable.get(name, 0) for i in ids], n)
            for name, n in requested.items()
        )
    )
    sets = families.both(possible, _fitting(nodes, requested, reusable or {}))
    sets = families.both(sets, _ungrouped(nodes))
    if 1 not in sets[1:]:
        return None
    return families.preferring(count, b"\0" + sets[1:], families.smallest(count, possible))


def _fitting(nodes: Nodes, requested: Mapping[str, int], reusable: Mapping[int, Mapping[str, int]]) -> bytes:
    """The sets with enough free, and those that have it with what init containers left on just them."""
    ids = sorted(nodes)
    free = {name: [nodes[i].free.get(name, 0) for i in ids] for name in requested}
    fitting = bytearray(families.both(*(families.covering(free[name], n) for name, n in requested.items())))
    for left_on, left in reusable.items():
        one = families.positions(ids, left_on)
        fitting[one] = all(
            sum(free[name][i] for i in bits(one)) + left.get(name, 0) >= n for name, n in requested.items()
        )
    return bytes(fitting)


def _ungrouped(nodes: Nodes) -> bytes:
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
                groups.append(families.positions(ids, group))
        if not alone:
            allowed = allowed[: 1 << position] + b"\0" + allowed[(1 << position) + 1 :]
    return _with_groups(allowed, groups, nodes)


def _with_groups(allowed: bytes, groups: list[int], nodes: Nodes) -> bytes:
    """A group as a whole is allowed when all its used nodes are in just this group."""
    ids, permitted = sorted(nodes), bytearray(allowed)
    for group in groups:
        members = [nodes[ids[i]] for i in bits(group)]
        permitted[group] = all(
            not node.assignments or families.positions(ids, node.group or 0) == group for node in members
        )
    return bytes(permitted)


def best_hint(nodes: Nodes, family: Family | None, including: int = 0) -> Hint | None:
    """The narrowest preferred set with the nodes `including`, else the narrowest; None if there is none.

    `family` is from `memory_hints` on the same nodes. Of sets of one size the one with the lowest mask wins.
    """
    if family is None:
        return None
    ids, count = sorted(nodes), family.count
    having = [families.without_and_with(count, ids.index(node))[1] for node in bits(including)]
    for preferred, sets in ((True, family.preferred), (False, family.sets)):
        sets = families.both(sets, *having)
        if 1 in sets:
            one = families.both(sets, families.of_size(count, families.smallest(count, sets))).find(1)
            return Hint(sum(1 << ids[i] for i in bits(one)), preferred)
    return None


def holds(nodes: Nodes, where: int, requested: Mapping[str, int]) -> bool:
    """Whether as much of each resource is free on these nodes together."""
    return all(sum(nodes[i].free.get(name, 0) for i in bits(where)) >= n for name, n in requested.items())


def collides(nodes: Nodes, where: int) -> bool:
    """Whether an assignment over these nodes would meet others that stretch differently."""
    return where.bit_count() > 1 and any(
        nodes[i].assignments and nodes[i].group != where for i in bits(where)
    )


def taken(nodes: Nodes, where: int, resource: str, size: int) -> dict[int, MemoryNode]:
    """The nodes with one assignment more over `where`, filled from the lowest up."""
    after, group = dict(nodes), where if where.bit_count() > 1 else 0
    for i in bits(where):
        node = nodes[i]
        here = min(node.free.get(resource, 0), size)
        size -= here
        free = {**node.free, resource: node.free[resource] - here} if here else node.free
        after[i] = replace(node, free=free, group=group, assignments=node.assignments + 1)
    return after


def given_back(nodes: Nodes, block: MemoryBlock) -> dict[int, MemoryNode]:
    """The nodes with one assignment less; what is gone from the machine is no error."""
    after, size, resource = dict(nodes), block.size, block.resource
    for i in block.nodes:
        if node := nodes.get(i):
            here = min(node.reserved(resource), size)
            size -= here
            free = {**node.free, resource: node.free[resource] + here} if here else node.free
            assignments = max(node.assignments - 1, 0)
            group = node.group if assignments else 0
            after[i] = replace(node, free=free, group=group, assignments=assignments)
    return after
