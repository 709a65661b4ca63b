"""How values of a type merge and are owned, made from the rows of the schema tables.

Upstream makes the same from its OpenAPI (kube-openapi `schemaconv`): a field is one unit (scalar, atomic list
or map), or it is owned part by part (struct, map, list by keys, set).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

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

UNTYPED = Scalar("untyped")


@cache
def of(record: ObjectType, atomic: bool | None = None) -> Mapping:
    """Return the merge type of a record; a field that holds it may say whether it is `atomic`."""
    made = Mapping(atomic=record.atomic if atomic is None else atomic)
    made.fields.update((row.name, _row(row)) for row in record)
    return made


def _row(row: FieldRow) -> MergeType:
    shape = row.shape
    if isinstance(shape, ListType):
        return Listing(_shape(shape.item), atomic=row.list == "atomic", keys=_keys(row, shape.item))
    if isinstance(shape, MapType):
        return Mapping(values=_shape(shape.value), atomic=bool(row.atomic))
    return of(shape, row.atomic) if isinstance(shape, ObjectType) else _shape(shape)


def _keys(row: FieldRow, shape: Shape) -> tuple[tuple[str, Any], ...]:
    if row.list != "map" or not isinstance(shape, ObjectType):
        return ()
    return tuple((key, _default(shape.fields[key])) for key in sorted(row.keys))


def _default(row: FieldRow) -> Any:
    """Return the value that a missing key has in OpenAPI: its default, else what Go has for it."""
    if row.default is not None and not callable(row.default):
        return row.default
    return row.shape.zero if row.presence != "opt" and isinstance(row.shape, ScalarType) else None


@cache
def _shape(shape: Shape) -> MergeType:
    if isinstance(shape, ObjectType):
        return of(shape)
    if isinstance(shape, ListType):
        return Listing(_shape(shape.item), atomic=True)
    if isinstance(shape, MapType):
        return Mapping(values=_shape(shape.value))
    return Scalar(_SCALARS.get(shape.name, "untyped"))
