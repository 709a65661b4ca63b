"""Term 10: the lowest CPUs of all choices that a search found equally good, read off from its layers.

All of them are followed at once, L3 domain by L3 domain from the first on. Of two that go on from the same
state only the lower can win, and one whose CPUs so far differ from the lowest below the lowest CPU still to
come has lost; so few are ever left.
"""

from collections.abc import Sequence

from corelane.placement.optimal.filling import Filling, closing
from corelane.placement.optimal.lowest import lower, pick
from corelane.placement.optimal.problem import Problem
from corelane.placement.optimal.tables import BITS, MASK

__all__ = ["read"]

Layer = dict[int, int]
"""State (nodes used << BITS | CPUs) to the lowest score."""


_Point = tuple[int, int]
"""Where choices stand: the state of the nodes still to come, and that of this node's domains to come."""


_Active = dict[int, list[_Point]]
"""CPUs so far, and the points to which choices have come with these."""


def read(
    problem: Problem,
    nodes: Sequence[int],
    musts: int,
    fillings: Sequence[Filling],
    layers: list[Layer],
    last: int,
) -> int:
    """The lowest CPUs that reach the state `last`; `layers` are those over the last 0, 1, 2 … nodes."""
    active: _Active = {0: [(last, 0)]}
    later = sum([problem.shape.nodes[node] for node in nodes]) & problem.usable
    for i, node in enumerate(nodes):
        depth, domains, filled = len(nodes) - i, problem.shape.inside[node], fillings[i].layers
        active = _into_node(active, layers, depth, fillings[i], bool(musts >> node & 1))
        for at, domain in enumerate(domains, -len(domains)):
            if not any(state for points in active.values() for _, state in points):
                break
            later &= ~problem.shape.domains[domain]
            if filled[-at] is not filled[-at - 1]:
                active = _into_domain(active, problem, fillings[i], -at, domain, later & -later)
        later &= ~problem.shape.nodes[node]
    return min(active)


def _into_node(active: _Active, layers: list[Layer], depth: int, filling: Filling, must: bool) -> _Active:
    """From the state of a node and those after it to how much this one gives."""
    before, after = layers[depth - 1], layers[depth]
    found: dict[_Point, int] = {}
    for cpus, points in active.items():
        for state, _ in points:
            if not must and before.get(state) == after[state]:
                _keep(found, (state, 0), cpus)
            for own, cost in filling.scores.items():
                earlier = state - (1 << BITS) - own
                if before.get(earlier) == after[state] - cost:
                    for inner in _full(filling, own):
                        _keep(found, (earlier, inner), cpus)
    return _grouped(found)


def _keep(found: dict[_Point, int], point: _Point, cpus: int) -> None:
    known = found.get(point)
    found[point] = cpus if known is None else lower(known, cpus)


def _grouped(found: dict[_Point, int]) -> _Active:
    active: _Active = {}
    for point, cpus in found.items():
        active.setdefault(cpus, []).append(point)
    return active


def _full(filling: Filling, cpus: int) -> list[int]:
    """The states of all domains that reach the score of a number of CPUs."""
    close, best, low = closing(filling.problem, filling.node), filling.scores[cpus], cpus << BITS
    layer = filling.layers[-1]
    return [s for s in layer if low <= s <= low | MASK and layer[s] + close(cpus, s & MASK) == best]


def _into_domain(
    active: _Active, problem: Problem, filling: Filling, depth: int, domain: int, floor: int
) -> _Active:
    """From the state of a domain and those after it to what this one gives, where that may be the lowest.

    `floor` is the lowest CPU (its bit) still to come. What gives more comes first: it mostly has lower ids.
    """
    before, after = filling.layers[depth - 1], filling.layers[depth]
    most = max(state >> BITS for points in active.values() for _, state in points)
    ways = _ways(problem, domain, most)
    known, scores = ({0: 0, **layer}.get for layer in (before, after))
    reached: dict[int, list[tuple[int, _Point]]] = {}
    for cpus, points in active.items():
        for nodes, state in points:
            score = scores(state, 0)
            for taken, cost in ways:
                if known(state - taken) == score - cost:
                    reached.setdefault(taken, []).append((cpus, (nodes, state - taken)))
    found: dict[_Point, int] = {}
    first = -1
    for taken in sorted(reached, reverse=True):
        mask = pick(problem, domain, taken)
        for cpus, point in reached[taken]:
            first = lower(first, cpus | mask) if first >= 0 else cpus | mask
            _keep(found, point, cpus | mask)
    return _grouped({point: cpus for point, cpus in found.items() if not _lost(cpus, first, floor)})


def _lost(cpus: int, first: int, floor: int) -> bool:
    """Whether these CPUs cannot become the lowest, whatever comes from `floor` on; `first` are the lowest."""
    apart = cpus ^ first
    return 0 < apart & -apart < floor and bool(first & apart & -apart)


def _ways(problem: Problem, domain: int, most: int) -> list[tuple[int, int]]:
    """The entries, with their scores, of what may be taken from a domain; the last is nothing."""
    table, touch = problem.table(domain), problem.touch[domain]
    rows = [table.row(own) for own in range(min(table.most, most), 0, -1)]
    return [(taken, touch + cost) for row in rows for taken, cost in row] + [(0, 0)]
