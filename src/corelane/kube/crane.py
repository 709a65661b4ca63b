"""The NodeResourceTopology of gocrane (`topology.crane.io/v1alpha1`): corelane reads it and writes none."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from corelane.kube.meta import API, Object, ResourceList, Wire
from corelane.kube.node import Cost


class CraneManagerPolicy(Wire, frozen=True):
    """`cpuManagerPolicy` is None or Static, of gocrane's agent and not of the kubelet."""

    cpu_manager_policy: str = ""
    topology_manager_policy: str = ""


class CraneResources(Wire, frozen=True):
    capacity: ResourceList = field(default_factory=dict)
    allocatable: ResourceList = field(default_factory=dict)
    reserved_cpu_nums: int = field(name="reservedCPUNums", default=0)


class CraneZone(Wire, frozen=True):
    name: str = ""
    type: str = ""
    costs: tuple[Cost, ...] = ()
    resources: CraneResources = CraneResources()


class CraneTopology(Object, frozen=True):
    """One a node, of the same name. Neither spec nor status: all fields are top level."""

    api: ClassVar[API] = API(
        "topology.crane.io", "v1alpha1", "NodeResourceTopology", "noderesourcetopologies", namespaced=False
    )
    crane_manager_policy: CraneManagerPolicy = CraneManagerPolicy()
    reserved: ResourceList = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    zones: tuple[CraneZone, ...] = ()
