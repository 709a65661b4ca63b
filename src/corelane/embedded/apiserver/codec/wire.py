"""Stored objects in the forms clients ask for: whole, Table or metadata; JSON or YAML; one, a list, an event.

A stored value begins with its kind and apiVersion, so that a list's items are cut from it without decoding.
Objects are converted to the version asked for. Of pods in a Table, which is asked for every few seconds,
only what cells need is decoded: metadata, which rows carry whole, stays text, and ordinary pods, whose
containers run and are ready or have no status yet, are read from structs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Literal

import msgspec
import yaml

from corelane.embedded.apiserver import served_kinds, status_errors
from corelane.embedded.apiserver.codec import decoding, server_tables
from corelane.embedded.apiserver.codec.server_tables import NONE
from corelane.embedded.apiserver.schema.notation import ObjectType
from corelane.embedded.apiserver.served_kinds import PODS, ServedKind
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.stored_objects import Object, StoredObject, StoreEvent

# core/v1's name of an event's field → events.k8s.io/v1's.
_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES = {new: old for old, new in _EVENT_NAMES.items()}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_CORE_REFERENCE = ("involvedObject", "reportingComponent")
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_LIVE: Final = ("Pending", "Running")
_GATED: Final = b'"SchedulingGated"'
"""Reason of a condition, which is shown instead of the phase."""
JSON = "application/json"
YAML = "application/yaml"
Form = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
FORMS: dict[str, Form] = {
    form: form for form in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
}


def convert(kind: ServedKind, obj: Object, version: str) -> Object:
    """Return an object in another version of its kind, or in the other group of events."""
    api_version = kind.api_version(version)
    if kind.custom:
        envelope = {"kind": kind.kind, "apiVersion": api_version, "metadata": obj["metadata"]}
        content = {
            name: value for name, value in obj.items() if name not in {"kind", "apiVersion", "metadata"}
        }
        if obj.get("apiVersion") != api_version:  # else it was pruned when it was decoded
            content = decoding.prune_custom(kind.schema[version], content)
        return envelope | content
    if obj.get("apiVersion", api_version) == api_version:
        return obj
    names = _EVENT_NAMES if kind.group else _CORE_NAMES
    renamed = {names.get(name, name): value for name, value in obj.items()}
    return _in_rows(kind.schema[version], renamed | {"apiVersion": api_version})


def _in_rows(record: ObjectType, obj: Object) -> Object:
    """The object with the rows' idea of which zero values are written."""
    made = {}
    for row in record:
        value = obj.get(row.name)
        if value is not None and isinstance(row.shape, ObjectType):
            value = _in_rows(row.shape, value)
        if row.presence == "req":
            made[row.name] = decoding.zero(row.shape) if value is None else value
        elif row.name in obj and not decoding.is_zero(row, value):
            made[row.name] = value
    return made


def selectable_fields(kind: ServedKind, obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the field labels of an object, by which field selectors choose."""
    meta = obj.get("metadata", {})
    labels = {"metadata.name": meta.get("name", "")}
    if kind.namespaced:
        labels["metadata.namespace"] = meta.get("namespace", "")
    if kind.stored == "events":
        about, reporter = ("regarding", "reportingController") if kind.group else _CORE_REFERENCE
        reference = obj.get(about) or {}
        labels |= {f"{about}.{part}": reference.get(part, "") for part in _REFERENCE}
        labels |= {name: obj.get(name) or "" for name in ("reason", reporter, "type")}
        source = (obj.get("source") or {}).get("component") or labels[reporter]
        return labels | ({} if kind.group else {"source": source})
    if kind.plural == "pods":
        return labels | {path: _at(obj, path) for path in _POD_FIELDS}
    if kind.plural == "secrets":
        return labels | {"type": obj.get("type", "")}
    if kind.plural == "nodes":
        return labels | {"spec.unschedulable": _at(obj, "spec.unschedulable")}
    if kind.plural == "namespaces":
        return labels | {"status.phase": _at(obj, "status.phase"), "name": meta.get("name", "")}
    return labels


def _at(obj: Mapping[str, Any], path: str) -> str:
    """A field's text; flags that are not set read `false`."""
    value: Any = obj
    for name in path.split("."):
        value = (value or {}).get(name)
    if path in {"spec.hostNetwork", "spec.unschedulable"}:
        return "true" if value else "false"
    return value or ""


class _Present(msgspec.Struct, gc=False):
    """Any object, of which nothing is read."""


class _OrdinaryMetadata(msgspec.Struct, gc=False):
    name: str | None = None
    creationTimestamp: str | None = None  # noqa: N815 - names of the wire, here and below
    deletionTimestamp: str | None = None  # noqa: N815


class _OrdinarySpec(msgspec.Struct, gc=False):
    containers: list[_Present] | None = None
    initContainers: list[_Present] | None = None  # noqa: N815
    readinessGates: list[_Present] | None = None  # noqa: N815
    nodeName: str | None = None  # noqa: N815


class _OrdinaryState(msgspec.Struct, gc=False):
    waiting: _Present | None = None
    running: _Present | None = None
    terminated: _Present | None = None


class _OrdinaryContainer(msgspec.Struct, gc=False):
    ready: bool = False
    restartCount: int = 0  # noqa: N815
    state: _OrdinaryState | None = None
    lastState: _OrdinaryState | None = None  # noqa: N815

    @property
    def runs(self) -> bool:
        """Whether it runs and is ready, and no earlier run is reported."""
        now, last = self.state, self.lastState
        if not self.ready or now is None or (last is not None and last.terminated is not None):
            return False
        return now.running is not None and now.waiting is None and now.terminated is None


class _OrdinaryAddress(msgspec.Struct, gc=False):
    ip: str | None = None


class _OrdinaryStatus(msgspec.Struct, gc=False):
    phase: str | None = None
    reason: str | None = None
    nominatedNodeName: str | None = None  # noqa: N815
    podIPs: list[_OrdinaryAddress] | None = None  # noqa: N815
    initContainerStatuses: list[_Present] | None = None  # noqa: N815
    containerStatuses: list[_OrdinaryContainer] | None = None  # noqa: N815


class _Ordinary(msgspec.Struct, gc=False):
    metadata: msgspec.Raw
    spec: _OrdinarySpec
    status: _OrdinaryStatus


_ordinary = msgspec.json.Decoder(_Ordinary).decode
_metadata = msgspec.json.Decoder(_OrdinaryMetadata).decode


def rows(records: Iterable[StoredObject], version: str, now: datetime | None = None) -> list[Object]:
    """Return the rows of pods for a Table of this version of meta.k8s.io; ages are counted up to `now`."""
    moment = now or datetime.now(UTC)
    age = cache(lambda stamp: server_tables.age(stamp, moment))
    return [
        _ordinary_row(record, version, age)
        or server_tables.row(PODS, record.object(), "Metadata", version, moment)
        for record in records
    ]


def _ordinary_row(record: StoredObject, version: str, age: Callable[[str | None], str]) -> Object | None:
    """Return the row of an ordinary pod, None of any other."""
    try:
        pod = _ordinary(record.value)
        cells = _cells(pod, age)
    except msgspec.ValidationError:
        return None
    if not cells or _GATED in record.value:
        return None
    meta = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": pod.metadata}
    return {"cells": cells, "object": meta}


def _cells(pod: _Ordinary, age: Callable[[str | None], str]) -> list[Any] | None:
    spec, status, ready, restarts = pod.spec, pod.status, 0, 0
    if spec.initContainers or spec.readinessGates or status.initContainerStatuses:
        return None
    if status.reason or status.phase not in _LIVE:
        return None
    for container in status.containerStatuses or ():
        if not container.runs:
            return None
        ready += 1
        restarts += container.restartCount
    meta = _metadata(pod.metadata)
    if meta.deletionTimestamp:
        return None
    shown = [meta.name, f"{ready}/{len(spec.containers or ())}", status.phase, str(restarts)]
    address = (status.podIPs[0].ip if status.podIPs else None) or NONE
    created = age(meta.creationTimestamp)
    return [*shown, created, address, spec.nodeName or NONE, status.nominatedNodeName or NONE, NONE]


_encode = msgspec.json.Encoder().encode
_dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


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
    return typed(view.kind, view.version, convert(view.kind, obj, view.version))


def body(representation: Representation, value: Mapping[str, Any]) -> bytes:
    return to_yaml(value) if representation.media == YAML else _encode(value)


def to_yaml(value: Any) -> bytes:
    text: str = yaml.dump(value, Dumper=_dumper, sort_keys=True, allow_unicode=True, default_flow_style=False)
    return text.encode()


def object_bytes(view: View, obj: Object) -> bytes:
    """The answer with one stored object, which need not be in the store (dry run)."""
    if view.representation.form == "PartialObjectMetadataList":
        raise _wrong_form(view, "one object")
    return body(view.representation, _document(view, to_wire(view, obj)))


def _document(view: View, wire: Object, *, columns: bool = True) -> Object:
    """Return an object, in wire form, in the view's form."""
    match view.representation.form:
        case "Table":
            version = wire["metadata"].get("resourceVersion", "")
            return _table(view, [wire], {"resourceVersion": version}, columns=columns)
        case "PartialObjectMetadata" | "PartialObjectMetadataList":
            return server_tables.partial(wire, view.representation.version)
    return wire


def record_bytes(view: View, record: StoredObject) -> bytes:
    if view.plain and view.representation.media != YAML:
        return record.value
    return object_bytes(view, record.object())


def list_bytes(view: View, records: Sequence[StoredObject], meta: Mapping[str, Any]) -> bytes:
    """The answer with a list; `meta` is its ListMeta."""
    if view.plain_table:
        return _encode({**_table(view, [], meta), "rows": rows(records, view.representation.version)})
    if view.representation.form or view.representation.media == YAML:
        return body(view.representation, _list_document(view, records, meta))
    name, version = view.kind.kind, view.kind.api_version(view.version)
    plain = view.plain
    values = (r.value if plain else _encode(to_wire(view, r.object())) for r in records)
    if view.kind.custom:
        items = b",".join(values)
        encoded = _encode({"continue": "", **meta})
        return b'{"apiVersion":"%b","items":[%b],"kind":"%bList","metadata":%b}' % (
            version.encode(), items, name.encode(), encoded
        )  # fmt: skip
    length = len(head(view.kind, view.version))  # items of built-in lists leave out kind and apiVersion
    items = b",".join(b"{" + value[length:] for value in values)
    return b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[%b]}' % (
        name.encode(), version.encode(), _encode(meta), items
    )  # fmt: skip


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


def event(view: View, change: StoreEvent, kind: str, record: StoredObject, *, columns: bool) -> bytes:
    """One event as `view` sees it, encoded once for all watchers of that view.

    `record` is the event's own state, or for an object that leaves the selection the one before it, which
    then carries the event's resourceVersion.
    """
    key = (view, kind, columns)
    if key not in change.frames:
        changed = None if record is change.record else change.revision
        obj = _event_object(view, record, changed, columns=columns)
        change.frames[key] = frame(kind, obj)
    return change.frames[key]


def _event_object(view: View, record: StoredObject, revision: int | None, *, columns: bool) -> bytes:
    if view.plain and revision is None:
        return record.value
    obj = record.object()
    if revision is not None:
        obj["metadata"]["resourceVersion"] = str(revision)
    return _encode(_document(view, to_wire(view, obj), columns=columns))


def bookmark(view: View, revision: int, *, initial: bool = False, columns: bool = False) -> bytes:
    """Progress of a watch; `initial` marks the end of the objects that existed when it began."""
    meta: Object = {"resourceVersion": str(revision)}
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    wire = typed(view.kind, view.version, {"metadata": meta})
    if view.representation.form != "Table":
        return frame("BOOKMARK", _encode(_document(view, wire)))
    table = _table(view, [], {"resourceVersion": str(revision)}, columns=columns)
    row = {"cells": [], "object": server_tables.partial(wire, view.representation.version)}
    return frame("BOOKMARK", _encode({**table, "rows": [row]}))


def error(fault: StatusError) -> bytes:
    return frame("ERROR", _encode(fault.body()))


def gone(revision: int, floor: int) -> StatusError:
    """The answer to a watch from before what is kept."""
    return status_errors.expired(f"too old resource version: {revision} ({floor})")
