"""Volumes as a scheduler sees them: claims, persistent volumes and storage classes."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from corelane.kube.meta import API, Condition, Object, ObjectReference, ResourceList, Wire
from corelane.kube.pod import NodeSelector, ResourceRequirements
from corelane.kube.selectors import LabelSelector


class PersistentVolumeClaimSpec(Wire, frozen=True):
    """An absent class is None; an empty one asks for a volume without a class."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str = "Filesystem"


class PersistentVolumeClaimStatus(Wire, frozen=True):
    """`phase` is Pending, Bound or Lost."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: ResourceList = field(default_factory=dict)
    current_volume_attributes_class_name: str | None = None
    conditions: tuple[Condition, ...] = ()


class PersistentVolumeClaim(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True)
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class CSISource(Wire, frozen=True):
    driver: str = ""


class PersistentVolumeSpec(Wire, frozen=True):
    """Of the storage behind the volume only whether a CSI driver serves it is read."""

    capacity: ResourceList = field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    persistent_volume_reclaim_policy: str = "Retain"
    volume_attributes_class_name: str | None = None
    csi: CSISource | None = None


class PersistentVolumeStatus(Wire, frozen=True):
    """`phase` is Pending, Available, Bound, Released or Failed."""

    phase: str = ""
    message: str = ""
    reason: str = ""


class PersistentVolume(Object, frozen=True):
    api: ClassVar[API] = API("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(Wire, frozen=True):
    """The node's label must have one of the values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Wire, frozen=True):
    """All requirements must hold; a term without any matches no node."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Object, frozen=True):
    """One of `allowed_topologies` must hold for the node; without any, every node is allowed."""

    api: ClassVar[API] = API("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    """Immediate or WaitForFirstConsumer."""
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
    reclaim_policy: str = "Delete"
