"""Nodes whose kubelet chooses the CPUs, known by koordlet: what it will choose, and whether that is enough.

A pod says in Koordinator's words how its CPUs are to lie. The kubelet does not read them, so that a pod that
requires something is placed only where the kubelet will do so by itself.
"""

from typing import Final

from corelane import node as nodes
from corelane.node import Decision, NodeState
from corelane.node.kubelet.cpu_manager import pod_cpus
from corelane.node.pools import classes
from corelane.node.pools.classes import NodePolicies
from corelane.reasons import Code, Reason
from corelane.workload import BindPolicy, CPUPolicy, NUMAPolicy, PodQOS, PodRequest

_EXCLUSIVE: Final = frozenset({PodQOS.LSE, PodQOS.LSR, CPUPolicy.EXCLUSIVE, CPUPolicy.IMMOVABLE})

_LEFT_TO_THE_KUBELET: Final = frozenset({Code.POD_NOT_MULTIPLE_OF_CORE, Code.BIND_POLICY_NEEDS_SMT})
"""Whether CPUs are whole cores is seen by what it chooses; without SMT each CPU is one, and spread too."""


def admit(state: NodeState, request: PodRequest) -> tuple[NodeState, Decision]:
    """Return the state that the kubelet will be in, and the decision.

    The pod options of the state's settings are the kubelet's policies in Koordinator's words.
    """
    if reason := refusal(state, request):
        return state, Decision(False, reason, shared=state.shared_pool)
    after, decision = nodes.admit(state, request)
    missed = _missed(after, request, decision)
    return (state, Decision(False, missed, shared=state.shared_pool)) if missed else (after, decision)


def replayed(state: NodeState) -> bool:
    """Return whether a node is of this kind."""
    return state.config.exact and state.config.policy == "static" and state.config.koordinator is None


def refusal(state: NodeState, request: PodRequest) -> Reason | None:
    """Return why the pod contradicts the node's settings, whatever runs there."""
    return class_refusal(request) or _conflict(state, request)


def class_refusal(request: PodRequest) -> Reason | None:
    """Return why a kubelet cannot serve a pod whose labels name exclusive CPUs: it looks at amounts only."""
    spec = request.placement_spec
    exclusive = [what for what in (spec.qos, spec.cpu_policy) if what in _EXCLUSIVE]
    if not exclusive or any(map(request.exclusive_cpus, request.containers)):
        return None
    return Reason(Code.KUBELET_EXCLUSIVE_CPUS, (str(exclusive[0]),))


def _conflict(state: NodeState, request: PodRequest) -> Reason | None:
    """Return where the pod contradicts the kubelet's options, by Koordinator's rules."""
    here, topology = state.config.pools, state.topology
    found = classes.resolve(
        request.placement_spec,
        NodePolicies(here.node_bind, here.strategy, here.numa),
        None,
        cpus=pod_cpus(request),
        threads=topology.cpus_per_core,
        most_threads=topology.threads,
        as_code=True,
    )
    return found if isinstance(found, Reason) and found.code not in _LEFT_TO_THE_KUBELET else None


def _missed(after: NodeState, request: PodRequest, decision: Decision) -> Reason | None:
    """Return which of the pod's requirements the kubelet's choice does not meet."""
    spec, topology = request.placement_spec, after.topology
    masks = [cpus.mask for cpus in decision.assignments.values()]
    if spec.bind_required and spec.bind and not all(_lies(after, spec.bind, mask) for mask in masks):
        return Reason(Code.KOORDINATOR_BIND_POLICY, (spec.bind,))
    pod = 0
    for mask in masks:
        pod |= mask
    if spec.numa is NUMAPolicy.SINGLE_NUMA_NODE and topology.nodes_of(pod).bit_count() > 1:
        return Reason(Code.KOORDINATOR_NUMA)
    return None


def _lies(state: NodeState, bind: BindPolicy, cpus: int) -> bool:
    if bind is BindPolicy.FULL_PCPUS:
        return state.topology.full_cores(cpus) == cpus
    if bind is BindPolicy.SPREAD_BY_PCPUS:
        return state.topology.cores_of(cpus).bit_count() == cpus.bit_count()
    return True
