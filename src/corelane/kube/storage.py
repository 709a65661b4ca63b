"""Volumes as a scheduler sees them: claims, persistent volumes and storage classes."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from corelane.kube.meta import API, Object, ObjectReference, ResourceList, Wire, WireQuantity
from corelane.kube.pod import (
    AWSDisk,
    AzureDisk,
    CinderDisk,
    GCEDisk,
    NodeSelector,
    PortworxDisk,
    ResourceRequirements,
)
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


class PersistentVolumeClaim(Object, frozen=True):
    api: ClassVar[API] = API(
        "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True, optional=True
    )
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class CSISource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Wire, frozen=True):
    """Of the storage behind the volume only what a CSI driver serves, or took over, is read."""

    capacity: ResourceList = field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: CSISource | None = None
    aws_elastic_block_store: AWSDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderDisk | None = None
    gce_persistent_disk: GCEDisk | None = None
    portworx_volume: PortworxDisk | None = None


class PersistentVolumeStatus(Wire, frozen=True):
    """`phase` is Pending, Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(Object, frozen=True):
    api: ClassVar[API] = API(
        "", "v1", "PersistentVolume", "persistentvolumes", namespaced=False, optional=True
    )
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

    api: ClassVar[API] = API(
        "storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False, optional=True
    )
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    """Immediate or WaitForFirstConsumer."""
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Wire, frozen=True):
    """The number of a driver's volumes that a node can have at a time; absent for no limit."""

    count: int | None = None


class CSINodeDriver(Wire, frozen=True):
    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Wire, frozen=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True):
    """The CSI drivers of the node of the same name."""

    api: ClassVar[API] = API("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False, optional=True)
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def limits(self) -> dict[str, int]:
        """Driver to number of volumes, of the drivers with a limit."""
        drivers = self.spec.drivers
        return {
            one.name: one.allocatable.count
            for one in drivers
            if one.allocatable is not None and one.allocatable.count is not None
        }


class CSIDriverSpec(Wire, frozen=True):
    storage_capacity: bool | None = None
    """Whether the driver publishes the free capacity of storage."""


class CSIDriver(Object, frozen=True):
    api: ClassVar[API] = API(
        "storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False, optional=True
    )
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object, frozen=True):
    """Free storage of a class, as far as nodes with matching labels can reach it; without labels, none can.

    Amounts are quantities in bytes.
    """

    api: ClassVar[API] = API(
        "storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", namespaced=True, optional=True
    )
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: WireQuantity | None = None
    maximum_volume_size: WireQuantity | None = None


class VolumeAttachmentSource(Wire, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Object, frozen=True):
    """A volume that is, or is to be, attached to a node."""

    api: ClassVar[API] = API(
        "storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", namespaced=False, optional=True
    )
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
