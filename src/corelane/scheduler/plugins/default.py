"""The default profile: every plugin in its order, and the weights of scores."""

from collections.abc import Mapping
from typing import Final

from corelane.scheduler.framework.plugin import Plugin
from corelane.scheduler.framework.profile import DEFAULT_NAME, Factory, Profile
from corelane.scheduler.plugins.cpu_scores import (
    NodeResourceTopologyMatch,
    NUMALocality,
    PlacementQuality,
    PoolPressure,
    SnugFit,
)
from corelane.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from corelane.scheduler.plugins.node_affinity import NodeAffinity
from corelane.scheduler.plugins.node_numa_resource import NodeNUMAResource
from corelane.scheduler.plugins.node_resources import CPUPlacement, NodeResourcesFit
from corelane.scheduler.plugins.preemption import DefaultPreemption
from corelane.scheduler.plugins.simple import (
    DefaultBinder,
    DynamicResources,
    ImageLocality,
    NodeName,
    NodePorts,
    NodeUnschedulable,
    PodValidity,
    PrioritySort,
    SchedulingGates,
    TaintToleration,
)
from corelane.scheduler.plugins.topology_spread import PodTopologySpread
from corelane.scheduler.plugins.volume_binding import VolumeBinding
from corelane.scheduler.plugins.volume_filters import NodeVolumeLimits, VolumeRestrictions, VolumeZone

WEIGHTS: Final = {
    "NodeNUMAResource": 11.0,
    "NUMALocality": 4.0,
    "TaintToleration": 3.0,
    "PlacementQuality": 3.0,
    "SnugFit": 2.0,
    "PoolPressure": 2.0,
    "NodeResourceTopologyMatch": 2.0,
    "NodeAffinity": 2.0,
    "PodTopologySpread": 2.0,
    "InterPodAffinity": 2.0,
    "ImageLocality": 1.0,
    "NodeResourcesFit": 1.0,
}


FACTORIES: Final[Mapping[str, Factory]] = {
    "SchedulingGates": SchedulingGates,
    "PrioritySort": PrioritySort,
    "PodValidity": PodValidity,
    "DynamicResources": DynamicResources,
    "NodeUnschedulable": NodeUnschedulable,
    "NodeName": NodeName,
    "TaintToleration": TaintToleration,
    "NodeAffinity": NodeAffinity,
    "NodePorts": NodePorts,
    "NodeResourcesFit": NodeResourcesFit.of,
    "VolumeRestrictions": VolumeRestrictions,
    "NodeVolumeLimits": NodeVolumeLimits,
    "VolumeBinding": VolumeBinding,
    "VolumeZone": VolumeZone,
    "PodTopologySpread": PodTopologySpread,
    "InterPodAffinity": InterPodAffinity,
    "CPUPlacement": CPUPlacement.of,
    "DefaultPreemption": DefaultPreemption.of,
    "NUMALocality": NUMALocality,
    "SnugFit": SnugFit,
    "PlacementQuality": PlacementQuality,
    "PoolPressure": PoolPressure,
    "NodeResourceTopologyMatch": NodeResourceTopologyMatch.of,
    "NodeNUMAResource": NodeNUMAResource.of,
    "ImageLocality": ImageLocality,
    "DefaultBinder": DefaultBinder,
}
"""Plugin by name, made with its `args`; in kube-scheduler's order, CPUs last."""
ORDER: Final = tuple(FACTORIES)


def plugins() -> tuple[Plugin, ...]:
    """Return the default plugins in their order."""
    return tuple(factory() for factory in FACTORIES.values())


def profile(name: str = DEFAULT_NAME) -> Profile:
    """Return the default profile."""
    return Profile(name, plugins(), WEIGHTS)
