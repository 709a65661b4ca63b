"""Sets of field paths, in the very form in which managed fields write them (`fieldsV1`).

A set maps a path element to the set below it. An element is itself in the set if nothing is below it, or if
"." stands there. Sets are values: no function changes its arguments. An element that is not in the set and
has nothing below it never occurs, so equal sets are equal dicts.
Upstream: structured-merge-diff `fieldpath.Set`.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from corelane.embedded.apiserver.ownership import path_elements
from corelane.embedded.apiserver.ownership.path_elements import PathElementError

FieldSet: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]

SELF = "."
LEAF: FieldSet = {}


def holds(node: FieldSet | None) -> bool:
    """Whether the element that `node` stands below is itself in the set."""
    return node is not None and (not node or SELF in node)


def below(node: FieldSet | None) -> FieldSet:
    """Return the set below an element."""
    if not node or SELF not in node:
        return node or {}
    return {element: inner for element, inner in node.items() if element != SELF}


def has(fields: FieldSet, path: Path) -> bool:
    node: FieldSet | None = fields
    for element in path:
        node = (node or {}).get(element)
        if node is None:
            return False
    return bool(path) and holds(node)


def _node(inside: FieldSet, itself: bool) -> FieldSet | None:
    if inside:
        return {SELF: LEAF, **inside} if itself else inside
    return LEAF if itself else None


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:
        return one or other
    made = dict(one)
    for element, node in other.items():
        known = made.get(element)
        if known is None or known is node:
            made[element] = node
        elif element != SELF:
            both = union(below(known), below(node))
            made[element] = _node(both, holds(known) or holds(node)) or LEAF
    return made


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    made: FieldSet = {}
    for element, node in one.items():
        match = other.get(element)
        if match is None or element == SELF:
            continue
        found = _node(intersection(below(node), below(match)), holds(node) and holds(match))
        if found is not None:
            made[element] = found
    return made


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return what is in `one` only; what lies below a removed element stays."""
    if not other:
        return one
    made: FieldSet = {}
    for element, node in one.items():
        match = other.get(element)
        if match is None:
            made[element] = node
        elif element != SELF:
            found = _node(difference(below(node), below(match)), holds(node) and not holds(match))
            if found is not None:
                made[element] = found
    return one if made == one else made


def without(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return what is in `one` only, less all that lies below an element of `other`."""
    if not other:
        return one
    made: FieldSet = {}
    for element, node in one.items():
        match = other.get(element)
        if match is None:
            made[element] = node
        elif element != SELF and not holds(match):
            found = _node(without(below(node), below(match)), holds(node))
            if found is not None:
                made[element] = found
    return one if made == one else made


def add(fields: FieldSet, path: Path) -> None:
    """Add a path to a set that is being made."""
    if not path:
        return
    *above, last = path
    for element in above:
        node = fields.get(element)
        if node is None:
            node = fields[element] = {}
        elif not node:
            node = fields[element] = {SELF: LEAF}
        fields = node
    node = fields.get(last)
    if node is None:
        fields[last] = {}
    elif node:
        node[SELF] = LEAF


def put(fields: FieldSet, path: Path, node: FieldSet) -> None:
    """Add a path, and what `node` has below it, to a set that is being made and has nothing there yet."""
    for element in path[:-1]:
        inner = fields.get(element)
        if not inner:
            inner = fields[element] = {} if inner is None else {SELF: LEAF}
        fields = inner
    fields[path[-1]] = node


def paths(fields: FieldSet, above: Path = ()) -> Iterator[Path]:
    """Yield every path in upstream's order: at each level first the elements, then what is below them."""
    ordered = sorted((element for element in fields if element != SELF), key=path_elements.order)
    yield from ((*above, element) for element in ordered if holds(fields[element]))
    for element in ordered:
        yield from paths(below(fields[element]), (*above, element))


def ordered(fields: FieldSet) -> FieldSet:
    """Return the set with its elements in the order in which upstream writes them."""
    if len(fields) < 2:
        return {element: ordered(node) if node else LEAF for element, node in fields.items()}
    made: FieldSet = {SELF: LEAF} if SELF in fields else {}
    for element in sorted((e for e in fields if e != SELF), key=path_elements.order):
        made[element] = ordered(fields[element]) if fields[element] else LEAF
    return made


def shown(path: Path) -> str:
    return "".join(map(path_elements.shown, path))


def read(tree: Any) -> FieldSet:
    """Read `fieldsV1` as a client wrote it. Raises PathElementError."""
    made: FieldSet = {}
    for element, inner in _members(tree):
        text = path_elements.read(element)
        if text:
            inside = read(inner)
            itself = not inside or (isinstance(inner, dict) and SELF in inner)
            made = union(made, {text: _node(inside, itself) or LEAF})
    return made


def _members(tree: Any) -> Iterator[tuple[str, Any]]:
    if tree is None:
        return
    if not isinstance(tree, dict):
        raise PathElementError(f"expected an object, got {type(tree).__name__}")
    yield from ((element, inner) for element, inner in tree.items() if element != SELF)
