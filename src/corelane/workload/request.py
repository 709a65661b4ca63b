"""A pod's ask: its containers, what each requests, and how the pod wants its CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from corelane.cpuset import CPUSet
from corelane.workload.placement_spec import PlacementSpec

_NOTHING: Final[Mapping[str, CPUSet]] = MappingProxyType({})
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_AMOUNTS: Final[Mapping[str, int]] = MappingProxyType({})


class QOSClass(StrEnum):
    """Kubernetes' quality-of-service class of a pod."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerKind(StrEnum):
    """How a container's life lies within its pod's: before it, along it, or as its purpose."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One container's wish. CPU in milliCPU, memory in bytes; a limit of 0 means none was set."""

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

    @property
    def whole_cpus(self) -> int:
        """The CPU request in whole CPUs, or 0 where it is fractional or absent."""
        return _whole(self.cpu_request)

    @property
    def guaranteed(self) -> bool:
        """Whether CPU and memory are asked for, each limited to just that."""
        return bool(
            self.cpu_request
            and self.memory_request
            and self.cpu_request == self.cpu_limit
            and self.memory_request == self.memory_limit
        )


@dataclass(frozen=True, slots=True)
class PodResources:
    """What a pod requests as a whole (KEP-2837), in the units of `ContainerRequest`; 0 is not set."""

    cpu_request: int = 0
    memory_request: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict)

    @property
    def whole_cpus(self) -> int:
        """The CPU request in whole CPUs, or 0 where it is fractional or absent."""
        return _whole(self.cpu_request)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """One pod's wish, init containers first, each list in the order of the pod's spec."""

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

    @property
    def key(self) -> str:
        """`namespace/name`, for people."""
        return f"{self.namespace}/{self.name}"

    def exclusive_cpus(self, container: ContainerRequest, *, pod_level: bool = False) -> int:
        """Whole CPUs that a container is to have alone; 0 means the shared pool.

        The kubelet's rule (KEP-3570): a Guaranteed pod, and a whole number of CPUs. Of a pod with resources
        as a whole no container has any, unless `pod_level` (gate PodLevelResourceManagers, KEP-5526) and it
        is itself guaranteed.
        """
        if self.qos is not QOSClass.GUARANTEED:
            return 0
        if self.level is not None and not (pod_level and container.guaranteed):
            return 0
        return container.whole_cpus

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


def _whole(milli: int) -> int:
    whole, rest = divmod(milli, 1000)
    return 0 if rest else whole


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
