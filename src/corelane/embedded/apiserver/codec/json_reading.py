"""JSON bodies to plain values, with what upstream's decoder reports: repeated keys, exact numbers.

The result holds dict, list, str, bool, None, int and `Float`, which keeps its text. An object that repeats a
key is an `RepeatedKeys` whose `pairs` has all its members.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, AnyStr, Final, Self

import msgspec

MAX_DEPTH = 200  # of objects and lists in each other; no kind comes near, and Python's own stack is not deep

SHOWN = 30  # letters of a number that is refused
SURROGATE = re.compile(r"[\ud800-\udfff]")


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


_LONG_NUMBER: Final = re.compile(rb"[0-9]{21}|-[0-9]{20}")
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


def _may_be_deep(text: AnyStr, *brackets: AnyStr) -> bool:
    return sum(map(text.count, brackets)) > MAX_DEPTH


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


def too_deep(tree: Any) -> bool:
    """Whether values are nested deeper than anything that reads them should have to go."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [part for value in level if isinstance(value, dict | list) for part in _parts(value)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, RepeatedKeys):
        return (part for _, part in value.pairs)
    return value.values() if isinstance(value, dict) else value


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
