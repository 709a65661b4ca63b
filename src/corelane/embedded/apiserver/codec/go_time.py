"""Times in RFC 3339 as Go's `time.Parse` reads them, and its words for what it cannot read.

After `src/time/format.go` of Go: an hour of one digit, a comma before the fraction and offsets of 24 hours
are read too. Indices count bytes, as Go's strings do; so texts are held with one letter a byte.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

SECONDS = "2006-01-02T15:04:05Z07:00"
"""`time.RFC3339`: any fraction of a second may follow, and is dropped."""
MICROSECONDS = "2006-01-02T15:04:05.000000Z07:00"
"""apimachinery's `RFC3339Micro`: six digits after the point, no more and no fewer."""

_USUAL = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z", re.ASCII)
_FRACTION = re.compile(r"[.,][0-9]+")
_OFFSET = re.compile(r"(?P<sign>.)(?P<hours>..):(?P<minutes>..)", re.DOTALL)
# What the layouts have before the fraction: (separator, element, whether two digits are required).
_NUMBERS = (
    ("", "2006", True),
    ("-", "01", True),
    ("-", "02", True),
    ("T", "15", False),
    (":", "04", True),
    (":", "05", True),
)
_RANGES = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59), "05": ("second", 0, 59)}
_MOST_OFFSET = {"hours": ("time zone offset hour", 24), "minutes": ("time zone offset minute", 60)}


class TimeError(ValueError):
    """A text is not a time in the layout; the message is Go's."""


@dataclass(slots=True)
class _Text:
    """A text under way: what is left of it, and the numbers read so far."""

    whole: str
    layout: str
    rest: str

    def bad(self, element: str, at: str | None = None) -> TimeError:
        rest = self.rest if at is None else at
        why = f"cannot parse {_quoted(rest)} as {_quoted(element)}"
        return TimeError(f"parsing time {_quoted(self.whole)} as {_quoted(self.layout)}: {why}")

    def wrong(self, what: str) -> TimeError:
        return TimeError(f"parsing time {_quoted(self.whole)}: {what}")


def canonical(text: str, layout: str) -> str | None:
    """Return the time in UTC as Go writes it; None for the zero time, which Go writes as null.

    Raises TimeError.
    """
    usual = _USUAL.fullmatch(text)
    if usual and (layout == SECONDS or len(usual[2] or "") == 6):
        try:
            datetime.fromisoformat(usual[1])
        except ValueError:
            pass
        else:
            fraction = f".{usual[2]}" if layout == MICROSECONDS else ""
            return _unless_zero(f"{usual[1]}{fraction}Z")
    return _unless_zero(_parsed(text.encode().decode("latin-1"), layout))


def _unless_zero(text: str) -> str | None:
    return None if text.rstrip("Z0.") == "0001-01-01T00:00:" else text


def _parsed(text: str, layout: str) -> str:
    left = _Text(text, layout, text)
    numbers = [_number(left, *part) for part in _NUMBERS]
    fraction = ""
    if layout == MICROSECONDS:
        fraction = _microseconds(left)
    elif found := _FRACTION.match(left.rest):
        left.rest = left.rest[found.end() :]
    offset = _offset(left)
    if left.rest:
        raise left.wrong(f"extra text: {_quoted(left.rest)}")
    year, month, day, hour, minute, second = numbers
    try:
        moment = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - the offset follows
    except ValueError:
        raise left.wrong("day out of range") from None
    try:
        return f"{(moment - offset).isoformat()}{fraction}Z"
    except OverflowError:
        raise left.wrong("year out of range") from None


def _number(left: _Text, separator: str, element: str, two: bool) -> int:
    if separator:
        if not left.rest.startswith(separator):
            raise left.bad(separator)
        left.rest = left.rest[1:]
    before = left.rest
    digits = _year(before) if element == "2006" else _digits(before, two=two)
    if not digits:
        raise left.bad(element, before)
    left.rest = before[len(digits) :]
    number = int(digits)
    if element in _RANGES:
        what, low, high = _RANGES[element]
        if not low <= number <= high:
            raise left.wrong(f"{what} out of range")
    return number


def _year(text: str) -> str:
    return text[:4] if len(text) >= 4 and _numeric(text[:4]) else ""


def _digits(text: str, *, two: bool) -> str:
    if _numeric(text[:2]) and len(text) >= 2:
        return text[:2]
    return text[:1] if _numeric(text[:1]) and not two else ""


def _numeric(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _microseconds(left: _Text) -> str:
    point, digits = left.rest[:1], left.rest[1:7]
    plain = digits[1:] if digits[:1] in {"+", "-"} else digits
    if point not in {".", ","} or len(digits) < 6 or not _numeric(plain):
        raise left.bad(".000000")
    if digits[0] == "-" and int(plain):
        raise left.wrong("fractional second out of range")
    left.rest = left.rest[7:]
    return f".{int(plain):06d}"


def _offset(left: _Text) -> timedelta:
    """Return what is east of UTC."""
    before = left.rest
    if before.startswith("Z"):
        left.rest = before[1:]
        return timedelta()
    parts = _OFFSET.match(before)
    if not parts:
        raise left.bad("Z07:00")
    left.rest = before[6:]
    readable = all(_numeric(parts[name]) for name in _MOST_OFFSET)
    for name, (what, most) in _MOST_OFFSET.items():
        if _numeric(parts[name]) and int(parts[name]) > most:
            raise left.wrong(f"{what} out of range")
        if not _numeric(parts[name]):
            break
    if not readable or parts["sign"] not in {"+", "-"}:
        raise left.bad("Z07:00", before)
    east = timedelta(hours=int(parts["hours"]), minutes=int(parts["minutes"]))
    return east if parts["sign"] == "+" else -east


def _quoted(text: str) -> str:
    """Return the text in quotes, letters outside ASCII byte by byte in hexadecimal."""
    letters = (
        f"\\{letter}" if letter in '"\\' else letter if " " <= letter < "\x80" else f"\\x{ord(letter):02x}"
        for letter in text
    )
    return f'"{"".join(letters)}"'
