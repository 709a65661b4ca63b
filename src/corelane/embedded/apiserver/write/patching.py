"""Patches of stored objects: JSON Patch (RFC 6902), JSON merge patch (RFC 7386), strategic merge patch.

JSON Patch has the liberties of upstream's library: absent and null members read the same, `replace` may set a
new member, and indexes may count from the end.
"""

import json
from typing import Any

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.codec import decoding, json_and_yaml, request_bodies
from corelane.embedded.apiserver.codec.decoding import StrictNotes
from corelane.embedded.apiserver.codec.json_and_yaml import Float, ReadError, pairs
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError
from corelane.embedded.apiserver.stored_objects import Object, copied
from corelane.embedded.apiserver.write import strategic_merge
from corelane.embedded.apiserver.write.strategic_merge import StrategicError

MAX_COPIED = 3 * 1024 * 1024  # bytes that `copy` may add up to, lest a small patch makes a huge object
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
MAX_OPERATIONS = 10_000
_OPERATION = {"op", "path", "from", "value"}


class PatchError(ValueError):
    """An operation cannot be carried out."""


def apply_json_patch(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The document after the operations, one after the other; the one given stays. Raises PatchError."""
    root, bytes_copied = copied(document), 0
    for operation in operations:
        path, value = _pointer(operation, "path"), copied(operation.get("value"))
        match operation.get("op"):
            case "add":
                _insert(*_place(root, path), value)
            case "remove":
                _take(*_place(root, path))
            case "replace" if path == "":
                if not isinstance(value, dict | list):
                    raise PatchError("a whole document is replaced by an object or an array only")
                root = value
            case "replace":
                parent, key = _place(root, path)
                parent[_index(key, len(parent) - 1) if isinstance(parent, list) else key] = value
            case "move":
                moved = _take(*_place(root, _pointer(operation, "from")))
                _insert(*_place(root, path), moved)
            case "copy":
                value = copied(_get(*_place(root, _pointer(operation, "from"))))
                _insert(*_place(root, path), value)
                bytes_copied += len(json.dumps(value))
                if bytes_copied > MAX_COPIED:
                    raise PatchError(f"copied values are larger than {MAX_COPIED} bytes")
            case "test":
                if not same(_get(*_place(root, path)) if path else root, value):
                    raise PatchError(f"testing value {path} failed")
            case kind:
                raise PatchError(f"unexpected operation {kind!r}")
    return root


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is not 1, and 1.0 is not either."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Float) or isinstance(right, Float):
        return getattr(left, "text", None) == getattr(right, "text", None)
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _pointer(operation: dict[str, Any], name: str) -> str:
    path = operation.get(name)
    if not isinstance(path, str):
        raise PatchError(f"an operation has no {name}")
    return path


def _place(root: Any, path: str) -> tuple[Any, str]:
    """Return the container of the value that a pointer names, and the value's key in it."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    if len(parts) < 2:
        raise PatchError(f'the document has no path "{path}"')
    parent = root
    for part in parts[1:-1]:
        parent = _get(parent, part)
        if not isinstance(parent, dict | list):
            raise PatchError(f'the document has no path "{path}"')
    return parent, parts[-1]


def _get(parent: Any, key: str) -> Any:
    return parent[_index(key, len(parent) - 1)] if isinstance(parent, list) else parent.get(key)


def _insert(parent: Any, key: str, value: Any) -> None:
    if isinstance(parent, list):
        parent.insert(len(parent) if key == "-" else _index(key, len(parent)), value)
    else:
        parent[key] = value


def _take(parent: Any, key: str) -> Any:
    if isinstance(parent, list):
        return parent.pop(_index(key, len(parent) - 1))
    if key not in parent:
        raise PatchError(f"unable to remove nonexistent key: {key}")
    return parent.pop(key)


def _index(key: str, last: int) -> int:
    """An array index between 0 and `last`; negative ones count from behind it."""
    digits = key.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise PatchError(f"value was not a proper array index: {key!r}")
    index = int(key) + (last + 1 if key.startswith("-") else 0)
    if not 0 <= index <= last:
        raise PatchError(f"unable to access invalid index: {key}")
    return index


def apply(
    kind: ServedKind, content_type: str, current: Object, body: bytes, *, field_validation: str = "Warn"
) -> tuple[Object, list[str]]:
    """The object after a patch, and the warnings to answer with.

    `current` is in the form of the request's group and version, which its apiVersion names; so is the result,
    which has still to pass prepare_update and validate_update. `field_validation` is as in `strategy.decode`.
    Raises StatusError: 400 for a body that is no patch, 413 for one too long, 415 for another media type, 422
    for one that does not apply or whose result is not an object of the kind.
    """
    media_type, notes = content_type.partition(";")[0].strip(), StrictNotes()
    if media_type == JSON_PATCH:
        patched = _json_patch(current, body, notes)
    elif media_type == MERGE_PATCH:
        patched = merged(current, _object_patch(body, notes))
    elif media_type == STRATEGIC_PATCH and not kind.custom:
        patched = _strategic(kind, current, _object_patch(body, notes))
    else:
        media_types = (JSON_PATCH, MERGE_PATCH, *(() if kind.custom else (STRATEGIC_PATCH,)), APPLY_PATCH)
        raise status_errors.unsupported_media_type(media_types)
    return _read_back(kind, current, patched, notes, field_validation)


def _json_patch(current: Object, body: bytes, notes: StrictNotes) -> Any:
    operations = _parsed(body)
    operations = [] if operations is None else operations
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise _bad_request("got", operations, "a list of operations")
    if len(operations) > MAX_OPERATIONS:
        why = f"JSON patch of {len(operations)} operations; the limit is {MAX_OPERATIONS}"
        raise status_errors.too_large(why)
    for index, operation in enumerate(operations):
        seen: set[str] = set()
        for name, value in pairs(operation):
            if name not in _OPERATION:
                notes.unknown(f"[{index}].{name}")
            elif name in seen:
                notes.duplicate(f"[{index}].{name}")
            elif name != "value" and not isinstance(value, str | None):
                raise _bad_request(f"[{index}].{name}: got", value, "a string")
            seen.add(name)
    try:
        patched = apply_json_patch(current, operations)
    except (PatchError, RecursionError) as error:
        raise status_errors.unprocessable(f"the JSON patch does not apply: {error}") from None
    if json_and_yaml.too_deep(patched):
        raise status_errors.unprocessable("the JSON patch nests values too deep")
    return patched


def _object_patch(body: bytes, notes: StrictNotes) -> Object:
    patch = _parsed(body)
    if not isinstance(patch, dict):
        raise _bad_request("got", patch, "an object")
    decoding.note_repeats(patch, "", notes)
    return patch


def merged(original: Any, patch: Any) -> Any:
    """RFC 7386: members of `patch` replace those of `original`, null removes them.

    Nulls in objects of lists stay only where the list replaces an object, as from upstream's library.
    """
    if not isinstance(patch, dict):
        return patch if isinstance(original, dict) else _without_nulls(patch)
    result = dict(original) if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _without_nulls(value: Any) -> Any:
    """A value without the null members of objects; nulls in lists stay."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return value


def _strategic(kind: ServedKind, current: Object, patch: Object) -> Object:
    """Merge; kind and version are left alone, whatever the patch has."""
    try:
        patched = strategic_merge.merge(kind.schema[_version(current)], current, decoding.plain_values(patch))
    except StrategicError as error:
        fault = {400: status_errors.bad_request, 422: status_errors.unprocessable}.get(error.code)
        raise (fault or status_errors.internal)(str(error)) from None
    return patched | {name: current[name] for name in ("kind", "apiVersion")}


def _parsed(body: bytes) -> Any:
    try:
        return json_and_yaml.read_json(body)
    except ReadError as error:
        raise status_errors.bad_request(f"the patch is {error}") from None


def _bad_request(before: str, value: Any, expected: str) -> StatusError:
    return status_errors.bad_request(
        f"the patch is invalid: {before} {decoding.shown(value)}, expected {expected}"
    )


def _version(obj: Object) -> str:
    return str(obj["apiVersion"]).rpartition("/")[2]


def _read_back(
    kind: ServedKind, current: Object, patched: Any, notes: StrictNotes, field_validation: str
) -> tuple[Object, list[str]]:
    """Decode the patched values as an object of the kind. Raises StatusError 422."""
    version = _version(current)
    try:
        if not isinstance(patched, dict):
            raise ReadError(f"got {decoding.json_type(patched)}, expected an object")
        obj, unknown = request_bodies.shaped(kind, version, patched)
        given = [patched.get(name) for name in ("kind", "apiVersion")]
        if not kind.custom or not given[0] or not all(isinstance(text, str) for text in given):
            request_bodies.check(kind, version, patched)
        elif given != [kind.kind, kind.api_version(version)]:
            raise request_bodies.wrong_type(kind, version, patched)
    except ReadError as error:
        raise _unusable(str(error)) from None
    except StatusError as error:
        raise error if error.reason == "Invalid" else _unusable(error.message) from None
    strict = list(dict.fromkeys([*notes.strict, *sorted(unknown)]))
    if field_validation == "Strict" and strict:
        raise _unusable(f"strict decoding error: {', '.join(strict)}")
    return obj, strict if field_validation == "Warn" else []


def _unusable(why: str) -> StatusError:
    cause = StatusCause("FieldValueInvalid", f"the patched object is invalid: {why}", "patch")
    return status_errors.invalid("", "", "", [cause])
