"""One NUMA node: what it costs to take so many CPUs from its L3 domains, for all numbers in a window.

Dynamic programming, domain after domain, over states (CPUs so far, broken CPUs of whole free cores so far). A
state keeps the lowest score; at one number of CPUs those with more broken CPUs stay only while they may tie.
The last domains come first, so that what is chosen can be read off from the first domain on, the one that
mostly has the lowest ids.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.score import SHAPE_BITS
from corelane.workload.wishes import Strategy

__all__ = [
    "BITS",
    "MASK",
    "Budget",
    "BudgetSpentError",
    "Caps",
    "Filling",
    "Window",
    "closing",
    "fill",
    "most_from",
    "strategy_score",
]

BITS: Final = 20
MASK: Final = (1 << BITS) - 1

Layer = dict[int, int]
"""State (CPUs << 20 | broken) to the lowest score."""


class BudgetSpentError(Exception):
    """The search has taken as many steps as it may."""


@dataclass(slots=True)
class Budget:
    """Steps left; one is a look at one way to take CPUs from one domain or node."""

    left: int

    def take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise BudgetSpentError


@dataclass(frozen=True, slots=True)
class Caps:
    """The most CPUs of each of some domains, and the most without breaking the bind policy."""

    all: Sequence[int]
    unbroken: Sequence[int]


@dataclass(frozen=True, slots=True)
class Window:
    """What to look for: from `low` to `high` CPUs here, a part of `total`.

    `limits` are the highest scores worth following, by the number of domains that may still be taken from, in
    all. `beside` are the domains of the other nodes, and so many `others` give the rest. With `rough`, only
    the ways that leave a domain fullest or emptiest are looked at.
    """

    low: int
    high: int
    total: int
    limits: Sequence[int]
    beside: Caps
    others: int = 0
    rough: bool = False


@dataclass(frozen=True, slots=True)
class Filling:
    """The outcome for one node: per number of CPUs the lowest score, everything of the node included.

    `layers` are those over the last 0, 1, 2 … of its domains.
    """

    problem: Problem
    node: int
    layers: list[Layer]
    scores: dict[int, int]


def closing(problem: Problem, node: int) -> Callable[[int, int], int]:
    """What a node adds to the score once its part is known: from the CPUs taken and those broken."""
    rooms, whole = problem.rules.rooms, problem.node_whole[node]
    base = problem.node_touch[node] + rooms[whole]
    if not problem.rules.layout.strategy:
        return lambda _, broken: base - rooms[whole - broken]
    return lambda cpus, broken: base - rooms[whole - broken] + strategy_score(problem, node, cpus)


def strategy_score(problem: Problem, node: int, cpus: int) -> int:
    """Term 8, told so that smaller is better and never negative."""
    free = problem.node_free[node]
    lost = cpus * (2 * free - cpus)
    if problem.demand.strategy is Strategy.MOST_ALLOCATED:
        return lost * problem.rules.layout.strategy
    return (cpus * 2 * max(problem.node_free) - lost) * problem.rules.layout.strategy


def fill(problem: Problem, node: int, window: Window, unbroken: Sequence[int], budget: Budget) -> Filling:
    """The best ways to take each number of CPUs in the window from a node.

    Numbers that cannot be a part of `total` CPUs within the limits are left out. Raises BudgetSpentError.
    """
    inside, domains = problem.shape.inside[node], len(window.limits) - 1
    caps = [(min(cap, window.high),) for cap in problem.caps[inside.start : inside.stop]]
    later = most_from(caps, window.beside.all, domains)
    whole = most_from(zip(unbroken[inside.start : inside.stop]), window.beside.unbroken, domains)
    layers: list[Layer] = [{0: 0}]
    for i in reversed(range(len(caps))):
        coming = Caps(later[i], whole[i])
        layer = _extend(problem, inside[i], layers[-1], window, coming, unbroken[inside[i]], budget)
        layers.append(_thinned(layer) if len(layer) > 1 else layer)
    return Filling(problem, node, layers, _scores(problem, node, layers[-1], window))


def _scores(problem: Problem, node: int, layer: Layer, window: Window) -> dict[int, int]:
    scores: dict[int, int] = {}
    close = closing(problem, node)
    for state, score in layer.items():
        cpus = state >> BITS
        if window.low <= cpus <= window.high:
            closed = score + close(cpus, state & MASK)
            if closed < scores.get(cpus, closed + 1):
                scores[cpus] = closed
    return scores


def most_from(units: Iterable[Iterable[int]], beside: Iterable[int], domains: int) -> list[list[int]]:
    """For each unit the most CPUs that 0, 1, 2 … domains before it, or beside, can give.

    A unit is the most CPUs of each of its domains.
    """
    largest = sorted(beside, reverse=True)[:domains]
    sums = []
    for caps in units:
        total = [0, *accumulate(largest)]
        sums.append(total + [total[-1]] * (domains - len(largest)))
        largest.extend(caps)
        largest.sort(reverse=True)
        del largest[domains:]
    return sums


def _extend(
    problem: Problem, domain: int, layer: Layer, window: Window, coming: Caps, unbroken: int, budget: Budget
) -> Layer:
    """The layer after one more domain, which can give so many CPUs unbroken.

    `coming` are the most CPUs from 0, 1, 2 … of the domains to come, and the most that break no core: what is
    missing beyond the latter breaks cores, each of which gives less than its threads.
    """
    table, touch, layout = problem.table(domain), problem.touch[domain], problem.rules.layout
    high, limits, later, whole, rows = window.high, window.limits, coming.all, coming.unbroken, table.rows
    shift, bind, last = layout.shift, layout.bind, len(limits) - 1
    below, spare = bind.bit_length() - 1, max(problem.shape.threads - 1, 1)
    grain = problem.grain or 1
    together = grain if problem.rules.spread else problem.shape.core_size or grain
    after: Layer = {}
    for state, score in layer.items():
        missing, left = window.total - (state >> BITS), last - (score >> shift)
        gap = missing - whole[left]
        if missing <= later[left] and score - (-gap // spare * bind if gap > 0 else 0) <= limits[left]:
            known = after.get(state)
            if known is None or score < known:
                after[state] = score
        if left <= window.others:
            continue
        left -= 1
        touched, limit = score + touch, limits[left]
        breaks = (limit >> below) - (touched >> below)
        if breaks < 0:
            continue
        step = grain if breaks else together
        least = missing - later[left]
        least = -(-least // step) * step if least > 1 else step
        most = min(high - (state >> BITS), table.most, unbroken + breaks * spare)
        ways: Sequence[int] = range(least, most + 1, step)
        budget.take(len(ways) + 1)
        gap = missing - whole[left]
        for own in ways[-2:] if window.rough else ways:
            bound = limit if gap <= own else limit + (own - gap) // spare * bind
            row = rows[own]
            if row is None:
                row = table.row(own)
            for broken, cost in row:
                better = touched + cost
                if better <= bound:
                    reached = state + (own << BITS) + broken
                    if reached not in after or better < after[reached]:
                        after[reached] = better
    return after


def _thinned(layer: Layer) -> Layer:
    """Without the states that can only come to more than another with as many CPUs.

    These are worse in terms 5 to 8, or have no fewer broken CPUs and a higher score.
    """
    least: dict[int, int] = {}
    for state, score in layer.items():
        cpus, upper = state >> BITS, score >> SHAPE_BITS
        if upper < least.get(cpus, upper + 1):
            least[cpus] = upper
    kept: Layer = {}
    last, best = -1, 0
    for state in sorted(layer):
        cpus, score = state >> BITS, layer[state]
        if score >> SHAPE_BITS > least[cpus] or (cpus == last and score > best):
            continue
        kept[state], last, best = score, cpus, score
    return kept
