"""The kubelet's even distribution over NUMA nodes (`distribute-cpus-across-numa`, KEP-2902), carried out.

`takeByTopologyNUMADistributed` of upstream's `cpu_assignment.go` (v1.36); `balance` decides which nodes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from corelane.placement import accumulator, balance
from corelane.placement.accumulator import Sizes
from corelane.placement.topology import Topology

__all__ = ["AccountingError", "take"]


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
    pack = _Packer(topology, spread, sizes)
    if n < 1 or n % group or n > free.bit_count():
        return pack(available, n)
    nodes = accumulator.node_order(topology, free)
    if len(nodes) == 1:
        return pack(free, n)
    counts = [(node & free).bit_count() for node in nodes]
    plan = balance.plan(counts, n, group, _fewest_nodes(topology, n, group), alias=alias)
    return _carry_out(plan, nodes, free, n, group, pack) if plan else pack(available, n)


def _fewest_nodes(topology: Topology, n: int, group: int) -> int:
    """How many nodes it takes if all are of average size and idle."""
    groups = -(-topology.all.bit_count() // group)
    per_node = -(-groups // len(topology.numa))
    return -(-(n // group) // per_node)


class _Packer(NamedTuple):
    """How CPUs are taken from one node, or from all."""

    topology: Topology
    spread: bool
    sizes: Sizes

    def __call__(self, cpus: int, n: int, node: int = 0) -> int:
        topology, spread, sizes = self
        known = node if node in topology.undivided else 0
        return accumulator.take(topology, cpus, n, spread=spread, sizes=sizes, node=known)


def _carry_out(plan: balance.Plan, nodes: Sequence[int], free: int, n: int, group: int, pack: _Packer) -> int:
    taken = 0
    for i in plan.nodes:
        inside = nodes[i] & free
        if inside.bit_count() >= plan.share:
            taken |= pack(inside, plan.share, nodes[i])
    remainder = n - plan.share * len(plan.nodes)
    while remainder > 0:
        rest = free & ~taken
        bearing = [nodes[i] for i in plan.bearers if (nodes[i] & rest).bit_count() >= group]
        if not bearing:
            return taken | pack(rest, n - taken.bit_count())
        for node in bearing[: remainder // group]:
            taken |= pack(node & rest, group, node)
            remainder -= group
    if missing := n - taken.bit_count():
        few = "not enough" if missing > 0 else "too many"
        raise AccountingError(f"accounting error, {few} CPUs allocated, remaining: {missing}")
    return taken
