"""Inside one L3 domain: what it costs to take so many CPUs, from how many cores of each kind it has.

Cores of a kind differ only in their ids. For a number of CPUs the cheapest way of taking them from a domain
does not depend on the rest of the choice, so it is computed once for each make-up of a domain, and kept.

Costs are scores: terms 5 to 9 of the objective packed into one integer, so that comparing two numbers
compares term by term. Each term in play has a field, the earlier above the later; scores add up over cores,
domains and nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

_WIDTHS: Final = {"domains": 16, "bind": 16, "exclusive": 16, "fallback": 16, "affinity": 20, "strategy": 40}
SHAPE_BITS: Final = 24


@dataclass(frozen=True, slots=True, eq=False)
class ScoreLayout:
    """Weight of one unit of each term in a score, 0 where the term is not in play; term 9 weighs 1."""

    domains: int
    bind: int
    exclusive: int = 0
    fallback: int = 0
    affinity: int = 0
    strategy: int = 0
    shift: int = field(init=False)
    """By how many bits the number of domains, the highest field, is shifted."""
    _fields: tuple[tuple[int, int], ...] = field(init=False)
    """Of each field, how far to shift a score, and what to mask it with."""

    def __post_init__(self) -> None:
        weights = [(getattr(self, name), width) for name, width in _WIDTHS.items()]
        fields = [
            (max(weight.bit_length() - 1, 0), (1 << width) - 1 if weight else 0) for weight, width in weights
        ]
        object.__setattr__(self, "shift", self.domains.bit_length() - 1)
        object.__setattr__(self, "_fields", (*fields, (0, (1 << SHAPE_BITS) - 1)))

    def unpack(self, score: int) -> list[int]:
        """The value of every field, in the order above, 0 where it is not in play; that of term 9 is last."""
        return [score >> shift & mask for shift, mask in self._fields]


def layout(*, exclusive: bool, affinity: bool, strategy: bool) -> ScoreLayout:
    """Return the fields of the terms in play; the fewer, the faster the arithmetic."""
    played = {"exclusive": exclusive, "fallback": exclusive, "affinity": affinity, "strategy": strategy}
    weights, shift = {}, SHAPE_BITS
    for name in reversed(_WIDTHS):
        if played.get(name, True):
            weights[name] = 1 << shift
            shift += _WIDTHS[name]
    return ScoreLayout(**weights)


class CoreKind(NamedTuple):
    """Kind of alike cores: threads, usable ones, whether all are free, and the score of touching one."""

    size: int
    usable: int
    whole: bool
    cost: int = 0


class Portion(NamedTuple):
    """CPUs from cores of one kind: score, CPUs of whole free cores that then are not, cores touched."""

    score: int
    broken: int
    cores: int


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Rules and preferences for the use of cores."""

    spread: bool
    required: bool
    sizes: tuple[int, ...]
    layout: ScoreLayout
    rooms: list[int] = field(default_factory=lambda: [0])

    def room(self, cpus: int) -> int:
        """For how many requests of the demand profile so many CPUs in whole free cores are good (term 9).

        `rooms` then has it for all numbers up to this one.
        """
        rooms = self.rooms
        while len(rooms) <= cpus:
            rooms.append(sum(len(rooms) // size for size in self.sizes))
        return rooms[cpus]

    def most(self, kind: CoreKind, count: int) -> int:
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
    """Return the rules of a demand, one object for equal ones; the last three are the terms in play."""
    return Rules(spread, required, sizes, layout(exclusive=exclusive, affinity=affinity, strategy=strategy))


def portions(rules: Rules, kind: CoreKind, count: int, cpus: int) -> Iterator[Portion]:
    """The ways to take CPUs from cores of one kind that break the bind policy in the fewest cores.

    More than one where touching more cores breaks no more of them; those that only score worse are left out.
    """
    if not cpus:
        yield Portion(0, 0, 0)
    elif rules.spread:
        yield from _spread(rules, kind, count, cpus)
    else:
        yield from _packed(rules, kind, cpus)


def _portion(rules: Rules, kind: CoreKind, cores: int, against: int) -> Portion:
    score = against * rules.layout.bind + cores * kind.cost
    return Portion(score, cores * kind.size if kind.whole else 0, cores)


def _packed(rules: Rules, kind: CoreKind, cpus: int) -> Iterator[Portion]:
    """The fewest cores: of those wholly usable all but one are wholly taken."""
    cores = -(-cpus // kind.usable)
    entire = kind.usable == kind.size
    if not entire or cpus % kind.size:
        if not rules.required:
            yield _portion(rules, kind, cores, 1 if entire else cores)
    else:
        yield _portion(rules, kind, cores, 0)


def _spread(rules: Rules, kind: CoreKind, count: int, cpus: int) -> Iterator[Portion]:
    """One CPU of each core; with more CPUs than cores, the fewest cores that give more than one."""
    if cpus <= count:
        yield _portion(rules, kind, cpus, 0)
    elif not rules.required:
        doubled = -(-(cpus - count) // (kind.usable - 1))
        fewest = max(doubled, cpus - doubled * (kind.usable - 1))
        for cores in range(fewest, (fewest if kind.cost else count) + 1):
            yield _portion(rules, kind, cores, doubled)


BITS: Final = 20
MASK: Final = (1 << BITS) - 1

PAIRS: Final = (CoreKind(2, 1, False), CoreKind(2, 2, True))
"""The kinds of cores on a machine with two threads everywhere, when no preference concerns single cores."""
_KEPT = 5_000

Row = tuple[tuple[int, int], ...]
"""The (CPUs << BITS | broken, score) worth considering for a number of CPUs.

`broken` counts the CPUs of whole free cores that are then no longer whole. The score has everything that is
decided inside the domain but what it costs to touch it at all. More broken CPUs can be better in their ids
only.
"""

Part = tuple[int, int, int]
"""A position of a kind, CPUs taken from its cores, and how many of its cores give them."""


class DomainTable:
    """Capacity of a domain, from its CPUs in whole free cores and its number of cores of each kind."""

    __slots__ = ("_best", "_ways", "counts", "kinds", "limits", "most", "rows", "rules", "whole")

    def __init__(self, rules: Rules, kinds: tuple[CoreKind, ...], counts: tuple[int, ...]) -> None:
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
        """Return the cost of so many CPUs, at most `most`; empty where the rules allow it in no way."""
        row = self.rows[cpus]
        if row is None:
            row = self.rows[cpus] = tuple([(cpus << BITS | broken, cost) for broken, cost in self._row(cpus)])
        return row

    def ways(self, taken: int) -> tuple[tuple[Part, ...], ...]:
        """From which kinds the CPUs of an entry come; equally good ways differ in ids only."""
        ways = self._ways.get(taken)
        if ways is None:
            ways = self._ways[taken] = tuple(self._split_up(0, taken >> BITS, taken & MASK))
        return ways

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
            cheapest = self._cheapest(kind + 1, rest)
            if cheapest is None:
                continue
            total = portion.score + cheapest[0]
            if score < 0 or total < score:
                score, breaks = total, 0
            if total == score:
                breaks |= cheapest[1] << portion.broken
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


class _PairTable(DomainTable):
    """The same for PAIRS whose threads are to stay together, without trying every split.

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

    def __init__(self, rules: Rules, kinds: tuple[CoreKind, ...]) -> None:
        self.rules, self.kinds = rules, PAIRS if kinds == PAIRS else kinds
        self.each = [rules.most(kind, 1) for kind in kinds]
        self.make = _PairTable if kinds == PAIRS and not rules.spread else DomainTable
        self.known: dict[tuple[int, ...], DomainTable] = {}

    def of(self, counts: tuple[int, ...]) -> DomainTable:
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
def tables(rules: Rules, kinds: tuple[CoreKind, ...]) -> Tables:
    """The tables of these rules and kinds, the same object for the same ones."""
    return Tables(rules, kinds)
