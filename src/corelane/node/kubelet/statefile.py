"""Common format of the kubelet's state files: Go's lenient JSON, and checksums over what Go prints.

Upstream: `pkg/kubelet/checkpointmanager`, Go's `encoding/json`, and spew as `k8s.io/utils/dump` sets it up.
A checksum covers the decoded values and not the bytes: it is FNV-1a over the structure as spew prints it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any


class CheckpointError(ValueError):
    """A state file that the kubelet would not start with; says which field, and what to do."""


class MalformedError(ValueError):
    """A field and its fault; `decode` adds the remedy for such a file."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object as it stands in the file: Go merges repeated members by its own rules."""


def parse(content: bytes, where: str) -> Pairs:
    """The members of a JSON object. Raises MalformedError for what Go's decoder would not take."""
    text = content.decode("utf-8", "replace")
    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        if not text.strip():
            raise MalformedError(f"{where} is empty") from None
        if whole := whole_object(content):
            rest = len(content) - len(whole)
            raise MalformedError(
                f"{where} is too long: a whole JSON object ends at byte {len(whole)}, and {rest} bytes of "
                "another, mostly an older and longer state, follow it"
            ) from None
        raise MalformedError(
            f"{where} is not valid JSON, perhaps truncated after {len(content)} bytes ({error})"
        ) from None
    if value is not None and not isinstance(value, Pairs):
        raise MalformedError(f"{where} is a JSON {type(value).__name__}, not an object")
    return value or Pairs()


def whole_object(content: bytes) -> bytes:
    """Return the JSON object that a file begins with, where more than blanks follow it; else b""."""
    text = content.decode("utf-8", "replace")
    start = len(text) - len(text.lstrip())
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return b""
    return text[:end].encode() if isinstance(value, dict) and text[end:].strip() else b""


def _pairs(members: list[tuple[str, Any]]) -> Pairs:
    return Pairs((_text(name), _text(value)) for name, value in members)


def _text(value: Any) -> Any:
    """Replace halves of surrogate pairs, which are not text, as Go does."""
    return _HALVES.sub("\ufffd", value) if isinstance(value, str) else value


_HALVES = re.compile("[\ud800-\udfff]")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number in JSON")


class StateFields:
    """The members of a Go structure: names match whatever their case, null changes nothing, maps merge."""

    __slots__ = ("values",)

    def __init__(self, pairs: Pairs) -> None:
        self.values: dict[str, Any] = {}
        for name, value in pairs:
            before = self.values.get(name.casefold())
            both = isinstance(before, Pairs) and isinstance(value, Pairs)
            self.values[name.casefold()] = Pairs([*before, *value]) if both and before else value

    def __contains__(self, name: str) -> bool:
        return name.casefold() in self.values

    def get(self, name: str) -> Any:
        return self.values.get(name.casefold())

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str | None):
            raise MalformedError(f"{name}: is {type(value).__name__}, not a string")
        return value or ""

    def number(self, name: str) -> int:
        value = self.get(name)
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
            raise MalformedError(f"{name}: is {value!r}, not a whole number of 64 bits")
        return value

    def members(self, name: str) -> dict[str, Any] | None:
        """A map; None is an explicit null."""
        if name not in self:
            return {}
        value = self.get(name)
        if not isinstance(value, Pairs | None):
            raise MalformedError(f"{name}: is {type(value).__name__}, not an object")
        return None if value is None else dict(value)


def fnv1a(text: str) -> int:
    """FNV-1a, 32 bit, of the text in UTF-8."""
    digest = 0x811C9DC5
    for byte in text.encode():
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return digest


def payload_checksum(data: str) -> int:
    """The `dataChecksum` of a file that carries its content as text (from 1.37)."""
    return fnv1a("(string)" + data)


def go_json(value: Mapping[str, Any]) -> str:
    """Compact JSON with sorted inner keys and Go's escapes."""
    fields = {key: _sorted(member) for key, member in value.items()}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _sorted(value: Any) -> Any:
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, Mapping) else value
