"""Terms 2 to 4: which NUMA nodes, best first; what is left to choose among equals is left to the search.

A span stands for many choices of nodes at once: any `count` of its `nodes`, the `musts` among them, each
giving between `low` and `high` CPUs. Without resources, and where a node can give any number of CPUs, choices
need not be listed: the nodes of a choice are near to each other, so they are a part of such a group.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, groupby, islice
from math import comb
from operator import and_, or_
from typing import NamedTuple

from corelane.cpuset import bits
from corelane.machine.model import LOCAL_DISTANCE
from corelane.placement.optimal.demand import Resource
from corelane.placement.optimal.filling import fewest, most
from corelane.placement.optimal.problem import PlacementProblem
from corelane.workload.placement_spec import NUMAPolicy, NUMAStrategy


class Rank(NamedTuple):
    """The values of terms 2 to 4; smaller is better."""

    uneven: int
    nodes: int
    elsewhere: int
    distance: int


@dataclass(frozen=True, slots=True)
class Span:
    """Some choices of NUMA nodes (positions)."""

    nodes: tuple[int, ...]
    count: int
    low: int
    high: int
    musts: int = 0


def possible(problem: PlacementProblem) -> bool:
    """Whether the demand fits at all."""
    return next(choices(problem), None) is not None


def choices(problem: PlacementProblem) -> Iterator[tuple[Rank, list[Span]]]:
    """All ranks that can be reached, best first, each with the choices of nodes that have it."""
    n, grain = problem.demand.cpus, problem.grain
    if sum(problem.node_caps) < n or (grain and n % grain):
        return iter(())
    if grain and not problem.demand.resources:
        return _grouped(problem)
    return _listed(problem)


def _allowed(problem: PlacementProblem, count: int) -> list[int]:
    """The nodes with usable CPUs that may be among so many."""
    nodes = [i for i, cap in enumerate(problem.node_caps) if cap]
    if not problem.demand.numa_exclusive:
        return nodes
    barred = _holders(problem, spanning=count == 1)
    return [i for i in nodes if not problem.shape.nodes[i] & barred]


def _holders(problem: PlacementProblem, *, spanning: bool) -> int:
    """The CPUs of the holders that lie in several NUMA nodes, or of those that lie in one."""
    found = 0
    for cpus in problem.occupancy.holders:
        nodes = sum(1 for node in problem.shape.nodes if node & cpus)
        if (nodes > 1) is spanning:
            found |= cpus
    return found


def most_nodes(problem: PlacementProblem) -> int:
    """The most NUMA nodes that the policy allows."""
    policy = problem.demand.numa
    if policy is NUMAPolicy.SINGLE_NUMA_NODE:
        return 1
    if policy is NUMAPolicy.RESTRICTED:
        return _needed_when_empty(problem)
    return len(problem.shape.nodes)


def _needed_when_empty(problem: PlacementProblem) -> int:
    """As many nodes as CPUs, or any resource, would need on the empty machine, whatever the limits."""
    demand, ids = problem.demand, problem.shape.node_ids
    count = len(ids)
    need = fewest([node.bit_count() for node in problem.shape.nodes], demand.cpus, count)
    for resource in demand.resources:
        capacity = resource.free if resource.capacity is None else resource.capacity
        need = max(need, fewest([capacity.get(node, 0) for node in ids], resource.wanted, count))
    return need


def _grouped(problem: PlacementProblem) -> Iterator[tuple[Rank, list[Span]]]:
    if problem.demand.strategy is NUMAStrategy.DISTRIBUTE_EVENLY:
        widths = sorted(_even_widths(problem))
    else:
        widths = [(0, count) for count in range(1, most_nodes(problem) + 1)]
    for uneven, count in widths:
        allowed = _allowed(problem, count)
        near = problem.shape.nearness if count > 1 else ((LOCAL_DISTANCE, (tuple(allowed),)),)
        for distance, groups in near:
            spans = [
                span
                for group in groups
                for span in _in_group(problem, [i for i in group if i in allowed], count, uneven)
            ]
            if spans:
                yield Rank(uneven, count, 0, distance), spans


def _in_group(problem: PlacementProblem, nodes: Sequence[int], count: int, uneven: int) -> Iterator[Span]:
    """The spans of one group of nodes."""
    if problem.demand.strategy is not NUMAStrategy.DISTRIBUTE_EVENLY:
        total = most((problem.node_caps[i] for i in nodes), count)
        if len(nodes) >= count and count * problem.grain <= problem.demand.cpus <= total:
            yield Span(tuple(nodes), count, 1, problem.demand.cpus)
        return
    for least, low, high in _even(problem, nodes, count):
        if least <= uneven:
            enough = tuple(i for i in nodes if problem.node_caps[i] >= low)
            yield Span(enough, count, low, high)


def _even(problem: PlacementProblem, nodes: Iterable[int], count: int) -> Iterator[tuple[int, int, int]]:
    """The least (unevenness, low, high) with which so many of the nodes can give all CPUs between them.

    The nodes that can give most make both the lowest maximum and the highest minimum possible, so that these
    two determine the unevenness. Where it is 0 there may be several pairs of low and high.
    """
    n, grain = problem.demand.cpus, problem.grain
    caps = sorted((problem.node_caps[i] for i in nodes), reverse=True)[:count]
    if len(caps) < count or sum(caps) < n:
        return
    lowest = min(caps[-1], n // count) // grain * grain
    highest = next(
        high for high in range(grain, n + grain, grain) if sum(min(cap, high) for cap in caps) >= n
    )
    if not lowest:
        return
    uneven = max(0, highest - lowest - _granule(problem))
    width = uneven + _granule(problem)
    for low in range(lowest, max(highest - width, 1) - 1, -grain):
        if low + (count - 1) * (low + width) >= n:
            yield uneven, low, low + width


def _granule(problem: PlacementProblem) -> int:
    """By how many CPUs nodes may differ and still count as even: a core's, where cores are to stay whole."""
    return 1 if problem.rules.spread else problem.shape.threads


def _even_widths(problem: PlacementProblem) -> Iterator[tuple[int, int]]:
    """The least unevenness for every number of nodes."""
    for count in range(1, most_nodes(problem) + 1):
        for uneven, _, _ in islice(_even(problem, _allowed(problem, count), count), 1):
            yield uneven, count


def _listed(problem: PlacementProblem) -> Iterator[tuple[Rank, list[Span]]]:
    """As above, by looking at every choice of nodes."""
    even = problem.demand.strategy is NUMAStrategy.DISTRIBUTE_EVENLY
    found: list[tuple[Rank, Span]] = []
    for count in range(1, most_nodes(problem) + 1):
        found += _of_size(problem, count)
        if not even:
            yield from _by_rank(problem, found)
            found = []
    yield from _by_rank(problem, found)


def _by_rank(problem: PlacementProblem, found: list[tuple[Rank, Span]]) -> Iterator[tuple[Rank, list[Span]]]:
    found.sort(key=lambda pair: (pair[0], pair[1].nodes, pair[1].low))
    for rank, pairs in groupby(found, key=lambda pair: pair[0]):
        yield rank, list(_joined(problem, [span for _, span in pairs]))


def _of_size(problem: PlacementProblem, count: int) -> Iterator[tuple[Rank, Span]]:
    strict = problem.demand.numa in (NUMAPolicy.SINGLE_NUMA_NODE, NUMAPolicy.RESTRICTED)
    n, shape = problem.demand.cpus, problem.shape
    for nodes in combinations(_allowed(problem, count), count):
        if sum(problem.node_caps[i] for i in nodes) < n:
            continue
        elsewhere = sum(_lacks(problem, nodes, resource) for resource in problem.demand.resources)
        if elsewhere and strict:
            continue
        for uneven, low, high in _windows(problem, nodes):
            yield Rank(uneven, count, elsewhere, shape.farthest(nodes)), Span(nodes, count, low, high)


def _lacks(problem: PlacementProblem, nodes: Sequence[int], resource: Resource) -> bool:
    return sum(resource.free.get(problem.shape.node_ids[i], 0) for i in nodes) < resource.wanted


def _windows(problem: PlacementProblem, nodes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The (unevenness, low, high) with which these nodes, each of them, can give all CPUs."""
    n, count = problem.demand.cpus, len(nodes)
    if problem.demand.strategy is not NUMAStrategy.DISTRIBUTE_EVENLY:
        if count * problem.grain <= n if problem.grain else _reached(problem, nodes, 1, n):
            yield 0, 1, n
    elif problem.grain:
        yield from _even(problem, nodes, count)
    else:
        granule = _granule(problem)
        for low in range(1, n // count + 1):
            highs = range(low + granule, n + granule + 1)
            high = next((high for high in highs if _reached(problem, nodes, low, high)), None)
            if high is not None:
                yield high - low - granule, low, high


def _reached(problem: PlacementProblem, nodes: Sequence[int], low: int, high: int) -> bool:
    """Whether all these nodes together can give the CPUs, each a number between the two."""
    window = (2 << high) - (1 << low)
    numbers = reduce(added, (node_reach(problem, i) & window for i in nodes))
    return bool(numbers >> problem.demand.cpus & 1)


def node_reach(problem: PlacementProblem, node: int) -> int:
    """The set of numbers of CPUs that a node can give."""
    domains = map(problem.table, problem.shape.inside[node])
    return reduce(added, (sum(1 << c for c in range(each.most + 1) if each.row(c)) for each in domains), 1)


def added(a: int, b: int) -> int:
    """The set of all sums of a number of one set and a number of the other."""
    return reduce(or_, (a << i for i in bits(b)), 0)


def _joined(problem: PlacementProblem, spans: list[Span]) -> Iterator[Span]:
    """The same choices as one span, where they are all those with certain nodes out of certain nodes."""
    first = spans[0]
    masks = [sum(1 << i for i in span.nodes) for span in spans]
    musts, union = reduce(and_, masks), reduce(or_, masks)
    free = (union ^ musts).bit_count()
    whole = {(span.low, span.high) for span in spans} == {(first.low, first.high)}
    if whole and problem.grain and len(spans) == comb(free, first.count - musts.bit_count()):
        yield Span(tuple(bits(union)), first.count, first.low, first.high, musts)
    else:
        yield from spans
