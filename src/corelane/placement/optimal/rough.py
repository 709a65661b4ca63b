"""Some choice, quickly: what is answered when the search has run out of steps."""

import sys

from corelane.cpuset import bits
from corelane.placement.optimal.bounds import Caps
from corelane.placement.optimal.filling import Budget, Window, fill
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.reading import read
from corelane.placement.optimal.spans import Span, added, node_reach
from corelane.placement.optimal.tables import BITS

__all__ = ["rough"]


def rough(problem: Problem, span: Span) -> tuple[int, int]:
    """Some choice of a span: its score and its CPUs."""
    score = cpus = 0
    layout, domains = problem.rules.layout, len(problem.caps)
    limits = [(used + 1) * layout.domains for used in range(domains, -1, -1)]
    caps = Caps(problem.caps, problem.caps)
    for node, part in zip(*_parts(problem, span), strict=True):
        window = Window(part, part, part, limits, Caps((), ()), rough=problem.grain > 0)
        filling = fill(problem, node, window, caps, Budget(sys.maxsize))
        layers = [{0: 0}, {1 << BITS | part: filling.scores[part]}]
        score += filling.scores[part]
        cpus |= read(problem, (node,), 0, [filling], layers, 1 << BITS | part)
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
