"""The picker's steps in words: the kubelet's algorithm once more, slowly, saying what it takes and why.

`placement` answers fast and says nothing; this walks the same way (upstream's `cpu_assignment.go`, as in
`placement.accumulator`), and tests hold the two to the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from corelane.cpuset import bits, format_list, named
from corelane.machine.model import Machine
from corelane.node.explain.explanation import Step
from corelane.placement.kubelet import picker
from corelane.placement.kubelet.picker import Sizes, Strategy
from corelane.placement.topology import Topology, node_order

__all__ = ["explain"]

ALIASED = (4, 6, 7, 8)
"""So many NUMA nodes, once chosen, are partly forgotten before 1.38 (kubernetes#141238)."""


def explain(
    machine: Machine,
    topology: Topology,
    available: int,
    n: int,
    strategy: Strategy,
    *,
    exact: bool,
    hinted: int = 0,
) -> tuple[int, list[Step]]:
    """The mask that `kubelet.take` (with `exact`, else `take_valid`) picks, and the steps that lead to it.

    Raises NotEnoughCPUs as these do.
    """
    take = picker.take if exact else picker.take_valid
    taken = take(topology, available, n, strategy, hinted=hinted)
    averaged: Sizes = "average" if strategy.version == "1.36" else "cores"
    places, available = _Places(machine, topology), available & topology.all
    for sizes in (averaged, "real"):
        walk = _Walk(places, available, n, strategy, sizes)
        walk.distribute(taken) if strategy.distribute else walk.pack(uncore=strategy.uncore)
        if walk.taken == taken:
            return taken, walk.steps
    return taken, [Step("pick", named(taken), format_list(taken))]


class _Places:
    """A topology's units by name."""

    __slots__ = ("names", "topology")

    def __init__(self, machine: Machine, topology: Topology) -> None:
        self.topology = topology
        tables = (
            ("L3", machine.l3_masks),
            ("NUMA node", machine.numa_masks),
            ("socket", machine.socket_masks),
        )
        self.names: dict[tuple[str, int], str] = {
            (kind, mask & topology.all): f"{kind} {number}"
            for kind, table in tables
            for number, mask in table
        }

    def name(self, kind: str, unit: int) -> str:
        return self.names.get((kind, unit), f"{kind} of {named(unit)}")

    def cores(self, unit: int) -> list[int]:
        """The cores, as masks, whose lowest CPU is in a unit."""
        topology = self.topology
        return [topology.threads_of(1 << lead) for lead in bits(topology.cores_of(topology.all) & unit)]


def _counted(units: Iterable[int], free: int) -> list[int]:
    """Units by free CPUs, fewest first, then as they come."""
    return sorted(units, key=lambda unit: (unit & free).bit_count())


@dataclass(slots=True)
class _Walk:
    """The picker on its way: what is free and still needed, what it took, and what it said."""

    places: _Places
    free: int
    need: int
    strategy: Strategy
    sizes: Sizes
    taken: int = 0
    steps: list[Step] = field(default_factory=list)

    @property
    def topology(self) -> Topology:
        return self.places.topology

    def say(self, step: str, text: str, cpus: int = 0) -> None:
        self.steps.append(Step(step, text, format_list(cpus)))

    def claim(self, cpus: int) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()

    # Even distribution, whose shares show in what came out.

    def distribute(self, taken: int) -> None:
        nodes = node_order(self.topology, self.free)
        shares = {node: (node & taken).bit_count() for node in nodes}
        given = [share for share in shares.values() if share]
        packed = replace(self, steps=[])
        packed.pack()
        alike = not given or max(given) - min(given) <= self.strategy.group
        if len(nodes) == 1 or (packed.taken == taken and not alike):
            self.say_packed(len(nodes))
            self.pack()
            return
        self.say_shares(shares)
        for node, share in shares.items():
            if share:
                self.within(node, share, node & taken)

    def say_packed(self, nodes: int) -> None:
        if nodes > 1:
            self.say("distribute", "no number of NUMA nodes can share evenly: packed instead")

    def say_shares(self, shares: dict[int, int]) -> None:
        name = self.places.name
        given = ", ".join(f"{name('NUMA node', node)}: {share}" for node, share in shares.items() if share)
        free = ", ".join(f"{name('NUMA node', node)}: {(node & self.free).bit_count()}" for node in shares)
        few = sum(1 for share in shares.values() if share)
        nodes = "one NUMA node holds it" if few == 1 else f"evenly over {few} NUMA nodes"
        text = f"{nodes}, {given}: of the choices that leaves the most even rest (free before: {free})"
        self.say("distribute", text)
        if few in ALIASED and self.strategy.version != "1.38":
            self.say("distribute", f"taking {few} nodes, kubelets before 1.38 mix up some of them (#141238)")

    def within(self, node: int, n: int, taken: int) -> None:
        """N CPUs of one node, its own steps among ours."""
        inner = _Walk(self.places, node & self.free, n, self.strategy, self.sizes)
        inner.pack()
        if inner.taken == taken:
            self.steps += [step for step in inner.steps if step.cpus]
        else:
            self.say("node", f"{_many(n, 'CPU')} of {self.places.name('NUMA node', node)}", taken)
        self.claim(taken)

    # Packing.

    def pack(self, *, uncore: bool = False) -> None:
        if self.need < 1:
            return
        self.whole_units()
        if uncore and self.need > 0:
            self.caches()
        if not self.strategy.spread and self.need > 0:
            self.whole_cores()
        if self.need > 0:
            self.spread() if self.strategy.spread else self.threads()

    def whole_units(self) -> None:
        topology = self.topology
        kinds = ("NUMA node", "socket") if topology.numa_first else ("socket", "NUMA node")
        self.whole(kinds[0], _counted(topology.first, self.free))
        if self.need > 0:
            self.whole(kinds[1], list(self.nested()))

    def nested(self) -> Iterator[int]:
        """The units of the second kind with free CPUs, those of the fullest outer unit first."""
        free = self.free
        for outer in _counted(self.topology.first, free):
            for unit in _counted(self.topology.inner[outer], free):
                if unit & outer & free:
                    yield unit

    def whole(self, kind: str, order: Sequence[int]) -> None:
        free, need = self.free, self.need
        average = self.topology.cpus_per_socket if kind == "socket" and self.sizes != "real" else 0
        for unit in order:
            size = unit.bit_count()
            if self.need >= size and (unit & free).bit_count() == (average or size):
                name = self.places.name(kind, unit)
                self.say(
                    kind.lower(), f"all of {name}: idle, and no larger than the {self.need} needed", unit
                )
                self.claim(unit)
        if self.need == need:
            self.say(kind.lower(), self.why_none(kind, order, free))

    def why_none(self, kind: str, order: Sequence[int], free: int) -> str:
        smallest = min((unit.bit_count() for unit in order), default=0)
        if smallest > self.need:
            return f"no whole {kind}: the smallest has {smallest} CPUs, {self.need} are needed"
        return f"no whole {kind}: none is both idle and no larger than the {self.need} needed"

    def caches(self) -> None:
        order = list(self.cache_order())
        before = self.need
        if self.need >= self.topology.cpus_per_uncore:
            self.whole("L3", order)
        for cache in order:
            if self.need < 1:
                break
            if cpus := self.part_of_cache(cache):
                name = self.places.name("L3", cache)
                free = (cache & self.free).bit_count()
                self.say("l3", f"the {self.need} still needed fit into {name} ({free} free)", cpus)
                self.claim(cpus)
        if self.need == before:
            self.say("l3", f"no L3 domain has cores with exactly {self.need} free CPUs")

    def cache_order(self) -> Iterator[int]:
        free = self.free
        for node in node_order(self.topology, free):
            for cache in _counted(self.topology.caches[node], free):
                if cache & node & free:
                    yield cache

    def part_of_cache(self, cache: int) -> int:
        """Exactly what is needed from the lowest cores with free CPUs in a cache, or nothing."""
        threads, need = self.topology.cpus_per_core, self.need
        if (cache & self.free).bit_count() < need:
            return 0
        leads = self.topology.cores_of(cache & self.free)
        cores = [self.topology.threads_of(1 << lead) for lead in bits(leads)][: -(-need // threads)]
        cpus = sum(cores) & self.free
        if need % 2 and threads > 1 and cpus.bit_count() > need:
            cpus ^= 1 << cpus.bit_length() - 1
        return cpus if cpus.bit_count() == need else 0

    def core_order(self) -> list[int]:
        """Cores with free CPUs: unit by unit, in each those with the fewest free threads first."""
        free = self.free
        return [
            core for unit in self.nested() for core in _counted(self.places.cores(unit), free) if core & free
        ]

    def whole_cores(self) -> None:
        order, free, claimed = self.core_order(), self.free, 0
        idle = [core for core in order if self.is_idle(core, free)]
        for core in idle:
            if self.need >= core.bit_count():
                claimed |= core
                self.claim(core)
        if claimed:
            rest = [core for core in idle if not core & claimed]
            self.say("core", f"whole cores, from {self.where(claimed, free)}{_next('core', rest)}", claimed)
        elif not idle:
            self.say("core", "no core is idle")

    def is_idle(self, core: int, free: int) -> bool:
        size = self.topology.cpus_per_core if self.sizes == "average" else core.bit_count()
        return (core & free).bit_count() == size

    def threads(self) -> None:
        """Single CPUs, from the cores with the fewest free threads."""
        free, order = self.free, self.core_order()
        wanted, claimed = self.need, 0
        for core in order:
            for cpu in bits(core & free):
                if self.need > 0:
                    claimed |= 1 << cpu
                    self.claim(1 << cpu)
        rest = [core & self.free for core in order if core & self.free and not core & claimed]
        part = any(core & ~free for core in order)
        how = "cores in part use first" if part else "every core with free threads is idle: the lowest one"
        self.say("cpu", f"{_many(wanted, 'single CPU')}, {how}{_next('CPUs', rest)}", claimed)

    def spread(self) -> None:
        """CPUs by id, or from 1.38 of every core in turn, socket after socket."""
        free, claimed = self.free, 0
        rounds = self.strategy.version == "1.38"
        order = list(self.nested()) if self.topology.numa_first else _counted(self.topology.first, free)
        for socket in order:
            for cpu in self.in_turn(socket, free) if rounds else bits(socket & free):
                if self.need > 0:
                    claimed |= 1 << cpu
                    self.claim(1 << cpu)
        how = "every core in turn, those in part use first" if rounds else "CPUs by id, whatever their cores"
        self.say("spread", f"{how}, from {self.where(claimed, free)}", claimed)

    def in_turn(self, socket: int, free: int) -> Iterator[int]:
        order = _counted(self.places.cores(socket), free)
        cores = [list(bits(core & free)) for core in order if core & free]
        for threads in zip_longest(*cores):
            yield from (cpu for cpu in threads if cpu is not None)

    def where(self, claimed: int, free: int) -> str:
        """The nodes that CPUs were taken from, and why these came first."""
        nodes = [node for node in self.topology.numa if node & claimed]
        named = ", ".join(self.places.name("NUMA node", node) for node in nodes)
        others = [node for node in self.topology.numa if node & free and not node & claimed]
        if not others:
            return named
        counts = ", ".join(
            f"{self.places.name('NUMA node', node)} has {(node & free).bit_count()}"
            for node in (*nodes, *others)
        )
        return f"{named} (fewest free CPUs first: {counts})"


def _next(kind: str, rest: Sequence[int]) -> str:
    return f"; next in line: {kind} {format_list(rest[0])}" if rest else ""


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
