"""The best choice: spans of NUMA nodes in order, in them the fewest L3 domains, in these the lowest score.

Nodes are combined as domains are in `filling`, over states (nodes used, CPUs so far).
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from corelane.cpuset import bits
from corelane.placement.optimal.filling import Budget, BudgetSpentError, Filling, Window, fill, most_from
from corelane.placement.optimal.lowest import Option, lower, lowest_of
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.spans import Rank, Span, added, choices, node_reach

__all__ = ["Found", "search"]

_CPUS = 20
_MASK = (1 << _CPUS) - 1

Layer = dict[int, int]
"""State (nodes used << 20 | CPUs) to the lowest score."""


@dataclass(frozen=True, slots=True)
class Found:
    """The CPUs chosen, with the values of terms 2 to 4 and the score of terms 5 to 9.

    `fewest` is a number of L3 domains below which there is no choice of this rank.
    """

    rank: Rank
    score: int
    cpus: int
    fewest: int
    proven: bool = True


def search(problem: Problem, budget: Budget) -> Found | None:
    """The best choice, or None when the demand does not fit."""
    for rank, spans in choices(problem):
        found = _in_spans(problem, rank, spans, budget)
        if found is not None:
            return found
    return None


def _in_spans(problem: Problem, rank: Rank, spans: Sequence[Span], budget: Budget) -> Found | None:
    bounds = [(_fewest_domains(problem, span), span) for span in spans]
    for domains in range(min(bound for bound, _ in bounds), len(problem.caps) + 1):
        filled: list[_Combined] = []
        try:
            for bound, span in bounds:
                if bound <= domains:
                    filled.append(_Combined(problem, span, domains, budget))
        except BudgetSpentError:
            return Found(rank, *(_best(filled) or rough(problem, spans[0])), domains, proven=False)
        best = _best(filled)
        if best is not None:
            return Found(rank, *best, domains)
    return None


def rough(problem: Problem, span: Span) -> tuple[int, int]:
    """Some choice of a span, with its score."""
    nodes, parts = _parts(problem, span)
    score = cpus = 0
    budget = Budget(sys.maxsize)
    for node, part in zip(nodes, parts, strict=True):
        window = Window(part, part, part, len(problem.caps), rough=problem.grain > 0)
        filling = fill(problem, node, window, budget)
        score += filling.scores[part]
        cpus |= filling.lowest(part)
    return score, cpus


def _parts(problem: Problem, span: Span) -> tuple[list[int], list[int]]:
    """Some nodes of a span, the largest, and how many CPUs each gives: what leaves the others a share."""
    order = sorted(span.nodes, key=lambda node: (not span.musts >> node & 1, -problem.node_caps[node], node))
    nodes = order[: span.count]
    window = (2 << span.high) - (1 << span.low)
    reach = [node_reach(problem, node) & window for node in nodes]
    after = [1]
    for one in reversed(reach):
        after.append(added(after[-1], one))
    after.reverse()
    parts, missing = [], problem.demand.cpus
    for i, one in enumerate(reach):
        parts.append(
            max(part for part in bits(one) if part <= missing and after[i + 1] >> missing - part & 1)
        )
        missing -= parts[-1]
    return nodes, parts


def _best(filled: Iterable["_Combined"]) -> tuple[int, int] | None:
    """The lowest score, and the lowest CPUs that reach it."""
    some = [one for one in filled if one.score is not None]
    if not some:
        return None
    score = min(one.score for one in some if one.score is not None)
    cpus = 0
    for one in some:
        if one.score == score:
            mask = one.lowest()
            cpus = lower(cpus, mask) if cpus else mask
    return score, cpus


def _fewest_domains(problem: Problem, span: Span) -> int:
    """A number of L3 domains that no choice in the span can do without."""
    inside = problem.shape.inside
    if span.count == 1:
        return min(_enough(problem, inside[node]) for node in span.nodes)
    return max(span.count, _enough(problem, [i for node in span.nodes for i in inside[node]]))


def _enough(problem: Problem, domains: Iterable[int]) -> int:
    missing, count = problem.demand.cpus, 0
    for cap in sorted((problem.caps[i] for i in domains), reverse=True):
        if missing <= 0:
            break
        missing -= cap
        count += 1
    return count if missing <= 0 else len(problem.caps) + 1


class _Combined:
    """A span searched for choices from so many L3 domains at most."""

    def __init__(self, problem: Problem, span: Span, domains: int, budget: Budget) -> None:
        self.problem, self.span, self.domains = problem, span, domains
        self.fillings = [self._filling(node, budget) for node in span.nodes]
        self.layers: list[Layer] = [{0: 0}]
        caps = [
            problem.caps[inside.start : inside.stop]
            for inside in map(problem.shape.inside.__getitem__, span.nodes)
        ]
        later = most_from(caps, (), domains)
        for i in reversed(range(len(span.nodes))):
            self.layers.append(self._extend(i, later[i], budget))
        self._lowest: dict[tuple[int, int], int] = {}

    @property
    def last(self) -> int:
        return self.span.count << _CPUS | self.problem.demand.cpus

    @property
    def score(self) -> int | None:
        return self.layers[-1].get(self.last)

    def lowest(self) -> int:
        return self._trace(len(self.fillings), self.last)

    def _filling(self, node: int, budget: Budget) -> Filling:
        problem, span = self.problem, self.span
        total = problem.demand.cpus
        high = min(problem.node_caps[node], span.high, total - (span.count - 1) * span.low)
        others = [other for other in span.nodes if other != node] if span.count > 1 else []
        beside = [problem.caps[i] for other in others for i in problem.shape.inside[other]]
        low = max(span.low, total - _most((problem.node_caps[i] for i in others), span.count - 1))
        window = Window(low, high, total, self.domains, beside, span.count - 1)
        return fill(problem, node, window, budget)

    def _extend(self, i: int, later: Sequence[int], budget: Budget) -> Layer:
        """The layer after one more node; `later` are the most CPUs from so many domains of those left."""
        must = self.span.musts >> self.span.nodes[i] & 1
        shift, n, count = self.problem.rules.layout.shift, self.problem.demand.cpus, self.span.count
        scores = self.fillings[i].scores
        after: Layer = {}
        for state, score in self.layers[-1].items():
            nodes, cpus = state >> _CPUS, state & _MASK
            left = self.domains - (score >> shift)
            if not must and nodes + i >= count and cpus + later[left] >= n:
                _keep(after, state, score)
            if nodes == count:
                continue
            last = nodes + 1 == count
            ways = ((n - cpus, scores.get(n - cpus, -1)),) if last else scores.items()
            budget.take(len(ways))
            for own, cost in ways:
                left = self.domains - (score + cost >> shift)
                if cost >= 0 <= left and cpus + own + (0 if last else later[left]) >= n:
                    _keep(after, state + (1 << _CPUS) + own, score + cost)
        return after

    def _trace(self, depth: int, state: int) -> int:
        """The lowest CPUs from as many of the last nodes that reach a state with its score."""
        if not depth:
            return 0
        key = (depth, state)
        if key not in self._lowest:
            options = list(self._options(depth, state))
            self._lowest[key] = lowest_of(options, self._floor(depth), self._trace)
        return self._lowest[key]

    def _floor(self, depth: int) -> int:
        """The lowest CPU that any of the nodes after this one could give."""
        rest = sum(self.problem.shape.nodes[i] for i in self.span.nodes[len(self.span.nodes) - depth + 1 :])
        rest &= self.problem.usable
        return rest & -rest

    def _options(self, depth: int, state: int) -> Iterator[Option]:
        """The ways to reach a state: what its last node gives, and the state before."""
        before, score = self.layers[depth - 1], self.layers[depth][state]
        i = len(self.span.nodes) - depth
        if before.get(state) == score and not self.span.musts >> self.span.nodes[i] & 1:
            yield Option(0, depth - 1, state)
        filling = self.fillings[i]
        for cpus, cost in filling.scores.items():
            earlier = state - (1 << _CPUS) - cpus
            if before.get(earlier) == score - cost:
                yield Option(filling.lowest(cpus), depth - 1, earlier)


def _keep(layer: Layer, state: int, score: int) -> None:
    if score < layer.get(state, score + 1):
        layer[state] = score


def _most(amounts: Iterable[int], count: int) -> int:
    return sum(sorted(amounts, reverse=True)[:count])
