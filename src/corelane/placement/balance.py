"""Even distribution over NUMA nodes: which nodes to use, and which of these give what does not divide.

Upstream (`takeByTopologyNUMADistributed`, v1.36) tries every combination of nodes, and for each every subset
that can give the remainder (a group more from each in turn), and keeps the first that leaves the free CPUs
most even. The same one is found here by bounds: what stays free has a given total, so evenness is a matter of
the sum of squares alone. Most combinations are ruled out by their sum, and scores compare as whole numbers.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, combinations, islice
from math import isqrt
from operator import or_

# Which of the chosen nodes give the groups that do not divide evenly. A choice of bearers is worth its gain,
# by how much it lowers the sum of squares of what stays free. `left` is what each node still has, in the
# picker's order; upstream tries the largest subsets first.


def best_gain(
    left: Sequence[int], groups: int, group: int, better: Callable[[int], int], *, thorough: bool = True
) -> int | None:
    """Return the highest gain of any choice that gives all `groups`; None when there is none.

    `better` returns the least gain that beats another, so that fruitless sizes are skipped. Unless
    `thorough`, either as many nodes as there are groups give one, or all nodes give some.
    """
    descending = sorted(left, reverse=True)
    best = _gain(descending[:groups], groups, group) if len(left) >= groups else None
    if best == most_gain(descending, groups, group):
        return best
    for size in _sizes(len(left), groups, thorough):
        if best is None or _bound(descending, size, groups, group) >= better(best):
            for bearers in combinations(left, size):
                gain = _gain(bearers, groups, group)
                if gain is not None and (best is None or gain > best):
                    best = gain
    return best


def first_choice(
    left: Sequence[int], groups: int, group: int, enough: int, *, thorough: bool = True
) -> Sequence[int]:
    """The first choice, as positions in `left`, that gains enough; in upstream's order, largest first."""
    needed = -(-(-(-enough // group) + groups * group) // 2)
    for size in range(len(left), groups - 1, -1):
        if found := first_reaching(left[: len(left) - size + groups], groups, needed):
            return (*found, *range(found[-1] + 1, found[-1] + 1 + size - groups))
    descending = sorted(left, reverse=True)
    for size in _sizes(len(left), groups, thorough):
        if _bound(descending, size, groups, group) >= enough:
            for chosen in combinations(range(len(left)), size):
                gain = _gain([left[i] for i in chosen], groups, group)
                if gain is not None and gain >= enough:
                    return chosen
    raise AssertionError("best_gain() found a choice that gains enough")


def first_reaching(counts: Sequence[int], k: int, least: int) -> Sequence[int] | None:
    """The first k positions, in lexicographic order, whose counts make up `least` or more; None without."""
    chosen: list[int] = []
    start = 0
    for more in reversed(range(k)):
        for i in range(start, len(counts) - more):
            if counts[i] + sum(sorted(counts[i + 1 :], reverse=True)[:more]) >= least:
                break
        else:
            return None
        chosen.append(i)
        least -= counts[i]
        start = i + 1
    return chosen


def most_gain(descending: Sequence[int], groups: int, group: int) -> int:
    """No choice gains more: every group comes from the node that then has the most."""
    if len(descending) >= groups and (not groups or descending[0] - group <= descending[groups - 1]):
        return group * (2 * sum(descending[:groups]) - groups * group)
    left, gain = list(descending), 0
    for _ in range(groups):
        fullest = left.index(max(left))
        gain += group * (2 * left[fullest] - group)
        left[fullest] -= group
    return gain


def _sizes(nodes: int, groups: int, thorough: bool) -> Sequence[int]:
    """The sizes of choices of which some member gives more than one group."""
    if not thorough:
        return (nodes,) if nodes < groups else ()
    return range(min(groups - 1, nodes), 0, -1)


def _bound(descending: Sequence[int], size: int, groups: int, group: int) -> int:
    """Return the bound of the gain of any choice of this size.

    Either all members can give their turns, at best the fullest ones; or the turns of at least one that
    cannot fall to the others.
    """
    rounds, more = divmod(groups, size)
    able = [count for count in descending if count >= group * (rounds + (more > 0))]
    bound = -1
    if len(able) >= size:
        bound = _equal_gain(able[:size], rounds, more, group)
    if len(able) < len(descending) and size > 1:
        poor = descending[len(able)]
        for few in range(1, poor // group + 1):
            others = most_gain(descending[: size - 1], groups - few, group)
            bound = max(bound, few * group * (2 * poor - few * group) + others)
    return bound


def _gain(bearers: Sequence[int], groups: int, group: int) -> int | None:
    """The gain when these give the groups in turn; None where they do not have enough."""
    rounds, more = divmod(groups, len(bearers))
    if min(bearers) >= group * (rounds + (more > 0)):
        return _equal_gain(bearers, rounds, more, group)
    turns = _turns([count // group for count in bearers], groups)
    if sum(turns) < groups:
        return None
    return group * sum(n * (2 * count - n * group) for n, count in zip(turns, bearers, strict=True))


def _equal_gain(bearers: Sequence[int], rounds: int, more: int, group: int) -> int:
    """The gain when all give `rounds` groups, and the first `more` one above that."""
    squares = rounds * rounds * len(bearers) + more * (2 * rounds + 1)
    return group * (2 * (rounds * sum(bearers) + sum(bearers[:more])) - group * squares)


def _turns(capacity: Sequence[int], groups: int) -> list[int]:
    """Return the number of groups from each, in turn, as long as it has some."""
    turns = [0] * len(capacity)
    while groups:
        giving = [i for i, n in enumerate(capacity) if n > turns[i]][:groups]
        if not giving:
            break
        for i in giving:
            turns[i] += 1
        groups -= len(giving)
    return turns


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
    """Return the best combination of k nodes: its scorer, score, itself, and whether the search ended."""
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
        """Return what each of the nodes gives, as upstream remembers it; `broken_off`: none came after."""
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
