"""JSON and YAML bodies to plain values, with what upstream's decoder reports: repeated keys, exact numbers.

The result holds dict, list, str, bool, None, int and `Float`, which keeps its text. An object that repeats a
key is a `RepeatedKeys` whose `pairs` has all its members. YAML becomes JSON values before anything looks at
it, as upstream. Its nesting is checked on the parser's events before anything is composed, because libyaml's
composer recurses in C and would end the process; what aliases expand to is counted while values are made.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, AnyStr, Final, Self

import msgspec
import yaml

MAX_DEPTH = 200  # of objects and lists in each other; no kind comes near, and Python's own stack is not deep

SHOWN = 30  # letters of a number that is refused
SURROGATE = re.compile(r"[\ud800-\udfff]")
_LONG_NUMBER: Final = re.compile(rb"[0-9]{21}|-[0-9]{20}")
MAX_NODES = 100_000  # of a document with its aliases expanded; JSON is there for more
_TOO_MANY = f"yaml: document contains excessive aliasing or more than {MAX_NODES} nodes"
_INTEGERS_END = 2**64
_LARGEST_WRITTEN_OUT = 1e21  # Go writes larger floats with an exponent
_TAG = "tag:yaml.org,2002:"
_TRUE = {"y", "yes", "on", "true"}
_EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$", re.ASCII)


class ReadError(ValueError):
    """A body is not JSON or YAML; the message says where."""


class Float(float):
    """A number with a fraction or an exponent, and the text it had."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


class RepeatedKeys(dict[str, Any]):
    """A JSON object that repeats a key; as a dict it has the last value of each."""

    __slots__ = ("pairs",)
    pairs: list[tuple[str, Any]]


def pairs(tree: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The members of an object in their order, repeated keys included."""
    return iter(tree.pairs) if isinstance(tree, RepeatedKeys) else iter(tree.items())


class _Unusual(Exception):  # noqa: N818 - what a text is
    """A text has a number with a fraction or an exponent."""


def _unusual(_: str) -> float:
    raise _Unusual


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(float_hook=_unusual).decode


def read_json(body: bytes) -> Any:
    """Read a JSON text. Raises ReadError.

    A text that is what an encoder makes of its values repeats no key, and is read the faster way.
    """
    try:
        tree = _decode(body)
        if _encode(tree) == body and not (_may_be_deep(body, b"[", b"{") or _LONG_NUMBER.search(body)):
            return tree
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, _Unusual):
        pass
    return _read_exactly(body)


def _read_exactly(body: bytes) -> Any:
    text = body.decode("utf-8", errors="replace")
    try:
        tree = json.loads(
            text,
            object_pairs_hook=object_of,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except ReadError:
        raise
    except ValueError as error:
        raise ReadError(f"not JSON: {error}") from None
    except RecursionError:
        raise ReadError("exceeded max depth") from None
    if _may_be_deep(text, "[", "{") and too_deep(tree):
        raise ReadError("exceeded max depth")
    return _clean(tree) if "\\u" in text else tree


def _may_be_deep(text: AnyStr, *brackets: AnyStr) -> bool:
    return sum(map(text.count, brackets)) > MAX_DEPTH


def too_deep(tree: Any) -> bool:
    """Whether values are nested deeper than anything that reads them should have to go."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        dicts = (part for value in level if isinstance(value, dict) for _, part in pairs(value))
        level = [*dicts, *(part for value in level if isinstance(value, list) for part in value)]
        if not level:
            return False
    return True


def object_of(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object from its members, of which some may have the same key."""
    plain = dict(members)
    if len(plain) == len(members):
        return plain
    repeated = RepeatedKeys(plain)
    repeated.pairs = members
    return repeated


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= 20 else _number(text)


def _number(text: str) -> Float:
    number = Float(text)
    if math.isinf(number):
        raise ReadError(f"number {text[:SHOWN]} is out of range")
    return number


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _clean(tree: Any) -> Any:
    """Lone surrogates, which JSON escapes can spell and UTF-8 cannot, become U+FFFD as in Go."""
    if isinstance(tree, str):
        return SURROGATE.sub("\ufffd", tree)
    if isinstance(tree, list):
        return [_clean(item) for item in tree]
    if isinstance(tree, dict):
        return object_of([(_clean(key), _clean(value)) for key, value in pairs(tree)])
    return tree


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.1, and what upstream's reader takes for booleans and numbers beside it."""


_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile("[yYnN]$"), list("yYnN"))
_Loader.add_implicit_resolver(f"{_TAG}float", _EXPONENT, list("-+.0123456789"))


def read_yaml(body: bytes) -> Any:
    """Read the first document of a YAML text as JSON values, by YAML 1.1's rules. Raises ReadError."""
    text = body.decode("utf-8", errors="replace")
    try:
        _check_nesting(text)
        node = next(yaml.compose_all(text, Loader=_Loader), None)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise ReadError(f"not YAML: {where}{problem or error}") from None
    return None if node is None else _Builder().value(node)


def _check_nesting(text: str) -> None:
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > MAX_NODES:
            raise ReadError(_TOO_MANY)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentEndEvent):
            return
        if depth > MAX_DEPTH:
            raise ReadError("yaml: exceeded max depth")


class _Builder:
    """Makes values of composed nodes and counts them, aliases expanded."""

    def __init__(self) -> None:
        self._nodes = 0

    def value(self, node: Any, depth: int = 0) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise ReadError(_TOO_MANY)
        if isinstance(node, yaml.ScalarNode):
            text = str(node.value)
            if SURROGATE.search(text):
                raise ReadError("yaml: found invalid Unicode character escape code")
            match node.tag.removeprefix(_TAG):
                case "null":
                    return None
                case "bool":
                    return text.lower() in _TRUE
                case "int":
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
                        number = sign * int(bare, base)
                    except ValueError:
                        return text
                    if abs(number) < _INTEGERS_END:
                        return number
                    return _float(text) if base == 10 else text
                case "float":
                    return _float(text)
            return text
        if depth == MAX_DEPTH:
            raise ReadError("yaml: exceeded max depth")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(part, depth + 1) for part in node.value]
        return self._mapping(node, depth + 1)

    def _mapping(self, node: Any, depth: int) -> dict[str, Any]:
        """A mapping; `<<` gives it the members of the mappings it names, where they are not its own."""
        own: list[tuple[str, Any]] = []
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, value = self.value(key_node, depth), self.value(value_node, depth)
            if key_node.tag != f"{_TAG}merge":
                own.append((_key(key), value))
                continue
            for source in value if isinstance(value, list) else [value]:
                if not isinstance(source, dict):
                    raise ReadError("yaml: map merge requires map or sequence of maps as the value")
                merged = source | merged
        names = {name for name, _ in own}
        return object_of([*((name, value) for name, value in merged.items() if name not in names), *own])


def _key(key: Any) -> str:
    """A YAML key as JSON spells it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int):
        return str(key)
    if isinstance(key, Float):
        return key.text
    raise ReadError(f"yaml: a map key must be a scalar, not {'null' if key is None else type(key).__name__}")


def _float(text: str) -> Any:
    """A float as the JSON that upstream makes of it first: a whole number loses its fraction."""
    try:
        number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    if not math.isfinite(number):
        raise ReadError(f"yaml: a number must be finite, not {text[:SHOWN]}")
    return int(number) if number.is_integer() and abs(number) < _LARGEST_WRITTEN_OUT else Float(repr(number))
