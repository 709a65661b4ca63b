"""Nodes and their NodeResourceTopology, as corelane reads them."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from corelane.kube.meta import API, Condition, Object, ResourceList, Wire, WireQuantity


class Taint(Wire, frozen=True):
    """`effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = field(name="providerID", default="")


class NodeAddress(Wire, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(Wire, frozen=True):
    capacity: ResourceList = field(default_factory=dict)
    allocatable: ResourceList = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class Node(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "Node", "nodes", namespaced=False)
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Cost(Wire, frozen=True):
    """The distance from a zone to the zone of that name, in the units of ACPI's SLIT: 10 is local."""

    name: str = ""
    value: int = 0


class Attribute(Wire, frozen=True):
    name: str = ""
    value: str = ""


class ZoneResource(Wire, frozen=True):
    name: str = ""
    capacity: WireQuantity = "0"
    allocatable: WireQuantity = "0"
    available: WireQuantity = "0"


class Zone(Wire, frozen=True):
    name: str = ""
    type: str = ""
    parent: str = ""
    costs: tuple[Cost, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(Object, frozen=True):
    """One a node, of the same name; cluster-wide."""

    api: ClassVar[API] = API(
        "topology.node.k8s.io",
        "v1alpha2",
        "NodeResourceTopology",
        "noderesourcetopologies",
        namespaced=False,
    )
    topology_policies: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()
    attributes: tuple[Attribute, ...] = ()
