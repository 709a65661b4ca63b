"""Rules about claims and volumes, and volumes that CSI drivers took over: driver, name, topology key.

Sources: upstream's volume helpers; k8s.io/csi-translation-lib of Kubernetes 1.36, and `isCSIMigrationOn` of
kube-scheduler's nodevolumelimits: the drivers of Azure Files and vSphere are not counted there either.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from msgspec.structs import replace

from corelane.kube import keys
from corelane.kube.node_terms import labels_match
from corelane.kube.objects import Node
from corelane.kube.pod import (
    AWSDisk,
    AzureDisk,
    CinderDisk,
    GCEDisk,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PortworxDisk,
    Volume,
)
from corelane.kube.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
)

VolumeID: TypeAlias = tuple[str, str]
"""The name of a CSI driver, and its handle of a volume."""
Disk: TypeAlias = AWSDisk | AzureDisk | CinderDisk | GCEDisk | PortworxDisk


@dataclass(frozen=True, slots=True)
class Migration:
    """The driver of a plugin, and the label of nodes by which it says zones; "" for none."""

    driver: str
    topology_key: str = ""


AWS: Final = "kubernetes.io/aws-ebs"
AZURE: Final = "kubernetes.io/azure-disk"
CINDER: Final = "kubernetes.io/cinder"
GCE: Final = "kubernetes.io/gce-pd"
PORTWORX: Final = "kubernetes.io/portworx-volume"
MIGRATED: Final = {
    AWS: Migration("ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    AZURE: Migration("disk.csi.azure.com"),
    CINDER: Migration("cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    GCE: Migration("pd.csi.storage.gke.io", "topology.gke.io/zone"),
    PORTWORX: Migration("pxd.portworx.com"),
}
"""By the plugin's name, which is the provisioner of its storage classes."""
NOT_COUNTED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""Plugins whose volumes no node limits, though drivers took them over."""
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")
_UNKNOWN: Final = "UNSPECIFIED"
_SEPARATOR: Final = "__"
_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
_BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"


def plugin_of(holder: PersistentVolumeSpec | Volume) -> str:
    """Return the plugin of a volume, or of a pod's volume, that a CSI driver took over; "" for others."""
    return _plugin_and_disk(holder)[0]


def may_be_limited(volume: Volume) -> bool:
    """Return whether one of a pod's volumes may count against the number that a node can have."""
    claims = volume.persistent_volume_claim is not None or volume.ephemeral is not None
    return claims or bool(plugin_of(volume))


def volume_id(volume: PersistentVolume) -> VolumeID | None:
    """Return the driver and handle of a volume; None for one that no CSI driver serves, or an invalid one."""
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle
    plugin, disk = _plugin_and_disk(volume.spec)
    if disk is None:
        return None
    try:
        labels = volume.metadata.labels
        zones = (labels.get(_BETA_ZONE) or labels.get(_ZONE, "")).split(_SEPARATOR)
        return MIGRATED[plugin].driver, _handle(disk, zones)
    except ValueError:
        return None


def inline_id(volume: Volume) -> VolumeID | None:
    """Return the driver and handle of a pod's volume; None for one that no CSI driver took over.

    Raises ValueError for a volume that the driver cannot name.
    """
    plugin, disk = _plugin_and_disk(volume)
    if disk is None:
        return None
    try:
        return MIGRATED[plugin].driver, _handle(disk, [""])
    except ValueError as error:
        raise ValueError(f"volume {volume.name}: {error}") from None


def _plugin_and_disk(holder: PersistentVolumeSpec | Volume) -> tuple[str, Disk | None]:
    disks: tuple[tuple[str, Disk | None], ...] = (
        (AWS, holder.aws_elastic_block_store),
        (AZURE, holder.azure_disk),
        (CINDER, holder.cinder),
        (GCE, holder.gce_persistent_disk),
        (PORTWORX, holder.portworx_volume),
    )
    return next((one for one in disks if one[1] is not None), ("", None))


def _handle(disk: Disk, zones: list[str]) -> str:
    """Return the handle of a disk in one zone, a region, or an unknown zone. Raises ValueError."""
    match disk:
        case AWSDisk():
            name = disk.volume_id
            if not name.startswith("aws://"):
                return name
            volume = urlsplit(name).path.strip("/")
            if not _EBS_VOLUME.fullmatch(volume):
                raise ValueError(f"awsElasticBlockStore volumeID {name!r} is invalid; use aws://ZONE/vol-…")
            return volume
        case AzureDisk():
            if disk.kind is not None and disk.kind.lower() != "managed":
                raise ValueError(f"azureDisk kind {disk.kind} is not served by a CSI driver; use Managed")
            return disk.disk_uri
        case GCEDisk():
            if len(zones) == 1:
                return f"projects/{_UNKNOWN}/zones/{zones[0] or _UNKNOWN}/disks/{disk.pd_name}"
            # A zone is LOCALE-REGION-ZONE.
            parts = [zone.split("-") for zone in zones]
            regions = {"-".join(part[:2]) for part in parts}
            if any(len(part) != 3 for part in parts) or len(regions) != 1:
                raise ValueError(f"zones {', '.join(zones)} are not of one region")
            return f"projects/{_UNKNOWN}/regions/{regions.pop()}/disks/{disk.pd_name}"
    return disk.volume_id


# Node affinity.


def migrated_plugins(node: CSINode | None) -> frozenset[str]:
    """Return the plugins that CSI drivers took over on a node, by its annotation."""
    named = node.metadata.annotations.get(keys.MIGRATED_PLUGINS, "") if node is not None else ""
    return frozenset(named.split(",")) & MIGRATED.keys() if named else frozenset()


def translated(volume: PersistentVolume) -> PersistentVolume:
    """Return a migrated volume with the node affinity that its driver says: zones by the driver's own label.

    Upstream: `translateTopologyFromInTreeToCSI`.
    """
    key = MIGRATED[plugin_of(volume.spec)].topology_key
    affinity, labels = volume.spec.node_affinity, volume.metadata.labels
    selector = affinity.required if affinity else None
    if key:
        terms = selector.node_selector_terms if selector is not None else ()
        named = [rule.key for term in terms for rule in term.match_expressions]
        zones = [each for place in (named, labels) for each in (_ZONE, _BETA_ZONE) if each in place]
        zone = zones[0] if zones else _ZONE
        if _has_values(terms, zone):
            terms = _renamed(terms, zone, key)
        elif zone in labels:
            terms = _restricted(terms, key, {part.strip() for part in labels[zone].split(_SEPARATOR)} - {""})
        if zone == _BETA_ZONE and _has_values(terms, _BETA_REGION):
            terms = _renamed(terms, _BETA_REGION, _REGION)
        selector = NodeSelector(terms) if selector is not None or terms else None
    return replace(volume, spec=replace(volume.spec, node_affinity=VolumeNodeAffinity(selector)))


def _has_values(terms: Iterable[NodeSelectorTerm], key: str) -> bool:
    """Whether rules about a label name values."""
    return any(rule.key == key and rule.values for term in terms for rule in term.match_expressions)


def _renamed(terms: Iterable[NodeSelectorTerm], old: str, new: str) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        replace(
            term,
            match_expressions=tuple(
                replace(rule, key=new) if rule.key == old else rule for rule in term.match_expressions
            ),
        )
        for term in terms
    )


def _restricted(
    terms: tuple[NodeSelectorTerm, ...], key: str, values: set[str]
) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms with one more rule each; one with that rule alone where there are none."""
    if not values:
        return terms
    rule = NodeSelectorRequirement(key, "In", tuple(sorted(values)))
    return tuple(
        replace(term, match_expressions=(*term.match_expressions, rule))
        for term in terms or (NodeSelectorTerm(),)
    )


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
