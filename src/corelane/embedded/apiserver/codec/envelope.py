"""Decoding of a request's body: media type, kind and version, then the fields by the schema."""

from typing import Any

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.codec import custom_resources, decoding, json_reading, yaml_reading
from corelane.embedded.apiserver.codec.decoding import DecodeError, StrictNotes
from corelane.embedded.apiserver.codec.json_reading import ReadError
from corelane.embedded.apiserver.schema.notation import ObjectType
from corelane.embedded.apiserver.served_kinds import EVICTIONS, ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError

Object = dict[str, Any]

JSON = "application/json"
_YAML = {"application/yaml", "text/yaml", "application/x-yaml"}
_OLD_EVICTION = "policy/v1beta1"


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
        custom_resources.note_repeats(tree, "", notes)
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
        decode_tree = custom_resources.decode if kind.custom else decoding.decode
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
    return yaml_reading.read_yaml(body) if is_yaml else json_reading.read_json(body)


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
