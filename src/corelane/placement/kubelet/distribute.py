"""The kubelet's even distribution over NUMA nodes (`distribute-cpus-across-numa`, KEP-2902), carried out.

`takeByTopologyNUMADistributed` of upstream's `cpu_assignment.go` (v1.36); `balance` decides which nodes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from corelane.placement.kubelet import accumulator, balance
from corelane.placement.kubelet.accumulator import Sizes
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
    rounds: bool = False,
    capped: bool = False,
    by_socket: bool = False,
    hinted: int = 0,
) -> int:
    """The mask of n of the `available` CPUs, in groups, evenly from the fewest NUMA nodes that hold them.

    `alias` is 1.36's behaviour, see `balance.plan`. From 1.37 shares are `capped` by what the poorest node
    has, and `by_socket` (align-by-socket) prefers nodes of one socket; from 1.38 at least as many nodes are
    used as were `hinted`, where possible, and spreading goes in `rounds`. Where upstream would loop for
    ever, a valid set comes back. Raises NotEnoughCPUs, and with `alias` AccountingError where upstream fails
    by its own slip.
    """
    free = available & topology.all
    pack = _Packer(topology, spread, sizes, rounds)
    if len(topology.numa) == 1 or n < 1 or n % group or n > free.bit_count():
        return pack(available, n)
    fewest = _fewest_nodes(topology, n, group)
    if fewest == 1 and hinted < 2 and topology.even and not by_socket:
        node = _single_node(topology, free, n)
        if node:
            return pack(node & free, n, node)
    nodes = list(dict.fromkeys(accumulator.node_order(topology, free)))
    if len(nodes) == 1:
        return pack(free, n)
    counts = [(node & free).bit_count() for node in nodes]
    if fewest < hinted <= min(n // group, len(nodes)):
        fewest = hinted
    if by_socket:
        plan = balance.plan_by_socket(counts, _sockets(topology, nodes), n, group, fewest, alias=alias)
    else:
        plan = balance.plan(counts, n, group, fewest, alias=alias)
    if plan is None:
        return pack(available, n)
    if capped:
        least = min(counts[i] for i in plan.nodes) // group * group
        plan = replace(plan, share=min(plan.share, least))
    try:
        taken = _carry_out(plan, nodes, free, n, group, pack)
        if taken.bit_count() == n and not taken & ~free:
            return taken
    except AccountingError:
        if not (alias and balance.hangs(counts, n, group, fewest)):
            raise
        return pack.rest(0, free, n)
    return pack.rest(0, free, n) if alias and balance.hangs(counts, n, group, fewest) else taken


def _single_node(topology: Topology, free: int, n: int) -> int:
    """The node that gives all n CPUs: what then stays free is the most even if it is the one with the most.

    0 where none has so many, or where so few are asked for that different evenness could round to the same.
    """
    counts = [(node & free).bit_count() for node in topology.numa]
    most = max(counts)
    if most < n or 1000 * n <= len(counts) * most:
        return 0
    if topology.numa_first or counts.count(most) == 1:
        return topology.numa[counts.index(most)]
    return next(node for node in accumulator.node_order(topology, free) if (node & free).bit_count() == most)


def _sockets(topology: Topology, nodes: Sequence[int]) -> list[int]:
    """The sockets, as a mask of positions, that each node touches."""
    return [sum(1 << i for i, socket in enumerate(topology.sockets) if socket & node) for node in nodes]


def _fewest_nodes(topology: Topology, n: int, group: int) -> int:
    """How many nodes it takes if all are of average size and idle."""
    groups = -(-topology.total // group)
    per_node = -(-groups // len(topology.numa))
    return -(-(n // group) // per_node)


class _Packer(NamedTuple):
    """How CPUs are taken from one node, or from all."""

    topology: Topology
    spread: bool
    sizes: Sizes
    rounds: bool

    def __call__(self, cpus: int, n: int, node: int = 0) -> int:
        topology, spread, sizes, rounds = self
        known = node if node in topology.undivided else 0
        return accumulator.take(topology, cpus, n, spread=spread, sizes=sizes, rounds=rounds, node=known)

    def rest(self, taken: int, free: int, n: int) -> int:
        """N of the free CPUs, those taken among them: what comes back where upstream would loop for ever."""
        taken &= free
        n -= taken.bit_count()
        return taken | accumulator.take(self.topology, free & ~taken, n, spread=self.spread, sizes="real")


def _carry_out(plan: balance.Plan, nodes: Sequence[int], free: int, n: int, group: int, pack: _Packer) -> int:
    """As upstream counts: what a pick hands out twice, where averaged sizes make it so, counts twice."""
    taken, need = 0, n
    for i in plan.nodes:
        inside = nodes[i] & free
        if inside.bit_count() >= plan.share:
            cpus = pack(inside, plan.share, nodes[i])
            taken |= cpus
            need -= cpus.bit_count()
    remainder = n - plan.share * len(plan.nodes)
    while remainder > 0:
        rest = free & ~taken
        bearing = [nodes[i] for i in plan.bearers if (nodes[i] & rest).bit_count() >= group]
        if not bearing:
            return pack.rest(taken, free, n)
        for node in bearing[: remainder // group]:
            cpus = pack(node & free & ~taken, group, node)
            taken |= cpus
            need -= cpus.bit_count()
            remainder -= group
    if need:
        few = "not enough" if need > 0 else "too many"
        raise AccountingError(f"accounting error, {few} CPUs allocated, remaining: {need}")
    return taken
