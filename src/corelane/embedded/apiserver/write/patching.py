"""Patches of stored objects: JSON Patch, JSON merge patch (RFC 7386), Kubernetes' strategic merge patch."""

from typing import Any

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.codec import custom_resources, decoding, envelope, json_reading
from corelane.embedded.apiserver.codec.decoding import StrictNotes
from corelane.embedded.apiserver.codec.json_reading import ReadError, pairs
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusCause, StatusError
from corelane.embedded.apiserver.write import json_patch, strategic_merge
from corelane.embedded.apiserver.write.json_patch import PatchError
from corelane.embedded.apiserver.write.strategic_merge import StrategicError

Object = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
MAX_OPERATIONS = 10_000


_OPERATION = {"op", "path", "from", "value"}


def apply(
    kind: ServedKind, content_type: str, current: Object, body: bytes, *, field_validation: str = "Warn"
) -> tuple[Object, list[str]]:
    """The object after a patch, and the warnings to answer with.

    `current` is in the form of the request's group and version, which its apiVersion names; so is the result,
    which has still to pass prepare_update and validate_update. `field_validation` is as in `strategy.decode`.
    Raises StatusError: 400 for a body that is no patch, 413 for one too long, 415 for another media type, 422
    for one that does not apply or whose result is not an object of the kind.
    """
    media_type = content_type.partition(";")[0].strip()
    notes = StrictNotes()
    if media_type == STRATEGIC_PATCH and not kind.custom:
        return _read_back(kind, current, _strategic(kind, current, body, notes), notes, field_validation)
    if media_type not in {JSON_PATCH, MERGE_PATCH}:
        known = (JSON_PATCH, MERGE_PATCH, *(() if kind.custom else (STRATEGIC_PATCH,)), APPLY_PATCH)
        raise status_errors.unsupported_media_type(known)
    patch = _json_patch if media_type == JSON_PATCH else _merge_patch
    return _read_back(kind, current, patch(current, body, notes), notes, field_validation)


def _json_patch(current: Object, body: bytes, notes: StrictNotes) -> Any:
    operations = _parsed(body)
    operations = [] if operations is None else operations
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise _bad_request("got", operations, "a list of operations")
    _check_operations(operations, notes)
    try:
        patched = json_patch.apply(current, operations)
    except (PatchError, RecursionError) as error:
        raise status_errors.unprocessable(f"the JSON patch does not apply: {error}") from None
    if json_reading.too_deep(patched):
        raise status_errors.unprocessable("the JSON patch nests values too deep")
    return patched


def _check_operations(operations: list[Object], notes: StrictNotes) -> None:
    if len(operations) > MAX_OPERATIONS:
        raise status_errors.too_large(
            f"JSON patch of {len(operations)} operations; the limit is {MAX_OPERATIONS}"
        )
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


def _merge_patch(current: Object, body: bytes, notes: StrictNotes) -> Any:
    patch = _parsed(body)
    if not isinstance(patch, dict):
        raise _bad_request("got", patch, "an object")
    custom_resources.note_repeats(patch, "", notes)
    return merged(current, patch)


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


def _strategic(kind: ServedKind, current: Object, body: bytes, notes: StrictNotes) -> Object:
    """Merge; kind and version are left alone, whatever the patch has."""
    patch = _parsed(body)
    if not isinstance(patch, dict):
        raise _bad_request("got", patch, "an object")
    custom_resources.note_repeats(patch, "", notes)
    try:
        patched = strategic_merge.merge(
            kind.schema[_version(current)], current, custom_resources.plain(patch)
        )
    except StrategicError as error:
        raise _refused(error) from None
    return patched | {name: current[name] for name in ("kind", "apiVersion")}


def _refused(error: StrategicError) -> StatusError:
    if error.code == 400:
        return status_errors.bad_request(str(error))
    return (
        status_errors.unprocessable(str(error)) if error.code == 422 else status_errors.internal(str(error))
    )


def _parsed(body: bytes) -> Any:
    try:
        return json_reading.read_json(body)
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
        obj, unknown = envelope.shaped(kind, version, patched)
        _check_type(kind, version, patched)
    except ReadError as error:
        raise _unusable(str(error)) from None
    except StatusError as error:
        raise error if error.reason == "Invalid" else _unusable(error.message) from None
    strict = list(dict.fromkeys([*notes.strict, *sorted(unknown)]))
    if field_validation == "Strict" and strict:
        raise _unusable(f"strict decoding error: {', '.join(strict)}")
    return obj, strict if field_validation == "Warn" else []


def _check_type(kind: ServedKind, version: str, patched: Object) -> None:
    """Whether a patch left the object its kind and version. Raises StatusError, ReadError."""
    given = [patched.get(name) for name in ("kind", "apiVersion")]
    if kind.custom and all(isinstance(one, str) for one in given) and given[0]:
        if given != [kind.kind, kind.api_version(version)]:
            raise envelope.wrong_type(kind, version, patched)
        return
    envelope.check(kind, version, patched)


def _unusable(why: str) -> StatusError:
    cause = StatusCause("FieldValueInvalid", f"the patched object is invalid: {why}", "patch")
    return status_errors.invalid("", "", "", [cause])
