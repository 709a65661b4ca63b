"""Warnings about claims, persistent volumes and storage classes (upstream: `pkg/api`, `util.go` of each)."""

from collections.abc import Callable, Iterator
from typing import Any

from corelane import quantity
from corelane.embedded.apiserver.go_quoting import quoted
from corelane.embedded.apiserver.validation.causes import child, item, key
from corelane.embedded.apiserver.validation.deprecations import NODE_LABELS, VOLUMES
from corelane.kube import keys

Object = dict[str, Any]

_ANNOTATIONS = {
    keys.STORAGE_CLASS: 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": (
        'deprecated since v1.31; use "mountOptions" attribute instead'
    ),
}
_RECYCLE = (
    "The Recycle reclaim policy is deprecated. "
    "Instead, the recommended approach is to use dynamic provisioning."
)
_WARNED_SOURCES = ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd")


def _claim(claim: Object) -> Iterator[str]:
    if keys.STORAGE_CLASS in claim["metadata"].get("annotations", {}):
        yield f"{key('metadata.annotations', keys.STORAGE_CLASS)}: {_ANNOTATIONS[keys.STORAGE_CLASS]}"
    for column in ("requests", "limits"):
        size = claim["spec"].get("resources", {}).get(column, {}).get("storage", "0")
        if quantity.parse(size).milli % 1000:
            where = key(f"spec.resources.{column}", "storage")
            yield f"{where}: fractional byte value {quoted(size)} is invalid, must be an integer"


def _volume(volume: Object) -> Iterator[str]:
    spec, annotations = volume["spec"], volume["metadata"].get("annotations", {})
    for name, why in _ANNOTATIONS.items():
        if name in annotations:
            yield f"{key('metadata.annotations', name)}: {why}"
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield f"spec.persistentVolumeReclaimPolicy: {_RECYCLE}"
    terms = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms") or ()
    for index, term in enumerate(terms):
        path = item("spec.nodeAffinity.required.nodeSelectorTerms", index)
        yield from _old_labels(term.get("matchExpressions", ()), child(path, "matchExpressions"))
    for name in _WARNED_SOURCES:
        if name in spec:
            yield f"spec.{'storageOS' if name == 'storageos' else name}: {VOLUMES[name]}"


def _storage_class(obj: Object) -> Iterator[str]:
    for index, term in enumerate(obj.get("allowedTopologies", ())):
        path = child(item("allowedTopologies", index), "matchLabelExpressions")
        for number, requirement in enumerate(term.get("matchLabelExpressions", ())):
            name = requirement.get("key", "")
            if name in NODE_LABELS:
                yield f"{child(item(path, number), 'key')}: {NODE_LABELS[name]}"


def _old_labels(requirements: list[Object], path: str) -> Iterator[str]:
    for number, requirement in enumerate(requirements):
        name = requirement.get("key", "")
        if name in NODE_LABELS:
            yield f"{child(item(path, number), 'key')}: {name} is {NODE_LABELS[name]}"


KINDS: dict[str, Callable[[Object], Iterator[str]]] = {
    "persistentvolumeclaims": _claim,
    "persistentvolumes": _volume,
    "storageclasses": _storage_class,
}
