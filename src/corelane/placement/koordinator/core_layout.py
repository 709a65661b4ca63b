"""A machine as Koordinator's allocator sees it: cores in the order of their keys, and where each one lies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from corelane.cpuset import bits
from corelane.placement.topology import Pattern, Patterned, Topology, lowest, remembered


class Cell(NamedTuple):
    """The CPUs that a NUMA node and a socket have in common; all three are masks."""

    cpus: int
    node: int
    socket: int


@dataclass(frozen=True, slots=True, eq=False)
class Cores(Patterned):
    """What the allocator needs to know of a topology; made once for each by `of`."""

    patterns: tuple[Pattern, ...]
    shapes: tuple[Pattern, ...]
    leads: int
    """The lowest CPU of every core."""
    threads: int
    """CPUs a core, and below CPUs a NUMA node and a socket, as upstream divides the totals."""
    node_size: int
    socket_size: int
    nodes: tuple[Cell, ...]
    """Every NUMA node with the first of the sockets that it lies in, in the order of the ids."""
    sockets: tuple[int, ...]
    cells: tuple[Cell, ...]
    rank: Mapping[int, int]
    """The place of each core, named by its lowest CPU, among all; empty where ascending is right."""

    def in_order(self, leads: int) -> Sequence[int]:
        """The lowest CPUs of these cores in the order of the cores' keys."""
        cores = list(bits(leads))
        return sorted(cores, key=self.rank.__getitem__) if self.rank else cores

    def first(self, leads: int, n: int) -> int:
        """The first n of these cores; all lie in one NUMA node or socket."""
        if n >= leads.bit_count():
            return leads
        if not self.rank:
            return lowest(leads, n)
        return sum(1 << lead for lead in self.in_order(leads)[:n])

    def first_cpus(self, full: int, n: int) -> int:
        """The first n CPUs of these full cores: core after core, the last one perhaps in part."""
        leads = full & self.leads
        if len(self.patterns) > 1:
            return self._core_by_core(leads, n)
        count, rest = divmod(n, self.threads)
        whole = self.first(leads, count)
        cpus = self.threads_of(whole)
        if rest:
            cpus |= lowest(self.threads_of(self.first(leads & ~whole, 1)), rest)
        return cpus

    def _core_by_core(self, leads: int, n: int) -> int:
        cpus = 0
        for lead in self.in_order(leads):
            core = self.threads_of(1 << lead)
            size = core.bit_count()
            if size >= n:
                return cpus | lowest(core, n)
            cpus |= core
            n -= size
        return cpus

    def by_count(self, leads: int, planes: Iterable[int]) -> list[int]:
        """Element i has those of the cores `leads` that have i CPUs in the masks `planes` together."""
        counted = [leads]
        for own, offsets in self.patterns:
            for plane in planes:
                for offset in offsets:
                    _advance(counted, plane >> offset & own & leads)
        return counted


def _advance(counted: list[int], cores: int) -> None:
    """Move these cores one element up."""
    counted.append(0)
    for i in range(len(counted) - 2, -1, -1):
        moved = counted[i] & cores
        counted[i] ^= moved
        counted[i + 1] |= moved
    if not counted[-1]:
        counted.pop()


@remembered
def of(topology: Topology) -> Cores:
    """Return what the allocator needs to know of this topology, computed once."""
    cells = tuple(
        Cell(node & socket, node, socket)
        for node in topology.numa
        for socket in topology.sockets
        if node & socket
    )
    first = {cell.node: cell.socket for cell in reversed(cells)}
    leads, total = topology.cores_of(topology.all), topology.all.bit_count()
    return Cores(
        topology.patterns,
        topology.shapes,
        leads,
        threads=total // leads.bit_count(),
        node_size=total // len(topology.numa),
        socket_size=total // len(topology.sockets),
        nodes=tuple(Cell(node, node, first[node]) for node in topology.numa),
        sockets=topology.sockets,
        cells=cells,
        rank={lead: place for place, lead in enumerate(topology.core_order)},
    )
