"""In which order the entities of a queue run: least virtual time first, or EEVDF (6.6 and later).

An entity is a thread, or a group's queue in the queue above. Its virtual time passes the faster, the smaller
its weight; lag is by how much it is behind the weighted average of its queue. EEVDF runs, of those that are
not ahead of the average, the one with the earliest deadline, one slice after the last; an entity that was
picked is not preempted before its deadline unless it is ahead. Lag outlives a sleep, but what an entity
was ahead is made up for by what the others run meanwhile. Source: pick_eevdf, place_entity,
update_entity_lag, delayed dequeue in kernel/sched/fair.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol, TypeVar

NICE_0: Final = 1024
"""The weight of a thread, and of a group with the shares of one CPU."""


class Entity(Protocol):
    """Times are virtual, in ns at the weight of a thread; `parted` is the average when it left its queue."""

    vruntime: float
    deadline: float
    protected: float
    lag: float
    parted: float
    weight: float


_Entity = TypeVar("_Entity", bound=Entity)


def average(ready: Sequence[Entity], otherwise: float) -> float:
    """Return the weighted average of virtual times."""
    if len(ready) < 2:
        return ready[0].vruntime if ready else otherwise
    total = sum(entity.weight for entity in ready)
    least = ready[0].vruntime
    return least + sum((entity.vruntime - least) * entity.weight for entity in ready) / total


@dataclass(frozen=True, slots=True)
class Turns:
    """A kernel's order. Times in ns.

    `slice_ns` is how long an entity runs before another gets its turn, `head_start_ns` how far behind the
    running one an entity is added at most, before EEVDF.
    """

    eevdf: bool
    slice_ns: int
    head_start_ns: int
    tick_ns: int
    weighted: bool = True
    """Whether groups have others beside them, so that weights matter."""

    def join(self, ready: Sequence[Entity], entity: Entity, floor: float) -> float:
        """Set the times of an entity that is about to join; return the average, or the floor before EEVDF."""
        if not self.eevdf:
            entity.vruntime = max(entity.vruntime, floor - self.head_start_ns)
            return floor
        now = average(ready, floor)
        lag = entity.lag
        if lag < 0:
            lag = min(lag + max(now - entity.parted, 0.0), 0.0)
        entity.vruntime = now
        if ready:
            total = sum(other.weight for other in ready)
            entity.vruntime -= lag * (total + entity.weight) / total
            if len(ready) == 1:
                # While it ran alone ticks have set its deadline again and again.
                ready[0].deadline = ready[0].vruntime + self._virtual(self.slice_ns, ready[0])
        entity.deadline = entity.vruntime + self._virtual(self.slice_ns, entity)
        return now

    def part(self, ready: Sequence[Entity], entity: Entity, floor: float) -> float:
        """Note the lag of an entity that is about to leave; return the average, or the floor before EEVDF."""
        if not self.eevdf:
            return floor
        now = average(ready, floor)
        most = self._virtual(max(2 * self.slice_ns, self.tick_ns), entity)
        entity.lag = min(max(now - entity.vruntime, -most), most)
        entity.parted = now
        return now

    def charge(self, entity: Entity, ran_ns: int) -> None:
        entity.vruntime += self._virtual(ran_ns, entity)

    def ends(self, entity: Entity) -> bool:
        """Whether the running entity has used up its slice; the next one begins then (update_deadline)."""
        if entity.vruntime < entity.deadline:
            return False
        entity.deadline = entity.vruntime + self._virtual(self.slice_ns, entity)
        return True

    def left_ns(self, entity: Entity) -> int:
        """Return for how long the running entity runs before its slice ends."""
        return max(int((entity.deadline - entity.vruntime) * entity.weight / NICE_0) + 1, 0)

    def reweigh(self, ready: Sequence[Entity], entity: Entity, weight: float) -> None:
        """Change the weight of an entity that is ready, and leave its lag as it is."""
        if self.eevdf and len(ready) > 1:
            now, scale = average(ready, 0.0), entity.weight / weight
            behind, ahead = now - entity.vruntime, entity.deadline - entity.vruntime
            entity.vruntime = now - behind * scale
            entity.deadline = entity.vruntime + ahead * scale
        entity.weight = weight

    def choose(self, ready: Sequence[_Entity], running: _Entity | None) -> _Entity:
        """Return the entity that runs next."""
        if len(ready) == 1:
            return ready[0]
        if not self.eevdf:
            return min(ready, key=attrgetter("vruntime"))
        now = average(ready, 0.0)
        # RUN_TO_PARITY: until its slice ends, unless it is ahead.
        stays = running is not None and running.vruntime <= now and running.vruntime < running.protected
        if running is not None and stays and running in ready:
            return running
        eligible = [entity for entity in ready if entity.vruntime <= now]
        return min(eligible or ready, key=attrgetter("deadline" if eligible else "vruntime"))

    @staticmethod
    def _virtual(ns: int, entity: Entity) -> float:
        return ns * NICE_0 / entity.weight


# Load that is remembered, and by which a group's shares are spread over CPUs (kernel/sched/pelt.c).
#
# A queue's load follows the weight of what is queued with a half-life of 33.6 ms, so that a CPU on which a
# group's threads sleep keeps some of the group's shares for a while.


HALF_LIFE_NS: Final = 32 << 20
"""32 windows of 1024 * 1024 ns."""
SUMMED_EVERY_NS: Final = 1_000_000
"""Least interval at which the loads of a group's queues are summed up (update_tg_load_avg)."""


class Load:
    """The average over time of the weight that is queued, by a clock in ns that may stop."""

    __slots__ = ("_at", "average", "queued", "reported")

    def __init__(self, clock_ns: int, average: float = 0.0, queued: float = 0.0) -> None:
        self._at, self.average, self.queued, self.reported = clock_ns, average, queued, 0.0

    def update(self, clock_ns: int) -> float:
        """Return the average at this moment."""
        passed = clock_ns - self._at
        if passed > 0:
            self._at = clock_ns
            self.average = self.queued + (self.average - self.queued) * 0.5 ** (passed / HALF_LIFE_NS)
        return self.average

    def change(self, clock_ns: int, weight: float) -> None:
        """Add what is queued from now on; negative for what no longer is."""
        self.update(clock_ns)
        self.queued = max(self.queued + weight, 0.0)

    def report(self, clock_ns: int) -> float:
        """Return the average as the part of the group's sum that is this queue's."""
        self.reported = self.update(clock_ns)
        return self.reported

    def carry(self, clock_ns: int) -> None:
        """Go on by the clock of another queue."""
        self._at = clock_ns
