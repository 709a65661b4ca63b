"""The picker's steps: what it takes at each level of the machine, and why, as plain values.

A picker reports to a `PickerReporter`, whose hooks are empty; `PickerSteps` keeps what is reported. `SILENT`
costs nothing: only with another reporter does the accumulator run that observes its own claims.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from corelane.placement.kubelet.accumulator import Accumulator, by_free_threads, full_cores
from corelane.placement.topology import Topology


class Why(StrEnum):
    """Why a step took these CPUs, or none; each names the values of `PickerStep` that it uses."""

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
    """How many CPUs were missing before the step."""
    unit: int = 0
    free: int = 0
    """The number of free CPUs in `unit` before the step."""
    smallest: int = 0
    following: int = 0
    in_part: bool = False
    nodes: tuple[NodeShare, ...] = ()
    """The NUMA nodes that had free CPUs."""


class PickerReporter:
    """What a picker reports to; the hooks are empty."""

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
