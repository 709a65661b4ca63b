"""JSON and YAML bodies to plain values, with what upstream's decoder reports: repeated keys, exact numbers.

The result holds dict, list, str, bool, None, int and `Float`, which keeps its text. An object that repeats a
key is an `Object` whose `pairs` has all its members.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Self

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_NODES = 1_000_000  # a YAML document whose aliases expand to more is refused
MAX_DEPTH = 200  # of objects and lists in each other; no kind comes near, and Python's own stack is not deep

_LARGEST_WRITTEN_OUT = 1e21  # Go writes larger floats with an exponent
_SHOWN = 30  # letters of a number that is refused
_SURROGATE = re.compile(r"[\ud800-\udfff]")
# Numbers for upstream's reader of YAML, though not by YAML 1.1.
_EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+", re.ASCII)
_YAML_BOOLS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
}


class ReadError(ValueError):
    """A body is not JSON (or YAML); the message is close to upstream's."""


class Float(float):
    """A number with a fraction or an exponent, and the text it had."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


class Object(dict[str, Any]):
    """A JSON object that repeats a key; as a dict it has the last value of each."""

    __slots__ = ("pairs",)
    pairs: list[tuple[str, Any]]


def pairs(tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The members of an object in their order, repeated keys included."""
    return iter(tree.pairs) if isinstance(tree, Object) else iter(tree.items())


def read_json(body: bytes) -> Any:
    """Read a JSON text. Raises ReadError."""
    text = body.decode("utf-8", errors="replace")
    try:
        tree = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise ReadError(_go_message(error)) from None
    except RecursionError:
        raise ReadError("exceeded max depth") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and too_deep(tree):
        raise ReadError("exceeded max depth")
    return _clean(tree) if "\\u" in text else tree


def read_yaml(body: bytes) -> Any:
    """Read a YAML text as JSON values, by YAML 1.1's rules, as upstream does. Raises ReadError."""
    try:
        node = yaml.compose(body.decode("utf-8", errors="replace"), Loader=yaml.SafeLoader)
        if node is None:
            return None
        _measure(node, {})
        tree = _plain(node)
    except yaml.YAMLError as error:
        raise ReadError(_yaml_message(error)) from None
    except RecursionError:
        raise ReadError("yaml: exceeded max depth") from None
    if too_deep(tree):
        raise ReadError("yaml: exceeded max depth")
    return tree


def too_deep(tree: Any) -> bool:
    """Whether values are nested deeper than anything that reads them should have to go."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [part for value in level if isinstance(value, dict | list) for part in _parts(value)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Object):
        return (part for _, part in value.pairs)
    return value.values() if isinstance(value, dict) else value


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(members)
    if len(plain) == len(members):
        return plain
    repeated = Object(plain)
    repeated.pairs = members
    return repeated


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= 20 else _number(text)


def _number(text: str) -> Float:
    number = Float(text)
    if math.isinf(number):
        raise ReadError(f"json: cannot unmarshal number {text[:_SHOWN]} into Go value of type float64")
    return number


def _constant(name: str) -> Any:
    raise ReadError(f"invalid character '{name[0]}' looking for beginning of value")


def _go_message(error: json.JSONDecodeError) -> str:
    rest = error.doc[error.pos :].lstrip(" \t\r\n")
    if not rest or (
        error.msg.startswith(("Unterminated", "Expecting ',' delimiter")) and error.pos >= len(error.doc)
    ):
        return "unexpected end of JSON input"
    where = "looking for beginning of value"
    if error.msg == "Extra data":
        where = "after top-level value"
    elif error.msg.startswith("Expecting property name"):
        where = "looking for beginning of object key string"
    elif error.msg.startswith("Expecting ',' delimiter"):
        where = "after object key:value pair"
    return f"invalid character '{rest[0]}' {where}"


def _clean(tree: Any) -> Any:
    """Lone surrogates, which JSON escapes can spell and UTF-8 cannot, become U+FFFD as in Go."""
    if isinstance(tree, str):
        return _SURROGATE.sub("\ufffd", tree)
    if isinstance(tree, list):
        return [_clean(item) for item in tree]
    if isinstance(tree, dict):
        return _object([(_clean(key), _clean(value)) for key, value in pairs(tree)])
    return tree


def _yaml_message(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"yaml: line {mark.line + 1}: {problem}" if mark else f"yaml: {problem}"


def _measure(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes a document has once its aliases are expanded; refuses bombs and cycles."""
    if id(node) in known:
        if known[id(node)] == 0:
            raise ReadError("yaml: an anchor contains itself")
        return known[id(node)]
    known[id(node)] = 0
    size = 1 + sum(_measure(child, known) for child in _children(node))
    if size > MAX_NODES:
        raise ReadError("yaml: document contains excessive aliasing")
    known[id(node)] = size
    return size


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _object(list(_members(node)))
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item) for item in node.value]
    return _scalar(node)


def _members(node: yaml.MappingNode) -> Iterator[tuple[str, Any]]:
    """A mapping's members; `<<` gives those of the mappings it names, where they are not its own."""
    own = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
    for key, value in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in sources:
                merged = _plain(source)
                if not isinstance(merged, dict):
                    raise ReadError("yaml: map merge requires map or sequence of maps as the value")
                yield from ((name, item) for name, item in merged.items() if name not in own)
        else:
            yield _key(_plain(key)), _plain(value)


def _key(key: Any) -> str:
    """A YAML key as JSON spells it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str):
        return key
    if isinstance(key, int):
        return str(key)
    if isinstance(key, Float):
        return key.text
    raise ReadError(f"yaml: a map key must be a scalar, not {'null' if key is None else type(key).__name__}")


def _scalar(node: yaml.Node) -> Any:
    text, tag = str(node.value), node.tag.rpartition(":")[2]
    if _SURROGATE.search(text):
        raise ReadError("yaml: found invalid Unicode character escape code")
    if getattr(node, "style", None) is None:
        if text in _YAML_BOOLS:
            return _YAML_BOOLS[text]
        if _EXPONENT.fullmatch(text):
            return _yaml_float(text)
    if tag == "null":
        return None
    if tag == "int":
        return _yaml_integer(text)
    if tag == "float":
        return _yaml_float(text)
    return text


def _yaml_integer(text: str) -> Any:
    digits = text.replace("_", "").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    if ":" in digits:
        return text
    base = {"0b": 2, "0x": 16, "0o": 8}.get(
        digits[:2], 8 if digits.startswith("0") and len(digits) > 1 else 10
    )
    bare = digits[2:] if digits[:2] in {"0b", "0x", "0o"} else digits
    try:
        return sign * int(bare, base)
    except ValueError:
        return text


def _yaml_float(text: str) -> Any:
    """A float as the JSON that upstream makes of it first: a whole number loses its fraction."""
    try:
        number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    if not math.isfinite(number):
        raise ReadError(f"yaml: a number must be finite, not {text[:_SHOWN]}")
    return int(number) if number.is_integer() and abs(number) < _LARGEST_WRITTEN_OUT else Float(repr(number))
