"""Comparison, merge and removal of fields, by type.

Two values of a type differ in three sets of fields; an applied value is merged into a live one.
Upstream: structured-merge-diff `typed` (compare, merge, remove, reconcile) and `fieldpath.Set`.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from corelane.embedded.apiserver.ownership import field_sets
from corelane.embedded.apiserver.ownership.field_sets import LEAF, SELF, FieldSet, Path, below, holds
from corelane.embedded.apiserver.ownership.typed_values import (
    Listing,
    Mapping,
    MergeType,
    Scalar,
    indexed,
    list_element,
)


class _Absent:
    """What stands for a value that is not there, as None stands for null."""


ABSENT = _Absent()


@dataclass(slots=True)
class Comparison:
    """Fields that the second value does not have, has otherwise, and has alone."""

    removed: FieldSet = field(default_factory=dict)
    modified: FieldSet = field(default_factory=dict)
    added: FieldSet = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.removed or self.modified or self.added)

    @property
    def written(self) -> FieldSet:
        return field_sets.union(self.modified, self.added)

    def less(self, ignored: FieldSet) -> "Comparison":
        """Return the comparison without what is ignored."""
        if not ignored:
            return self
        parts = (self.removed, self.modified, self.added)
        return Comparison(*(field_sets.difference(part, ignored, deep=True) for part in parts))


def compare(kind: Mapping, old: Any, new: Any) -> Comparison:
    """Compare two values of a type. Raises ListItemError where list items have no identity."""
    made = Comparison()
    if not same(old, new):
        _compare(made, kind, old, new, ())
    return made


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal; true and 1 are not."""
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _compare(made: Comparison, kind: MergeType, old: Any, new: Any, path: Path) -> None:
    if old is ABSENT:
        field_sets.add(made.added, path, _whole(kind, new))
    elif new is ABSENT:
        field_sets.add(made.removed, path, _whole(kind, old))
    elif isinstance(kind, Scalar) or kind.atomic:
        _leaf(made, old, new, path)
    elif isinstance(kind, Mapping):
        before, after = (value if isinstance(value, dict) else {} for value in (old, new))
        if before or after:
            _members(made, kind, before, after, path)
        else:
            _leaf(made, old, new, path)
    else:
        items, others = (value if isinstance(value, list) else [] for value in (old, new))
        if items or others:
            _items(made, kind, items, others, path)
        else:
            _leaf(made, old, new, path)


def _leaf(made: Comparison, old: Any, new: Any, path: Path) -> None:
    if not same(old, new):
        field_sets.add(made.modified, path)


def _whole(kind: MergeType, value: Any) -> FieldSet:
    """Return what is below the path of a value that is there on one side only: all that it consists of."""
    made: FieldSet = {}
    if not value or isinstance(kind, Scalar) or kind.atomic:
        return made
    if isinstance(kind, Mapping):
        fields, values = kind.fields, kind.values
        for name, part in value.items() if isinstance(value, dict) else ():
            inner = fields.get(name, values)
            if inner is not None:
                made[f"f:{name}"] = _whole(inner, part)
    elif isinstance(value, list):
        for element, parts in indexed(kind, value).items():
            made[element] = _whole(kind.item, parts[0]) if len(parts) == 1 else LEAF
    return {SELF: LEAF, **made} if made else made


def _members(made: Comparison, kind: Mapping, old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    for name, before in old.items():
        after = new.get(name, ABSENT)
        if before is not after and not same(before, after):
            inner = kind.fields.get(name, kind.values)
            if inner is not None:
                _compare(made, inner, before, after, (*path, f"f:{name}"))
    for name, after in new.items():
        if name not in old:
            inner = kind.fields.get(name, kind.values)
            if inner is not None:
                _compare(made, inner, ABSENT, after, (*path, f"f:{name}"))


def _items(made: Comparison, kind: Listing, old: list[Any], new: list[Any], path: Path) -> None:
    before, after = indexed(kind, old), indexed(kind, new)
    for element in {**before, **after}:
        old_items, new_items = before.get(element, []), after.get(element, [])
        here = (*path, element)
        if len(old_items) < 2 and len(new_items) < 2:
            _compare(
                made,
                kind.item,
                old_items[0] if old_items else ABSENT,
                new_items[0] if new_items else ABSENT,
                here,
            )
        elif len(old_items) > 1 and len(new_items) > 1:
            if old_items != new_items:
                field_sets.add(made.modified, here)
        elif len(old_items) > 1:
            if new_items:
                _compare(made, kind.item, ABSENT, new_items[0], here)
            field_sets.add(made.removed, here)
        else:
            if old_items:
                _compare(made, kind.item, old_items[0], ABSENT, here)
            field_sets.add(made.added, here)


def merge(kind: Mapping, live: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    """Return `live` with what `applied` says. Neither is changed. Raises ListItemError."""
    merged = _merge(kind, live, applied)
    return merged if isinstance(merged, dict) else {}


def _merge(kind: MergeType, live: Any, applied: Any) -> Any:
    """The merged value, ABSENT for none; at most one of both is ABSENT."""
    if isinstance(kind, Scalar) or kind.atomic:
        return live if applied is ABSENT else applied
    container: type[Any] = dict if isinstance(kind, Mapping) else list  # empty for null and what is absent
    before, after = (value if isinstance(value, container) else container() for value in (live, applied))
    if not before and not after:
        return live if applied is ABSENT else applied
    if isinstance(kind, Mapping):
        made = {}
        for name in {**before, **after}:
            inner = kind.fields.get(name, kind.values)
            if inner is None:
                continue
            value = _merge(inner, before.get(name, ABSENT), after.get(name, ABSENT))
            if value is not ABSENT:
                made[name] = value
        return made or ABSENT
    return _merge_items(kind, before, after) or ABSENT


def _merge_items(kind: Listing, live: list[Any], applied: list[Any]) -> list[Any]:
    """Items of both lists: shared ones in the order of `applied`, the others between them where they were.

    Items that are in `live` more than once have lost their identity and are taken over as they are.
    """
    live_items, given = indexed(kind, live), indexed(kind, applied)
    before, after = [list_element(kind, item) for item in live], list(given)

    def merged(element: str) -> Any:
        present = live_items.get(element, [])
        own: Any = ABSENT if not present else present[0] if len(present) == 1 else None
        return _merge(kind.item, own, given[element][0])

    shared = deque(element for element in after if element in live_items)
    next_shared = shared.popleft() if shared else None
    made: list[Any] = []
    done: set[str] = set()
    left, right = 0, 0
    while left < len(before) or right < len(after):
        if left < len(before) and right < len(after):
            element = before[left]
            if element == after[right]:
                done.add(element)
                made.append(merged(element))
                left, right = left + 1, right + 1
                next_shared = shared.popleft() if shared else None
                continue
            if element in given and next_shared is not None and next_shared != element:
                left += 1
                continue
        if left < len(before):
            element = before[left]
            if element not in given:
                made.append(_merge(kind.item, live[left], ABSENT))
                left += 1
                continue
            if element in done:
                left += 1
        if right < len(after):
            element = after[right]
            done.add(element)
            made.append(merged(element))
            right += 1
            if next_shared == element:
                next_shared = shared.popleft() if shared else None
    return [value for value in made if value is not ABSENT]


def remove(kind: Mapping, value: dict[str, Any], gone: FieldSet) -> dict[str, Any]:
    """Return the value without the fields and items of a set."""
    left = _remove(kind, value, gone)
    return left if isinstance(left, dict) else {}


def _remove(kind: MergeType, value: Any, gone: FieldSet) -> Any:
    """What is left of a value, None for nothing: an atomic value loses all when a part of it goes."""
    if isinstance(kind, Scalar):
        return value
    if kind.atomic or not value:
        return None
    if isinstance(kind, Mapping):
        return _remove_members(kind, value, gone) if isinstance(value, dict) else None
    return _remove_items(kind, value, gone) if isinstance(value, list) else None


def _remove_members(kind: Mapping, value: dict[str, Any], gone: FieldSet) -> Any:
    made, matched = {}, False
    for name, part in value.items():
        node = gone.get(f"f:{name}")
        if holds(node):
            continue
        inner = kind.fields.get(name, kind.values)
        if node and inner is not None:
            matched = True
            part = _kept(inner, part, node)
        made[name] = part
    return made if made or matched else None


def _remove_items(kind: Listing, value: list[Any], gone: FieldSet) -> Any:
    made, matched = [], False
    for part in value:
        node = gone.get(list_element(kind, part))
        if holds(node):
            continue
        if node:
            matched = True
            part = _kept(kind.item, part, node)
        made.append(part)
    return made if made or matched else None


def _kept(kind: MergeType, value: Any, gone: FieldSet) -> Any:
    left = _remove(kind, value, gone)
    if left is None and isinstance(value, dict | list):
        return type(value)()
    return left


def with_named_fields(kind: MergeType | None, fields: FieldSet) -> FieldSet:
    """Return the set with every field of a struct on the way to its elements (not of maps or lists)."""
    if not fields:
        return fields
    made: FieldSet = {}
    for element, node in fields.items():
        if element == SELF:
            made[SELF] = LEAF
            continue
        inner, named = _inner(kind, element)
        inside = with_named_fields(inner, below(node))
        itself = holds(node) or (named and bool(inside))
        made[element] = {SELF: LEAF, **inside} if itself and inside else inside
    return made


def _inner(kind: MergeType | None, element: str) -> tuple[MergeType | None, bool]:
    if isinstance(kind, Mapping) and element[0] == "f":
        field = kind.fields.get(element[2:])
        return field or kind.values, field is not None
    if isinstance(kind, Listing) and element[0] == "k":
        return kind.item, False
    return None, False


def reconciled(kind: MergeType | None, fields: FieldSet) -> FieldSet:
    """Return a set in which an atomic value is owned as one, however it was owned before."""
    if kind is None or isinstance(kind, Scalar):
        return fields
    made: FieldSet = {}
    for element, node in fields.items():
        if element == SELF:
            made[SELF] = LEAF
            continue
        inner, _ = _inner(kind, element)
        atomic = isinstance(inner, Mapping | Listing) and inner.atomic
        made[element] = LEAF if atomic or not node else reconciled(inner, node)
    return made
