"""Claims, volumes, classes of storage, and pods that use them, as slim structs in a line."""

from typing import Any

from msgspec.structs import replace

from corelane.kube import keys
from corelane.kube.meta import ObjectMeta, ObjectReference, OwnerReference
from corelane.kube.pod import ClaimSource, Pod, ResourceRequirements, Volume
from corelane.kube.storage import (
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
)
from corelane.scheduler.framework.profile import DEFAULT_NAME
from support.pods import guaranteed

ZONE = "topology.kubernetes.io/zone"


def storage_class(name: str, provisioner: str, *zones: str) -> StorageClass:
    """A class whose volumes are made or bound once a pod has a node, in these zones."""
    rules = (TopologySelectorLabelRequirement(ZONE, zones),)
    return StorageClass(
        metadata=ObjectMeta(name=name),
        provisioner=provisioner,
        volume_binding_mode="WaitForFirstConsumer",
        allowed_topologies=(TopologySelectorTerm(rules),) if zones else (),
    )


def claim(
    name: str,
    volume: str = "",
    of: str = "made",
    *,
    size: str | None = "5Gi",
    node: str = "",
    owner: str = "",
) -> PersistentVolumeClaim:
    """A claim that is bound to `volume`, or waits, if with a selected `node`; `owner` is a pod's name."""
    annotations = {keys.BIND_COMPLETED: "yes"} if volume else {keys.SELECTED_NODE: node} if node else {}
    owners = (OwnerReference(kind="Pod", uid=f"uid-{owner}", controller=True),) if owner else ()
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name, namespace="ns", uid=f"u-{name}", owner_references=owners, annotations=annotations
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=("ReadWriteOnce",),
            volume_name=volume,
            storage_class_name=of,
            resources=ResourceRequirements(requests={} if size is None else {"storage": size}),
        ),
    )


def volume(name: str, claim: str = "", **spec: Any) -> PersistentVolume:
    """A volume, for the claim of that name if it has one."""
    reference = ObjectReference(namespace="ns", name=claim) if claim else None
    return PersistentVolume(
        metadata=ObjectMeta(name=name), spec=PersistentVolumeSpec(claim_ref=reference, **spec)
    )


def driver(name: str, *, publishes: bool | None) -> CSIDriver:
    return CSIDriver(metadata=ObjectMeta(name=name), spec=CSIDriverSpec(storage_capacity=publishes))


def took_over(node: str, *plugins: str) -> CSINode:
    """A node whose drivers took over these plugins."""
    annotations = {keys.MIGRATED_PLUGINS: ",".join(plugins)} if plugins else {}
    return CSINode(metadata=ObjectMeta(name=node, annotations=annotations))


def pod(name: str, *volumes: Volume | str, node: str = "") -> Pod:
    """A pod; text is the name of a claim."""
    made = tuple(
        Volume(f"v{number}", persistent_volume_claim=ClaimSource(one)) if isinstance(one, str) else one
        for number, one in enumerate(volumes)
    )
    one = guaranteed(name, "10m", node=node)
    return replace(one, spec=replace(one.spec, volumes=made, scheduler_name=DEFAULT_NAME))
