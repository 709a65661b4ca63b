"""The kubelet's picker: from a topology, the free CPUs and a number to a set of CPUs, bit for bit.

Which of upstream's algorithms runs follows from a `Strategy`; its `version` says whose answer is wanted. 1.36
is exact; what later releases changed is experimental, told by their pull requests and not by vectors. 1.37
judges a core by its own number of threads (kubernetes#140498), prefers nodes of one socket under
align-by-socket and never asks a node for more than it has (#139778). 1.38 remembers the nodes it chose
(#141238), counts whole groups (#140730), uses as many nodes as the topology manager's hint has (#139456), and
spreads over cores in turn, those with the fewest free CPUs first (#140766).
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from corelane.placement.kubelet import accumulator, distribute
from corelane.placement.kubelet.accumulator import NotEnoughCPUs, Sizes
from corelane.placement.kubelet.cores import lowest
from corelane.placement.kubelet.distribute import AccountingError
from corelane.placement.topology import Topology

__all__ = ["AccountingError", "NotEnoughCPUs", "Strategy", "Version", "take", "take_valid"]

Version: TypeAlias = Literal["1.36", "1.37", "1.38"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """How to pick. `group`, of use only with `distribute`, is how many CPUs must stay together."""

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


def take(topology: Topology, available: int, n: int, strategy: Strategy, *, hinted: int = 0) -> int:
    """The mask of n of the `available` CPUs; where upstream would loop for ever, some valid set.

    `hinted` is the number of NUMA nodes in the topology manager's hint, if the CPUs are those of this hint.
    Raises NotEnoughCPUs, and AccountingError where upstream's distribution fails by its own slip, both with
    upstream's text.
    """
    if strategy.version != "1.36":
        return _take(topology, available, n, strategy, "cores", hinted, alias=strategy.version != "1.38")
    if strategy.distribute:
        return distribute.take(topology, available, n, strategy.group, spread=strategy.spread)
    return accumulator.take(topology, available, n, spread=strategy.spread, uncore=strategy.uncore)


def take_valid(topology: Topology, available: int, n: int, strategy: Strategy, *, hinted: int = 0) -> int:
    """As `take`, but never other CPUs than those available, nor more or fewer than n.

    Where a release would answer so (averaged sizes, aliased nodes), its faults are left out of the algorithm;
    where the machine is told so oddly that units overlap and count twice, the lowest ids are taken. Raises
    NotEnoughCPUs.
    """
    free = available & topology.all
    if n > free.bit_count():
        raise NotEnoughCPUs(n, available.bit_count())
    if n < 1:
        return 0
    for faithful in (True, False):
        with suppress(AccountingError, NotEnoughCPUs):
            if faithful:
                taken = take(topology, available, n, strategy, hinted=hinted)
            else:
                taken = _take(topology, available, n, strategy, "real", hinted, alias=False)
            if taken.bit_count() == n and not taken & ~free:
                return taken
    return lowest(free, n)


def _take(
    topology: Topology, available: int, n: int, strategy: Strategy, sizes: Sizes, hinted: int, *, alias: bool
) -> int:
    spread, version = strategy.spread, strategy.version
    rounds = version == "1.38"
    if not strategy.distribute:
        uncore = strategy.uncore
        return accumulator.take(
            topology, available, n, spread=spread, uncore=uncore, sizes=sizes, rounds=rounds
        )
    return distribute.take(
        topology,
        available,
        n,
        strategy.group,
        spread=spread,
        alias=alias,
        sizes=sizes,
        rounds=rounds,
        capped=version != "1.36",
        by_socket=strategy.by_socket and version != "1.36",
        hinted=hinted if version == "1.38" else 0,
    )
