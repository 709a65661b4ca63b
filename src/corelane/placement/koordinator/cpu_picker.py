"""Koordinator's accumulator: which CPUs are taken one unit after the other, as masks of equal rank.

Follows `takeCPUs` in upstream's `cpu_accumulator.go` (a7a1b76b): what it sorts by free CPUs, references and
ids is a few masks of equals here, in the order of the sort.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from corelane.cpuset import bits
from corelane.placement.topology import Pattern, Patterned, Topology, lowest, remembered
from corelane.workload.placement_spec import BindPolicy, ExclusivePolicy, NUMAStrategy


class Cell(NamedTuple):
    """The CPUs that a NUMA node and a socket have in common; all three are masks."""

    cpus: int
    node: int
    socket: int


@dataclass(frozen=True, slots=True, eq=False)
class Cores(Patterned):
    """Facts of a topology for the allocator; made once for each by `of`."""

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


@dataclass(frozen=True, slots=True)
class Request:
    """Options of a pick.

    Bind policies are FullPCPUs and SpreadByPCPUs. Any strategy but MostAllocated counts as LeastAllocated,
    unless it is DistributeEvenly `as_proposed`.
    """

    bind: BindPolicy = BindPolicy.FULL_PCPUS
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    strategy: NUMAStrategy = NUMAStrategy.LEAST_ALLOCATED
    required: bool = False
    """Reject what would break the bind policy."""
    as_proposed: bool = False
    """DistributeEvenly spreads over the fewest NUMA nodes that allow it, as the kubelet's
    distribute-cpus-across-numa; NUMANodeLevel falls back to PCPULevel where no NUMA node is left."""


@dataclass(frozen=True, slots=True)
class Held:
    """CPUs of running pods, as masks: of those with an exclusive policy, by its level, and of all.

    Element i of `references` has the CPUs that more than i pods hold; it is empty where a CPU has one owner
    at most.
    """

    cores: int = 0
    nodes: int = 0
    references: tuple[int, ...] = ()


NOTHING_HELD: Final = Held()


def pick(cores: Cores, free: int, n: int, request: Request, others: Held, *, exact: bool) -> int:
    """The mask of n of the `free` CPUs, of which there are enough; unless `exact`, see `koordinator.take`."""
    picking = _Accumulator(cores, free, n, request, others, exact=exact)
    if request.bind is BindPolicy.FULL_PCPUS or cores.threads == 1:
        picking.take_full_cores()
    else:
        picking.take_spread()
    if picking.need > 0:
        picking.take_single()
    return picking.taken


class _Accumulator:
    """CPUs that are free, still needed and taken so far: upstream's cpuAccumulator."""

    __slots__ = (
        "cores",
        "direction",
        "exact",
        "free",
        "level",
        "need",
        "references",
        "shut_cores",
        "shut_nodes",
        "taken",
    )

    def __init__(
        self, cores: Cores, free: int, need: int, request: Request, others: Held, *, exact: bool
    ) -> None:
        self.cores = cores
        self.free = free
        self.need = need
        self.exact = exact
        self.taken = 0
        self.level = request.exclusive
        self.direction = 1 if request.strategy is NUMAStrategy.MOST_ALLOCATED else -1
        self.references = others.references
        self.shut_cores = self.shut_nodes = 0
        if self.level is ExclusivePolicy.PCPU_LEVEL:
            self.shut_cores = cores.threads_of(cores.cores_of(others.cores))
        elif self.level is ExclusivePolicy.NUMA_NODE_LEVEL:
            self.shut_nodes = self.nodes_of(others.nodes)

    def nodes_of(self, cpus: int) -> int:
        nodes = 0
        for cell in self.cores.nodes:
            if cell.node & cpus:
                nodes |= cell.node
        return nodes

    def claim(self, cpus: int) -> None:
        """Take these CPUs; if the pod is exclusive, their units are shut at once."""
        self.taken |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()
        if self.level is ExclusivePolicy.PCPU_LEVEL:
            self.shut_cores |= self.cores.threads_of(self.cores.cores_of(cpus))
        elif self.level is ExclusivePolicy.NUMA_NODE_LEVEL:
            self.shut_nodes |= self.nodes_of(cpus)

    def take_full_cores(self) -> None:
        """In one NUMA node, else in one socket, else whole sockets' full cores and then core by core."""
        cores, need = self.cores, self.need
        full = cores.full_cores(self.free)
        if need <= cores.node_size and (unit := self.node_for(full)):
            self.claim(self.front(full & unit, need))
            return
        if need <= cores.socket_size and (unit := self.socket_for(full)):
            self.claim(self.front(full & unit, need))
            return
        left = []
        for unit in sorted((full & socket for socket in cores.sockets), key=int.bit_count, reverse=True):
            if self.need >= unit.bit_count():
                self.claim(unit)
            else:
                left.append(unit)
        if self.need >= cores.threads:
            self.take_core_by_core(sorted(left, key=int.bit_count))

    def take_core_by_core(self, units: Iterable[int]) -> None:
        """At least one core of each until nothing is missing, as upstream; `exact` takes whole cores only."""
        threads = self.cores.threads
        for full in units:
            count = self.need // threads
            if self.need > 0 and (count or not self.exact):
                self.claim(self.front(full, max(count, 1) * threads))

    def node_for(self, full: int) -> int:
        """The NUMA node, one that is not shut if possible, whose full cores suffice; 0 if there is none."""
        for shut in (self.shut_nodes, 0) if self.shut_nodes else (0,):
            offered = full & ~shut
            if unit := self.best_node(offered, offered, self.free & ~shut):
                return unit
        return 0

    def best_node(self, offered: int, counted: int, free: int) -> int:
        """The first node that offers enough: by what counts in it, then by the free CPUs of its socket."""
        best: tuple[int, int] | None = None
        chosen, direction = 0, self.direction
        for _, node, socket in self.cores.nodes:
            if (offered & node).bit_count() >= self.need:
                rank = (counted & node).bit_count() * direction, (free & socket).bit_count() * direction
                if best is None or rank < best:
                    best, chosen = rank, node
        return chosen

    def socket_for(self, offered: int) -> int:
        best: int | None = None
        chosen = 0
        for socket in self.cores.sockets:
            count = (offered & socket).bit_count()
            if count >= self.need and (best is None or count * self.direction < best):
                best, chosen = count * self.direction, socket
        return chosen

    def front(self, full: int, n: int) -> int:
        """The first n CPUs of these full cores, cores with the fewest references first."""
        taken = 0
        for group in self.cores_by_references(full & self.cores.leads, full):
            size = group.bit_count()
            if size >= n:
                return taken | self.cores.first_cpus(group, n)
            taken |= group
            n -= size
        return taken

    def take_spread(self) -> None:
        """One CPU a core in one NUMA node, else all of its CPUs in turn; then the same for sockets."""
        for size, shut, unit_for in (
            (self.cores.node_size, self.shut_cores | self.shut_nodes, self.node_offering),
            (self.cores.socket_size, self.shut_cores, self.socket_offering),
        ):
            if self.need > size:
                continue
            free = self.free & ~shut
            offered = self.one_of_each(free)
            if unit := unit_for(offered, free):
                self.claim(self.least_referenced(offered & unit, self.need))
                return
            if unit := unit_for(self.free, self.free):
                self.claim(self.in_turn(self.free & unit, self.need))
                return

    def node_offering(self, offered: int, free: int) -> int:
        return self.best_node(offered, free, free)

    def socket_offering(self, offered: int, free: int) -> int:
        return self.socket_for(offered)

    def one_of_each(self, cpus: int) -> int:
        """On every core the one of these CPUs with the fewest references."""
        if not self.references:
            return self.cores.one_of_each(cpus)
        taken = 0
        for equal in self.by_own_references(cpus):
            taken |= self.cores.one_of_each(equal & ~self.cores.threads_of(self.cores.cores_of(taken)))
        return taken

    def by_own_references(self, cpus: int) -> Iterator[int]:
        """These CPUs by their number of references, fewest first."""
        for plane in self.references:
            yield cpus & ~plane
            cpus &= plane
        yield cpus

    def least_referenced(self, cpus: int, n: int) -> int:
        """N of these CPUs, those with the fewest references first, then the lowest."""
        taken = 0
        for equal in self.by_own_references(cpus):
            size = equal.bit_count()
            if size >= n:
                return taken | lowest(equal, n)
            taken |= equal
            n -= size
        return taken

    def in_turn(self, cpus: int, n: int) -> int:
        """N of these CPUs, in passes over their cores; as they come, if there are no more than a core has."""
        taken = 0
        if cpus.bit_count() <= self.cores.threads:
            return self.least_referenced(cpus, n)
        while n:
            offered = self.one_of_each(cpus)
            some = self.least_referenced(offered, n)
            taken |= some
            n -= some.bit_count()
            cpus &= ~offered
        return taken

    def take_single(self) -> None:
        """Take what is left: CPUs of half-used cores first, on sockets that this pod has CPUs on."""
        shut = self.shut_cores | self.shut_nodes
        for avoided in (shut, 0) if shut else (0,):
            self.claim(self.single(self.free & ~avoided, self.need))
            if not self.need:
                return

    def single(self, cpus: int, n: int) -> int:
        """N of these CPUs, or all, in passes over their cores in upstream's order."""
        groups, taken = list(self.core_order(cpus)), 0
        if cpus.bit_count() <= self.cores.threads:
            return self.one_after_another(groups, cpus, n)
        while n and cpus:
            offered = self.one_of_each(cpus)
            for group in groups:
                some = group & offered
                if some.bit_count() > n:
                    some &= self.cores.threads_of(self.cores.first(self.cores.cores_of(some), n))
                taken |= some
                n -= some.bit_count()
                if not n:
                    break
            cpus &= ~offered
        return taken

    def one_after_another(self, groups: Iterable[int], cpus: int, n: int) -> int:
        taken = 0
        for group in groups:
            for lead in self.cores.in_order(self.cores.cores_of(group & cpus)):
                some = self.least_referenced(self.cores.threads_of(1 << lead) & cpus, n)
                taken |= some
                n -= some.bit_count()
                if not n:
                    return taken
        return taken

    def core_order(self, cpus: int) -> Iterator[int]:
        """Cores, as all of their CPUs, in groups that upstream's last sort finds equal, first group first."""
        cores = self.cores
        counted = cores.by_count(cores.cores_of(cpus), (cpus,))
        for places in self.places(cpus):
            for equally_free in counted[1:]:
                for socket in cores.sockets:
                    if leads := places.get(socket, 0) & equally_free:
                        yield from self.cores_by_references(leads, cpus)

    def places(self, cpus: int) -> Iterator[Mapping[int, int]]:
        """Socket to the CPUs of its NUMA nodes that rank alike, first rank first."""
        alike: dict[tuple[int, int, int], dict[int, int]] = {}
        direction = self.direction
        for inside, node, socket in self.cores.cells:
            taken, free = (self.taken & socket).bit_count(), (cpus & socket).bit_count()
            rank = -taken, free * direction, (cpus & node).bit_count() * direction
            places = alike.setdefault(rank, {})
            places[socket] = places.get(socket, 0) | inside
        return (alike[rank] for rank in sorted(alike))

    def cores_by_references(self, leads: int, cpus: int) -> Iterable[int]:
        """All CPUs of these cores in groups, fewest references of their CPUs among `cpus` first."""
        cores = self.cores
        if not self.references:
            return (cores.threads_of(leads),)
        groups = cores.by_count(leads, [plane & cpus for plane in self.references])
        return [cores.threads_of(group) for group in groups if group]
