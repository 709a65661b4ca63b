"""`admit(state, request) -> (state, decision)`: the one function that gives a pod its CPUs, or rejects it.

Agent, scheduler, simulator and what-if all call it, so what the scheduler proposes is what the agent would
allocate. A pod is admitted whole or not at all.
"""

from types import MappingProxyType

from corelane.node.kubelet import static
from corelane.node.ledger import Decision, NodeState
from corelane.node.pools import pool_admission as pools
from corelane.node.recovery import takeover
from corelane.reasons import Code, Reason, Refusal
from corelane.workload.request import ContainerRequest, PodRequest


def admit(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Allocate a pod's CPUs, or return why it is rejected; all of its containers or none.

    A pod that is already in the ledger keeps its CPUs. A valid `request.proposal` (right number, free CPUs,
    in line with the node's options) is used as it is; where it conflicts, other CPUs are allocated.
    """
    if request.uid in state.pods:
        state = takeover.complete(state, request)
        assigned = {entry.container: entry.cpus for entry in state.of_pod(request.uid) if entry.cpus}
        return state, Decision(
            True,
            assignments=MappingProxyType(assigned),
            shared=state.shared_pool,
            explanation=lambda: (Reason(Code.ALREADY_ADMITTED),),
        )
    pooled = state.config.policy == "pools"
    try:
        _check_capacity(state, request)
        return (pools.admit if pooled else static.admit)(state, request)
    except Refusal as refusal:
        return state, Decision(False, refusal.reason, shared=state.shared_pool)


def why_shared(state: NodeState, request: PodRequest, container: ContainerRequest) -> Reason:
    """Return why a container has no exclusive CPUs."""
    pooled = state.config.policy == "pools"
    return (pools.why_shared if pooled else static.why_shared)(state, request, container)


def capacity_refusal(state: NodeState, request: PodRequest) -> Reason | None:
    """Return why the node's capacity, CPU requests against CPUs in all, does not admit a pod."""
    try:
        _check_capacity(state, request)
    except Refusal as refusal:
        return refusal.reason
    return None


def _check_capacity(state: NodeState, request: PodRequest) -> None:
    """The kubelet's general check; as there, a pod without a CPU request always fits. Raises Refusal."""
    milli = request.cpu_request
    if not milli:
        return
    if state.config.policy == "pools" and state.config.pools.amplification > 1:
        if state.config.koordinator is None:
            pools.check_amplified(state, request)
        else:
            _check_as_koordinator(state, request)
    elif not state.config.exact and state.requested + milli > state.allocatable:
        raise Refusal(Code.OUT_OF_CPU, milli, state.requested, state.allocatable)


def _check_as_koordinator(state: NodeState, request: PodRequest) -> None:
    """The check of Koordinator's scheduler, whose rules no agent loads. Raises Refusal."""
    from corelane.node.koordinator.pod_demand import amplified_refusal

    if reason := amplified_refusal(state, request):
        raise Refusal(reason.code, *reason.values)
