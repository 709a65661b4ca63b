"""Topology domains: for each label key, which nodes have the same value, as ids by the nodes' rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

DomainIds: TypeAlias = NDArray[np.int32]
_FIRST_CAPACITY = 64


@dataclass(slots=True)
class _Key:
    """Of one label key: ids by value, and the id of each row."""

    rows: DomainIds
    values: dict[str, int] = field(default_factory=dict)

    def put(self, row: int, labels: Mapping[str, str] | None, key: str) -> None:
        value = labels.get(key) if labels is not None else None
        self.rows[row] = -1 if value is None else self.values.setdefault(value, len(self.values))


class Topology:
    """Labels of nodes by row, and domain ids for the keys that were asked for; -1 is a node without it.

    Ids of values that no node has any longer are not used again.
    """

    def __init__(self) -> None:
        self.labels: list[Mapping[str, str] | None] = []
        self.version = 0
        """Counts changes of nodes."""
        self.live = np.zeros(_FIRST_CAPACITY, np.bool_)
        """Whether the row has a Node object."""
        self._changed_at = np.zeros(_FIRST_CAPACITY, np.int64)
        self._keys: dict[str, _Key] = {}
        self._capacity = _FIRST_CAPACITY

    @property
    def capacity(self) -> int:
        """Length of all arrays by row."""
        return self._capacity

    def put(self, row: int, labels: Mapping[str, str] | None) -> None:
        """Set the labels of a node; None where the row has no Node object."""
        self._reserve(row + 1)
        if self.labels[row] == labels:
            return
        self.labels[row] = labels
        self.live[row] = labels is not None
        self._changed(row)
        for name, key in self._keys.items():
            key.put(row, labels, name)

    def touch(self, row: int) -> None:
        """Say that something else about the node changed, such as its taints."""
        self._reserve(row + 1)
        self._changed(row)

    def ids(self, key: str) -> DomainIds:
        """Return the domain id of each row."""
        return self._key(key).rows

    def size(self, key: str) -> int:
        """Return a number above all domain ids of the key."""
        return len(self._key(key).values)

    def id(self, key: str, row: int) -> int:
        """Return the domain id of one row."""
        return int(self._key(key).rows[row])

    def changed_since(self, version: int) -> NDArray[np.intp]:
        """Return the rows whose nodes changed after that version."""
        return np.flatnonzero(self._changed_at > version)

    def _key(self, name: str) -> _Key:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key(np.full(self._capacity, -1, np.int32))
            for row, labels in enumerate(self.labels):
                key.put(row, labels, name)
        return key

    def _reserve(self, rows: int) -> None:
        self.labels.extend([None] * (rows - len(self.labels)))
        if rows > self._capacity:
            added = max(rows, 2 * self._capacity) - self._capacity
            self._capacity += added
            self.live = np.concatenate([self.live, np.zeros(added, np.bool_)])
            self._changed_at = np.concatenate([self._changed_at, np.zeros(added, np.int64)])
            for key in self._keys.values():
                key.rows = np.concatenate([key.rows, np.full(added, -1, np.int32)])

    def _changed(self, row: int) -> None:
        self.version += 1
        self._changed_at[row] = self.version
