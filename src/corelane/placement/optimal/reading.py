"""Term 10: the lowest CPUs of all choices that a search found equally good, read off from its layers.

All of them are followed at once, L3 domain by L3 domain from the first on. Of two that go on from the same
state only the lower can win, and one whose CPUs so far differ from the lowest below the lowest CPU still to
come has lost; so few are ever left.
"""

from collections.abc import Iterator, Sequence

from corelane.placement.optimal.filling import BITS, MASK, Filling, closing
from corelane.placement.optimal.lowest import lower, pick
from corelane.placement.optimal.problem import Problem

__all__ = ["in_domain", "read"]

Layer = dict[int, int]
"""State (nodes used << BITS | CPUs) to the lowest score."""


_Point = tuple[int, int]
"""Where choices stand: the state of the nodes still to come, and that of this node's domains to come."""

_FEW = 6
"""Up to so many points it is quicker to ask which can take CPUs than whether these CPUs may be the lowest."""

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
    for i, node in enumerate(nodes):
        depth, domains = len(nodes) - i, problem.shape.inside[node]
        later = sum(problem.shape.nodes[other] for other in nodes[i + 1 :]) & problem.usable
        active = _into_node(active, layers, depth, fillings[i], bool(musts >> node & 1))
        for at, domain in enumerate(domains):
            if not any(point[1] for points in active.values() for point in points):
                break
            here = later | problem.usable & sum(problem.shape.domains[domain + 1 : domains.stop])
            active = _into_domain(active, problem, fillings[i], len(domains) - at, domain, here & -here)
    return min(active)


def _into_node(active: _Active, layers: list[Layer], depth: int, filling: Filling, must: bool) -> _Active:
    """From the state of a node and those after it to how much this one gives."""
    before, after, full = layers[depth - 1], layers[depth], _full(filling)
    found: dict[_Point, int] = {}
    for cpus, points in active.items():
        for state, _ in points:
            if not must and before.get(state) == after[state]:
                _keep(found, (state, 0), cpus)
            for own, cost in filling.scores.items():
                earlier = state - (1 << BITS) - own
                if before.get(earlier) == after[state] - cost:
                    for inner in full[own]:
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


def _full(filling: Filling) -> dict[int, list[int]]:
    """Per number of CPUs the states of all domains that reach its score."""
    close = closing(filling.problem, filling.node)
    found: dict[int, list[int]] = {cpus: [] for cpus in filling.scores}
    for state, score in filling.layers[-1].items():
        cpus = state >> BITS
        if cpus in found and score + close(cpus, state & MASK) == filling.scores[cpus]:
            found[cpus].append(state)
    return found


def _into_domain(
    active: _Active, problem: Problem, filling: Filling, depth: int, domain: int, floor: int
) -> _Active:
    """From the state of a domain and those after it to what this one gives, where that may be the lowest.

    `floor` is the lowest CPU (its bit) still to come. What gives more comes first: it mostly has lower ids.
    """
    before, after = {0: 0, **filling.layers[depth - 1]}, {0: 0, **filling.layers[depth]}
    most = max(state >> BITS for points in active.values() for _, state in points)
    found: dict[_Point, int] = {}
    first = -1
    for own, broken, cost in _ways(problem, domain, most):
        mask, drop = -1, (own << BITS) + broken
        for cpus, points in active.items():
            if first >= 0 and len(points) > _FEW:
                mask = in_domain(problem, domain, own, broken) if mask < 0 else mask
                if _lost(cpus | mask, first, floor):
                    continue
            reached = [(n, s - drop) for n, s in points if before.get(s - drop) == after[s] - cost]
            if reached:
                mask = in_domain(problem, domain, own, broken) if mask < 0 else mask
                first = lower(first, cpus | mask) if first >= 0 else cpus | mask
                for point in reached:
                    _keep(found, point, cpus | mask)
    return _grouped({point: cpus for point, cpus in found.items() if not _lost(cpus, first, floor)})


def _lost(cpus: int, first: int, floor: int) -> bool:
    """Whether these CPUs cannot become the lowest, whatever comes from `floor` on; `first` are the lowest."""
    apart = cpus ^ first
    return 0 < apart & -apart < floor and bool(first & apart & -apart)


def _ways(problem: Problem, domain: int, most: int) -> Iterator[tuple[int, int, int]]:
    """The (CPUs, broken, score) with which a domain may be taken from, most CPUs first, last not at all."""
    table, touch = problem.table(domain), problem.touch[domain]
    for own in range(min(table.most, most), 0, -1):
        for broken, cost in table.row(own):
            yield own, broken, touch + cost
    yield 0, 0, 0


def in_domain(problem: Problem, domain: int, cpus: int, broken: int) -> int:
    """The lowest CPUs of a domain for an entry of its table; none for none."""
    if not cpus:
        return 0
    unit = problem.shape.domains[domain]
    return pick(problem.shape, problem.table(domain), problem.leads, unit, problem.usable, cpus, broken)
