"""Bodies of requests: media type, kind and version, then the fields by the schema.

Kubernetes' protobuf, which kubectl sends from 1.32 on, is first turned into the JSON that it stands for.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.codec import decoding, json_and_yaml
from corelane.embedded.apiserver.codec.decoding import DecodeError, StrictNotes
from corelane.embedded.apiserver.codec.json_and_yaml import ReadError
from corelane.embedded.apiserver.schema.notation import (
    DELETE_OPTIONS,
    FieldRow,
    ListType,
    MapType,
    ObjectType,
    ScalarType,
    Shape,
)
from corelane.embedded.apiserver.served_kinds import BINDINGS, EVICTIONS, KINDS, REVIEWS, ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError
from corelane.embedded.apiserver.stored_objects import Object

JSON = "application/json"
_YAML = {"application/yaml", "text/yaml", "application/x-yaml"}
_OLD_EVICTION = "policy/v1beta1"
MAGIC = b"k8s\x00"
Value = int | bytes
Tree = Mapping[int, "FieldRow | Tree"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_DEPTH = 40
_NUMBERS = {"bool", "int32", "int64"}


def decode(
    kind: ServedKind, version: str, body: bytes, *, field_validation: str = "Warn", content_type: str = JSON
) -> tuple[Object, list[str]]:
    """Read a request's body as an object of the kind, and the warnings to answer with.

    `field_validation` is Warn, Strict or Ignore (of unknown and repeated fields). Raises StatusError 400.
    """
    try:
        tree = parse(body, content_type)
        tree = {} if tree is None else tree
        if not isinstance(tree, dict):
            raise ReadError(f"got {decoding.json_type(tree)}, expected an object")
        check(kind, version, tree)
    except ReadError as error:
        raise status_errors.bad_request(f"the body is not a {kind.kind}: {error}") from None
    notes = StrictNotes()
    if kind.custom:
        decoding.note_repeats(tree, "", notes)
    return shaped(kind, version, tree, field_validation=field_validation, notes=notes)


def shaped(
    kind: ServedKind,
    version: str,
    tree: Object,
    *,
    field_validation: str = "Warn",
    notes: StrictNotes | None = None,
) -> tuple[Object, list[str]]:
    """Decode values that are parsed already, as `decode`; `notes` are of parsing. Raises StatusError 400."""
    notes = notes or StrictNotes()
    try:
        decode_tree = decoding.decode_custom if kind.custom else decoding.decode
        made = decode_tree(kind.schema[version], tree, notes)
        if field_validation == "Strict" and notes.strict:
            raise DecodeError(f"strict decoding error: {', '.join(notes.strict)}")
    except DecodeError as error:
        raise status_errors.bad_request(f"{kind.kind}: {error}") from None
    obj = {"kind": kind.kind, "apiVersion": kind.api_version(version)}
    obj |= {name: value for name, value in made.items() if name not in obj}
    return obj, notes.strict if field_validation == "Warn" else []


def parse(body: bytes, content_type: str) -> Any:
    """The body's values, by its media type. Raises ReadError."""
    is_yaml = content_type.partition(";")[0].strip() in _YAML
    return json_and_yaml.read_yaml(body) if is_yaml else json_and_yaml.read_json(body)


def check(kind: ServedKind, version: str, tree: Object) -> None:
    """Whether a body that names a kind and version names the ones of the path.

    Raises ReadError; StatusError 422 for a custom resource of another kind.
    """
    given_version, given_kind = _text(tree, "apiVersion"), _text(tree, "kind")
    expected = kind.api_version(version)
    if kind.custom and not given_kind:
        raise ReadError(f"kind is missing, expected {kind.kind}")
    if kind.custom and given_version == expected and given_kind != kind.kind:
        raise wrong_type(kind, version, tree)
    allowed = {expected, _OLD_EVICTION} if kind is EVICTIONS else {expected}
    given_version = given_version if kind.custom else given_version or expected
    if given_version not in allowed or (given_kind or kind.kind) != kind.kind:
        given = f"{given_version} {given_kind or kind.kind}"
        raise ReadError(f"got {given}, expected {expected} {kind.kind}")


def wrong_type(kind: ServedKind, version: str, tree: Object) -> StatusError:
    """422 for a custom object of another kind or version."""
    given = {name: _text(tree, name) for name in ("kind", "apiVersion")}
    expected = {"kind": kind.kind, "apiVersion": kind.api_version(version)}
    faults = [
        StatusCause("FieldValueInvalid", f'Invalid value: "{given[name]}": must be {value}', name)
        for name, value in expected.items()
        if given[name] != value
    ]
    meta = tree.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else ""
    return status_errors.invalid(
        given["kind"], given["apiVersion"].rpartition("/")[0], str(name or ""), faults
    )


def options(record: ObjectType, body: bytes, content_type: str) -> Object:
    """The options that come as a body, of any group and version. Raises StatusError 400."""
    try:
        tree = parse(body, content_type)
        given = _text(tree, "kind") if isinstance(tree, dict) else ""
        if given not in {"", record.name}:
            raise ReadError(f"got {given}, expected {record.name}")
        return decoding.decode(record, tree, StrictNotes())
    except (ReadError, DecodeError) as error:
        raise status_errors.bad_request(f"the body is not {record.name}: {error}") from None


def _text(tree: Object, name: str) -> str:
    value = tree.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    raise ReadError(f"{name}: got {decoding.shown(value)}, expected a string")


_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def read_protobuf(body: bytes) -> dict[str, Any]:
    """The object in a protobuf body, with `kind` and `apiVersion`. Raises ReadError."""
    if not body.startswith(MAGIC):
        raise ReadError("the body is not Kubernetes' protobuf: it does not begin with k8s and a zero byte")
    unknown = dict(fields(body[len(MAGIC) :]))
    names = dict(fields(_message(unknown.get(1, b""))))
    api_version, kind = _string(names.get(1, b"")), _string(names.get(2, b""))
    record = _records().get(("", kind) if kind == DELETE_OPTIONS.name else (api_version, kind))
    if record is None:
        raise ReadError(f'no kind "{kind}" is registered for version "{api_version}"')
    return {"kind": kind, "apiVersion": api_version, **_record(record, _message(unknown.get(2, b"")), 0)}


def fields(raw: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message in their order: number, and an int or what has a length. Raises ReadError."""
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(raw, at)
            yield number, value
        else:
            length = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
            if wire == _LENGTH:
                length, at = _varint(raw, at)
            elif not length:
                raise ReadError(f"proto: wrong wire type {wire} for field {number}")
            if at + length > len(raw):
                raise ReadError("unexpected EOF")
            yield number, raw[at : at + length]
            at += length


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw) and shift < 70:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise ReadError("unexpected EOF")


@cache
def _records() -> dict[tuple[str, str], ObjectType]:
    """Return the types of bodies by apiVersion and kind; delete options come under any version."""
    kinds = [kind for kind in (*KINDS, *REVIEWS, BINDINGS, EVICTIONS) if not kind.custom]
    records = {(kind.api_version(v), kind.kind): kind.schema[v] for kind in kinds for v in kind.versions}
    return records | {("", DELETE_OPTIONS.name): DELETE_OPTIONS}


@cache
def _tree(record: ObjectType) -> Tree:
    """A record's rows by number; inlined messages are trees of their own."""
    tree: dict[int, Any] = {}
    for row in record:
        if not row.number:
            continue
        *above, last = map(int, row.number.split("."))
        branch = tree
        for number in above:
            branch = branch.setdefault(number, {})
        branch[last] = row
    return tree


def _record(record: ObjectType, raw: bytes, depth: int) -> dict[str, Any]:
    if depth > _MAX_DEPTH:
        raise ReadError("exceeded max depth")
    tree: dict[str, Any] = {}
    _fill(_tree(record), raw, tree, depth)
    return tree


def _fill(tree: Tree, raw: bytes, members: dict[str, Any], depth: int) -> None:
    """Read a message's fields into `members`; numbers without a row, of a newer version, are passed over."""
    for number, value in fields(raw):
        row = tree.get(number)
        if isinstance(row, FieldRow):
            shape = row.shape
            if isinstance(shape, ListType):
                members.setdefault(row.name, []).extend(_items(shape.item, value, depth))
            elif isinstance(shape, MapType):
                entry = dict(fields(_message(value)))
                key = _string(entry.get(1, b""))
                members.setdefault(row.name, {})[key] = _value(shape.value, entry.get(2, b""), depth)
            else:
                members[row.name] = _value(shape, value, depth)
        elif row is not None:
            _fill(row, _message(value), members, depth)


def _items(shape: Shape, value: Value, depth: int) -> Iterator[Any]:
    """One item, or several numbers packed into one field."""
    packed = isinstance(shape, ScalarType) and shape.name in _NUMBERS and isinstance(value, bytes)
    if not packed:
        yield _value(shape, value, depth)
        return
    at, raw = 0, _message(value)
    while at < len(raw):
        number, at = _varint(raw, at)
        yield _value(shape, number, depth)


def _value(shape: Shape, value: Value, depth: int) -> Any:
    if isinstance(shape, ObjectType):
        return _record(shape, _message(value), depth + 1)
    if not isinstance(shape, ScalarType):
        raise ReadError("proto: a list or map inside a list or map")
    return _SCALARS[shape.name](value)


def _message(value: Value) -> bytes:
    if isinstance(value, int):
        raise ReadError("proto: wrong wire type 0 for a message")
    return value


def _string(value: Value) -> str:
    try:
        return _message(value).decode()
    except UnicodeDecodeError:
        raise ReadError("proto: a string is not UTF-8") from None


def _integer(value: Value) -> int:
    if not isinstance(value, int):
        raise ReadError("proto: wrong wire type 2 for a number")
    return value - (1 << 64) if value >> 63 else value


def _bool(value: Value) -> bool:
    return bool(_integer(value))


def _bytes(value: Value) -> str:
    return base64.b64encode(_message(value)).decode()


def _quantity(value: Value) -> str:
    return _string(dict(fields(_message(value))).get(1, b"")) or "0"


def _int_or_string(value: Value) -> int | str:
    members = dict(fields(_message(value)))
    return _string(members.get(3, b"")) if members.get(1) else _integer(members.get(2, 0))


def _moment(value: Value) -> tuple[datetime | None, int]:
    """A time to the second, and its nanoseconds; None for Go's zero time, which has no fields."""
    members = dict(fields(_message(value)))
    if not members:
        return None, 0
    try:
        return _EPOCH + timedelta(seconds=_integer(members.get(1, 0))), _integer(members.get(2, 0))
    except OverflowError:
        raise ReadError("proto: a time is out of range") from None


def _time(value: Value) -> str | None:
    moment, _ = _moment(value)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else None


def _micro_time(value: Value) -> str | None:
    moment, nanoseconds = _moment(value)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds // 1000:06}Z" if moment else None


def _raw(value: Value) -> Any:
    try:
        return json.loads(_string(dict(fields(_message(value))).get(1, b"{}")))
    except ValueError:
        raise ReadError("proto: a raw value is not JSON") from None


def _object(_value: Value) -> Any:
    raise ReadError("proto: this volume source is read from JSON only; send the pod as application/json")


_SCALARS: Mapping[str, Any] = {
    "string": _string,
    "text-or-null": _string,
    "bool": _bool,
    "int32": _integer,
    "int64": _integer,
    "bytes": _bytes,
    "quantity": _quantity,
    "amount": _quantity,
    "int-or-string": _int_or_string,
    "time": _time,
    "microtime": _micro_time,
    "raw": _raw,
    "object": _object,
}
