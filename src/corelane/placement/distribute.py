"""The kubelet's even distribution over NUMA nodes (`distribute-cpus-across-numa`, KEP-2902), carried out.

`takeByTopologyNUMADistributed` of upstream's `cpu_assignment.go` (v1.36); `balance` decides which nodes.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from corelane.placement import accumulator, balance
from corelane.placement.accumulator import Sizes
from corelane.placement.topology import Topology

__all__ = ["AccountingError", "take"]

_Pack: TypeAlias = Callable[[int, int], int]


class AccountingError(ValueError):
    """Aliasing made of upstream's plan one that cannot be carried out; the text is upstream's."""


def take(
    topology: Topology,
    available: int,
    n: int,
    group: int,
    *,
    spread: bool = False,
    alias: bool = True,
    sizes: Sizes = "average",
) -> int:
    """The mask of n of the `available` CPUs, in groups, evenly from the fewest NUMA nodes that hold them.

    `alias` is 1.36's behaviour, see `balance.plan`. Where upstream would loop for ever, a valid set comes
    back. Raises NotEnoughCPUs, and with `alias` AccountingError where upstream fails by its own slip.
    """
    free = available & topology.all

    def pack(cpus: int, count: int) -> int:
        return accumulator.take(topology, cpus, count, spread=spread, sizes=sizes)

    if n < 1 or n % group or n > free.bit_count():
        return pack(available, n)
    nodes = [node & free for node in accumulator.node_order(topology, free)]
    counts = [node.bit_count() for node in nodes]
    plan = balance.plan(counts, n, group, _fewest_nodes(topology, n, group), alias=alias)
    return _carry_out(plan, nodes, n, group, pack) if plan else pack(available, n)


def _fewest_nodes(topology: Topology, n: int, group: int) -> int:
    """How many nodes it takes if all are of average size and idle."""
    groups = -(-topology.all.bit_count() // group)
    per_node = -(-groups // len(topology.numa))
    return -(-(n // group) // per_node)


def _carry_out(plan: balance.Plan, nodes: Sequence[int], n: int, group: int, pack: _Pack) -> int:
    taken = 0
    for i in plan.nodes:
        if nodes[i].bit_count() >= plan.share:
            taken |= pack(nodes[i], plan.share)
    remainder = n - plan.share * len(plan.nodes)
    while remainder > 0:
        bearing = [nodes[i] for i in plan.bearers if (nodes[i] & ~taken).bit_count() >= group]
        if not bearing:
            return _any(nodes, n, taken, pack)
        for node in bearing[: remainder // group]:
            taken |= pack(node & ~taken, group)
            remainder -= group
    if missing := n - taken.bit_count():
        few = "not enough" if missing > 0 else "too many"
        raise AccountingError(f"accounting error, {few} CPUs allocated, remaining: {missing}")
    return taken


def _any(nodes: Sequence[int], n: int, taken: int, pack: _Pack) -> int:
    """The rest from anywhere: for plans that upstream would turn over for ever."""
    return taken | pack(sum(nodes) & ~taken, n - taken.bit_count())
