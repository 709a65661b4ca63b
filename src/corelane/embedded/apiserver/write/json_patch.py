"""JSON Patch (RFC 6902) as upstream's library carries it out, its liberties included.

Absent and null members read the same, `replace` may set a new member, and indexes may count from the end.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corelane.embedded.apiserver.codec.json_reading import Float
from corelane.embedded.apiserver.stored_objects import copied

MAX_COPIED = 3 * 1024 * 1024  # bytes that `copy` may add up to, lest a small patch makes a huge object


class PatchError(ValueError):
    """An operation cannot be carried out."""


@dataclass(slots=True)
class _Document:
    """A document under way."""

    root: Any


def apply(document: Any, operations: list[dict[str, Any]]) -> Any:
    """The document after the operations, one after the other; the one given stays. Raises PatchError."""
    holder = _Document(copied(document))
    bytes_copied = 0
    for operation in operations:
        kind = operation.get("op")
        if kind == "copy":
            bytes_copied += _copy(holder, operation)
            if bytes_copied > MAX_COPIED:
                raise PatchError(f"copied values are larger than {MAX_COPIED} bytes")
        elif kind in _OPERATIONS:
            _OPERATIONS[kind](holder, operation)
        else:
            raise PatchError(f"unexpected operation {kind!r}")
    return holder.root


def _add(holder: _Document, operation: dict[str, Any]) -> None:
    _insert(*_place(holder, _pointer(operation, "path")), copied(operation.get("value")))


def _remove(holder: _Document, operation: dict[str, Any]) -> None:
    _take(*_place(holder, _pointer(operation, "path")))


def _replace(holder: _Document, operation: dict[str, Any]) -> None:
    path, value = _pointer(operation, "path"), copied(operation.get("value"))
    if path == "":
        if not isinstance(value, dict | list):
            raise PatchError("a whole document is replaced by an object or an array only")
        holder.root = value
        return
    parent, key = _place(holder, path)
    _get(parent, key)
    if isinstance(parent, list):
        parent[_index(key, len(parent) - 1)] = value
    else:
        parent[key] = value


def _move(holder: _Document, operation: dict[str, Any]) -> None:
    value = _take(*_place(holder, _pointer(operation, "from")))
    _insert(*_place(holder, _pointer(operation, "path")), value)


def _copy(holder: _Document, operation: dict[str, Any]) -> int:
    value = copied(_get(*_place(holder, _pointer(operation, "from"))))
    _insert(*_place(holder, _pointer(operation, "path")), value)
    return len(json.dumps(value))


def _test(holder: _Document, operation: dict[str, Any]) -> None:
    path = _pointer(operation, "path")
    found = holder.root if path == "" else _get(*_place(holder, path))
    if not same(found, operation.get("value")):
        raise PatchError(f"testing value {path} failed")


_OPERATIONS: dict[str, Callable[[_Document, dict[str, Any]], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "test": _test,
}


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is not 1, and 1.0 is not either."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Float) or isinstance(other, Float):
        return getattr(one, "text", None) == getattr(other, "text", None)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _pointer(operation: dict[str, Any], name: str) -> str:
    path = operation.get(name)
    if not isinstance(path, str):
        raise PatchError(f"an operation has no {name}")
    return path


def _place(holder: _Document, path: str) -> tuple[Any, str]:
    """Return the container of the value that a pointer names, and the value's key in it."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    if len(parts) < 2:
        raise PatchError(f'the document has no path "{path}"')
    parent = holder.root
    for part in parts[1:-1]:
        parent = _get(parent, part)
        if not isinstance(parent, dict | list):
            raise PatchError(f'the document has no path "{path}"')
    return parent, parts[-1]


def _get(parent: Any, key: str) -> Any:
    return parent[_index(key, len(parent) - 1)] if isinstance(parent, list) else parent.get(key)


def _insert(parent: Any, key: str, value: Any) -> None:
    if isinstance(parent, list):
        parent.insert(len(parent) if key == "-" else _index(key, len(parent)), value)
    else:
        parent[key] = value


def _take(parent: Any, key: str) -> Any:
    if isinstance(parent, list):
        return parent.pop(_index(key, len(parent) - 1))
    if key not in parent:
        raise PatchError(f"unable to remove nonexistent key: {key}")
    return parent.pop(key)


def _index(key: str, last: int) -> int:
    """An array index between 0 and `last`; negative ones count from behind it."""
    digits = key.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise PatchError(f"value was not a proper array index: {key!r}")
    index = int(key) + (last + 1 if key.startswith("-") else 0)
    if not 0 <= index <= last:
        raise PatchError(f"unable to access invalid index: {key}")
    return index
