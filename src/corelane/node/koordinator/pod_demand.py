"""A pod's demand on a node by Koordinator's rules: amounts, CPUs to be bound, and policies.

`PreFilter` and the first half of `Filter` in `plugin.go`; texts of refusals as upstream's.
"""

from dataclasses import dataclass
from typing import Final

from corelane.node import config, zone_needs
from corelane.node.config import KoordinatorOptions
from corelane.node.entries import Origin
from corelane.node.ledger import NodeState
from corelane.node.pools.classes import exclusive_policy, numa_policy
from corelane.node.pools.zones import STRICT
from corelane.node.zone_needs import ZoneNeeds
from corelane.reasons import Code, Reason, Refusal
from corelane.workload import (
    Band,
    BindPolicy,
    ExclusivePolicy,
    NUMAPolicy,
    NUMAStrategy,
    PlacementSpec,
    PodQOS,
)
from corelane.workload.request import Amounts, PodRequest, peak

_BINDING: Final = (BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS)


@dataclass(frozen=True, slots=True)
class PodDemand:
    """The plugin's state of a pod for one node. CPU in milliCPU, others in units."""

    amounts: Amounts
    """Requests of the pod by resource, those of 0 included."""
    scored: Amounts
    """The same, with bound CPUs amplified: what scores look at."""
    cpus: int
    """CPUs to be bound; 0 where the pod is bound to none."""
    bind: BindPolicy
    bind_required: bool
    exclusive: ExclusivePolicy
    strategy: NUMAStrategy
    numa: NUMAPolicy
    apart: bool
    """Pods on one NUMA node and pods across several must not meet (`singleNUMANodeExclusive: Required`)."""
    packs: bool = False
    """Of sets of NUMA nodes of one size the most allocated is best (`numaScoringStrategy`)."""


def options_of(state: NodeState) -> KoordinatorOptions:
    """Return what Koordinator's scheduler knows of the node."""
    assert state.config.koordinator is not None
    return state.config.koordinator


def pod_demand(state: NodeState, request: PodRequest) -> PodDemand:
    """Return what a pod asks of this node. Raises Refusal where pod and node contradict."""
    spec, node = request.placement_spec, state.config.pools
    amounts = pod_amounts(request)
    numa = _numa_policy(spec, node.numa)
    own = uses_cpuset(spec)
    if own:
        _check_integer(amounts)
    bind, required = _bind_policy(state, spec, own=own)
    cpus = _bound_cpus(state, amounts, own=own)
    if cpus:
        _check_bind(state, spec, cpus, own=own)
    ratio = options_of(state).amplification
    milli = amounts.get("cpu", 0)
    return PodDemand(
        amounts,
        {**amounts, "cpu": config.amplify(milli, ratio)} if cpus else amounts,
        cpus,
        bind,
        required,
        exclusive_policy(spec) if own else ExclusivePolicy.NONE,
        spec.strategy or node.strategy or spec.defaults.strategy or NUMAStrategy.LEAST_ALLOCATED,
        numa,
        bool(spec.numa) if spec.numa_exclusive is None else spec.numa_exclusive,
        spec.defaults.strategy is NUMAStrategy.MOST_ALLOCATED,
    )


def pod_amounts(request: PodRequest) -> Amounts:
    """Return what the pod requests at once, by resource (upstream `resourcehelper.PodRequests`)."""
    names = dict.fromkeys(name for container in request.containers for name in container.requests)
    each = request.containers
    total = {name: peak((own.kind, own.requests.get(name, 0)) for own in each) for name in names}
    if level := request.level:
        of_pod = {"cpu": level.cpu_request, "memory": level.memory_request}
        total |= {name: amount for name, amount in of_pod.items() if amount}
        total |= {f"hugepages-{_size(kib)}": amount for kib, amount in level.hugepages.items()}
    overhead = request.overhead
    return {name: total.get(name, 0) + overhead.get(name, 0) for name in {**total, **overhead}}


def _size(kib: int) -> str:
    """A page size as in the resource's name: 2Mi."""
    return f"{kib >> 20}Gi" if not kib % (1 << 20) else f"{kib >> 10}Mi" if not kib % 1024 else f"{kib}Ki"


def uses_cpuset(spec: PlacementSpec) -> bool:
    """Return whether labels bind the pod, as upstream's `AllowUseCPUSet`, and no policy is against it."""
    if spec.qos not in (PodQOS.LSE, PodQOS.LSR) or spec.band not in (None, Band.PROD):
        return False
    return (spec.bind or spec.defaults.bind or BindPolicy.FULL_PCPUS) in _BINDING


def _check_integer(amounts: Amounts) -> None:
    if (milli := amounts.get("cpu", 0)) % 1000:
        raise Refusal(Code.POD_CPU_REQUEST_NOT_INTEGER, milli)


def _bound_cpus(state: NodeState, amounts: Amounts, *, own: bool) -> int:
    """A bind policy of the node binds every pod that requests CPU."""
    if not own and state.config.pools.node_bind is None:
        return 0
    if not own:
        _check_integer(amounts)
    return amounts.get("cpu", 0) // 1000


def _bind_policy(state: NodeState, spec: PlacementSpec, *, own: bool) -> tuple[BindPolicy, bool]:
    """The pod's required policy, else the node's, else the pod's preferred one."""
    default = spec.defaults.bind or state.config.pools.bind or BindPolicy.FULL_PCPUS
    preferred = spec.bind or default
    if own and spec.bind_required:
        return preferred, True
    node = state.config.pools.node_bind
    return (node, True) if node else (preferred, False)


def _check_bind(state: NodeState, spec: PlacementSpec, cpus: int, *, own: bool) -> None:
    node, threads = state.config.pools.node_bind, state.topology.cpus_per_core
    bind, required = _bind_policy(state, spec, own=own)
    if node and own and spec.bind_required and bind is not node:
        raise Refusal(Code.BIND_POLICY_CONFLICT, True, bind, node)
    if required and bind is BindPolicy.FULL_PCPUS and cpus % threads:
        raise Refusal(Code.POD_NOT_MULTIPLE_OF_CORE, cpus, threads)


def _numa_policy(spec: PlacementSpec, node: NUMAPolicy | None) -> NUMAPolicy:
    if spec.numa and node and spec.numa is not node:
        raise Refusal(Code.NUMA_POLICY_CONFLICT, spec.numa, node)
    return numa_policy(spec, node)


def amplified_refusal(state: NodeState, request: PodRequest) -> Reason | None:
    """Return why a pod does not fit a node with amplified CPUs; one that is bound counts amplified."""
    ratio = state.config.pools.amplification
    try:
        demand = pod_demand(state, request)
    except Refusal:
        return None  # `admit` says why.
    milli, offered = demand.amounts.get("cpu", 0), options_of(state).allocatable or state.allocatable
    used = config.requested(state.requested, bound_cpus(state).bit_count(), ratio)
    if not milli or config.fits(offered, used, milli, ratio, binds=bool(demand.cpus)):
        return None
    counts = float(ratio) if demand.cpus else 0.0
    return Reason(Code.OUT_OF_AMPLIFIED_CPU, (milli, used, offered, counts))


def bound_cpus(state: NodeState) -> int:
    """Return the CPUs in pods' cpusets as a mask; those of a kubelet's pods count as reserved."""
    mask = 0
    for entry in state.entries.values():
        if entry.origin is not Origin.KUBELET:
            mask |= entry.cpus.mask
    return mask


def zone_needs_of(state: NodeState, request: PodRequest, demand: PodDemand) -> ZoneNeeds:
    """Return the needs by Koordinator's rules: amounts by NUMA node count under strict policies only."""
    assert state.config.koordinator is not None
    offered = state.config.koordinator.zones.values()
    named = {name for amounts in offered for name in amounts}
    amounts = {name: n for name, n in demand.amounts.items() if name in named}
    required = demand.bind if demand.bind_required else None
    cpus = zone_needs.cpus_by_layout(demand.cpus, required, request) if demand.cpus else {}
    strict = demand.numa in STRICT
    one_node = demand.numa is NUMAPolicy.SINGLE_NUMA_NODE and bool(amounts)
    node = {**cpus, **amounts} if strict else cpus
    return ZoneNeeds(node, ({**cpus, **amounts},) if one_node else ())
