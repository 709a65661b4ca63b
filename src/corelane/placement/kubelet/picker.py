"""The kubelet's picker: from a topology, the free CPUs and a number to a set of CPUs, bit for bit.

`takeByTopologyNUMAPacked` and `takeByTopologyNUMADistributed` (distribute-cpus-across-numa, KEP-2902) of
upstream's `pkg/kubelet/cm/cpumanager/cpu_assignment.go`.

Which of upstream's algorithms runs follows from a `Strategy`; its `version` says which release to follow.
1.36 is exact; what later releases changed is experimental, taken from their pull requests and not from
vectors. 1.37 judges a core by its own number of threads (kubernetes#140498), prefers nodes of one socket
under align-by-socket and never asks a node for more than it has (#139778). 1.38 remembers the nodes it chose
(#141238), counts whole groups (#140730), uses as many nodes as the topology manager's hint has (#139456), and
spreads over cores in turn, those with the fewest free CPUs first (#140766).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from corelane.placement import balance
from corelane.placement.kubelet import accumulator
from corelane.placement.kubelet.accumulator import (
    SILENT,
    Accumulator,
    PickerReporter,
    PickerStep,
    PickerSteps,
    ReportingAccumulator,
    Why,
)
from corelane.placement.topology import Topology, lowest, node_order

Version: TypeAlias = Literal["1.36", "1.37", "1.38"]
Sizes: TypeAlias = Literal["average", "cores", "real"]
"""By what a core or a socket is fully free: the machine's average size of both (1.36), for sockets only (from
1.37), or its own size."""
ALIASED = (4, 6, 7, 8)
"""Numbers of chosen NUMA nodes of which some are overwritten before 1.38 (kubernetes#141238)."""


class NotEnoughCPUs(ValueError):  # noqa: N818 - an answer as much as an error
    """Fewer CPUs are available than requested; the text is upstream's."""

    def __init__(self, requested: int, available: int) -> None:
        super().__init__(
            f"not enough cpus available to satisfy request: requested={requested}, available={available}"
        )


class AccountingError(ValueError):
    """Aliasing made of upstream's plan one that cannot be carried out; the text is upstream's."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """Options of a pick. `group`, of use only with `distribute`, is how many CPUs must stay together."""

    distribute: bool = False
    """Evenly over the fewest NUMA nodes (distribute-cpus-across-numa)."""
    spread: bool = False
    """Over physical cores (distribute-cpus-across-cores)."""
    uncore: bool = False
    """Inside one L3 cache where possible (prefer-align-cpus-by-uncorecache)."""
    group: int = 1
    by_socket: bool = False
    """NUMA nodes of one socket count as one place (align-by-socket); of use with `distribute` from 1.37."""
    version: Version = "1.36"


def take(
    topology: Topology,
    available: int,
    n: int,
    strategy: Strategy,
    *,
    hinted: int = 0,
    reporter: PickerReporter = SILENT,
) -> int:
    """Return the mask of n of the `available` CPUs; where upstream would loop for ever, some valid set.

    `hinted` is the number of NUMA nodes in the topology manager's hint, if the CPUs are those of this hint.
    Each step goes to the `reporter`: `steps.Steps()` keeps them. Raises NotEnoughCPUs, and AccountingError
    where upstream's distribution fails by its own slip, both with upstream's text.
    """
    spread, version = strategy.spread, strategy.version
    if version == "1.36" and not strategy.distribute:
        return pack(topology, available, n, spread=spread, uncore=strategy.uncore, reporter=reporter)
    sizes: Sizes = "average" if version == "1.36" else "cores"
    return _take(topology, available, n, strategy, sizes, hinted, version != "1.38", reporter)


def take_valid(
    topology: Topology,
    available: int,
    n: int,
    strategy: Strategy,
    *,
    hinted: int = 0,
    reporter: PickerReporter = SILENT,
) -> int:
    """As `take`, but return only available CPUs, and exactly n.

    Where a release would answer otherwise (averaged sizes, aliased nodes), its faults are left out of the
    algorithm; where the machine's description is so odd that units overlap and count twice, the lowest ids
    are taken. Raises NotEnoughCPUs.
    """
    free = available & topology.all
    if n > free.bit_count():
        raise NotEnoughCPUs(n, available.bit_count())
    if n < 1:
        return 0
    for faithful in (True, False):
        with suppress(AccountingError, NotEnoughCPUs):
            if faithful:
                taken = take(topology, available, n, strategy, hinted=hinted, reporter=reporter)
            else:
                reporter.starting_over()
                taken = _take(topology, available, n, strategy, "real", hinted, False, reporter)
            if taken.bit_count() == n and not taken & ~free:
                return taken
    taken = lowest(free, n)
    reporter.starting_over()
    reporter.step(PickerStep("pick", Why.LOWEST_IDS, taken, n))
    return taken


def _take(
    topology: Topology,
    available: int,
    n: int,
    strategy: Strategy,
    sizes: Sizes,
    hinted: int,
    alias: bool,
    reporter: PickerReporter,
) -> int:
    spread, rounds = strategy.spread, strategy.version == "1.38"
    if strategy.distribute:
        packer = _Packer(topology, spread, sizes, rounds, reporter)
        return _distribute(packer, available, n, strategy, hinted if rounds else 0, alias)
    return pack(
        topology,
        available,
        n,
        spread=spread,
        uncore=strategy.uncore,
        sizes=sizes,
        rounds=rounds,
        reporter=reporter,
    )


def pack(
    topology: Topology,
    available: int,
    n: int,
    *,
    spread: bool = False,
    uncore: bool = False,
    sizes: Sizes = "average",
    rounds: bool = False,
    node: int = 0,
    reporter: PickerReporter = SILENT,
) -> int:
    """Return the mask of n of the `available` CPUs; ids that the topology does not know are never taken.

    `spread` takes CPUs by id and no whole cores, and with `rounds` (from 1.38) one of each core in turn;
    `uncore` prefers to stay inside one L3 cache. Where cores or sockets differ in size, only real `sizes`
    never hand out CPUs that are not free. `node`, which is optional, says that all `available` are in this
    NUMA node, and this in one socket. Raises NotEnoughCPUs.
    """
    if n < 1:
        return 0
    free = available & topology.all
    count = free.bit_count()
    if n >= count:
        if n > count:
            raise NotEnoughCPUs(n, available.bit_count())
        if topology.even and reporter is SILENT:
            return free
    if reporter is SILENT:
        picked = Accumulator(topology, free, n, node)
    else:
        picked = ReportingAccumulator(topology, free, n, node, reporter)
    if n >= topology.smallest or not picked.quick:
        picked.whole_nodes_and_sockets(0 if sizes == "real" else topology.cpus_per_socket)
    if uncore and picked.need > 0:
        picked.caches()
    averaged = sizes == "average"
    if not spread and picked.need >= (topology.cpus_per_core if averaged else topology.fewest_threads):
        picked.whole_cores(averaged)
    if picked.need > 0:
        picked.single_by_socket(rounds) if spread else picked.single_by_core()
    return picked.taken


class _Packer(NamedTuple):
    """Ways to take CPUs: from one node, or from all."""

    topology: Topology
    spread: bool
    sizes: Sizes
    rounds: bool
    reporter: PickerReporter

    def __call__(self, cpus: int, n: int, node: int = 0) -> int:
        topology, spread, sizes, rounds, reporter = self
        undivided = node if node in topology.undivided else 0
        return pack(
            topology, cpus, n, spread=spread, sizes=sizes, rounds=rounds, node=undivided, reporter=reporter
        )

    def undistributed(self, cpus: int, n: int) -> int:
        """N of these CPUs wherever they are."""
        if self.reporter is not SILENT and len(self.topology.numa) > 1:
            self.reporter.step(PickerStep("distribute", Why.NOT_DISTRIBUTED, need=n))
        return self(cpus, n)

    def reported(self, free: int, pick: Callable[["_Packer"], int], alias: bool) -> int:
        """Pick from several NUMA nodes, and report what each gives, and then the steps inside them."""
        if self.reporter is SILENT:
            return pick(self)
        inside = PickerSteps()
        taken = pick(self._replace(reporter=inside))
        nodes = accumulator.shares(node_order(self.topology, free), free, taken)
        self.reporter.step(PickerStep("distribute", Why.DISTRIBUTED, nodes=nodes))
        giving = sum(1 for node in nodes if node.taken)
        if alias and giving in ALIASED:
            self.reporter.step(PickerStep("distribute", Why.MIXED_UP_NODES, need=giving))
        for step in inside.steps:
            if step.cpus:
                self.reporter.step(step)
        return taken

    def anew(self, free: int, n: int) -> int:
        """N of the free CPUs: the answer where upstream would loop for ever."""
        self.reporter.starting_over()
        return self.rest(0, free, n)

    def rest(self, taken: int, free: int, n: int) -> int:
        """N of the free CPUs, those taken among them."""
        taken &= free
        n -= taken.bit_count()
        more = pack(self.topology, free & ~taken, n, spread=self.spread, sizes="real", reporter=self.reporter)
        return taken | more


def _distribute(packer: _Packer, available: int, n: int, strategy: Strategy, hinted: int, alias: bool) -> int:
    """The mask of n of the `available` CPUs, in groups, evenly from the fewest NUMA nodes that hold them.

    `alias` as before 1.38, see `balance.plan`. From 1.37 no share is larger than what the poorest node has,
    and align-by-socket prefers nodes of one socket; from 1.38 at least as many nodes are used as were
    `hinted`, where possible. Where upstream would loop for ever, return a valid set. Raises NotEnoughCPUs,
    and with `alias` AccountingError where upstream fails by its own slip.
    """
    topology, group = packer.topology, strategy.group
    later = strategy.version != "1.36"
    by_socket = strategy.by_socket and later
    free = available & topology.all
    if len(topology.numa) == 1 or n < 1 or n % group or n > free.bit_count():
        return packer.undistributed(available, n)
    fewest = _fewest_nodes(topology, n, group)
    if fewest == 1 and hinted < 2 and topology.even and not by_socket:
        node = _single_node(topology, free, n)
        if node:
            return packer.reported(free, lambda packer: packer(node & free, n, node), alias)
    nodes = list(dict.fromkeys(node_order(topology, free)))
    if len(nodes) == 1:
        return packer(free, n)
    counts = [(node & free).bit_count() for node in nodes]
    if fewest < hinted <= min(n // group, len(nodes)):
        fewest = hinted
    if by_socket:
        plan = balance.plan_by_socket(counts, _sockets(topology, nodes), n, group, fewest, alias=alias)
    else:
        plan = balance.plan(counts, n, group, fewest, alias=alias)
    if plan is None:
        return packer.undistributed(available, n)
    if later:
        least = min(counts[i] for i in plan.nodes) // group * group
        plan = replace(plan, share=min(plan.share, least))
    try:
        taken = packer.reported(free, lambda packer: _carry_out(plan, nodes, free, n, group, packer), alias)
        if taken.bit_count() == n and not taken & ~free:
            return taken
    except AccountingError:
        if not (alias and balance.hangs(counts, n, group, fewest)):
            raise
        return packer.anew(free, n)
    return packer.anew(free, n) if alias and balance.hangs(counts, n, group, fewest) else taken


def _single_node(topology: Topology, free: int, n: int) -> int:
    """The node that gives all n CPUs: what then stays free is the most even if it is the one with the most.

    0 where none has so many, or where so few are requested that different evenness could round to the same.
    """
    counts = [(node & free).bit_count() for node in topology.numa]
    most = max(counts)
    if most < n or 1000 * n <= len(counts) * most:
        return 0
    if topology.numa_first or counts.count(most) == 1:
        return topology.numa[counts.index(most)]
    return next(node for node in node_order(topology, free) if (node & free).bit_count() == most)


def _sockets(topology: Topology, nodes: Sequence[int]) -> list[int]:
    """The sockets, as a mask of positions, that each node touches."""
    return [sum(1 << i for i, socket in enumerate(topology.sockets) if socket & node) for node in nodes]


def _fewest_nodes(topology: Topology, n: int, group: int) -> int:
    """Return the number of nodes that suffice if all are of average size and idle."""
    groups = -(-topology.total // group)
    per_node = -(-groups // len(topology.numa))
    return -(-(n // group) // per_node)


def _carry_out(
    plan: balance.Plan, nodes: Sequence[int], free: int, n: int, group: int, packer: _Packer
) -> int:
    """As upstream counts: what a pick hands out twice, where averaged sizes make it so, counts twice."""
    taken, need = 0, n
    for i in plan.nodes:
        inside = nodes[i] & free
        if inside.bit_count() >= plan.share:
            cpus = packer(inside, plan.share, nodes[i])
            taken |= cpus
            need -= cpus.bit_count()
    remainder = n - plan.share * len(plan.nodes)
    while remainder > 0:
        rest = free & ~taken
        able = [nodes[i] for i in plan.bearers if (nodes[i] & rest).bit_count() >= group]
        if not able:
            return packer.rest(taken, free, n)
        for node in able[: remainder // group]:
            cpus = packer(node & free & ~taken, group, node)
            taken |= cpus
            need -= cpus.bit_count()
            remainder -= group
    if need:
        few = "not enough" if need > 0 else "too many"
        raise AccountingError(f"accounting error, {few} CPUs allocated, remaining: {need}")
    return taken
