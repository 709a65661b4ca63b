"""How values of a type merge and are owned: merge types, values that conform, and the set of their fields.

Merge types are made from the rows of the schema tables, as upstream's from its OpenAPI (kube-openapi
`schemaconv`): a field is one unit (scalar, atomic list or map), or it is owned part by part (struct, map,
list by keys, set). Upstream: structured-merge-diff `typed` (validate, tofieldset).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from corelane.embedded.apiserver.codec.decoding import shown
from corelane.embedded.apiserver.ownership import field_sets
from corelane.embedded.apiserver.ownership.field_sets import LEAF, SELF, FieldSet
from corelane.embedded.apiserver.schema.notation import (
    FieldRow,
    ListType,
    MapType,
    ObjectType,
    ScalarType,
    Shape,
)

_SCALARS = {
    "string": "string",
    "text-or-null": "string",
    "bytes": "string",
    "bool": "boolean",
    "int32": "numeric",
    "int64": "numeric",
    "object": "object",
}
"""Scalars whose JSON type is checked; the others (times, quantities) may be any."""


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A leaf: "string", "numeric", "boolean", "untyped" for any of them, or "object", replaced whole."""

    kind: str


@dataclass(slots=True, eq=False)
class Listing:
    """A list: atomic, a set of scalars, or items known by `keys` with their defaults (None: no default)."""

    item: MergeType
    atomic: bool
    keys: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True, eq=False)
class Mapping:
    """A struct with `fields`, or a map with values of one type (None: no other fields are allowed)."""

    fields: dict[str, MergeType] = field(default_factory=dict)
    values: MergeType | None = None
    atomic: bool = False


MergeType: TypeAlias = Scalar | Listing | Mapping


@cache
def merge_type(record: ObjectType, atomic: bool | None = None) -> Mapping:
    """Return the merge type of a record; a field that holds it may say whether it is `atomic`."""
    made = Mapping(atomic=record.atomic if atomic is None else atomic)
    made.fields.update((row.name, _row(row)) for row in record)
    return made


def _row(row: FieldRow) -> MergeType:
    shape = row.shape
    if isinstance(shape, ListType):
        rows = shape.item.fields if row.list == "map" and isinstance(shape.item, ObjectType) else {}
        keys = tuple((key, _default(rows[key])) for key in sorted(row.keys)) if rows else ()
        return Listing(_shape(shape.item), atomic=row.list == "atomic", keys=keys)
    if isinstance(shape, MapType):
        return Mapping(values=_shape(shape.value), atomic=bool(row.atomic))
    return merge_type(shape, row.atomic) if isinstance(shape, ObjectType) else _shape(shape)


def _default(row: FieldRow) -> Any:
    """Return the value that a missing key has in OpenAPI: its default, else what Go has for it."""
    if row.default is not None and not callable(row.default):
        return row.default
    return row.shape.zero if row.presence != "opt" and isinstance(row.shape, ScalarType) else None


@cache
def _shape(shape: Shape) -> MergeType:
    if isinstance(shape, ObjectType):
        return merge_type(shape)
    if isinstance(shape, ListType):
        return Listing(_shape(shape.item), atomic=True)
    if isinstance(shape, MapType):
        return Mapping(values=_shape(shape.value))
    return Scalar(_SCALARS.get(shape.name, "untyped"))


class TypedValueError(ValueError):
    """A value does not conform to its type; the message is upstream's."""


class ListItemError(ValueError):
    """An item of a set or of a list with keys cannot be told from others."""


def check(kind: Mapping, value: Any) -> None:
    """Check an applied value, in which no list item may stand twice. Raises TypedValueError."""
    faults = [f"{path}: {text}" if path else text for path, text in _faults(kind, value)]
    if len(faults) == 1:
        raise TypedValueError(faults[0])
    if faults:
        raise TypedValueError("\n".join(["errors:", *(f"  {fault}" for fault in faults)]))


def _faults(kind: MergeType, value: Any) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    if isinstance(kind, Scalar):
        text = _scalar_fault(kind.kind, value)
        if text:
            yield "", text
    elif isinstance(kind, Mapping):
        if not isinstance(value, dict):
            yield "", _mismatch("object", value)
            return
        for name, part in value.items():
            inner = kind.fields.get(name, kind.values)
            if inner is None:
                yield f".{name}", "field not declared in schema"
                return
            yield from ((f".{name}{path}", text) for path, text in _faults(inner, part))
    elif isinstance(value, list):
        yield from _item_faults(kind, value)
    else:
        yield "", _mismatch("list", value)


def _item_faults(kind: Listing, value: list[Any]) -> Iterator[tuple[str, str]]:
    seen = set()
    for index, part in enumerate(value):
        element = f"i:{index}"
        if not kind.atomic:
            try:
                element = list_element(kind, part)
            except ListItemError as error:
                yield "", f"element {index}: {error}"
                return
            if element in seen:
                yield "", f"duplicate entries for key {field_sets.shown_element(element)}"
            seen.add(element)
        shown = field_sets.shown_element(element)
        yield from ((f"{shown}{path}", text) for path, text in _faults(kind.item, part))


def _scalar_fault(kind: str, value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "numeric": number,
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "untyped": not isinstance(value, dict | list),
    }
    return "" if fits.get(kind, True) else _mismatch({"untyped": "scalar"}.get(kind, kind), value)


def _mismatch(expected: str, value: Any) -> str:
    return f"got {shown(value)}, expected {expected}"


def list_element(kind: Listing, value: Any) -> str:
    """Return the path element of an item of a set or a list with keys. Raises ListItemError."""
    if not kind.keys:
        if value is None or isinstance(value, dict | list):
            raise ListItemError(_mismatch("scalar", value))
        return field_sets.member_element(value)
    if not isinstance(value, dict):
        raise ListItemError(_mismatch("object", value))
    members = [(key, value.get(key, default)) for key, default in kind.keys]
    keys = [(key, part) for key, part in members if part is not None or key in value]
    if not keys:
        names = ", ".join(key for key, _ in kind.keys)
        raise ListItemError(f"an item lacks the fields that identify it: {names}")
    return field_sets.item_element(keys)


def indexed(kind: Listing, values: list[Any] | None) -> dict[str, list[Any]]:
    """Return the items of a list by their elements; more than one where items repeat."""
    items: dict[str, list[Any]] = {}
    for value in values or ():
        items.setdefault(list_element(kind, value), []).append(value)
    return items


def fields_of(kind: Mapping, value: dict[str, Any]) -> FieldSet:
    """Return the set of a value's leaves, list items and members of maps."""
    return _inside(kind, value) or {}


def _inside(kind: MergeType, value: Any) -> FieldSet | None:
    """Return what is below a value's own path: LEAF where the value itself is the leaf, None for nothing."""
    if isinstance(kind, Scalar) or kind.atomic:
        return LEAF
    if isinstance(kind, Mapping):
        return _members(kind, value) if isinstance(value, dict) and value else None
    made: FieldSet = {}
    for element, parts in indexed(kind, value).items() if isinstance(value, list) else ():
        node = _inside(kind.item, parts[0]) if len(parts) == 1 else None
        made[element] = {SELF: LEAF, **node} if node else LEAF
    return made or None


def _members(kind: Mapping, value: dict[str, Any]) -> FieldSet | None:
    made: FieldSet = {}
    for name, part in value.items():
        field = kind.fields.get(name)
        inner = field or kind.values
        if inner is None:
            continue
        node = _inside(inner, part)
        if node is None:
            if part is None or part == {} or field is None:
                made[f"f:{name}"] = LEAF
        elif node and field is None:
            made[f"f:{name}"] = {SELF: LEAF, **node}
        else:
            made[f"f:{name}"] = node
    return made or None
