"""Split, cut and repair JSON that a strict decoder rejects as a whole, so that one object spoils no list.

An API server passes on what a tenant wrote into `managedFields` byte by byte: nested to 10,000 levels, and in
any encoding. Brackets are counted here in a loop, in linear time, so that no depth ends in a RecursionError.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

MOST_LEVELS: Final = 100
"""Deepest nesting that is read; no field that corelane reads lies deeper than 20."""
_MOST_DIGITS: Final = 30

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Strings and all else up to the next bracket; stops at a quote that begins no string, and at the end.
_BRACKET: Final = re.compile(rb'[^"\[\]{}]*+(?:%b[^"\[\]{}]*+)*+(?:([\[\]{}])|"|\Z)' % _STRING, re.DOTALL)
_SCALAR: Final = re.compile(rb"%b|[^,\s]+" % _STRING, re.DOTALL)
_ITEMS: Final = re.compile(rb'"items"\s*+:\s*+\Z')
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)",
    re.DOTALL,
)
_OPENING, _CLOSING = b"[{", b"]}"


def split_items(body: bytes) -> tuple[bytes, list[bytes]]:
    """Return a list object without its items, and each item's JSON.

    Raises ValueError for invalid brackets.
    """
    items: list[bytes] = []
    rest, begin = b"", 0
    for depth, at in _brackets(body):
        if depth == 2 and body[at] == ord("[") and not rest and _ITEMS.search(body[max(0, at - 99) : at]):
            rest, begin = body[: at + 1], at + 1
        elif rest and not begin:
            continue
        elif depth == 3 and body[at] in _OPENING and begin:
            items += _SCALAR.findall(body[begin:at])
            begin = at
        elif depth == 2 and body[at] in _CLOSING and begin:
            items.append(body[begin : at + 1])
            begin = at + 1
        elif depth == 1 and body[at] in _CLOSING and begin:
            items += _SCALAR.findall(body[begin:at])
            rest, begin = rest + body[at:], 0
    return rest or body, items


def repaired(raw: bytes) -> bytes:
    """Return JSON with null for what is nested too deep, and U+FFFD for what is not UTF-8, as Go reads it.

    Raises ValueError for invalid brackets.
    """
    pieces, begin = [], 0
    for depth, at in _brackets(raw):
        if depth == MOST_LEVELS + 1 and raw[at] in _OPENING:
            pieces.append(raw[begin:at])
        elif depth == MOST_LEVELS and raw[at] in _CLOSING:
            pieces.append(b"null")
            begin = at + 1
    whole = b"".join((*pieces, raw[begin:]))
    text = whole.decode(errors="replace").encode()
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], text) if b"\\u" in text else text


def _brackets(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield the depth after each bracket outside strings, and its position.

    Raises ValueError if unbalanced.
    """
    depth = 0
    for found in _BRACKET.finditer(body):
        if not found.lastindex:
            break
        at = found.end() - 1
        depth += 1 if body[at] in _OPENING else -1
        if depth < 0:
            break
        yield depth, at
    if depth:
        raise ValueError("JSON is cut short or its brackets do not match")


def plain_values(raw: bytes) -> Any:
    """Return JSON as plain values; an integer of more digits than any field holds is a string.

    Raises ValueError, RecursionError.
    """
    return json.loads(raw, parse_int=_integer)


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MOST_DIGITS else digits
