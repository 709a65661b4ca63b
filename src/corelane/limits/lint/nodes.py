"""YAML values that know where they stand in their file, and how to walk among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = [
    "NOWHERE",
    "Dict",
    "List",
    "Member",
    "Node",
    "Place",
    "Scalar",
    "at",
    "items",
    "pairs",
    "place",
    "text",
]

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Place:
    """A position, both counted from 1; `trail` is the lines of everything around it, outermost first."""

    line: int
    column: int
    trail: tuple[int, ...] = ()


NOWHERE: Final = Place(1, 1)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value as it was written; `plain` where no quotes make it a string."""

    text: str
    plain: bool
    place: Place

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(frozen=True, slots=True)
class Member:
    """A key's place and the value that it has."""

    place: Place
    value: Node


@dataclass(frozen=True, slots=True)
class Dict:
    """A mapping, in the order of the file."""

    members: Mapping[str, Member]
    place: Place


@dataclass(frozen=True, slots=True)
class List:
    """A sequence."""

    items: tuple[Node, ...]
    place: Place


Node: TypeAlias = Scalar | Dict | List


def at(node: Node | None, *path: str) -> Node | None:
    """What stands below the keys of `path`; None where nothing does, or null."""
    for key in path:
        member = node.members.get(key) if isinstance(node, Dict) else None
        node = member.value if member else None
    return None if isinstance(node, Scalar) and node.is_null else node


def place(node: Node | None, *path: str) -> Place:
    """Where the last key of `path` stands; where that is missing, the nearest thing around it."""
    found = node.place if node else NOWHERE
    for key in path:
        member = node.members.get(key) if isinstance(node, Dict) else None
        if member is None:
            break
        found, node = member.place, member.value
    return found


def items(node: Node | None, *path: str) -> tuple[Node, ...]:
    """The items of the list below `path`; none where there is no list."""
    found = at(node, *path)
    return found.items if isinstance(found, List) else ()


def pairs(node: Node | None, *path: str) -> Iterator[tuple[str, Member]]:
    """The members of the mapping below `path` that are not null."""
    found = at(node, *path)
    if isinstance(found, Dict):
        for key, member in found.members.items():
            if not (isinstance(member.value, Scalar) and member.value.is_null):
                yield key, member


def text(node: Node | None, *path: str) -> str:
    """The text of the scalar below `path`; empty where there is none."""
    found = at(node, *path)
    return found.text if isinstance(found, Scalar) else ""
