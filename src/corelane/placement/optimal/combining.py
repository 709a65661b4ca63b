"""Several NUMA nodes: how many CPUs each should give, over states (nodes used, CPUs so far).

As in `filling` the last nodes come first.
"""

from collections.abc import Collection, Hashable, Sequence

from corelane.placement.optimal.bounds import Aim, Caps, most_from
from corelane.placement.optimal.filling import Budget, Filling, Window, fill
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.reading import read
from corelane.placement.optimal.spans import Span
from corelane.placement.optimal.tables import BITS, MASK

__all__ = ["Combined"]

Layer = dict[int, int]
"""State (nodes used << BITS | CPUs) to the lowest score."""


class Combined:
    """A span of several nodes searched for what is aimed at: the best, if there is any."""

    def __init__(self, problem: Problem, span: Span, aim: Aim, caps: Caps, budget: Budget) -> None:
        self.problem, self.span, self.aim = problem, span, aim
        self.fillings = self._fillings(aim.useful(problem, span.nodes, caps), budget)
        inside = [problem.shape.inside[node] for node in span.nodes]
        later = most_from([problem.caps[one.start : one.stop] for one in inside], (), aim.domains)
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

    def _fillings(self, caps: Caps, budget: Budget) -> list[Filling]:
        """Of each node, what it can give beside the others; the same for nodes that are alike."""
        problem, span, total = self.problem, self.span, self.problem.demand.cpus
        ranked, others = [self._ranked(each) for each in caps], span.count - 1
        largest = sorted([problem.node_caps[i] for i in span.nodes], reverse=True)[: span.count]
        found, known = [], dict[Hashable, Filling]()
        for node in span.nodes:
            alike, cap = problem.alike(node), problem.node_caps[node]
            if alike not in known:
                rest = sum(largest) - max(cap, largest[-1])
                low, high = max(span.low, total - rest), min(cap, span.high, total - others * span.low)
                beside = Caps(*([cap for cap, owner in each if owner != node] for each in ranked))
                window = Window(low, high, total, self.aim.limits, beside, others)
                known[alike] = fill(problem, node, window, caps, budget)
            found.append(known[alike])
        return found

    def _ranked(self, caps: Sequence[int]) -> list[tuple[int, int]]:
        """The caps of the domains of the span, largest first, each with its node."""
        inside = self.problem.shape.inside
        return sorted(
            [(caps[i], node) for node in self.span.nodes for i in inside[node] if caps[i]], reverse=True
        )

    def _extend(self, i: int, later: Sequence[int], budget: Budget) -> Layer:
        """The layer after one more node; `later` are the most CPUs from so many domains of those left."""
        must = self.span.musts >> self.span.nodes[i] & 1
        shift, n, count = self.problem.rules.layout.shift, self.problem.demand.cpus, self.span.count
        scores, limits, domains = self.fillings[i].scores, self.aim.limits, self.aim.domains
        nothing = [0] * (domains + 1)
        after: Layer = {}
        known = after.get
        for state, score in self.layers[-1].items():
            nodes, missing = state >> BITS, n - (state & MASK)
            spare = not must and nodes + i >= count
            if spare and missing <= later[domains - (score >> shift)] and score < known(state, score + 1):
                after[state] = score
            if nodes == count:
                continue
            ways: Collection[tuple[int, int]] = scores.items()
            coming = later
            if nodes + 1 == count:
                ways = [(missing, scores[missing])] if missing in scores else []
                coming = nothing
            budget.take(len(ways))
            for own, cost in ways:
                better = score + cost
                left = domains - (better >> shift)
                if left >= 0 and better <= limits[left] and missing - own <= coming[left]:
                    reached = state + (1 << BITS) + own
                    if better < known(reached, better + 1):
                        after[reached] = better
        return after
