"""The notation of the schema tables: one record a type, one row a field.

A row says how a field travels (`val`: left out when zero; `opt`: absent is not zero, a Go pointer; `req`:
always written), what it holds, its default, how patches merge it, and which named rules check it. Decoding,
defaulting, validation, patches and OpenAPI are all driven by these rows. They stand in the order of
upstream's internal types, because one of its error texts shows a difference in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

CORE = "io.k8s.api.core.v1."

Default: TypeAlias = Any  # a JSON value, or a function of the object that the field is missing from
Filler: TypeAlias = "Callable[[dict[str, Any]], None]"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A leaf. `zero` is what Go has where nothing was said."""

    name: str
    zero: Any


@dataclass(frozen=True, slots=True)
class ListType:
    """A JSON array."""

    item: Shape


@dataclass(frozen=True, slots=True)
class MapType:
    """A JSON object with free keys."""

    value: Shape


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One row: see `val`, `opt` and `req` for the meaning of the columns."""

    name: str
    go: str
    shape: Shape
    presence: str
    number: str = ""
    optional: bool = False
    default: Default = None
    enum: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    merge: str = ""
    strategy: tuple[str, ...] = ()
    list: str = ""
    keys: tuple[str, ...] = ()
    atomic: bool = False
    immutable: bool = False
    gated: bool = False
    pattern: str = ""
    doc: str = ""

    @property
    def required(self) -> bool:
        """Whether OpenAPI lists the field as required."""
        return self.presence == "req" and not self.optional

    @property
    def merges(self) -> bool:
        """Whether a strategic merge patch merges the list item by item instead of replacing it."""
        return "merge" in self.strategy


@dataclass(frozen=True, slots=True)
class ObjectType:
    """A type: its name (`Pod`), OpenAPI's name for it, its rows, and the order in which it is checked.

    `order` names fields, whose rows are then checked, and rules on several fields (`@name`); empty means the
    rows' own order. `defaults` fill in what depends on more than one field, after the rows' own defaults.
    `always` has the rows that are written even if nothing was said.
    """

    name: str
    model: str
    fields: Mapping[str, FieldRow]
    order: tuple[str, ...] = ()
    defaults: tuple[Filler, ...] = ()
    always: tuple[FieldRow, ...] = field(init=False)

    def __post_init__(self) -> None:
        always = tuple(row for row in self if row.presence == "req" and not row.gated)
        object.__setattr__(self, "always", always)

    def __iter__(self) -> Iterator[FieldRow]:
        return iter(self.fields.values())

    def __hash__(self) -> int:
        return hash(self.model)


Shape: TypeAlias = ScalarType | ListType | MapType | ObjectType

STRING = ScalarType("string", "")
BOOL = ScalarType("bool", False)
INT32 = ScalarType("int32", 0)
INT64 = ScalarType("int64", 0)
QUANTITY = ScalarType("quantity", "0")
AMOUNT = ScalarType("amount", "0")  # a quantity in a resource list: nothing finer than a thousandth
TIME = ScalarType("time", None)
MICRO_TIME = ScalarType("microtime", None)
RESOURCE_LIST = MapType(AMOUNT)
INT_OR_STRING = ScalarType("int-or-string", 0)
BYTES = ScalarType("bytes", "")
RAW = ScalarType("raw", None)


def val(shape: Shape, number: int | str = "", **columns: Any) -> FieldRow:
    """A field that is left out when it is zero, empty or false. See `_row` for the columns."""
    return _row("val", shape, number, columns)


def opt(shape: Shape, number: int | str = "", **columns: Any) -> FieldRow:
    """A field whose absence differs from its zero value. See `_row` for the columns."""
    return _row("opt", shape, number, columns)


def req(shape: Shape, number: int | str = "", **columns: Any) -> FieldRow:
    """A field that is always written, zero or not. See `_row` for the columns."""
    return _row("req", shape, number, columns)


def _row(presence: str, shape: Shape, number: int | str, columns: dict[str, Any]) -> FieldRow:
    """The columns of a row.

    number    the field's number in protobuf (`generated.proto` of Kubernetes 1.36), "" where it has none;
              dots are the way through messages whose fields JSON shows inline
    go        upstream's internal name, where it is not the JSON name with a capital
    default   the value of an absent field, or a function of the object around it
    enum      the values allowed, in the order of the error text, separated by blanks
    check     names of the rules for the value, in order, separated by blanks
    merge     the key by which a strategic merge patch matches items of this list (implies strategy="merge")
    strategy  a strategic merge patch's way with the field: "merge", "merge,retainKeys", "replace"
    list      OpenAPI's list type: "map", "set"; for a list with `merge` it is "map", otherwise "atomic"
    keys      the keys of a list of type "map", separated by blanks, where they are not just `merge`
    atomic    a map or object that server-side apply replaces whole
    immutable the field never changes once the object exists
    gated     belongs to a feature that is off by default: the field is read and then dropped
    pattern   a regular expression that a text value must match
    optional  OpenAPI does not require it although it is always written
    """
    names = tuple(columns.pop("check", "").split())
    merge = columns.get("merge", "")
    strategy = columns.pop("strategy", "merge" if merge else "")
    kind = columns.pop("list", "map" if merge else "atomic" if isinstance(shape, ListType) else "")
    keys = _words(columns.pop("keys", merge if kind == "map" else ""))
    enum = _words(columns.pop("enum", ()))
    go = columns.pop("go", "")
    row = FieldRow(
        "", go, shape, presence, str(number), check=names, enum=enum, list=kind, keys=keys, **columns
    )
    return replace(row, strategy=tuple(strategy.split(",")) if strategy else ())


def _words(column: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(column.split()) if isinstance(column, str) else column


def record(name: str, order: str = "", package: str = CORE, /, **rows: FieldRow) -> ObjectType:
    """A type from its rows; `order` as in Record, blank-separated, and `package` as OpenAPI names it."""
    fields = {key: replace(row, name=key, go=row.go or key[0].upper() + key[1:]) for key, row in rows.items()}
    return ObjectType(name, package + name, fields, tuple(order.split()))


def extend(
    base: ObjectType, name: str, order: str = "", package: str = CORE, /, **rows: FieldRow
) -> ObjectType:
    """A type with the rows of another, which protobuf holds in field 1, and some more of its own."""
    inner = {key: replace(row, number=f"1.{row.number}") for key, row in base.fields.items()}
    made = record(name, order, package, **inner, **rows)
    return replace(made, defaults=base.defaults)


def alike(base: ObjectType, name: str) -> ObjectType:
    """A type with the same rows as another of its package."""
    return replace(base, name=name, model=base.model.removesuffix(base.name) + name)


def filling(base: ObjectType, *defaults: Filler) -> ObjectType:
    """The type with functions that default what depends on more than one field."""
    return replace(base, defaults=defaults)
