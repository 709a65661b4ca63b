"""How cores may and should be used: kinds of cores, and the best ways to take CPUs from cores of one kind."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from corelane.placement.optimal.score import Layout, layout

__all__ = ["Kind", "Portion", "Rules", "portions", "rules"]


class Kind(NamedTuple):
    """What makes cores alike: threads, usable ones, whether all are free, and the score of touching one."""

    size: int
    usable: int
    whole: bool
    cost: int = 0


class Portion(NamedTuple):
    """CPUs from cores of one kind: score, CPUs of whole free cores that are whole no more, cores touched."""

    score: int
    broken: int
    cores: int


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """How cores may and should be used."""

    spread: bool
    required: bool
    sizes: tuple[int, ...]
    layout: Layout
    rooms: list[int] = field(default_factory=lambda: [0])

    def room(self, cpus: int) -> int:
        """For how many requests of the demand profile so many CPUs in whole free cores are good (term 9).

        `rooms` then has it for all numbers up to this one.
        """
        rooms = self.rooms
        while len(rooms) <= cpus:
            rooms.append(sum(len(rooms) // size for size in self.sizes))
        return rooms[cpus]

    def most(self, kind: Kind, count: int) -> int:
        """The most CPUs that so many cores of a kind can give."""
        if not self.required:
            return count * kind.usable
        if self.spread:
            return count if kind.usable else 0
        return count * kind.size if kind.usable == kind.size else 0


@lru_cache(maxsize=256)
def rules(
    spread: bool, required: bool, sizes: tuple[int, ...], exclusive: bool, affinity: bool, strategy: bool
) -> Rules:
    """The rules of a demand, the same object for the same; the last three say which terms are in play."""
    return Rules(spread, required, sizes, layout(exclusive=exclusive, affinity=affinity, strategy=strategy))


def portions(rules: Rules, kind: Kind, count: int, cpus: int) -> Iterator[Portion]:
    """The ways to take CPUs from cores of one kind that break the bind policy in the fewest cores.

    More than one where touching more cores breaks no more of them; those that only score worse are left out.
    """
    if not cpus:
        yield Portion(0, 0, 0)
    elif rules.spread:
        yield from _spread(rules, kind, count, cpus)
    else:
        yield from _packed(rules, kind, cpus)


def _portion(rules: Rules, kind: Kind, cores: int, against: int) -> Portion:
    score = against * rules.layout.bind + cores * kind.cost
    return Portion(score, cores * kind.size if kind.whole else 0, cores)


def _packed(rules: Rules, kind: Kind, cpus: int) -> Iterator[Portion]:
    """The fewest cores: of those wholly usable all but one are wholly taken."""
    cores = -(-cpus // kind.usable)
    entire = kind.usable == kind.size
    if not entire or cpus % kind.size:
        if not rules.required:
            yield _portion(rules, kind, cores, 1 if entire else cores)
    else:
        yield _portion(rules, kind, cores, 0)


def _spread(rules: Rules, kind: Kind, count: int, cpus: int) -> Iterator[Portion]:
    """One CPU of each core; with more CPUs than cores, the fewest cores that give more than one."""
    if cpus <= count:
        yield _portion(rules, kind, cpus, 0)
    elif not rules.required:
        doubled = -(-(cpus - count) // (kind.usable - 1))
        fewest = max(doubled, cpus - doubled * (kind.usable - 1))
        for cores in range(fewest, (fewest if kind.cost else count) + 1):
            yield _portion(rules, kind, cores, doubled)
