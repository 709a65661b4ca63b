"""Which persistent volume suits a claim, as upstream's volume binder chooses (`FindMatchingVolume`). Pure."""

from collections.abc import Iterable, Mapping

from corelane import quantity
from corelane.kube import keys
from corelane.kube.objects import Node
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from corelane.kube.volumes import class_of, is_reserved, reaches, waits_for_consumer


def names_class(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim names a class, which may be the empty one."""
    return keys.STORAGE_CLASS in claim.metadata.annotations or claim.spec.storage_class_name is not None


def is_delayed(claim: PersistentVolumeClaim, classes: Mapping[tuple[str, str], StorageClass]) -> bool:
    """Whether the claim is bound only once a pod that uses it is scheduled."""
    return waits_for_consumer(classes.get(("", class_of(claim))))


def storage(amounts: Mapping[str, str | int]) -> int:
    """Return the amount of storage in billionths of a byte. Raises QuantityError."""
    return quantity.parse(str(amounts.get("storage", "0"))).nano


def find(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    *,
    delayed: bool,
    node: Node | None = None,
) -> PersistentVolume | None:
    """Return the volume reserved for the claim, else the smallest that suits it; of those with fewest modes.

    Where binding is `delayed`, only a volume that the `node` selected for the pod can reach is chosen.
    """
    groups: dict[frozenset[str], list[PersistentVolume]] = {}
    for volume in volumes:
        modes = frozenset(volume.spec.access_modes)
        if modes >= set(claim.spec.access_modes):
            groups.setdefault(modes, []).append(volume)
    for modes in sorted(groups, key=lambda modes: (len(modes), sorted(modes))):
        found = _best(claim, groups[modes], delayed=delayed, node=node)
        if found is not None:
            return found
    return None


def _best(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, delayed: bool, node: Node | None
) -> PersistentVolume | None:
    usable = [volume for volume in volumes if _usable(volume, claim)]
    reserved = next((volume for volume in usable if is_reserved(volume, claim)), None)
    if reserved is not None or (delayed and node is None):
        return reserved
    suitable = [
        volume for volume in usable if _suits(volume, claim) and (node is None or reaches(volume, node))
    ]
    return min(
        suitable, key=lambda volume: (storage(volume.spec.capacity), volume.metadata.name), default=None
    )


def _usable(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is free or reserved for the claim, large enough, and of its mode."""
    if volume.spec.claim_ref is not None and not is_reserved(volume, claim):
        return False
    return (
        not volume.metadata.deletion_timestamp
        and storage(volume.spec.capacity) >= storage(claim.spec.resources.requests)
        and volume.spec.volume_mode == claim.spec.volume_mode
        and _attributes(volume) == _attributes(claim)
    )


def _attributes(obj: PersistentVolume | PersistentVolumeClaim) -> str:
    return obj.spec.volume_attributes_class_name or ""


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    selector = claim.spec.selector
    return (
        volume.status.phase == "Available"
        and (selector is None or selector.compiled().matches(volume.metadata.labels))
        and class_of(volume) == class_of(claim)
    )


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why the claim cannot have the volume it names, in upstream's words; "" where it can."""
    if volume.metadata.deletion_timestamp:
        return f'the volume is marked for deletion "{volume.metadata.name}"'
    if storage(volume.spec.capacity) < storage(claim.spec.resources.requests):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if _attributes(volume) != _attributes(claim):
        return "volumeAttributesClassName does not match"
    if volume.spec.volume_mode != claim.spec.volume_mode:
        return "incompatible volumeMode"
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return "incompatible accessMode"
    return ""
