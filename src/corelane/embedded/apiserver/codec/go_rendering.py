"""Objects as upstream's internal Go types show in error texts: all fields, by Go name, in Go's order."""

import difflib
import json
from decimal import Decimal
from typing import Any

from corelane.embedded.apiserver.codec import go_types
from corelane.embedded.apiserver.codec.json_reading import Float
from corelane.embedded.apiserver.schema.notation import (
    META,
    FieldRow,
    ListType,
    MapType,
    ObjectType,
    ScalarType,
    Shape,
)

_HOST = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
_NOT_INTERNAL = {"PodSpec": {*_HOST, "serviceAccount"}, "PodStatus": {"podIP"}, "NodeSpec": {"podCIDR"}}
_HTML = str.maketrans(
    {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_CONTEXT = 3
_COMPARED = 4000  # lines; in more, looking for what is alike takes too long


def html_escaped(text: str) -> str:
    """JSON with HTML's own characters as escapes, as Go writes it."""
    return text.translate(_HTML)


def printed(value: Any) -> str:
    """Return a JSON value as `%+v` prints what Go has read it into."""
    if isinstance(value, dict):
        members = " ".join(f"{name}:{printed(value[name])}" for name in sorted(value))
        return f"map[{members}]"
    if isinstance(value, list):
        return f"[{' '.join(map(printed, value))}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    whole = isinstance(value, int) and -(2**63) <= value < 2**63
    return value if isinstance(value, str) else str(value) if whole else _float(float(value))


def _float(number: float) -> str:
    """As few digits as tell the number apart, with an exponent below -4 and from 6 on."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first = exponent + len(digits) - 1
    if -4 <= first < 6:
        return f"{Decimal((sign, digits, exponent)):f}"
    text = "".join(map(str, digits))
    fraction = f".{text[1:]}" if len(text) > 1 else ""
    return f"{'-' * sign}{text[0]}{fraction}e{'-' if first < 0 else '+'}{abs(first):02d}"


def compact(value: Any) -> str:
    """Return a JSON value as Go writes what it has taken over from a text: numbers as they stood there."""
    if isinstance(value, dict):
        members = (f"{compact(name)}:{compact(item)}" for name, item in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(compact, value))}]"
    return value.text if isinstance(value, Float) else html_escaped(json.dumps(value, ensure_ascii=False))


def as_written(shape: Shape, value: Any) -> Any:
    """Return a decoded value with its members in the order in which Go writes them: maps by their keys."""
    if isinstance(shape, ObjectType) and isinstance(value, dict):
        first = ("kind", "apiVersion") if "metadata" in shape.fields else ()
        order = (*first, *go_types.written_order(shape))
        names = dict.fromkeys(name for name in (*order, *value) if name in value)
        rows = shape.fields
        return {
            name: as_written(rows[name].shape, value[name]) if name in rows else value[name] for name in names
        }
    if isinstance(shape, ListType) and isinstance(value, list):
        return [as_written(shape.item, item) for item in value]
    if isinstance(shape, MapType) and isinstance(value, dict):
        return {name: as_written(shape.value, value[name]) for name in sorted(value)}
    return value


def rendered(record: ObjectType, obj: dict[str, Any]) -> dict[str, Any]:
    """The object as its internal type marshals; metadata types, which have JSON names there, as they are."""
    if record.model.startswith(META):
        return {row.name: _shape(row.shape, obj[row.name]) for row in record if row.name in obj}
    skipped = _NOT_INTERNAL.get(record.name, set())
    shown = {row.go: field(row, obj.get(row.name)) for row in record if row.name not in skipped}
    if record.name == "PodSpec" and shown["SecurityContext"] is not None:
        shown["SecurityContext"] = {**_host_fields(record, obj), **shown["SecurityContext"]}
    return shown


def difference(record: ObjectType, old: dict[str, Any], new: dict[str, Any]) -> str:
    """A unified diff of two objects, as upstream puts it into a message."""
    before, after = _lines(record, old), _lines(record, new)
    if len(before) + len(after) > _COMPARED:
        return _block(before, after)
    lines = difflib.unified_diff(before, after, n=_CONTEXT)
    return "".join(list(lines)[2:])


def _block(before: list[str], after: list[str]) -> str:
    """A difference in one piece, from the first line that differs to the last."""
    first = _alike(before, after)
    shortest = min(len(before), len(after)) - first
    last = min(_alike(before[::-1], after[::-1]), shortest)
    start = max(first - _CONTEXT, 0)
    lead, tail = before[start:first], before[len(before) - last :][:_CONTEXT]
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    around = len(lead) + len(tail)
    head = f"@@ -{start + 1},{len(old) + around} +{start + 1},{len(new) + around} @@\n"
    marked = [("-", old), ("+", new)]
    changes = [f"{mark}{line}" for mark, lines in marked for line in lines]
    return "".join((head, *(f" {line}" for line in lead), *changes, *(f" {line}" for line in tail)))


def _alike(one: list[str], other: list[str]) -> int:
    """Return the number of equal lines from the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _lines(record: ObjectType, obj: dict[str, Any]) -> list[str]:
    text = html_escaped(json.dumps(rendered(record, obj), indent=1, ensure_ascii=False))
    return [f"{line}\n" for line in text.split("\n")]


def _host_fields(record: ObjectType, obj: dict[str, Any]) -> dict[str, Any]:
    rows = (record.fields[name] for name in _HOST)
    return {row.go: field(row, obj.get(row.name)) for row in rows}


def field(row: FieldRow, value: Any) -> Any:
    """Return a field's value as its internal type marshals, zero values too."""
    if value is None and row.presence != "opt" and isinstance(row.shape, ScalarType):
        return row.shape.zero
    if value is None and row.presence == "req" and isinstance(row.shape, ObjectType):
        return rendered(row.shape, {})
    return _shape(row.shape, value)


def _shape(shape: Shape, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(shape, ObjectType):
        return rendered(shape, value)
    if isinstance(shape, ListType):
        return [_shape(shape.item, item) for item in value]
    if isinstance(shape, MapType):
        return {name: _shape(shape.value, value[name]) for name in sorted(value)}
    return value
