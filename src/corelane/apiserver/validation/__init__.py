"""Validation by the tables: the faults of an object, in the order and the words of upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corelane.apiserver.kinds import Kind
    from corelane.apiserver.status import Cause


def create(kind: Kind, obj: dict[str, Any]) -> list[Cause]:
    """The faults of a new object."""
    return []


def update(kind: Kind, obj: dict[str, Any], old: dict[str, Any], subresource: str) -> list[Cause]:
    """The faults of an object that is to replace `old`."""
    return []
