"""What a pod is under policy `pools`: its class, which containers have CPUs of their own, who shares these.

A label of Koordinator's decides, then gocrane's cpu-policy, which may loosen it, then the Kubernetes class.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from corelane.node.entries import Sharing
from corelane.node.errors import Refusal
from corelane.node.pools.options import PoolOptions
from corelane.workload import (
    Band,
    BindPolicy,
    ContainerKind,
    ContainerRequest,
    CPUPolicy,
    PodQOS,
    PodRequest,
    QOSClass,
    peak,
)

__all__ = ["PodClass", "pod_class"]

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_BOUND: Final = {PodQOS.LSE: Sharing.ALONE, PodQOS.LSR: Sharing.LENT}
_POOLS: Final = {PodQOS.BE: Sharing.BEST_EFFORT, PodQOS.SYSTEM: Sharing.SYSTEM}
_NOT_WHOLE: Final = "the requested CPUs must be integer"


@dataclass(frozen=True, slots=True)
class PodClass:
    """How a pod is to run. Containers that are not bound run in the pool of the pod's class."""

    qos: PodQOS
    why: str
    """In words, why it is of this class and bound or not."""
    sharing: Sharing = Sharing.POOL
    """How its bound containers share their CPUs, or else all of its containers."""
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
        """How many CPUs the pod needs at once for itself."""
        return self.common or peak((one.kind, self.own.get(one.name, 0)) for one in request.containers)


def pod_class(request: PodRequest, options: PoolOptions) -> PodClass:
    """The class of a pod on a node with these options.

    Raises Refusal where it contradicts itself, with the words that Koordinator's users know.
    """
    placement_spec = request.placement_spec
    qos, why = _class(request, options)
    if qos in _POOLS:
        return PodClass(qos, why, _POOLS[qos])
    if placement_spec.bind is BindPolicy.CONSTRAINED_BURST:
        return _confined(qos, why, request)
    policy = placement_spec.cpu_policy
    if policy in (CPUPolicy.NONE, CPUPolicy.NUMA):
        local = policy is CPUPolicy.NUMA
        return PodClass(PodQOS.LS, f"{why}; cpu-policy {policy}: no CPUs of its own", local=local)
    if placement_spec.qos in _BOUND:
        return _labelled(request, qos, why, options)
    if policy in (CPUPolicy.EXCLUSIVE, CPUPolicy.IMMOVABLE) and placement_spec.qos is None:
        return _by_cpu_policy(request, policy)
    if qos in _BOUND:
        return _guaranteed(request, qos, why)
    return PodClass(qos, why)


def _class(request: PodRequest, options: PoolOptions) -> tuple[PodQOS, str]:
    if request.placement_spec.qos is not None:
        return request.placement_spec.qos, f"labelled {request.placement_spec.qos}"
    if request.qos is QOSClass.BEST_EFFORT:
        return PodQOS.BE, "BestEffort: counts as BE"
    if request.qos is QOSClass.BURSTABLE:
        return PodQOS.LS, "Burstable: counts as LS"
    default = options.guaranteed_default
    return default, f"Guaranteed: counts as {default} on this node"


def _confined(qos: PodQOS, why: str, request: PodRequest) -> PodClass:
    if request.placement_spec.qos is PodQOS.LSE:
        raise Refusal(
            "CPUPolicyConflict",
            "ConstrainedBurst is for pods without CPUs of their own, but the pod is labelled LSE: "
            "label it LS, or bind it by FullPCPUs or SpreadByPCPUs",
        )
    for container in request.containers:
        if not container.cpu_limit:
            raise Refusal(
                "InvalidCPURequest",
                f"ConstrainedBurst goes by the CPU limit, but container {container.name} has none: set one",
            )
    return PodClass(PodQOS.LS, f"{why}; ConstrainedBurst: on the shared pool of one NUMA node", confined=True)


def _labelled(request: PodRequest, qos: PodQOS, why: str, options: PoolOptions) -> PodClass:
    """LSE or LSR by label: the pod's whole number of CPUs, common to its containers, as Koordinator binds."""
    if request.placement_spec.band not in (None, Band.PROD):
        return PodClass(
            PodQOS.LS, f"{why}, but of priority {request.placement_spec.band}: only koord-prod is bound"
        )
    if not (options.node_bind or request.placement_spec.bind or options.bind):
        return PodClass(PodQOS.LS, f"{why}, but with no bind policy: no CPUs of its own")
    n = _whole_pod(request, options)
    if not n:
        return PodClass(PodQOS.LS, f"{why}, but requests no CPU: no CPUs of its own")
    if request.placement_spec.cpu_policy is CPUPolicy.IMMOVABLE:
        why, sharing = f"{why}; cpu-policy immovable: others in the shared pool use its CPUs", Sharing.POOL
    else:
        sharing = _BOUND[qos]
        why = f"{why}: {_with_whom(sharing)}"
    return PodClass(qos, why, sharing, common=n)


def _guaranteed(request: PodRequest, qos: PodQOS, why: str) -> PodClass:
    """As the kubelet's static policy: each container with a whole number of CPUs has its own."""
    own = {one.name: n for one in request.containers if (n := request.exclusive_cpus(one))}
    if not own:
        return PodClass(PodQOS.LS, "Guaranteed, but no container requests a whole number of CPUs")
    return PodClass(qos, f"{why}: {_with_whom(_BOUND[qos])}", _BOUND[qos], own=own)


def _by_cpu_policy(request: PodRequest, policy: CPUPolicy) -> PodClass:
    own = {one.name: n for one in request.containers if (n := _target_cpus(request, one))}
    if not own:
        return PodClass(
            PodQOS.LS, f"cpu-policy {policy}, but no container has a whole number of CPUs as limit"
        )
    if policy is CPUPolicy.IMMOVABLE:
        why = "cpu-policy immovable: bound to CPUs that others in the shared pool use too"
        return PodClass(PodQOS.LS, why, Sharing.POOL, own=own)
    why = f"cpu-policy exclusive: {_with_whom(Sharing.ALONE)}"
    return PodClass(PodQOS.LSE, why, Sharing.ALONE, own=own)


def _target_cpus(request: PodRequest, container: ContainerRequest) -> int:
    """Of Guaranteed pods as the kubelet; else, as gocrane, regular containers limited to a whole request."""
    if request.qos is QOSClass.GUARANTEED:
        return request.exclusive_cpus(container)
    if container.kind is not ContainerKind.APP or container.cpu_limit != container.cpu_request:
        return 0
    return container.whole_cpus


def _with_whom(sharing: Sharing) -> str:
    return "shares its CPUs with nobody" if sharing is Sharing.ALONE else "lends its CPUs to best effort only"


def _whole_pod(request: PodRequest, options: PoolOptions) -> int:
    n, rest = divmod(request.cpu_request, 1000)
    if rest:
        raise Refusal("InvalidCPURequest", f"{_NOT_WHOLE}: the pod requests {request.cpu_request}m in all")
    if options.strict_requests and request.level is None:
        for one in request.containers:
            if one.cpu_limit != one.cpu_request:
                raise Refusal(
                    "InvalidCPURequest",
                    f"{_NOT_WHOLE}, and equal to the limit on this node: container {one.name} requests "
                    f"{one.cpu_request}m, its limit is {f'{one.cpu_limit}m' if one.cpu_limit else 'not set'}",
                )
    return n
