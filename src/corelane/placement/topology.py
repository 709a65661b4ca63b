"""A machine as bit masks: CPUs, cores, caches, sockets and NUMA nodes, precomputed for all allocators.

Follows upstream's `pkg/kubelet/cm/cpumanager/topology` (v1.36): a core's id is its lowest CPU id, uncore
caches are what cAdvisor makes of the L3 domains, and sizes are averages wherever upstream divides counters. A
physical core is represented by its lowest CPU, its lead. Cores are grouped by how their threads lie: on most
machines all cores have one pattern, so that a question about all of them is a few shifts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from operator import or_
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from corelane.cpuset import bits
from corelane.machine.model import Machine, kubelet_uncore_ids

K = TypeVar("K")
V = TypeVar("V")


def remembered(build: Callable[[K], V]) -> Callable[[K], V]:
    """Compute a value once for each argument, and keep it as long as the argument is referenced elsewhere."""
    values: WeakKeyDictionary[K, V] = WeakKeyDictionary()

    @wraps(build)
    def recall(key: K) -> V:
        value = values.get(key)
        if value is None:
            value = values[key] = build(key)
        return value

    return recall


class Pattern(NamedTuple):
    """All cores whose threads lie alike: `leads` has their lowest CPUs, `offsets` the threads' distances."""

    leads: int
    offsets: tuple[int, ...]


class Patterned:
    """Questions about the cores of any machine that has their patterns."""

    __slots__ = ()

    shapes: tuple[Pattern, ...]
    """Without the offset 0, that of the lead itself."""

    def cores_of(self, cpus: int) -> int:
        """The lead of every core that has a CPU in `cpus`."""
        found = 0
        for leads, offsets in self.shapes:
            found |= cpus & leads
            for offset in offsets:
                found |= cpus >> offset & leads
        return found

    def threads_of(self, leads: int) -> int:
        """All CPUs of the cores with these leads."""
        found = leads
        for own, offsets in self.shapes:
            cores = leads & own
            for offset in offsets:
                found |= cores << offset
        return found

    def whole_cores(self, cpus: int) -> int:
        """All CPUs of every core that has one in `cpus`."""
        return self.threads_of(self.cores_of(cpus))

    def one_of_each(self, cpus: int) -> int:
        """The lowest of these CPUs on every core."""
        found = 0
        for leads, offsets in self.shapes:
            found |= cpus & leads
            missing = leads & ~cpus
            for offset in offsets:
                have = cpus >> offset & missing
                found |= have << offset
                missing ^= have
        return found

    def full_cores(self, free: int) -> int:
        """All CPUs of the cores of which every thread is free."""
        found = 0
        for leads, offsets in self.shapes:
            whole = leads & free
            for offset in offsets:
                whole &= free >> offset
            found |= whole
            for offset in offsets:
                found |= whole << offset
        return found


def patterns_of(cores: Iterable[int]) -> tuple[Pattern, ...]:
    """The patterns of these cores (the masks of their CPUs), each with all cores that have it."""
    found: dict[tuple[int, ...], int] = {}
    for core in cores:
        lead = (core & -core).bit_length() - 1
        offsets = tuple(bits(core >> lead))
        found[offsets] = found.get(offsets, 0) | 1 << lead
    return tuple(Pattern(leads, offsets) for offsets, leads in sorted(found.items()))


def without_leads(patterns: Iterable[Pattern]) -> tuple[Pattern, ...]:
    """The same without the offset 0."""
    return tuple(Pattern(leads, offsets[1:]) for leads, offsets in patterns)


def by_threads(cpus: int, leads: int, offsets: Sequence[int]) -> list[int]:
    """Element i has those of the cores of one shape that have exactly i of the CPUs."""
    if len(offsets) == 1:
        low, high = cpus & leads, cpus >> offsets[0] & leads
        return [leads & ~(low | high), low ^ high, low & high]
    counts = [leads & ~cpus, leads & cpus, *(0 for _ in offsets)]
    for offset in offsets:
        have = cpus >> offset & leads
        for i in range(len(offsets) + 1, 0, -1):
            counts[i] = counts[i] & ~have | counts[i - 1] & have
        counts[0] &= ~have
    return counts


def lowest(mask: int, n: int) -> int:
    """The n lowest bits of a mask that has at least n: by halving, and the last of them in its digits."""
    taken = base = 0
    while n > 40:
        half = mask.bit_length() >> 1
        low = mask & (1 << half) - 1
        count = low.bit_count()
        if count > n:
            mask = low
        else:
            taken |= low << base
            mask >>= half
            base += half
            n -= count
    if n > 2:
        digits = bin(mask)
        width = len(digits) - len(digits.rsplit("1", n)[0])
        return taken | (mask & (1 << width) - 1) << base
    for _ in range(n):
        low = mask & -mask
        taken |= low << base
        mask ^= low
    return taken


class CPURow(NamedTuple):
    """One logical CPU and the units that it lies in; `core` may be any key that its siblings share."""

    cpu: int
    core: int
    socket: int
    numa: int
    uncore: int


class UnitCounts(NamedTuple):
    """Number of each, as cAdvisor reports it: upstream divides these, right or wrong."""

    cpus: int
    cores: int
    sockets: int
    numa: int
    uncore: int


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Topology(Patterned):
    """Units as masks, each tuple in the order of the units' ids; built by `build`, compared by identity."""

    all: int
    total: int
    """The number of CPUs."""
    numa_ids: tuple[int, ...]
    numa: tuple[int, ...]
    numa_sizes: tuple[int, ...]
    """The number of CPUs in each NUMA node, largest first."""
    sockets: tuple[int, ...]
    uncore: tuple[int, ...]
    patterns: tuple[Pattern, ...]
    """Cores by the shape of their threads; one pattern on all but hybrid or partly off-line machines."""
    shapes: tuple[Pattern, ...]
    """The same without the offset 0, that of the lowest CPU itself."""
    first: tuple[int, ...]
    """The units sorted before all others: NUMA nodes, or sockets where these hold several nodes."""
    inner: Mapping[int, tuple[int, ...]]
    """Per unit of `first`, the units of the other kind in it."""
    caches: Mapping[int, tuple[int, ...]]
    """Per NUMA node, the uncore caches in it."""
    numa_first: bool
    sizes: Mapping[int, int]
    """The number of CPUs in each NUMA node, socket and cache, by mask."""
    smallest: int
    """The size of the smallest NUMA node or socket: below it none can be taken whole."""
    largest_cache: int
    places: tuple[int, ...]
    """The smaller of NUMA nodes and sockets: cores are taken from one after the other."""
    flat: bool
    """Whether NUMA nodes and sockets are the same."""
    even: bool
    """Whether units nest and all cores, and all sockets, have the average size: no average misleads then."""
    undivided: frozenset[int]
    """The NUMA nodes that lie in one socket."""
    threads: int
    """The most threads that any core has."""
    fewest_threads: int
    cpus_per_core: int
    cpus_per_socket: int
    cpus_per_uncore: int
    distances: Mapping[int, Mapping[int, int]]
    """The kernel's, by NUMA node id; empty where unknown."""
    counters: UnitCounts
    core_order: tuple[int, ...] = ()
    """The lowest CPU of each core by socket and core id, as Koordinator sorts; empty where ascending does."""

    def nodes_of(self, cpus: int) -> int:
        """The positions in `numa` (as a mask) of the nodes that `cpus` touch."""
        return reduce(or_, (1 << i for i, node in enumerate(self.numa) if node & cpus), 0)


@remembered
def from_machine(machine: Machine) -> Topology:
    """Return the topology of a machine's usable CPUs, computed once. Raises ValueError when it has none."""
    usable, keys, caches = machine.usable, core_keys(machine), kubelet_uncore_ids(machine.cpus)
    rows = (CPURow(c.id, keys[c.id], c.socket, c.numa, caches[c.id]) for c in machine.cpus if c.id in usable)
    return build(rows, distances={node.id: node.distances for node in machine.nodes})


def core_keys(machine: Machine) -> dict[int, int]:
    """Return, by CPU, Koordinator's key of its core: the socket, then 16 bits of core id.

    The kernel's core ids where these are distinct within a socket, else the lowest CPU ids.
    """
    keys = {cpu.id: cpu.socket << 16 | cpu.core_id for cpu in machine.cpus}
    pairs = {(cpu.core, keys[cpu.id]) for cpu in machine.cpus}
    if len(pairs) == len({core for core, _ in pairs}) == len({key for _, key in pairs}):
        return keys
    return {cpu.id: cpu.socket << 16 | cpu.core for cpu in machine.cpus}


def build(
    rows: Iterable[CPURow | tuple[int, int, int, int, int]],
    counters: UnitCounts | None = None,
    distances: Mapping[int, Mapping[int, int]] | None = None,
) -> Topology:
    """Return the topology of these CPUs; `counters` stands in for what cAdvisor counted, if it differs.

    Raises ValueError when there is no CPU, or one twice.
    """
    cpus = [CPURow(*row) for row in rows]
    if not cpus:
        raise ValueError("could not detect number of cpus")
    if len({row.cpu for row in cpus}) != len(cpus):
        raise ValueError("a CPU id appears twice in the topology")
    numa, sockets = _units(cpus, "numa"), _units(cpus, "socket")
    uncore, cores = _units(cpus, "uncore"), _units(cpus, "core")
    count = counters or UnitCounts(len(cpus), len(cores), len(sockets), len(numa), len(uncore))
    numa_first = count.sockets >= count.numa
    nodes, packages, domains = tuple(numa.values()), tuple(sockets.values()), tuple(uncore.values())
    first, second = (nodes, packages) if numa_first else (packages, nodes)
    sizes = {mask: mask.bit_count() for mask in (*nodes, *packages, *domains)}
    inner = _within(first, second)
    patterns = patterns_of(cores.values())
    shapes = without_leads(patterns)
    per_core, per_socket = _average(count.cpus, count.cores), _average(count.cpus, count.sockets)
    nested = sum(map(len, inner.values())) == len(second) and all(_whole(unit, shapes) for unit in second)
    return Topology(
        all=reduce(or_, nodes),
        total=len(cpus),
        numa_ids=tuple(numa),
        numa=nodes,
        numa_sizes=tuple(sorted((sizes[node] for node in nodes), reverse=True)),
        sockets=packages,
        uncore=domains,
        patterns=patterns,
        shapes=shapes,
        first=first,
        inner=inner,
        places=second,
        flat=all(inside == (unit,) for unit, inside in inner.items()),
        even=nested
        and len(patterns) == 1
        and all(core.bit_count() == per_core for core in cores.values())
        and all(sizes[package] == per_socket for package in packages),
        caches=_within(nodes, domains),
        numa_first=numa_first,
        sizes=sizes,
        smallest=min(sizes[mask] for mask in (*nodes, *packages)),
        largest_cache=max(sizes[domain] for domain in domains),
        undivided=frozenset(node for node in nodes if any(not node & ~socket for socket in packages)),
        threads=max(mask.bit_count() for mask in cores.values()),
        fewest_threads=min(mask.bit_count() for mask in cores.values()),
        cpus_per_core=per_core,
        cpus_per_socket=per_socket,
        cpus_per_uncore=_average(count.cpus, count.uncore),
        distances=distances or {},
        counters=count,
        core_order=_core_order(cpus, (*nodes, *packages)),
    )


def _units(rows: list[CPURow], level: str) -> dict[int, int]:
    """Unit id to the mask of its CPUs, ascending by id."""
    units: dict[int, int] = {}
    for row in rows:
        unit = getattr(row, level)
        units[unit] = units.get(unit, 0) | 1 << row.cpu
    return dict(sorted(units.items()))


def _core_order(rows: list[CPURow], units: Iterable[int]) -> tuple[int, ...]:
    lowest: dict[tuple[int, int], int] = {}
    for row in rows:
        key = row.socket, row.core
        lowest[key] = min(row.cpu, lowest.get(key, row.cpu))
    order = [cpu for _, cpu in sorted(lowest.items())]
    for unit in units:
        inside = [cpu for cpu in order if unit >> cpu & 1]
        if inside != sorted(inside):
            return tuple(order)
    return ()


def _whole(unit: int, patterns: Iterable[Pattern]) -> bool:
    """Whether every core that has its lowest CPU in this unit lies in it."""
    return all(not (unit & leads) << offset & ~unit for leads, offsets in patterns for offset in offsets)


def _within(outer: Iterable[int], inner: Iterable[int]) -> dict[int, tuple[int, ...]]:
    return {unit: tuple(other for other in inner if other & unit) for unit in outer}


def _average(cpus: int, units: int) -> int:
    return cpus // units if units else 0


def sort_by_free_cpus(units: Sequence[int], free: int) -> Sequence[int]:
    """Sort units by free CPUs, fewest first, then by id, as upstream does at every level."""
    if len(units) == 2:
        one, other = units
        return units if (one & free).bit_count() <= (other & free).bit_count() else (other, one)
    if len(units) < 2:
        return units
    return sorted(units, key=lambda unit: (unit & free).bit_count())


def nested(topology: Topology, free: int) -> Iterator[int]:
    """The units of the second kind (sockets, or NUMA nodes where smaller) with free CPUs, in order."""
    for outer in sort_by_free_cpus(topology.first, free):
        inside = outer & free
        if inside:
            for unit in sort_by_free_cpus(topology.inner[outer], free):
                if unit & inside:
                    yield unit


def node_order(topology: Topology, free: int) -> list[int]:
    """The NUMA nodes that have free CPUs, in the order in which the picker visits them."""
    if topology.numa_first:
        return [node for node in sort_by_free_cpus(topology.first, free) if node & free]
    return list(nested(topology, free))
