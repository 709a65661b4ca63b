"""Inside one L3 domain: what it costs to take so many CPUs, told from how many cores of each kind there are.

Cores of a kind differ only in their ids. For a number of CPUs the cheapest way of taking them from a domain
does not depend on the rest of the choice, so it is worked out once for each make-up of a domain, and kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from corelane.placement.optimal.score import Layout

__all__ = ["Kind", "Rules", "Table", "portions", "rules"]

_KEPT = 20_000
"""How many make-ups of domains are remembered for one set of rules."""


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
    """How cores may and should be used; with the tables of all make-ups of domains met so far."""

    spread: bool
    required: bool
    sizes: tuple[int, ...]
    layout: Layout
    tables: dict[tuple[object, ...], "Table"] = field(default_factory=dict)
    rooms: list[int] = field(default_factory=lambda: [0])

    def room(self, cpus: int) -> int:
        """For how many requests of the demand profile so many CPUs in whole free cores are good (term 9)."""
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

    def table(self, kinds: tuple[Kind, ...], counts: tuple[int, ...], whole: int) -> "Table":
        """The table of a domain with so many cores of these kinds and so many CPUs in whole free cores."""
        key = (kinds, counts, whole)
        known = self.tables.get(key)
        if known is None:
            if len(self.tables) > _KEPT:
                self.tables.clear()
            known = self.tables[key] = Table(self, kinds, counts, whole)
        return known


@lru_cache(maxsize=256)
def rules(spread: bool, required: bool, sizes: tuple[int, ...], layout: Layout) -> Rules:
    """The rules of a demand, the same object for the same rules."""
    return Rules(spread, required, sizes, layout)


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


class Table:
    """What a domain of one make-up can give: per number of CPUs the (broken, score) worth considering.

    `broken` counts the CPUs of whole free cores that are whole no more. The score has everything that is
    decided inside the domain but what it costs to touch it at all.
    """

    __slots__ = ("_best", "counts", "kinds", "limits", "most", "rows", "rules", "whole")

    def __init__(self, rules: Rules, kinds: tuple[Kind, ...], counts: tuple[int, ...], whole: int) -> None:
        self.rules, self.kinds, self.counts, self.whole = rules, kinds, counts, whole
        limits = [rules.most(kind, count) for kind, count in zip(kinds, counts, strict=True)]
        self.limits = [sum(limits[i:]) for i in range(len(limits) + 1)]
        self.most = self.limits[0]
        self.rows: list[tuple[tuple[int, int], ...] | None] = [None] * (self.most + 1)
        self._best: dict[tuple[int, int], tuple[int, int] | None] = {}

    def row(self, cpus: int) -> tuple[tuple[int, int], ...]:
        """The (broken, score) for taking so many CPUs, at most `most`; empty where the rules allow none."""
        found = self.rows[cpus]
        if found is None:
            found = self.rows[cpus] = tuple(self._row(cpus))
        return found

    def _row(self, cpus: int) -> Iterator[tuple[int, int]]:
        best = self.best(0, cpus)
        if best is None:
            return
        score, breaks = best
        fewest = (breaks & -breaks).bit_length() - 1
        least = self.loss(fewest)
        for broken in range(fewest, breaks.bit_length()):
            if breaks >> broken & 1 and self.loss(broken) == least:
                yield broken, score + least

    def loss(self, broken: int) -> int:
        """By how much the room left in the domain shrinks."""
        return self.rules.room(self.whole) - self.rules.room(self.whole - broken)

    def best(self, kind: int, cpus: int) -> tuple[int, int] | None:
        """The best score of so many CPUs from this kind and those after it, and the set of its `broken`."""
        if kind == len(self.kinds):
            return None if cpus else (0, 1)
        key = (kind, cpus)
        if key not in self._best:
            self._best[key] = self._cheapest(kind, cpus)
        return self._best[key]

    def _cheapest(self, kind: int, cpus: int) -> tuple[int, int] | None:
        score, breaks = -1, 0
        for _, rest, portion in self.splits(kind, cpus):
            found = self.best(kind + 1, rest)
            if found is None:
                continue
            total = portion.score + found[0]
            if score < 0 or total < score:
                score, breaks = total, 0
            if total == score:
                breaks |= found[1] << portion.broken
        return None if score < 0 else (score, breaks)

    def splits(self, kind: int, cpus: int) -> Iterator[tuple[int, int, Portion]]:
        """Every (CPUs of this kind, CPUs of the kinds after it, portion)."""
        own, rest = self.limits[kind] - self.limits[kind + 1], self.limits[kind + 1]
        for mine in range(max(0, cpus - rest), min(cpus, own) + 1):
            for portion in portions(self.rules, self.kinds[kind], self.counts[kind], mine):
                yield mine, cpus - mine, portion
