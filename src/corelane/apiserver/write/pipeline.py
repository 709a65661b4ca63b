"""The life of a write: decoded body in, admission, strategy, optimistic lock, stored object out.

create, update and patch are synchronous from reading to writing, so that no other request comes between.
Errors and their order are those of apiserver's `pkg/endpoints/handlers` and `pkg/registry/generic/registry`.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

from corelane.apiserver import served_kinds, status_errors, validation
from corelane.apiserver.api_requests import Target, WriteOptions
from corelane.apiserver.codec import conversion, envelope, wire
from corelane.apiserver.served_kinds import Kind
from corelane.apiserver.status_errors import Cause
from corelane.apiserver.store import backend
from corelane.apiserver.store.backend import Backend
from corelane.apiserver.stored_objects import Object
from corelane.apiserver.validation import object_warnings
from corelane.apiserver.write import admission_plugins, patching, strategy

_CREATED_BY_PUT = frozenset({"leases", "events"})
_VERSION_DEMANDED = frozenset({"leases", "noderesourcetopologies"})
_SERVER_FIELDS = ("selfLink", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds")
_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a write: the object in stored form, and whether it is new."""

    obj: Object
    created: bool = False
    old: Object | None = None

    def warnings(self, kind: Kind, subresource: str) -> list[str]:
        """What to tell the client about the object, though it is valid."""
        stored = wire.stored_kind(kind)
        if self.old is None:
            return object_warnings.on_create(stored, self.obj)
        return object_warnings.on_update(stored, self.obj, self.old, subresource)


def create(reg: Backend, target: Target, obj: Object, options: WriteOptions) -> Written:
    """Create an object decoded from a POST's body. Raises StatusError."""
    kind = backend.kind_of(target)
    meta = obj.setdefault("metadata", {})
    check_namespace(target, kind, meta)
    target = replace(target, name=meta.get("name", ""))
    if not meta.get("generateName") or meta.get("name"):
        return _create(reg, target, obj, options)
    for attempt in range(_ATTEMPTS):
        try:
            return _create(reg, target, deepcopy(obj), options)
        except status_errors.StatusError as error:
            if error.reason != "AlreadyExists" or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _create(reg: Backend, target: Target, obj: Object, options: WriteOptions) -> Written:
    kind = backend.kind_of(target)
    admission_plugins.admit_create(reg, target, obj)
    obj = _new(reg, target, kind, obj)
    name = obj["metadata"].get("name", "")
    stored = wire.stored_kind(kind)
    strategy.prepare_create(stored, obj, default_scheduler=reg.default_scheduler)
    _raise_invalid(stored, name, validation.create(stored, obj))
    target = replace(target, name=name)
    _check_absent(reg, target, generated=bool(obj["metadata"].get("generateName")))
    if obj["metadata"].get("resourceVersion", "") not in {"", "0"}:
        raise status_errors.internal("resourceVersion should not be set on objects to be created")
    obj["metadata"].pop("resourceVersion", None)
    if not options.dry_run:
        reg.store.put(kind.stored, target.key, obj)
    return Written(obj, created=True)


def _new(reg: Backend, target: Target, kind: Kind, obj: Object) -> Object:
    """The stored form with the metadata that the server gives."""
    stored = wire.stored_kind(kind)
    obj = wire.typed(stored, stored.version, conversion.convert(stored, obj, stored.version))
    meta = {key: value for key, value in obj["metadata"].items() if key not in _SERVER_FIELDS}
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = backend.generate_name(meta["generateName"])
    meta.pop("namespace", None)
    if kind.namespaced:
        meta["namespace"] = target.namespace
    meta["uid"] = backend.new_uid()
    meta["creationTimestamp"] = reg.timestamp()
    obj["metadata"] = meta
    return obj


def _check_absent(reg: Backend, target: Target, *, generated: bool) -> None:
    record = reg.store.get(backend.resource(target), target.key)
    if record is None:
        return
    if generated:
        raise status_errors.generated_name_exists(target.resource, target.group, target.name)
    error = status_errors.already_exists(target.resource, target.group, target.name)
    if "deletionTimestamp" in record.object()["metadata"]:
        error.message = f"object is being deleted: {error.message}"
    raise error


def check_namespace(target: Target, kind: Kind, meta: Object) -> None:
    """The object's namespace must be the path's, or be left out. Raises StatusError 400."""
    given = meta.get("namespace", "")
    if kind.namespaced and given and given != target.namespace:
        raise status_errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def update(reg: Backend, target: Target, obj: Object, options: WriteOptions) -> Written:
    """Replace an object by one decoded from a PUT's body. Raises StatusError."""
    kind = backend.kind_of(target)
    meta = obj.setdefault("metadata", {})
    _check_name(target, meta)
    check_namespace(target, kind, meta)
    record = reg.store.get(kind.stored, target.key)
    if record is None:
        if target.resource in _CREATED_BY_PUT and not meta.get("uid"):
            return _create(reg, target, obj, options)
        raise backend.not_found(target)
    old = record.object()
    backend.check_preconditions(target, old, meta.get("uid", ""), "")
    return _replace(reg, target, old, obj, options)


def _check_name(target: Target, meta: Object) -> None:
    name = meta.get("name", "")
    if not name:
        raise status_errors.bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if name != target.name:
        raise status_errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )


def patch_object(
    reg: Backend, target: Target, content_type: str, body: bytes, options: WriteOptions
) -> tuple[Written, list[str]]:
    """Change an object by a patch. Returns also the warnings. Raises StatusError."""
    kind = backend.kind_of(target)
    old = reg.find(target).object()
    view = wire.View(kind, target.version)
    new, warnings = patching.apply(
        kind, content_type, wire.to_wire(view, deepcopy(old)), body, field_validation=options.field_validation
    )
    _check_name(target, new["metadata"])
    check_namespace(target, kind, new["metadata"])
    return _replace(reg, target, old, new, options), warnings


def _replace(reg: Backend, target: Target, old: Object, obj: Object, options: WriteOptions) -> Written:
    """Write `obj` over `old` (stored form), if it may be and if it differs."""
    kind = wire.stored_kind(backend.kind_of(target))
    _check_version(target, obj["metadata"].get("resourceVersion", ""), old)
    obj = wire.typed(kind, kind.version, conversion.convert(kind, obj, kind.version))
    _place(obj, old)
    admission_plugins.admit_update(reg, target, obj)
    strategy.prepare_update(kind, obj, old, target.subresource)
    _raise_invalid(kind, target.name, validation.update(kind, obj, old, target.subresource))
    if ends(kind, obj, old):
        if not options.dry_run:
            reg.store.delete(kind.stored, target.key)
        return Written(obj, old=old)
    if not options.dry_run and obj != old:
        reg.store.put(kind.stored, target.key, obj)
    return Written(obj, old=old)


def _check_version(target: Target, given: str, old: Object) -> None:
    """The optimistic lock. Raises StatusError 409 or 422."""
    revision = backend.parse_revision(given)
    if not revision and target.resource in _VERSION_DEMANDED:
        cause = Cause(
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
            "metadata.resourceVersion",
        )
        raise status_errors.invalid(target.resource, target.group, target.name, [cause])
    if revision and revision != int(old["metadata"]["resourceVersion"]):
        raise status_errors.modified(target.resource, target.group, target.name)


def _place(obj: Object, old: Object) -> None:
    """What the server alone knows of where an object is, and which revision it is."""
    meta = obj["metadata"]
    meta.pop("managedFields", None)
    meta["resourceVersion"] = old["metadata"]["resourceVersion"]
    if "namespace" in old["metadata"] and not meta.get("namespace"):
        meta["namespace"] = old["metadata"]["namespace"]


def ends(kind: Kind, obj: Object, old: Object) -> bool:
    """Whether an update takes away the last thing that kept a deleted object alive."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in old["metadata"] or meta.get("finalizers"):
        return False
    if kind.kind == "Namespace" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not old["metadata"].get("deletionGracePeriodSeconds")


def _raise_invalid(kind: Kind, name: str, causes: list[Cause]) -> None:
    if causes:
        raise status_errors.invalid(kind.kind, kind.group, name, causes)


# --- what every cluster has from its first moment

DEFAULT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_SYSTEM_CLASSES = {
    "system-cluster-critical": (
        2_000_000_000,
        (
            "Used for system critical pods that must run in the cluster, "
            "but can be moved to another node if necessary."
        ),
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}


def make_default_objects(reg: Backend) -> None:
    """Create the four default namespaces and the two system priority classes where they are missing."""
    for name in DEFAULT_NAMESPACES:
        _create_missing(reg, served_kinds.NAMESPACES, {"metadata": {"name": name}})
    for name, (value, description) in _SYSTEM_CLASSES.items():
        obj = {"metadata": {"name": name}, "value": value, "description": description}
        _create_missing(reg, served_kinds.PRIORITY_CLASSES, obj)


def _create_missing(reg: Backend, kind: Kind, obj: Object) -> None:
    name = obj["metadata"]["name"]
    if reg.store.get(kind.stored, name) is None:
        target = Target("", "create", kind.group, kind.version, kind.plural, kind=kind)
        create(reg, target, envelope.shaped(kind, kind.version, obj)[0], WriteOptions())
