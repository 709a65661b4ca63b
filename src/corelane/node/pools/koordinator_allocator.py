"""Koordinator's allocator under policy `pools`: a demand and the free CPUs to a set of CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from corelane.cpuset import bits
from corelane.node.ledger import NodeState
from corelane.placement.optimal import demand as shapes
from corelane.placement.optimal.demand import Demand, Occupancy, requirements
from corelane.reasons import Code, Reason
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy

if TYPE_CHECKING:
    from corelane.placement.koordinator.allocator import NotSatisfied
    from corelane.placement.koordinator.cpu_picker import Held, Request


class Unplaceable(Exception):  # noqa: N818 - an answer as much as an error
    """No CPUs fit; `reason` says why."""

    def __init__(self, code: Code, *values: Any) -> None:
        super().__init__(code, *values)
        self.reason = Reason(code, values)


@dataclass(frozen=True, slots=True)
class Placed:
    """CPUs as a mask, and why these: the values of the code behind the CPUs."""

    cpus: int
    code: Code = Code.COMPLETED_PROPOSAL
    values: tuple[Any, ...] = ()


def preferred(state: NodeState, free: int, demand: Demand, others: Occupancy) -> int:
    """Return the free CPUs that violate no preference about other pods that Koordinator lacks."""
    touched = shapes.from_topology(state.topology).touched
    if demand.exclusive:
        free &= ~touched(demand.exclusive.level, others.bound)
    for affinity in demand.pod_affinity:
        beside = touched(affinity.level, affinity.cpus)
        free &= ~beside if affinity.avoid else beside
    return free


def by_koordinator(state: NodeState, available: int, demand: Demand, others: Occupancy) -> Placed:
    """Pick as Koordinator's scheduler, first among CPUs that violate no other preference.

    Its modules are imported with the first pick: most nodes use the other allocator.
    """
    from corelane.placement.koordinator.allocator import NotSatisfied
    from corelane.placement.koordinator.cpu_picker import Held, Request

    free = available
    for rule in requirements(shapes.from_topology(state.topology), demand, others):
        free &= ~rule.barred
    options = state.config.pools
    request = Request(
        bind=demand.bind or BindPolicy.FULL_PCPUS,
        exclusive=demand.exclusive_policy,
        strategy=demand.strategy or NUMAStrategy.LEAST_ALLOCATED,
        required=demand.bind_required,
        as_proposed=options.as_proposed,
    )
    held = Held(others.same_core, others.same_numa)
    if demand.exclusive or demand.pod_affinity:
        narrowed = preferred(state, free, demand, others)
        try:
            cpus = _taken(state, narrowed, demand, request, held, others)
            return _by_koordinator(state, cpus, request, met=True)
        except NotSatisfied:
            pass
    try:
        cpus = _taken(state, free, demand, request, held, others)
    except NotSatisfied as refused:
        raise Unplaceable(*_unsatisfied(refused, request)) from None
    return _by_koordinator(state, cpus, request, met=False)


def _unsatisfied(refused: NotSatisfied, request: Request) -> tuple[Any, ...]:
    match refused.lack:
        case "cpus":
            return (Code.KOORDINATOR_NOT_ENOUGH,)
        case "bind":
            return Code.KOORDINATOR_BIND_POLICY, request.bind
    return (Code.KOORDINATOR_NUMA,)


def _by_koordinator(state: NodeState, cpus: int, request: Request, *, met: bool) -> Placed:
    whole = state.topology.whole_cores(cpus) == cpus
    cores = state.topology.cores_of(cpus).bit_count()
    as_least = request.strategy is NUMAStrategy.DISTRIBUTE_EVENLY and not request.as_proposed
    values = (request.bind, request.strategy, as_least, whole, cores, met)
    return Placed(cpus, Code.PICKED_BY_KOORDINATOR, values)


def _taken(
    state: NodeState, free: int, demand: Demand, request: Request, held: Held, others: Occupancy
) -> int:
    from corelane.placement.koordinator import allocator

    if demand.numa is NUMAPolicy.NONE:
        return allocator.take_valid(state.topology, free, demand.cpus, request, held)
    for nodes in _hints(state, free, demand, request, others):
        try:
            return allocator.take_on(state.topology, free, demand.cpus, nodes, request, held)
        except allocator.NotSatisfied:
            continue
    if demand.numa is NUMAPolicy.BEST_EFFORT:
        return allocator.take_valid(state.topology, free, demand.cpus, request, held)
    raise allocator.NotSatisfied("node(s) Insufficient NUMA Node resources", "numa")


def _hints(
    state: NodeState, free: int, demand: Demand, request: Request, others: Occupancy
) -> Iterator[tuple[int, ...]]:
    """Sets of NUMA nodes to try: the narrowest first, of these the best scored, then the lowest."""
    from corelane.placement.koordinator import allocator

    topology = state.topology
    inside = {node: cpus & free for node, cpus in zip(topology.numa_ids, topology.numa, strict=True)}
    usable = {node: allocator.usable(topology, cpus, request).bit_count() for node, cpus in inside.items()}
    size = dict(zip(topology.numa_ids, (cpus.bit_count() for cpus in topology.numa), strict=True))
    single, spanned = _statuses(state, others) if demand.numa_exclusive else (0, 0)

    def score(nodes: tuple[int, ...]) -> int:
        capacity, left = sum(size[node] for node in nodes), sum(usable[node] for node in nodes) - demand.cpus
        used = capacity - left if request.strategy is NUMAStrategy.MOST_ALLOCATED else left
        return used * 100 // capacity

    for count in range(1, _widest(state, demand) + 1):
        barred = spanned if count == 1 else single
        nodes = [node for node in topology.numa_ids if not barred >> node & 1]
        sets = (each for each in combinations(nodes, count) if _holds(each, usable, demand))
        yield from sorted(sets, key=lambda node_set: (-score(node_set), sum(1 << node for node in node_set)))


def _holds(nodes: tuple[int, ...], cpus: Mapping[int, int], demand: Demand) -> bool:
    """Whether these NUMA nodes have the CPUs and all else that is wanted."""
    amounts = [(cpus, demand.cpus), *((resource.free, resource.wanted) for resource in demand.resources)]
    return all(sum(free.get(node, 0) for node in nodes) >= wanted for free, wanted in amounts)


def _widest(state: NodeState, demand: Demand) -> int:
    if demand.numa is NUMAPolicy.SINGLE_NUMA_NODE:
        return 1
    if demand.numa is NUMAPolicy.BEST_EFFORT:
        return len(state.topology.numa)
    missing = demand.cpus
    for count, size in enumerate(state.topology.numa_sizes, start=1):
        missing -= size
        if missing <= 0:
            return count
    return len(state.topology.numa)


def _statuses(state: NodeState, others: Occupancy) -> tuple[int, int]:
    """The NUMA nodes (masks of ids) of pods that lie in one, and those of pods that lie in several."""
    topology = state.topology
    single = spanned = 0
    for cpus in others.holders:
        ids = sum(1 << topology.numa_ids[i] for i in bits(topology.nodes_of(cpus)))
        if ids.bit_count() == 1:
            single |= ids
        else:
            spanned |= ids
    return single & ~spanned, spanned
