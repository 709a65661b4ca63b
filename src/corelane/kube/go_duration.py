"""Durations as Go's `time.ParseDuration` reads them (`1h30m`, `-1.5s`), and its words for faults."""

import re

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
"""Nanoseconds by unit."""

_NUMBER = re.compile(r"([0-9]*)(\.[0-9]*)?")
_UNIT = re.compile(r"[^.0-9]*", re.DOTALL)
_LARGEST = 1 << 63
_MOST_DIGITS = 20


class DurationError(ValueError):
    """A text is not a duration; the message is Go's."""


def parse(text: str) -> int:
    """Return a duration in nanoseconds. Raises DurationError.

    After `src/time/format.go` of Go.
    """
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if rest == "0":
        return 0
    total = 0 if rest else _LARGEST + 1
    while rest:
        length, rest = _part(text, rest)
        total += length
        if total > _LARGEST:
            break
    negative = text.startswith("-")
    if total > _LARGEST or (total == _LARGEST and not negative):
        raise _error(text, "invalid duration")
    return -total if negative else total


def _part(text: str, rest: str) -> tuple[int, str]:
    """Read a number and its unit."""
    match = _NUMBER.match(rest)
    assert match
    whole, fraction = match[1], (match[2] or "")[1:]
    if not whole and not fraction:
        raise _error(text, "invalid duration")
    rest = rest[match.end() :]
    unit = _UNIT.match(rest)
    if not unit or not unit[0]:
        raise _error(text, "missing unit in duration")
    if unit[0] not in _UNITS:
        raise _error(text, f"unknown unit {_quoted(unit[0])} in duration")
    digits = whole.lstrip("0")
    if len(digits) > _MOST_DIGITS:
        raise _error(text, "invalid duration")
    scale = _UNITS[unit[0]]
    length = int(digits or "0") * scale
    fraction = fraction[:_MOST_DIGITS]
    length += int(fraction or "0") * scale // 10 ** len(fraction)
    return length, rest[unit.end() :]


def _error(text: str, why: str) -> DurationError:
    return DurationError(f"time: {why} {_quoted(text)}")


def _quoted(text: str) -> str:
    """Quote a text as package time does: what is not ASCII byte by byte."""
    return '"' + "".join(map(_shown, text)) + '"'


def _shown(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if " " <= letter < "\x80":
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode(errors="surrogateescape"))
