"""The notation of the schema tables: one record a type, one word a field.

A row says how a field travels, what it holds, its default, how patches merge it, and which values are valid.
Decoding, defaulting, validation, patches and OpenAPI are all driven by these rows.

The word of a row is `NAME[MARK][:SHAPE][=NUMBER][|CHECK…]`, for example `hostPort:int32=2|1..65535`:

MARK    none: left out when zero; `?`: absence differs from zero (a Go pointer); `!`: always written;
        `+`: always written, but not required by OpenAPI
SHAPE   the name of a scalar or a type, `[]…` for a list, `{}…` for a map; text if left out
NUMBER  the field's number in protobuf (`generated.proto` of Kubernetes 1.36); dots are the way through
        messages whose fields JSON shows inline
CHECK   what a value other than zero must satisfy: `required` (it is not zero), a range `1..100` or `0..`, a
        length `len<=64` in bytes, a name in `formats`, or a registered rule. A check with `!` at its end
        looks at the zero value too. In a list of texts or numbers a range, length or format is that of
        each item, in a map that of each key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypedDict

CORE = "io.k8s.api.core.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."

Default: TypeAlias = Any  # a JSON value, or a function of the object that the field is missing from
Filler: TypeAlias = "Callable[[dict[str, Any]], None]"
SCALARS: dict[str, Any] = {
    "string": "",
    "text-or-null": None,
    "bool": False,
    "int32": 0,
    "int64": 0,
    "quantity": "0",
    "amount": "0",  # a quantity in a resource list: nothing finer than a thousandth
    "time": None,
    "microtime": None,
    "int-or-string": 0,
    "bytes": "",
    "raw": None,
    "object": None,  # any JSON object, stored as given
}
_MEMBER = re.compile(
    r"(?P<name>\w+)(?P<mark>[?!+]?)(:(?P<shape>[^=|]+))?(=(?P<number>[0-9.]+))?(\|(?P<checks>.+))?"
)
_RANGE = re.compile(r"(-?[0-9]+)\.\.(-?[0-9]+)?!?")
_PRESENCE = {"": "val", "?": "opt", "!": "req", "+": "req"}


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
    """One row: `presence` is "val", "opt" or "req"; others: see `Columns`."""

    name: str
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
    atomic: bool | None = None
    gated: bool = False
    pattern: str = ""
    walked: bool = True

    @property
    def range(self) -> tuple[int | None, int | None]:
        """The lowest and the highest number that is valid."""
        return next((bounds for text in self.check if (bounds := read_range(text))), (None, None))

    @property
    def longest(self) -> int | None:
        """The length of the longest valid text, in bytes."""
        return next((length for text in self.check if (length := read_length(text)) is not None), None)

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
    """A type: its name (`Pod`), OpenAPI's name for it, its rows, and what is checked in it.

    `rules` are those on several fields, checked after the rows. `defaults` fill in what depends on more than
    one field, after the rows' own defaults. `always` has the rows that are written even if nothing was said.
    Server-side apply replaces an `atomic` type whole.
    """

    name: str
    model: str
    fields: Mapping[str, FieldRow]
    rules: tuple[str, ...] = ()
    defaults: tuple[Filler, ...] = ()
    atomic: bool = False
    always: tuple[FieldRow, ...] = field(init=False)

    def __post_init__(self) -> None:
        always = tuple(row for row in self if row.presence == "req" and not row.gated)
        object.__setattr__(self, "always", always)

    def __iter__(self) -> Iterator[FieldRow]:
        return iter(self.fields.values())

    def __hash__(self) -> int:
        return hash(self.model)


Shape: TypeAlias = ScalarType | ListType | MapType | ObjectType

TYPES: dict[str, ObjectType] = {}
"""The types made so far, by OpenAPI's names for them."""


class Columns(TypedDict, total=False):
    """What the word of a row leaves out.

    default   the value of an absent field, or a function of the object around it
    enum      the values allowed, in the order of the error text, separated by blanks
    merge     the key by which a strategic merge patch matches items of this list (implies strategy="merge")
    strategy  a strategic merge patch's way with the field: "merge", "merge,retainKeys", "replace"
    list      OpenAPI's list type: "map", "set"; for a list with `merge` it is "map", otherwise "atomic"
    keys      the keys of a list of type "map", separated by blanks, where they are not just `merge`
    atomic    a map or object that server-side apply replaces whole; False for one whose type says so
    gated     belongs to a feature that is off by default: the field is read and then dropped
    pattern   a regular expression that a text value must match
    walked    False where a rule of the record checks what is inside the field
    """

    default: Default
    enum: str | tuple[str, ...]
    merge: str
    strategy: str
    list: str
    keys: str
    atomic: bool
    gated: bool
    pattern: str
    walked: bool


def record(
    name: str,
    members: str,
    /,
    *,
    rules: str = "",
    package: str = CORE,
    defaults: tuple[Filler, ...] = (),
    atomic: bool = False,
    **columns: Columns,
) -> ObjectType:
    """A type from its rows; `rules` as in ObjectType, blank-separated, and `package` as OpenAPI names it."""
    rows = [_row(member, package, columns) for member in members.split()]
    fields = {row.name: row for row in rows}
    return _registered(ObjectType(name, package + name, fields, tuple(rules.split()), defaults, atomic))


def extend(base: ObjectType, name: str, members: str) -> ObjectType:
    """A type with the rows of another, which protobuf holds in field 1, and some more of its own."""
    inner = {key: replace(row, number=f"1.{row.number}") for key, row in base.fields.items()}
    own = [_row(member, CORE, {}) for member in members.split()]
    fields = inner | {row.name: row for row in own}
    return _registered(ObjectType(name, CORE + name, fields, defaults=base.defaults))


def alike(base: str, name: str) -> ObjectType:
    """A type of the core package with the same rows as another."""
    return _registered(replace(TYPES[CORE + base], name=name, model=CORE + name))


def _registered(made: ObjectType) -> ObjectType:
    TYPES[made.model] = made
    return made


def _row(member: str, package: str, columns: Mapping[str, Columns]) -> FieldRow:
    parts = _MEMBER.fullmatch(member)
    assert parts, member
    name, shape = parts["name"], _shape(parts["shape"] or "string", package)
    more = columns.get(name, {})
    merge, enum = more.get("merge", ""), more.get("enum", ())
    strategy = more.get("strategy", "merge" if merge else "")
    kind = more.get("list", "map" if merge else "atomic" if isinstance(shape, ListType) else "")
    return FieldRow(
        name,
        shape,
        _PRESENCE[parts["mark"]],
        parts["number"] or "",
        optional=parts["mark"] == "+",
        default=more.get("default"),
        enum=tuple(enum.split()) if isinstance(enum, str) else enum,
        check=tuple(parts["checks"].split("|")) if parts["checks"] else (),
        merge=merge,
        strategy=tuple(strategy.split(",")) if strategy else (),
        list=kind,
        keys=tuple(more.get("keys", merge if kind == "map" else "").split()),
        atomic=more.get("atomic"),
        gated=more.get("gated", False),
        pattern=more.get("pattern", ""),
        walked=more.get("walked", True),
    )


def read_range(check: str) -> tuple[int | None, int | None] | None:
    """The bounds of a check like `1..65535` or `0..`; None of another check."""
    parts = _RANGE.fullmatch(check)
    return (int(parts[1]), int(parts[2]) if parts[2] else None) if parts else None


def read_length(check: str) -> int | None:
    """The limit of a check like `len<=64`; None of another check."""
    limit = check.rstrip("!").removeprefix("len<=")
    return int(limit) if limit.isdigit() else None


def _shape(word: str, package: str) -> Shape:
    """The shape that a word names; types are looked for in `package`, the core, `meta`, and by full name."""
    if word.startswith("[]"):
        return ListType(_shape(word[2:], package))
    if word.startswith("{}"):
        return MapType(_shape(word[2:], package))
    if word in SCALARS:
        return ScalarType(word, SCALARS[word])
    return next(TYPES[place + word] for place in (package, CORE, META, "") if place + word in TYPES)


record(
    "OwnerReference",
    "apiVersion!=5 kind!=1 name!=3 uid!=4 controller?:bool=6 blockOwnerDeletion?:bool=7",
    package=META,
    atomic=True,
)

record(
    "ManagedFieldsEntry",
    "manager=1 operation=2 apiVersion=3 time?:time=4 fieldsType=6 fieldsV1?:raw=7 subresource=8",
    package=META,
)

OBJECT_META = record(
    "ObjectMeta",
    "name=1 generateName=2 namespace=3 selfLink=4 uid=5 resourceVersion=6 generation:int64=7|0.. "
    "creationTimestamp?:time=8 deletionTimestamp?:time=9 deletionGracePeriodSeconds?:int64=10 "
    "labels:{}string=11|labels annotations:{}string=12 ownerReferences:[]OwnerReference=13 "
    "finalizers:[]string=14 managedFields?:[]ManagedFieldsEntry=17",
    package=META,
    ownerReferences=Columns(merge="uid"),
    finalizers=Columns(strategy="merge", list="set"),
)

LIST_META = record(
    "ListMeta", "selfLink=1 resourceVersion=2 remainingItemCount?:int64=4 continue=3", package=META
)

record(
    "LabelSelectorRequirement",
    "key!=1|qualified-name! operator!=2 values:[]string=3|label-value",
    rules="selector-operator",
    package=META,
)

record(
    "LabelSelector",
    "matchLabels:{}string=1|labels matchExpressions:[]LabelSelectorRequirement=2",
    package=META,
    atomic=True,
)

record("StatusCause", "reason=1 message=2 field=3", package=META)

record(
    "StatusDetails",
    "name=1 group=2 kind=3 uid=6 causes:[]StatusCause=4 retryAfterSeconds:int32=5",
    package=META,
)

STATUS = record(
    "Status",
    "apiVersion kind metadata+:ListMeta=1 status=2 message=3 reason=4 details?:StatusDetails=5 code:int32=6",
    package=META,
)

record("Preconditions", "uid?=1 resourceVersion?=2", package=META)

DELETE_OPTIONS = record(
    "DeleteOptions",
    "apiVersion kind gracePeriodSeconds?:int64=1 preconditions?:Preconditions=2 orphanDependents?:bool=3 "
    "propagationPolicy?=4 dryRun:[]string=5 ignoreStoreReadErrorWithClusterBreakingPotential?:bool=6",
    package=META,
)


def kind(name: str, members: str, /, *, package: str = CORE, **columns: Any) -> ObjectType:
    """A type that stands for itself in a request: apiVersion, kind and metadata before its own rows."""
    members = f"apiVersion kind metadata+:ObjectMeta=1 {members}"
    return record(name, members, package=package, metadata=Columns(walked=False), **columns)
