"""Kubernetes quantities ("1500m", "1.5Gi", "2e9"): exact values, and the canonical text a server answers.

The rules are those of apimachinery's `resource.Quantity` (`pkg/api/resource`, 1.36): anything finer than
a nano is rounded away from zero, binary values are capped at 2^63-1, and a canonical text is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

DECIMAL_SI = "DecimalSI"
BINARY_SI = "BinarySI"
DECIMAL_EXPONENT = "DecimalExponent"

NANO = 10**9
_FAST_DIGITS = 18  # what upstream's int64 fast path takes
MOST_COUNTED = 2**53 - 1
"""Largest amount in decisions: exact as a float, and the sum of a thousand fits into 64 bits."""
_MAX_BINARY = (2**63 - 1) * NANO
_MAX_DIGITS = (
    1024  # upstream takes more, in numbers and exponents; no real amount does, and we would build them
)

_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BINARY = {suffix: 10 * step for step, suffix in enumerate(_BINARY_SUFFIX) if suffix}

# Upstream's texts.
WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
WRONG_NUMBER = "unable to parse numeric part of quantity"
WRONG_SUFFIX = "unable to parse quantity's suffix"


class QuantityError(ValueError):
    """A text is not a quantity; the message is upstream's."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount in billionths (`nano`, exact), how it was written, and its canonical text."""

    nano: int
    format: str
    text: str

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _away_from_zero(self.nano, 10**6)

    @property
    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _away_from_zero(self.nano, NANO)

    @property
    def whole(self) -> bool:
        """Whether the amount has no fraction."""
        return self.nano % NANO == 0

    def __str__(self) -> str:
        return self.text


def of_nano(nano: int, form: str = DECIMAL_SI) -> Quantity:
    """The quantity of so many billionths, in its canonical text."""
    return Quantity(nano, form, _text(nano, form))


def of_milli(milli: int, form: str = DECIMAL_SI) -> Quantity:
    """The quantity of so many thousandths."""
    return of_nano(milli * 10**6, form)


def of_value(value: int, form: str = DECIMAL_SI) -> Quantity:
    """The quantity of so many whole units."""
    return of_nano(value * NANO, form)


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """Read a quantity. Raises QuantityError, with upstream's text, where it is none."""
    shape = _SHAPE.fullmatch(text)
    if not text or not shape:
        raise QuantityError(WRONG_FORMAT)
    sign, whole, fraction, suffix = shape[1], shape[2].lstrip("0"), shape[3] or "", shape[4]
    base, exponent, form = _interpret(suffix)
    digits = (whole or "0") + fraction
    if len(digits) > _MAX_DIGITS:
        raise QuantityError(WRONG_NUMBER)
    nano = _scaled(int(digits), base, exponent, len(fraction))
    form, nano = _bounded(form, nano, base)
    nano = -nano if sign == "-" else nano
    if _kept(text, digits, fraction, exponent, form):
        return Quantity(nano, form, text)
    return of_nano(nano, form)


def milli(text: str) -> int:
    """Thousandths in a quantity's text ("1.5" → 1500), as they are counted. Raises QuantityError.

    Rounded away from zero, and at most `MOST_COUNTED`: "1e30" is an amount that the API server accepts.
    """
    return _counted(parse(text).milli)


def value(text: str) -> int:
    """Whole units in a quantity's text ("1Ki" → 1024), counted as by `milli`. Raises QuantityError."""
    return _counted(parse(text).value)


def _counted(amount: int) -> int:
    return max(-MOST_COUNTED, min(MOST_COUNTED, amount))


def canonical(text: str) -> str:
    """The text that an API server answers for a quantity ("1024Ki" → "1Mi"). Raises QuantityError."""
    return parse(text).text


def rounded_to_milli(quantity: Quantity) -> Quantity:
    """The quantity with anything finer than a thousandth rounded away from zero ("100n" → "1m")."""
    if quantity.nano % 10**6 == 0:
        return quantity
    return of_milli(quantity.milli, quantity.format)


def _interpret(suffix: str) -> tuple[int, int, str]:
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], DECIMAL_SI
    if suffix in _BINARY:
        return 2, _BINARY[suffix], BINARY_SI
    exponent = _EXPONENT.fullmatch(suffix)
    if not exponent:
        raise QuantityError(WRONG_SUFFIX)
    if len(exponent[1]) > 6 or abs(int(exponent[1])) > _MAX_DIGITS:
        raise QuantityError(WRONG_NUMBER)
    return 10, int(exponent[1]), DECIMAL_EXPONENT


def _scaled(digits: int, base: int, exponent: int, decimals: int) -> int:
    """`digits` * 10^-decimals * base^exponent in nanos, rounded up."""
    if base == 2:
        return -(-digits * (1 << exponent) * NANO // _power_of_ten(decimals))
    shift = 9 + exponent - decimals
    return digits * _power_of_ten(shift) if shift >= 0 else -(-digits // _power_of_ten(-shift))


def _power_of_ten(exponent: int) -> int:
    return int(10**exponent)


def _bounded(form: str, nano: int, base: int) -> tuple[str, int]:
    if base == 2 and 0 < nano < NANO:
        return DECIMAL_SI, nano
    return form, min(nano, _MAX_BINARY) if base == 2 else nano


def _kept(text: str, digits: str, fraction: str, exponent: int, form: str) -> bool:
    """Whether upstream's fast path takes the text for canonical and keeps it (so "1.500" too)."""
    if text == "0":
        return True
    if form == BINARY_SI:
        fits = "." not in text and 14 - len(digits) - int(exponent * 3 / 10) >= 0
        return fits and int(digits) & 7 != 0
    scale = exponent - len(fraction)
    fits = len(digits) <= _FAST_DIGITS and scale >= -9
    return fits and scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


def _away_from_zero(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount >= 0 else amount // unit


def _text(nano: int, form: str) -> str:
    if nano == 0:
        return "0"
    if form == BINARY_SI and nano % NANO == 0 and abs(nano) >= 1024 * NANO:
        return _binary_text(nano // NANO)
    return _decimal_text(nano, DECIMAL_EXPONENT if form == DECIMAL_EXPONENT else DECIMAL_SI)


def _binary_text(amount: int) -> str:
    step = 0
    while amount % 1024 == 0 and step < len(_BINARY_SUFFIX) - 1:
        amount, step = amount // 1024, step + 1
    return f"{amount}{_BINARY_SUFFIX[step]}"


def _decimal_text(nano: int, form: str) -> str:
    exponent = -9
    while nano % 1000 == 0 and (form == DECIMAL_EXPONENT or exponent < 18):
        nano, exponent = nano // 1000, exponent + 3
    if form == DECIMAL_EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIX[exponent]}"
