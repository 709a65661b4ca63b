"""Plain JSON values to objects by the tables: what Go's strict, case-sensitive decoder does for upstream.

Values are checked against their rows, zero values that Go would leave out are left out, those it always
writes are filled in, quantities and times get their canonical text. Unknown and repeated fields are noted.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from corelane import quantity
from corelane.embedded.apiserver.codec import go_time, go_types
from corelane.embedded.apiserver.codec.go_time import TimeError
from corelane.embedded.apiserver.codec.json_reading import Float, pairs
from corelane.embedded.apiserver.schema.notation import (
    FieldRow,
    ListType,
    MapType,
    ObjectType,
    ScalarType,
    Shape,
)

MAX_STRICT_ERRORS = 100  # upstream stops counting there
_INT_BOUNDS = {"int32": 2**31, "int64": 2**63}
_SELF_READING = frozenset({"amount", "int-or-string", "microtime", "quantity", "time"})
_LAYOUTS = {"time": go_time.SECONDS, "microtime": go_time.MICROSECONDS}


class DecodeError(ValueError):
    """A value does not fit its row; the message is Go's."""


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


# Where a value stands: around what, in which type (none in lists and maps), under which name or number.
_At: TypeAlias = "tuple[_At, str, str | int] | None"


def _path(at: _At) -> str:
    """Return the path as in strict faults: `spec.containers[0].name`."""
    steps: list[str] = []
    while at:
        at, _, step = at
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(steps)).removeprefix(".")


def _type(shape: Shape, at: _At) -> str:
    """Return the Go type of what stands there."""
    depth = 0
    while at and not at[1]:
        at, depth = at[0], depth + 1
    return go_types.name(shape, at[1] if at else "", str(at[2]) if at else "", depth)


def _place(at: _At) -> str:
    """Return the place as in Go's messages: the innermost type, and the names without positions and keys."""
    owner, names = "", []
    while at:
        at, record, step = at
        if record:
            owner = owner or record
            names.append(str(step))
            if within := go_types.inlined(record, str(step)):
                names.append(within)
    return f"Go struct field {owner}.{'.'.join(reversed(names))}" if names else "Go value"


def decode(record: ObjectType, tree: Any, notes: StrictNotes) -> dict[str, Any]:
    """Read one object of a type. Raises DecodeError; what is unknown or repeated goes into `notes`."""
    try:
        return _record(record, tree, None, notes)
    except DecodeError:
        raise _reported(record, tree) from None


def _reported(record: ObjectType, tree: Any) -> DecodeError:
    """Return the fault that Go's decoder reports: the first that ends its reading, else the first of all."""
    first = None
    for fault, final in _faults(record, tree, None):
        if final:
            return fault
        first = first or fault
    assert first
    return first


def _faults(shape: Shape, tree: Any, at: _At) -> Iterator[tuple[DecodeError, bool]]:
    """Every fault in the order of reading, and whether it ends that: those of types with their own reader."""
    if isinstance(shape, ScalarType):
        try:
            _SCALARS[shape.name](shape, tree, at)
        except DecodeError as error:
            yield error, shape.name in _SELF_READING
    elif tree is None:
        return
    elif isinstance(shape, ListType) and isinstance(tree, list):
        for position, item in enumerate(tree):
            yield from _faults(shape.item, item, (at, "", position))
    elif isinstance(shape, ListType) or not isinstance(tree, dict):
        yield _mismatch(shape, tree, at), False
    elif isinstance(shape, MapType):
        for name, value in pairs(tree):
            yield from _faults(shape.value, value, (at, "", name))
    else:
        for name, value in pairs(tree):
            if row := shape.fields.get(name):
                yield from _faults(row.shape, value, (at, shape.name, name))


def leaf(shape: ScalarType, tree: Any) -> Any:
    """Read one value by itself, which belongs to no field. Raises DecodeError."""
    return _SCALARS[shape.name](shape, tree, None)


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
    return _list(shape, tree, at, notes) if isinstance(shape, ListType) else _map(shape, tree, at, notes)


def _record(record: ObjectType, tree: Any, at: _At, notes: StrictNotes) -> dict[str, Any]:
    if tree is None:
        return dict(zero(record))
    if not isinstance(tree, dict):
        raise _mismatch(record, tree, at)
    made: dict[str, Any] = {}
    rows = record.fields
    for name, value in pairs(tree):
        inner = (at, record.name, name)
        row = rows.get(name)
        if row is None:
            notes.unknown(_path(inner))
            continue
        if name in made:
            notes.duplicate(_path(inner))
        _put(made, row, None if value is None else _value(row.shape, value, inner, notes))
    for row in record.always:
        if made.get(row.name) is None:
            made[row.name] = zero(row.shape)
    return {name: made[name] for name in rows if name in made and not _left_out(rows[name], made[name])}


def _put(made: dict[str, Any], row: FieldRow, value: Any) -> None:
    before = made.get(row.name)
    if isinstance(before, dict) and isinstance(value, dict):
        value = {**before, **value}  # Go decodes a repeated object into the one it has
    made[row.name] = value


def _left_out(row: FieldRow, value: Any) -> bool:
    return row.gated or (row.presence != "req" and is_zero(row, value))


def _list(shape: ListType, tree: Any, at: _At, notes: StrictNotes) -> list[Any]:
    if not isinstance(tree, list):
        raise _mismatch(shape, tree, at)
    return [_value(shape.item, item, (at, "", position), notes) for position, item in enumerate(tree)]


def _map(shape: MapType, tree: Any, at: _At, notes: StrictNotes) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise _mismatch(shape, tree, at)
    made: dict[str, Any] = {}
    for name, value in pairs(tree):
        inner = (at, "", name)
        if name in made:
            notes.duplicate(_path(inner))
        made[name] = _value(shape.value, value, inner, notes)
    return made


def _string(shape: ScalarType, tree: Any, at: _At) -> str:
    if tree is None or isinstance(tree, str):
        return tree or ""
    raise _mismatch(shape, tree, at)


def _text_or_null(shape: ScalarType, tree: Any, at: _At) -> str | None:
    return None if tree is None else _string(shape, tree, at)


def _bool(shape: ScalarType, tree: Any, at: _At) -> bool:
    if tree is None or isinstance(tree, bool):
        return bool(tree)
    raise _mismatch(shape, tree, at)


def _int(shape: ScalarType, tree: Any, at: _At) -> int:
    bound = _INT_BOUNDS[shape.name]
    if tree is None:
        return 0
    if isinstance(tree, int) and not isinstance(tree, bool) and -bound <= tree < bound:
        return tree
    raise _mismatch(shape, tree, at)


def _quantity(_shape: ScalarType, tree: Any, _at: _At) -> str:
    if tree is None:
        return "0"
    text = tree.strip() if isinstance(tree, str) else _number_text(tree)
    try:
        return quantity.canonical(text)
    except quantity.QuantityError as error:
        raise DecodeError(str(error)) from None


def _amount(shape: ScalarType, tree: Any, at: _At) -> str:
    return quantity.rounded_to_milli(quantity.parse(_quantity(shape, tree, at))).text


def _number_text(tree: Any) -> str:
    if isinstance(tree, Float):
        return tree.text
    return str(tree) if isinstance(tree, int) and not isinstance(tree, bool) else "?"


def _time(shape: ScalarType, tree: Any, at: _At) -> str | None:
    if tree is None:
        return None
    if not isinstance(tree, str):
        raise _mismatch(shape, tree, at)
    try:
        return go_time.canonical(tree, _LAYOUTS[shape.name])
    except TimeError as error:
        raise DecodeError(str(error)) from None


def _int_or_string(shape: ScalarType, tree: Any, at: _At) -> int | str:
    if isinstance(tree, str):
        return tree
    if tree is None or (isinstance(tree, int) and not isinstance(tree, bool) and -(2**31) <= tree < 2**31):
        return tree or 0
    raise _mismatch(shape, tree, at)


def _bytes(shape: ScalarType, tree: Any, at: _At) -> str:
    if tree is None:
        return ""
    if isinstance(tree, list):
        return _bytes_of(tree, at)
    if not isinstance(tree, str):
        raise _mismatch(shape, tree, at)
    try:
        raw = base64.b64decode(tree.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError(f"illegal base64 data at input byte {_first_bad(tree)}") from None
    return base64.b64encode(raw).decode()


def _bytes_of(tree: list[Any], at: _At) -> str:
    """Go also takes the numbers of the bytes."""
    for item in tree:
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < 256:
            raise _mismatch(ScalarType("uint8", 0), item, at)
    return base64.b64encode(bytes(tree)).decode()


def _first_bad(text: str) -> int:
    """The position that Go's decoder names: a letter's, or the beginning of groups that are too short."""
    group: list[int] = []
    for position, letter in enumerate(text):
        if letter in "\r\n":
            continue
        if letter == "=":
            return _bad_padding(text, position, len(group))
        if not (letter.isascii() and (letter.isalnum() or letter in "+/")):
            return position
        group = [*group, position] if len(group) < 4 else [position]
    return group[0] if group else len(text)


def _bad_padding(text: str, position: int, before: int) -> int:
    """As `_first_bad`, for what follows `before` letters of the last group."""
    if before % 4 < 2:
        return position
    rest = [at for at in range(position + 1, len(text)) if text[at] not in "\r\n"]
    if before == 2:
        if not rest:
            return len(text)
        if text[rest[0]] != "=":
            return rest[0] - 1
        rest = rest[1:]
    return rest[0] if rest else len(text)


def _raw(_shape: ScalarType, tree: Any, _at: _At) -> Any:
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
}


def _mismatch(shape: Shape, tree: Any, at: _At) -> DecodeError:
    found = json_type(tree)
    if found == "number" and isinstance(shape, ScalarType) and shape.name in {*_INT_BOUNDS, "int-or-string"}:
        found = f"number {_number_text(tree)}"
    return DecodeError(f"json: cannot unmarshal {found} into {_place(at)} of type {_type(shape, at)}")


def json_type(tree: Any) -> str:
    """Return Go's name of a JSON value's type."""
    if isinstance(tree, bool):
        return "bool"
    if isinstance(tree, int | float):
        return "number"
    return {str: "string", list: "array", type(None): "null"}.get(type(tree), "object")
