"""Amounts as people write them: CPUs (`500m`, `1.5`), times (`5ms`, `1s`), counts."""

import re
from fractions import Fraction

from corelane.limits.model.clock import MS, SECOND, US

__all__ = ["count", "duration", "milli"]

_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_CPU = re.compile(rf"({_NUMBER})(m?)")
_TIME = re.compile(rf"({_NUMBER})\s*(ns|us|µs|ms|s|m)")
_UNITS = {"ns": 1, "us": US, "µs": US, "ms": MS, "s": SECOND, "m": 60 * SECOND}


def milli(value: object) -> int:
    """Thousandths of a CPU. Raises ValueError."""
    text = str(value).strip()
    found = None if isinstance(value, bool) else _CPU.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not an amount of CPU: write such as 500m or 1.5")
    amount = Fraction(found[1]) * (1 if found[2] else 1000)
    if amount.denominator != 1:
        raise ValueError(f"{text!r} is finer than a thousandth of a CPU")
    return int(amount)


def duration(value: object) -> int:
    """Nanoseconds; 0 needs no unit. Raises ValueError."""
    text = str(value).strip()
    if text in ("0", "0.0") and not isinstance(value, bool):
        return 0
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a time: write such as 250us, 5ms or 1s")
    return int(Fraction(found[1]) * _UNITS[found[2]])


def count(value: object, least: int = 1, most: int = 4096) -> int:
    """A whole number. Raises ValueError."""
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)
