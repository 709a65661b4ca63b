"""One NUMA node: what it costs to take so many CPUs from its L3 domains, for all numbers in a window.

Dynamic programming, domain after domain, over states (CPUs so far, broken CPUs of whole free cores so far). A
state keeps the lowest score; at one number of CPUs those with more broken CPUs stay only while they may tie.
The last domains come first, so that what is chosen can be read off from the first domain on, the one that
mostly has the lowest ids.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from corelane.placement.optimal.lowest import Option, lowest_of, pick
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.score import SHAPE_BITS
from corelane.workload.wishes import Strategy

__all__ = ["Budget", "BudgetSpentError", "Filling", "Window", "closing", "fill", "in_domain", "most_from"]

_CPUS = 20
_BROKEN = (1 << _CPUS) - 1

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
class Window:
    """What to look for: from `low` to `high` CPUs here, from at most `domains` domains in all.

    `beside` are the most CPUs of each domain of other nodes, and so many `others` give the rest of `total`.
    With `rough`, only the ways that leave a domain fullest or emptiest are looked at.
    """

    low: int
    high: int
    total: int
    domains: int
    beside: Sequence[int] = ()
    others: int = 0
    rough: bool = False


@dataclass(slots=True)
class Filling:
    """The outcome for one node: per number of CPUs the lowest score, everything of the node included."""

    problem: Problem
    node: int
    layers: list[Layer]
    scores: dict[int, int]
    _lowest: dict[tuple[int, int], int] = field(default_factory=dict)

    def lowest(self, cpus: int) -> int:
        """The lowest CPUs among all that reach the score for so many."""
        last, wanted = len(self.layers) - 1, self.scores[cpus]
        close = closing(self.problem, self.node)
        states = (
            state
            for state, score in self.layers[last].items()
            if state >> _CPUS == cpus and score + close(cpus, state & _BROKEN) == wanted
        )
        return lowest_of([Option(0, last, state) for state in states], 0, self._trace)

    def _trace(self, depth: int, state: int) -> int:
        """The lowest CPUs from as many of the last domains that reach a state with its score."""
        if not depth:
            return 0
        key = (depth, state)
        if key not in self._lowest:
            self._lowest[key] = lowest_of(list(self._options(depth, state)), self._floor(depth), self._trace)
        return self._lowest[key]

    def _floor(self, depth: int) -> int:
        """The lowest CPU that any of the domains after this one could give."""
        inside = self.problem.shape.inside[self.node]
        rest = sum(self.problem.shape.domains[inside.stop - depth + 1 : inside.stop]) & self.problem.usable
        return rest & -rest

    def _options(self, depth: int, state: int) -> Iterator[Option]:
        """The ways to reach a state: what its last domain gives, and the state before."""
        before, score = self.layers[depth - 1], self.layers[depth][state]
        if before.get(state) == score:
            yield Option(0, depth - 1, state)
        problem = self.problem
        domain = problem.shape.inside[self.node].stop - depth
        table, touched = problem.table(domain), score - problem.touch[domain]
        for cpus in range(1, min(table.most, state >> _CPUS) + 1):
            for broken, cost in table.row(cpus):
                earlier = state - (cpus << _CPUS) - broken
                if before.get(earlier) == touched - cost:
                    yield Option(in_domain(problem, domain, cpus, broken), depth - 1, earlier)


def in_domain(problem: Problem, domain: int, cpus: int, broken: int) -> int:
    """The lowest CPUs of a domain for an entry of its table."""
    unit = problem.shape.domains[domain]
    leads = [lead & unit for lead in problem.leads]
    return pick(problem.shape, problem.table(domain), leads, problem.usable & unit, cpus, broken)


def closing(problem: Problem, node: int) -> Callable[[int, int], int]:
    """What a node adds to the score once its part is known: from the CPUs taken and those broken."""
    room, whole, touch = problem.rules.room, problem.node_whole[node], problem.node_touch[node]
    base = touch + room(whole)
    if not problem.rules.layout.strategy:
        return lambda _, broken: base - room(whole - broken)
    return lambda cpus, broken: base - room(whole - broken) + _strategy(problem, node, cpus)


def _strategy(problem: Problem, node: int, cpus: int) -> int:
    """Term 8, told so that smaller is better and never negative."""
    free = problem.node_free[node]
    lost = cpus * (2 * free - cpus)
    if problem.demand.strategy is Strategy.MOST_ALLOCATED:
        return lost * problem.rules.layout.strategy
    return (cpus * 2 * max(problem.node_free) - lost) * problem.rules.layout.strategy


def fill(problem: Problem, node: int, window: Window, budget: Budget) -> Filling:
    """The best ways to take each number of CPUs in the window from a node.

    Numbers that cannot be a part of `total` CPUs from so many domains are left out. Raises BudgetSpentError.
    """
    inside = problem.shape.inside[node]
    caps = [min(cap, window.high) for cap in problem.caps[inside.start : inside.stop]]
    later = most_from(zip(caps, strict=True), window.beside, window.domains)
    layers: list[Layer] = [{0: 0}]
    for i in reversed(range(len(caps))):
        layers.append(_extend(problem, inside[i], layers[-1], window, later[i], budget))
    scores: dict[int, int] = {}
    close = closing(problem, node)
    for state, score in layers[-1].items():
        cpus = state >> _CPUS
        if window.low <= cpus <= window.high:
            closed = score + close(cpus, state & _BROKEN)
            if closed < scores.get(cpus, closed + 1):
                scores[cpus] = closed
    return Filling(problem, node, layers, scores)


def most_from(units: Iterable[Iterable[int]], beside: Iterable[int], domains: int) -> list[list[int]]:
    """For each unit the most CPUs that 0, 1, 2 … domains before it, or beside, can give.

    A unit is the most CPUs of each of its domains.
    """
    largest = sorted(-cap for cap in beside)
    sums = []
    for caps in units:
        sums.append(_sums(largest, domains))
        for cap in caps:
            insort(largest, -cap)
    return sums


def _sums(negated: Sequence[int], count: int) -> list[int]:
    sums = [-total for total in accumulate(negated[:count], initial=0)]
    return sums + [sums[-1]] * (count + 1 - len(sums))


def _extend(
    problem: Problem, domain: int, layer: Layer, window: Window, later: Sequence[int], budget: Budget
) -> Layer:
    """The layer after one more domain."""
    table, touch, shift = problem.table(domain), problem.touch[domain], problem.rules.layout.shift
    most, high, total = min(table.most, window.high), window.high, window.total
    grain, rows = problem.grain or 1, table.rows
    after: Layer = {}
    for state, score in layer.items():
        cpus = state >> _CPUS
        left = window.domains - (score >> shift)
        if cpus + later[left] >= total and score < after.get(state, score + 1):
            after[state] = score
        if left <= window.others:
            continue
        touched = score + touch
        least = max(1, total - cpus - later[left - 1])
        ways: Sequence[int] = range(-(-least // grain) * grain, min(most, high - cpus) + 1, grain)
        budget.take(len(ways))
        for own in ways[-2:] if window.rough else ways:
            row = rows[own]
            for broken, cost in table.row(own) if row is None else row:
                reached, better = state + (own << _CPUS) + broken, touched + cost
                if better < after.get(reached, better + 1):
                    after[reached] = better
    return _thinned(after) if len(after) > 1 else after


def _thinned(layer: Layer) -> Layer:
    """Without the states that can only come to more than another with as many CPUs.

    These are worse in terms 5 to 8, or have no fewer broken CPUs and a higher score.
    """
    least: dict[int, int] = {}
    for state, score in layer.items():
        cpus, upper = state >> _CPUS, score >> SHAPE_BITS
        if upper < least.get(cpus, upper + 1):
            least[cpus] = upper
    kept: Layer = {}
    last, best = -1, 0
    for state in sorted(layer):
        cpus, score = state >> _CPUS, layer[state]
        if score >> SHAPE_BITS > least[cpus] or (cpus == last and score > best):
            continue
        kept[state], last, best = score, cpus, score
    return kept
