"""Strategic merge patch: lists of objects merge by the keys that the tables name.

Directives: `$patch` (replace, delete), `$retainKeys`, `$setElementOrder/x`, `$deleteFromPrimitiveList/x`.
The merge, and above all the order of merged lists, is that of apimachinery's `pkg/util/strategicpatch`.
"""

import json
from collections import deque
from collections.abc import Hashable
from typing import Any

from corelane.embedded.apiserver.codec.decoding import shown
from corelane.embedded.apiserver.schema.notation import FieldRow, ListType, MapType, ObjectType, Shape
from corelane.embedded.apiserver.stored_objects import copied

PATCH = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder/"
DELETE = "$deleteFromPrimitiveList/"


class StrategicError(ValueError):
    """A patch cannot be merged; `code` is the HTTP status upstream answers."""

    def __init__(self, message: str, code: int = 500) -> None:
        super().__init__(message)
        self.code = code


def merge(record: ObjectType, original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The object after the patch; `original` stays as it is, `patch` is used up. Raises StrategicError."""
    return _merge_map(copied(original), patch, record)


def _merge_map(original: dict[str, Any], patch: dict[str, Any], shape: Shape | None) -> dict[str, Any]:
    if PATCH in patch:
        if patch[PATCH] == "replace":
            del patch[PATCH]
            return patch
        if patch[PATCH] == "delete":
            return {}
        raise _unknown(patch[PATCH])
    _retain(original, patch)
    for name in [name for name in patch if name.startswith(ORDER)]:
        _merge_ordered(original, patch, name, shape)
    for name, value in patch.items():
        if name.startswith(DELETE):
            member = name.removeprefix(DELETE)
            if isinstance(original.get(member), list) and isinstance(value, list):
                gone = set(map(_token, value))
                original[member] = [item for item in original[member] if _token(item) not in gone]
        elif value is None:
            original.pop(name, None)
        else:
            _merge_member(original, name, value, shape)
    return original


def _unknown(directive: Any) -> StrategicError:
    return StrategicError(f"$patch: got {shown(directive)}, expected replace or delete")


def _retain(original: dict[str, Any], patch: dict[str, Any]) -> None:
    if RETAIN not in patch:
        return
    keys = patch.pop(RETAIN)
    if not isinstance(keys, list):
        raise StrategicError("invalid patch format of retainKeys", 400)
    for name, value in patch.items():
        if value is not None and not name.startswith((DELETE, ORDER)) and name not in keys:
            raise StrategicError("invalid patch format of retainKeys", 400)
    for name in [name for name in original if name not in keys]:
        del original[name]


def _merge_member(original: dict[str, Any], name: str, value: Any, shape: Shape | None) -> None:
    before, row = original.get(name), _row(shape, name)
    if isinstance(before, dict) and isinstance(value, dict):
        replaced = row is not None and "replace" in row.strategy
        inner = row.shape if row else shape.value if isinstance(shape, MapType) else None
        original[name] = value if replaced else _merge_map(before, value, inner)
    elif isinstance(before, list) and isinstance(value, list) and row is not None and row.merges:
        original[name] = _merge_list(before, value, row)
    elif isinstance(before, list) and isinstance(value, list):
        original[name] = value
    else:
        _discard_nulls(value)
        if _is_directive(value):
            original.pop(name, None)
        else:
            original[name] = _without_directives(value)


def _row(shape: Shape | None, name: str) -> FieldRow | None:
    return shape.fields.get(name) if isinstance(shape, ObjectType) else None


def _merge_ordered(
    original: dict[str, Any], patch: dict[str, Any], directive: str, shape: Shape | None
) -> None:
    order, name = patch.pop(directive), directive.removeprefix(ORDER)
    row = _row(shape, name)
    if not isinstance(order, list) or row is None or not isinstance(row.shape, ListType):
        raise StrategicError("invalid patch format of setElementOrder list", 400)
    before, changes = original.get(name), patch.pop(name, None)
    if not all(value is None or isinstance(value, list) for value in (before, changes)):
        raise StrategicError("invalid patch format of setElementOrder list", 400)
    _check_order(changes or [], order, row.merge)
    if before is None and changes is None:
        return
    if changes is None:
        merged = before or []
    elif before is None:
        merged = _without_directives(changes)
    else:
        merged = _merge_list(before, changes, row) if row.merges else changes
    original[name] = _ordered(merged, order, before or [], row.merge)


def _check_order(changes: list[Any], order: list[Any], key: str) -> None:
    """The items of a patch stand in the order that the patch asks for."""
    items = [item for item in changes if not _is_directive(item)]
    if not order or not items:
        return
    tokens = (_token(other, key) for other in order)
    if not all(_token(item, key) in tokens for item in items):
        raise StrategicError("items of the patch's list are not in the order of its $setElementOrder")


def _merge_list(original: list[Any], patch: list[Any], row: FieldRow) -> list[Any]:
    if not original and not patch:
        return original
    _check_kinds(original, patch)
    if not isinstance((original or patch)[0], dict):
        merged = list({_token(item): item for item in (*original, *patch)}.values())
        return _ordered(merged, patch, original, "")
    if not row.merge:
        raise StrategicError(f"cannot merge lists without merge key for {row.name}")
    assert isinstance(row.shape, ListType)
    original, patch = _special_items(original, patch, row.merge)
    merged = _merge_items(list(original), patch, row.merge, row.shape.item)
    return _ordered(merged, patch, original, row.merge)


def _check_kinds(*lists: list[Any]) -> None:
    """The first element says what all are; upstream looks at the original list first."""
    kinds = [type(item) for items in lists for item in items]
    if kinds[0] is list:
        raise StrategicError("lists of lists are not supported", 422)
    if len(set(kinds)) > 1:
        raise StrategicError("items of a list, with those of the patch, are of different types")


def _special_items(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Carry out the items that are directives: what is left of both lists."""
    plain = [item for item in patch if PATCH not in item]
    replaces = False
    for item in patch:
        directive = item.get(PATCH)
        if directive == "delete":
            if key not in item:
                raise _no_merge_key(item, key)
            original = [element for element in original if _token(element, key) != _token(item, key)]
        elif directive == "replace":
            replaces = True
        elif PATCH in item:
            raise _unknown(directive)
    return (plain, []) if replaces else (original, plain)


def _merge_items(original: list[Any], patch: list[Any], key: str, shape: Shape) -> list[Any]:
    places = _places(original, key)
    for item in patch:
        if key not in item:
            raise _no_merge_key(item, key)
        place = places.setdefault(_token(item, key), len(original))
        if place == len(original):
            original.append(item)
        else:
            original[place] = _merge_map(original[place], item, shape)
    return original


def _no_merge_key(item: dict[str, Any], key: str) -> StrategicError:
    return StrategicError(f"list item with {', '.join(item) or 'no field'} lacks its merge key {key}")


def _ordered(merged: list[Any], order: list[Any], server: list[Any], key: str) -> list[Any]:
    """Items of the patch in its order, the others in the server's; where neither says, the patch is first."""
    if key and any(not isinstance(item, dict) or key not in item for item in (*merged, *order)):
        bad = next(item for item in (*merged, *order) if not isinstance(item, dict) or key not in item)
        raise _no_merge_key(bad if isinstance(bad, dict) else {}, key)
    requested_places, server_places = _places(order, key), _places(server, key)

    def place(item: Any) -> int:
        return server_places.get(_token(item, key), -1)

    mine = [item for item in merged if _token(item, key) in requested_places]
    rest = [item for item in merged if _token(item, key) not in requested_places]
    mine.sort(key=lambda item: requested_places[_token(item, key)])
    rest.sort(key=place)
    left, right, result = deque(rest), deque(mine), []
    while left and right:
        left_place, right_place = place(left[0]), place(right[0])
        result.append((left if 0 <= left_place < right_place else right).popleft())
    return [*result, *left, *right]


def _places(items: list[Any], key: str) -> dict[Hashable, int]:
    """Return the first index of each item."""
    places: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        places.setdefault(_token(item, key), index)
    return places


def _token(item: Any, key: str = "") -> Hashable:
    """Return the identity of an item: its merge key, or the whole item."""
    if key and isinstance(item, dict):
        item = item.get(key)
    if isinstance(item, dict | list):
        return json.dumps(item, sort_keys=True)
    return type(item), item


def _is_directive(value: Any) -> bool:
    return isinstance(value, dict) and PATCH in value


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_directives(item) for name, item in value.items() if not _is_directive(item)}
    if isinstance(value, list):
        return [_without_directives(item) for item in value if not _is_directive(item)]
    return value


def _discard_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for name in [name for name, item in value.items() if item is None]:
            del value[name]
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _discard_nulls(item)
