"""What a pod asks for, as plain values: read from Kubernetes by `kube.translate`, decided upon by `node`."""

from corelane.workload.ask import Ask, ContainerAsk, ContainerKind, PodResources, QOSClass, peak
from corelane.workload.wishes import (
    Affinity,
    Band,
    BindPolicy,
    CPUPolicy,
    ExclusivePolicy,
    Exclusivity,
    Level,
    NUMAPolicy,
    PodQOS,
    Selector,
    Strategy,
    Wishes,
)

__all__ = [
    "Affinity",
    "Ask",
    "Band",
    "BindPolicy",
    "CPUPolicy",
    "ContainerAsk",
    "ContainerKind",
    "ExclusivePolicy",
    "Exclusivity",
    "Level",
    "NUMAPolicy",
    "PodQOS",
    "PodResources",
    "QOSClass",
    "Selector",
    "Strategy",
    "Wishes",
    "peak",
]
