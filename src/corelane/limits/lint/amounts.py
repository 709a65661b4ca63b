"""CPU and memory amounts where they stand in a file: as written, and as the API server takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from corelane.limits.lint.nodes import Node, Place, Scalar, at, pairs

__all__ = ["Amount", "Nanos", "Resources", "resources"]

Nanos: TypeAlias = Callable[[str], int]
"""Reads a Kubernetes quantity to billionths; raises ValueError with the reason."""
_RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity at its key's place. `nano` is None where it is none, and `error` says why."""

    text: str
    nano: int | None
    place: Place
    error: str = ""

    @property
    def milli(self) -> int:
        """Thousandths, rounded up as the API server does; 0 where it is no quantity."""
        return -(-(self.nano or 0) // 10**6)

    @property
    def value(self) -> int:
        """Whole units, rounded up; 0 where it is no quantity."""
        return -(-(self.nano or 0) // 10**9)


@dataclass(frozen=True, slots=True)
class Resources:
    """CPU and memory of a container, or of a pod as a whole."""

    requests: Mapping[str, Amount]
    limits: Mapping[str, Amount]
    place: Place

    def request(self, name: str) -> int:
        """Nano-units asked for: the request, or the limit, which the API server takes where there is none."""
        found = self.requests.get(name) or self.limits.get(name)
        return (found.nano or 0) if found else 0

    def limit(self, name: str) -> int:
        """Nano-units; 0 where there is no limit."""
        found = self.limits.get(name)
        return (found.nano or 0) if found else 0


def resources(holder: Node | None, here: Place, nanos: Nanos) -> Resources:
    """What stands under `resources` of a container or a pod's spec."""
    found = at(holder, "resources")
    return Resources(_amounts(found, "requests", nanos), _amounts(found, "limits", nanos), here)


def _amounts(node: Node | None, key: str, nanos: Nanos) -> dict[str, Amount]:
    return {
        name: _amount(member.value, member.place, nanos)
        for name, member in pairs(node, key)
        if name in _RESOURCES
    }


def _amount(node: Node, place: Place, nanos: Nanos) -> Amount:
    if not isinstance(node, Scalar):
        return Amount("", None, place, "must be a quantity, not a mapping or a list")
    try:
        nano = nanos(node.text)
    except ValueError as error:
        return Amount(node.text, None, place, str(error))
    if nano < 0:
        return Amount(node.text, None, place, "must not be negative")
    return Amount(node.text, nano, place)
