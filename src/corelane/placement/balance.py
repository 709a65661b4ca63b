"""Which NUMA nodes an even distribution should use, and which of these bear what does not divide.

Upstream (`takeByTopologyNUMADistributed`, v1.36) tries every combination of nodes, and for each every subset
that could bear the remainder, and keeps the first that leaves the free CPUs most even. The same one is found
here by bounds: what stays free has a given total, so evenness is a matter of the sum of squares alone. Most
combinations are ruled out by their sum, and scores compare as whole numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isqrt

__all__ = ["Plan", "plan"]

EXHAUSTIVE = 10
"""Among more nodes than these, a remainder is only borne by as many nodes as it has groups, or by all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Positions of nodes: all of `nodes` give `share` CPUs, then `bearers` one group each in turn."""

    nodes: tuple[int, ...]
    share: int
    bearers: tuple[int, ...] = ()


def plan(free: Sequence[int], n: int, group: int, fewest: int, *, alias: bool = True) -> Plan | None:
    """How to take n CPUs (a multiple of `group`) evenly from the fewest nodes that can hold them.

    `free` counts the free CPUs of each node, in the picker's order; `fewest` is the least number of nodes to
    try. None when no number of nodes can share evenly. With `alias`, a remembered combination of 4, 6, 7 or 8
    nodes is overwritten by those visited after it, as in every release before 1.38 (see `_aliased`).
    """
    for k in range(fewest, min(n // group, len(free)) + 1):
        share = n // k // group * group
        eligible = [i for i, count in enumerate(free) if count >= share]
        most = sorted((free[i] // group for i in eligible), reverse=True)[:k]
        if len(most) == k and sum(most) * group >= n:
            return _Search(free, eligible, n, group, k, share).plan(alias)
    return None


class _Search:
    """The best combination of k of the eligible nodes, each of which gives `share`.

    A score is the standard deviation of what stays free, in thousandths, rounded where upstream rounds it. It
    grows with the sum of squares, so a bound on the one is a bound on the other; taking CPUs away is a gain.
    """

    __slots__ = ("counts", "eligible", "free", "group", "k", "mean", "rest", "share", "squares", "total")

    def __init__(
        self, free: Sequence[int], eligible: Sequence[int], n: int, group: int, k: int, share: int
    ) -> None:
        self.free, self.eligible, self.group, self.k, self.share = free, eligible, group, k, share
        self.counts = [free[i] for i in eligible]
        self.rest = (n - share * k) // group
        self.total = sum(free) - n
        self.mean = (2000 * self.total + len(free)) // (2 * len(free))
        self.squares = sum(count * count for count in free) + k * share * share

    def plan(self, alias: bool) -> Plan:
        score, nodes = self.best()
        bearing = [i for i in nodes if self.free[i] - self.share >= self.group]
        bearers: Sequence[int] = ()
        if self.rest:
            enough = self.after_shares(self.free[i] for i in nodes) - self.most_squares(score)
            bearers = self.bearers([self.free[i] - self.share for i in bearing], enough)
        if alias:
            bearers = _aliased(bearers, len(bearing))
            nodes = _aliased(nodes, len(self.free), broken_off=score == 0)
        return Plan(tuple(nodes), self.share, tuple(bearing[i] for i in bearers))

    def best(self) -> tuple[int, Sequence[int]]:
        """The lowest score, and the first combination that has it."""
        lowest, least = self.limits()
        best: tuple[int, Sequence[int]] | None = None
        known: dict[tuple[int, ...], int | None] = {}
        for nodes, counts in zip(
            combinations(self.eligible, self.k), combinations(self.counts, self.k), strict=True
        ):
            if sum(counts) < least:
                continue
            if counts not in known:
                known[counts] = self.score_of(counts)
            score = known[counts]
            if score is not None and (best is None or score < best[0]):
                best = score, nodes
                if score == lowest:
                    break
        assert best is not None, "plan() saw that the fullest nodes suffice"
        return best

    def limits(self) -> tuple[int, int]:
        """A score that none can beat, and the free CPUs that a combination needs to be worth a look."""
        fullest = sorted(sorted(range(len(self.counts)), key=lambda i: -self.counts[i])[: self.k])
        counts = tuple(self.counts[i] for i in fullest)
        gain = self.most_gain(sorted((count - self.share for count in counts), reverse=True))
        lowest = self.score(self.after_shares(counts) - gain)
        score = self.score_of(counts)
        if score is None:
            return lowest, 0
        return lowest, -((self.most_squares(score) + gain - self.squares) // (2 * self.share))

    def after_shares(self, counts: Iterable[int]) -> int:
        """The sum of squares of what is free once nodes with these counts have given their shares."""
        return self.squares - 2 * self.share * sum(counts)

    def score(self, squares: int) -> int:
        spread = 1_000_000 * squares - 2000 * self.mean * self.total + len(self.free) * self.mean**2
        return (isqrt(max(0, 4 * spread // len(self.free))) + 1) // 2

    def most_squares(self, score: int) -> int:
        """The largest sum of squares that still has this score."""
        most = (len(self.free) * (2 * score + 1) ** 2 - 1) // 4
        return (most + 2000 * self.mean * self.total - len(self.free) * self.mean**2) // 1_000_000

    def score_of(self, counts: Sequence[int]) -> int | None:
        """The lowest score of nodes with these counts; None where they do not have enough whole groups."""
        if not self.rest:
            return self.score(self.after_shares(counts))
        left = [count - self.share for count in counts if count - self.share >= self.group]
        if sum(count // self.group for count in left) < self.rest:
            return None
        squares, descending = self.after_shares(counts), sorted(left, reverse=True)
        most = self.most_gain(descending)
        gain = self.gain(descending[: self.rest]) if len(left) >= self.rest else None
        if gain is None or (gain < most and self.score(squares - gain) > self.score(squares - most)):
            gains = (self.gain(chosen) for chosen in self.fewer_bearers(left))
            gain = max((other for other in (gain, *gains) if other is not None), default=None)
        return None if gain is None else self.score(squares - gain)

    def most_gain(self, descending: Sequence[int]) -> int:
        """What bearing the rest could gain at most: every group from the node that then has the most."""
        group, rest = self.group, self.rest
        if len(descending) >= rest and (not rest or descending[0] - group <= descending[rest - 1]):
            return group * (2 * sum(descending[:rest]) - rest * group)
        left, gain = list(descending), 0
        for _ in range(rest):
            fullest = max(range(len(left)), key=left.__getitem__)
            gain += group * (2 * left[fullest] - group)
            left[fullest] -= group
        return gain

    def gain(self, bearers: Sequence[int]) -> int | None:
        """What is gained when these bear the rest in turn; None where they do not have enough groups."""
        rounds, more = divmod(self.rest, len(bearers))
        turns = [rounds + 1] * more + [rounds] * (len(bearers) - more)
        if min(bearers) < self.group * turns[0]:
            turns = _turns([count // self.group for count in bearers], self.rest)
            if sum(turns) < self.rest:
                return None
        group = self.group
        return group * sum(n * (2 * count - n * group) for n, count in zip(turns, bearers, strict=True))

    def fewer_bearers(self, left: Sequence[int]) -> Iterator[Sequence[int]]:
        """Every choice of bearers of which some must bear more than one group, largest choices first."""
        if len(left) > EXHAUSTIVE:
            yield left
            return
        for size in range(min(self.rest - 1, len(left)), 0, -1):
            yield from combinations(left, size)

    def bearers(self, left: Sequence[int], enough: int) -> Sequence[int]:
        """The first choice, as positions in `left`, that gains enough: largest choices first."""
        for size in range(len(left), self.rest - 1, -1):
            if found := self.one_group_each(left[: len(left) - size + self.rest], enough):
                following = range(found[-1] + 1, found[-1] + 1 + size - self.rest)
                return (*found, *following)
        positions = range(len(left))
        sizes = (len(left),) if len(left) > EXHAUSTIVE else range(min(self.rest - 1, len(left)), 0, -1)
        for size in sizes:
            for chosen in combinations(positions, size):
                gain = self.gain([left[i] for i in chosen])
                if gain is not None and gain >= enough:
                    return chosen
        raise AssertionError("score_of() found a choice that gains enough")

    def one_group_each(self, left: Sequence[int], enough: int) -> Sequence[int] | None:
        """The first choice of as many bearers as there are groups that gains enough."""
        group, rest = self.group, self.rest
        needed = -(-(enough // group + (enough % group > 0) + rest * group) // 2)
        if sum(sorted(left, reverse=True)[:rest]) < needed:
            return None
        for chosen, counts in zip(
            combinations(range(len(left)), rest), combinations(left, rest), strict=True
        ):
            if sum(counts) >= needed:
                return chosen
        return None


def _turns(capacity: Sequence[int], groups: int) -> list[int]:
    """How many groups each gives, in turn, as long as it has some."""
    turns = [0] * len(capacity)
    while groups:
        giving = [i for i, n in enumerate(capacity) if n > turns[i]][:groups]
        if not giving:
            break
        for i in giving:
            turns[i] += 1
        groups -= len(giving)
    return turns


def _aliased(chosen: Sequence[int], of: int, *, broken_off: bool = False) -> Sequence[int]:
    """A combination as upstream remembers it: its tail overwritten by those visited after it.

    Go's append copies a slice only when it grows beyond 1, 2, 4, 8, 16 elements, so combinations with the
    same head share their storage. Visiting goes on to the last, or, when broken off, to the next one.
    """
    size = len(chosen)
    head = max(grown for grown in (0, 1, 2, 3, 5, 9, 17, 33) if grown <= size)
    tail = _next(chosen[head:], of) if broken_off else range(of - size + head, of)
    return (*chosen[:head], *tail)


def _next(tail: Sequence[int], of: int) -> Sequence[int]:
    """The combination after `tail` among positions below `of`, or `tail` itself when it is the last."""
    for i in reversed(range(len(tail))):
        if tail[i] < of - len(tail) + i:
            return (*tail[:i], *range(tail[i] + 1, tail[i] + 1 + len(tail) - i))
    return tail
