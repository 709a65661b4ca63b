"""The scheduler's events: changed objects, outcomes of instructions, and time. `now` is in seconds.

Structs, as several are made for every pod: a frozen dataclass takes four times as long.
"""

from collections.abc import Collection
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from corelane.kube.meta import Object
from corelane.kube.objects import Namespace, Node, NodeResourceTopology, Service
from corelane.kube.pod import Pod
from corelane.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from corelane.scheduler.framework.profile import Profile


class PodChanged(Struct, frozen=True):
    """A pod was added (`old` is None), changed, or was deleted (`new` is None)."""

    now: float
    old: Pod | None
    new: Pod | None


class NodeChanged(Struct, frozen=True):
    """As PodChanged, for a Node."""

    now: float
    old: Node | None
    new: Node | None


class TopologyChanged(Struct, frozen=True):
    """As PodChanged, for a node's hardware and ledger."""

    now: float
    old: NodeResourceTopology | None
    new: NodeResourceTopology | None


class ObjectChanged(Struct, frozen=True):
    """As PodChanged, for an object of another kind; a scheduler runs without those that it cannot watch.

    Leases are those that nodes' agents renew, named after their nodes.
    """

    now: float
    old: Object | None
    new: Object | None


class AgentLeasesWatched(Struct, frozen=True):
    """Changes of agents' Leases are seen from now on, or cannot be."""

    now: float
    works: bool


class Unwatched(Struct, frozen=True):
    """Objects of a kind (its plural name) cannot be watched, for instance for lack of a permission.

    An empty error says that they can be again.
    """

    now: float
    plural: str
    error: str


class BindSucceeded(Struct, frozen=True):
    """The API server accepted a binding."""

    now: float
    uid: str


class BindFailed(Struct, frozen=True):
    """A binding was `rejected` or `throttled`, met a `conflict` (409), or its outcome is `unknown`.

    `throttled` and `rejected` prove that it was not carried out. `retry_after` is in seconds.
    """

    now: float
    uid: str
    outcome: Literal["rejected", "throttled", "conflict", "unknown"]
    message: str
    retry_after: float = 0.0


class PreBindFailed(Struct, frozen=True):
    """A plugin's work before a binding failed; the binding was not sent."""

    now: float
    uid: str
    plugin: str
    message: str


class PodLookedUp(Struct, frozen=True):
    """The answer to LookUpPod: the pod as the API server has it, None if that UID does not exist."""

    now: float
    uid: str
    pod: Pod | None


class LookUpFailed(Struct, frozen=True):
    """A pod could not be read; `retry_after` is in seconds."""

    now: float
    uid: str
    message: str
    retry_after: float = 0.0


class EvictFailed(Struct, frozen=True):
    """A pod could not be evicted; `uid` is that of the pod for which it was to be."""

    now: float
    uid: str
    victim: str
    message: str


class PermitDecided(Struct, frozen=True):
    """A Permit plugin that holds a pod allows its binding, or denies it; ignored if no pod is held."""

    now: float
    uid: str
    allowed: bool
    plugin: str
    message: str = ""


class BindRequested(Struct, frozen=True):
    """Another scheduler chose the node: claim the pod's CPUs there and bind it, if its filters pass."""

    now: float
    pod: Pod
    node: str
    profile: Profile


class CycleDue(Struct, frozen=True):
    """Time to send what is due, and to place one pod."""

    now: float


SchedulerEvent: TypeAlias = (
    PodChanged
    | NodeChanged
    | TopologyChanged
    | ObjectChanged
    | AgentLeasesWatched
    | Unwatched
    | BindSucceeded
    | BindFailed
    | PreBindFailed
    | PodLookedUp
    | LookUpFailed
    | EvictFailed
    | PermitDecided
    | BindRequested
    | CycleDue
)


class EventSink(Protocol):
    """Takes events."""

    def handle(self, event: SchedulerEvent) -> None:
        """Handle an event at once."""


OBJECTS: Final[tuple[type[Object], ...]] = (
    *(Namespace, PersistentVolumeClaim, PersistentVolume, StorageClass, Service),
    *(CSINode, CSIDriver, CSIStorageCapacity, VolumeAttachment),
)
"""Kinds beside pods, nodes and topologies whose changes may help pods in the queue."""
_TIMED: Final = frozenset(OBJECTS) - {Namespace, Service}
"""Those of which a change has a name upstream."""
_TOPOLOGY: Final = "noderesourcetopologies.v1alpha2.topology.node.k8s.io"


def names_of(event: SchedulerEvent, schedulers: Collection[str]) -> tuple[str, ...]:
    """Return the names of a change in kube-scheduler's `scheduler_event_handling_duration_seconds`.

    None of other events, and of kinds that have none upstream. Of pods without a node those of these
    `schedulers` are looked at. Upstream: `eventhandlers.go` of kube-scheduler (1.36).
    """
    match event:
        case PodChanged():
            return _of_pod(event, schedulers)
        case NodeChanged():
            if event.old is not None and event.new is not None:
                return _of_node(event.old, event.new)
            return (f"Node{_action(event.old, event.new)}",)
        case TopologyChanged():
            return (_TOPOLOGY + _action(event.old, event.new),)
        case ObjectChanged():
            changed = event.new or event.old
            if type(changed) in _TIMED and changed is not None:
                group = "storage.k8s.io/" if changed.api.group else ""
                return (f"{group}{changed.api.kind}{_action(event.old, event.new)}",)
    return ()


def _action(old: object, new: object) -> str:
    return "Add" if old is None else "Delete" if new is None else "Update"


def _of_pod(event: PodChanged, schedulers: Collection[str]) -> tuple[str, ...]:
    """A pod that gets its node leaves the queue, and is added to its node."""
    old, new = event.old, event.new
    pod = new or old
    assert pod is not None
    if pod.spec.node_name:
        if new is None:
            return ("AssignedPodDelete",)
        if old is not None and old.spec.node_name:
            return ("AssignedPodUpdate",)
        if old is not None and pod.spec.scheduler_name in schedulers:
            return "UnschedulablePodDelete", "AssignedPodAdd"
        return ("AssignedPodAdd",)
    return (f"UnschedulablePod{_action(old, new)}",) if pod.spec.scheduler_name in schedulers else ()


def _of_node(old: Node, new: Node) -> tuple[str, ...]:
    """The properties that changed; a heartbeat changes none."""
    changed = (
        ("Allocatable", old.status.allocatable != new.status.allocatable),
        ("Label", old.metadata.labels != new.metadata.labels),
        ("Taint", (old.spec.taints, old.spec.unschedulable) != (new.spec.taints, new.spec.unschedulable)),
    )
    return tuple(f"NodeUpdateNode{name}" for name, differs in changed if differs)
