"""Changes of a ledger, as lines that are appended to its file: JSON objects with a checksum each.

A line replaces the named pods, entries and rules, removes those that are null or gone, and has all single
values. A last line without its end was being written when the process ended, and is dropped.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

_MAPS = ("pods", "tenants")


def checksum(body: Any) -> str:
    """Return the checksum of a file's or a line's content."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def line(changes: Mapping[str, Any]) -> bytes:
    """Return the line of changes, with its end."""
    whole = {"checksum": checksum(changes), "changes": changes}
    return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


def split(text: str) -> tuple[Any, list[str]]:
    """Return the JSON value at the start of a file, and the complete lines after it. Raises ValueError."""
    start = len(text) - len(text.lstrip())
    whole, end = json.JSONDecoder().raw_decode(text, start)
    first, *lines = text[end:].split("\n")
    if first.strip():
        raise ValueError(f"extra data at character {end}")
    return whole, lines[:-1]


def applied(body: Mapping[str, Any], lines: Iterable[str]) -> dict[str, Any]:
    """Return a file's body after the changes of its lines. Raises ValueError, naming the line."""
    made = dict(body)
    entries = {(entry["uid"], entry["container"]): entry for entry in body["entries"]}
    maps = {name: dict(body[name]) for name in _MAPS}
    for number, text in enumerate(lines, 1):
        changes = _verified(text, number)
        for name, values in maps.items():
            _update(values, changes.pop(name))
        for uid, container in changes.pop("gone"):
            entries.pop((uid, container), None)
        entries |= {(entry["uid"], entry["container"]): entry for entry in changes.pop("entries")}
        made |= changes
    return {**made, **maps, "entries": list(entries.values())}


def _verified(text: str, number: int) -> dict[str, Any]:
    try:
        read = json.loads(text)
        changes: dict[str, Any] = read["changes"]
        if read["checksum"] == checksum(changes):
            return changes
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"line {number} of changes is damaged ({error})") from None
    raise ValueError(f"line {number} of changes does not match its checksum")


def _update(values: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value
