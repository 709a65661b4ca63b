"""Several NUMA nodes: how many CPUs each should give, over states (nodes used, CPUs so far).

As in `filling` the last nodes come first. A span of single nodes is the same with one node used.
"""

from collections.abc import Iterable, Sequence

from corelane.placement.optimal.filling import BITS, MASK, Budget, Caps, Filling, Window, fill, most_from
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.reading import read
from corelane.placement.optimal.spans import Span

__all__ = ["Combined"]

Layer = dict[int, int]
"""State (nodes used << BITS | CPUs) to the lowest score."""


class Combined:
    """A span searched for choices within limits: the highest scores, by the number of L3 domains left."""

    def __init__(
        self, problem: Problem, span: Span, limits: Sequence[int], unbroken: Sequence[int], budget: Budget
    ) -> None:
        self.problem, self.span, self.limits = problem, span, limits
        self.fillings: list[Filling] = []
        for node in span.nodes:
            self.fillings.append(self._filling(node, unbroken, budget))
        later = most_from([_of(problem.caps, problem, (node,)) for node in span.nodes], (), len(limits) - 1)
        self.layers: list[Layer] = [{0: 0}]
        for i in reversed(range(len(span.nodes))):
            self.layers.append(self._extend(i, later[i], budget))

    @property
    def last(self) -> int:
        return self.span.count << BITS | self.problem.demand.cpus

    @property
    def score(self) -> int | None:
        return self.layers[-1].get(self.last)

    def lowest(self) -> int:
        """The lowest CPUs that reach the score."""
        span = self.span
        return read(self.problem, span.nodes, span.musts, self.fillings, self.layers, self.last)

    def _filling(self, node: int, unbroken: Sequence[int], budget: Budget) -> Filling:
        if self.span.count > 1:
            return fill(self.problem, node, self._window(node, unbroken), unbroken, budget)
        most = _most(_of(self.problem.caps, self.problem, (node,)), len(self.limits) - 1)
        if most < self.problem.demand.cpus:
            return Filling(self.problem, node, [{}], {})
        filling = fill(self.problem, node, self._window(node, unbroken), unbroken, budget)
        self._tighten(filling.scores)
        return filling

    def _tighten(self, scores: dict[int, int]) -> None:
        """Follow only what is as good as what one node gives alone."""
        if scores:
            best = min(scores.values())
            self.limits = [min(limit, best) for limit in self.limits]

    def _window(self, node: int, unbroken: Sequence[int]) -> Window:
        problem, span = self.problem, self.span
        total = problem.demand.cpus
        high = min(problem.node_caps[node], span.high, total - (span.count - 1) * span.low)
        others = [other for other in span.nodes if other != node] if span.count > 1 else []
        beside = Caps(_of(problem.caps, problem, others), _of(unbroken, problem, others))
        low = max(span.low, total - _most((problem.node_caps[i] for i in others), span.count - 1))
        return Window(low, high, total, self.limits, beside, span.count - 1)

    def _extend(self, i: int, later: Sequence[int], budget: Budget) -> Layer:
        """The layer after one more node; `later` are the most CPUs from so many domains of those left."""
        must = self.span.musts >> self.span.nodes[i] & 1
        shift, n, count = self.problem.rules.layout.shift, self.problem.demand.cpus, self.span.count
        scores, domains = self.fillings[i].scores, len(self.limits) - 1
        after: Layer = {}
        for state, score in self.layers[-1].items():
            nodes, missing = state >> BITS, n - (state & MASK)
            if not must and nodes + i >= count and missing <= later[domains - (score >> shift)]:
                _keep(after, state, score)
            if nodes == count:
                continue
            last = nodes + 1 == count
            ways = ((missing, scores.get(missing, -1)),) if last else scores.items()
            budget.take(len(ways))
            for own, cost in ways:
                left = domains - (score + cost >> shift)
                if cost < 0 or left < 0 or score + cost > self.limits[left]:
                    continue
                if missing - own <= (0 if last else later[left]):
                    _keep(after, state + (1 << BITS) + own, score + cost)
        return after


def _of(caps: Sequence[int], problem: Problem, nodes: Iterable[int]) -> list[int]:
    """Those of the domains of some nodes."""
    return [caps[i] for node in nodes for i in problem.shape.inside[node]]


def _keep(layer: Layer, state: int, score: int) -> None:
    if score < layer.get(state, score + 1):
        layer[state] = score


def _most(amounts: Iterable[int], count: int) -> int:
    return sum(sorted(amounts, reverse=True)[:count])
