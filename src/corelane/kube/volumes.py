"""Rules about claims and volumes, as upstream's volume helpers."""

from corelane.kube import keys
from corelane.kube.node_terms import labels_match
from corelane.kube.objects import Node
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass


def class_of(obj: PersistentVolume | PersistentVolumeClaim) -> str:
    """Return the storage class of a claim or a volume; "" for none."""
    return obj.metadata.annotations.get(keys.STORAGE_CLASS, obj.spec.storage_class_name or "")


def waits_for_consumer(storage: StorageClass | None) -> bool:
    """Return whether claims of the class are bound only once a pod that uses them is scheduled."""
    return storage is not None and storage.volume_binding_mode == "WaitForFirstConsumer"


def is_reserved(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume is bound to the claim, or reserved for it by name."""
    reference = volume.spec.claim_ref
    if reference is None or (reference.namespace, reference.name) != claim.key:
        return False
    return reference.uid in ("", claim.metadata.uid)


def reaches(volume: PersistentVolume, node: Node) -> bool:
    """Return whether the volume's node affinity admits the node; without any, every node is admitted.

    By labels alone: upstream's `CheckNodeAffinity` does not look at `matchFields`.
    """
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(labels_match(term, node.metadata.labels) for term in affinity.required.node_selector_terms)
