"""What a rule says, what becomes of it in a report, and how bad it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from corelane.limits.lint.cost import Cost
from corelane.limits.lint.nodes import Place

if TYPE_CHECKING:
    from corelane.limits.lint.scene import PodContext

__all__ = ["Check", "Finding", "Remark", "Rule", "Severity"]


class Severity(IntEnum):
    """How bad: `info` is worth knowing, `warning` costs time or safety, `error` much of it, or is refused."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Remark:
    """What a rule found at a place: the fact with its numbers, and the fix."""

    place: Place
    message: str
    fix: str
    severity: Severity | None = None
    """None for the rule's own."""
    container: str = ""
    cost: Cost | None = None
    patch: Mapping[str, Any] | None = None
    """A strategic merge patch for the object (`kubectl patch --patch`)."""


Check = Callable[["PodContext"], Iterator[Remark]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, and what people read about it; `check` is a pure function of an object in its surroundings."""

    id: str
    severity: Severity
    title: str
    why: str
    fix: str
    check: Check


@dataclass(frozen=True, slots=True)
class Finding:
    """A remark on an object in a file. `source` is the Helm template that the object comes from."""

    rule: str
    severity: Severity
    file: str
    place: Place
    kind: str
    namespace: str
    name: str
    container: str
    message: str
    fix: str
    cost: Cost | None = None
    patch: Mapping[str, Any] | None = None
    source: str = ""
    ignored: str = field(default="")
    """The reason that somebody gave to ignore it; empty where it counts."""
