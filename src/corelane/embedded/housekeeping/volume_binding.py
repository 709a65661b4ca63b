"""What is to be done with claims and persistent volumes, as values. Pure.

As upstream's persistent volume controller (`pkg/controller/volume/persistentvolume`), without provisioning: a
claim is bound to a volume that exists, at once or, where its class waits for the first consumer, to the
volume that the scheduler reserved, or to one that the node which the scheduler selected can reach. Volumes
and claims under deletion lose the finalizer that protects them once they are no longer used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from corelane.embedded.housekeeping import volume_matching as matching
from corelane.kube import keys
from corelane.kube.meta import Object
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from corelane.kube.volumes import class_of, is_reserved

_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_MIGRATED_TO: Final = "pv.kubernetes.io/migrated-to"
_PROVISIONERS: Final = (
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
)
_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_IN_TREE: Final = "kubernetes.io/"
CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"
_YES: Final = "yes"


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of an object, or of its status."""

    target: Object
    body: dict[str, Any]
    subresource: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """An event about an object; `kind` is Normal or Warning."""

    about: Object
    kind: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SyncClaim:
    """The claim is to be looked at again."""

    claim: PersistentVolumeClaim


Action: TypeAlias = Patch | Notice | SyncClaim
Key: TypeAlias = tuple[str, str]


def _no_pods(_claim: PersistentVolumeClaim) -> Iterable[Pod]:
    return ()


@dataclass(frozen=True, slots=True)
class StorageFacts:
    """The cluster's storage as it was last seen, by key; `pods_of` gives the pods that use a claim."""

    volumes: Mapping[Key, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[Key, StorageClass] = field(default_factory=dict)
    nodes: Mapping[Key, Node] = field(default_factory=dict)
    pods_of: Callable[[PersistentVolumeClaim], Iterable[Pod]] = _no_pods


# Claims.


def claim_actions(claim: PersistentVolumeClaim, facts: StorageFacts) -> Iterator[Action]:
    """Bind a claim, or say why it is not bound; let go of one that is deleted."""
    if _protected(claim, CLAIM_FINALIZER) and not any(pod.spec.node_name for pod in facts.pods_of(claim)):
        yield _without_finalizer(claim, CLAIM_FINALIZER)
    elif _unprotected(claim, CLAIM_FINALIZER):
        yield _with_finalizer(claim, CLAIM_FINALIZER)
    elif keys.BIND_COMPLETED in claim.metadata.annotations:
        yield from _bound_claim(claim, facts)
    elif claim.spec.volume_name:
        yield from _claim_of_named_volume(claim, facts)
    else:
        yield from _unbound_claim(claim, facts)


def _protected(obj: Object, finalizer: str) -> bool:
    """Whether the object is deleted but for its finalizer."""
    return bool(obj.metadata.deletion_timestamp) and finalizer in obj.metadata.finalizers


def _unprotected(obj: Object, finalizer: str) -> bool:
    """Whether the object, which is not deleted, has lost the finalizer that the API server gave it."""
    return not obj.metadata.deletion_timestamp and finalizer not in obj.metadata.finalizers


def _with_finalizer(obj: Object, finalizer: str) -> Patch:
    return _patch(obj, metadata={"finalizers": [*obj.metadata.finalizers, finalizer]})


def _without_finalizer(obj: Object, finalizer: str) -> Patch:
    meta = obj.metadata
    kept = [name for name in meta.finalizers if name != finalizer]
    return _patch(obj, metadata={"finalizers": kept})


def _patch(obj: Object, *, metadata: Mapping[str, Any] | None = None, **parts: Any) -> Patch:
    """Return a patch for the object as it was last seen: another's change before makes it fail."""
    version = {"resourceVersion": obj.metadata.resource_version}
    return Patch(obj, {"metadata": {**version, **(metadata or {})}, **parts})


def _unbound_claim(claim: PersistentVolumeClaim, facts: StorageFacts) -> Iterator[Action]:
    delayed = matching.is_delayed(claim, facts.classes)
    selected = claim.metadata.annotations.get(keys.SELECTED_NODE)
    node = facts.nodes.get(("", selected)) if selected and delayed else None
    volume = matching.find(claim, facts.volumes.values(), delayed=delayed, node=node)
    if volume is not None:
        yield from _bind(volume, claim)
        return
    default = None if matching.names_class(claim) else default_class(facts.classes.values())
    if default:
        yield _patch(claim, spec={"storageClassName": default})
    elif delayed and selected is None:
        yield _waiting(claim, facts)
        yield from _claim_status(claim, "Pending")
    elif class_of(claim):
        yield from _unprovisioned(claim, facts)
    else:
        why = "no persistent volumes available for this claim and no storage class is set"
        yield Notice(claim, "Normal", "FailedBinding", why)
        yield from _claim_status(claim, "Pending")


def default_class(classes: Iterable[StorageClass]) -> str:
    """Return the newest of the classes marked as the default; "" without any."""
    marked = [
        one for one in classes if any(one.metadata.annotations.get(k) == "true" for k in _DEFAULT_CLASS)
    ]
    newest = max((one.metadata.creation_timestamp for one in marked), default="")
    return min((one.metadata.name for one in marked if one.metadata.creation_timestamp == newest), default="")


def _waiting(claim: PersistentVolumeClaim, facts: StorageFacts) -> Notice:
    pods = [pod for pod in facts.pods_of(claim) if not pod.ended and not pod.spec.node_name]
    names = sorted(pod.metadata.name for pod in pods)
    if not names:
        text = "waiting for first consumer to be created before binding"
        return Notice(claim, "Normal", "WaitForFirstConsumer", text)
    subject = f"pod {names[0]}" if len(names) == 1 else f"pods {','.join(names)}"
    return Notice(claim, "Normal", "WaitForPodScheduled", f"waiting for {subject} to be scheduled")


def _unprovisioned(claim: PersistentVolumeClaim, facts: StorageFacts) -> Iterator[Action]:
    """Ask for a volume to be made: there is no provisioner here, so that the claim stays Pending."""
    name = class_of(claim)
    found = facts.classes.get(("", name))
    if found is None:
        why = f'storageclass.storage.k8s.io "{name}" not found'
        yield Notice(claim, "Warning", "ProvisioningFailed", why)
        return
    provisioner = found.provisioner
    if provisioner.startswith(_IN_TREE):
        why = f"no volume plugin matched name: {provisioner}"
        yield Notice(claim, "Warning", "ProvisioningFailed", why)
        return
    wanted = dict.fromkeys(_PROVISIONERS, provisioner)
    if not wanted.items() <= claim.metadata.annotations.items():
        yield _patch(claim, metadata={"annotations": wanted})
    text = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually "
        "by the system administrator. If volume creation is delayed, please verify that the provisioner is "
        "running and correctly registered."
    )
    yield Notice(claim, "Normal", "ExternalProvisioning", text)


def _claim_of_named_volume(claim: PersistentVolumeClaim, facts: StorageFacts) -> Iterator[Action]:
    volume = facts.volumes.get(("", claim.spec.volume_name))
    if volume is None:
        yield from _claim_status(claim, "Pending")
    elif volume.spec.claim_ref is None:
        why = matching.mismatch(volume, claim)
        if why:
            text = f'Cannot bind to requested volume "{volume.metadata.name}": {why}'
            yield Notice(claim, "Warning", "VolumeMismatch", text)
            yield from _claim_status(claim, "Pending")
        else:
            yield from _bind(volume, claim)
    elif is_reserved(volume, claim):
        yield from _bind(volume, claim)
    else:
        text = f'volume "{volume.metadata.name}" already bound to a different claim.'
        yield Notice(claim, "Warning", "FailedBinding", text)
        if keys.BOUND_BY_CONTROLLER not in claim.metadata.annotations:
            yield from _claim_status(claim, "Pending")


def _bound_claim(claim: PersistentVolumeClaim, facts: StorageFacts) -> Iterator[Action]:
    volume = facts.volumes.get(("", claim.spec.volume_name))
    if not claim.spec.volume_name:
        why = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        yield from _lost(claim, "ClaimLost", why)
    elif volume is None:
        why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        yield from _lost(claim, "ClaimLost", why)
    elif volume.spec.claim_ref is None or volume.spec.claim_ref.uid == claim.metadata.uid:
        yield from _bind(volume, claim)
    else:
        why = "Two claims are bound to the same volume, this one is bound incorrectly"
        yield from _lost(claim, "ClaimMisbound", why)


def _lost(claim: PersistentVolumeClaim, reason: str, message: str) -> Iterator[Action]:
    if claim.status.phase != "Lost":
        yield from _claim_status(claim, "Lost")
        yield Notice(claim, "Warning", reason, message)


def _claim_status(
    claim: PersistentVolumeClaim, phase: str, volume: PersistentVolume | None = None
) -> Iterator[Action]:
    """Set the phase and what the claim has of its volume; its size only as it becomes bound."""
    now, new = claim.status, phase != claim.status.phase
    modes = volume.spec.access_modes if volume else ()
    wanted: dict[str, Any] = {"phase": phase} if new else {}
    if tuple(modes) != tuple(now.access_modes):
        wanted["accessModes"] = list(modes) or None
    if volume is None:
        wanted |= {"capacity": None} if now.capacity else {}
        wanted |= (
            {"currentVolumeAttributesClassName": None} if now.current_volume_attributes_class_name else {}
        )
    elif new:
        if now.capacity != volume.spec.capacity:
            wanted["capacity"] = dict(volume.spec.capacity)
        attributes = volume.spec.volume_attributes_class_name
        if now.phase == "Pending" and attributes != now.current_volume_attributes_class_name:
            wanted["currentVolumeAttributesClassName"] = attributes
    if wanted:
        yield Patch(claim, {"status": wanted}, "status")


# Binding, in upstream's order: whatever is written last, the next look at the claim completes.


def _bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Iterator[Action]:
    yield from _reserve(volume, claim)
    yield from _volume_status(volume, "Bound")
    annotations = {}
    spec = {}
    if claim.spec.volume_name != volume.metadata.name:
        spec = {"spec": {"volumeName": volume.metadata.name}}
        annotations[keys.BOUND_BY_CONTROLLER] = _YES
    if keys.BIND_COMPLETED not in claim.metadata.annotations:
        annotations[keys.BIND_COMPLETED] = _YES
    if annotations:
        yield _patch(claim, metadata={"annotations": annotations}, **spec)
    yield from _claim_status(claim, "Bound", volume)


def _reserve(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Iterator[Action]:
    """Name the claim in the volume, and say so where it was not the user who did."""
    annotations, reference = volume.metadata.annotations, volume.spec.claim_ref
    if reference is not None and (reference.uid, *_named(volume)) == (claim.metadata.uid, *claim.key):
        return
    by_controller = not is_reserved(volume, claim) and keys.BOUND_BY_CONTROLLER not in annotations
    meta = {"annotations": {keys.BOUND_BY_CONTROLLER: _YES}} if by_controller else {}
    yield _patch(volume, metadata=meta, spec={"claimRef": _reference(claim)})


def _named(volume: PersistentVolume) -> tuple[str, str]:
    reference = volume.spec.claim_ref
    return (reference.namespace, reference.name) if reference else ("", "")


def _reference(claim: PersistentVolumeClaim) -> dict[str, str]:
    meta = claim.metadata
    return {
        "apiVersion": claim.api.api_version,
        "kind": claim.api.kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }


# Volumes.


def volume_actions(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> Iterator[Action]:
    """Set a volume's phase by its `claim`, which is None where the claim that it names does not exist."""
    reference, phase = volume.spec.claim_ref, volume.status.phase
    if _protected(volume, VOLUME_FINALIZER) and phase != "Bound":
        yield _without_finalizer(volume, VOLUME_FINALIZER)
    elif _unprotected(volume, VOLUME_FINALIZER):
        yield _with_finalizer(volume, VOLUME_FINALIZER)
    elif reference is None or not reference.uid:
        yield from _volume_status(volume, "Available")
    elif claim is None or claim.metadata.uid != reference.uid:
        yield from _released(volume)
    elif not claim.spec.volume_name:
        yield from _unbound_yet(volume, claim)
    elif claim.spec.volume_name == volume.metadata.name:
        yield from _volume_status(volume, "Bound")
    elif _PROVISIONED_BY in volume.metadata.annotations and _policy(volume) == "Delete":
        yield from _released(volume)
    else:
        yield from _unbind(volume)


def _policy(volume: PersistentVolume) -> str:
    return volume.spec.persistent_volume_reclaim_policy


def _volume_status(volume: PersistentVolume, phase: str, message: str = "") -> Iterator[Action]:
    if volume.status.phase != phase:
        yield Patch(volume, {"status": {"phase": phase, "message": message or None}}, "status")


def _unbound_yet(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Iterator[Action]:
    if volume.spec.volume_mode == claim.spec.volume_mode:
        yield SyncClaim(claim)
        return
    why = "due to incompatible volumeMode."
    text = f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{claim.metadata.name}" {why}'
    yield Notice(volume, "Warning", "VolumeMismatch", text)
    text = f'Cannot bind PersistentVolume "{volume.metadata.name}" to requested PersistentVolumeClaim {why}'
    yield Notice(claim, "Warning", "VolumeMismatch", text)


def _released(volume: PersistentVolume) -> Iterator[Action]:
    """The claim is gone: the volume is kept, or left to its provisioner; nothing here deletes volumes."""
    if volume.status.phase not in ("Released", "Failed"):
        yield from _volume_status(volume, "Released")
    if volume.status.phase == "Failed":
        return
    if _policy(volume) == "Recycle":
        yield from _failed(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
    elif _policy(volume) == "Delete" and not _deleted_elsewhere(volume):
        name = volume.metadata.name
        why = f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
        yield from _failed(volume, "VolumeFailedDelete", why)


def _deleted_elsewhere(volume: PersistentVolume) -> bool:
    """Whether an external provisioner deletes the volume, if there is one."""
    annotations = volume.metadata.annotations
    maker = annotations.get(_PROVISIONED_BY, _IN_TREE)
    return not maker.startswith(_IN_TREE) or _MIGRATED_TO in annotations or volume.spec.csi is not None


def _failed(volume: PersistentVolume, reason: str, why: str) -> Iterator[Action]:
    yield from _volume_status(volume, "Failed", why)
    yield Notice(volume, "Warning", reason, why)


def _unbind(volume: PersistentVolume) -> Iterator[Action]:
    """Free a volume whose claim is bound elsewhere; one that a user reserved stays reserved by name."""
    if keys.BOUND_BY_CONTROLLER in volume.metadata.annotations:
        yield _patch(
            volume, metadata={"annotations": {keys.BOUND_BY_CONTROLLER: None}}, spec={"claimRef": None}
        )
    else:
        yield _patch(volume, spec={"claimRef": {"uid": None}})
    yield from _volume_status(volume, "Available")
