"""A machine as the kubelet's CPU manager sees it, with every unit precomputed as a bit mask.

Follows upstream's `pkg/kubelet/cm/cpumanager/topology` (v1.36): a core's id is its lowest CPU id, uncore
caches are what cAdvisor makes of the L3 domains, and sizes are averages wherever upstream divides counters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple
from weakref import WeakKeyDictionary

from corelane.machine.model import Machine
from corelane.machine.uncore import kubelet_ids
from corelane.placement.patterns import Pattern, Patterned, patterns_of, without_leads

__all__ = ["Counters", "Row", "Topology", "build", "core_keys", "from_machine"]


class Row(NamedTuple):
    """One logical CPU and the units that it lies in; `core` may be any key that its siblings share."""

    cpu: int
    core: int
    socket: int
    numa: int
    uncore: int


class Counters(NamedTuple):
    """How many of each there are, as cAdvisor reports it: upstream divides these, right or wrong."""

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
    counters: Counters
    core_order: tuple[int, ...] = ()
    """The lowest CPU of each core by socket and core id, as Koordinator sorts; empty where ascending does."""

    def nodes_of(self, cpus: int) -> int:
        """The positions in `numa` (as a mask) of the nodes that `cpus` touch."""
        return reduce(or_, (1 << i for i, node in enumerate(self.numa) if node & cpus), 0)


_KNOWN: WeakKeyDictionary[Machine, Topology] = WeakKeyDictionary()


def from_machine(machine: Machine) -> Topology:
    """The topology of a machine's usable CPUs, computed once. Raises ValueError when it has none."""
    known = _KNOWN.get(machine)
    if known is None:
        usable, keys, caches = machine.usable, core_keys(machine), kubelet_ids(machine.cpus)
        rows = (Row(c.id, keys[c.id], c.socket, c.numa, caches[c.id]) for c in machine.cpus if c.id in usable)
        known = _KNOWN[machine] = build(rows)
    return known


def core_keys(machine: Machine) -> dict[int, int]:
    """CPU to Koordinator's key of its core: the socket, then 16 bits of core id.

    The kernel's core ids where they tell a socket's cores apart, else the lowest CPU ids.
    """
    keys = {cpu.id: cpu.socket << 16 | cpu.core_id for cpu in machine.cpus}
    pairs = {(cpu.core, keys[cpu.id]) for cpu in machine.cpus}
    if len(pairs) == len({core for core, _ in pairs}) == len({key for _, key in pairs}):
        return keys
    return {cpu.id: cpu.socket << 16 | cpu.core for cpu in machine.cpus}


def build(rows: Iterable[Row | tuple[int, int, int, int, int]], counters: Counters | None = None) -> Topology:
    """The topology of these CPUs; `counters` stands in for what cAdvisor counted, if it differs.

    Raises ValueError when there is no CPU, or one twice.
    """
    cpus = [Row(*row) for row in rows]
    if not cpus:
        raise ValueError("could not detect number of cpus")
    if len({row.cpu for row in cpus}) != len(cpus):
        raise ValueError("a CPU id appears twice in the topology")
    numa, sockets = _units(cpus, "numa"), _units(cpus, "socket")
    uncore, cores = _units(cpus, "uncore"), _units(cpus, "core")
    count = counters or Counters(len(cpus), len(cores), len(sockets), len(numa), len(uncore))
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
        counters=count,
        core_order=_core_order(cpus, (*nodes, *packages)),
    )


def _units(rows: list[Row], level: str) -> dict[int, int]:
    """Unit id to the mask of its CPUs, ascending by id."""
    units: dict[int, int] = {}
    for row in rows:
        unit = getattr(row, level)
        units[unit] = units.get(unit, 0) | 1 << row.cpu
    return dict(sorted(units.items()))


def _core_order(rows: list[Row], units: Iterable[int]) -> tuple[int, ...]:
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
