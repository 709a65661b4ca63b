"""What a pod asks for, as plain values: read from Kubernetes by `kube.translate`, decided upon by `node`."""

from corelane.workload.placement_spec import (
    Band,
    BindPolicy,
    CPUPolicy,
    ExclusivePolicy,
    Exclusivity,
    NUMAPolicy,
    NUMAStrategy,
    PlacementSpec,
    PodCPUAffinity,
    PodQOS,
    TopologyLevel,
)
from corelane.workload.request import (
    ContainerKind,
    ContainerRequest,
    PodRequest,
    PodResources,
    QOSClass,
    exclusive_cpus,
    peak,
    qos_class,
)
from corelane.workload.selectors import LabelRequirement, Operator, Selector

__all__ = [
    "Band",
    "BindPolicy",
    "CPUPolicy",
    "ContainerKind",
    "ContainerRequest",
    "ExclusivePolicy",
    "Exclusivity",
    "LabelRequirement",
    "NUMAPolicy",
    "NUMAStrategy",
    "Operator",
    "PlacementSpec",
    "PodCPUAffinity",
    "PodQOS",
    "PodRequest",
    "PodResources",
    "QOSClass",
    "Selector",
    "TopologyLevel",
    "exclusive_cpus",
    "peak",
    "qos_class",
]
