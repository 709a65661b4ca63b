"""Volumes of pods, as far as they decide where a pod can run."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from msgspec import field

from corelane.kube.meta import Wire


class ClaimSource(Wire, frozen=True):
    claim_name: str = ""


class EphemeralSource(Wire, frozen=True):
    """A claim is made for the volume, named after the pod and the volume; its template is not read."""


class ImageSource(Wire, frozen=True):
    reference: str = ""


class GCEDisk(Wire, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSDisk(Wire, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class AzureDisk(Wire, frozen=True):
    """An absent `kind` is Managed."""

    disk_uri: str = field(name="diskURI", default="")
    kind: str | None = None


class CinderDisk(Wire, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class PortworxDisk(Wire, frozen=True):
    volume_id: str = field(name="volumeID", default="")


class ISCSIDisk(Wire, frozen=True):
    iqn: str = ""
    read_only: bool = False


class RBDImage(Wire, frozen=True):
    monitors: tuple[str, ...] = ()
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class Volume(Wire, frozen=True):
    """Other kinds of volume are available on every node, and are not read."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    image: ImageSource | None = None
    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: AWSDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderDisk | None = None
    portworx_volume: PortworxDisk | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDImage | None = None
