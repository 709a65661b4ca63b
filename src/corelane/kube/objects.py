"""The kinds that corelane reads, as slim structs: nodes, their NodeResourceTopology, and the small kinds.

Pods are in `pod`, volumes in `storage`, gocrane's NodeResourceTopology in `translate.crane`.
"""

from __future__ import annotations

import sys
from typing import ClassVar, Final

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

from corelane.kube.decode import UNDECODABLE, plain_json, without_nulls
from corelane.kube.meta import API, Condition, Object, ObjectReference, ResourceList, Wire, WireQuantity
from corelane.kube.pod import Pod
from corelane.kube.selectors import LabelSelector
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

# ruff: noqa: D101 - the API reference documents its own structs


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """Numbers are counts or percentages (`"30%"`); at most one of both is present."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"
    """IfHealthyBudget or AlwaysAllow."""


class PodDisruptionBudgetStatus(Wire, frozen=True):
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)
    """Pod to the time at which its eviction was permitted, until its deletion is seen."""
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Object, frozen=True):
    api: ClassVar[API] = API("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True)
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


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


class ContainerImage(Wire, frozen=True):
    """An image on a node; all names and digests mean the same one."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0

    def __post_init__(self) -> None:
        """Share names between nodes: 5,000 nodes list the same 50 images, with digests."""
        force_setattr(self, "names", tuple(map(sys.intern, self.names)))


class NodeStatus(Wire, frozen=True):
    capacity: ResourceList = field(default_factory=dict)
    allocatable: ResourceList = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    images: tuple[ContainerImage, ...] = ()


class Node(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "Node", "nodes", namespaced=False)
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class CostInfo(Wire, frozen=True):
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


class TopologyZone(Wire, frozen=True):
    name: str = ""
    type: str = ""
    parent: str = ""
    costs: tuple[CostInfo, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(Object, frozen=True):
    """One for each node, of the same name; cluster-wide."""

    api: ClassVar[API] = API(
        "topology.node.k8s.io",
        "v1alpha2",
        "NodeResourceTopology",
        "noderesourcetopologies",
        namespaced=False,
    )
    topology_policies: tuple[str, ...] = ()
    zones: tuple[TopologyZone, ...] = ()
    attributes: tuple[Attribute, ...] = ()

    def __post_init__(self) -> None:
        """Share zones and annotations of equal nodes: they are 50 KB of each."""
        if len(_shared_zones) >= _MOST_SHARED:
            _shared_zones.clear()
        force_setattr(self, "zones", _shared_zones.setdefault(self.zones, self.zones))
        annotations = self.metadata.annotations
        annotations |= {key: sys.intern(text) for key, text in annotations.items()}


class NodeResourceTopologyV1Alpha1(NodeResourceTopology, frozen=True):
    """As clusters serve it that have no v1alpha2; without attributes."""

    api: ClassVar[API] = API(
        "topology.node.k8s.io",
        "v1alpha1",
        "NodeResourceTopology",
        "noderesourcetopologies",
        namespaced=False,
    )


_MOST_SHARED: Final = 100
_shared_zones: dict[tuple[TopologyZone, ...], tuple[TopologyZone, ...]] = {}


class EventSource(Wire, frozen=True):
    component: str = ""
    host: str = ""


class Event(Object, frozen=True):
    """An event of the core group; `type` is Normal or Warning."""

    api: ClassVar[API] = API("", "v1", "Event", "events", namespaced=True)
    involved_object: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    action: str = ""
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: str = ""
    last_timestamp: str = ""
    event_time: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""


class LeaseSpec(Wire, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(Object, frozen=True):
    api: ClassVar[API] = API("coordination.k8s.io", "v1", "Lease", "leases", namespaced=True)
    spec: LeaseSpec = LeaseSpec()


class NamespaceSpec(Wire, frozen=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Wire, frozen=True):
    phase: str = ""


class Namespace(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "Namespace", "namespaces", namespaced=False)
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class ServiceSpec(Wire, frozen=True):
    """Without a selector, the service has no pods of its own."""

    selector: dict[str, str] = field(default_factory=dict)


class Service(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "Service", "services", namespaced=True, optional=True)
    spec: ServiceSpec = ServiceSpec()


class ConfigMap(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "ConfigMap", "configmaps", namespaced=True)
    data: dict[str, str] = field(default_factory=dict)


class Secret(Object, frozen=True):
    """The data is left out: only the API server holds it."""

    api: ClassVar[API] = API("", "v1", "Secret", "secrets", namespaced=True)


class PriorityClass(Object, frozen=True):
    api: ClassVar[API] = API("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


KINDS: Final[tuple[type[Object], ...]] = (
    ConfigMap,
    Event,
    Lease,
    Namespace,
    Node,
    NodeResourceTopology,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    Secret,
    Service,
    StorageClass,
)
_WRITTEN_ONLY = (
    API("", "v1", "Binding", "bindings", namespaced=True),
    API("events.k8s.io", "v1", "Event", "events", namespaced=True),
    NodeResourceTopologyV1Alpha1.api,
)
_BY_NAME = {(api.api_version, api.kind): api for api in (*(k.api for k in KINDS), *_WRITTEN_ONLY)}


def api_of(api_version: str, kind: str) -> API:
    """Return where a kind is served. Raises ValueError for a kind that corelane does not write."""
    api = _BY_NAME.get((api_version, kind))
    if api is None:
        raise ValueError(f"apiVersion {api_version!r}, kind {kind!r}: not a kind that corelane writes")
    return api


def written(kind: type[Object]) -> API:
    """Return where a kind is changed. Raises ValueError for kinds that are only read, as gocrane's."""
    return api_of(kind.api.api_version, kind.api.kind)


# KubeletConfiguration (v1beta1), as far as CPU management depends on it. /configz answers with the effective
# configuration: defaults and command-line flags are merged in.


class KubeletConfiguration(Wire, frozen=True):
    """Effective settings; defaults are the kubelet's (1.36)."""

    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] = field(default_factory=dict)
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    memory_manager_policy: str = "None"
    reserved_system_cpus: str = field(name="reservedSystemCPUs", default="")
    kube_reserved: ResourceList = field(default_factory=dict)
    system_reserved: ResourceList = field(default_factory=dict)
    cpu_cfs_quota: bool = field(name="cpuCFSQuota", default=True)


class _Answer(Wire, frozen=True):
    configuration: KubeletConfiguration = field(name="kubeletconfig")


def decode_kubelet_configuration(body: bytes) -> KubeletConfiguration:
    """Decode the answer of /configz. Raises ValueError."""
    try:
        return msgspec.json.decode(body, type=_Answer).configuration
    except UNDECODABLE:
        tree = without_nulls(plain_json(body))
        return msgspec.convert(tree, _Answer, strict=False).configuration
