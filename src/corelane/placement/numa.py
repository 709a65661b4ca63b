"""The NUMA nodes that a wish should come from: the fewest that hold it, as the topology manager prefers."""

from collections.abc import Sequence

__all__ = ["fewest_nodes"]


def fewest_nodes(free: Sequence[int], wanted: int, required: int = 0) -> int | None:
    """The smallest set of nodes whose free CPUs make up `wanted`, as a mask of positions; None if all do not.

    `free` has the count of each node; nodes in the mask `required` must be in the set. Among sets of the same
    size the one with the smallest mask wins: what upstream's best-effort merge of CPU hints comes to
    (`pkg/kubelet/cm/topologymanager/policy.go`), found without listing all combinations.
    """
    if not required:
        for node, count in enumerate(free):
            if count >= wanted:
                return 1 << node
    if sum(free) < wanted:
        return None
    return _without_the_highest(free, wanted, required)


def _without_the_highest(free: Sequence[int], wanted: int, required: int) -> int:
    """Drop nodes from the highest down, as long as a set of the smallest possible size remains."""
    nodes = list(range(len(free)))
    size = _fewest(free, nodes, wanted, required)
    for node in reversed(range(len(free))):
        if required >> node & 1:
            continue
        rest = [other for other in nodes if other != node]
        if _fewest(free, rest, wanted, required) == size:
            nodes = rest
    return sum(1 << node for node in nodes)


def _fewest(free: Sequence[int], nodes: Sequence[int], wanted: int, required: int) -> int | None:
    """How many of `nodes` it takes, required ones included; None if they do not suffice."""
    missing = wanted - sum(free[node] for node in nodes if required >> node & 1)
    size = required.bit_count()
    for count in sorted((free[node] for node in nodes if not required >> node & 1), reverse=True):
        if missing <= 0:
            break
        missing -= count
        size += 1
    return size if missing <= 0 else None
