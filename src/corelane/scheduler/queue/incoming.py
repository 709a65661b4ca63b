"""Why a pod enters a queue, in the words of kube-scheduler's `scheduler_queue_incoming_pods_total`.

Upstream: `pkg/scheduler/framework/events.go`, and `ClusterEvent.Label` of k8s.io/kube-scheduler (1.36).
"""

from typing import Final

from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, members
from corelane.scheduler.queue.waiting import QueuePlace

QUEUES: Final = {
    QueuePlace.GATED: "gated",
    QueuePlace.READY: "active",
    QueuePlace.BACKING_OFF: "backoff",
    QueuePlace.PARKED: "unschedulable",
}
"""Names in `scheduler_pending_pods`."""
ENTERED: Final = QUEUES | {QueuePlace.GATED: "unschedulable"}
"""Names where pods that enter are counted: gated ones are among the unschedulable there."""
POD_ADDED: Final = "UnschedulablePodAdd"
POD_UPDATED: Final = "UnschedulablePodUpdate"
ATTEMPT_FAILED: Final = "ScheduleAttemptFailure"
BACKOFF_OVER: Final = "BackoffComplete"
POPPED_EARLY: Final = "PopFromBackoffQ"
ACTIVATED: Final = "ForceActivate"
"""Also for a pod whose equal was placed, or has left: the next one is tried."""
TOO_LONG: Final = "UnschedulableTimeout"
_LABELS: Final = {
    ChangeKind.NODE_ADDED: "NodeAdd",
    ChangeKind.NODE_REMOVED: "NodeDelete",
    ChangeKind.NODE_ALLOCATABLE: "NodeUpdateNodeAllocatable",
    ChangeKind.NODE_LABELS: "NodeUpdateNodeLabel",
    ChangeKind.NODE_TAINTS: "NodeUpdateNodeTaint",
    ChangeKind.POD_ADDED: "AssignedPodAdd",
    ChangeKind.POD_REMOVED: "AssignedPodDelete",
    ChangeKind.POD_CHANGED: "AssignedPodUpdate",
    ChangeKind.POD_ITSELF: POD_UPDATED,
    ChangeKind.WATCHED: "UnschedulableTimeout",
}
_RESOURCES: Final = {
    ChangeKind.TOPOLOGY: "noderesourcetopologies.v1alpha2.topology.node.k8s.io",
    ChangeKind.CLAIM: "PersistentVolumeClaim",
    ChangeKind.VOLUME: "PersistentVolume",
    ChangeKind.STORAGE_CLASS: "storage.k8s.io/StorageClass",
    ChangeKind.NAMESPACE: "Namespace",
    ChangeKind.SERVICE: "Service",
    ChangeKind.CSI_NODE: "storage.k8s.io/CSINode",
    ChangeKind.CSI_DRIVER: "storage.k8s.io/CSIDriver",
    ChangeKind.STORAGE_CAPACITY: "storage.k8s.io/CSIStorageCapacity",
    ChangeKind.VOLUME_ATTACHMENT: "storage.k8s.io/VolumeAttachment",
}
"""Kinds that are additions, updates or deletions by the object. Upstream has no event for namespaces and
services."""


def event_of(change: ClusterChange) -> str:
    """Return the event of a change; of several kinds, the first one's."""
    kind = next(iter(members(change.kind)), ChangeKind.POD_ITSELF)
    if label := _LABELS.get(kind):
        return label
    action = "Add" if change.old is None else "Delete" if change.new is None else "Update"
    return f"{_RESOURCES[kind]}{action}"
