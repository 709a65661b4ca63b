"""Requests of server-side apply: an applied configuration creates an object or is merged into it.

Upstream: apiserver `pkg/endpoints/handlers` (applyPatcher).
"""

from typing import Any

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.api_requests import Target, WriteOptions
from corelane.embedded.apiserver.codec import custom_resources, decoding, envelope, yaml_reading
from corelane.embedded.apiserver.codec.decoding import StrictNotes
from corelane.embedded.apiserver.codec.json_reading import ReadError
from corelane.embedded.apiserver.ownership import applying, managers
from corelane.embedded.apiserver.ownership.applying import Applied, Applier, ApplyConflictError
from corelane.embedded.apiserver.ownership.updating import Resource
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.write import pipeline
from corelane.embedded.apiserver.write.pipeline import WriteResult


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
    config = _read(body, options, warnings)
    _check(resource, config)
    live = resource.view(old) if old else resource.empty()
    applier = Applier(options.manager, options.force, backend.timestamp())
    try:
        applied = applying.apply(resource, live, config, applier)
    except ApplyConflictError as error:
        raise error.status() from None
    obj = _shaped(resource, live if applied.obj is None else applied.obj, config)
    _check_place(target, obj, exists=old is not None)
    return _written(backend, target, old, obj, applied, options)


def _read(body: bytes, options: WriteOptions, warnings: list[str]) -> Object:
    """Read an applied configuration, JSON or YAML; keys that it repeats go to `warnings`."""
    try:
        tree = yaml_reading.read_yaml(body)
    except ReadError as error:
        raise status_errors.bad_request(f"the applied configuration is {error}") from None
    notes = StrictNotes()
    custom_resources.note_repeats(tree, "", notes)
    if notes.strict and options.field_validation == "Strict":
        raise status_errors.bad_request(f"strict decoding error: {', '.join(notes.strict)}")
    warnings += notes.strict if options.field_validation == "Warn" else []
    config = {} if tree is None else custom_resources.plain(tree)
    if not isinstance(config, dict):
        found = decoding.json_type(config)
        raise status_errors.bad_request(f"the applied configuration is {found}, expected an object")
    return config


def _check(resource: Resource, config: Object) -> None:
    """Whether an applied object is of the path's kind and leaves its managers alone. Raises StatusError."""
    given = applying.gvk(config)
    wanted = applying.gvk({"apiVersion": resource.api_version, "kind": resource.kind.kind})
    if given != wanted:
        raise status_errors.bad_request(f"invalid object type: {given}")
    meta = config.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("managedFields"), list):
        raise status_errors.bad_request("metadata.managedFields must be nil")


def _shaped(resource: Resource, merged: Object, config: Object) -> Object:
    """Decode a merged object as one of the kind. Raises StatusError 500."""
    try:
        return envelope.shaped(resource.kind, resource.version, merged, field_validation="Ignore")[0]
    except StatusError as error:
        why = f"{applying.described(config)} cannot be applied: {error.message}"
        raise status_errors.internal(why) from None


def _check_place(target: Target, obj: Object, *, exists: bool) -> None:
    meta: dict[str, Any] = obj["metadata"]
    if meta.get("uid") and not exists:
        given = f"the provided object specified uid {meta['uid']}"
        raise server_backend.conflict(target, f"uid mismatch: {given}, and no existing object was found")
    pipeline.check_namespace(target, server_backend.kind_of(target), meta)
    pipeline.check_name(target, meta)


def _written(
    backend: Backend, target: Target, old: Object | None, obj: Object, applied: Applied, options: WriteOptions
) -> WriteResult:
    entries = managers.written(applied.managers)
    if old is not None:
        return pipeline.replace_old(backend, target, old, obj, options, entries)
    obj["metadata"].pop("resourceVersion", None)
    return pipeline.create_new(backend, target, obj, options, entries)
