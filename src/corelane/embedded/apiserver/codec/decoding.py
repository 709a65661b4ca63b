"""Plain JSON values to objects by the tables.

Values are checked against their rows, zero values that Go would leave out are left out, those it always
writes are filled in, quantities and times get their canonical text. Unknown and repeated fields are noted.
What upstream serves as a custom resource is kept as sent, but for fields unknown to its schema: validation
checks its types, in kube-openapi's words; only its metadata is decoded as that of any kind.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from corelane import quantity
from corelane.embedded.apiserver.codec.json_and_yaml import Float, RepeatedKeys, pairs
from corelane.embedded.apiserver.schema.notation import (
    OBJECT_META,
    FieldRow,
    ListType,
    ObjectType,
    ScalarType,
    Shape,
)

MAX_STRICT_ERRORS: Final = 100  # as upstream
_INT_BOUNDS: Final = {"int32": 2**31, "int64": 2**63}
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_SHOWN: Final = 60
"""Characters of a refused value in a message."""
_At: TypeAlias = "tuple[_At, str | int] | None"
"""Where a value stands: around what, under which name or position."""
_WRITTEN_OUT = 1e21  # Go writes smaller floats without an exponent, and those without a fraction as integers
_ENVELOPE = ("apiVersion", "kind", "metadata")


class DecodeError(ValueError):
    """A value does not fit its field; the message has the field, the value and what is expected."""


@dataclass(slots=True)
class StrictNotes:
    """Faults that a strict decoder refuses: `unknown field "spec.x"`, `duplicate field "data.a"`."""

    strict: list[str] = field(default_factory=list)

    def unknown(self, path: str) -> None:
        self.add(f'unknown field "{path}"')

    def duplicate(self, path: str) -> None:
        self.add(f'duplicate field "{path}"')

    def add(self, text: str) -> None:
        if len(self.strict) < MAX_STRICT_ERRORS and text not in self.strict:
            self.strict.append(text)


def _path(at: _At) -> str:
    """Return the path of a field: `spec.containers[0].name`."""
    steps: list[str] = []
    while at:
        at, step = at
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


def decode(record: ObjectType, tree: Any, notes: StrictNotes) -> dict[str, Any]:
    """Read one object of a type. Raises DecodeError; what is unknown or repeated goes into `notes`."""
    return _record(record, tree, None, notes)


def zero(shape: Shape) -> Any:
    """Return Go's zero value of a type, which a `req` row writes when the field is absent."""
    if isinstance(shape, ObjectType):
        return {row.name: zero(row.shape) for row in shape.always}
    return shape.zero if isinstance(shape, ScalarType) else None


def is_zero(row: FieldRow, value: Any) -> bool:
    """Whether Go leaves the value out of a `val` row."""
    return value is None or (row.presence == "val" and not value and not isinstance(row.shape, ObjectType))


def _value(shape: Shape, tree: Any, at: _At, notes: StrictNotes) -> Any:
    if isinstance(shape, ScalarType):
        return _SCALARS[shape.name](shape, tree, at)
    if isinstance(shape, ObjectType):
        return _record(shape, tree, at, notes)
    if tree is None:
        return None
    if isinstance(shape, ListType):
        if not isinstance(tree, list):
            raise _mismatch("a list", tree, at)
        return [_value(shape.item, item, (at, position), notes) for position, item in enumerate(tree)]
    if not isinstance(tree, dict):
        raise _mismatch("an object", tree, at)
    made: dict[str, Any] = {}
    for name, value in pairs(tree):
        inner = (at, name)
        if name in made:
            notes.duplicate(_path(inner))
        made[name] = _value(shape.value, value, inner, notes)
    return made


def _record(record: ObjectType, tree: Any, at: _At, notes: StrictNotes) -> dict[str, Any]:
    if tree is None:
        return dict(zero(record))
    if not isinstance(tree, dict):
        raise _mismatch("an object", tree, at)
    made: dict[str, Any] = {}
    rows = record.fields
    for name, value in pairs(tree):
        inner = (at, name)
        row = rows.get(name)
        if row is None:
            notes.unknown(_path(inner))
            continue
        if name in made:
            notes.duplicate(_path(inner))
        before, decoded = made.get(name), None if value is None else _value(row.shape, value, inner, notes)
        if isinstance(before, dict) and isinstance(decoded, dict):
            decoded = {**before, **decoded}  # Go decodes a repeated object into the one it has
        made[name] = decoded
    for row in record.always:
        if made.get(row.name) is None:
            made[row.name] = zero(row.shape)
    return {
        name: made[name]
        for name, row in rows.items()
        if name in made and not (row.gated or (row.presence != "req" and is_zero(row, made[name])))
    }


def _string(_shape: ScalarType, tree: Any, at: _At) -> str:
    if tree is None or isinstance(tree, str):
        return tree or ""
    raise _mismatch("a string", tree, at)


def _text_or_null(shape: ScalarType, tree: Any, at: _At) -> str | None:
    return None if tree is None else _string(shape, tree, at)


def _bool(_shape: ScalarType, tree: Any, at: _At) -> bool:
    if tree is None or isinstance(tree, bool):
        return bool(tree)
    raise _mismatch("true or false", tree, at)


def _int(shape: ScalarType, tree: Any, at: _At) -> int:
    bound = _INT_BOUNDS[shape.name]
    if tree is None:
        return 0
    if isinstance(tree, int) and not isinstance(tree, bool) and -bound <= tree < bound:
        return tree
    raise _mismatch(f"an integer from {-bound} to {bound - 1}", tree, at)


def _quantity(_shape: ScalarType, tree: Any, at: _At) -> str:
    if tree is None:
        return "0"
    try:
        return quantity.canonical(tree.strip() if isinstance(tree, str) else _number_text(tree))
    except quantity.QuantityError:
        raise _mismatch("a quantity such as 500m, 2 or 1Gi", tree, at) from None


def _amount(shape: ScalarType, tree: Any, at: _At) -> str:
    return quantity.rounded_to_milli(quantity.parse(_quantity(shape, tree, at))).text


def _number_text(tree: Any) -> str:
    if isinstance(tree, Float):
        return tree.text
    return str(tree) if isinstance(tree, int | float) and not isinstance(tree, bool) else "?"


def _time(shape: ScalarType, tree: Any, at: _At) -> str | None:
    """Read a time in RFC 3339: in UTC to the second or microsecond, None for Go's zero time."""
    if tree is None:
        return None
    micro = shape.name == "microtime"
    text = _canonical_time(tree, micro=micro) if isinstance(tree, str) else None
    if text is None:
        example = "2026-01-02T03:04:05.000000Z" if micro else "2026-01-02T03:04:05Z"
        raise _mismatch(f"a time in RFC 3339 such as {example}", tree, at)
    return None if text.startswith("0001-01-01T00:00:00") else text


def _canonical_time(text: str, *, micro: bool) -> str | None:
    match = _TIME.fullmatch(text)
    if match is None or (micro and len(match[2] or "") != 6):
        return None
    try:
        moment = datetime.fromisoformat(f"{match[1]}{match[3]}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return f"{moment.replace(tzinfo=None).isoformat()}{f'.{match[2]}' if micro else ''}Z"


def _int_or_string(_shape: ScalarType, tree: Any, at: _At) -> int | str:
    if isinstance(tree, str):
        return tree
    if tree is None or (isinstance(tree, int) and not isinstance(tree, bool) and -(2**31) <= tree < 2**31):
        return tree or 0
    raise _mismatch("an integer or a string", tree, at)


def _bytes(_shape: ScalarType, tree: Any, at: _At) -> str:
    if tree is None:
        return ""
    try:
        if isinstance(tree, list):
            return base64.b64encode(bytes(tree)).decode()  # Go also takes the numbers of the bytes
        if isinstance(tree, str):
            raw = base64.b64decode(tree.replace("\r", "").replace("\n", ""), validate=True)
            return base64.b64encode(raw).decode()
    except (binascii.Error, TypeError, ValueError):
        pass
    raise DecodeError(f"{_path(at)}: got {json_type(tree)} that is not base64, expected base64")


def _raw(_shape: ScalarType, tree: Any, _at: _At) -> Any:
    return tree


def _object(_shape: ScalarType, tree: Any, at: _At) -> dict[str, Any] | None:
    if tree is not None and not isinstance(tree, dict):
        raise _mismatch("an object", tree, at)
    return tree


_SCALARS: dict[str, Callable[[ScalarType, Any, _At], Any]] = {
    "string": _string,
    "text-or-null": _text_or_null,
    "bool": _bool,
    "int32": _int,
    "int64": _int,
    "quantity": _quantity,
    "amount": _amount,
    "time": _time,
    "microtime": _time,
    "int-or-string": _int_or_string,
    "bytes": _bytes,
    "raw": _raw,
    "object": _object,
}


def _mismatch(expected: str, tree: Any, at: _At) -> DecodeError:
    return DecodeError(f"{_path(at) or 'the object'}: got {shown(tree)}, expected {expected}")


def shown(tree: Any) -> str:
    """Return a JSON value as messages show it: its type, and its text where it is not a list or object."""
    if isinstance(tree, dict | list):
        return json_type(tree)
    if tree is None or isinstance(tree, bool):
        return {None: "null", True: "true", False: "false"}[tree]
    text = f'"{tree}"' if isinstance(tree, str) else _number_text(tree)
    return f"{json_type(tree)} {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…'}"


def json_type(tree: Any) -> str:
    """Return the name of a JSON value's type."""
    if isinstance(tree, bool):
        return "boolean"
    if isinstance(tree, int | float):
        return "number"
    return {str: "string", list: "list", type(None): "null"}.get(type(tree), "object")


def decode_custom(record: ObjectType, tree: Any, notes: StrictNotes) -> dict[str, Any]:
    """Read one custom object. Raises DecodeError where its metadata is not metadata."""
    inside = StrictNotes()
    metadata = decode(OBJECT_META, tree.get("metadata"), inside)
    for text in inside.strict:
        notes.add(text.replace('"', '"metadata.', 1))
    unknown: list[str] = []
    made = {name: value for name, value in tree.items() if name not in _ENVELOPE}
    made = prune_custom(record, made, unknown)
    for path in sorted(unknown):
        notes.unknown(path)
    return {**made, "metadata": metadata}


def prune_custom(record: ObjectType, obj: dict[str, Any], unknown: list[str] | None = None) -> dict[str, Any]:
    """The object without nulls and without fields its schema does not name, whose paths go to `unknown`."""
    pruned = _pruned_custom(record, obj, "", [] if unknown is None else unknown)
    assert isinstance(pruned, dict)
    return pruned


def _pruned_custom(shape: Shape | None, value: Any, path: str, unknown: list[str]) -> Any:
    """`shape` None is what no schema describes; a value of another type than the schema's has no fields."""
    kind = type(value)
    if kind is str or kind is int:
        return value
    if isinstance(value, dict):
        rows = shape.fields if isinstance(shape, ObjectType) else {}
        within = f"{path}." if path else ""
        members = {}
        for name, item in value.items():
            row = rows.get(name)
            if row is None:
                unknown.append(f"{within}{name}")
            elif type(item) is str:
                members[name] = item
            elif item is not None:
                members[name] = _pruned_custom(row.shape, item, f"{within}{name}", unknown)
        return members
    if isinstance(value, list):
        inner = shape.item if isinstance(shape, ListType) else None
        return [_pruned_custom(inner, item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return plain_values(value)


def plain_values(tree: Any) -> Any:
    """A tree of the reader's as JSON's own types, as an encoder takes them."""
    kind = type(tree)
    if kind is str or kind is int:
        return tree
    if isinstance(tree, Float):
        return int(tree) if tree.is_integer() and abs(tree) < _WRITTEN_OUT else float(tree)
    if isinstance(tree, list):
        return [plain_values(item) for item in tree]
    if isinstance(tree, dict):
        return {name: plain_values(item) for name, item in tree.items()}
    return tree


def note_repeats(tree: Any, path: str, notes: StrictNotes) -> None:
    """Note the repeated keys anywhere in a tree."""
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            if isinstance(item, dict | list):
                note_repeats(item, f"{path}[{index}]", notes)
    elif isinstance(tree, dict):
        repeats, seen = isinstance(tree, RepeatedKeys), set()
        for name, item in pairs(tree):
            if repeats or isinstance(item, dict | list):
                where = f"{path}.{name}" if path else name
                if name in seen:
                    notes.duplicate(where)
                seen.add(name)
                note_repeats(item, where, notes)
