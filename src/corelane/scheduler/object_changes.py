"""Changes of the objects beside pods, nodes and topologies: into the cache, and to the queue."""

from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.events import (
    BudgetChanged,
    ClaimChanged,
    CSIDriverChanged,
    CSINodeChanged,
    NamespaceChanged,
    ObjectChanged,
    ServiceChanged,
    StorageCapacityChanged,
    StorageClassChanged,
    Unwatched,
    VolumeAttachmentChanged,
    VolumeChanged,
)
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange


def apply(cluster: NodeCache, event: ObjectChanged) -> ClusterChange | None:
    """Update the cache, and return the change that may help pods in the queue."""
    one = event.new or event.old
    assert one is not None
    kind, name = ChangeKind.NOTHING, one.metadata.name
    match event:
        case NamespaceChanged():
            if cluster.objects.put_namespace(name, event.new):
                cluster.index.namespace_changed(name)
                kind = ChangeKind.NAMESPACE
        case ClaimChanged():
            cluster.objects.put_claim(one.key, event.new)
            kind = ChangeKind.CLAIM
        case VolumeChanged():
            cluster.objects.put_volume(name, event.new)
            kind = ChangeKind.VOLUME
        case StorageClassChanged():
            cluster.objects.put_class(name, event.new)
            kind = ChangeKind.STORAGE_CLASS
        case ServiceChanged():
            if cluster.objects.put_service(one.key, event.new):
                kind = ChangeKind.SERVICE
        case BudgetChanged():
            cluster.budgets.put(one.key, event.new)
        case CSINodeChanged():
            cluster.objects.put_csi_node(name, event.new)
            kind = ChangeKind.CSI_NODE
        case CSIDriverChanged():
            cluster.objects.put_csi_driver(name, event.new)
            kind = ChangeKind.CSI_DRIVER
        case StorageCapacityChanged():
            cluster.objects.put_capacity(one.key, event.new)
            kind = ChangeKind.STORAGE_CAPACITY
        case VolumeAttachmentChanged():
            cluster.objects.put_attachment(name, event.new)
            kind = ChangeKind.VOLUME_ATTACHMENT
    return ClusterChange(kind, "", event.old, event.new) if kind else None


def unwatched(cluster: NodeCache, event: Unwatched) -> ClusterChange | None:
    """Note that objects of a kind cannot be listed and watched; or can be again, which may help pods."""
    kinds = cluster.objects.unwatched
    before = kinds.pop(event.plural, None)
    if event.error:
        kinds[event.plural] = event.error
        return None
    return ClusterChange(ChangeKind.WATCHED) if before else None
