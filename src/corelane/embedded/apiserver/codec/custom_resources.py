"""Decoding of what upstream serves as a custom resource: kept as sent, but for fields unknown to its schema.

Types are not checked here (validation does, in kube-openapi's words); only metadata is, as for any kind.
"""

from typing import Any

from corelane.embedded.apiserver.codec import decoding
from corelane.embedded.apiserver.codec.decoding import StrictNotes
from corelane.embedded.apiserver.codec.json_reading import Float, RepeatedKeys, pairs
from corelane.embedded.apiserver.schema.notation import ListType, ObjectType, Shape
from corelane.embedded.apiserver.schema.object_meta import OBJECT_META

_WRITTEN_OUT = 1e21  # Go writes smaller floats without an exponent, and those without a fraction as integers
_ENVELOPE = ("apiVersion", "kind", "metadata")


def decode(record: ObjectType, tree: Any, notes: StrictNotes) -> dict[str, Any]:
    """Read one custom object. Raises DecodeError where its metadata is not metadata."""
    inside = StrictNotes()
    metadata = decoding.decode(OBJECT_META, tree.get("metadata"), inside)
    for text in inside.strict:
        notes.add(text.replace('"', '"metadata.', 1))
    unknown: list[str] = []
    made = {name: value for name, value in tree.items() if name not in _ENVELOPE}
    made = prune(record, made, unknown)
    for path in sorted(unknown):
        notes.unknown(path)
    return {**made, "metadata": metadata}


def prune(record: ObjectType, obj: dict[str, Any], unknown: list[str] | None = None) -> dict[str, Any]:
    """The object without nulls and without fields its schema does not name, whose paths go to `unknown`."""
    pruned = _pruned(record, obj, "", [] if unknown is None else unknown)
    assert isinstance(pruned, dict)
    return pruned


def _pruned(shape: Shape | None, value: Any, path: str, unknown: list[str]) -> Any:
    """`shape` None is what no schema describes; a value of another type than the schema's has no fields."""
    kind = type(value)
    if kind is str or kind is int:
        return value
    if isinstance(value, dict):
        return _members(shape, value, path, unknown)
    if isinstance(value, list):
        inner = shape.item if isinstance(shape, ListType) else None
        return [_pruned(inner, item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return plain(value)


def _members(shape: Shape | None, value: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    rows = shape.fields if isinstance(shape, ObjectType) else {}
    within = f"{path}." if path else ""
    kept = {}
    for name, item in value.items():
        row = rows.get(name)
        if row is None:
            unknown.append(f"{within}{name}")
        elif type(item) is str:
            kept[name] = item
        elif item is not None:
            kept[name] = _pruned(row.shape, item, f"{within}{name}", unknown)
    return kept


def plain(tree: Any) -> Any:
    """A tree of the reader's as JSON's own types, as an encoder takes them."""
    kind = type(tree)
    if kind is str or kind is int:
        return tree
    if isinstance(tree, Float):
        return int(tree) if tree.is_integer() and abs(tree) < _WRITTEN_OUT else float(tree)
    if isinstance(tree, list):
        return [plain(item) for item in tree]
    if isinstance(tree, dict):
        return {name: plain(item) for name, item in tree.items()}
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
