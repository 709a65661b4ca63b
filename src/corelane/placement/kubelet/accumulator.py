"""The kubelet's packed and spread pickers: whole NUMA nodes and sockets, then caches, cores, single CPUs.

`takeByTopologyNUMAPacked` of upstream's `pkg/kubelet/cm/cpumanager/cpu_assignment.go` (v1.36) over bit
masks: what upstream sorts by (free CPUs, id) are a few masks of equally free units here; no set is built.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from corelane.placement.kubelet import cores
from corelane.placement.kubelet.cores import lowest
from corelane.placement.topology import Topology

__all__ = ["NotEnoughCPUs", "Sizes", "lowest", "node_order", "take"]

Sizes: TypeAlias = Literal["average", "cores", "real"]
"""By what a core or a socket is fully free: the machine's average size of both (1.36), for sockets only (from
1.37), or its own size."""


class NotEnoughCPUs(ValueError):  # noqa: N818 - an answer as much as an error
    """Fewer CPUs are available than were asked for; the text is upstream's."""

    def __init__(self, requested: int, available: int) -> None:
        super().__init__(
            f"not enough cpus available to satisfy request: requested={requested}, available={available}"
        )


def take(
    topology: Topology,
    available: int,
    n: int,
    *,
    spread: bool = False,
    uncore: bool = False,
    sizes: Sizes = "average",
    rounds: bool = False,
    node: int = 0,
) -> int:
    """The mask of n of the `available` CPUs; ids that the topology does not know are never taken.

    `spread` takes CPUs by id and no whole cores, and with `rounds` (from 1.38) one of each core in turn;
    `uncore` prefers to stay inside one L3 cache. Where cores or sockets differ in size, only real `sizes`
    never hand out CPUs that are not free. `node`, which is not needed, tells that all `available` are in this
    NUMA node, and this in one socket. Raises NotEnoughCPUs.
    """
    if n < 1:
        return 0
    free = available & topology.all
    count = free.bit_count()
    if n >= count:
        if n > count:
            raise NotEnoughCPUs(n, available.bit_count())
        if topology.even:
            return free
    picked = _Accumulator(topology, free, n, node)
    if n >= topology.smallest:
        picked.whole_nodes_and_sockets(0 if sizes == "real" else topology.cpus_per_socket)
    if uncore and picked.need > 0:
        picked.caches()
    averaged = sizes == "average"
    if not spread and picked.need >= (topology.cpus_per_core if averaged else topology.fewest_threads):
        picked.whole_cores(averaged)
    if picked.need > 0:
        picked.single_by_socket(rounds) if spread else picked.single_by_core()
    return picked.taken


def _fullest(units: Sequence[int], free: int) -> Sequence[int]:
    """Units by free CPUs, fewest first, then by id: upstream's sort at every level."""
    if len(units) == 2:
        one, other = units
        return units if (one & free).bit_count() <= (other & free).bit_count() else (other, one)
    if len(units) < 2:
        return units
    return sorted(units, key=lambda unit: (unit & free).bit_count())


def _nested(topology: Topology, free: int) -> Iterator[int]:
    """The units of the second kind (sockets, or NUMA nodes where smaller) with free CPUs, in order."""
    for outer in _fullest(topology.first, free):
        inside = outer & free
        if inside:
            for unit in _fullest(topology.inner[outer], free):
                if unit & inside:
                    yield unit


def node_order(topology: Topology, free: int) -> list[int]:
    """The NUMA nodes that have free CPUs, in the order in which the picker visits them."""
    if topology.numa_first:
        return [node for node in _fullest(topology.first, free) if node & free]
    return list(_nested(topology, free))


def _cache_order(topology: Topology, free: int) -> Iterator[int]:
    """The caches that have free CPUs, node by node."""
    for node in node_order(topology, free):
        inside = node & free
        for cache in _fullest(topology.caches[node], free):
            if cache & inside:
                yield cache


class _Accumulator:
    """What is free, still needed and taken so far: upstream's cpuAccumulator."""

    __slots__ = ("free", "need", "node", "taken", "topology")

    def __init__(self, topology: Topology, free: int, need: int, node: int = 0) -> None:
        self.topology = topology
        self.node = node
        self.free = free
        self.need = need
        self.taken = 0

    def claim(self, cpus: int, size: int) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.need -= size

    def whole(self, units: Iterable[int], *, average: int = 0) -> None:
        """Claim, in order, each unit that is fully free and not larger than the need."""
        free, sizes = self.free, self.topology.sizes
        for unit in units:
            size = sizes[unit]
            if self.need >= size and (unit & free).bit_count() == (average or size):
                self.claim(unit, size)

    def whole_nodes_and_sockets(self, socket: int) -> None:
        """Whole units of both kinds; a socket is free with that many free CPUs, 0 meaning all its own."""
        topology, busy = self.topology, ~self.free
        if topology.even and all(unit & busy for unit in topology.places):
            return
        first, second = (0, socket) if topology.numa_first else (socket, 0)
        self.whole(_fullest(topology.first, self.free), average=first)
        if self.need > 0:
            self.whole(list(_nested(topology, self.free)), average=second)

    def caches(self) -> None:
        """Whole caches, then, if the rest fits the free cores of one cache exactly, those (KEP-4800)."""
        topology, free = self.topology, self.free
        if self.need >= topology.cpus_per_uncore and any(not cache & ~free for cache in topology.uncore):
            self.whole(list(_cache_order(topology, free)))
        if not 0 < self.need <= topology.largest_cache:
            return
        alone = len(topology.uncore) == 1
        for cache in topology.uncore if alone else _cache_order(topology, free):
            if (cache & self.free).bit_count() >= self.need:
                self.part_of_cache(cache & self.free)
                if self.need < 1:
                    return

    def part_of_cache(self, free: int) -> None:
        """Claim exactly what is needed from the cores with these CPUs, or nothing."""
        topology, need = self.topology, self.need
        leads = topology.cores_of(free)
        wanted = -(-need // topology.cpus_per_core)
        if leads.bit_count() > wanted:
            leads = lowest(leads, wanted)
        cpus = topology.threads_of(leads) & self.free
        if need % 2 and topology.cpus_per_core > 1 and cpus.bit_count() > need:
            cpus ^= 1 << cpus.bit_length() - 1
        if cpus.bit_count() == need:
            self.claim(cpus, need)

    def places(self) -> Iterable[int]:
        """The units whose cores come one after the other: sockets, or NUMA nodes where smaller."""
        if self.node:
            return (self.node,)
        topology = self.topology
        return _fullest(topology.first, self.free) if topology.flat else _nested(topology, self.free)

    def sockets(self) -> Iterable[int]:
        topology = self.topology
        if self.node or topology.numa_first:
            return self.places()
        return _fullest(topology.first, self.free)

    def whole_cores(self, averaged: bool) -> None:
        """Claim cores that are fully free: by the machine's average size, or by their own."""
        topology = self.topology
        if topology.even:
            self.equal_cores(*topology.shapes[0])
            return
        by_size = cores.full_by_average if averaged else cores.full_by_own_size
        full_of_size = by_size(topology, self.free)
        for place in self.places():
            for full, size in full_of_size:
                self.cores_of_size(full & place, size) if size else self.cores_of_any_size(full & place)

    def equal_cores(self, leads: int, offsets: Sequence[int]) -> None:
        size, full = len(offsets) + 1, leads & self.free
        for offset in offsets:
            full &= self.free >> offset
        wanted, found = self.need // size, full.bit_count()
        if found > wanted:
            full, found = _first(full, wanted, self.places()), wanted
        cpus = full
        for offset in offsets:
            cpus |= full << offset
        self.claim(cpus, found * size)

    def cores_of_size(self, full: int, size: int) -> None:
        wanted, found = self.need // size, full.bit_count()
        if found > wanted:
            full, found = lowest(full, wanted), wanted
        if found > 0:
            self.claim(self.topology.threads_of(full), found * size)

    def cores_of_any_size(self, full: int) -> None:
        while full:
            lead = full & -full
            cpus = self.topology.threads_of(lead)
            if self.need >= cpus.bit_count():
                self.claim(cpus, cpus.bit_count())
            full ^= lead

    def single_by_core(self) -> None:
        """CPU by CPU, from the cores with the fewest free ones."""
        free, counts = self.free, cores.by_free_threads(self.topology, self.free)
        for place in self.places():
            for i, equally_free in enumerate(counts):
                if some := equally_free & place:
                    self.threads_of_cores(some, i + 1, free)
                    if self.need < 1:
                        return

    def threads_of_cores(self, some: int, size: int, free: int) -> None:
        """Claim the free threads, `size` each, of the lowest cores; of the last perhaps only some."""
        wanted, found = self.need // size, some.bit_count()
        if found <= wanted:
            self.claim(self.topology.threads_of(some) & free, found * size)
            return
        whole = lowest(some, wanted)
        cpus = self.topology.threads_of(whole) & free
        missing = self.need - wanted * size
        if missing:
            rest = some ^ whole
            cpus |= lowest(self.topology.threads_of(rest & -rest) & free, missing)
        self.claim(cpus, self.need)

    def single_by_socket(self, rounds: bool) -> None:
        """CPU by CPU in the order of ids, or of every core in turn, socket after socket."""
        free = self.free
        if not rounds and self.topology.even:
            self.claim(_first(free, self.need, self.sockets()), self.need)
            return
        for socket in self.sockets():
            cpus = socket & free
            size = min(cpus.bit_count(), self.need)
            self.claim(cores.in_rounds(self.topology, cpus, size) if rounds else lowest(cpus, size), size)
            if self.need < 1:
                return


def _first(marked: int, n: int, places: Iterable[int]) -> int:
    """The first n of these CPUs, which are more, in the order of places and then of ids."""
    chosen = 0
    for place in places:
        here = marked & place
        count = here.bit_count()
        if count >= n:
            return chosen | lowest(here, n)
        chosen |= here
        n -= count
    return chosen
