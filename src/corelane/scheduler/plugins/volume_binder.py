"""Bind volumes before a pod is bound: write what was chosen, and wait until the claims are bound. I/O.

Upstream's `BindPodVolumes`: a volume gets the claim as its claimRef; a claim gets the node in an annotation,
for its provisioner. Whoever binds claims and makes volumes (the controllers of the cluster) does the rest.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from corelane.kube import keys
from corelane.kube.client import KubeClient
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim
from corelane.scheduler.cache.objects import ClusterObjects
from corelane.scheduler.framework.binding import PreBindError

_INTERVAL: Final = 0.2
"""Seconds between two looks at what the informers show."""


@dataclass(frozen=True, slots=True)
class VolumeWork:
    """What is to be written before a binding; claims and volumes as they were when it was decided."""

    plugin: str
    node: str
    static: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...]
    provisions: tuple[PersistentVolumeClaim, ...]


async def bind_volumes(client: KubeClient, objects: ClusterObjects, work: VolumeWork, seconds: float) -> None:
    """Write, and wait until `objects` shows all claims bound. Raises APIError, PreBindError."""
    await _write(client, objects, work)
    try:
        async with asyncio.timeout(seconds):
            while waiting := list(_unbound(objects, work)):  # noqa: ASYNC110 - plain values of informers
                await asyncio.sleep(_INTERVAL)
    except TimeoutError:
        raise PreBindError(
            f"binding volumes: claim {', '.join(waiting)} not bound after {seconds:.0f} s; "
            f"see the claim's events and its provisioner"
        ) from None


async def _write(client: KubeClient, objects: ClusterObjects, work: VolumeWork) -> None:
    """Write what is not written yet: a binding without an answer is prepared again."""
    for volume, claim in work.static:
        now = objects.volumes.get(volume.metadata.name)
        if now is None or now.spec.claim_ref is None or now.spec.claim_ref.uid != claim.metadata.uid:
            await client.patch(PersistentVolume, volume.metadata.name, _claim_ref(volume, claim))
    for claim in work.provisions:
        of, current = claim.metadata, objects.claims.get(claim.key)
        if current is None or current.metadata.annotations.get(keys.SELECTED_NODE) != work.node:
            patch = _selected(claim, work.node)
            await client.patch(PersistentVolumeClaim, of.name, patch, namespace=of.namespace)


def _claim_ref(volume: PersistentVolume, claim: PersistentVolumeClaim) -> dict[str, Any]:
    """A merge patch; the resourceVersion makes it fail if the volume was changed meanwhile."""
    of = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    }
    metadata: dict[str, Any] = {"resourceVersion": volume.metadata.resource_version}
    if volume.spec.claim_ref is None:
        metadata["annotations"] = {keys.BOUND_BY_CONTROLLER: "yes"}
    return {"metadata": metadata, "spec": {"claimRef": of}}


def _selected(claim: PersistentVolumeClaim, node: str) -> dict[str, Any]:
    return {
        "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {keys.SELECTED_NODE: node},
        }
    }


def _unbound(objects: ClusterObjects, work: VolumeWork) -> Iterator[str]:
    """Yield the claims that are not bound yet. Raises PreBindError where waiting is of no use."""
    for volume, claim in work.static:
        name = volume.metadata.name
        now = objects.volumes.get(name)
        if now is None:
            raise PreBindError(f"binding volumes: persistentvolume {name} was deleted")
        changed = now.metadata.resource_version != volume.metadata.resource_version
        if changed and (now.spec.claim_ref is None or not now.spec.claim_ref.uid):
            raise PreBindError(f"binding volumes: ClaimRef got reset for pv {name!r}")
        if not _bound(objects, claim):
            yield claim.title
    for claim in work.provisions:
        current = objects.claims.get(claim.key)
        changed = current is not None and current.metadata.resource_version != claim.metadata.resource_version
        if current is not None and changed:
            selected = current.metadata.annotations.get(keys.SELECTED_NODE)
            if selected != work.node and not current.spec.volume_name:
                raise PreBindError(f"binding volumes: provisioning failed for PVC {claim.title!r}")
        if not _bound(objects, claim):
            yield claim.title


def _bound(objects: ClusterObjects, claim: PersistentVolumeClaim) -> bool:
    current = objects.claims.get(claim.key)
    if current is None or current.metadata.uid != claim.metadata.uid:
        raise PreBindError(f"binding volumes: persistentvolumeclaim {claim.title} was deleted")
    return bool(current.spec.volume_name) and keys.BIND_COMPLETED in current.metadata.annotations
