"""Every kind that corelane reads, as slim structs; the parts of pods and nodes are in `pod` and `node`."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from corelane.kube.meta import API, Condition, Object, ObjectMeta, OwnerReference, Wire, condition
from corelane.kube.node import Node, NodeResourceTopology, Taint, Zone
from corelane.kube.pod import Container, ContainerStatus, Pod, PodSpec, PodStatus, Toleration

__all__ = [
    "API",
    "KINDS",
    "Condition",
    "ConfigMap",
    "Container",
    "ContainerStatus",
    "Event",
    "Lease",
    "LeaseSpec",
    "Namespace",
    "NamespaceStatus",
    "Node",
    "NodeResourceTopology",
    "Object",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "Pod",
    "PodSpec",
    "PodStatus",
    "PriorityClass",
    "Taint",
    "Toleration",
    "Zone",
    "api_of",
    "condition",
    "written",
]


class ObjectReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSource(Wire, frozen=True):
    component: str = ""
    host: str = ""


class Event(Object, frozen=True):
    """An event of the core group; `type` is Normal or Warning."""

    api: ClassVar[API] = API("", "v1", "Event", "events", namespaced=True)
    involved_object: ObjectReference = ObjectReference()
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


class ConfigMap(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "ConfigMap", "configmaps", namespaced=True)
    data: dict[str, str] = field(default_factory=dict)


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
    Pod,
    PriorityClass,
)
_NRT = NodeResourceTopology.api
_WRITTEN_ONLY = (
    API("", "v1", "Binding", "bindings", namespaced=True),
    API("events.k8s.io", "v1", "Event", "events", namespaced=True),
    API(_NRT.group, "v1alpha1", _NRT.kind, _NRT.plural, namespaced=False),
)
_BY_NAME = {(api.api_version, api.kind): api for api in (*(k.api for k in KINDS), *_WRITTEN_ONLY)}


def api_of(api_version: str, kind: str) -> API:
    """Where objects of that kind are served. Raises ValueError for a kind that corelane does not write."""
    found = _BY_NAME.get((api_version, kind))
    if found is None:
        raise ValueError(f"apiVersion {api_version!r}, kind {kind!r}: not a kind that corelane writes")
    return found


def written(kind: type[Object]) -> API:
    """Where objects of that kind are changed. Raises ValueError for those only read, as gocrane's."""
    return api_of(kind.api.api_version, kind.api.kind)
