"""Admission of a pod by Koordinator's rules: `Filter`, then `Reserve`, as one decision.

Rules about other pods that Koordinator lacks (`corelane.io/exclusive`, pod CPU affinity, core kinds) narrow
the CPUs beforehand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from math import prod
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node.koordinator import zone_shares
from corelane.node.koordinator.pod_demand import PodDemand, pod_amounts, pod_demand
from corelane.node.koordinator.zone_shares import Placement, Zones
from corelane.node.ledger import Decision, NodeState, frozen
from corelane.node.pools import binding, zones
from corelane.node.pools.binding import core_kind_limits, permitted
from corelane.node.pools.classes import pod_class
from corelane.node.pools.koordinator_allocator import preferred
from corelane.node.recovery.unplaced import record
from corelane.placement.koordinator.allocator import NotSatisfied
from corelane.placement.optimal.demand import Demand
from corelane.reasons import Code, Reason, Refusal
from corelane.workload import NUMAPolicy
from corelane.workload.request import PodRequest

# NUMA nodes: hints by trial allocation, merged by the topology policy, as in `GetTopologyHints` of the plugin
# and `frameworkext/topologymanager`. Every set of nodes that holds the pod in a trial is a hint for each
# resource that all of these nodes have left. So the hints of all resources are subsets of one list, and the
# preferred set on which all agree is found without their cross product.


MOST_TRIALS: Final = 4096
"""Sets of NUMA nodes that are tried; upstream tries all, 2 to the power of their number."""
_MOST_PERMUTATIONS: Final = 20_000


@dataclass(slots=True)
class _Hints:
    """The sets of nodes (ascending ids) that hold the pod, with their scores, as each resource sees them."""

    by_resource: dict[str, list[tuple[int, ...]]]
    scores: dict[tuple[int, ...], int] = field(default_factory=dict)


def affinity(zones: Zones, policy: NUMAPolicy) -> tuple[int, ...] | None:
    """Return the NUMA nodes for the pod; None leaves them open. Raises NotSatisfied where none will do."""
    hints, agreed = _hints(zones, policy)
    every = tuple(zones.offered)
    if not hints.by_resource:
        best: tuple[int, ...] | None = every if _keeps_apart(zones, every) else None
        agreed = [] if best is None else [every]
    if agreed:
        best = _best(agreed, hints)
        return None if policy is NUMAPolicy.SINGLE_NUMA_NODE and best == every else best
    if policy is not NUMAPolicy.BEST_EFFORT:
        raise NotSatisfied("node(s) Insufficient NUMA Node resources", "numa")
    return _overlap(zones, hints)


def _hints(zones: Zones, policy: NUMAPolicy) -> tuple[_Hints, list[tuple[int, ...]]]:
    """The hints, and the sets that all resources prefer; larger sets are not tried once there are some."""
    every = list(zones.offered)
    named = {name for amounts in zones.offered.values() for name in amounts}
    hints = _Hints({name: [] for name in zones.demand.amounts if name in named})
    lacking = {
        name: {node for node, amounts in zones.available.items() if not amounts.get(name)}
        for name in hints.by_resource
    }
    widest = 1 if policy is NUMAPolicy.SINGLE_NUMA_NODE else len(every)
    trials = 0
    for size in range(1, widest + 1):
        for nodes in combinations(every, size):
            if not zones.may_hold(nodes):
                continue
            trials += 1
            if trials > MOST_TRIALS:
                return hints, []
            try:
                zones.place(nodes)
            except NotSatisfied:
                continue
            hints.scores[nodes] = zone_shares.hint_score(zones, nodes)
            for name, sets in hints.by_resource.items():
                if not lacking[name].intersection(nodes):
                    sets.append(nodes)
        if agreed := _agreed(zones, hints, policy, size):
            return hints, agreed
    return hints, []


def _agreed(zones: Zones, hints: _Hints, policy: NUMAPolicy, size: int) -> list[tuple[int, ...]]:
    """The sets of this size that all resources prefer: the narrowest of each, or any under Restricted."""
    lists = list(hints.by_resource.values())
    if not lists or not all(lists):
        return []
    if policy is not NUMAPolicy.RESTRICTED and any(len(sets[0]) != size for sets in lists):
        return []
    fitting = [nodes for nodes in lists[0] if len(nodes) == size]
    return [nodes for nodes in fitting if all(nodes in sets for sets in lists) and _keeps_apart(zones, nodes)]


def _keeps_apart(zones: Zones, nodes: Sequence[int]) -> bool:
    """Whether pods on one NUMA node and pods across several do not meet, where that is required."""
    barred = zones.spanned if len(nodes) == 1 else zones.single
    return not zones.demand.apart or not any(barred >> node & 1 for node in nodes)


def _mask(nodes: Sequence[int]) -> int:
    return sum(1 << node for node in nodes)


def _best(agreed: Sequence[tuple[int, ...]], hints: _Hints) -> tuple[int, ...]:
    """The last that is better than the one before: a lower mask, or a higher score."""
    best = agreed[0]
    for nodes in agreed[1:]:
        lower = _mask(nodes) < _mask(best)
        if lower or hints.scores.get(nodes, 0) > hints.scores.get(best, 0):
            best = nodes
    return best


def _overlap(zones: Zones, hints: _Hints) -> tuple[int, ...]:
    """Of BestEffort, where resources prefer different sets: all nodes, or the narrowest set of them all."""
    every = tuple(zones.offered)
    best, best_score, satisfied = _mask(every), 0, True
    for chosen in _permutations(hints):
        merged, masks = _mask(every), [_mask(nodes) for nodes in chosen if nodes is not None]
        for mask in masks:
            merged &= mask
        if not merged:
            continue
        score = sum(hints.scores.get(nodes, 0) for nodes in chosen if nodes and _mask(nodes) == merged)
        size, best_size = merged.bit_count(), best.bit_count()
        if (size, merged) < (best_size, best) or (size == best_size and score > best_score):
            widest = max((mask.bit_count() for mask in masks), default=size)
            best, best_score = merged, score
            satisfied = None not in chosen and (not masks or widest == size)
    return tuple(node for node in every if best >> node & 1) if satisfied else every


def _permutations(hints: _Hints) -> Iterator[tuple[tuple[int, ...] | None, ...]]:
    """One hint of each resource; None of a resource without any. Of too many, those that are all equal."""
    lists: list[Sequence[tuple[int, ...] | None]] = [
        sets or [None] for _, sets in sorted(hints.by_resource.items())
    ]
    if prod(map(len, lists)) <= _MOST_PERMUTATIONS:
        return iter(product(*lists))
    return iter([tuple(nodes for _ in lists) for nodes in hints.scores])


def admit(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Return the state with the pod as its annotations will record it, and the decision."""
    if not any(pod_amounts(request).values()):
        return record(state, request), Decision(True, shared=state.shared_pool)
    try:
        demand = pod_demand(state, request)
        placement = place(state, request, demand)
    except Refusal as refusal:
        return state, Decision(False, refusal.reason, shared=state.shared_pool)
    cpus = CPUSet.from_mask(placement.cpus)
    assignments = dict.fromkeys((container.name for container in request.containers), cpus) if cpus else {}
    after = record(state, replace(request, proposal=assignments, numa_amounts=placement.shares))
    return after, Decision(
        True,
        assignments=frozen(assignments),
        numa_amounts=frozen(placement.shares),
        shared=after.shared_pool,
        bind=demand.bind if cpus else None,
        bind_required=demand.bind_required,
        explanation=lambda: _reasons(state, request, demand, placement),
    )


def place(state: NodeState, request: PodRequest, demand: PodDemand) -> Placement:
    """Return the pod's amounts by NUMA node and its CPUs. Raises Refusal."""
    refusal: NotSatisfied | None = None
    for free in _candidates(state, request, demand):
        try:
            return _placed(Zones(state, demand, free), demand.numa)
        except NotSatisfied as lack:
            refusal = lack
    assert refusal is not None
    raise _refusal(state, demand, refusal)


def _placed(of_node: Zones, policy: NUMAPolicy) -> Placement:
    if policy is NUMAPolicy.NONE:
        return of_node.place(None)
    best_effort = policy is NUMAPolicy.BEST_EFFORT
    if not of_node.offered and not best_effort:
        raise NotSatisfied("node(s) missing NUMA resources", "numa")
    try:
        return of_node.place(affinity(of_node, policy) if of_node.offered else None)
    except NotSatisfied:
        if not best_effort:
            raise
    return of_node.place(None)


def _candidates(state: NodeState, request: PodRequest, demand: PodDemand) -> Iterator[int]:
    """The CPUs (masks) that the pod may be bound to: those that violate no preference, then the others."""
    free, spec = state.free_exclusive.mask, request.placement_spec
    if not demand.cpus:
        if spec.exclusive or spec.affinities:
            zones.check_rules_need_cpus(request, pod_class(request, state.config.pools))
        yield free
        return
    held = binding.holdings(state)
    others = binding.occupancy(state, request, held)
    rules = Demand(
        demand.cpus,
        exclusive=spec.exclusive,
        limits=tuple(core_kind_limits(state, request)),
        pod_affinity=binding.neighbours(state, request, held),
    )
    allowed, _ = permitted(state, free, rules, others)
    if rules.exclusive or rules.pod_affinity:
        yield preferred(state, allowed, rules, others)
    yield allowed


def _refusal(state: NodeState, demand: PodDemand, lack: NotSatisfied) -> Refusal:
    """Name what is missing, in upstream's words."""
    free = state.free_exclusive.mask
    if not demand.cpus:
        milli = {node: 1000 * (mask & free).bit_count() for node, mask in _numa(state)}
        most = 1 if demand.numa is NUMAPolicy.SINGLE_NUMA_NODE else len(milli)
        return Refusal(
            Code.INSUFFICIENT_NUMA, most, "request", demand.amounts.get("cpu", 0), tuple(milli.items())
        )
    cause = {
        "cpus": Reason(Code.KOORDINATOR_NOT_ENOUGH),
        "bind": Reason(Code.KOORDINATOR_BIND_POLICY, (demand.bind,)),
    }.get(lack.lack, Reason(Code.KOORDINATOR_NUMA))
    names = tuple(binding.names_of(state, state.topology.all))
    return Refusal(
        Code.INSUFFICIENT_CPUS, cause, demand.cpus, free.bit_count(), len(state.usable), 0, (), names
    )


def _numa(state: NodeState) -> Iterator[tuple[int, int]]:
    return zip(state.topology.numa_ids, state.topology.numa, strict=True)


def _reasons(
    state: NodeState, request: PodRequest, demand: PodDemand, placement: Placement
) -> Iterator[Reason]:
    nodes = sum(1 << node for node in placement.shares)
    for container in request.containers:
        if placement.cpus:
            topology = state.topology
            whole = topology.whole_cores(placement.cpus) == placement.cpus
            cores = topology.cores_of(placement.cpus).bit_count()
            values = (demand.bind, demand.strategy, False, whole, cores, False)
            cpus = (placement.cpus, placement.cpus)
            yield Reason(Code.PICKED_BY_KOORDINATOR, cpus + values, container.name)
        elif nodes:
            milli = demand.amounts.get("cpu", 0)
            by_node = tuple((node, part.get("cpu", 0)) for node, part in placement.shares.items())
            yield Reason(Code.ZONE_ASSIGNED, (nodes, milli, by_node, 0), container.name)
