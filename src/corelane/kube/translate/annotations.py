"""Reading what people write into labels and annotations: JSON, words of a list, CPU lists, numbers.

Tolerant of what is absent, null, or unknown to us; a value that cannot be meant is a `TranslationError` that
names the field, the value, and what is allowed.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kube.translate.errors import TranslationError

__all__ = ["annotation", "boolean", "cpus", "label", "listed", "member", "tree", "word"]

_Word = TypeVar("_Word", bound=StrEnum)
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}


def annotation(key: str) -> str:
    """How errors name an annotation."""
    return f"metadata.annotations[{key}]"


def label(key: str) -> str:
    """How errors name a label."""
    return f"metadata.labels[{key}]"


def tree(field: str, text: str) -> Mapping[str, Any]:
    """A JSON object; an empty text and null are an empty one. Raises TranslationError."""
    return _decoded(field, text, dict[str, Any] | None, "a JSON object") or {}


def listed(field: str, text: str) -> list[Any]:
    """A JSON list; an empty text and null are an empty one. Raises TranslationError."""
    return _decoded(field, text, list[Any] | None, "a JSON list") or []


def _decoded(field: str, text: str, kind: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind) if text.strip() else None
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise TranslationError(field, text, f"not {what}: {error}") from error


def member(field: str, value: Any) -> Mapping[str, Any]:
    """An object within a JSON text; null is an empty one. Raises TranslationError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TranslationError(field, value, "not a JSON object")
    return value


def word(field: str, value: Any, words: type[_Word], absent: Iterable[str] = ("",)) -> _Word | None:
    """One of these words; None for null and for those that mean it is absent. Raises TranslationError."""
    absent = set(absent)
    if value is None or (isinstance(value, str) and value.strip() in absent):
        return None
    for one in words:
        if isinstance(value, str) and value.strip() == one.value:
            return one
    known = [one.value for one in words if one.value] + sorted(absent - {""})
    raise TranslationError(field, value, f"use {', '.join(known[:-1])} or {known[-1]}")


def boolean(field: str, value: Any) -> bool | None:
    """A JSON boolean, or a text that Go's ParseBool knows; None for null. Raises TranslationError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip() in _TRUE | _FALSE:
        return value.strip() in _TRUE
    raise TranslationError(field, value, "use true or false")


def cpus(field: str, value: Any) -> CPUSet:
    """A CPU list; null is the empty set. Raises TranslationError."""
    if value is None:
        return CPUSet()
    try:
        return CPUSet.parse(value.strip() if isinstance(value, str) else "?")
    except CPUSetError as error:
        raise TranslationError(field, value, f"not a CPU list such as '0-3,8': {error}") from error
