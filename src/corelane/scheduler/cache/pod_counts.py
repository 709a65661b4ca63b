"""A number of pods by row of the node columns, and its sums by topology domain."""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corelane.scheduler.cache.topology import Topology

Totals: TypeAlias = NDArray[np.float64]
"""By domain id, and a 0 at the end, which is where id -1 points."""
_DENSE_FROM: Final = 64


class Counts:
    """A number of pods by row."""

    __slots__ = ("_dense", "by_row")

    def __init__(self) -> None:
        self.by_row: dict[int, int] = {}
        self._dense: NDArray[np.int32] | None = None

    def add(self, row: int, number: int) -> None:
        count = self.by_row.get(row, 0) + number
        if count:
            self.by_row[row] = count
        else:
            self.by_row.pop(row, None)
        if self._dense is not None and row < len(self._dense):
            self._dense[row] = count
        else:
            self._dense = None

    def dense(self, capacity: int) -> NDArray[np.int32]:
        """Return the numbers of all rows; not to be changed."""
        if self._dense is not None and len(self._dense) == capacity:
            return self._dense
        dense = np.zeros(capacity, np.int32)
        if self.by_row:
            count = len(self.by_row)
            rows = np.fromiter(self.by_row.keys(), np.intp, count)
            dense[rows] = np.fromiter(self.by_row.values(), np.int32, count)
        self._dense = dense if len(self.by_row) >= _DENSE_FROM else None
        return dense

    def totals(self, topology: Topology, key: str) -> Totals:
        """Return the sums by domain of the key, without nodes that lack it."""
        ids, size = topology.ids(key), topology.size(key)
        totals: Totals = np.zeros(size + 1)
        if len(self.by_row) < _DENSE_FROM:
            for row, count in self.by_row.items():
                totals[ids[row]] += count
        else:
            totals[-1:], totals[:-1] = np.split(
                np.bincount(ids + 1, self.dense(topology.capacity), size + 1), [1]
            )
        totals[-1] = 0.0
        return totals
