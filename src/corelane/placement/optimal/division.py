"""Inside a span: how many CPUs each of its NUMA nodes gives, and which.

Either one node gives all (`Alone`), or several are combined over states (nodes used, CPUs so far), the last
nodes first (`Combined`). `rough` is some choice, quickly, for when the search has run out of steps.

Term 10 is read off from the layers of a search: the lowest CPUs of all choices that it found equally good.
All of them are followed at once, L3 domain by L3 domain from the first on. Of two that go on from the same
state only the lower can win, and one whose CPUs so far differ from the lowest below the lowest CPU still to
come has lost; so few are ever left.
"""

import sys
from collections.abc import Collection, Hashable, Iterator, Sequence

from corelane.cpuset import bits
from corelane.placement.optimal.domain_tables import BITS, MASK
from corelane.placement.optimal.filling import (
    Aim,
    Budget,
    Caps,
    Filling,
    Layer,
    Window,
    closing,
    fill,
    most,
    most_from,
)
from corelane.placement.optimal.problem import PlacementProblem, lower, pick
from corelane.placement.optimal.spans import Span, added, node_reach


class Alone:
    """The nodes of a span of single nodes: the best that any of them gives, if any."""

    def __init__(self, problem: PlacementProblem, span: Span, aim: Aim, caps: Caps, budget: Budget) -> None:
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


def _possible(problem: PlacementProblem, span: Span, aim: Aim) -> Iterator[tuple[int, int]]:
    """The nodes that have enough CPUs in so many domains, each after a score that it cannot beat."""
    n = problem.demand.cpus
    for node in span.nodes:
        inside = problem.shape.inside[node]
        if most(problem.caps[inside.start : inside.stop], aim.domains) >= n:
            yield aim.domains * problem.rules.layout.domains + closing(problem, node)(n, 0), node


class Combined:
    """A span of several nodes searched for what is aimed at: the best, if there is any."""

    def __init__(self, problem: PlacementProblem, span: Span, aim: Aim, caps: Caps, budget: Budget) -> None:
        self.problem, self.span, self.aim = problem, span, aim
        self.fillings = self._fillings(aim.useful(problem, span.nodes, caps), budget)
        inside = [problem.shape.inside[node] for node in span.nodes]
        later = most_from([problem.caps[inner.start : inner.stop] for inner in inside], (), aim.domains)
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


def rough(problem: PlacementProblem, span: Span) -> tuple[int, int]:
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


def _parts(problem: PlacementProblem, span: Span) -> tuple[list[int], list[int]]:
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


_Point = tuple[int, int]
"""Where choices stand: the state of the nodes still to come, and that of this node's domains to come."""


_Active = dict[int, list[_Point]]
"""CPUs so far, and the points to which choices have come with these."""


def read(
    problem: PlacementProblem,
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
    active: _Active, problem: PlacementProblem, filling: Filling, depth: int, domain: int, floor: int
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


def _ways(problem: PlacementProblem, domain: int, most: int) -> list[tuple[int, int]]:
    """The entries, with their scores, of what may be taken from a domain; the last is nothing."""
    table, touch = problem.table(domain), problem.touch[domain]
    rows = [table.row(own) for own in range(min(table.most, most), 0, -1)]
    return [(taken, touch + cost) for row in rows for taken, cost in row] + [(0, 0)]
