"""Sets of field paths, in the very form in which managed fields write them (`fieldsV1`).

A path element is the text that managed fields write for one step of a path: `f:NAME` is a field, `k:{…}` a
list item by its keys, `v:…` an item of a set by its value, `i:N` one by its position; each has exactly one
text. A set maps a path element to the set below it. An element is itself in the set if nothing is below it,
or if "." stands there. Sets are values: no function changes its arguments. An element that is not in the set
and has nothing below it never occurs, so equal sets are equal dicts.
Upstream: structured-merge-diff `fieldpath`.
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

from corelane.embedded.apiserver.codec.json_and_yaml import Float
from corelane.embedded.apiserver.status_errors import quoted

_KEPT = 20_000
_HTML = str.maketrans(
    {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)

Order = tuple[Any, ...]
FieldSet: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]
SELF = "."
LEAF: FieldSet = {}


class PathElementError(ValueError):
    """A text that is not a path element."""


def html_escaped(text: str) -> str:
    """JSON with HTML's own characters as escapes, as Go writes it."""
    return text.translate(_HTML)


def item_element(keys: Iterable[tuple[str, Any]]) -> str:
    """Return the element of a list item; `keys` are sorted by name."""
    return "k:{" + ",".join(f"{_text(name)}:{_json(value)}" for name, value in keys) + "}"


def member_element(value: Any) -> str:
    """Return the element of a set's item."""
    return f"v:{_json(value)}"


def _json(value: Any) -> str:
    """Write a value as Go does, which also escapes HTML's own characters."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Float):
        value = float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    return html_escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True))


@lru_cache(_KEPT)
def _text(value: str) -> str:
    return html_escaped(json.dumps(value, ensure_ascii=False))


@lru_cache(_KEPT)
def read_element(text: str) -> str:
    """Return the one text of an element that a client wrote, "" for kinds of later versions.

    Raises PathElementError.
    """
    if text[1:2] != ":":
        raise PathElementError(f"{text}: got no colon after the first letter")
    try:
        match text[0]:
            case "f":
                return text
            case "v":
                return member_element(json.loads(text[2:]))
            case "k":
                return item_element(sorted(dict(json.loads(text[2:])).items()))
            case "i":
                return f"i:{int(text[2:])}"
    except (ValueError, TypeError, RecursionError) as error:
        raise PathElementError(f"{text}: {error}") from None
    return ""


@lru_cache(_KEPT)
def element_order(text: str) -> Order:
    """Return what sorts elements: fields by name, then items by keys, set items by value, positions."""
    match text[0]:
        case "f":
            return 0, text[2:]
        case "k":
            return 1, tuple((name, _rank(value)) for name, value in json.loads(text[2:]).items())
        case "v":
            return 2, _rank(json.loads(text[2:]))
    return 3, int(text[2:])


def _rank(value: Any) -> Order:
    if isinstance(value, bool):
        return 2, value
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, str):
        return 1, value
    return (5,) if value is None else (3 if isinstance(value, list) else 4, _json(value))


@lru_cache(_KEPT)
def shown_element(text: str) -> str:
    """Return an element as messages write it: `.spec`, `[name="a"]`, `[=1]`, `[3]`."""
    match text[0]:
        case "f":
            return f".{text[2:]}"
        case "k":
            keys = json.loads(text[2:]).items()
            return "[" + ",".join(f"{name}={_shown(value)}" for name, value in keys) + "]"
        case "v":
            return f"[={_shown(json.loads(text[2:]))}]"
    return f"[{text[2:]}]"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_shown, value)) + "]"
    if isinstance(value, dict):
        return "".join(f"{name}={_shown(part)}" for name, part in value.items())
    return _json(value)


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


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left or not right:
        return left or right
    made = dict(left)
    for element, node in right.items():
        present = made.get(element)
        if present is None or present is node:
            made[element] = node
        elif element != SELF:
            both = union(below(present), below(node))
            made[element] = _node(both, holds(present) or holds(node)) or LEAF
    return made


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    made: FieldSet = {}
    for element, node in left.items():
        match = right.get(element)
        if match is None or element == SELF:
            continue
        common = _node(intersection(below(node), below(match)), holds(node) and holds(match))
        if common is not None:
            made[element] = common
    return made


def difference(left: FieldSet, right: FieldSet, *, deep: bool = False) -> FieldSet:
    """Return what is in `left` only; what lies below a removed element stays, unless `deep`."""
    if not right:
        return left
    made: FieldSet = {}
    for element, node in left.items():
        match = right.get(element)
        if match is None:
            made[element] = node
        elif element != SELF and not (deep and holds(match)):
            inside = difference(below(node), below(match), deep=deep)
            rest = _node(inside, holds(node) and not holds(match))
            if rest is not None:
                made[element] = rest
    return left if made == left else made


def add(fields: FieldSet, path: Path, inside: FieldSet = LEAF) -> None:
    """Add a path to a set that is being made, with `inside` below it where nothing is there yet."""
    if not path:
        return
    for element in path[:-1]:
        node = fields.get(element)
        if not node:
            node = fields[element] = {} if node is None else {SELF: LEAF}
        fields = node
    present = fields.get(path[-1])
    if present:
        present[SELF] = LEAF
    else:
        fields[path[-1]] = inside


def paths(fields: FieldSet, above: Path = ()) -> Iterator[Path]:
    """Yield every path in upstream's order: at each level first the elements, then what is below them."""
    ordered = sorted((element for element in fields if element != SELF), key=element_order)
    yield from ((*above, element) for element in ordered if holds(fields[element]))
    for element in ordered:
        yield from paths(below(fields[element]), (*above, element))


def ordered(fields: FieldSet) -> FieldSet:
    """Return the set with its elements in the order in which upstream writes them."""
    if len(fields) < 2:
        return {element: ordered(node) if node else LEAF for element, node in fields.items()}
    made: FieldSet = {SELF: LEAF} if SELF in fields else {}
    for element in sorted((e for e in fields if e != SELF), key=element_order):
        made[element] = ordered(fields[element]) if fields[element] else LEAF
    return made


def shown(path: Path) -> str:
    return "".join(map(shown_element, path))


def read(tree: Any) -> FieldSet:
    """Read `fieldsV1` as a client wrote it. Raises PathElementError."""
    if not isinstance(tree, dict | None):
        raise PathElementError(f"expected an object, got {type(tree).__name__}")
    made: FieldSet = {}
    for element, inner in (tree or {}).items():
        text = "" if element == SELF else read_element(element)
        if text:
            inside = read(inner)
            itself = not inside or (isinstance(inner, dict) and SELF in inner)
            made = union(made, {text: _node(inside, itself) or LEAF})
    return made
