"""Inside one L3 domain: what it costs to take so many CPUs, told from how many cores of each kind there are.

Cores of a kind differ only in their ids. For a number of CPUs the cheapest way of taking them from a domain
does not depend on the rest of the choice, so it is worked out once for each make-up of a domain, and kept.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from corelane.placement.optimal.cores import Kind, Portion, Rules, portions

__all__ = ["BITS", "MASK", "PAIRS", "Part", "Row", "Table", "Tables", "tables", "tables_of_pairs"]

BITS: Final = 20
MASK: Final = (1 << BITS) - 1

PAIRS: Final = (Kind(2, 1, False), Kind(2, 2, True))
"""The kinds of cores on a machine with two threads everywhere, when nothing about single cores is asked."""
_KEPT = 5_000

Row = tuple[tuple[int, int], ...]
"""The (CPUs << BITS | broken, score) worth considering for a number of CPUs.

`broken` counts the CPUs of whole free cores that are whole no more. The score has everything that is decided
inside the domain but what it costs to touch it at all. More broken CPUs can be better in their ids only.
"""

Part = tuple[int, int, int]
"""A position of a kind, CPUs taken from its cores, and how many of its cores give them."""


class Table:
    """What a domain can give, from its CPUs in whole free cores and its number of cores of each kind."""

    __slots__ = ("_best", "_ways", "counts", "kinds", "limits", "most", "rows", "rules", "whole")

    def __init__(self, rules: Rules, kinds: tuple[Kind, ...], counts: tuple[int, ...]) -> None:
        self.rules, self.kinds = rules, kinds
        self.whole, *self.counts = counts
        rules.room(self.whole)
        limits = [rules.most(kind, count) for kind, count in zip(kinds, self.counts, strict=True)]
        self.limits = [sum(limits[i:]) for i in range(len(limits) + 1)]
        self.most = self.limits[0]
        self.rows: list[Row | None] = [None] * (self.most + 1)
        self._best: dict[tuple[int, int], tuple[int, int] | None] = {}
        self._ways: dict[int, tuple[tuple[Part, ...], ...]] = {}

    def row(self, cpus: int) -> Row:
        """What it costs to take so many CPUs, at most `most`; empty where the rules allow it in no way."""
        found = self.rows[cpus]
        if found is None:
            found = self.rows[cpus] = tuple(
                [(cpus << BITS | broken, cost) for broken, cost in self._row(cpus)]
            )
        return found

    def ways(self, taken: int) -> tuple[tuple[Part, ...], ...]:
        """From which kinds the CPUs of an entry come; equally good ways differ in ids only."""
        found = self._ways.get(taken)
        if found is None:
            found = self._ways[taken] = tuple(self._split_up(0, taken >> BITS, taken & MASK))
        return found

    def loss(self, broken: int) -> int:
        """By how much the room left in the domain shrinks."""
        rooms = self.rules.rooms
        return rooms[self.whole] - rooms[self.whole - broken]

    def _row(self, cpus: int) -> Iterator[tuple[int, int]]:
        best = self._cheapest(0, cpus)
        if best is None:
            return
        score, breaks = best
        fewest = (breaks & -breaks).bit_length() - 1
        least = self.loss(fewest)
        for broken in range(fewest, breaks.bit_length()):
            if breaks >> broken & 1 and self.loss(broken) == least:
                yield broken, score + least

    def _cheapest(self, kind: int, cpus: int) -> tuple[int, int] | None:
        """The best score of so many CPUs from this kind and those after it, and the set of its `broken`."""
        if kind == len(self.kinds):
            return None if cpus else (0, 1)
        key = (kind, cpus)
        if key not in self._best:
            self._best[key] = self._compared(kind, cpus)
        return self._best[key]

    def _compared(self, kind: int, cpus: int) -> tuple[int, int] | None:
        score, breaks = -1, 0
        for _, rest, portion in self._splits(kind, cpus):
            found = self._cheapest(kind + 1, rest)
            if found is None:
                continue
            total = portion.score + found[0]
            if score < 0 or total < score:
                score, breaks = total, 0
            if total == score:
                breaks |= found[1] << portion.broken
        return None if score < 0 else (score, breaks)

    def _splits(self, kind: int, cpus: int) -> Iterator[tuple[int, int, Portion]]:
        """Every (CPUs of this kind, CPUs of the kinds after it, portion)."""
        own, rest = self.limits[kind] - self.limits[kind + 1], self.limits[kind + 1]
        for mine in range(max(0, cpus - rest), min(cpus, own) + 1):
            for portion in portions(self.rules, self.kinds[kind], self.counts[kind], mine):
                yield mine, cpus - mine, portion

    def _split_up(self, kind: int, cpus: int, broken: int) -> Iterator[tuple[Part, ...]]:
        best = self._cheapest(kind, cpus)
        if best is None or not best[1] >> broken & 1:
            return
        if kind == len(self.kinds):
            yield ()
            return
        for own, rest, portion in self._splits(kind, cpus):
            after, left = self._cheapest(kind + 1, rest), broken - portion.broken
            if after is not None and left >= 0 and portion.score + after[0] == best[0]:
                part = ((kind, own, portion.cores),) if own else ()
                yield from (part + parts for parts in self._split_up(kind + 1, rest, left))


class _PairTable(Table):
    """The same for PAIRS whose threads are to stay together, told without trying every split.

    Of n CPUs as many as can be are pairs. The others, of which a core each is broken, come from half-free
    cores as far as there are any: taken from whole ones, as well, they would break more.
    """

    __slots__ = ()

    def _row(self, cpus: int) -> Iterator[tuple[int, int]]:
        halves, wholes = self.counts
        single = max(cpus - 2 * wholes, cpus & 1)
        if single and self.rules.required:
            return
        pairs, score = (cpus - single) // 2, single * self.rules.layout.bind
        fewest = max(0, single - halves)
        least = self.loss(2 * (pairs + fewest))
        for split in range(fewest, min(single, wholes - pairs) + 1):
            broken = 2 * (pairs + split)
            if self.loss(broken) == least:
                yield broken, score + least

    def _split_up(self, kind: int, cpus: int, broken: int) -> Iterator[tuple[Part, ...]]:
        single = max(cpus - 2 * self.counts[1], cpus & 1)
        half = single - (broken - (cpus - single)) // 2
        parts = (0, half, half), (1, cpus - half, broken // 2)
        yield tuple(part for part in parts if part[1])


class Tables:
    """The tables of one set of rules and kinds met so far; `each` is the most CPUs of a core of each kind."""

    def __init__(self, rules: Rules, kinds: tuple[Kind, ...]) -> None:
        self.rules, self.kinds = rules, PAIRS if kinds == PAIRS else kinds
        self.each = [rules.most(kind, 1) for kind in kinds]
        self.make = _PairTable if kinds == PAIRS and not rules.spread else Table
        self.known: dict[tuple[int, ...], Table] = {}

    def of(self, counts: tuple[int, ...]) -> Table:
        """The table of a domain with so many CPUs in whole free cores, and so many cores of each kind."""
        known = self.known.get(counts)
        if known is None:
            if len(self.known) >= _KEPT:
                self.known.clear()
            known = self.known[counts] = self.make(self.rules, self.kinds, counts)
        return known


@lru_cache(maxsize=512)
def tables_of_pairs(rules: Rules, halves: tuple[int, ...], wholes: tuple[int, ...]) -> Tables:
    """The tables where every core has two threads: of half-free and of whole free ones, by what they cost."""
    if halves == wholes == (0,):
        return tables(rules, PAIRS)
    half, whole = PAIRS
    return tables(
        rules,
        (*(half._replace(cost=cost) for cost in halves), *(whole._replace(cost=cost) for cost in wholes)),
    )


@lru_cache(maxsize=512)
def tables(rules: Rules, kinds: tuple[Kind, ...]) -> Tables:
    """The tables of these rules and kinds, the same object for the same ones."""
    return Tables(rules, kinds)
