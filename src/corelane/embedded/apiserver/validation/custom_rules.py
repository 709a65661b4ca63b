"""Faults of custom resources, as kube-openapi's validator words them.

Its quirks are kept: a number that is no integer is faulted twice, and some faults have `<nil>` for a field.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from corelane.embedded.apiserver.schema.notation import FieldRow, ListType, ObjectType, ScalarType, Shape
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item

_ENVELOPE = {"apiVersion", "kind", "metadata"}
_NOWHERE = "<nil>"

Object = dict[str, Any]
_encode = msgspec.json.Encoder().encode


def validate(record: ObjectType, obj: Object, old: Object | None = None) -> list[StatusCause]:
    """The faults of an object against its schema; those of missing fields come last at each level.

    What is as in `old`, the valid object that it replaces, is not looked at again.
    """
    return list(_record(record, obj, "", old))


def _record(record: ObjectType, obj: Object, path: str, old: Any) -> Iterator[StatusCause]:
    rows = [row for row in record if not (path == "" and row.name in _ENVELOPE)]
    before = old if isinstance(old, dict) else {}
    for row in rows:
        if obj.get(row.name) is not None:
            yield from _value(row.shape, obj[row.name], child(path, row.name), row, before.get(row.name))
    for row in rows:
        if row.presence == "req" and obj.get(row.name) is None:
            yield causes.required(child(path, row.name))


def _value(shape: Shape, value: Any, path: str, row: FieldRow, old: Any) -> Iterator[StatusCause]:
    if isinstance(shape, ScalarType):
        yield from _scalar(shape, value, path, row)
        return
    if old is not None and _encode(value) == _encode(old):  # unlike `==` this tells 1 from True
        return
    wanted = "object" if isinstance(shape, ObjectType) else "array"
    if _type_of(value) != wanted:
        yield _wrong_type(path, wanted, _type_of(value))
    elif isinstance(shape, ObjectType):
        yield from _record(shape, value, path, old)
    elif isinstance(shape, ListType):
        before = old if isinstance(old, list) else []
        for index, part in enumerate(value):
            known = before[index] if index < len(before) else None
            yield from _value(shape.item, part, item(path, index), row, known)


def _scalar(shape: ScalarType, value: Any, path: str, row: FieldRow) -> Iterator[StatusCause]:
    if shape.name == "int-or-string":
        yield from _integer_or_string(value, path, row)
    elif shape.name == "int64":
        yield from _integer(value, path)
    elif _type_of(value) != shape.name:
        yield _wrong_type(path, shape.name, _type_of(value))


def _integer(value: Any, path: str) -> Iterator[StatusCause]:
    found = _type_of(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return
    if found in {"boolean", "object"}:
        yield causes.type_invalid(path, "", f'{path} in body must be of type int64: ""')
    elif found == "number":
        yield _wrong_type(path, "int64", "float64")
        yield causes.invalid(
            _NOWHERE, "", f"Checked value must be of type integer with format int64 in {path}"
        )
    elif found != "integer":
        yield _wrong_type(path, "integer", found)


def _integer_or_string(value: Any, path: str, row: FieldRow) -> Iterator[StatusCause]:
    found = _type_of(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return
    if found in {"integer", "string"}:
        if found == "string" and row.pattern and not re.search(row.pattern, value):
            yield causes.invalid(path, value, f"{path} in body should match '{row.pattern}'")
        return
    yield _wrong_type(path, "integer,string", found)
    yield causes.invalid(_NOWHERE, "", f'"{path}" must validate at least one schema (anyOf)')
    yield _wrong_type(path, "integer", found)
    if found == "number":
        yield causes.invalid(
            _NOWHERE, "", f"Checked value must be of type integer (default format) in {path}"
        )


def _wrong_type(path: str, wanted: str, found: str) -> StatusCause:
    return causes.type_invalid(path, found, f'{path} in body must be of type {wanted}: "{found}"')


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "number"
    names = {int: "integer", float: "number", str: "string", list: "array", type(None): "null"}
    return names.get(type(value), "object")
