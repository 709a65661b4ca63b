"""What a pod requests: its containers, their amounts, and how the pod is to be placed.

The pod's QoS class and the exclusive CPUs of a container follow from amounts alone; both rules are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from types import MappingProxyType
from typing import Final, TypeAlias

from corelane.cpuset import CPUSet
from corelane.workload.placement_spec import PlacementSpec

_NOTHING: Final[Mapping[str, CPUSet]] = MappingProxyType({})
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_COUNTED: Final = ("cpu", "memory")
_NO_ZONE_CPUS: Final[Mapping[int, int]] = MappingProxyType({})
_NO_AMOUNTS: Final[Mapping[str, int]] = MappingProxyType({})
_NO_NUMA_AMOUNTS: Final[Mapping[int, Mapping[str, int]]] = MappingProxyType({})


class QOSClass(StrEnum):
    """Kubernetes' quality-of-service class of a pod."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerKind(StrEnum):
    """When a container runs: before the others, beside them from the start, or as the pod's purpose."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


Amounts: TypeAlias = Mapping[str, int]
"""Resource name (`cpu`, `memory`) to an amount, in any unit that is the same for requests and limits."""


def summed(parts: Iterable[Amounts]) -> dict[str, int]:
    """Return the sum of amounts by resource."""
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def qos_class(parts: Iterable[tuple[Amounts, Amounts]], *, of_pod: bool = False) -> QOSClass:
    """Return the QoS class that follows from requests and limits (upstream's `ComputePodQOS`, 1.36).

    `parts` has (requests, limits) of each container, init containers included, with the defaults of the API
    server applied; of a pod with pod-level resources (KEP-2837) it has only these, and `of_pod` is true.
    Resources other than CPU and memory do not count, nor do amounts of 0; but upstream looks at the limits
    of a pod only where some resource is listed there, so a pod's are to be given whole.
    """
    requested: dict[str, int] = {}
    limited: dict[str, int] = {}
    complete = True
    for requests, limits in parts:
        own = {name: limits[name] for name in _COUNTED if limits.get(name, 0) > 0}
        complete = complete and (len(own) == len(_COUNTED) or (of_pod and not limits))
        for name in _COUNTED:
            if (amount := requests.get(name, 0)) > 0:
                requested[name] = requested.get(name, 0) + amount
        for name, amount in own.items():
            limited[name] = limited.get(name, 0) + amount
    if not requested and not limited:
        return QOSClass.BEST_EFFORT
    return QOSClass.GUARANTEED if complete and requested == limited else QOSClass.BURSTABLE


def integer_cpus(request: int, unit: int = 1000) -> int:
    """Return a CPU request in CPUs, 0 where it is not an integer; `request` has `unit` to a CPU."""
    return 0 if request % unit else request // unit


def exclusive_cpus(
    qos: QOSClass, request: int, *, unit: int = 1000, has_pod_level: bool = False, managed: bool = False
) -> int:
    """Return the number of CPUs that a container is to have exclusively, 0 in the shared pool.

    The kubelet's rule (KEP-3570): a Guaranteed pod, and a CPU request that is an integer; `request` has
    `unit` to a CPU. No container of a pod with pod-level resources (`has_pod_level`) has any, unless it is
    `managed`: feature gate PodLevelResourceManagers (KEP-5526) is on, and the container's own requests equal
    its limits.
    """
    if qos is not QOSClass.GUARANTEED or (has_pod_level and not managed):
        return 0
    return integer_cpus(request, unit)


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What one container requests. CPU in milliCPU, memory in bytes; a limit of 0 means none was set."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    cpu_request: int = 0
    cpu_limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """Page size in KiB to bytes asked for."""
    devices: Mapping[str, int] = field(default_factory=lambda: _NO_AMOUNTS)
    """Extended resource, such as `nvidia.com/gpu`, to how many."""
    requests: Amounts = field(default_factory=lambda: _NO_AMOUNTS)
    """Every requested resource by its name, amounts of 0 too: CPU in milliCPU, others in whole units. Empty
    where it is not known; schedulers that count by zone look at this."""

    @property
    def whole_cpus(self) -> int:
        """The CPU request in whole CPUs, or 0 where it is fractional or absent."""
        return integer_cpus(self.cpu_request)

    @property
    def guaranteed(self) -> bool:
        """Whether CPU and memory are asked for, each limited to just that."""
        requests = {"cpu": self.cpu_request, "memory": self.memory_request}
        limits = {"cpu": self.cpu_limit, "memory": self.memory_limit}
        return qos_class([(requests, limits)]) is QOSClass.GUARANTEED


@dataclass(frozen=True, slots=True)
class PodResources:
    """What a pod requests as a whole (KEP-2837), in the units of `ContainerRequest`; 0 is not set."""

    cpu_request: int = 0
    memory_request: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict)
    memory_limit: int = 0

    @property
    def whole_cpus(self) -> int:
        """The CPU request in whole CPUs, or 0 where it is fractional or absent."""
        return integer_cpus(self.cpu_request)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one pod requests, init containers first, each list in the order of the pod's spec."""

    uid: str
    namespace: str
    name: str
    qos: QOSClass
    containers: tuple[ContainerRequest, ...]
    proposal: Mapping[str, CPUSet] = field(default_factory=lambda: _NOTHING)
    """Container name to the CPUs that the scheduler proposed; containers without one share the pool."""
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    """By which other pods may select this one in their affinities."""
    placement_spec: PlacementSpec = field(default_factory=PlacementSpec)
    level: PodResources | None = None
    """Resources of the pod as a whole, which stand in for the sum of its containers'."""
    zone: CPUSet | None = None
    """NUMA nodes to whose part of the shared pool the scheduler holds the pod; None is all of it."""
    zone_cpus: Mapping[int, int] = field(default_factory=lambda: _NO_ZONE_CPUS)
    """NUMA node to the pod's CPUs there, as gocrane's scheduler recorded them."""
    numa_amounts: Mapping[int, Amounts] = field(default_factory=lambda: _NO_NUMA_AMOUNTS)
    """NUMA node to what Koordinator's scheduler recorded of the pod there: milliCPU, else units."""
    shared: frozenset[str] = frozenset()
    """Containers that stay in the shared pool: their CPU request is an integer only since a resize there."""
    overhead: Amounts = field(default_factory=lambda: _NO_AMOUNTS)
    """What the pod takes beside its containers (`spec.overhead`), as `ContainerRequest.requests`."""

    @property
    def key(self) -> str:
        """`namespace/name`, for people."""
        return f"{self.namespace}/{self.name}"

    def exclusive_cpus(self, container: ContainerRequest, *, gate: bool = False) -> int:
        """Return a container's number of exclusive CPUs; `gate`: with PodLevelResourceManagers."""
        if container.name in self.shared:
            return 0
        if self.level is None:
            return exclusive_cpus(self.qos, container.cpu_request)
        managed = gate and container.guaranteed
        return exclusive_cpus(self.qos, container.cpu_request, has_pod_level=True, managed=managed)

    @property
    def cpu_request(self) -> int:
        """MilliCPU that the whole pod needs at once; see `peak`."""
        of_pod = self.level.cpu_request if self.level else 0
        return of_pod or peak((one.kind, one.cpu_request) for one in self.containers)

    @property
    def memory_request(self) -> int:
        """Bytes that the whole pod needs at once; see `peak`."""
        of_pod = self.level.memory_request if self.level else 0
        return of_pod or peak((one.kind, one.memory_request) for one in self.containers)

    @property
    def memory_limit(self) -> int:
        """Bytes that the whole pod may use, overhead included; 0 for no limit (as `ResourceConfigForPod`).

        Without a limit of the pod's own, only a pod whose containers are all limited is limited as a whole.
        Init containers count as limited behind a sidecar that is, as upstream adds the two.
        """
        if self.qos is QOSClass.BEST_EFFORT:
            return 0
        limit = self.level.memory_limit if self.level else 0
        if not limit and self._all_limited:
            limit = peak((one.kind, one.memory_limit) for one in self.containers)
        return limit + self.overhead.get("memory", 0) if limit else 0

    @property
    def _all_limited(self) -> bool:
        behind = False
        for one in self.containers:
            if not (one.memory_limit or (behind and one.kind is not ContainerKind.APP)):
                return False
            behind = behind or one.kind is ContainerKind.SIDECAR
        return bool(self.containers)

    def memory_limit_of(self, container: ContainerRequest) -> int:
        """Bytes that a container may use: its limit, else that of the pod (KEP-2837); 0 for no limit."""
        return container.memory_limit or (self.level.memory_limit if self.level else 0)


def peak(amounts: Iterable[tuple[ContainerKind, int]]) -> int:
    """The most of a resource that a pod's containers, in the order of its spec, hold at the same time.

    Sidecars stay once started, init containers run one by one beside the sidecars before them, and
    the others run together with all sidecars (KEP-753; upstream `resourcehelper.PodRequests`).
    """
    sidecars = most = apps = 0
    for kind, amount in amounts:
        if kind is ContainerKind.SIDECAR:
            sidecars += amount
            most = max(most, sidecars)
        elif kind is ContainerKind.INIT:
            most = max(most, sidecars + amount)
        else:
            apps += amount
    return max(most, sidecars + apps)


def launcher_cpus(field: Callable[..., str], *, to_even: bool = False) -> tuple[int, int]:
    """Return a domain's vCPUs, and the CPUs beside them for I/O threads and an isolated emulator thread.

    `field` returns the text at a path below `domain`, "" where there is none. The topology counts by what is
    set of it: 0 vCPUs where nothing is. `to_even` is the annotation EmulatorThreadCompleteToEvenParity.
    Source: virt-controller, `WithCPUPinning` and `GetNumberOfVCPUs`.
    """
    counts = [_count(field("cpu", part)) for part in ("cores", "sockets", "threads")]
    vcpus = prod(count for count in counts if count) if any(counts) else 0
    beside = _count(field("ioThreads", "supplementalPoolThreadCount"))
    if field("cpu", "dedicatedCpuPlacement") == field("cpu", "isolateEmulatorThread") == "true":
        beside += 2 if to_even and (vcpus + beside) % 2 == 0 else 1
    return vcpus, beside


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= 6 else 0
