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
    SchedulerDefaults,
    TopologyLevel,
)
from corelane.workload.request import (
    Amounts,
    ContainerKind,
    ContainerRequest,
    PodRequest,
    PodResources,
    QOSClass,
    exclusive_cpus,
    integer_cpus,
    peak,
    qos_class,
)
from corelane.workload.selectors import LabelRequirement, Operator, Selector
from corelane.workload.virtual_machine import launcher_cpus

__all__ = [
    "Amounts",
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
    "SchedulerDefaults",
    "Selector",
    "TopologyLevel",
    "exclusive_cpus",
    "integer_cpus",
    "launcher_cpus",
    "peak",
    "qos_class",
]
