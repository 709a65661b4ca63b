"""Reading what people write into labels and annotations: JSON, words of a list, CPU lists, numbers.

Tolerant of what is absent, null, or unknown to us; a value that cannot be meant is a `TranslationError` that
names the field, the value, and what is allowed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kube.translate.errors import TranslationError
from corelane.machine.model import MAX_NODE
from corelane.quantity import QuantityError

__all__ = [
    "amount",
    "annotation",
    "boolean",
    "chosen",
    "cpus",
    "items",
    "label",
    "listed",
    "member",
    "named",
    "numa_node",
    "place",
    "tree",
    "word",
]

_Word = TypeVar("_Word", bound=StrEnum)
_Tree = TypeVar("_Tree", dict[str, Any], list[Any])
_MAX_SOCKET: Final = (1 << 31) - 1
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}


def annotation(key: str) -> str:
    """How errors name an annotation."""
    return f"metadata.annotations[{key}]"


def label(key: str) -> str:
    """How errors name a label."""
    return f"metadata.labels[{key}]"


def tree(field: str, text: str, names: Iterable[str] = ()) -> Mapping[str, Any]:
    """A JSON object; an empty text and null are an empty one. See `named`. Raises TranslationError."""
    return named(_decoded(field, text, dict, "a JSON object") or {}, names)


def listed(field: str, text: str) -> list[Any]:
    """A JSON list; an empty text and null are an empty one. Raises TranslationError."""
    return _decoded(field, text, list, "a JSON list") or []


def _decoded(field: str, text: str, kind: type[_Tree], what: str) -> _Tree | None:
    try:
        found = msgspec.json.decode(text) if text.strip() else None
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise TranslationError(field, text, f"not {what}: {error}") from error
    if found is not None and not isinstance(found, kind):
        raise TranslationError(field, text, f"not {what}")
    return found


def member(field: str, value: Any, names: Iterable[str] = ()) -> Mapping[str, Any]:
    """An object within a JSON text; null is an empty one. See `named`. Raises TranslationError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TranslationError(field, value, "not a JSON object")
    return named(value, names)


def items(field: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A list within a JSON text, each item with its name for errors; null is an empty one.

    Raises TranslationError.
    """
    if value is not None and not isinstance(value, list):
        raise TranslationError(field, value, "not a JSON list")
    yield from ((f"{field}[{i}]", one) for i, one in enumerate(value or ()))


def named(members: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    """The members, those with one of these names in whatever case under that: as Go's JSON is read."""
    known = {name.lower(): name for name in names}
    return {known.get(name.lower(), name): value for name, value in members.items()} if known else members


def word(field: str, value: Any, words: type[_Word], absent: Iterable[str] = ("",)) -> _Word | None:
    """One of these words; None for null and for those that mean it is absent. Raises TranslationError."""
    absent = set(absent)
    if value is None or (isinstance(value, str) and value.strip() in absent):
        return None
    for one in words:
        if isinstance(value, str) and value.strip() == one.value:
            return one
    raise _unknown(field, value, [one.value for one in words if one.value] + sorted(absent - {""}))


def chosen(field: str, value: Any, words: type[_Word]) -> _Word:
    """One of these words, which must be there. Raises TranslationError."""
    found = word(field, value, words)
    if found is None:
        raise _unknown(field, value, [one.value for one in words])
    return found


def _unknown(field: str, value: Any, known: list[str]) -> TranslationError:
    return TranslationError(field, value, f"use {', '.join(known[:-1])} or {known[-1]}")


def boolean(field: str, value: Any) -> bool | None:
    """A JSON boolean, or a text that Go's ParseBool knows; None for null. Raises TranslationError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip() in _TRUE | _FALSE:
        return value.strip() in _TRUE
    raise TranslationError(field, value, "use true or false")


def amount(field: str, value: Any, convert: Callable[[str], int]) -> int:
    """A quantity that is not negative, in the units of `convert`; null is 0. Raises TranslationError."""
    try:
        found = 0 if value is None else convert(str(value))
    except QuantityError as error:
        raise TranslationError(field, value, str(error)) from error
    if found < 0:
        raise TranslationError(field, value, "must be greater than or equal to 0")
    return found


def place(field: str, part: Mapping[str, Any]) -> tuple[int, int]:
    """A part's socket and NUMA node, each 0 where it is not said. Raises TranslationError.

    Some firmware gives its sockets the id -1.
    """
    socket = _number(f"{field}.socket", part.get("socket"), -1, _MAX_SOCKET)
    return socket, numa_node(f"{field}.node", part.get("node"))


def numa_node(field: str, value: Any) -> int:
    """The id of a NUMA node; null is 0, as in Go. Raises TranslationError."""
    return _number(field, value, 0, MAX_NODE)


def _number(field: str, value: Any, least: int, most: int) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TranslationError(field, value, f"must be a number from {least} to {most}")
    return value


def cpus(field: str, value: Any) -> CPUSet:
    """A CPU list; null is the empty set. Raises TranslationError."""
    if value is None:
        return CPUSet()
    if not isinstance(value, str):
        raise TranslationError(field, value, "not a CPU list such as '0-3,8': must be a string")
    try:
        return CPUSet.parse(value.strip())
    except CPUSetError as error:
        raise TranslationError(field, value, f"not a CPU list such as '0-3,8': {error}") from error
