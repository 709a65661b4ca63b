"""The kubelet's accumulator: NUMA nodes and sockets, caches, cores, single CPUs; and its steps as values.

`cpuAccumulator` and `takeByTopologyNUMAPacked` of upstream's `pkg/kubelet/cm/cpumanager/cpu_assignment.go`
(v1.36) over bit masks: what upstream sorts by (free CPUs, id) are a few masks of equally free units here; no
set is built.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import ClassVar, Final, NamedTuple

from corelane.placement.topology import (
    Topology,
    by_threads,
    lowest,
    nested,
    node_order,
    sort_by_free_cpus,
)


def by_free_threads(topology: Topology, free: int) -> list[int]:
    """Element i has the cores with exactly i + 1 free threads."""
    counts = [0] * topology.threads
    for leads, offsets in topology.shapes:
        if len(offsets) == 1:
            low, high = free & leads, free >> offsets[0] & leads
            counts[0] |= low ^ high
            counts[1] |= low & high
        else:
            for i, cores in enumerate(by_threads(free, leads, offsets)[1:]):
                counts[i] |= cores
    return counts


def full_cores(topology: Topology, free: int, averaged: bool) -> list[tuple[int, int]]:
    """Cores with all threads free and their size, smallest first.

    `averaged` as before 1.37: cores with as many free CPUs as the average core has; size 0 where sizes
    differ.
    """
    if averaged:
        return _full_by_average(topology, free)
    by_size: dict[int, int] = {}
    for leads, offsets in topology.shapes:
        size, full = len(offsets) + 1, leads & free
        for offset in offsets:
            full &= free >> offset
        by_size[size] = by_size.get(size, 0) | full
    return [(cores, size) for size, cores in sorted(by_size.items()) if cores]


def _full_by_average(topology: Topology, free: int) -> list[tuple[int, int]]:
    average, cores, sizes = topology.cpus_per_core, 0, set()
    for leads, offsets in topology.shapes:
        if len(offsets) + 1 >= average and (full := by_threads(free, leads, offsets)[1:][average - 1]):
            cores |= full
            sizes.add(len(offsets) + 1)
    return [(cores, sizes.pop() if len(sizes) == 1 else 0)] if cores else []


def _in_rounds(topology: Topology, free: int, n: int) -> int:
    """The first n of the free CPUs when each core gives its lowest in turn, cores with the fewest first."""
    taken, by_size = 0, by_free_threads(topology, free)
    for given in range(topology.threads):
        for cores in by_size[given:]:
            cores = lowest(cores, n) if cores.bit_count() > n else cores
            cpus = topology.one_of_each(topology.threads_of(cores) & free)
            taken |= cpus
            free &= ~cpus
            n -= cores.bit_count()
    return taken


def _cache_order(topology: Topology, free: int) -> Iterator[int]:
    """The caches that have free CPUs, node by node."""
    for node in node_order(topology, free):
        inside = node & free
        for cache in sort_by_free_cpus(topology.caches[node], free):
            if cache & inside:
                yield cache


class Accumulator:
    """CPUs that are free, still needed and taken so far: upstream's cpuAccumulator."""

    __slots__ = ("free", "need", "node", "taken", "topology")

    quick: ClassVar = True
    """Whether to skip stages that cannot take anything; `steps` needs them all."""

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

    def whole(self, level: str, units: Sequence[int], *, average: int = 0) -> None:
        """Claim, in order, each unit of a level that is fully free and not larger than the need.

        With an `average`, a unit counts as fully free when it has that many free CPUs.
        """
        free, sizes = self.free, self.topology.sizes
        for unit in units:
            size = sizes[unit]
            if self.need >= size and (unit & free).bit_count() == (average or size):
                self.claim(unit, size)

    def whole_nodes_and_sockets(self, socket: int) -> None:
        """Whole units of both kinds; a socket is free with that many free CPUs, 0 meaning all its own."""
        topology, busy = self.topology, ~self.free
        if self.quick and topology.even and all(unit & busy for unit in topology.places):
            return
        if topology.numa_first:
            first, second, outer, inner = "numa node", "socket", 0, socket
        else:
            first, second, outer, inner = "socket", "numa node", socket, 0
        self.whole(first, sort_by_free_cpus(topology.first, self.free), average=outer)
        if self.need > 0:
            self.whole(second, list(nested(topology, self.free)), average=inner)

    def caches(self) -> None:
        """Whole caches, then, if the rest fits the free cores of one cache exactly, those (KEP-4800)."""
        topology, free = self.topology, self.free
        if self.need >= topology.cpus_per_uncore and any(not cache & ~free for cache in topology.uncore):
            self.whole("l3", list(_cache_order(topology, free)))
        if not 0 < self.need <= topology.largest_cache:
            return
        single = len(topology.uncore) == 1
        for cache in topology.uncore if single else _cache_order(topology, free):
            if (cache & self.free).bit_count() >= self.need:
                self.part_of_cache(cache & self.free)
                if self.need < 1:
                    return

    def part_of_cache(self, free: int) -> None:
        """Claim exactly what is needed from the cores with these CPUs, or nothing."""
        topology, need = self.topology, self.need
        leads = topology.cores_of(free)
        count = -(-need // topology.cpus_per_core)
        if leads.bit_count() > count:
            leads = lowest(leads, count)
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
        return sort_by_free_cpus(topology.first, self.free) if topology.flat else nested(topology, self.free)

    def sockets(self) -> Iterable[int]:
        """Sockets, sorted by free CPUs."""
        topology = self.topology
        if self.node or topology.numa_first:
            return self.places()
        return sort_by_free_cpus(topology.first, self.free)

    def whole_cores(self, averaged: bool) -> None:
        """Claim cores that are fully free: by the machine's average size, or by their own."""
        topology = self.topology
        if topology.even:
            self.equal_cores(*topology.shapes[0])
            return
        full_of_size = full_cores(topology, self.free, averaged)
        for place in self.places():
            for full, size in full_of_size:
                self.cores_of_size(full & place, size) if size else self.cores_of_any_size(full & place)

    def equal_cores(self, leads: int, offsets: Sequence[int]) -> None:
        size, full = len(offsets) + 1, leads & self.free
        for offset in offsets:
            full &= self.free >> offset
        count, available = self.need // size, full.bit_count()
        if available > count:
            full, available = _first(full, count, self.places()), count
        cpus = full
        for offset in offsets:
            cpus |= full << offset
        self.claim(cpus, available * size)

    def cores_of_size(self, full: int, size: int) -> None:
        count, available = self.need // size, full.bit_count()
        if available > count:
            full, available = lowest(full, count), count
        if available > 0:
            self.claim(self.topology.threads_of(full), available * size)

    def cores_of_any_size(self, full: int) -> None:
        while full:
            lead = full & -full
            cpus = self.topology.threads_of(lead)
            if self.need >= cpus.bit_count():
                self.claim(cpus, cpus.bit_count())
            full ^= lead

    def single_by_core(self) -> None:
        """CPU by CPU, from the cores with the fewest free ones."""
        free, counts = self.free, by_free_threads(self.topology, self.free)
        for place in self.places():
            for i, equally_free in enumerate(counts):
                if some := equally_free & place:
                    self.threads_of_cores(some, i + 1, free)
                    if self.need < 1:
                        return

    def threads_of_cores(self, some: int, size: int, free: int) -> None:
        """Claim the free threads, `size` each, of the lowest cores; of the last perhaps only some."""
        count, available = self.need // size, some.bit_count()
        if available <= count:
            self.claim(self.topology.threads_of(some) & free, available * size)
            return
        whole = lowest(some, count)
        cpus = self.topology.threads_of(whole) & free
        missing = self.need - count * size
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
            self.claim(_in_rounds(self.topology, cpus, size) if rounds else lowest(cpus, size), size)
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


# Steps: what is taken at each level of the machine, and why. A picker reports to a `PickerReporter`, whose
# hooks are empty; `PickerSteps` keeps what is reported. `SILENT` costs nothing: only with another reporter
# does the accumulator run that observes its own claims.


class Why(StrEnum):
    """Reasons why a step took CPUs, or none; each names the values of `PickerStep` that it uses."""

    WHOLE_UNIT = "whole-unit"
    """All of `unit`: it is idle and no larger than the `need`."""
    NO_WHOLE_UNIT = "no-whole-unit"
    """No unit is both idle and no larger than the `need`; the `smallest` one of the level has so many
    CPUs."""
    FITS_CACHE = "fits-cache"
    """The `need` fits into the `free` CPUs of the L3 domain `unit`."""
    NO_CACHE_FITS = "no-cache-fits"
    """No L3 domain has cores with exactly the `need`."""
    WHOLE_CORES = "whole-cores"
    """Idle cores, from the NUMA nodes (`nodes`) with the fewest free CPUs first; `following` is the next."""
    NO_IDLE_CORE = "no-idle-core"
    SINGLE_CPUS = "single-cpus"
    """The `need`, from cores with the fewest free CPUs first; `in_part`: some cores are in use in part.
    `following` are the free CPUs of the core that comes next."""
    SPREAD_BY_ID = "spread-by-id"
    """CPUs by id, whatever their cores (distribute-cpus-across-cores), from `nodes`."""
    SPREAD_IN_TURN = "spread-in-turn"
    """A CPU of every core in turn (from 1.38), cores in use in part first, from `nodes`."""
    DISTRIBUTED = "distributed"
    """Evenly over the `nodes` that give CPUs (distribute-cpus-across-numa): of all choices the one that
    leaves the most even rest."""
    MIXED_UP_NODES = "mixed-up-nodes"
    """With `need` nodes chosen, kubelets before 1.38 replace some of them (kubernetes#141238)."""
    NOT_DISTRIBUTED = "not-distributed"
    """No number of NUMA nodes can share evenly: packed instead."""
    LOWEST_IDS = "lowest-ids"
    """The lowest ids: the release's own algorithm comes to no valid set."""


class NodeShare(NamedTuple):
    """A NUMA node (the mask of its CPUs), how many of these were free before, and how many were taken."""

    node: int
    free: int
    taken: int


@dataclass(frozen=True, slots=True)
class PickerStep:
    """One step of a pick. Sets of CPUs are masks; which values are set depends on `why`.

    `level` is "distribute", "numa node", "socket", "l3", "core", "cpu", "spread" or "pick".
    """

    level: str
    why: Why
    cpus: int = 0
    """The CPUs taken, 0 if none."""
    need: int = 0
    """Number of CPUs that were missing before the step."""
    unit: int = 0
    free: int = 0
    """The number of free CPUs in `unit` before the step."""
    smallest: int = 0
    following: int = 0
    in_part: bool = False
    nodes: tuple[NodeShare, ...] = ()
    """The NUMA nodes that had free CPUs."""


class PickerReporter:
    """Receiver of a picker's reports; the hooks are empty."""

    def starting_over(self) -> None:
        """Discard what was reported so far: the pick starts again."""

    def step(self, step: PickerStep) -> None:
        """Take note of a step."""


SILENT: Final = PickerReporter()


@dataclass(slots=True)
class PickerSteps(PickerReporter):
    """Keep the steps of the pick that counts; their `cpus` together are the CPUs picked."""

    steps: list[PickerStep] = field(default_factory=list)

    def starting_over(self) -> None:
        self.steps.clear()

    def step(self, step: PickerStep) -> None:
        self.steps.append(step)


def shares(nodes: list[int], free: int, taken: int) -> tuple[NodeShare, ...]:
    """The NUMA nodes (masks) that had some of the `free` CPUs, with what was taken from each."""
    return tuple(
        NodeShare(node, (node & free).bit_count(), (node & taken).bit_count())
        for node in nodes
        if node & free
    )


class ReportingAccumulator(Accumulator):
    """The accumulator, reporting what each of its stages claims."""

    __slots__ = ("claims", "reporter")

    quick = False

    def __init__(self, topology: Topology, free: int, need: int, node: int, reporter: PickerReporter) -> None:
        super().__init__(topology, free, need, node)
        self.claims: list[tuple[int, int]] = []
        """The CPUs of each claim, and how many were missing before it."""
        self.reporter = reporter

    def claim(self, cpus: int, size: int) -> None:
        self.claims.append((cpus, self.need))
        super().claim(cpus, size)

    def claimed(self, since: int) -> int:
        """The CPUs of all claims but the first so many."""
        return reduce(or_, (cpus for cpus, _ in self.claims[since:]), 0)

    def node_shares(self, free: int, taken: int) -> tuple[NodeShare, ...]:
        return shares([*self.topology.numa], free, taken)

    def whole(self, level: str, units: Sequence[int], *, average: int = 0) -> None:
        before, need = len(self.claims), self.need
        super().whole(level, units, average=average)
        for unit, missing in self.claims[before:]:
            self.reporter.step(PickerStep(level, Why.WHOLE_UNIT, unit, missing, unit))
        if len(self.claims) == before:
            smallest = min((unit.bit_count() for unit in units), default=0)
            self.reporter.step(PickerStep(level, Why.NO_WHOLE_UNIT, need=need, smallest=smallest))

    def caches(self) -> None:
        before, need = len(self.claims), self.need
        super().caches()
        if len(self.claims) == before:
            self.reporter.step(PickerStep("l3", Why.NO_CACHE_FITS, need=need))

    def part_of_cache(self, free: int) -> None:
        before, need = len(self.claims), self.need
        super().part_of_cache(free)
        if cpus := self.claimed(before):
            unit = next(cache for cache in self.topology.uncore if cache & cpus)
            self.reporter.step(PickerStep("l3", Why.FITS_CACHE, cpus, need, unit, free.bit_count()))

    def whole_cores(self, averaged: bool) -> None:
        before, free, need, places = len(self.claims), self.free, self.need, [*self.places()]
        super().whole_cores(averaged)
        idle = reduce(or_, (cores for cores, _ in full_cores(self.topology, free, averaged)), 0)
        if cpus := self.claimed(before):
            rest = (idle & place & ~cpus for place in places)
            following = next((self.topology.threads_of(cores & -cores) for cores in rest if cores), 0)
            nodes = self.node_shares(free, cpus)
            self.reporter.step(
                PickerStep("core", Why.WHOLE_CORES, cpus, need, following=following, nodes=nodes)
            )
        elif not idle:
            self.reporter.step(PickerStep("core", Why.NO_IDLE_CORE, need=need))

    def single_by_core(self) -> None:
        topology, before, free, need, places = (
            self.topology,
            len(self.claims),
            self.free,
            self.need,
            [*self.places()],
        )
        super().single_by_core()
        cpus = self.claimed(before)
        others = free & ~topology.whole_cores(cpus)
        rest = (cores & place for place in places for cores in by_free_threads(topology, others))
        following = next((topology.threads_of(cores & -cores) & free for cores in rest if cores), 0)
        in_part = bool(topology.whole_cores(free) & ~free)
        step = PickerStep("cpu", Why.SINGLE_CPUS, cpus, need, following=following, in_part=in_part)
        self.reporter.step(step)

    def single_by_socket(self, rounds: bool) -> None:
        before, free, need = len(self.claims), self.free, self.need
        super().single_by_socket(rounds)
        cpus = self.claimed(before)
        why = Why.SPREAD_IN_TURN if rounds else Why.SPREAD_BY_ID
        self.reporter.step(PickerStep("spread", why, cpus, need, nodes=self.node_shares(free, cpus)))
