"""Sets of logical CPU ids over one Python int, with the Linux list and mask formats in and out.

`CPUSet` is the face; hot loops work on the bare masks (bit i set = CPU i in the set) with the functions here.
"""

import re
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import compress, count
from operator import or_

__all__ = [
    "MAX_CPU",
    "CPUSet",
    "CPUSetError",
    "bits",
    "format_hex",
    "format_list",
    "lowest",
    "named",
    "parse_hex",
    "parse_list",
    "quoted",
    "runs",
    "verb",
]

MAX_CPU = (1 << 20) - 1
"""The highest CPU id taken from text: far above what Linux allows (8191), low enough to stay cheap."""

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_HEX_WORD = re.compile(r"(?:0[xX])?[0-9a-fA-F]+", re.ASCII)
_HEX_WORDS = re.compile(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{8})*", re.ASCII)
_INT64 = range(-(1 << 63), 1 << 63)
_ESCAPES = {ord(letter): f"\\{name}" for letter, name in zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True)}
_SELECTORS = bytes.maketrans(b"01", b"\0\1")


class CPUSetError(ValueError):
    """A text or a number that is no set of CPU ids; the message quotes what was wrong."""


def runs(mask: int) -> Iterator[tuple[int, int]]:
    """The maximal runs of set bits, ascending, as (first, last) inclusive."""
    while mask:
        low = mask & -mask
        run = mask & ~(mask + low)
        yield low.bit_length() - 1, run.bit_length() - 1
        mask ^= run


def bits(mask: int) -> Iterator[int]:
    """The CPU ids in a mask, ascending."""
    skip = (mask & -mask).bit_length() - 1 if mask else 0
    return compress(count(skip), bin(mask >> skip)[:1:-1].encode().translate(_SELECTORS))


def lowest(mask: int, n: int) -> int:
    """The mask of the n lowest CPU ids in `mask`; all of it when it holds no more than n."""
    taken = 0
    while mask and n > 0:
        low = mask & -mask
        run = mask & ~(mask + low)
        size = run.bit_count()
        if size >= n:
            return taken | (low << n) - low
        taken |= run
        mask ^= run
        n -= size
    return taken


def format_list(mask: int) -> str:
    """Linux list format: `0-3,8,10-11`; the empty set is the empty string."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs(mask))


def named(mask: int) -> str:
    """The set as texts for people name it: `CPU 3`, `CPUs 0-3,8`, or `no CPU`."""
    if not mask:
        return "no CPU"
    return f"CPU{'s' if mask & mask - 1 else ''} {format_list(mask)}"


def verb(mask: int, one: str = "is", more: str = "are") -> str:
    """The verb behind `named`: of a single CPU, or of several."""
    return more if mask & mask - 1 else one


def parse_list(text: str) -> int:
    """The mask of a Linux list, as strictly as Kubernetes' `cpuset.Parse`: nothing is trimmed.

    Raises CPUSetError with upstream's text; unlike upstream, ids above MAX_CPU are refused,
    not expanded.
    """
    if not text:
        return 0
    mask = 0
    for piece in text.split(","):
        head, dash, tail = piece.partition("-")
        first = _atoi(head)
        last = _atoi(tail) if dash else first
        if first > last:
            raise CPUSetError(f"invalid range {quoted(piece)} ({first} > {last})")
        if last > MAX_CPU:
            raise CPUSetError(f"CPU id {last} is too large (at most {MAX_CPU})")
        mask |= (2 << last) - (1 << first)
    return mask


def _atoi(text: str) -> int:
    """Go's strconv.Atoi: stricter than int(), and bounded to 64 bits."""
    if not _INTEGER.fullmatch(text):
        raise CPUSetError(f"strconv.Atoi: parsing {quoted(text)}: invalid syntax")
    digits = text.lstrip("+-").lstrip("0") or "0"
    sign = -1 if text[0] == "-" else 1
    # Python's int() refuses 4300 digits and more, zeros in front included.
    if len(digits) > 19 or (value := sign * int(digits)) not in _INT64:
        raise CPUSetError(f"strconv.Atoi: parsing {quoted(text)}: value out of range")
    return value


def quoted(text: str) -> str:
    """Go's %q, in which upstream's messages quote what they were given: always on one line."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    code = ord(letter)
    if code in _ESCAPES:
        return _ESCAPES[code]
    if letter.isprintable():
        return letter
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_hex(mask: int, width: int = 0) -> str:
    """The kernel's mask format: hexadecimal words of 32 CPUs, highest first, joined by commas.

    With `width` (number of possible CPUs) it is zero-padded as the kernel pads it.
    """
    digits = max(-(-max(width, mask.bit_length()) // 4), 1)
    text = f"{mask:0{digits}x}"
    head = len(text) % 8
    words = [text[i : i + 8] for i in range(head, len(text), 8)]
    return ",".join([text[:head], *words] if head else words)


def parse_hex(text: str) -> int:
    """The mask of hexadecimal words, with or without commas and `0x`; blanks around it are ignored."""
    text = text.strip()
    mask = int(text.replace(",", ""), 16) if _HEX_WORDS.fullmatch(text) else _joined(text)
    if mask >> MAX_CPU + 1:
        raise CPUSetError(f"CPU id {mask.bit_length() - 1} is too large (at most {MAX_CPU})")
    return mask


def _joined(text: str) -> int:
    """The mask of words that are not as long as the kernel's."""
    words = text.split(",")
    if not all(_HEX_WORD.fullmatch(word) for word in words):
        raise CPUSetError(f'"{text}" is not a hexadecimal CPU mask (like ff or 00000003,ffffffff)')
    values = [int(word, 16) for word in words]
    if len(words) > 1 and max(values) >> 32:
        raise CPUSetError(f'"{text}" has a word of more than 8 hexadecimal digits')
    return reduce(lambda high, word: high << 32 | word, values)


class CPUSet:
    """An immutable, hashable set of CPU ids. Compared by inclusion, as sets are."""

    __slots__ = ("_mask",)
    _mask: int

    def __init__(self, cpus: Iterable[int] = ()) -> None:
        ids = tuple(cpus)
        if ids and not 0 <= min(ids) <= max(ids) <= MAX_CPU:
            raise CPUSetError(f"CPU ids must lie in 0-{MAX_CPU}, not {min(ids)}-{max(ids)}")
        self._mask = reduce(or_, (1 << cpu for cpu in ids), 0)

    @property
    def mask(self) -> int:
        """The bit mask: bit i is set if CPU i is in the set."""
        return self._mask

    @classmethod
    def from_mask(cls, mask: int) -> "CPUSet":
        """The set whose bits are those of `mask`."""
        if mask < 0:
            raise CPUSetError(f"a CPU mask cannot be negative, as {mask} is")
        return _of(mask)

    @classmethod
    def parse(cls, text: str) -> "CPUSet":
        """From Linux list format; see `parse_list` for what is accepted and raised."""
        return _of(parse_list(text))

    @classmethod
    def from_hex(cls, text: str) -> "CPUSet":
        """From a hexadecimal mask such as /proc and sysfs show; see `parse_hex`."""
        return _of(parse_hex(text))

    def to_hex(self, width: int = 0) -> str:
        """As a hexadecimal mask in words of 32 CPUs; see `format_hex`."""
        return format_hex(self._mask, width)

    def isdisjoint(self, other: "CPUSet") -> bool:
        return not self._mask & other._mask

    def __or__(self, other: "CPUSet") -> "CPUSet":
        made = _new(CPUSet)
        try:
            made._mask = self._mask | other._mask
        except AttributeError:
            return NotImplemented
        return made

    def __and__(self, other: "CPUSet") -> "CPUSet":
        made = _new(CPUSet)
        try:
            made._mask = self._mask & other._mask
        except AttributeError:
            return NotImplemented
        return made

    def __sub__(self, other: "CPUSet") -> "CPUSet":
        made = _new(CPUSet)
        try:
            made._mask = (mine := self._mask) ^ (mine & other._mask)
        except AttributeError:
            return NotImplemented
        return made

    def __xor__(self, other: "CPUSet") -> "CPUSet":
        made = _new(CPUSet)
        try:
            made._mask = self._mask ^ other._mask
        except AttributeError:
            return NotImplemented
        return made

    def __eq__(self, other: object) -> bool:
        if type(other) is not CPUSet:
            return NotImplemented
        return self._mask == other._mask

    def __le__(self, other: "CPUSet") -> bool:
        if type(other) is not CPUSet:
            return NotImplemented
        return self._mask | other._mask == other._mask

    def __lt__(self, other: "CPUSet") -> bool:
        if type(other) is not CPUSet:
            return NotImplemented
        return self._mask != other._mask == self._mask | other._mask

    def __ge__(self, other: "CPUSet") -> bool:
        if type(other) is not CPUSet:
            return NotImplemented
        return self._mask | other._mask == self._mask

    def __gt__(self, other: "CPUSet") -> bool:
        if type(other) is not CPUSet:
            return NotImplemented
        return other._mask != self._mask == self._mask | other._mask

    def __contains__(self, cpu: int) -> bool:
        return cpu >= 0 and bool(self._mask >> cpu & 1)

    def __iter__(self) -> Iterator[int]:
        return bits(self._mask)

    def __len__(self) -> int:
        return self._mask.bit_count()

    def __bool__(self) -> bool:
        return self._mask != 0

    def __hash__(self) -> int:
        return hash(self._mask)

    def __str__(self) -> str:
        return format_list(self._mask)

    def __repr__(self) -> str:
        return f"CPUSet.parse({format_list(self._mask)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return CPUSet.from_mask, (self._mask,)


# The operators make their result by hand: __init__ would cost as much again as the operation.
_new = object.__new__


def _of(mask: int) -> CPUSet:
    made = _new(CPUSet)
    made._mask = mask
    return made
