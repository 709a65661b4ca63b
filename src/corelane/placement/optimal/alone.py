"""One NUMA node that gives all CPUs from several L3 domains: which node, and how much of each domain."""

from collections.abc import Hashable, Iterator

from corelane.placement.optimal.bounds import Aim, Caps, most
from corelane.placement.optimal.filling import Budget, Filling, Window, closing, fill
from corelane.placement.optimal.lowest import lower
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.reading import read
from corelane.placement.optimal.spans import Span
from corelane.placement.optimal.tables import BITS

__all__ = ["Alone"]


class Alone:
    """The nodes of a span of single nodes: the best that any of them gives, if any."""

    def __init__(self, problem: Problem, span: Span, aim: Aim, caps: Caps, budget: Budget) -> None:
        self.problem, n = problem, problem.demand.cpus
        self.score: int | None = None
        self.tied: list[tuple[int, Filling]] = []
        known = dict[Hashable, Filling]()
        limits = aim.limits
        for least, node in sorted(_possible(problem, span, aim)):
            if least > limits[0]:
                break
            alike = problem.alike(node)
            if alike not in known:
                window = Window(n, n, n, limits, Caps((), ()))
                known[alike] = fill(problem, node, window, aim.useful(problem, (node,), caps), budget)
            score = known[alike].scores.get(n)
            if score is not None and score <= limits[0]:
                limits = [min(limit, score) for limit in limits]
                self.tied = [*(self.tied if score == self.score else ()), (node, known[alike])]
                self.score = score

    def lowest(self) -> int:
        """The lowest CPUs that reach the score: a node whose lowest CPU is too high is not looked into."""
        problem, cpus, last = self.problem, 0, 1 << BITS | self.problem.demand.cpus
        for node, filling in sorted(self.tied, key=lambda pair: pair[0]):
            usable = problem.shape.nodes[node] & problem.usable
            if cpus and cpus & -cpus < usable & -usable:
                continue
            layers = [{0: 0}, {last: filling.scores[problem.demand.cpus]}]
            mask = read(problem, (node,), 0, [filling], layers, last)
            cpus = lower(cpus, mask) if cpus else mask
        return cpus


def _possible(problem: Problem, span: Span, aim: Aim) -> Iterator[tuple[int, int]]:
    """The nodes that have enough CPUs in so many domains, each after a score that it cannot beat."""
    n = problem.demand.cpus
    for node in span.nodes:
        inside = problem.shape.inside[node]
        if most(problem.caps[inside.start : inside.stop], aim.domains) >= n:
            yield aim.domains * problem.rules.layout.domains + closing(problem, node)(n, 0), node
