"""One step of a field path, as the text that managed fields write for it.

`f:NAME` is a field, `k:{…}` a list item by its keys, `v:…` an item of a set by its value, `i:N` one by its
position. Sets of fields use these texts as they are, so each element has exactly one text.
Upstream: structured-merge-diff `fieldpath`.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from corelane.embedded.apiserver.codec.json_reading import Float
from corelane.embedded.apiserver.status_errors import quoted

_KEPT = 20_000
_HTML = str.maketrans(
    {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)

Order = tuple[Any, ...]


class PathElementError(ValueError):
    """A text that is not a path element."""


def html_escaped(text: str) -> str:
    """JSON with HTML's own characters as escapes, as Go writes it."""
    return text.translate(_HTML)


def field(name: str) -> str:
    return f"f:{name}"


def item(keys: Iterable[tuple[str, Any]]) -> str:
    """Return the element of a list item; `keys` are sorted by name."""
    return "k:{" + ",".join(f"{_text(name)}:{_json(value)}" for name, value in keys) + "}"


def member(value: Any) -> str:
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
def read(text: str) -> str:
    """Return the one text of an element that a client wrote, "" for kinds of later versions.

    Raises PathElementError.
    """
    if len(text) < 2:
        raise PathElementError("key must be 2 characters long:")
    if text[1] != ":":
        raise PathElementError(f"missing colon: {text}")
    try:
        match text[0]:
            case "f":
                return text
            case "v":
                return member(json.loads(text[2:]))
            case "k":
                return item(sorted(dict(json.loads(text[2:])).items()))
            case "i":
                return f"i:{int(text[2:])}"
    except (ValueError, TypeError, RecursionError) as error:
        raise PathElementError(f"{text}: {error}") from None
    return ""


@lru_cache(_KEPT)
def order(text: str) -> Order:
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
def shown(text: str) -> str:
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
