"""Values after a strategic merge patch, as apimachinery's FromUnstructured turns them into fields.

Upstream does not write them as JSON to read that: numbers without a fraction are integers, too large ones
lose their upper bits, the first fault is the first in the order of the type's fields, in words of its own.
Source: apimachinery's `pkg/runtime/converter.go`.
"""

from typing import Any

from corelane.embedded.apiserver.codec import decoding, go_types
from corelane.embedded.apiserver.codec.decoding import DecodeError
from corelane.embedded.apiserver.schema.notation import ListType, MapType, ObjectType, ScalarType, Shape

_BITS = {"int32": 32, "int64": 64}
_GO_KINDS = {"string": "string", "text-or-null": "string", "bool": "bool", "int32": "int32", "int64": "int64"}
_LEAST_INT = -(2**63)


def restore(shape: ObjectType, tree: dict[str, Any]) -> dict[str, Any]:
    """Return the values as the decoder reads them without a fault of type. Raises DecodeError."""
    made = dict(tree)
    for row in shape:
        if made.get(row.name) is not None:
            made[row.name] = _value(row.shape, made[row.name], shape.name, row.name, 0)
    return made


def _value(shape: Shape, tree: Any, owner: str, field: str, depth: int) -> Any:
    if tree is None:
        return None
    if isinstance(shape, ScalarType):
        return _scalar(shape, tree, owner, field, depth)
    if isinstance(shape, ListType):
        if not isinstance(tree, list):
            raise DecodeError(f"cannot restore slice from {_kind(tree)}")
        return [_value(shape.item, item, owner, field, depth + 1) for item in tree]
    if not isinstance(tree, dict):
        what = "map from" if isinstance(shape, MapType) else "struct from:"
        raise DecodeError(f"cannot restore {what} {_kind(tree)}")
    if isinstance(shape, MapType):
        return {name: _value(shape.value, item, owner, field, depth + 1) for name, item in tree.items()}
    return restore(shape, tree)


def _scalar(shape: ScalarType, tree: Any, owner: str, field: str, depth: int) -> Any:
    if shape.name == "raw":
        return tree
    if shape.name == "bytes":
        return _bytes(shape, tree)
    kind = _GO_KINDS.get(shape.name)
    if kind is None:
        return _self_read(shape, tree)
    if kind in _BITS and isinstance(tree, int | float) and not isinstance(tree, bool):
        if tree == int(tree):
            return _wrapped(int(tree), _BITS[kind])
    elif _kind(tree) == kind:
        return tree
    if (kind in _BITS and isinstance(tree, float)) or (kind == "string" and _kind(tree) == "int64"):
        raise DecodeError(f"cannot convert {_kind(tree)} to {go_types.name(shape, owner, field, depth)}")
    raise DecodeError(f"unrecognized type: {kind}")


def _self_read(shape: ScalarType, tree: Any) -> Any:
    """Types with their own reader get JSON, and do not know which field it is for."""
    decoding.leaf(shape, tree)
    return tree


def _bytes(shape: ScalarType, tree: Any) -> Any:
    if isinstance(tree, str):
        try:
            return decoding.leaf(shape, tree)
        except DecodeError as error:
            raise DecodeError(f"error decoding from json: {error}") from None
    if not isinstance(tree, list):
        raise DecodeError(f"cannot restore slice from {_kind(tree)}")
    return [_octet(item) for item in tree]


def _octet(tree: Any) -> int:
    if tree is None:
        return 0
    if isinstance(tree, float) and not tree.is_integer():
        raise DecodeError("cannot convert float64 to uint8")
    if isinstance(tree, int | float) and not isinstance(tree, bool):
        return int(tree) % 256
    raise DecodeError("unrecognized type: uint8")


def _wrapped(number: int, bits: int) -> int:
    """Return what is left of a number in so many bits, as a conversion in Go leaves it."""
    if not -(2**63) <= number < 2**63:
        number = _LEAST_INT
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def _kind(tree: Any) -> str:
    """Return Go's kind of a JSON value."""
    if isinstance(tree, bool):
        return "bool"
    if isinstance(tree, int):
        return "int64" if -(2**63) <= tree < 2**63 else "float64"
    if isinstance(tree, float):
        return "float64"
    if isinstance(tree, str):
        return "string"
    return "slice" if isinstance(tree, list) else "map"
