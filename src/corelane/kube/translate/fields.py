"""Read JSON, words, CPU lists, booleans and numbers that people write into labels and annotations.

Absent values, nulls and unknown members are ignored. An invalid value raises `TranslationError`, which names
the field, the value and what is allowed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet, CPUSetError
from corelane.machine.model import MAX_NODE
from corelane.quantity import QuantityError

_Word = TypeVar("_Word", bound=StrEnum)
_Tree = TypeVar("_Tree", dict[str, Any], list[Any])
_MAX_SOCKET: Final = (1 << 31) - 1
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}


class TranslationError(ValueError):
    """An invalid field, label or annotation: its path (`field`), its `value`, and why.

    A `value` of None means that the field is missing. The message is one line of limited length.
    """

    def __init__(self, field: str, value: object, why: str) -> None:
        what = "missing" if value is None else f"invalid value {_short(repr(value))}"
        super().__init__(f"{_short(_printable(field), 300)}: {what}: {_short(_printable(why), 300)}")
        self.field = field
        self.value = value
        self.why = why


def _short(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def annotation(key: str) -> str:
    """Return the path of an annotation, for errors."""
    return f"metadata.annotations[{key}]"


def label(key: str) -> str:
    """Return the path of a label, for errors."""
    return f"metadata.labels[{key}]"


def json_object(path: str, text: str, names: Iterable[str] = ()) -> Mapping[str, Any]:
    """Parse a JSON object; an empty text and null are an empty one. Raises TranslationError.

    Members with one of `names` in any case get that name, as Go reads JSON.
    """
    return _with_names(_decoded(path, text, dict, "a JSON object") or {}, names)


def json_list(path: str, text: str) -> list[Any]:
    """Parse a JSON list; an empty text and null are an empty one. Raises TranslationError."""
    return _decoded(path, text, list, "a JSON list") or []


def _decoded(path: str, text: str, kind: type[_Tree], what: str) -> _Tree | None:
    try:
        tree = msgspec.json.decode(text) if text.strip() else None
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise TranslationError(path, text, f"not {what}: {error}") from error
    if tree is not None and not isinstance(tree, kind):
        raise TranslationError(path, text, f"not {what}")
    return tree


def member(path: str, value: Any, names: Iterable[str] = ()) -> Mapping[str, Any]:
    """Return an object within JSON, as `json_object`; null is an empty one. Raises TranslationError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TranslationError(path, value, "not a JSON object")
    return _with_names(value, names)


def items(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each item of a list within JSON; null is an empty list.

    Raises TranslationError.
    """
    if value is not None and not isinstance(value, list):
        raise TranslationError(path, value, "not a JSON list")
    yield from ((f"{path}[{i}]", item) for i, item in enumerate(value or ()))


def _with_names(members: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    by_lower = {name.lower(): name for name in names}
    if not by_lower:
        return members
    return {by_lower.get(name.lower(), name): value for name, value in members.items()}


def choice(path: str, value: Any, words: type[_Word], absent: Iterable[str] = ("",)) -> _Word | None:
    """Return one of these words; None for null and for the words in `absent`. Raises TranslationError."""
    absent = set(absent)
    if value is None or (isinstance(value, str) and value.strip() in absent):
        return None
    for word in words:
        if isinstance(value, str) and value.strip() == word.value:
            return word
    raise _unknown(path, value, [word.value for word in words if word.value] + sorted(absent - {""}))


def required_choice(path: str, value: Any, words: type[_Word]) -> _Word:
    """Return one of these words. Raises TranslationError, for an absent one too."""
    word = choice(path, value, words)
    if word is None:
        raise _unknown(path, value, [word.value for word in words])
    return word


def _unknown(path: str, value: Any, words: list[str]) -> TranslationError:
    return TranslationError(path, value, f"use {', '.join(words[:-1])} or {words[-1]}")


def boolean(path: str, value: Any) -> bool | None:
    """Return a JSON boolean, or a text that Go's ParseBool reads; None for null. Raises TranslationError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip() in _TRUE | _FALSE:
        return value.strip() in _TRUE
    raise TranslationError(path, value, "use true or false")


def amount(path: str, value: Any, convert: Callable[[str], int]) -> int:
    """Return a quantity of at least 0, in the units of `convert`; null is 0. Raises TranslationError."""
    try:
        number = 0 if value is None else convert(str(value))
    except QuantityError as error:
        raise TranslationError(path, value, str(error)) from error
    if number < 0:
        raise TranslationError(path, value, "must be greater than or equal to 0")
    return number


def quantity_text(path: str, value: Any) -> str:
    """Return a quantity as it is written. Raises TranslationError."""
    try:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise QuantityError("must be a quantity such as '4' or '8Gi'")
        quantity.parse(str(value))
    except QuantityError as error:
        raise TranslationError(path, value, str(error)) from error
    return str(value)


def socket_and_node(path: str, part: Mapping[str, Any]) -> tuple[int, int]:
    """Return the socket and the NUMA node of a part, each 0 where absent. Raises TranslationError.

    Some firmware numbers its sockets -1.
    """
    socket = _number(f"{path}.socket", part.get("socket"), -1, _MAX_SOCKET)
    return socket, numa_node(f"{path}.node", part.get("node"))


def numa_node(path: str, value: Any) -> int:
    """Return the id of a NUMA node; null is 0, as in Go. Raises TranslationError."""
    return _number(path, value, 0, MAX_NODE)


def _number(path: str, value: Any, least: int, most: int) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise TranslationError(path, value, f"must be a number from {least} to {most}")
    return value


def cpus(path: str, value: Any) -> CPUSet:
    """Parse a CPU list; null is the empty set. Raises TranslationError."""
    if value is None:
        return CPUSet()
    if not isinstance(value, str):
        raise TranslationError(path, value, "not a CPU list such as '0-3,8': must be a string")
    try:
        return CPUSet.parse(value.strip())
    except CPUSetError as error:
        raise TranslationError(path, value, f"not a CPU list such as '0-3,8': {error}") from error


def crane_node_id(where: str, name: object) -> int:
    """The id of the NUMA node that gocrane calls `node<id>`. Raises TranslationError."""
    digits = name.removeprefix("node") if isinstance(name, str) and name.startswith("node") else ""
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 6 and int(digits) <= MAX_NODE):
        raise TranslationError(where, name, "not the name of a NUMA node's zone, such as 'node0'")
    return int(digits)
