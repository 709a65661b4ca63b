"""Node labels as columns of interned values; a column is made when a selector first looks at its label."""

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int32]

ABSENT: Final = -1
"""The node does not have the label."""
UNUSED: Final = -2
"""Id of a value that no node has."""


class _LabelColumn:
    """One label of all nodes: the id of its value by row, and the ids of values."""

    __slots__ = ("ids", "values")

    def __init__(self, capacity: int) -> None:
        self.ids: Ids = np.full(capacity, ABSENT, dtype=np.int32)
        self.values: dict[str, int] = {}

    def put(self, row: int, value: str | None) -> None:
        known = self.values
        self.ids[row] = ABSENT if value is None else known.setdefault(value, len(known))


class LabelColumns:
    """The labels of all nodes, by row."""

    __slots__ = ("_capacity", "_columns", "_labels_of")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._columns: dict[str, _LabelColumn] = {}
        self._labels_of: list[Mapping[str, str]] = []

    def new_row(self) -> None:
        self._labels_of.append({})

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self._capacity = capacity
        for column in self._columns.values():
            longer = np.full(capacity, ABSENT, dtype=np.int32)
            longer[: len(column.ids)] = column.ids
            column.ids = longer

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        """Set the labels of a node."""
        self._labels_of[row] = labels
        for key, column in self._columns.items():
            column.put(row, labels.get(key))

    def ids(self, key: str) -> Ids:
        """Return the ids of a label's values by row, `ABSENT` for nodes without it."""
        return self._column(key).ids

    def value(self, key: str, value: str) -> int:
        """Return the id of a label's value, `UNUSED` where no node had it."""
        return self._column(key).values.get(value, UNUSED)

    def values(self, key: str) -> Mapping[str, int]:
        """Return the ids of all values of a label."""
        return self._column(key).values

    def _column(self, key: str) -> _LabelColumn:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _LabelColumn(self._capacity)
            for row, labels in enumerate(self._labels_of):
                column.put(row, labels.get(key))
        return column
