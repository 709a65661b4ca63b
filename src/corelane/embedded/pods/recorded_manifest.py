"""A pod's manifest as kept with the records of its containers, for when the API server has lost the pod."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from corelane.embedded.pods.pod_manifest import RunPod
from corelane.kube.meta import rfc3339
from corelane.kube.pod import PodStatus
from corelane.node.entries import Entry
from corelane.runtime.base import ContainerSpec
from corelane.workload.request import ContainerKind

Manifest = dict[str, Any]

_OPTIONAL: Final = (
    "volumes",
    "affinity",
    "topologySpreadConstraints",
    "resourceClaims",
    "serviceAccountName",
)
"""Fields of a spec that may refer to objects which are lost too; the containers run without them."""


def encode(pod: RunPod) -> str:
    """Return a pod's manifest as JSON: its metadata and spec as far as an agent reads them."""
    metadata = replace(pod.metadata, resource_version="", generation=0, finalizers=())
    return msgspec.json.encode(replace(pod, metadata=metadata, status=PodStatus())).decode()


def recreated(
    specs: Sequence[ContainerSpec], entries: Iterable[Entry] = (), *, node: str, created_at: float
) -> tuple[Manifest, bool]:
    """Return the manifest of a pod on `node` from the records of its containers, and whether it is whole.

    The latest recorded manifest serves; without one, the manifest has the containers that were recorded, with
    command, environment and CPU request, as the ledger's `entries` name their kind. `created_at` (Unix
    seconds) is used where no record has the time.
    """
    manifest = _recorded(specs)
    whole = manifest is not None
    manifest = manifest or _rebuilt(specs, {entry.container: entry for entry in entries})
    manifest |= {"apiVersion": "v1", "kind": "Pod"}
    manifest["metadata"].setdefault("creationTimestamp", rfc3339(created_at))
    manifest["spec"]["nodeName"] = node
    return manifest, whole


def without_references(manifest: Manifest) -> Manifest:
    """Return the manifest without the fields that refer to other objects, which may be lost as well."""
    spec = {name: value for name, value in manifest["spec"].items() if name not in _OPTIONAL}
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "ownerReferences"}
    return {**manifest, "metadata": metadata, "spec": spec}


def _recorded(specs: Sequence[ContainerSpec]) -> Manifest | None:
    for spec in reversed(specs):
        try:
            manifest: Manifest = msgspec.json.decode(spec.manifest or "{}", type=Manifest)
        except (ValueError, RecursionError):
            continue
        meta, pod = manifest.get("metadata"), manifest.get("spec")
        if isinstance(meta, dict) and isinstance(pod, dict) and meta.get("uid") == spec.pod_uid:
            meta.pop("deletionTimestamp", None)
            meta.pop("deletionGracePeriodSeconds", None)
            return manifest
    return None


def _rebuilt(specs: Sequence[ContainerSpec], entries: Mapping[str, Entry]) -> Manifest:
    first = specs[0]
    latest = {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.attempt)}
    kinds = {name: entries[name].kind if name in entries else ContainerKind.APP for name in latest}
    if ContainerKind.APP not in kinds.values():
        kinds = dict.fromkeys(kinds, ContainerKind.APP)  # a pod needs one
    inits = [
        _container(spec, kinds[name]) for name, spec in latest.items() if kinds[name] is not ContainerKind.APP
    ]
    apps = [
        _container(spec, kinds[name]) for name, spec in latest.items() if kinds[name] is ContainerKind.APP
    ]
    return {
        "metadata": {"namespace": first.namespace, "name": first.pod, "uid": first.pod_uid},
        "spec": {"containers": apps} | ({"initContainers": inits} if inits else {}),
    }


def _container(spec: ContainerSpec, kind: ContainerKind) -> Manifest:
    milli = {"cpu": f"{spec.cpu_shares_milli}m"} if spec.cpu_shares_milli else {}
    memory = {"memory": str(spec.memory_limit)} if spec.memory_limit else {}
    container: Manifest = {
        "name": spec.name,
        "image": "unknown",
        "command": [part.replace("$", "$$") for part in spec.command],
        "env": [{"name": name, "value": value.replace("$", "$$")} for name, value in spec.env],
    }
    if spec.working_dir:
        container["workingDir"] = spec.working_dir
    limits = (milli if spec.quota_us else {}) | memory
    resources = ({"requests": milli} if milli else {}) | ({"limits": limits} if limits else {})
    if resources:
        container["resources"] = resources
    if kind is ContainerKind.SIDECAR:
        container["restartPolicy"] = "Always"
    return container
