"""Term 10: the lowest CPUs of all choices that a search found equally good, read off from its layers.

All of them are followed at once, L3 domain by L3 domain from the first on. Of two that go on from the same
state only the lower can win, and one whose CPUs so far differ from the lowest below the lowest CPU still to
come has lost; so few are ever left.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from corelane.placement.optimal.filling import BITS, MASK, Filling, closing
from corelane.placement.optimal.lowest import lower, pick
from corelane.placement.optimal.problem import Problem

__all__ = ["in_domain", "read"]

Layer = dict[int, int]
"""State (nodes used << BITS | CPUs) to the lowest score."""


class _Point(NamedTuple):
    """Where a choice stands: the state of the nodes still to come, and that of this node's domains to come.

    The second is None where the node gives nothing.
    """

    nodes: int
    domains: int | None


_Active = dict[_Point, int]
"""The lowest CPUs so far of the choices that have come to a point."""


def read(
    problem: Problem,
    nodes: Sequence[int],
    musts: int,
    fillings: Sequence[Filling],
    layers: list[Layer],
    last: int,
) -> int:
    """The lowest CPUs that reach the state `last`; `layers` are those over the last 0, 1, 2 … nodes."""
    active: _Active = {_Point(last, None): 0}
    for i, node in enumerate(nodes):
        depth, filling = len(nodes) - i, fillings[i]
        later = sum(problem.shape.nodes[other] for other in nodes[i + 1 :]) & problem.usable
        active = _lowest(_into_node(active, layers, depth, filling, bool(musts >> node & 1)), 0)
        domains = problem.shape.inside[node]
        for at, domain in enumerate(domains):
            later_here = later | problem.usable & sum(problem.shape.domains[domain + 1 : domains.stop])
            ways = _into_domain(active, problem, filling, len(domains) - at, domain)
            active = _lowest(ways, later_here & -later_here)
        active = _lowest(
            ((_Point(point.nodes, None), cpus) for point, cpus in active.items()), later & -later
        )
    return min(active.values())


def _lowest(ways: Iterable[tuple[_Point, int]], floor: int) -> _Active:
    """The choices that may still be the lowest; `floor` is the lowest CPU (its bit) that is still to come."""
    active: _Active = {}
    for point, cpus in ways:
        known = active.get(point)
        active[point] = cpus if known is None else lower(known, cpus)
    if len(active) < 2:
        return active
    first = 0
    for cpus in active.values():
        first = lower(first, cpus)
    return {point: cpus for point, cpus in active.items() if not 0 < _bit(cpus ^ first) < floor}


def _bit(cpus: int) -> int:
    return cpus & -cpus


def _into_node(
    active: _Active, layers: list[Layer], depth: int, filling: Filling, must: bool
) -> Iterator[tuple[_Point, int]]:
    """From the state of a node and those after it to how much this one gives."""
    before, full = layers[depth - 1], _full(filling)
    for point, cpus in active.items():
        state, score = point.nodes, layers[depth][point.nodes]
        if before.get(state) == score and not must:
            yield _Point(state, None), cpus
        for own, cost in filling.scores.items():
            earlier = state - (1 << BITS) - own
            if before.get(earlier) == score - cost:
                for inner in full[own]:
                    yield _Point(earlier, inner), cpus


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
    active: _Active, problem: Problem, filling: Filling, depth: int, domain: int
) -> Iterator[tuple[_Point, int]]:
    """From the state of a domain and those after it to what this one gives."""
    before, after = filling.layers[depth - 1], filling.layers[depth]
    table, touch = problem.table(domain), problem.touch[domain]
    taken: dict[tuple[int, int], int] = {}
    for point, cpus in active.items():
        state = point.domains
        if state is None:
            yield point, cpus
            continue
        score = after[state]
        if before.get(state) == score:
            yield point, cpus
        for own in range(1, min(table.most, state >> BITS) + 1):
            for broken, cost in table.rows[own] or table.row(own):
                earlier = state - (own << BITS) - broken
                if before.get(earlier) == score - touch - cost:
                    if (own, broken) not in taken:
                        taken[own, broken] = in_domain(problem, domain, own, broken)
                    yield _Point(point.nodes, earlier), cpus | taken[own, broken]


def in_domain(problem: Problem, domain: int, cpus: int, broken: int) -> int:
    """The lowest CPUs of a domain for an entry of its table."""
    unit = problem.shape.domains[domain]
    leads = [lead & unit for lead in problem.leads]
    return pick(problem.shape, problem.table(domain), leads, problem.usable & unit, cpus, broken)
