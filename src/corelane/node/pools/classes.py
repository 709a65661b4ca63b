"""A pod under policy `pools`: its class, its containers with exclusive CPUs, and their sharing.

A label of Koordinator's decides, then gocrane's cpu-policy, which may loosen it, then the Kubernetes class.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from corelane.node.config import PoolOptions
from corelane.node.entries import PlacedPod, Sharing
from corelane.reasons import Code, Reason, Refusal
from corelane.workload import (
    Band,
    BindPolicy,
    CPUPolicy,
    ExclusivePolicy,
    NUMAPolicy,
    NUMAStrategy,
    PlacementSpec,
    PodQOS,
)
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass, peak

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_BOUND: Final = {PodQOS.LSE: Sharing.ALONE, PodQOS.LSR: Sharing.SHARED_WITH_BE}
_POOLS: Final = {PodQOS.BE: Sharing.BEST_EFFORT, PodQOS.SYSTEM: Sharing.SYSTEM}
_POOL_NAMES: Final = {PodQOS.BE: "BE", PodQOS.SYSTEM: "system"}


@dataclass(frozen=True, slots=True)
class PodClass:
    """A pod's class. Containers that are not bound run in the pool of the class."""

    qos: PodQOS
    why: Reason
    """Reasons why it is of this class, and bound or not."""
    sharing: Sharing = Sharing.POOL
    """Sharing of the CPUs of its bound containers, or else of all its containers."""
    common: int = 0
    """CPUs for the pod, of which every container has all."""
    own: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """Container to the number of CPUs that it has for itself."""
    confined: bool = False
    """ConstrainedBurst: held to one NUMA node where its limit fits."""
    local: bool = False
    """gocrane's `numa`: floats near the NUMA nodes that fit best."""

    @property
    def bound(self) -> bool:
        return bool(self.common or self.own)

    def cpus(self, request: PodRequest) -> int:
        """Return the number of CPUs that the pod needs at once for itself."""
        return self.common or peak((each.kind, self.own.get(each.name, 0)) for each in request.containers)


def pod_class(request: PodRequest, options: PoolOptions) -> PodClass:
    """The class of a pod on a node with these options.

    Raises Refusal where it contradicts itself, with the words that Koordinator's users know.
    """
    placement_spec = request.placement_spec
    source, qos = _class(request, options)
    if qos in _POOLS:
        return PodClass(qos, Reason(Code.CLASS_POOL, (source, qos, _POOL_NAMES[qos])), _POOLS[qos])
    if placement_spec.bind is BindPolicy.CONSTRAINED_BURST:
        if request.placement_spec.qos is PodQOS.LSE:
            raise Refusal(Code.CONSTRAINED_BURST_EXCLUSIVE)
        for container in request.containers:
            if not container.cpu_limit:
                raise Refusal(Code.CONSTRAINED_BURST_NO_LIMIT, container.name)
        return PodClass(PodQOS.LS, Reason(Code.CLASS_CONFINED, (source, qos)), confined=True)
    policy = placement_spec.cpu_policy
    if policy in (CPUPolicy.NONE, CPUPolicy.NUMA):
        local = policy is CPUPolicy.NUMA
        why = Reason(Code.CLASS_CPU_POLICY_IN_POOL, (source, qos, policy))
        return PodClass(PodQOS.LS, why, local=local)
    if placement_spec.qos in _BOUND:
        return _labelled(request, source, qos, options)
    if policy in (CPUPolicy.EXCLUSIVE, CPUPolicy.IMMOVABLE) and placement_spec.qos is None:
        return _by_cpu_policy(request, policy)
    if qos in _BOUND:
        # As the kubelet's static policy: each container with a whole number of CPUs has its own.
        own = {each.name: n for each in request.containers if (n := request.exclusive_cpus(each))}
        if not own:
            return PodClass(PodQOS.LS, _pod_level(request) or Reason(Code.CLASS_NO_INTEGER_REQUEST))
        return PodClass(qos, _exclusive(source, qos, _BOUND[qos]), _BOUND[qos], own=own)
    return PodClass(qos, Reason(Code.CLASS_POOL, (source, qos, "shared")))


def requests_exclusive_cpus(request: PodRequest) -> bool:
    """Return whether a pod is to be bound to CPUs, the settings of nodes not considered."""
    try:
        own = any(map(request.exclusive_cpus, request.containers))
        return own or pod_class(request, PoolOptions()).bound
    except Refusal:
        return True


def _class(request: PodRequest, options: PoolOptions) -> tuple[str, PodQOS]:
    """Return where the class is from, and the class."""
    if request.placement_spec.qos is not None:
        return "label", request.placement_spec.qos
    if request.qos is QOSClass.GUARANTEED:
        return request.qos, options.guaranteed_default
    return request.qos, PodQOS.BE if request.qos is QOSClass.BEST_EFFORT else PodQOS.LS


def _labelled(request: PodRequest, source: str, qos: PodQOS, options: PoolOptions) -> PodClass:
    """LSE or LSR by label: the pod's whole number of CPUs, common to its containers, as Koordinator binds."""
    if request.placement_spec.band not in (None, Band.PROD):
        why = Reason(Code.CLASS_PRIORITY_NOT_BOUND, (source, qos, request.placement_spec.band))
        return PodClass(PodQOS.LS, why)
    spec = request.placement_spec
    if not (options.node_bind or spec.bind or spec.defaults.bind or options.bind):
        return PodClass(PodQOS.LS, Reason(Code.CLASS_NO_BIND_POLICY, (source, qos)))
    n = _whole_pod(request, options)
    if not n:
        return PodClass(PodQOS.LS, Reason(Code.CLASS_NO_CPU_REQUEST, (source, qos)))
    if request.placement_spec.cpu_policy is CPUPolicy.IMMOVABLE:
        return PodClass(qos, Reason(Code.CLASS_IMMOVABLE, (source, qos)), Sharing.POOL, common=n)
    return PodClass(qos, _exclusive(source, qos, _BOUND[qos]), _BOUND[qos], common=n)


def _exclusive(source: str, qos: str, sharing: Sharing) -> Reason:
    return Reason(Code.CLASS_EXCLUSIVE, (source, qos, sharing is Sharing.SHARED_WITH_BE))


def _pod_level(request: PodRequest) -> Reason | None:
    """Return the reason where pod-level resources alone keep the containers from exclusive CPUs."""
    if request.qos is not QOSClass.GUARANTEED or request.level is None:
        return None
    return Reason(Code.POD_LEVEL_RESOURCES) if any(each.whole_cpus for each in request.containers) else None


def _by_cpu_policy(request: PodRequest, policy: CPUPolicy) -> PodClass:
    own = {container.name: n for container in request.containers if (n := _target_cpus(request, container))}
    if not own:
        return PodClass(PodQOS.LS, _pod_level(request) or Reason(Code.CLASS_NO_INTEGER_LIMIT, (policy,)))
    if policy is CPUPolicy.IMMOVABLE:
        why = Reason(Code.CLASS_IMMOVABLE, ("cpu-policy", policy))
        return PodClass(PodQOS.LS, why, Sharing.POOL, own=own)
    return PodClass(PodQOS.LSE, _exclusive("cpu-policy", policy, Sharing.ALONE), Sharing.ALONE, own=own)


def _target_cpus(request: PodRequest, container: ContainerRequest) -> int:
    """Of Guaranteed pods as the kubelet; else, as gocrane, regular containers limited to a whole request."""
    if request.qos is QOSClass.GUARANTEED:
        return request.exclusive_cpus(container)
    if container.kind is not ContainerKind.APP or container.cpu_limit != container.cpu_request:
        return 0
    return container.whole_cpus


def _whole_pod(request: PodRequest, options: PoolOptions) -> int:
    n, rest = divmod(request.cpu_request, 1000)
    if rest:
        raise Refusal(Code.POD_CPU_REQUEST_NOT_INTEGER, request.cpu_request)
    if options.strict_requests and request.level is None:
        for container in request.containers:
            request_milli, limit = container.cpu_request, container.cpu_limit
            if limit != request_milli:
                raise Refusal(Code.CPU_LIMIT_DIFFERS, container.name, request_milli, limit)
    return n


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NodePolicies:
    """Settings of one source for all pods of a node; None where it has none."""

    bind: BindPolicy | None = None
    """Required of every pod that is bound: FullPCPUs or SpreadByPCPUs."""
    strategy: NUMAStrategy | None = None
    numa: NUMAPolicy | None = None
    """NUMAPolicy.NONE says that nothing is aligned, whatever later sources say."""


@dataclass(frozen=True, slots=True)
class Policies:
    """Settings that hold. `notes` are the policies that have no effect on this machine."""

    bind: BindPolicy | None
    bind_required: bool
    exclusive: ExclusivePolicy
    strategy: NUMAStrategy | None
    numa: NUMAPolicy
    numa_exclusive: bool
    """A pod in one NUMA node must not be where pods span several, nor the other way round."""
    notes: tuple[Reason, ...] = ()


def merged(*sources: NodePolicies) -> NodePolicies:
    """Return the setting of the first source that has one: node's labels, kubelet, profile."""
    return NodePolicies(
        _first(source.bind for source in sources),
        _first(source.strategy for source in sources),
        _first(source.numa for source in sources),
    )


def resolve(
    placement_spec: PlacementSpec,
    node: NodePolicies,
    default: BindPolicy | None,
    *,
    cpus: int,
    threads: int,
    most_threads: int = 0,
    as_code: bool = False,
) -> Policies | Reason:
    """Return the policies of a pod with `cpus` of its own (0: none), or why pod and node contradict.

    The node's cores have `threads` each.
    `default` is the bind policy of the node's settings, for pods that name none. A scheduler's defaults come
    after what pod and node say. Where cores differ, `threads` is what
    upstream takes for all, the average, and `most_threads` what the widest have. `as_code` lets a preferred
    policy give way to the node's, as Koordinator's code does and its proposal does not.
    """
    single = max(threads, most_threads) == 1
    numa = _numa(placement_spec, node)
    if isinstance(numa, Reason):
        return numa
    looks = cpus and (placement_spec.bind_required or not as_code)
    if looks and (conflict := _contradiction(placement_spec, node, single=single)):
        return conflict
    bind, required, notes = _bind(placement_spec, node, default, single=single)
    if cpus and required and bind is BindPolicy.FULL_PCPUS and cpus % threads:
        return Reason(Code.POD_NOT_MULTIPLE_OF_CORE, (cpus, threads))
    exclusive = exclusive_policy(placement_spec)
    if exclusive is ExclusivePolicy.PCPU_LEVEL and single:
        exclusive = ExclusivePolicy.NONE
        notes += (Reason(Code.PCPU_LEVEL_WITHOUT_SMT, (ExclusivePolicy.PCPU_LEVEL,)),)
    return Policies(
        bind,
        required,
        exclusive,
        placement_spec.strategy or node.strategy or placement_spec.defaults.strategy,
        numa,
        _numa_exclusive(placement_spec),
        notes,
    )


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _numa(placement_spec: PlacementSpec, node: NodePolicies) -> NUMAPolicy | Reason:
    """The pod's and the node's; gocrane's awareness stands in for a pod that names no policy."""
    own, here = placement_spec.numa, node.numa
    if own and here and own is not here:
        return Reason(Code.NUMA_POLICY_CONFLICT, (own, here))
    return numa_policy(placement_spec, here)


def numa_policy(placement_spec: PlacementSpec, here: NUMAPolicy | None) -> NUMAPolicy:
    """Return the topology policy of a pod and its node, which do not contradict each other.

    A profile's default holds where neither names one; NUMAPolicy.NONE is one that aligns nothing.
    """
    own, aware = placement_spec.numa, placement_spec.topology_aware
    if own is None and aware is not None:
        return NUMAPolicy.SINGLE_NUMA_NODE if aware else NUMAPolicy.NONE
    if own is None and here is None:
        return placement_spec.defaults.numa or NUMAPolicy.NONE
    return own or here or NUMAPolicy.NONE


def exclusive_policy(placement_spec: PlacementSpec) -> ExclusivePolicy:
    """Return the pod's policy; a profile's default holds where the pod names none, not even `None`."""
    own, default = placement_spec.exclusive_policy, placement_spec.defaults.exclusive_policy
    return (default or ExclusivePolicy.NONE) if own is None else own


def _numa_exclusive(placement_spec: PlacementSpec) -> bool:
    """Required by default if, and only if, the pod itself names a topology policy."""
    return (
        bool(placement_spec.numa) if placement_spec.numa_exclusive is None else placement_spec.numa_exclusive
    )


def _contradiction(placement_spec: PlacementSpec, node: NodePolicies, *, single: bool) -> Reason | None:
    """A pod that requires what the node does not do, or asks to be spread where only full cores are given."""
    own, here = placement_spec.bind, node.bind
    spread = own is BindPolicy.SPREAD_BY_PCPUS
    against = placement_spec.bind_required or (spread and here is BindPolicy.FULL_PCPUS)
    if own and here and own is not here and against and not (spread and single):
        return Reason(Code.BIND_POLICY_CONFLICT, (placement_spec.bind_required, own, here))
    if spread and placement_spec.bind_required and single:
        return Reason(Code.BIND_POLICY_NEEDS_SMT, (own,))
    return None


def _bind(
    placement_spec: PlacementSpec, node: NodePolicies, default: BindPolicy | None, *, single: bool
) -> tuple[BindPolicy | None, bool, tuple[Reason, ...]]:
    bind = node.bind or placement_spec.bind or placement_spec.defaults.bind or default
    required = node.bind is not None or (placement_spec.bind_required and bind is not None)
    if bind is BindPolicy.SPREAD_BY_PCPUS and single:
        return BindPolicy.FULL_PCPUS, False, (Reason(Code.SPREAD_WITHOUT_SMT, (bind,)),)
    return bind, required, ()


def placed_pod(request: PodRequest, burst: int = 0) -> PlacedPod:
    """Return what later pods must know of a pod that is bound to CPUs or assigned to NUMA nodes."""
    spec = request.placement_spec
    return PlacedPod(
        request.namespace,
        request.labels,
        exclusive_policy(spec),
        spec.exclusive,
        tuple(affinity for affinity in spec.affinities if affinity.avoid),
        burst,
    )
