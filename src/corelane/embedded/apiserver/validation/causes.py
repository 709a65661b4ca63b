"""Causes of a 422: type, field, value and rule, and the paths that name fields."""

import json
from collections.abc import Iterable
from typing import Any

from corelane.embedded.apiserver.status_errors import StatusCause

IMMUTABLE = "must not change"
_LONGEST_SHOWN = 300


def child(path: str, *names: str) -> str:
    """The path of a member: `spec` and `nodeName` give `spec.nodeName`."""
    return ".".join((path, *names)) if path else ".".join(names)


def item(path: str, key: int | str) -> str:
    """The path of a list's item or a map's entry."""
    return f"{path}[{key}]"


def invalid(path: str, value: Any, rule: str) -> StatusCause:
    return _cause("FieldValueInvalid", f"Invalid value: {shown(value)}", path, rule)


def type_invalid(path: str, value: Any, rule: str) -> StatusCause:
    return _cause("FieldValueTypeInvalid", f"Invalid value: {shown(value)}", path, rule)


def required(path: str, rule: str = "") -> StatusCause:
    return _cause("FieldValueRequired", "Required value", path, rule)


def forbidden(path: str, rule: str) -> StatusCause:
    return _cause("FieldValueForbidden", "Forbidden", path, rule)


def duplicate(path: str, value: Any) -> StatusCause:
    return _cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", path)


def not_found(path: str, value: Any, rule: str = "") -> StatusCause:
    return _cause("FieldValueNotFound", f"Not found: {shown(value)}", path, rule)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> StatusCause:
    options = ", ".join(map(shown, supported))
    what = f"Unsupported value: {shown(value)}"
    return _cause("FieldValueNotSupported", what, path, f"supported values: {options}")


def too_long(path: str, limit: int) -> StatusCause:
    return _cause("FieldValueTooLong", "Too long", path, f"must be at most {limit} bytes")


def unless_equal(path: str, new: Any, old: Any) -> list[StatusCause]:
    """The fault of a field that must not change and has."""
    return [] if new == old else [invalid(path, new, IMMUTABLE)]


def all_invalid(path: str, value: Any, rules: Iterable[str]) -> list[StatusCause]:
    return [invalid(path, value, rule) for rule in rules]


def shown(value: Any) -> str:
    """A value as JSON, cut where it is too long to read."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _cause(reason: str, what: str, path: str, rule: str = "") -> StatusCause:
    return StatusCause(reason, f"{what}: {rule}" if rule else what, path or "[]")
