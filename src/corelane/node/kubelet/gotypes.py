"""Go types as a table: how a value is read from JSON, and how spew prints it for a checksum.

Values are plain: strings, numbers, lists, and dicts by JSON name; None is Go's nil. Sources: `encoding/json`,
and `github.com/davecgh/go-spew` as set up by `k8s.io/utils/dump`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from corelane.node.kubelet.statefile import MalformedError, Pairs, StateFields


class GoType(Protocol):
    """A Go type; `name` is its text in Go, with the package where it has one."""

    @property
    def name(self) -> str: ...

    def read(self, value: Any, where: str) -> Any:
        """The value of a JSON value; null is Go's zero. Raises MalformedError naming `where`."""

    def dump(self, value: Any) -> str:
        """As spew prints it, without its type in front."""


@dataclass(frozen=True, slots=True)
class String:
    """A string, or a type made of one."""

    name: str = "string"

    def read(self, value: Any, where: str) -> str:
        if not isinstance(value, str | None):
            raise MalformedError(f"{where}: is {type(value).__name__}, not a string")
        return value or ""

    def dump(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`."""

    name: str
    low: int
    high: int

    def read(self, value: Any, where: str) -> int:
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise MalformedError(f"{where}: is {_shown(value)}, not a whole number of Go's type {self.name}")
        return value

    def dump(self, value: int) -> str:
        return str(value)


STRING = String()
INT = Whole("int", -(1 << 63), (1 << 63) - 1)
UINT64 = Whole("uint64", 0, (1 << 64) - 1)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A slice."""

    item: GoType

    @property
    def name(self) -> str:
        return f"[]{self.item.name}"

    def read(self, value: Any, where: str) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list) or isinstance(value, Pairs):
            raise MalformedError(f"{where}: is {_kind(value)}, not a list")
        return [self.item.read(one, f"{where}[{index}]") for index, one in enumerate(value)]

    def dump(self, value: list[Any] | None) -> str:
        return "<nil>" if value is None else f"[{' '.join(map(self.item.dump, value))}]"


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with string keys, or with `int` ones; `named` is its name where the map type has one."""

    key: GoType
    item: GoType
    named: str = ""

    @property
    def name(self) -> str:
        return self.named or f"map[{self.key.name}]{self.item.name}"

    def read(self, value: Any, where: str) -> dict[Any, Any] | None:
        if value is None:
            return None
        if not isinstance(value, Pairs):
            raise MalformedError(f"{where}: is {_kind(value)}, not an object")
        return {self._key(key, where): self.item.read(item, f"{where}.{key}") for key, item in value}

    def _key(self, text: str, where: str) -> Any:
        if not isinstance(self.key, Whole):
            return text
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text, re.ASCII):
            raise MalformedError(f"{where}: the key {text!r} is not a number")
        return self.key.read(int(text), f"{where}.{text}")

    def dump(self, value: dict[Any, Any] | None) -> str:
        if value is None:
            return "<nil>"
        members = (f"{key}:{self.item.dump(value[key])}" for key in sorted(value))
        return f"map[{' '.join(members)}]"


@dataclass(frozen=True, slots=True)
class PointerTo:
    """A pointer, which spew follows but whose address it leaves out."""

    target: GoType

    @property
    def name(self) -> str:
        return f"*{self.target.name}"

    def read(self, value: Any, where: str) -> Any:
        return None if value is None else self.target.read(value, where)

    def dump(self, value: Any) -> str:
        return "<nil>" if value is None else f"<*>{self.target.dump(value)}"


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a structure by its names in Go and in JSON; `made` is its value where JSON has none."""

    go: str
    json: str
    type: GoType
    made: Any = None


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure; its values are dicts with every member, by JSON name."""

    name: str
    members: Sequence[Member]

    def read(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, Pairs | None):
            raise MalformedError(f"{where}: is {_kind(value)}, not an object")
        fields = StateFields(value or Pairs())
        prefix = f"{where}." if where else ""
        return {
            member.json: member.type.read(fields.get(member.json), f"{prefix}{member.json}")
            if member.json in fields or member.made is None
            else member.made
            for member in self.members
        }

    def dump(self, value: dict[str, Any]) -> str:
        """Every member with its type, as spew prints structures."""
        members = (f"{m.go}:({m.type.name}){m.type.dump(value[m.json])}" for m in self.members)
        return f"{{{' '.join(members)}}}"


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, Pairs) else type(value).__name__


def _shown(value: Any) -> str:
    return _kind(value) if isinstance(value, list) else repr(value)
