"""YAML bodies to the values of `reading`, as upstream turns YAML into JSON before it looks at it.

Built from the parser's events, not its nodes: so nesting, size and what aliases expand to have a limit from
the start, and libyaml's fast parser can be used without its recursive composer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.resolver import Resolver

from corelane.apiserver.codec.json_reading import (
    MAX_DEPTH,
    SHOWN,
    SURROGATE,
    Float,
    ReadError,
    object_of,
    too_deep,
)

MAX_NODES = 100_000  # of a document with its aliases expanded; JSON is there for more

_INTEGERS_END = 2**64
_LARGEST_WRITTEN_OUT = 1e21  # Go writes larger floats with an exponent
# Numbers for upstream's reader, though not by YAML 1.1.
_EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+", re.ASCII)
_BOOLS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = Resolver()
_BEGINS = (yaml.StreamStartEvent, yaml.DocumentStartEvent)


@dataclass(slots=True)
class _Document:
    """A document on the way: what is still to come, what aliases stand for, and how much there was."""

    events: Iterator[Any]
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    nodes: int = 0
    depth: int = 0

    def count(self, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise ReadError(f"yaml: document contains excessive aliasing or more than {MAX_NODES} nodes")


def read_yaml(body: bytes) -> Any:
    """Read the first document of a YAML text as JSON values, by YAML 1.1's rules. Raises ReadError."""
    try:
        events = yaml.parse(body.decode("utf-8", errors="replace"), Loader=_LOADER)
        event = next(events)
        while isinstance(event, _BEGINS):
            event = next(events)
        tree = None if isinstance(event, yaml.StreamEndEvent) else _value(event, _Document(events))
    except yaml.YAMLError as error:
        raise ReadError(_message(error)) from None
    if too_deep(tree):
        raise ReadError("yaml: exceeded max depth")
    return tree


def _message(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"yaml: line {mark.line + 1}: {problem}" if mark else f"yaml: {problem}"


def _value(event: Any, document: _Document) -> Any:
    if isinstance(event, yaml.AliasEvent):
        return _aliased(str(event.anchor), document)
    before = document.nodes
    document.count(1)
    if isinstance(event, yaml.ScalarEvent):
        value = _scalar(event)
    else:
        value = _collection(event, document)
    if event.anchor:
        document.anchors[event.anchor] = (value, document.nodes - before)
    return value


def _aliased(name: str, document: _Document) -> Any:
    if name not in document.anchors:
        raise ReadError(f"yaml: unknown anchor '{name}' referenced")
    value, nodes = document.anchors[name]
    document.count(nodes)
    return value


def _collection(event: Any, document: _Document) -> Any:
    document.depth += 1
    if document.depth > MAX_DEPTH:
        raise ReadError("yaml: exceeded max depth")
    value: Any
    if isinstance(event, yaml.MappingStartEvent):
        value = _mapping(document)
    else:
        value = [_value(item, document) for item in _until(yaml.SequenceEndEvent, document)]
    document.depth -= 1
    return value


def _until(end: type[Any], document: _Document) -> Iterator[Any]:
    event = next(document.events)
    while not isinstance(event, end):
        yield event
        event = next(document.events)


def _mapping(document: _Document) -> dict[str, Any]:
    """A mapping; `<<` gives it the members of the mappings it names, where they are not its own."""
    own: list[tuple[str, Any]] = []
    merged: dict[str, Any] = {}
    for event in _until(yaml.MappingEndEvent, document):
        merging = isinstance(event, yaml.ScalarEvent) and _tag(event) == "merge"
        key = _value(event, document)
        value = _value(next(document.events), document)
        if merging:
            _merge(merged, value if isinstance(value, list) else [value])
        else:
            own.append((_key(key), value))
    for name, _ in own:
        merged.pop(name, None)
    return object_of([*merged.items(), *own])


def _merge(merged: dict[str, Any], sources: list[Any]) -> None:
    for source in sources:
        if not isinstance(source, dict):
            raise ReadError("yaml: map merge requires map or sequence of maps as the value")
        for name, value in source.items():
            merged.setdefault(name, value)


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


def _tag(event: Any) -> str:
    """What kind of scalar it is: by its tag, or else by its looks."""
    tag = event.tag
    if tag in {None, "!"}:
        tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit)
    return str(tag).rpartition(":")[2]


def _scalar(event: Any) -> Any:
    text, tag = str(event.value), _tag(event)
    if SURROGATE.search(text):
        raise ReadError("yaml: found invalid Unicode character escape code")
    if not event.style and event.tag is None:
        if text in _BOOLS:
            return _BOOLS[text]
        if _EXPONENT.fullmatch(text):
            return _float(text)
    if tag == "null":
        return None
    if tag == "int":
        return _integer(text)
    return _float(text) if tag == "float" else text


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
