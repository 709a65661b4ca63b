"""Pods whose CPUs are a fact, since they run: entries for what their annotations record, unjudged."""

from dataclasses import replace

from corelane.cpuset import CPUSet
from corelane.node.entries import Entry, Origin, Sharing
from corelane.node.ledger import NodeState, frozen, with_entries
from corelane.node.pools.classes import pod_class
from corelane.node.pools.pool_admission import placed_pod
from corelane.reasons import Refusal
from corelane.workload import ContainerRequest, PodQOS, PodRequest


def record(state: NodeState, request: PodRequest) -> NodeState:
    """Return the state with a bound pod on the CPUs in its `proposal`, whatever its class or today's rules.

    A pod that is in the ledger already changes nothing. One without recorded CPUs of this machine, or amounts
    by NUMA node, counts by its request where Koordinator's scheduler decides, and else changes nothing.
    """
    recorded = {name: cpus & state.usable for name, cpus in request.proposal.items()}
    if request.uid in state.pods:
        return state
    pods = {**state.pods, request.uid: request.cpu_request}
    if not any(recorded.values()) and not request.numa_amounts:
        return with_entries(state, state.entries, pods) if state.config.koordinator else state
    common = len(recorded) > 1 and len(set(recorded.values())) == 1
    entries = dict(state.entries)
    for container in request.containers:
        cpus = recorded.get(container.name, CPUSet())
        entries[request.uid, container.name] = _entry(state, request, container, cpus, common=common)
    after = with_entries(state, entries, pods)
    if state.config.policy != "pools":
        return after
    placed = replace(placed_pod(request), amounts=request.numa_amounts)
    return replace(after, placed_pods=frozen({**state.placed_pods, request.uid: placed}))


def _entry(
    state: NodeState, request: PodRequest, container: ContainerRequest, cpus: CPUSet, *, common: bool
) -> Entry:
    return Entry(
        request.uid,
        container.name,
        request.key,
        cpus,
        _sharing(state, request) if cpus else Sharing.POOL,
        common=bool(cpus) and common,
        zone=CPUSet(request.numa_amounts) if request.numa_amounts and not cpus else None,
        cls=str(request.placement_spec.qos or request.qos),
        kind=container.kind,
        origin=Origin.SCHEDULER,
        cpu_request=container.cpu_request,
    )


def _sharing(state: NodeState, request: PodRequest) -> Sharing:
    """As the pod's class says, where it has one that is bound; else as Koordinator's LSR."""
    if state.config.policy != "pools":
        return Sharing.ALONE
    try:
        decided = pod_class(request, state.config.pools)
    except Refusal:
        return Sharing.LENT
    if decided.bound:
        return decided.sharing
    return Sharing.ALONE if request.placement_spec.qos is PodQOS.LSE else Sharing.LENT
