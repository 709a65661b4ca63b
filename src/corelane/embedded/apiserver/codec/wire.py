"""Stored objects in the forms clients ask for: whole, Table or metadata; JSON or YAML; one, a list, an event.

A stored value begins with its kind and apiVersion, so that a list's items are cut from it without decoding.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec
import yaml

from corelane.embedded.apiserver import served_kinds, status_errors
from corelane.embedded.apiserver.codec import conversion, pod_rows
from corelane.embedded.apiserver.print import server_tables
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.stored_objects import Object, StoredObject, StoreEvent

_encode = msgspec.json.Encoder().encode
_dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

JSON = "application/json"
YAML = "application/yaml"
Form = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
FORMS: dict[str, Form] = {
    form: form for form in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
}


@dataclass(frozen=True, slots=True)
class Representation:
    """The form of an answer: media type, and for Table or metadata alone the version of meta.k8s.io."""

    media: str = JSON
    form: Form = ""
    version: str = "v1"


_PLAIN = Representation()


@dataclass(frozen=True, slots=True)
class View:
    """Kind, version and representation of a request; hashable, so that watchers of one view share bytes."""

    kind: ServedKind
    version: str
    representation: Representation = _PLAIN
    include: str = "Metadata"

    @property
    def plain(self) -> bool:
        """Whether the stored form is already the requested one."""
        return (
            not self.representation.form
            and self.kind is stored_kind(self.kind)
            and self.version == self.kind.version
        )

    @property
    def plain_table(self) -> bool:
        """Whether it is the Table of pods that kubectl asks for."""
        form = self.representation.form == "Table" and self.representation.media == JSON
        return form and self.include == "Metadata" and self.kind is served_kinds.PODS


@cache
def stored_kind(kind: ServedKind) -> ServedKind:
    """The kind in whose form `kind` is kept."""
    return served_kinds.by_stored(kind.stored) or kind


def head(kind: ServedKind, version: str) -> bytes:
    return f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version(version)}",'.encode()


def typed(kind: ServedKind, version: str, obj: Mapping[str, Any]) -> Object:
    """`obj` with kind and apiVersion set, and first."""
    rest = {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}
    return {"kind": kind.kind, "apiVersion": kind.api_version(version), **rest}


def to_wire(view: View, obj: Object) -> Object:
    """A stored object in the view's group and version."""
    return typed(view.kind, view.version, conversion.convert(view.kind, obj, view.version))


def body(representation: Representation, value: Mapping[str, Any]) -> bytes:
    return to_yaml(value) if representation.media == YAML else _encode(value)


def to_yaml(value: Any) -> bytes:
    text: str = yaml.dump(value, Dumper=_dumper, sort_keys=True, allow_unicode=True, default_flow_style=False)
    return text.encode()


def one(view: View, obj: Object) -> bytes:
    """The answer with one stored object, which need not be in the store (dry run)."""
    wire = to_wire(view, obj)
    match view.representation.form:
        case "Table":
            meta = {"resourceVersion": wire["metadata"].get("resourceVersion", "")}
            return body(view.representation, _table(view, [wire], meta))
        case "PartialObjectMetadata":
            return body(view.representation, server_tables.partial(wire, view.representation.version))
        case "PartialObjectMetadataList":
            raise _wrong_form(view, "one object")
    return body(view.representation, wire)


def one_record(view: View, record: StoredObject) -> bytes:
    if view.plain and view.representation.media != YAML:
        return record.value
    return one(view, record.object())


def many(view: View, records: Sequence[StoredObject], meta: Mapping[str, Any]) -> bytes:
    """The answer with a list; `meta` is its ListMeta."""
    if view.plain_table:
        return _encode(
            {**_table(view, [], meta), "rows": pod_rows.rows(records, view.representation.version)}
        )
    if view.representation.form or view.representation.media == YAML:
        return body(view.representation, _list_document(view, records, meta))
    name, version = view.kind.kind, view.kind.api_version(view.version)
    plain = view.plain
    values = (r.value if plain else _encode(to_wire(view, r.object())) for r in records)
    items = b",".join(values if view.kind.custom else _without_head(view, values))
    if view.kind.custom:
        found = _encode({"continue": "", **meta})
        return b'{"apiVersion":"%b","items":[%b],"kind":"%bList","metadata":%b}' % (
            version.encode(), items, name.encode(), found
        )  # fmt: skip
    return b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[%b]}' % (
        name.encode(), version.encode(), _encode(meta), items
    )  # fmt: skip


def _without_head(view: View, values: Iterable[bytes]) -> Iterator[bytes]:
    """Items of built-in lists leave out kind and apiVersion."""
    length = len(head(view.kind, view.version))
    return (b"{" + value[length:] for value in values)


def _list_document(view: View, records: Iterable[StoredObject], meta: Mapping[str, Any]) -> Object:
    wires = [to_wire(view, record.object()) for record in records]
    match view.representation.form:
        case "Table":
            return _table(view, wires, meta)
        case "PartialObjectMetadata":
            raise _wrong_form(view, "a list")
        case "PartialObjectMetadataList":
            return {
                "kind": view.representation.form,
                "apiVersion": f"meta.k8s.io/{view.representation.version}",
                "metadata": dict(meta),
                "items": [server_tables.partial(wire, view.representation.version) for wire in wires] or None,
            }
    kind = {"kind": f"{view.kind.kind}List", "apiVersion": view.kind.api_version(view.version)}
    if view.kind.custom:
        return {**kind, "metadata": {"continue": "", **meta}, "items": wires}
    bare = [{k: v for k, v in wire.items() if k not in {"kind", "apiVersion"}} for wire in wires]
    return {**kind, "metadata": dict(meta), "items": bare}


def _table(view: View, wires: Iterable[Object], meta: Mapping[str, Any], *, columns: bool = True) -> Object:
    return server_tables.to_table(
        view.kind, wires, meta, view.include, version=view.representation.version, columns=columns
    )


def _wrong_form(view: View, what: str) -> StatusError:
    if view.kind.custom and what == "one object":
        return status_errors.internal("content is not a list")
    return StatusError(406, "NotAcceptable", f"{view.representation.form} is not a form of {what}")


# --- watch events


def frame(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)


def added(view: View, record: StoredObject, *, columns: bool) -> bytes:
    """An object that was there when the watch began."""
    return frame("ADDED", _event_object(view, record, None, columns=columns))


def event(view: View, found: StoreEvent, kind: str, record: StoredObject, *, columns: bool) -> bytes:
    """One event as `view` sees it, encoded once for all watchers of that view.

    `record` is the event's own state, or for an object that leaves the selection the one before it, which
    then carries the event's resourceVersion.
    """
    key = (view, kind, columns)
    if key not in found.frames:
        changed = None if record is found.record else found.revision
        obj = _event_object(view, record, changed, columns=columns)
        found.frames[key] = frame(kind, obj)
    return found.frames[key]


def _event_object(view: View, record: StoredObject, revision: int | None, *, columns: bool) -> bytes:
    if view.plain and revision is None:
        return record.value
    obj = record.object()
    if revision is not None:
        obj["metadata"]["resourceVersion"] = str(revision)
    wire = to_wire(view, obj)
    match view.representation.form:
        case "Table":
            meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            return _encode(_table(view, [wire], meta, columns=columns))
        case "PartialObjectMetadata" | "PartialObjectMetadataList":
            return _encode(server_tables.partial(wire, view.representation.version))
    return _encode(wire)


def bookmark(view: View, revision: int, *, initial: bool = False, columns: bool = False) -> bytes:
    """Progress of a watch; `initial` marks the end of the objects that existed when it began."""
    meta: Object = {"resourceVersion": str(revision)}
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    wire = typed(view.kind, view.version, {"metadata": meta})
    match view.representation.form:
        case "Table":
            found = _table(view, [], {"resourceVersion": str(revision)}, columns=columns)
            row = {"cells": [], "object": server_tables.partial(wire, view.representation.version)}
            return frame("BOOKMARK", _encode({**found, "rows": [row]}))
        case "PartialObjectMetadata" | "PartialObjectMetadataList":
            return frame("BOOKMARK", _encode(server_tables.partial(wire, view.representation.version)))
    return frame("BOOKMARK", _encode(wire))


def error(fault: StatusError) -> bytes:
    return frame("ERROR", _encode(fault.body()))


def gone(revision: int, floor: int) -> StatusError:
    """The answer to a watch from before what is kept."""
    return status_errors.expired(f"too old resource version: {revision} ({floor})")
