"""Durations as Go and Kubernetes write them: `1h30m`, `-1.5s`, `250us`."""

import re
from typing import Final

_UNITS: Final = {
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
_PART: Final = re.compile(rf"([0-9]*)(?:\.([0-9]*))?({'|'.join(_UNITS)})")
_WHOLE: Final = re.compile(rf"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:{'|'.join(_UNITS)}))+)")
_LONGEST: Final = 80
_LARGEST: Final = 1 << 63


class DurationError(ValueError):
    """A text is not a duration; the message names it and the expected form."""


def parse(text: str) -> int:
    """Return a duration in nanoseconds, as Go's `time.ParseDuration` reads it. Raises DurationError."""
    valid = len(text) <= _LONGEST and _WHOLE.fullmatch(text)
    negative = text.startswith("-")
    total = sum(_length(*part) for part in _PART.findall(text)) if valid else _LARGEST + 1
    if total >= _LARGEST + negative:
        raise DurationError(f"{text[:_LONGEST]!r} is not a duration such as 300ms, 15s or 1h30m")
    return -total if negative else total


def _length(whole: str, fraction: str, unit: str) -> int:
    scale = _UNITS[unit]
    return int(whole or 0) * scale + int(int(fraction or 0) * scale // 10 ** len(fraction))


def text(seconds: float) -> str:
    """Format seconds, one or more, as Go does: `1h0m5s`."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    before = f"{hours:.0f}h{minutes:.0f}m" if hours else f"{minutes:.0f}m" if minutes else ""
    return f"{before}{left:g}s"
