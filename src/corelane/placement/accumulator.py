"""The kubelet's packed and spread pickers: whole NUMA nodes and sockets, then caches, cores, single CPUs.

`takeByTopologyNUMAPacked` of upstream's `pkg/kubelet/cm/cpumanager/cpu_assignment.go` (v1.36) over bit
masks: what upstream sorts by (free CPUs, id) are a few masks of equally free units here; no set is built.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

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
    picked = _Accumulator(topology, available & topology.all, n, node)
    if n > picked.free.bit_count():
        raise NotEnoughCPUs(n, available.bit_count())
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


def lowest(mask: int, n: int) -> int:
    """The n lowest bits of a mask that has at least n, by halving: fast however scattered they lie."""
    taken = base = 0
    if n < 5:
        for _ in range(n):
            low = mask & -mask
            taken |= low
            mask ^= low
        return taken
    width = mask.bit_length()
    while width > 1:
        half = width >> 1
        low = mask & (1 << half) - 1
        count = low.bit_count()
        if count > n:
            mask, width = low, half
            continue
        taken |= low << base
        n -= count
        if not n:
            return taken
        mask >>= half
        base += half
        width -= half
    return taken | mask << base


def _fullest(units: Sequence[int], free: int) -> Sequence[int]:
    """Units by free CPUs, fewest first, then by id: upstream's sort at every level."""
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
        topology = self.topology
        first, second = (0, socket) if topology.numa_first else (socket, 0)
        self.whole(_fullest(topology.first, self.free), average=first)
        if self.need > 0:
            self.whole(list(_nested(topology, self.free)), average=second)

    def caches(self) -> None:
        """Whole caches, then, if the rest fits the free cores of one cache exactly, those (KEP-4800)."""
        order: Iterable[int] = self.cache_order()
        if self.need >= self.topology.cpus_per_uncore:
            order = list(order)
            self.whole(order)
        for cache in order:
            if self.need < 1:
                return
            if (cache & self.free).bit_count() >= self.need:
                self.part_of_cache(cache & self.free)

    def cache_order(self) -> Iterator[int]:
        """The caches that have CPUs free now, node by node."""
        free, caches = self.free, self.topology.caches
        for node in node_order(self.topology, free):
            inside = node & free
            for cache in _fullest(caches[node], free):
                if cache & inside:
                    yield cache

    def part_of_cache(self, free: int) -> None:
        """Claim exactly what is needed from the cores with these CPUs, or nothing."""
        topology, need = self.topology, self.need
        cores = topology.cores_of(free)
        wanted = -(-need // topology.cpus_per_core)
        if cores.bit_count() > wanted:
            cores = lowest(cores, wanted)
        cpus = topology.threads_of(cores) & self.free
        if need % 2 and topology.cpus_per_core > 1 and cpus.bit_count() > need:
            cpus ^= 1 << cpus.bit_length() - 1
        if cpus.bit_count() == need:
            self.claim(cpus, need)

    def core_order(self) -> Iterable[int]:
        """The units whose cores come one after the other: sockets, or NUMA nodes where smaller."""
        return (self.node,) if self.node else _nested(self.topology, self.free)

    def whole_cores(self, averaged: bool) -> None:
        """Claim cores that are fully free: by the machine's average size, or by their own."""
        topology, free = self.topology, self.free
        full = _full_by_average(topology, free) if averaged else _full_by_own_size(topology, free)
        for unit in self.core_order():
            for cores, size in full:
                self.cores_of_size(cores & unit, size) if size else self.cores_of_any_size(cores & unit)

    def cores_of_size(self, cores: int, size: int) -> None:
        wanted, found = self.need // size, cores.bit_count()
        if found > wanted:
            cores, found = lowest(cores, wanted), wanted
        if found > 0:
            self.claim(self.topology.threads_of(cores), found * size)

    def cores_of_any_size(self, cores: int) -> None:
        while cores:
            lead = cores & -cores
            cpus = self.topology.threads_of(lead)
            if self.need >= cpus.bit_count():
                self.claim(cpus, cpus.bit_count())
            cores ^= lead

    def single_by_core(self) -> None:
        """CPU by CPU, from the cores with the fewest free ones."""
        topology, free = self.topology, self.free
        counts = _by_free_threads(topology, free)
        for unit in self.core_order():
            for size, equally_free in enumerate(counts):
                if cores := size and equally_free & unit:
                    self.threads_of_cores(cores, size, free)
                    if self.need < 1:
                        return

    def threads_of_cores(self, cores: int, size: int, free: int) -> None:
        """Claim the free threads, `size` each, of the lowest cores; of the last perhaps only some."""
        wanted, found = self.need // size, cores.bit_count()
        if found <= wanted:
            self.claim(self.topology.threads_of(cores) & free, found * size)
            return
        whole = lowest(cores, wanted)
        rest = cores ^ whole
        last = self.topology.threads_of(rest & -rest) & free
        cpus = self.topology.threads_of(whole) & free | lowest(last, self.need - wanted * size)
        self.claim(cpus, self.need)

    def single_by_socket(self, rounds: bool) -> None:
        """CPU by CPU in the order of ids, or of every core in turn, socket after socket."""
        free = self.free
        for socket in self.socket_order():
            cpus = socket & free
            size = min(cpus.bit_count(), self.need)
            self.claim(_in_rounds(self.topology, cpus, size) if rounds else lowest(cpus, size), size)
            if self.need < 1:
                return

    def socket_order(self) -> Iterable[int]:
        if self.node:
            return (self.node,)
        topology, free = self.topology, self.free
        return _nested(topology, free) if topology.numa_first else _fullest(topology.first, free)


def _by_free_threads(topology: Topology, free: int) -> list[int]:
    """Element i has the cores (their lowest CPUs) with exactly i free threads: a bit-sliced count."""
    if len(topology.patterns) == 1:
        return _exactly(free, *topology.patterns[0])
    counts = [0] * (topology.threads + 1)
    for leads, offsets in topology.patterns:
        for i, cores in enumerate(_exactly(free, leads, offsets)):
            counts[i] |= cores
    return counts


def _in_rounds(topology: Topology, free: int, n: int) -> int:
    """The first n of the free CPUs when each core gives its lowest in turn, cores with the fewest first."""
    taken, by_size = 0, _by_free_threads(topology, free)
    for given in range(topology.threads):
        for cores in by_size[given + 1 :]:
            cores = lowest(cores, n) if cores.bit_count() > n else cores
            cpus = _lowest_of_each(topology, free, cores)
            taken |= cpus
            free &= ~cpus
            n -= cores.bit_count()
    return taken


def _lowest_of_each(topology: Topology, free: int, cores: int) -> int:
    """The lowest free CPU of each of these cores."""
    found = 0
    for leads, offsets in topology.patterns:
        missing = cores & leads
        for offset in offsets:
            have = free >> offset & missing
            found |= have << offset
            missing ^= have
    return found


def _exactly(free: int, leads: int, offsets: tuple[int, ...]) -> list[int]:
    if len(offsets) == 2:
        low, high = free & leads, free >> offsets[1] & leads
        return [leads & ~(low | high), low ^ high, low & high]
    counts = [leads] + [0] * len(offsets)
    for offset in offsets:
        is_free = free >> offset & leads
        for i in range(len(offsets), 0, -1):
            counts[i] = counts[i] & ~is_free | counts[i - 1] & is_free
        counts[0] &= ~is_free
    return counts


def _full(free: int, leads: int, offsets: tuple[int, ...]) -> int:
    """The cores of which every thread is free."""
    for offset in offsets:
        leads &= free >> offset
    return leads


def _full_by_own_size(topology: Topology, free: int) -> list[tuple[int, int]]:
    """Fully free cores and their size, smallest first."""
    full: dict[int, int] = {}
    for leads, offsets in topology.patterns:
        size = len(offsets)
        full[size] = full.get(size, 0) | _full(free, leads, offsets)
    return [(cores, size) for size, cores in sorted(full.items()) if cores]


def _full_by_average(topology: Topology, free: int) -> list[tuple[int, int]]:
    """Cores with as many free CPUs as the average core has CPUs, and their size: 0 where sizes differ."""
    average = topology.cpus_per_core
    if len(topology.patterns) == 1 and topology.threads == average:
        full = _full(free, *topology.patterns[0])
        return [(full, average)] if full else []
    cores, sizes = 0, set()
    for leads, offsets in topology.patterns:
        if len(offsets) >= average and (full := _exactly(free, leads, offsets)[average]):
            cores |= full
            sizes.add(len(offsets))
    return [(cores, sizes.pop() if len(sizes) == 1 else 0)] if cores else []
