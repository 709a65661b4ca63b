"""The difference of two values of one type, as three sets of fields.

Upstream: structured-merge-diff `typed` (compare).
"""

from dataclasses import dataclass, field
from typing import Any

from corelane.embedded.apiserver.ownership import field_sets
from corelane.embedded.apiserver.ownership.field_sets import LEAF, SELF, FieldSet, Path
from corelane.embedded.apiserver.ownership.merge_types import Listing, Mapping, MergeType, Scalar
from corelane.embedded.apiserver.ownership.typed_values import indexed


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
        return Comparison(
            field_sets.without(self.removed, ignored),
            field_sets.without(self.modified, ignored),
            field_sets.without(self.added, ignored),
        )


def compare(kind: Mapping, old: Any, new: Any) -> Comparison:
    """Compare two values of a type. Raises ListItemError where list items have no identity."""
    made = Comparison()
    if not same(old, new):
        _compare(made, kind, old, new, ())
    return made


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal; true and 1 are not."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _compare(made: Comparison, kind: MergeType, old: Any, new: Any, path: Path) -> None:
    if old is ABSENT:
        field_sets.put(made.added, path, _whole(kind, new))
    elif new is ABSENT:
        field_sets.put(made.removed, path, _whole(kind, old))
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
        one, other = before.get(element, []), after.get(element, [])
        here = (*path, element)
        if len(one) < 2 and len(other) < 2:
            _compare(made, kind.item, one[0] if one else ABSENT, other[0] if other else ABSENT, here)
        elif len(one) > 1 and len(other) > 1:
            if one != other:
                field_sets.add(made.modified, here)
        elif len(one) > 1:
            if other:
                _compare(made, kind.item, ABSENT, other[0], here)
            field_sets.add(made.removed, here)
        else:
            if one:
                _compare(made, kind.item, one[0], ABSENT, here)
            field_sets.add(made.added, here)
