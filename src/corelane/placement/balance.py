"""Even distribution over NUMA nodes: which nodes to use, and which of these give what does not divide.

Upstream (`takeByTopologyNUMADistributed`, v1.36) tries every combination of nodes, and for each every subset
that can give the remainder (a group more from each in turn), and keeps the first that leaves the free CPUs
most even. The same one is found here by bounds: what stays free has a given total, so evenness is a matter of
the sum of squares alone. Most combinations are ruled out by their sum, and scores compare as whole numbers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, combinations, islice
from math import isqrt
from operator import or_

from corelane.placement.remainder import best_gain, first_choice, first_reaching, most_gain

EXHAUSTIVE = 10
"""Up to so many nodes the answer is upstream's. With more, fewer choices of bearers and fewer
combinations are tried: upstream's search would take seconds to hours."""
_VISITED, _SCORED = 15_000, 2000
"""The most combinations tried, and scored, when there are more nodes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Positions of nodes: all of `nodes` give `share` CPUs each, then `bearers` one group each in turn."""

    nodes: tuple[int, ...]
    share: int
    bearers: tuple[int, ...] = ()


def plan(free: Sequence[int], n: int, group: int, fewest: int, *, alias: bool = True) -> Plan | None:
    """Return how to take n CPUs (a multiple of `group`) evenly from the fewest nodes that can hold them.

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


def hangs(free: Sequence[int], n: int, group: int, fewest: int) -> bool:
    """Return whether upstream, before 1.38, tries bearers with enough CPUs but too few whole groups.

    There it loops for ever (kubernetes#140730). As slow as upstream, so always False beyond ten nodes.
    """
    if group == 1 or len(free) > EXHAUSTIVE:
        return False
    for k in range(fewest, min(n // group, len(free)) + 1):
        share = n // k // group * group
        eligible = [i for i, count in enumerate(free) if count >= share]
        search, found = _Search(free, eligible, n, group, k, share), False
        for nodes in combinations(eligible, k):
            counts = tuple(free[i] for i in nodes)
            if sum(count // group for count in counts) * group < n:
                continue
            left = [count - share for count in counts if count - share >= group]
            if _some_lack_groups(left, n - share * k, group):
                return True
            found = True
            if search.score_of(counts) == 0:
                return False
        if found:
            return False
    return False


def _some_lack_groups(left: Sequence[int], rest: int, group: int) -> bool:
    """Whether some of these have the rest as CPUs, but not in whole groups."""
    return any(
        sum(some) >= rest > sum(count // group for count in some) * group
        for size in range(1, len(left) + 1)
        for some in combinations(left, size)
    )


def plan_by_socket(
    free: Sequence[int], sockets: Sequence[int], n: int, group: int, fewest: int, *, alias: bool = True
) -> Plan | None:
    """As `plan`, but nodes of one socket win over others, and shares shrink to what the poorest node has.

    `sockets` has the sockets (a mask) that each node touches. This is align-by-socket from 1.37
    (kubernetes#139778). The plan's share is the one before it shrinks.
    """
    for k in range(fewest, min(n // group, len(free)) + 1):
        found = _best_by_socket(free, sockets, n, group, k)
        if found:
            search, score, nodes, broken_off = found
            planned = search.planned(score, nodes, alias, broken_off=broken_off)
            return Plan(planned.nodes, n // k // group * group, planned.bearers)
    return None


def _best_by_socket(
    free: Sequence[int], sockets: Sequence[int], n: int, group: int, k: int
) -> tuple["_Search", int, Sequence[int], bool] | None:
    """What scored the best combination of k nodes, its score, itself, and whether it ended the search."""
    searches: dict[int, _Search] = {}
    best: tuple[_Search, int, Sequence[int]] | None = None
    best_together = False
    for nodes in _candidates(free, sockets, k):
        if best and best_together and best[1] == 0:
            return *best, True
        counts = tuple(free[i] for i in nodes)
        if sum(count // group for count in counts) * group < n:
            continue
        share = min(n // k, min(counts)) // group * group
        search = searches.get(share)
        if search is None:
            search = searches[share] = _Search(free, range(len(free)), n, group, k, share)
        score = search.score_of(counts)
        assert score is not None, "there are enough whole groups"
        together = reduce(or_, (sockets[i] for i in nodes)).bit_count() == 1
        if best is None or (score < best[1] if together == best_together else together):
            best, best_together = (search, score, nodes), together
    return (*best, False) if best else None


def _candidates(free: Sequence[int], sockets: Sequence[int], k: int) -> Iterable[tuple[int, ...]]:
    """All combinations of k nodes; of many nodes, the fullest of each socket and of all, and some more."""
    combined = combinations(range(len(free)), k)
    if len(free) <= EXHAUSTIVE:
        return combined
    fullest = sorted(range(len(free)), key=lambda i: -free[i])
    within = ([i for i in fullest if sockets[i] == socket] for socket in sorted(set(sockets)))
    chosen = [tuple(sorted(nodes[:k])) for nodes in (*within, fullest) if len(nodes) >= k]
    return chain(chosen, islice(combined, _SCORED // 2))


class _Search:
    """The best combination of k of the eligible nodes, each of which gives `share`.

    A score is the standard deviation of what stays free, in thousandths, rounded where upstream rounds it. It
    grows with the sum of squares, so a bound on the one is a bound on the other; taking CPUs away is a gain.
    """

    __slots__ = (
        "counts",
        "eligible",
        "free",
        "group",
        "k",
        "known",
        "mean",
        "rest",
        "share",
        "squares",
        "thorough",
        "total",
    )

    def __init__(
        self, free: Sequence[int], eligible: Sequence[int], n: int, group: int, k: int, share: int
    ) -> None:
        self.free, self.eligible, self.group, self.k, self.share = free, eligible, group, k, share
        self.thorough = len(free) <= EXHAUSTIVE
        self.known: dict[tuple[int, ...], int | None] = {}
        self.counts = [free[i] for i in eligible]
        self.rest = (n - share * k) // group
        self.total = sum(free) - n
        self.mean = (2000 * self.total + len(free)) // (2 * len(free))
        self.squares = sum(count * count for count in free) + k * share * share

    def plan(self, alias: bool) -> Plan:
        score, nodes = self.best()
        return self.planned(score, nodes, alias, broken_off=score == 0)

    def planned(self, score: int, nodes: Sequence[int], alias: bool, *, broken_off: bool) -> Plan:
        """What each of the nodes gives, as upstream remembers it; `broken_off`: none came after."""
        left = [self.free[i] - self.share for i in nodes]
        bearing = [i for i, count in zip(nodes, left, strict=True) if count >= self.group]
        bearers: Sequence[int] = ()
        if self.rest:
            enough = self.after_shares(self.free[i] for i in nodes) - self.most_squares(score)
            able = [count for count in left if count >= self.group]
            bearers = first_choice(able, self.rest, self.group, enough, thorough=self.thorough)
        if alias:
            bearers = _aliased(bearers, len(bearing))
            nodes = _aliased(nodes, len(self.free), broken_off=broken_off)
        return Plan(tuple(nodes), self.share, tuple(bearing[i] for i in bearers))

    def best(self) -> tuple[int, Sequence[int]]:
        """The lowest score, and the first combination that has it."""
        if not self.rest:
            return self.best_even()
        fullest = self.fullest()
        score = self.score_of(tuple(self.free[i] for i in fullest))
        assert score is not None, "plan() saw that the fullest nodes suffice"
        if len(self.eligible) == self.k:
            return score, fullest
        lowest, least = self.limits(fullest, score)
        best: tuple[int, Sequence[int]] | None = None
        for nodes, counts in self.combined():
            if sum(counts) < least:
                continue
            found = self.score_of(counts)
            if found is not None and (best is None or found < best[0]):
                best = found, nodes
            if best and (best[0] == lowest or (len(self.known) > _SCORED and not self.thorough)):
                break
        return best or (score, fullest)

    def best_even(self) -> tuple[int, Sequence[int]]:
        """Without a rest the fullest nodes are best, and the first whose sum has the same score."""
        most = sum(sorted(self.counts, reverse=True)[: self.k])
        score = self.score(self.squares - 2 * self.share * most)
        least = -((self.most_squares(score) - self.squares) // (2 * self.share))
        first = first_reaching(self.counts, self.k, least)
        assert first is not None, "the fullest nodes reach it"
        return score, [self.eligible[i] for i in first]

    def combined(self) -> Iterable[tuple[Sequence[int], tuple[int, ...]]]:
        """Combinations of k nodes, and of their counts: all, or of many nodes the first ones."""
        both = zip(combinations(self.eligible, self.k), combinations(self.counts, self.k), strict=True)
        return both if self.thorough else islice(both, _VISITED)

    def fullest(self) -> Sequence[int]:
        """The k nodes with the most free CPUs, in the picker's order."""
        return sorted(sorted(self.eligible, key=lambda i: -self.free[i])[: self.k])

    def limits(self, fullest: Sequence[int], score: int) -> tuple[int, int]:
        """A score that none can beat, and the free CPUs that a combination needs to be worth a look."""
        counts = [self.free[i] for i in fullest]
        left = sorted((count - self.share for count in counts), reverse=True)
        gain = most_gain(left, self.rest, self.group)
        lowest = self.score(self.after_shares(counts) - gain)
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

    def score_of(self, counts: tuple[int, ...]) -> int | None:
        """The lowest score of nodes with these counts; None where they do not have enough whole groups."""
        if counts not in self.known:
            self.known[counts] = self.new_score_of(counts)
        return self.known[counts]

    def new_score_of(self, counts: tuple[int, ...]) -> int | None:
        squares = self.after_shares(counts)
        if not self.rest:
            return self.score(squares)
        left = [count - self.share for count in counts if count - self.share >= self.group]
        if sum(count // self.group for count in left) < self.rest:
            return None
        gain = best_gain(
            left,
            self.rest,
            self.group,
            lambda gain: squares - self.most_squares(self.score(squares - gain) - 1),
            thorough=self.thorough,
        )
        return None if gain is None else self.score(squares - gain)


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
