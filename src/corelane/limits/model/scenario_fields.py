"""The fields of a scenario's YAML mappings, each taken once and read; a mistake names field and value.

The readers of single values raise ValueError in words that go after a field's name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Final, TypeVar

from corelane import durations

T = TypeVar("T")
Read = Callable[[Any], T]
_REQUIRED: Final[Any] = object()


class ScenarioError(ValueError):
    """A scenario cannot be read; the message names the field, the value and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping of which every field has to be taken. `path` is where it stands, such as `pods[0]`."""

    values: dict[str, Any]
    path: str

    @staticmethod
    def of(value: object, path: str) -> "Fields":
        if not isinstance(value, Mapping):
            raise ScenarioError(f"{path or 'the file'}: expected fields with values, found {shown(value)}")
        return Fields({str(key): one for key, one in value.items()}, path)

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, read: Read[T], default: T = _REQUIRED) -> T:
        """The field, read; a default if it is missing or empty. Raises ScenarioError."""
        value = self.values.pop(name, None)
        if value is None:
            if default is _REQUIRED:
                raise ScenarioError(f"{self.at(name)} is missing")
            return default
        try:
            return read(value)
        except ScenarioError:
            raise
        except ValueError as error:
            raise ScenarioError(f"{self.at(name)}: {error}") from None

    def list(self, name: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
        """A list of at least one. Raises ScenarioError."""
        values = self.take(name, lambda value: value)
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"{self.at(name)}: expected a list, found {shown(values)}")
        return tuple(read(value, f"{self.at(name)}[{i}]") for i, value in enumerate(values))

    def done(self, known: str) -> None:
        """Raise ScenarioError for fields not taken; `known` are the valid names."""
        for name in self.values:
            near = get_close_matches(name, known.split(), 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known.split())}"
            raise ScenarioError(f"{self.at(name)}: there is no such field{hint}")


def positive_time(value: Any) -> int:
    """Nanoseconds, more than 0."""
    found = duration(value)
    if not found:
        raise ValueError(f"{value!r} must be more than 0")
    return found


def number(value: Any) -> float:
    """A number from 0 up."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ValueError(f"{shown(value)} is not a number from 0 up")
    return float(value)


def part(value: Any) -> float:
    """A number from 0 to 1."""
    found = number(value)
    if found > 1:
        raise ValueError(f"{shown(value)} is not between 0 and 1")
    return found


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is neither true nor false")
    return value


def text(value: Any) -> str:
    """Text, or a number as it is written."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError(f"{shown(value)} is not a text")
    return str(value)


def name(value: Any) -> str:
    """Text that can be one part of `pod/container`."""
    found = text(value)
    if not found or "/" in found or not found.isprintable():
        raise ValueError(f"{found!r} is not a name: use letters, digits, - and .")
    return found


def choice(*names: str) -> Read[Any]:
    """A reader of one of these names."""

    def read_choice(value: Any) -> str:
        if str(value) not in names:
            raise ValueError(f"{shown(value)} is not one of {', '.join(names)}")
        return str(value)

    return read_choice


def shown(value: object) -> str:
    """The value as it is quoted in an error, cut where it is long."""
    whole = repr(value)
    return whole if len(whole) <= 40 else whole[:37] + "…"


_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_CPU = re.compile(rf"({_NUMBER})(m?)")


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
    try:
        length = durations.parse("0" if text == "0.0" else "".join(text.split()))
    except durations.DurationError:
        length = -1
    if length < 0:
        raise ValueError(f"{text!r} is not a time: write such as 250us, 5ms or 1s")
    return length


def count(value: object, least: int = 1, most: int = 4096) -> int:
    """A whole number. Raises ValueError."""
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or not least <= int(text) <= most:
        raise ValueError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)
