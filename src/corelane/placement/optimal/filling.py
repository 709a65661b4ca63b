"""One NUMA node: what it costs to take so many CPUs from its L3 domains, for all numbers in a window.

Dynamic programming, domain after domain, over states (CPUs so far, broken CPUs of whole free cores so far). A
state keeps the lowest score; at one number of CPUs those with more broken CPUs stay only while they may tie.
The last domains come first, so that what is chosen can be read off from the first domain on, the one that
mostly has the lowest ids. Bounds keep the search small: what L3 domains can give at most, and which scores
are worth following.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from corelane.placement.optimal.domain_tables import BITS, MASK, SHAPE_BITS
from corelane.placement.optimal.problem import PlacementProblem
from corelane.workload.placement_spec import NUMAStrategy

Layer = dict[int, int]
"""State (CPUs << BITS | broken) to the lowest score."""


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


class Caps(NamedTuple):
    """The most CPUs of each of some domains, and the most without breaking the bind policy."""

    all: Sequence[int]
    unbroken: Sequence[int]


class Aim(NamedTuple):
    """Choices from so many L3 domains, that break so many cores; None of them bounds nothing.

    `limits` are the highest scores worth following, by how many of the domains are left to be chosen.
    """

    domains: int
    broken: int | None
    limits: Sequence[int]

    def useful(self, problem: PlacementProblem, nodes: Iterable[int], caps: Caps) -> Caps:
        """The caps of the nodes' domains, 0 for those that cannot be among so few that give all.

        With the largest of the others they give too little, or too little of it without breaking more cores.
        """
        inside = [i for node in nodes for i in problem.shape.inside[node]]
        n, others, whole = problem.demand.cpus, self.domains - 1, 0
        need = n - most([caps.all[i] for i in inside], others)
        if self.broken is not None and problem.shape.threads > 1:
            spare = self.broken * (problem.shape.threads - 1)
            whole = n - spare - most([caps.unbroken[i] for i in inside], others)
        every, unbroken = [0] * len(caps.all), [0] * len(caps.all)
        for i in inside:
            if caps.all[i] >= need and caps.unbroken[i] >= whole:
                every[i], unbroken[i] = caps.all[i], caps.unbroken[i]
        return Caps(every, unbroken)


def aim(problem: PlacementProblem, domains: int, broken: int | None) -> Aim:
    """Return the aim, with the limits that follow."""
    layout = problem.rules.layout
    highest = (layout.domains if broken is None else (broken + 1) * layout.bind) - 1
    return Aim(domains, broken, [used * layout.domains + highest for used in range(domains, -1, -1)])


def most(amounts: Iterable[int], count: int) -> int:
    """The most that so many of the amounts come to."""
    return sum(sorted(amounts, reverse=True)[:count])


def fewest(amounts: Iterable[int], need: int, otherwise: int) -> int:
    """Return how many of the largest amounts add up to the need; `otherwise` where all of them do not."""
    for count, amount in enumerate(sorted(amounts, reverse=True), start=1):
        need -= amount
        if need <= 0:
            return count
    return otherwise


def most_from(units: Iterable[Iterable[int]], beside: Iterable[int], domains: int) -> list[list[int]]:
    """For each unit the most CPUs that 0, 1, 2 … domains before it, or beside, can give.

    A unit is the most CPUs of each of its domains.
    """
    largest = sorted(beside, reverse=True)[:domains]
    sums = []
    for caps in units:
        total = [0, *accumulate(largest)]
        sums.append(total + [total[-1]] * (domains - len(largest)))
        largest.extend(caps)
        largest.sort(reverse=True)
        del largest[domains:]
    return sums


class Window(NamedTuple):
    """Target of a search: from `low` to `high` CPUs here, a part of `total`.

    `limits` are the highest scores worth following, by the number of domains that may still be taken from, in
    all. `beside` are the domains of the other nodes, and so many `others` give the rest. With `rough`, only
    the ways that leave a domain fullest or emptiest are looked at.
    """

    low: int
    high: int
    total: int
    limits: Sequence[int]
    beside: Caps
    others: int = 0
    rough: bool = False


class Filling(NamedTuple):
    """The outcome for one node: per number of CPUs the lowest score, everything of the node included.

    `layers` are those over the last 0, 1, 2 … of its domains.
    """

    problem: PlacementProblem
    node: int
    layers: list[Layer]
    scores: dict[int, int]


def closing(problem: PlacementProblem, node: int) -> Callable[[int, int], int]:
    """Return a node's part of the score: from the CPUs taken and those broken."""
    rooms, whole = problem.rules.rooms, problem.node_whole[node]
    base = problem.node_touch[node] + rooms[whole]
    if not problem.rules.layout.strategy:
        return lambda _, broken: base - rooms[whole - broken]
    slope, curve = steering(problem)
    slope += curve * -2 * problem.node_free[node]
    return lambda cpus, broken: base - rooms[whole - broken] + cpus * (slope + curve * cpus)


def steering(problem: PlacementProblem) -> tuple[int, int]:
    """Term 8 as a score: smaller is better, never negative.

    A node that has f CPUs free and gives c of them adds c * (slope + curve * (c - 2 * f)).
    """
    weight = problem.rules.layout.strategy
    if problem.demand.strategy is NUMAStrategy.MOST_ALLOCATED:
        return 0, -weight
    return 2 * max(problem.node_free) * weight, weight


def fill(problem: PlacementProblem, node: int, window: Window, caps: Caps, budget: Budget) -> Filling:
    """The best ways to take each number of CPUs in the window from a node.

    Numbers that cannot be a part of `total` CPUs within the limits are left out, as are domains with a cap of
    0 in `caps`. Raises BudgetSpentError.
    """
    inside, domains = problem.shape.inside[node], len(window.limits) - 1
    every, unbroken = (each[inside.start : inside.stop] for each in caps)
    if min(most(every, domains - window.others), window.high) < window.low:
        return Filling(problem, node, [{0: 0}], {})
    later = whole = most_from([(min(cap, window.high),) for cap in every], window.beside.all, domains)
    if problem.shape.threads > 1:
        whole = most_from([(cap,) for cap in unbroken], window.beside.unbroken, domains)
    layers: list[Layer] = [{0: 0}]
    for i in reversed(range(len(inside))):
        layer = layers[-1]
        if every[i] and layer:
            coming = Caps(later[i], whole[i])
            layer = _thinned(_extend(problem, inside[i], layer, window, coming, unbroken[i], budget))
        layers.append(layer)
    return Filling(problem, node, layers, _scores(problem, node, layers[-1], window))


def _scores(problem: PlacementProblem, node: int, layer: Layer, window: Window) -> dict[int, int]:
    """The lowest score, everything of the node included, of each number of CPUs in the window."""
    scores: dict[int, int] = {}
    close = closing(problem, node)
    low, high = window.low << BITS, window.high << BITS | MASK
    for state, score in layer.items():
        if low <= state <= high:
            cpus = state >> BITS
            closed = score + close(cpus, state & MASK)
            if closed < scores.get(cpus, closed + 1):
                scores[cpus] = closed
    return scores


def _extend(
    problem: PlacementProblem,
    domain: int,
    layer: Layer,
    window: Window,
    coming: Caps,
    unbroken: int,
    budget: Budget,
) -> Layer:
    """The layer after one more domain, which can give so many CPUs unbroken.

    `coming` are the most CPUs from 0, 1, 2 … of the domains to come, and the most that break no core: what is
    missing beyond the latter breaks cores, each of which gives less than its threads.
    """
    table, touch, layout = problem.table(domain), problem.touch[domain], problem.rules.layout
    _, high, total, limits, _, others, rough = window
    later, whole = coming
    shift, bind, last = layout.shift, layout.bind, len(limits) - 1
    below, spare = bind.bit_length() - 1, max(problem.shape.threads - 1, 1)
    grain = problem.grain or 1
    together = grain if problem.rules.spread else problem.shape.core_size or grain
    rows, room = table.rows, min(table.most, high)
    after: Layer = {}
    known = after.get
    for state, score in layer.items():
        missing, left = total - (state >> BITS), last - (score >> shift)
        gap = missing - whole[left]
        fewest = -(-gap // spare) * bind if gap > 0 else 0
        if missing <= later[left] and score + fewest <= limits[left] and score < known(state, score + 1):
            after[state] = score
        if left <= others:
            continue
        left -= 1
        touched, limit = score + touch, limits[left]
        breaks = (limit >> below) - (touched >> below)
        if breaks < 0:
            continue
        step, slack, gap = grain if breaks else together, breaks * spare, missing - whole[left]
        if gap - unbroken > slack:
            continue
        least = max(missing - later[left], gap - slack, step)
        end = min(room, high - (state >> BITS), unbroken + slack) + 1
        ways: Sequence[int] = range(-(-least // step) * step, end, step)
        budget.take(len(ways) + 1)
        for own in ways[-2:] if rough else ways:
            bound = limit if own >= gap else limit + (own - gap) // spare * bind
            for taken, cost in rows[own] or table.row(own):
                better = touched + cost
                if better <= bound and better < known(state + taken, better + 1):
                    after[state + taken] = better
    return after


def _thinned(layer: Layer) -> Layer:
    """Without the states that can only come to more than another with as many CPUs.

    These are worse in terms 5 to 8, or have no fewer broken CPUs and a higher score.
    """
    if len({state >> BITS for state in layer}) == len(layer):
        return layer
    least: dict[int, int] = {}
    for state, score in layer.items():
        cpus, upper = state >> BITS, score >> SHAPE_BITS
        if upper < least.get(cpus, upper + 1):
            least[cpus] = upper
    kept: Layer = {}
    last, best = -1, 0
    for state in sorted(layer):
        cpus, score = state >> BITS, layer[state]
        if score >> SHAPE_BITS > least[cpus] or (cpus == last and score > best):
            continue
        kept[state], last, best = score, cpus, score
    return kept
