"""Admission of a pod by Koordinator's rules: `Filter`, then `Reserve`, as one decision.

Rules about other pods that Koordinator lacks (`corelane.io/exclusive`, pod CPU affinity, core kinds) narrow
the CPUs beforehand.
"""

from collections.abc import Iterator
from dataclasses import replace

from corelane.cpuset import CPUSet
from corelane.node import amplification
from corelane.node.koordinator import zone_hints
from corelane.node.koordinator.pod_demand import PodDemand, options_of, pod_amounts, pod_demand
from corelane.node.koordinator.zone_shares import Placement, Zones, bound_cpus
from corelane.node.ledger import Decision, NodeState, frozen
from corelane.node.pools import other_pods, zones
from corelane.node.pools.binding import core_kind_limits, permitted
from corelane.node.pools.classes import pod_class
from corelane.node.pools.koordinator_allocator import preferred
from corelane.node.recovery.recorded import record
from corelane.placement.koordinator.allocator import NotSatisfied
from corelane.placement.optimal.demand import Demand
from corelane.reasons import Code, Reason, Refusal
from corelane.workload import NUMAPolicy, PodRequest


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
    assignments = dict.fromkeys((one.name for one in request.containers), cpus) if cpus else {}
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
        return of_node.place(zone_hints.affinity(of_node, policy) if of_node.offered else None)
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
    held = other_pods.holdings(state)
    others = other_pods.occupancy(state, request, held)
    rules = Demand(
        demand.cpus,
        exclusive=spec.exclusive,
        limits=tuple(core_kind_limits(state, request)),
        pod_affinity=other_pods.neighbours(state, request, held),
    )
    allowed, _ = permitted(state, free, rules, others)
    if rules.exclusive or rules.pod_affinity:
        yield preferred(state, allowed, rules, others)
    yield allowed


def _refusal(state: NodeState, demand: PodDemand, lack: NotSatisfied) -> Refusal:
    """What is missing, in upstream's words."""
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
    names = tuple(other_pods.names_of(state, state.topology.all))
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


def amplified_refusal(state: NodeState, request: PodRequest) -> Reason | None:
    """Return why a pod does not fit a node with amplified CPUs; one that is bound counts amplified."""
    ratio = state.config.pools.amplification
    try:
        demand = pod_demand(state, request)
    except Refusal:
        return None  # `admit` says why.
    milli, offered = demand.amounts.get("cpu", 0), options_of(state).allocatable or state.allocatable
    used = amplification.requested(state.requested, bound_cpus(state).bit_count(), ratio)
    if not milli or amplification.fits(offered, used, milli, ratio, binds=bool(demand.cpus)):
        return None
    counts = float(ratio) if demand.cpus else 0.0
    return Reason(Code.OUT_OF_AMPLIFIED_CPU, (milli, used, offered, counts))
