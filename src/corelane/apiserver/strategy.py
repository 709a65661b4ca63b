"""What each kind does with a write: decoding, defaults, fields a client cannot set, validation, conversion.

Objects are plain dicts. `decode` gives the form of the request's group and version; `convert` turns any form
of a kind into any other (events have two groups, NodeResourceTopology two versions).
The order of a create is decode, admission that looks at other objects, prepare_create, validate_create; of an
update decode (or patch), prepare_update, validate_update. Upstream: `pkg/registry/*/strategy.go`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from corelane.apiserver import (
    custom,
    decoding,
    defaulting,
    envelope,
    forms,
    pods,
    status,
    validation,
    warnings,
)
from corelane.apiserver.decoding import DecodeError, Notes
from corelane.apiserver.schema.meta import DELETE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from corelane.apiserver.kinds import Kind
    from corelane.apiserver.status import Cause

Object = dict[str, Any]

JSON = "application/json"
_GENERATED = frozenset({"pods", "priorityclasses"})
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def decode(
    kind: Kind,
    version: str,
    body: bytes,
    *,
    field_validation: str = "Warn",
    subresource: str = "",
    content_type: str = JSON,
) -> tuple[Object, list[str]]:
    """Read a request's body as an object of the kind, and the warnings to answer with.

    `field_validation` is Warn, Strict or Ignore (of unknown and repeated fields). Raises StatusError 400.
    """
    tree = envelope.read(kind, body, content_type)
    envelope.check(kind, version, tree)
    return shaped(kind, version, tree, field_validation=field_validation)


def shaped(
    kind: Kind, version: str, tree: Object, *, field_validation: str = "Warn"
) -> tuple[Object, list[str]]:
    """As `decode`, from values that are read already. Raises StatusError 400."""
    notes = Notes()
    try:
        made = (custom.decode if kind.custom else decoding.decode)(kind.schema[version], tree, notes)
    except DecodeError as error:
        raise status.bad_request(envelope.unusable(kind, version, tree, str(error))) from None
    if field_validation == "Strict" and notes.strict:
        text = f"strict decoding error: {', '.join(notes.strict)}"
        raise status.bad_request(envelope.unusable(kind, version, tree, text))
    obj = {"kind": kind.kind, "apiVersion": kind.api_version(version)}
    obj |= {name: value for name, value in made.items() if name not in obj}
    return obj, notes.strict if field_validation == "Warn" else []


def decode_delete_options(body: bytes, content_type: str = JSON) -> Object:
    """Read the body of a DELETE; empty is no options. Raises StatusError 400."""
    return envelope.options(DELETE_OPTIONS, body, content_type) if body else {}


def convert(kind: Kind, obj: Object, version: str) -> Object:
    """The object, in whatever form of this kind it is, in the form of `kind` and `version`."""
    return forms.convert(kind, obj, version)


def prepare_create(kind: Kind, obj: Object, *, default_scheduler: str = "") -> None:
    """Fill in defaults and what the server sets; reset what a client cannot set. Changes `obj`."""
    if default_scheduler and kind.plural == "pods" and isinstance(obj.get("spec"), dict):
        obj["spec"].setdefault("schedulerName", default_scheduler)
    _default(kind, obj)
    obj["metadata"].pop("generation", None)
    if kind.plural in _GENERATED or kind.custom:
        obj["metadata"]["generation"] = 1
    preparing = _ON_CREATE.get(kind.plural)
    if preparing:
        preparing(obj)


def prepare_update(kind: Kind, obj: Object, old: Object, subresource: str = "") -> None:
    """Fill in defaults, keep what the update cannot touch (status or spec, metadata), count generations."""
    if kind.plural == "pods" and "schedulerName" in old["spec"]:
        obj["spec"].setdefault("schedulerName", old["spec"]["schedulerName"])
    _default(kind, obj)
    _keep_metadata(obj["metadata"], old["metadata"])
    preparing = _ON_UPDATE.get((kind.plural, subresource))
    if preparing:
        preparing(obj, deepcopy(old))
    if _counts_generation(kind, obj, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def validate_create(kind: Kind, obj: Object, *, version: str = "") -> list[Cause]:
    """What is wrong with a prepared object, in upstream's order.

    The rules are those of the request's group and version: `kind` may be any that shares the stored form,
    and `version` one other than the object's.
    """
    return validation.create(kind, obj, version or _version(obj))


def validate_update(
    kind: Kind, obj: Object, old: Object, subresource: str = "", *, version: str = ""
) -> list[Cause]:
    """What is wrong with a prepared object that is to replace `old`; as `validate_create`."""
    return validation.update(kind, obj, old, subresource, version or _version(obj))


def warn_create(kind: Kind, obj: Object) -> list[str]:
    """Warnings to answer a valid create with."""
    return warnings.on_create(kind, obj)


def warn_update(kind: Kind, obj: Object, old: Object, subresource: str = "") -> list[str]:
    """Warnings to answer a valid update with."""
    return warnings.on_update(kind, obj, old, subresource)


def selectable_fields(kind: Kind, obj: Object) -> dict[str, str]:
    """The field labels that a field selector can name, with this object's values."""
    return forms.selectable_fields(kind, obj)


def _default(kind: Kind, obj: Object) -> None:
    if not kind.custom:
        defaulting.fill(kind.schema[_version(obj)], obj)


def _version(obj: Object) -> str:
    return str(obj["apiVersion"]).rpartition("/")[2]


def _keep_metadata(meta: Object, old: Object) -> None:
    meta.pop("selfLink", None)
    for name in ("generation", "creationTimestamp", "deletionTimestamp"):
        if name == "generation" or name in old:
            meta.pop(name, None)
            if name in old:
                meta[name] = old[name]
    for name in ("uid", "deletionGracePeriodSeconds"):
        if not meta.get(name) and name in old:
            meta[name] = old[name]


def _counts_generation(kind: Kind, obj: Object, old: Object) -> bool:
    if kind.custom:
        return _content(obj) != _content(old)
    return kind.plural == "pods" and obj["spec"] != old["spec"]


def _content(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in {"metadata", "apiVersion", "kind"}}


def _create_pod(pod: Object) -> None:
    pods.tolerate_bad_nodes(pod)
    pods.prepare_create(pod)


def _create_node(node: Object) -> None:
    taints = node["spec"].get("taints") or []
    if not any(_same_taint(taint) for taint in taints):
        node["spec"]["taints"] = [*taints, dict(_NOT_READY)]


def _same_taint(taint: Object) -> bool:
    return all(taint.get(name) == _NOT_READY[name] for name in ("key", "effect"))


def _create_namespace(namespace: Object) -> None:
    finalizers = namespace["spec"].get("finalizers") or []
    if "kubernetes" not in finalizers:
        namespace["spec"]["finalizers"] = [*finalizers, "kubernetes"]
    namespace["status"] = {"phase": "Active"}


def _update_namespace(namespace: Object, old: Object) -> None:
    namespace["spec"] = old["spec"]
    namespace["status"] = old["status"]


def _keep_status(obj: Object, old: Object) -> None:
    obj["status"] = old["status"]


def _keep_spec(obj: Object, old: Object) -> None:
    obj["spec"] = old["spec"]


_ON_CREATE: dict[str, Callable[[Object], None]] = {
    "pods": _create_pod,
    "nodes": _create_node,
    "namespaces": _create_namespace,
}
_ON_UPDATE: dict[tuple[str, str], Callable[[Object, Object], None]] = {
    ("pods", ""): pods.prepare_update,
    ("pods", "status"): pods.prepare_status,
    ("nodes", ""): _keep_status,
    ("nodes", "status"): _keep_spec,
    ("namespaces", ""): _update_namespace,
    ("namespaces", "status"): _keep_spec,
    ("namespaces", "finalize"): _keep_status,
}
