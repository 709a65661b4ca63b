"""JSON schemas of the kinds, made from the tables in `apiserver.schema`; the same for OpenAPI v2 and v3."""

from collections.abc import Iterator, Mapping
from typing import Any

from corelane.embedded.apiserver.openapi.descriptions import FIELDS, TYPES
from corelane.embedded.apiserver.schema.formats import PATTERNS
from corelane.embedded.apiserver.schema.notation import (
    FieldRow,
    ListType,
    MapType,
    ObjectType,
    ScalarType,
    Shape,
)
from corelane.embedded.apiserver.schema.object_meta import DELETE_OPTIONS, LIST_META, STATUS
from corelane.embedded.apiserver.served_kinds import BINDINGS, EVICTIONS, ServedKind

Schema = dict[str, Any]
GVK = dict[str, str]

V2_REFS = "#/definitions/"
V3_REFS = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SCALARS: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "text-or-null": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "bytes": {"type": "string", "format": "byte"},
    "object": {"type": "object"},
}
_QUANTITY = ("io.k8s.apimachinery.pkg.api.resource.Quantity", {"type": "string"})
_NAMED: Mapping[str, tuple[str, Schema]] = {
    "time": (f"{_META}Time", {"type": "string", "format": "date-time"}),
    "microtime": (f"{_META}MicroTime", {"type": "string", "format": "date-time"}),
    "raw": (f"{_META}FieldsV1", {"type": "object"}),
    "quantity": _QUANTITY,
    "amount": _QUANTITY,
    "int-or-string": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"type": "string", "format": "int-or-string"},
    ),
}
PATCH = f"{_META}Patch"
_SUBRESOURCE_BODIES = {"binding": BINDINGS, "eviction": EVICTIONS}


def model(kind: ServedKind, version: str) -> str:
    """The name of the kind's schema."""
    return kind.schema[version].model


def list_model(kind: ServedKind, version: str) -> str:
    """The name of the schema of a list of the kind."""
    return f"{model(kind, version)}List"


def body_kind(kind: ServedKind, subresource: str) -> ServedKind:
    """The kind that a subresource takes: some have one of their own."""
    return _SUBRESOURCE_BODIES.get(subresource, kind)


def gvk(kind: ServedKind, version: str, suffix: str = "") -> GVK:
    return {"group": kind.group, "kind": kind.kind + suffix, "version": version}


def definitions(kinds: list[tuple[ServedKind, str]], refs: str) -> dict[str, Schema]:
    """Every schema that the (kind, version) pairs need, by name; `refs` is the references' prefix."""
    found: dict[str, Schema] = {PATCH: {"type": "object", "description": "A patch, in one of its forms."}}
    for record in (STATUS, DELETE_OPTIONS, LIST_META):
        _add(record, found, refs)
    for kind, version in kinds:
        for member in (kind, *(body_kind(kind, name) for name in kind.subresources)):
            shown = version if member is kind else member.version
            _add(member.schema[shown], found, refs)
            found[model(member, shown)]["x-kubernetes-group-version-kind"] = [gvk(member, shown)]
        found[list_model(kind, version)] = _list_schema(kind, version, refs)
    return dict(sorted(found.items()))


def _list_schema(kind: ServedKind, version: str, refs: str) -> Schema:
    return {
        "description": f"A list of {kind.plural}.",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _described({"type": "string"}, FIELDS.get("apiVersion", "")),
            "items": {"type": "array", "items": {"$ref": refs + model(kind, version)}},
            "kind": _described({"type": "string"}, FIELDS.get("kind", "")),
            "metadata": {"$ref": refs + LIST_META.model},
        },
        "x-kubernetes-group-version-kind": [gvk(kind, version, "ListType")],
    }


def _add(record: ObjectType, found: dict[str, Schema], refs: str) -> None:
    """Put the schema of `record`, and of all that it consists of, into `found`."""
    if record.model in found:
        return
    found[record.model] = schema = _described({"type": "object"}, TYPES.get(record.name, ""))
    if record.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    required = [row.name for row in record if row.required]
    if required:
        schema["required"] = sorted(required)
    schema["properties"] = {row.name: _property(record, row, refs) for row in sorted(record, key=_by_name)}
    for inner in (leaf for row in record for leaf in _leaves(row.shape)):
        if isinstance(inner, ObjectType):
            _add(inner, found, refs)
        elif inner.name in _NAMED:
            name, named = _NAMED[inner.name]
            found[name] = named


def _by_name(row: FieldRow) -> str:
    return row.name


def _leaves(shape: Shape) -> Iterator[ObjectType | ScalarType]:
    if isinstance(shape, ListType):
        yield from _leaves(shape.item)
    elif isinstance(shape, MapType):
        yield from _leaves(shape.value)
    else:
        yield shape


def _property(record: ObjectType, row: FieldRow, refs: str) -> Schema:
    schema = _shape(row.shape, refs)
    text = FIELDS.get(f"{record.name}.{row.name}") or FIELDS.get(row.name, "")
    extra = _extras(row) | ({"description": text} if text else {})
    if extra and "$ref" in schema and refs == V3_REFS:
        schema = {
            "allOf": [schema]
        }  # beside a reference v3 reads nothing; of v2's clients some know no allOf
    return schema | extra


def _described(schema: Schema, text: str) -> Schema:
    return schema | ({"description": text} if text else {})


def _shape(shape: Shape, refs: str) -> Schema:
    if isinstance(shape, ListType):
        return {"type": "array", "items": _shape(shape.item, refs)}
    if isinstance(shape, MapType):
        return {"type": "object", "additionalProperties": _shape(shape.value, refs)}
    if isinstance(shape, ObjectType):
        return {"$ref": refs + shape.model}
    if shape.name in _NAMED:
        return {"$ref": refs + _NAMED[shape.name][0]}
    return dict(_SCALARS[shape.name])


def _extras(row: FieldRow) -> Schema:
    """Return a row's members beside its type: defaults, choices, and how lists and maps merge."""
    members: Schema = {
        "default": None if callable(row.default) else row.default,
        "enum": list(row.enum) or None,
        "x-kubernetes-list-type": row.list or None,
        "x-kubernetes-list-map-keys": list(row.keys) if row.list == "map" else None,
        "x-kubernetes-map-type": None if row.atomic is None else "atomic" if row.atomic else "granular",
        "x-kubernetes-patch-merge-key": row.merge or None,
        "x-kubernetes-patch-strategy": ",".join(row.strategy) or None,
    }
    return {key: value for key, value in (members | _limits(row)).items() if value is not None}


def _limits(row: FieldRow) -> Schema:
    """Return a row's range, length and pattern; where zero counts as unset it is valid, too."""
    low, high = row.range
    if not isinstance(row.shape, ScalarType):
        return {}
    optional = row.presence == "val" and "required" not in row.check
    pattern = next((PATTERNS[name] for name in row.check if name in PATTERNS), None)
    return {
        "minimum": min(low, 0) if optional and low is not None else low,
        "maximum": high,
        "maxLength": row.longest,
        "pattern": row.pattern or (pattern and f"^({pattern})?$" if optional else pattern and f"^{pattern}$"),
    }
