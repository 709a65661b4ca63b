"""Admission of claims that looks at storage classes: the default class, and whether a claim may grow.

Upstream's plugins DefaultStorageClass and PersistentVolumeClaimResize.
"""

from typing import Any

from corelane import quantity
from corelane.embedded.apiserver import served_kinds, status_errors
from corelane.embedded.apiserver.api_requests import Target
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object
from corelane.kube import keys

_CLASSES = served_kinds.STORAGE_CLASSES.stored
_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_ONLY_BOUND = "Only bound persistent volume claims can be expanded"
_ONLY_RESIZABLE = (
    "only dynamically provisioned pvc can be resized and "
    "the storageclass that provisions the pvc must support resize"
)


def set_default_class(backend: Backend, claim: Object) -> None:
    """Name the newest of the default classes in a claim that names none."""
    spec = claim.get("spec")
    if not isinstance(spec, dict) or _class(claim) is not None:
        return
    found = (record.object() for record in backend.store.find(_CLASSES))
    marked = sorted((one for one in found if _is_default(one)), key=_name)
    if marked:
        newest = max(one["metadata"]["creationTimestamp"] for one in marked)
        spec["storageClassName"] = next(
            _name(one) for one in marked if one["metadata"]["creationTimestamp"] == newest
        )


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _is_default(obj: Object) -> bool:
    annotations = obj["metadata"].get("annotations", {})
    return any(annotations.get(name) == "true" for name in _DEFAULT)


def _class(claim: Object) -> Any:
    annotations = claim["metadata"].get("annotations") or {}
    return annotations.get(keys.STORAGE_CLASS, claim["spec"].get("storageClassName"))


def check_resize(backend: Backend, target: Target, new: Object, old: Object) -> None:
    """Let only bound claims grow, of classes that allow it. Raises StatusError 403."""
    sizes = [quantity.parse(_requested(claim)).nano for claim in (new, old)]
    if sizes[0] <= sizes[1]:
        return
    why = ""
    if old.get("status", {}).get("phase") != "Bound":
        why = _ONLY_BOUND
    elif not _may_grow(backend, new, old):
        why = _ONLY_RESIZABLE
    if why:
        raise status_errors.forbidden(target.resource, target.group, target.name, why)


def _requested(claim: Object) -> str:
    return str(claim["spec"].get("resources", {}).get("requests", {}).get("storage", "0"))


def _may_grow(backend: Backend, new: Object, old: Object) -> bool:
    name = _class(new)
    record = backend.store.get(_CLASSES, name) if name and name == _class(old) else None
    return record is not None and bool(record.object().get("allowVolumeExpansion"))
