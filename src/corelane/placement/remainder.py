"""Which of the chosen nodes give the groups that do not divide evenly.

A choice of bearers is worth its gain, by how much it lowers the sum of squares of what stays free. `left` is
what each node still has, in the picker's order; upstream tries the largest subsets first.
"""

from collections.abc import Callable, Sequence
from itertools import combinations


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
    """What no choice of this size gains more than.

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
