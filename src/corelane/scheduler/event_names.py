"""Names of events in kube-scheduler's `scheduler_event_handling_duration_seconds`.

Upstream: `eventhandlers.go` of kube-scheduler (1.36), whose labels are those of `queue.incoming`.
"""

from collections.abc import Collection
from typing import Any, Final

from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.scheduler.events import (
    ClaimChanged,
    CSIDriverChanged,
    CSINodeChanged,
    NodeChanged,
    ObjectChanged,
    PodChanged,
    SchedulerEvent,
    StorageCapacityChanged,
    StorageClassChanged,
    TopologyChanged,
    VolumeAttachmentChanged,
    VolumeChanged,
)

_STORAGE: Final = (
    CSIDriverChanged,
    CSINodeChanged,
    StorageCapacityChanged,
    StorageClassChanged,
    VolumeAttachmentChanged,
)
_TOPOLOGY: Final = "noderesourcetopologies.v1alpha2.topology.node.k8s.io"


def names_of(event: SchedulerEvent, schedulers: Collection[str]) -> tuple[str, ...]:
    """Return the names of a change of an object; none of other events, and of kinds that have none upstream.

    Of pods without a node those of these `schedulers` are looked at.
    """
    match event:
        case PodChanged():
            return _of_pod(event.old, event.new, schedulers)
        case NodeChanged():
            both = event.old is not None and event.new is not None
            return _of_node(event.old, event.new) if both else (f"Node{_action(event)}",)  # type: ignore[arg-type]
        case TopologyChanged():
            return (_TOPOLOGY + _action(event),)
        case ObjectChanged():
            one = event.new or event.old
            group = "storage.k8s.io/" if isinstance(event, _STORAGE) else ""
            known = one is not None and isinstance(event, (*_STORAGE, ClaimChanged, VolumeChanged))
            return (f"{group}{one.api.kind}{_action(event)}",) if one is not None and known else ()
    return ()


def _action(event: Any) -> str:
    if event.new is None:
        return "Delete"
    return "Add" if event.old is None else "Update"


def _of_pod(old: Pod | None, new: Pod | None, schedulers: Collection[str]) -> tuple[str, ...]:
    """A pod that gets its node leaves the queue, and is added to its node."""
    one = new or old
    assert one is not None
    if one.spec.node_name:
        if new is None:
            return ("AssignedPodDelete",)
        if old is not None and old.spec.node_name:
            return ("AssignedPodUpdate",)
        left = (
            ("UnschedulablePodDelete",) if old is not None and one.spec.scheduler_name in schedulers else ()
        )
        return (*left, "AssignedPodAdd")
    if one.spec.scheduler_name not in schedulers:
        return ()
    action = "Delete" if new is None else "Add" if old is None else "Update"
    return (f"UnschedulablePod{action}",)


def _of_node(old: Node, new: Node) -> tuple[str, ...]:
    """The properties that changed; a heartbeat changes none."""
    changed = (
        ("Allocatable", old.status.allocatable != new.status.allocatable),
        ("Label", old.metadata.labels != new.metadata.labels),
        ("Taint", (old.spec.taints, old.spec.unschedulable) != (new.spec.taints, new.spec.unschedulable)),
    )
    return tuple(f"NodeUpdateNode{name}" for name, differs in changed if differs)
