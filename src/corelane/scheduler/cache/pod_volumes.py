"""The claims of a pod, and the volumes of CSI drivers that it has on its node.

Upstream: `filterAttachableVolumes` and `getCSIDriverInfo` of kube-scheduler's nodevolumelimits (1.36). A
volume that is not made yet is one of the class's provisioner, named after its claim.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from corelane.kube.csi_migration import (
    MIGRATED,
    NOT_COUNTED,
    VolumeID,
    inline_id,
    plugin_of,
    volume_id,
)
from corelane.kube.pod import Pod
from corelane.kube.pod_volumes import Volume
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from corelane.kube.volumes import class_of

Key: TypeAlias = tuple[str, str]
"""Namespace and name."""


class VolumeObjects(Protocol):
    """What decides which volume a claim means."""

    claims: dict[Key, PersistentVolumeClaim]
    volumes: dict[str, PersistentVolume]
    classes: dict[str, StorageClass]


@dataclass(frozen=True, slots=True)
class PodClaim:
    """Namespace and name of a claim, and whether it is made for the pod alone."""

    key: Key
    ephemeral: bool = False


def claim_of(pod: Pod, volume: Volume) -> PodClaim | None:
    """Return the claim of one of the pod's volumes."""
    if volume.persistent_volume_claim is not None:
        return PodClaim((pod.metadata.namespace, volume.persistent_volume_claim.claim_name))
    if volume.ephemeral is not None:
        return PodClaim((pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}"), ephemeral=True)
    return None


def pod_claims(pod: Pod) -> Iterator[PodClaim]:
    """Yield the claims of the pod's volumes, in their order."""
    return filter(None, (claim_of(pod, volume) for volume in pod.spec.volumes))


def is_owned(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim was made for an ephemeral volume of this pod."""
    owners = claim.metadata.owner_references
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in owners)


def claim_volume(claim: PersistentVolumeClaim, objects: VolumeObjects) -> VolumeID | None:
    """Return the volume of a claim, made or to be made; None for one that no CSI driver serves."""
    volume = objects.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _to_be_made(claim, objects)
    found = volume_id(volume)
    return found if found is not None and all(found) else None


def _to_be_made(claim: PersistentVolumeClaim, objects: VolumeObjects) -> VolumeID | None:
    storage = objects.classes.get(class_of(claim))
    if storage is None or not storage.provisioner or storage.provisioner in NOT_COUNTED:
        return None
    migrated = MIGRATED.get(storage.provisioner)
    return migrated.driver if migrated else storage.provisioner, "\0" + "/".join(claim.key)


def volumes_on_node(pod: Pod, objects: VolumeObjects) -> set[VolumeID]:
    """Return the volumes of a pod that has a node, as far as its claims are known.

    A volume that its driver cannot name counts as one of its own; kube-scheduler fails there.
    """
    found: set[VolumeID | None] = set()
    for volume in pod.spec.volumes:
        of = claim_of(pod, volume)
        if of is None:
            found.add(_inline(pod, volume))
        elif (claim := objects.claims.get(of.key)) and (not of.ephemeral or is_owned(pod, claim)):
            found.add(claim_volume(claim, objects))
    return {one for one in found if one is not None}


def _inline(pod: Pod, volume: Volume) -> VolumeID | None:
    try:
        return inline_id(volume)
    except ValueError:
        return MIGRATED[plugin_of(volume)].driver, f"\0{pod.metadata.uid}/{volume.name}"
