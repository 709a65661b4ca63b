"""YAML bodies as JSON values, as upstream turns YAML into JSON before it looks at it.

Nesting is checked on the parser's events before anything is composed, because libyaml's composer recurses in
C and would end the process. What aliases expand to is counted while the values are made.
"""

import math
import re
from typing import Any

import yaml

from corelane.embedded.apiserver.codec.json_reading import (
    MAX_DEPTH,
    SHOWN,
    SURROGATE,
    Float,
    ReadError,
    object_of,
)

MAX_NODES = 100_000  # of a document with its aliases expanded; JSON is there for more
_TOO_MANY = f"yaml: document contains excessive aliasing or more than {MAX_NODES} nodes"

_INTEGERS_END = 2**64
_LARGEST_WRITTEN_OUT = 1e21  # Go writes larger floats with an exponent
_TAG = "tag:yaml.org,2002:"
_TRUE = {"y", "yes", "on", "true"}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.1, and what upstream's reader takes for booleans and numbers beside it."""


_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile("[yYnN]$"), list("yYnN"))
_EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$", re.ASCII)
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
            return _scalar(node)
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


def _scalar(node: Any) -> Any:
    text = str(node.value)
    if SURROGATE.search(text):
        raise ReadError("yaml: found invalid Unicode character escape code")
    match node.tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() in _TRUE
        case "int":
            return _integer(text)
        case "float":
            return _float(text)
    return text


def _integer(text: str) -> Any:
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


def _float(text: str) -> Any:
    """A float as the JSON that upstream makes of it first: a whole number loses its fraction."""
    try:
        number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    if not math.isfinite(number):
        raise ReadError(f"yaml: a number must be finite, not {text[:SHOWN]}")
    return int(number) if number.is_integer() and abs(number) < _LARGEST_WRITTEN_OUT else Float(repr(number))
