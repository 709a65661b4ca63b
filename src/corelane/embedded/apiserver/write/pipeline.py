"""Create, update, patch and apply: admission, strategy, validation, the optimistic lock, the write.

All are synchronous from reading to writing, so that no other request comes between. Errors and their order
are those of apiserver's `pkg/endpoints/handlers` and `pkg/registry/generic/registry`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from corelane.embedded.apiserver import api_requests, served_kinds, status_errors, validation
from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import decoding, json_and_yaml, request_bodies, wire
from corelane.embedded.apiserver.codec.decoding import StrictNotes
from corelane.embedded.apiserver.codec.json_and_yaml import ReadError
from corelane.embedded.apiserver.ownership import applying, managed_fields
from corelane.embedded.apiserver.ownership.applying import Applier, ApplyConflictError
from corelane.embedded.apiserver.ownership.managed_fields import Entries, Resource
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object, copied
from corelane.embedded.apiserver.write import admission_plugins, patching, strategy

_CREATED_BY_PUT = frozenset({"leases", "events"})
_VERSION_DEMANDED = frozenset({"leases", "noderesourcetopologies", "poddisruptionbudgets"})
_SERVER_FIELDS = ("selfLink", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds")
_ATTEMPTS = 8
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


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The outcome of a write: the object in stored form, and whether it is new."""

    obj: Object
    created: bool = False


def create(backend: Backend, target: Target, obj: Object, options: WriteOptions) -> WriteResult:
    """Create an object decoded from a POST's body. Raises StatusError."""
    kind = server_backend.kind_of(target)
    meta = obj.setdefault("metadata", {})
    check_namespace(target, kind, meta)
    target = replace(target, name=meta.get("name", ""))
    if not meta.get("generateName") or meta.get("name"):
        return create_new(backend, target, obj, options)
    for attempt in range(_ATTEMPTS):
        try:
            return create_new(backend, target, copied(obj), options)
        except StatusError as error:
            if error.reason != "AlreadyExists" or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def create_new(
    backend: Backend, target: Target, obj: Object, options: WriteOptions, entries: Entries | None = None
) -> WriteResult:
    """Create an object under the name that it has; `entries` are its managed fields where they are known.

    Raises StatusError.
    """
    kind = server_backend.kind_of(target)
    strategy.complete(kind, obj, default_scheduler=backend.default_scheduler)
    if entries is None:
        resource = Resource(kind, target.version, target.subresource)
        entries = managed_fields.created(resource, obj, options.manager, backend.timestamp())
    admission_plugins.admit_create(backend, target, obj)
    obj = _new(backend, target, kind, obj)
    if entries:
        obj["metadata"]["managedFields"] = entries
    name = obj["metadata"].get("name", "")
    stored = wire.stored_kind(kind)
    strategy.prepare_create(stored, obj, completed=True, now=backend.timestamp())
    _raise_invalid(stored, name, validation.create(_ruled(kind), obj, version=_rules(kind, target)))
    target = replace(target, name=name)
    admission_plugins.validate_create(backend, target, obj)
    _check_absent(backend, target, generated=bool(obj["metadata"].get("generateName")))
    if _has_version(obj):
        raise status_errors.internal("resourceVersion should not be set on objects to be created")
    obj["metadata"].pop("resourceVersion", None)
    if not options.dry_run:
        backend.store.put(kind.stored, target.key, obj)
    return WriteResult(obj, created=True)


def _new(backend: Backend, target: Target, kind: ServedKind, obj: Object) -> Object:
    """The stored form with the metadata that the server gives."""
    stored = wire.stored_kind(kind)
    obj = wire.typed(stored, stored.version, wire.convert(stored, obj, stored.version))
    meta = {key: value for key, value in obj["metadata"].items() if key not in _SERVER_FIELDS}
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = server_backend.generate_name(meta["generateName"])
    meta.pop("namespace", None)
    if kind.namespaced:
        meta["namespace"] = target.namespace
    meta["uid"] = server_backend.new_uid()
    meta["creationTimestamp"] = backend.timestamp()
    obj["metadata"] = meta
    return obj


def _has_version(obj: Object) -> bool:
    """Whether a new object has a version; upstream takes no notice of one that is not a number."""
    try:
        return api_requests.revision(obj["metadata"].get("resourceVersion") or "0") != 0
    except ValueError:
        return False


def _check_absent(backend: Backend, target: Target, *, generated: bool) -> None:
    record = backend.store.get(server_backend.resource(target), target.key)
    if record is None:
        return
    error = status_errors.already_exists(target.resource, target.group, target.name, generated=generated)
    if not generated and "deletionTimestamp" in record.object()["metadata"]:
        error.message = f"object is being deleted: {error.message}"
    raise error


def check_namespace(target: Target, kind: ServedKind, meta: Object) -> None:
    """The object's namespace must be the path's, or be left out. Raises StatusError 400."""
    given = meta.get("namespace", "")
    if kind.namespaced and given and given != target.namespace:
        raise status_errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def update(backend: Backend, target: Target, obj: Object, options: WriteOptions) -> WriteResult:
    """Replace an object by one decoded from a PUT's body. Raises StatusError."""
    kind = server_backend.kind_of(target)
    meta = obj.setdefault("metadata", {})
    check_name(target, meta)
    check_namespace(target, kind, meta)
    record = backend.store.get(kind.stored, target.key)
    if record is None:
        if target.resource in _CREATED_BY_PUT and not meta.get("uid"):
            return create_new(backend, target, obj, options)
        raise server_backend.not_found(target)
    old = record.object()
    server_backend.check_preconditions(target, old, meta.get("uid", ""), "")
    return replace_old(backend, target, old, obj, options)


def check_name(target: Target, meta: Object) -> None:
    """The object's name must be the path's. Raises StatusError 400."""
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
    backend: Backend,
    target: Target,
    content_type: str,
    body: bytes,
    options: WriteOptions,
    warnings: list[str],
) -> WriteResult:
    """Change an object by a patch; what is wrong with its fields goes to `warnings`. Raises StatusError."""
    kind = server_backend.kind_of(target)
    record = backend.find(target)
    old = record.object()
    view = wire.View(kind, target.version)
    new, warned = patching.apply(
        kind,
        content_type,
        wire.to_wire(view, record.object()),
        body,
        field_validation=options.field_validation,
    )
    warnings += warned
    check_name(target, new["metadata"])
    check_namespace(target, kind, new["metadata"])
    return replace_old(backend, target, old, new, options)


def replace_old(
    backend: Backend,
    target: Target,
    old: Object,
    obj: Object,
    options: WriteOptions,
    entries: Entries | None = None,
) -> WriteResult:
    """Write `obj` over `old` (stored form), if it may be and if it differs; `entries` as in `create_new`.

    Raises StatusError.
    """
    given = server_backend.kind_of(target)
    kind = wire.stored_kind(given)
    strategy.complete(given, obj, old=old)
    if entries is None:
        resource = Resource(given, target.version, target.subresource)
        entries = managed_fields.updated(
            resource, resource.view(old), obj, options.manager, backend.timestamp()
        )
    _check_version(target, obj["metadata"].get("resourceVersion", ""), old)
    obj = wire.typed(kind, kind.version, wire.convert(kind, obj, kind.version))
    _place(obj, old, entries)
    strategy.prepare_update(kind, obj, old, target.subresource, completed=True, version=target.version)
    managed_fields.keep_times(obj, old)
    rules = _rules(kind, target)
    faults = validation.update(_ruled(given), obj, old, target.subresource, version=rules)
    _raise_invalid(kind, target.name, faults)
    admission_plugins.validate_update(backend, target, obj, old)
    if ends(kind, obj, old):
        if not options.dry_run:
            backend.store.delete(kind.stored, target.key)
        return WriteResult(obj)
    if not options.dry_run and obj != old:
        backend.store.put(kind.stored, target.key, obj)
    return WriteResult(obj)


def _check_version(target: Target, given: str, old: Object) -> None:
    """The optimistic lock. Raises StatusError 409 or 422."""
    revision = server_backend.parse_revision(given)
    if not revision and target.resource in _VERSION_DEMANDED:
        cause = StatusCause(
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
            "metadata.resourceVersion",
        )
        raise status_errors.invalid(target.resource, target.group, target.name, [cause])
    if revision and revision != int(old["metadata"]["resourceVersion"]):
        raise status_errors.modified(target.resource, target.group, target.name)


def _place(obj: Object, old: Object, entries: Entries) -> None:
    """Set the namespace, the revision and the managed fields, which the server determines."""
    meta = obj["metadata"]
    meta.pop("managedFields", None)
    if entries:
        meta["managedFields"] = entries
    meta["resourceVersion"] = old["metadata"]["resourceVersion"]
    if "namespace" not in old["metadata"]:
        meta.pop("namespace", None)  # of a kind without namespaces, whatever was sent
    elif not meta.get("namespace"):
        meta["namespace"] = old["metadata"]["namespace"]


def ends(kind: ServedKind, obj: Object, old: Object) -> bool:
    """Whether an update removes the last finalizer of an object under deletion."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in old["metadata"] or meta.get("finalizers"):
        return False
    if kind.kind == "Namespace" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not old["metadata"].get("deletionGracePeriodSeconds")


def _ruled(kind: ServedKind) -> ServedKind:
    """The kind whose rules count: an event's are those of the request's group, else of what is stored."""
    return kind if kind.stored == "events" else wire.stored_kind(kind)


def _rules(kind: ServedKind, target: Target) -> str:
    """The version whose rules count: a custom resource's is the request's, else that which is stored."""
    return target.version if kind.custom else ""


def _raise_invalid(kind: ServedKind, name: str, causes: list[StatusCause]) -> None:
    if causes:
        raise status_errors.invalid(kind.kind, kind.group, name, causes)


# --- objects that every cluster has


def make_default_objects(backend: Backend) -> None:
    """Create the four default namespaces and the two system priority classes where they are missing."""
    for name in DEFAULT_NAMESPACES:
        _create_missing(backend, served_kinds.NAMESPACES, {"metadata": {"name": name}})
    for name, (value, description) in _SYSTEM_CLASSES.items():
        obj = {"metadata": {"name": name}, "value": value, "description": description}
        _create_missing(backend, served_kinds.PRIORITY_CLASSES, obj)


def _create_missing(backend: Backend, kind: ServedKind, obj: Object) -> None:
    if backend.store.get(kind.stored, obj["metadata"]["name"]) is None:
        create_body(backend, kind, obj, WriteOptions(manager="corelane"))


def create_body(backend: Backend, kind: ServedKind, body: Mapping[str, Any], options: WriteOptions) -> Object:
    """Create an object from plain values in the kind's preferred version. Raises StatusError."""
    namespace = body["metadata"].get("namespace", "")
    target = Target("", "create", kind.group, kind.version, kind.plural, namespace=namespace, kind=kind)
    obj, _ = request_bodies.shaped(kind, kind.version, dict(body))
    return create(backend, target, obj, options).obj


def apply_object(
    backend: Backend, target: Target, body: bytes, options: WriteOptions, warnings: list[str]
) -> WriteResult:
    """Apply a configuration to an object, which is created if there is none; adds to `warnings`.

    Raises StatusError: 400 for a body that is not of the kind, 409 where others own what would change.
    """
    kind = server_backend.kind_of(target)
    record = backend.store.get(kind.stored, target.key)
    if record is None and target.subresource:
        raise server_backend.not_found(target)
    old = record.object() if record else None
    resource = Resource(kind, target.version, target.subresource)
    config = _read(resource, body, options, warnings)
    live = resource.view(old) if old else resource.empty()
    applier = Applier(options.manager, options.force, backend.timestamp())
    try:
        applied = applying.apply(resource, live, config, applier)
    except ApplyConflictError as error:
        raise error.status() from None
    made = live if applied.obj is None else applied.obj
    try:
        obj, _ = request_bodies.shaped(kind, target.version, made, field_validation="Ignore")
    except StatusError as error:
        why = f"{applying.described(config)} cannot be applied: {error.message}"
        raise status_errors.internal(why) from None
    meta: dict[str, Any] = obj["metadata"]
    if meta.get("uid") and old is None:
        given = f"the provided object specified uid {meta['uid']}"
        raise server_backend.conflict(target, f"uid mismatch: {given}, and no existing object was found")
    check_namespace(target, kind, meta)
    check_name(target, meta)
    entries = managed_fields.written_entries(applied.managers)
    if old is not None:
        return replace_old(backend, target, old, obj, options, entries)
    meta.pop("resourceVersion", None)
    return create_new(backend, target, obj, options, entries)


def _read(resource: Resource, body: bytes, options: WriteOptions, warnings: list[str]) -> Object:
    """Read an applied configuration, JSON or YAML; keys that it repeats go to `warnings`."""
    try:
        tree = json_and_yaml.read_yaml(body)
    except ReadError as error:
        raise status_errors.bad_request(f"the applied configuration is {error}") from None
    notes = StrictNotes()
    decoding.note_repeats(tree, "", notes)
    if notes.strict and options.field_validation == "Strict":
        raise status_errors.bad_request(f"strict decoding error: {', '.join(notes.strict)}")
    warnings += notes.strict if options.field_validation == "Warn" else []
    config = {} if tree is None else decoding.plain_values(tree)
    if not isinstance(config, dict):
        actual = decoding.json_type(config)
        raise status_errors.bad_request(f"the applied configuration is {actual}, expected an object")
    given = applying.gvk(config)
    if given != applying.gvk({"apiVersion": resource.api_version, "kind": resource.kind.kind}):
        raise status_errors.bad_request(f"invalid object type: {given}")
    meta = config.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("managedFields"), list):
        raise status_errors.bad_request("metadata.managedFields must be nil")
    return config
