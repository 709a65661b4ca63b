"""One NUMA node: what it costs to take so many CPUs from its L3 domains, for all numbers in a window.

Dynamic programming, domain after domain, over states (CPUs so far, broken CPUs of whole free cores so far). A
state keeps the lowest score; at one number of CPUs those with more broken CPUs stay only while they may tie.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from corelane.placement.optimal.lowest import lower, pick
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.score import SHAPE_BITS
from corelane.workload.wishes import Strategy

__all__ = ["Budget", "BudgetSpentError", "Filling", "Window", "fill", "in_domain", "strategy_score"]

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
        found = 0
        last = len(self.layers) - 1
        for state, score in self.layers[last].items():
            if state >> _CPUS == cpus and _closed(self.problem, self.node, state, score) == self.scores[cpus]:
                mask = self._trace(last, state)
                found = lower(found, mask) if found else mask
        return found

    def _trace(self, depth: int, state: int) -> int:
        """The lowest CPUs from the first `depth` domains that reach a state with its score."""
        if not depth:
            return 0
        key = (depth, state)
        if key not in self._lowest:
            self._lowest[key] = self._step(depth, state)
        return self._lowest[key]

    def _step(self, depth: int, state: int) -> int:
        before, score = self.layers[depth - 1], self.layers[depth][state]
        found = self._trace(depth - 1, state) if before.get(state) == score else 0
        problem, domain = self.problem, self.problem.shape.inside[self.node][depth - 1]
        touched = score - problem.touch[domain]
        for cpus in range(1, min(problem.caps[domain], state >> _CPUS) + 1):
            for broken, cost in problem.tables[domain].row(cpus):
                earlier = state - (cpus << _CPUS) - broken
                if before.get(earlier) == touched - cost:
                    mask = self._trace(depth - 1, earlier) | in_domain(problem, domain, cpus, broken)
                    found = lower(found, mask) if found else mask
        return found


def in_domain(problem: Problem, domain: int, cpus: int, broken: int) -> int:
    """The lowest CPUs of a domain for an entry of its table."""
    unit = problem.shape.domains[domain]
    leads = [lead & unit for lead in problem.leads]
    return pick(problem.shape.topology, problem.tables[domain], leads, problem.usable & unit, cpus, broken)


def strategy_score(problem: Problem, node: int, cpus: int) -> int:
    """Term 8, told so that smaller is better and never negative."""
    free = problem.node_free[node]
    lost = cpus * (2 * free - cpus)
    if problem.demand.strategy is Strategy.MOST_ALLOCATED:
        return lost * problem.rules.layout.strategy
    return (cpus * 2 * max(problem.node_free) - lost) * problem.rules.layout.strategy


def _closed(problem: Problem, node: int, state: int, score: int) -> int:
    """The score with what is known only once the node's part is complete."""
    whole, room = problem.node_whole[node], problem.rules.room
    score += problem.node_touch[node] + room(whole) - room(whole - (state & _BROKEN))
    if problem.rules.layout.strategy:
        score += strategy_score(problem, node, state >> _CPUS)
    return score


def fill(problem: Problem, node: int, window: Window, budget: Budget) -> Filling:
    """The best ways to take each number of CPUs in the window from a node.

    Numbers that cannot be a part of `total` CPUs from so many domains are left out. Raises BudgetSpentError.
    """
    domains = problem.shape.inside[node]
    later = _later(problem, domains, window)
    layers: list[Layer] = [{0: 0}]
    for i, domain in enumerate(domains):
        layers.append(_extend(problem, domain, layers[-1], window, later[i + 1], budget))
    scores: dict[int, int] = {}
    for state, score in layers[-1].items():
        cpus = state >> _CPUS
        if window.low <= cpus <= window.high:
            closed = _closed(problem, node, state, score)
            if closed < scores.get(cpus, closed + 1):
                scores[cpus] = closed
    return Filling(problem, node, layers, scores)


def _later(problem: Problem, domains: range, window: Window) -> list[list[int]]:
    """Per depth the most CPUs that 0, 1, 2 … of the domains not yet seen can give."""
    caps = [min(problem.caps[domain], window.high) for domain in domains]
    return [
        _sums(sorted((*caps[i:], *window.beside), reverse=True), window.domains) for i in range(len(caps) + 1)
    ]


def _sums(caps: Sequence[int], count: int) -> list[int]:
    total, sums = 0, [0]
    for i in range(count):
        total += caps[i] if i < len(caps) else 0
        sums.append(total)
    return sums


def _extend(
    problem: Problem, domain: int, layer: Layer, window: Window, later: Sequence[int], budget: Budget
) -> Layer:
    """The layer after one more domain."""
    table, touch, shift = problem.tables[domain], problem.touch[domain], problem.rules.layout.shift
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
    return _thinned(after)


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
