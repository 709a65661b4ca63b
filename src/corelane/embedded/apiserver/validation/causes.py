"""Faults in upstream's words (apimachinery's `field.Error`), and the paths they name."""

import json
from collections.abc import Iterable
from typing import Any

from corelane.embedded.apiserver.go_quoting import quoted
from corelane.embedded.apiserver.status_errors import StatusCause

NEGATIVE = "must be greater than or equal to 0"
IMMUTABLE = "field is immutable"


def child(path: str, *names: str) -> str:
    """The path of a member: `spec` and `nodeName` give `spec.nodeName`."""
    return ".".join((path, *names)) if path else ".".join(names)


def item(path: str, index: int) -> str:
    return f"{path}[{index}]"


def key(path: str, name: str) -> str:
    """The path of a map's entry."""
    return f"{path}[{name}]"


def above(path: str) -> str:
    """The path of the list that an item is in: some of upstream's faults name the list."""
    return path[: path.rindex("[")]


def invalid(path: str, value: Any, detail: str) -> StatusCause:
    return _cause("FieldValueInvalid", f"Invalid value: {shown(value)}", path, detail)


def type_invalid(path: str, value: Any, detail: str) -> StatusCause:
    return _cause("FieldValueTypeInvalid", f"Invalid value: {shown(value)}", path, detail)


def required(path: str, detail: str = "") -> StatusCause:
    return _cause("FieldValueRequired", "Required value", path, detail)


def forbidden(path: str, detail: str) -> StatusCause:
    return _cause("FieldValueForbidden", "Forbidden", path, detail)


def duplicate(path: str, value: Any, detail: str = "") -> StatusCause:
    return _cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", path, detail)


def not_found(path: str, value: Any, detail: str = "") -> StatusCause:
    return _cause("FieldValueNotFound", f"Not found: {shown(value)}", path, detail)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> StatusCause:
    options = ", ".join(quoted(option) for option in supported)
    return _cause(
        "FieldValueNotSupported", f"Unsupported value: {shown(value)}", path, f"supported values: {options}"
    )


def too_long(path: str, limit: int) -> StatusCause:
    return _cause("FieldValueTooLong", "Too long", path, f"may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> StatusCause:
    return _cause("FieldValueTooMany", f"Too many: {count}", path, f"must have at most {limit} items")


def unless_equal(path: str, new: Any, old: Any) -> list[StatusCause]:
    """The fault of a field that must not change and has."""
    return [] if new == old else [invalid(path, new, IMMUTABLE)]


def all_invalid(path: str, value: Any, details: Iterable[str]) -> list[StatusCause]:
    return [invalid(path, value, detail) for detail in details]


def shown(value: Any) -> str:
    """A value as upstream's messages show it: text in Go's quotes, objects as JSON."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)


def _cause(reason: str, what: str, path: str, detail: str) -> StatusCause:
    return StatusCause(reason, f"{what}: {detail}" if detail else what, path or "[]")
