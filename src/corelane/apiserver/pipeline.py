"""The life of a write: decoded body in, admission, strategy, optimistic lock, stored object out.

create, update and patch are synchronous from reading to writing, so that no other request comes between.
Errors and their order are those of apiserver's `pkg/endpoints/handlers` and `pkg/registry/generic/registry`.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

from corelane.apiserver import admission, patch, registry, status, strategy, wire
from corelane.apiserver.kinds import Kind
from corelane.apiserver.registry import Registry
from corelane.apiserver.requests import Target, WriteOptions
from corelane.apiserver.status import Cause
from corelane.apiserver.store import Object

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
            return strategy.warn_create(stored, self.obj)
        return strategy.warn_update(stored, self.obj, self.old, subresource)


def create(reg: Registry, target: Target, obj: Object, options: WriteOptions) -> Written:
    """Create an object decoded from a POST's body. Raises StatusError."""
    kind = registry.kind_of(target)
    meta = obj.setdefault("metadata", {})
    check_namespace(target, kind, meta)
    target = replace(target, name=meta.get("name", ""))
    if not meta.get("generateName") or meta.get("name"):
        return _create(reg, target, obj, options)
    for attempt in range(_ATTEMPTS):
        try:
            return _create(reg, target, deepcopy(obj), options)
        except status.StatusError as error:
            if error.reason != "AlreadyExists" or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _create(reg: Registry, target: Target, obj: Object, options: WriteOptions) -> Written:
    kind = registry.kind_of(target)
    admission.admit_create(reg, target, obj)
    obj = _new(reg, target, kind, obj)
    name = obj["metadata"].get("name", "")
    stored = wire.stored_kind(kind)
    strategy.prepare_create(stored, obj, default_scheduler=reg.default_scheduler)
    _raise_invalid(stored, name, strategy.validate_create(stored, obj))
    target = replace(target, name=name)
    _check_absent(reg, target, generated=bool(obj["metadata"].get("generateName")))
    if obj["metadata"].get("resourceVersion", "") not in {"", "0"}:
        raise status.internal("resourceVersion should not be set on objects to be created")
    obj["metadata"].pop("resourceVersion", None)
    if not options.dry_run:
        reg.store.put(kind.stored, target.key, obj)
    return Written(obj, created=True)


def _new(reg: Registry, target: Target, kind: Kind, obj: Object) -> Object:
    """The stored form with the metadata that the server gives."""
    stored = wire.stored_kind(kind)
    obj = wire.typed(stored, stored.version, strategy.convert(stored, obj, stored.version))
    meta = {key: value for key, value in obj["metadata"].items() if key not in _SERVER_FIELDS}
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = registry.generate_name(meta["generateName"])
    meta.pop("namespace", None)
    if kind.namespaced:
        meta["namespace"] = target.namespace
    meta["uid"] = registry.new_uid()
    meta["creationTimestamp"] = reg.timestamp()
    obj["metadata"] = meta
    return obj


def _check_absent(reg: Registry, target: Target, *, generated: bool) -> None:
    record = reg.store.get(registry.resource(target), target.key)
    if record is None:
        return
    if generated:
        raise status.generated_name_exists(target.resource, target.group, target.name)
    error = status.already_exists(target.resource, target.group, target.name)
    if "deletionTimestamp" in record.object()["metadata"]:
        error.message = f"object is being deleted: {error.message}"
    raise error


def check_namespace(target: Target, kind: Kind, meta: Object) -> None:
    """The object's namespace must be the path's, or be left out. Raises StatusError 400."""
    given = meta.get("namespace", "")
    if kind.namespaced and given and given != target.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def update(reg: Registry, target: Target, obj: Object, options: WriteOptions) -> Written:
    """Replace an object by one decoded from a PUT's body. Raises StatusError."""
    kind = registry.kind_of(target)
    meta = obj.setdefault("metadata", {})
    _check_name(target, meta)
    check_namespace(target, kind, meta)
    record = reg.store.get(kind.stored, target.key)
    if record is None:
        if target.resource in _CREATED_BY_PUT and not meta.get("uid"):
            return _create(reg, target, obj, options)
        raise registry.not_found(target)
    old = record.object()
    registry.check_preconditions(target, old, meta.get("uid", ""), "")
    return _replace(reg, target, old, obj, options)


def _check_name(target: Target, meta: Object) -> None:
    name = meta.get("name", "")
    if not name:
        raise status.bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if name != target.name:
        raise status.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )


def patch_object(
    reg: Registry, target: Target, content_type: str, body: bytes, options: WriteOptions
) -> tuple[Written, list[str]]:
    """Change an object by a patch. Returns also the warnings. Raises StatusError."""
    kind = registry.kind_of(target)
    old = reg.find(target).object()
    view = wire.View(kind, target.version)
    new, warnings = patch.apply(
        kind,
        content_type,
        wire.to_wire(view, deepcopy(old)),
        body,
        field_validation=options.field_validation,
        subresource=target.subresource,
    )
    _check_name(target, new["metadata"])
    check_namespace(target, kind, new["metadata"])
    return _replace(reg, target, old, new, options), warnings


def _replace(reg: Registry, target: Target, old: Object, obj: Object, options: WriteOptions) -> Written:
    """Write `obj` over `old` (stored form), if it may be and if it differs."""
    kind = wire.stored_kind(registry.kind_of(target))
    _check_version(target, obj["metadata"].get("resourceVersion", ""), old)
    obj = wire.typed(kind, kind.version, strategy.convert(kind, obj, kind.version))
    _place(obj, old)
    admission.admit_update(reg, target, obj)
    strategy.prepare_update(kind, obj, old, target.subresource)
    _raise_invalid(kind, target.name, strategy.validate_update(kind, obj, old, target.subresource))
    if ends(kind, obj, old):
        if not options.dry_run:
            reg.store.delete(kind.stored, target.key)
        return Written(obj, old=old)
    if not options.dry_run and obj != old:
        reg.store.put(kind.stored, target.key, obj)
    return Written(obj, old=old)


def _check_version(target: Target, given: str, old: Object) -> None:
    """The optimistic lock. Raises StatusError 409 or 422."""
    revision = registry.parse_revision(given)
    if not revision and target.resource in _VERSION_DEMANDED:
        cause = Cause(
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
            "metadata.resourceVersion",
        )
        raise status.invalid(target.resource, target.group, target.name, [cause])
    if revision and revision != int(old["metadata"]["resourceVersion"]):
        raise status.modified(target.resource, target.group, target.name)


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
        raise status.invalid(kind.kind, kind.group, name, causes)
