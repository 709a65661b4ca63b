"""Patches of stored objects: JSON Patch, JSON merge patch (RFC 7386), Kubernetes' strategic merge patch."""

from typing import Any

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.codec import (
    custom_resources,
    decoding,
    envelope,
    go_rendering,
    json_reading,
    unstructured,
)
from corelane.embedded.apiserver.codec.decoding import DecodeError, StrictNotes
from corelane.embedded.apiserver.codec.json_reading import ReadError, pairs
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.write import json_patch, strategic_merge
from corelane.embedded.apiserver.write.json_patch import PatchError
from corelane.embedded.apiserver.write.strategic_merge import StrategicError

Object = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
MAX_OPERATIONS = 10_000


class _UnusableError(Exception):
    """The result of a patch is not an object of the kind; the text says why."""


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
        return _strategic(kind, current, body, notes, field_validation)
    if media_type == JSON_PATCH:
        patch = _json_patch if field_validation != "Ignore" else _unvalidated_json_patch
    elif media_type == MERGE_PATCH:
        patch = _merge_patch if field_validation != "Ignore" else _unvalidated_merge_patch
    else:
        known = (JSON_PATCH, MERGE_PATCH, *(() if kind.custom else (STRATEGIC_PATCH,)), APPLY_PATCH)
        raise status_errors.unsupported_media_type(known)
    try:
        return _read_back(kind, current, patch(current, body, notes), notes, field_validation)
    except _UnusableError as error:
        # Only a message that quotes the result shows the order of what the patch did not touch.
        result = patch(go_rendering.as_written(kind.schema[_version(current)], current), body, StrictNotes())
        raise _bad_result(kind, result, str(error)) from None


def _unvalidated_json_patch(current: Object, body: bytes, notes: StrictNotes) -> Any:
    """A patch whose members are not looked at, so that the patching library finds what is wrong with it."""
    operations = _parsed(body, "")
    if not isinstance(operations, list | None):
        raise _unmarshallable(operations, "Go value of type jsonpatch.Patch", "")
    return _json_patch(current, body, notes)


def _json_patch(current: Object, body: bytes, notes: StrictNotes) -> Any:
    operations = _parsed(body, "error decoding patch: ")
    operations = [] if operations is None else operations
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise _unmarshallable(operations, "Go value of type []handlers.jsonPatchOp", "error decoding patch: ")
    _check_operations(operations, notes)
    try:
        patched = json_patch.apply(current, operations)
    except (PatchError, RecursionError):
        raise status_errors.unprocessable() from None
    if json_reading.too_deep(patched):
        raise status_errors.unprocessable()
    return patched


def _check_operations(operations: list[Object], notes: StrictNotes) -> None:
    if len(operations) > MAX_OPERATIONS:
        limit = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise status_errors.too_large(f"Request entity too large: {limit}")
    for index, operation in enumerate(operations):
        seen: set[str] = set()
        for name, value in pairs(operation):
            if name not in _OPERATION:
                notes.add(f'json patch unknown field "[{index}].{name}"')
            elif name in seen:
                notes.add(f'json patch duplicate field "[{index}].{name}"')
            elif name != "value" and not isinstance(value, str | None):
                why = f"Go struct field jsonPatchOp.{name} of type string"
                found = decoding.json_type(value)
                raise status_errors.bad_request(
                    f"error decoding patch: json: cannot unmarshal {found} into {why}"
                )
            seen.add(name)


def _merge_patch(current: Object, body: bytes, notes: StrictNotes) -> Any:
    patch = _parsed(body, "error decoding patch: ")
    if patch is None:
        raise status_errors.bad_request("Invalid JSON Patch")
    _check_map(patch, "error decoding patch: ")
    custom_resources.note_repeats(patch, "", notes)
    return merged(current, patch)


def _unvalidated_merge_patch(current: Object, body: bytes, notes: StrictNotes) -> Any:
    """As upstream's library merges: a list takes the object's place, and is refused as no object."""
    try:
        patch = json_reading.read_json(body)
    except ReadError:
        patch = None
    if not isinstance(patch, dict | list):
        raise status_errors.bad_request("Invalid JSON Patch")
    return merged(current, patch) if isinstance(patch, dict) else _without_nulls(patch)


def merged(original: Any, patch: Any) -> Any:
    """RFC 7386: members of `patch` replace those of `original`, null removes them.

    What is merged comes in alphabetical order and what is only taken over in its own, as from upstream's
    library; nulls in objects of lists stay only where the list replaces an object.
    """
    if not isinstance(patch, dict):
        return patch if isinstance(original, dict) else _without_nulls(patch)
    result = dict(original) if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return dict(sorted(result.items()))


def _without_nulls(value: Any) -> Any:
    """A value without the null members of objects; nulls in lists stay."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in sorted(value.items()) if item is not None}
    return value


def _strategic(
    kind: ServedKind, current: Object, body: bytes, notes: StrictNotes, field_validation: str
) -> tuple[Object, list[str]]:
    """Upstream reads the result field by field, and looks at the kind that it says to be of no more."""
    patch = _parsed(body, "")
    _check_map(patch, "")
    custom_resources.note_repeats(patch, "", notes)
    patch = custom_resources.plain(patch)
    version = _version(current)
    record = kind.schema[version]
    try:
        patched = strategic_merge.merge(record, current, patch)
        patched = unstructured.restore(record, patched)
    except StrategicError as error:
        raise _refused(error) from None
    except DecodeError as error:
        raise _bad_patch(go_rendering.printed(patch), str(error)) from None
    patched |= {name: current[name] for name in ("kind", "apiVersion")}
    obj, unknown = envelope.shaped(kind, version, patched, field_validation="Warn")
    strict = [*notes.strict, *sorted(unknown)]
    if field_validation == "Strict" and strict:
        raise _bad_patch(go_rendering.printed(patch), f"strict decoding error: {', '.join(strict)}")
    return obj, strict if field_validation == "Warn" else []


def _refused(error: StrategicError) -> StatusError:
    if error.code == 400:
        return status_errors.bad_request(str(error))
    return status_errors.unprocessable() if error.code == 422 else status_errors.internal(str(error))


def _parsed(body: bytes, before: str) -> Any:
    try:
        return json_reading.read_json(body)
    except ReadError as error:
        raise status_errors.bad_request(f"{before}{error}") from None


def _check_map(patch: Any, before: str) -> None:
    if not isinstance(patch, dict):
        raise _unmarshallable(patch, "Go value of type map[string]interface {}", before)


def _unmarshallable(value: Any, into: str, before: str = "") -> StatusError:
    return status_errors.bad_request(
        f"{before}json: cannot unmarshal {decoding.json_type(value)} into {into}"
    )


def _version(obj: Object) -> str:
    return str(obj["apiVersion"]).rpartition("/")[2]


def _read_back(
    kind: ServedKind, current: Object, patched: Any, notes: StrictNotes, field_validation: str
) -> tuple[Object, list[str]]:
    """Decode the patched values as an object of the kind. Raises StatusError 422 or _UnusableError."""
    version = _version(current)
    try:
        if not isinstance(patched, dict):
            raise status_errors.bad_request(envelope.not_an_object(patched))
        if not kind.custom:
            _check_type(kind, version, patched)
        obj, found_strict = envelope.shaped(kind, version, patched, field_validation="Warn")
        if kind.custom:
            _check_type(kind, version, patched)
    except ReadError as error:
        raise _UnusableError(f"{envelope.UNPARSED}{error}") from None
    except StatusError as error:
        if error.reason == "Invalid":
            raise
        raise _UnusableError(_reason(kind, version, patched, error.message)) from None
    strict = list(dict.fromkeys([*notes.strict, *found_strict]))
    if field_validation == "Strict" and strict:
        raise _UnusableError(f"strict decoding error: {', '.join(strict)}")
    return obj, strict if field_validation == "Warn" else []


def _reason(kind: ServedKind, version: str, patched: Any, why: str) -> str:
    """The fault by itself: only a body that is no patch is called unusable as a whole."""
    if not isinstance(patched, dict):
        return why
    return why.removeprefix(envelope.unusable(kind, version, patched, ""))


def _check_type(kind: ServedKind, version: str, patched: Object) -> None:
    """Whether a patch left the object its kind and version. Raises StatusError."""
    said = [patched.get(name) for name in ("kind", "apiVersion")]
    if kind.custom and all(isinstance(one, str) for one in said) and said[0]:
        if said != [kind.kind, kind.api_version(version)]:
            raise envelope.wrong_type(kind, version, patched)
        return
    envelope.check(kind, version, patched)


def _bad_result(kind: ServedKind, patched: Any, why: str) -> StatusError:
    return _bad_patch(go_rendering.compact(_sorted(patched) if kind.custom else patched), why)


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return {name: _sorted(value[name]) for name in sorted(value)} if isinstance(value, dict) else value


def _bad_patch(text: str, why: str) -> StatusError:
    return status_errors.invalid("", "", "", [causes.invalid("patch", text, why)])
