"""YAML values with their position in the file, and the CPU and memory amounts among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from corelane import quantity

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Position:
    """A position, both counted from 1; `trail` is the lines of everything around it, outermost first."""

    line: int
    column: int
    trail: tuple[int, ...] = ()


NOWHERE: Final = Position(1, 1)


@dataclass(frozen=True, slots=True)
class LocatedScalar:
    """A single value as it was written; `plain` where no quotes make it a string."""

    text: str
    plain: bool
    place: Position

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class LocatedMember:
    """A key's place and the value that it has."""

    place: Position
    value: Located


@dataclass(frozen=True, slots=True)
class LocatedMapping:
    """A mapping, in the order of the file."""

    members: Mapping[str, LocatedMember]
    place: Position


@dataclass(frozen=True, slots=True)
class LocatedList:
    """A sequence."""

    items: tuple[Located, ...]
    place: Position


Located: TypeAlias = LocatedScalar | LocatedMapping | LocatedList


def at(node: Located | None, *path: str) -> Located | None:
    """Return the value below the keys of `path`; None where nothing does, or null."""
    for key in path:
        member = node.members.get(key) if isinstance(node, LocatedMapping) else None
        node = member.value if member else None
    return None if isinstance(node, LocatedScalar) and node.is_null else node


def place(node: Located | None, *path: str) -> Position:
    """Return the place of the last key of `path`; where that is missing, the nearest thing around it."""
    position = node.place if node else NOWHERE
    for key in path:
        member = node.members.get(key) if isinstance(node, LocatedMapping) else None
        if member is None:
            break
        position, node = member.place, member.value
    return position


def items(node: Located | None, *path: str) -> tuple[Located, ...]:
    """The items of the list below `path`; none where there is no list."""
    sequence = at(node, *path)
    return sequence.items if isinstance(sequence, LocatedList) else ()


def command_line(container: Located) -> list[str]:
    """Return the words of a container's `command` and `args`."""
    return [text(word) for part in ("command", "args") for word in items(container, part)]


def pairs(node: Located | None, *path: str) -> Iterator[tuple[str, LocatedMember]]:
    """The members of the mapping below `path` that are not null."""
    mapping = at(node, *path)
    if isinstance(mapping, LocatedMapping):
        for key, member in mapping.members.items():
            if not (isinstance(member.value, LocatedScalar) and member.value.is_null):
                yield key, member


def text(node: Located | None, *path: str) -> str:
    """The text of the scalar below `path`; empty where there is none."""
    scalar = at(node, *path)
    return scalar.text if isinstance(scalar, LocatedScalar) else ""


def located(value: Any) -> Located:
    """Return decoded JSON as located values, for readers to whom positions do not matter."""
    if isinstance(value, dict):
        members = {str(key): LocatedMember(NOWHERE, located(each)) for key, each in value.items()}
        return LocatedMapping(members, NOWHERE)
    if isinstance(value, list):
        return LocatedList(tuple(map(located, value)), NOWHERE)
    if value is None or isinstance(value, bool):
        return LocatedScalar({None: "", True: "true", False: "false"}[value], plain=True, place=NOWHERE)
    return LocatedScalar(str(value), plain=not isinstance(value, str), place=NOWHERE)


# CPU and memory amounts: as written, and as the API server takes them.

_RESOURCES = ("cpu", "memory")
_MEMORY_UNITS: Final = frozenset({"k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"})
_MOST_CPUS: Final = 8192
"""The most that Linux can be built for (x86, CONFIG_MAXSMP)."""
_LEAST_MEMORY: Final = 1 << 19
"""Bytes; the runtimes' own least is 4 to 6 MiB."""
_MOST_NANO: Final = (2**63 - 1) * 10**6
"""Larger amounts count as this, as where the API server takes them in thousandths."""


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity at its key's place. `nano` is None where it is none, and `error` says why."""

    text: str
    nano: int | None
    place: Position
    error: str = ""
    meant: str = ""
    """Amount that may be meant, where it is a quantity but of an amount that cannot be."""

    @property
    def milli(self) -> int:
        """Thousandths, rounded up as the API server does; 0 where it is no quantity."""
        return -(-(self.nano or 0) // 10**6)


@dataclass(frozen=True, slots=True)
class ManifestResources:
    """CPU and memory of a container, or of a pod as a whole."""

    requests: Mapping[str, Amount]
    limits: Mapping[str, Amount]
    place: Position

    def request(self, name: str) -> int:
        """Nano-units asked for: the request, or the limit, which the API server takes where there is none."""
        amount = self.requests.get(name) or self.limits.get(name)
        return (amount.nano or 0) if amount else 0

    def limit(self, name: str) -> int:
        """Nano-units; 0 where there is no limit."""
        amount = self.limits.get(name)
        return (amount.nano or 0) if amount else 0


def nano_units(written: str) -> int:
    """Return a quantity in nano-units; 0 where there is none, or not a valid one."""
    try:
        return max(quantity.parse(written).nano, 0) if written else 0
    except ValueError:
        return 0


def resources(holder: Located | None, here: Position) -> ManifestResources:
    """Return the `resources` of a container or a pod's spec."""
    written = at(holder, "resources")
    return ManifestResources(_amounts(written, "requests"), _amounts(written, "limits"), here)


def _amounts(node: Located | None, key: str) -> dict[str, Amount]:
    return {
        name: _amount(name, member.value, member.place)
        for name, member in pairs(node, key)
        if name in _RESOURCES
    }


def _amount(name: str, node: Located, place: Position) -> Amount:
    if not isinstance(node, LocatedScalar):
        return Amount("", None, place, "must be a quantity, not a mapping or a list")
    try:
        nano = quantity.parse(node.text).nano
    except ValueError as error:
        return Amount(node.text, None, place, str(error))
    if nano < 0:
        return Amount(node.text, None, place, "must not be negative")
    odd, meant = _no_cpus(node.text, nano) if name == "cpu" else _no_memory(node.text, nano)
    return Amount(node.text, None if odd else min(nano, _MOST_NANO), place, odd, meant)


def _no_cpus(text: str, nano: int) -> tuple[str, str]:
    """Return the fault of CPUs in a unit of memory, or above any machine's, and what may be meant."""
    unit = text.lstrip("+0123456789.")
    if unit in _MEMORY_UNITS:
        meant = f"{text.removesuffix(unit)}{'' if unit in ('k', 'Ki') else 'm'}"
        return f"{nano // 10**9:,} CPUs, as {unit} is a unit of memory", meant
    if nano > _MOST_CPUS * 10**9:
        return f"{nano // 10**9:,} CPUs, and Linux runs on {_MOST_CPUS:,} at most", f"{text}m"
    return "", ""


def _no_memory(text: str, nano: int) -> tuple[str, str]:
    """Return what is wrong with memory in parts of a byte, or too little of it, and what may be meant."""
    if nano % 10**9:
        meant = f"{text[:-1]}Mi" if text.endswith("m") else "a whole number of bytes"
        return f"{nano / 10**9:g} bytes, not a whole number (m is a thousandth)", meant
    if 0 < nano < _LEAST_MEMORY * 10**9:
        return f"{nano // 10**9:,} bytes, too little for any container", f"{text}Mi"
    return "", ""
