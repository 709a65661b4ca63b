"""What a pod asks for, as plain values: read from Kubernetes by `kube.translate`, decided upon by `node`."""

from corelane.workload.ask import Ask, ContainerAsk, ContainerKind, PodResources, QOSClass, peak
from corelane.workload.selectors import Operator, Requirement, Selector
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
    "Operator",
    "PodQOS",
    "PodResources",
    "QOSClass",
    "Requirement",
    "Selector",
    "Strategy",
    "Wishes",
    "peak",
]
