"""Pods that run, but that the store does not have: entered again, with the UID under which they run."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import envelope
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.write import pipeline

_PODS, _NAMESPACES = served_kinds.PODS, served_kinds.NAMESPACES
_PRIORITY: Final[Mapping[str, type]] = {"priorityClassName": str, "priority": int, "preemptionPolicy": str}


def pod_uids(backend: Backend) -> frozenset[str]:
    """Return the UIDs of all pods in the store."""
    return frozenset(record.object()["metadata"]["uid"] for record in backend.store.find(_PODS.stored))


def deleted_pods(backend: Backend) -> frozenset[str]:
    """Return the UIDs of the pods whose deletion is in the history that the store keeps."""
    events = backend.store.recent(_PODS.stored)
    return frozenset(event.record.object()["metadata"]["uid"] for event in events if event.kind == "DELETED")


def restore_pod(backend: Backend, manifest: Mapping[str, Any]) -> str:
    """Write a pod with the UID and creation time of its manifest, running on its node; return its name.

    Its namespace is created where it is missing. Its priority stays, though its priority class may be lost:
    else pods of lower priority could preempt it. Where another pod has the name, the pod gets a name made of
    both name and UID. Raises StatusError for an invalid manifest, StoreError.
    """
    meta: Object = dict(manifest["metadata"])
    namespace = meta["namespace"]
    if backend.store.get(_NAMESPACES.stored, namespace) is None:
        _create(backend, _NAMESPACES, "", {"metadata": {"name": namespace}}, WriteOptions())
    meta["name"] = _free_name(backend, meta)
    priority = _priority(manifest["spec"])
    spec = {name: value for name, value in manifest["spec"].items() if name not in _PRIORITY}
    tree = {**manifest, "metadata": meta, "spec": spec}
    obj = _create(backend, _PODS, namespace, tree, WriteOptions(dry_run=True))
    obj["spec"] |= priority
    kept: Collection[str] = ("uid", "creationTimestamp")
    obj["metadata"] |= {name: meta[name] for name in kept if meta.get(name)}
    obj["status"] |= {"phase": "Running", "conditions": [_scheduled(backend.timestamp())]}
    backend.store.put(_PODS.stored, f"{namespace}/{meta['name']}", obj)
    return str(meta["name"])


def enter_deletion(backend: Backend, manifest: Mapping[str, Any]) -> None:
    """Have the history say that this pod was deleted, so that its processes are ended. Raises StoreError."""
    meta: Object = dict(manifest["metadata"])
    meta["name"] = _free_name(backend, meta)
    key = f"{meta['namespace']}/{meta['name']}"
    backend.store.put(_PODS.stored, key, {**manifest, "metadata": meta, "status": {"phase": "Running"}})
    backend.store.delete(_PODS.stored, key)


def _free_name(backend: Backend, meta: Mapping[str, Any]) -> str:
    taken = backend.store.get(_PODS.stored, f"{meta['namespace']}/{meta['name']}") is not None
    return f"{meta['name'][:240]}-{meta['uid'][:8]}" if taken else str(meta["name"])


def _create(
    backend: Backend, kind: ServedKind, namespace: str, obj: Mapping[str, Any], options: WriteOptions
) -> Object:
    target = Target("", "create", kind.group, kind.version, kind.plural, namespace=namespace, kind=kind)
    shaped = envelope.shaped(kind, kind.version, dict(obj))[0]
    return pipeline.create(backend, target, shaped, options).obj


def _priority(spec: Mapping[str, Any]) -> Object:
    """Return what admission once computed of a pod's priority; nothing where the number is missing."""
    found = {name: spec[name] for name, kind in _PRIORITY.items() if type(spec.get(name)) is kind}
    return found if "priority" in found else {}


def _scheduled(now: str) -> Object:
    return {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
