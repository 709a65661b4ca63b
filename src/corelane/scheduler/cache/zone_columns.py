"""Columns with a number for each NUMA node of each row; the numbers follow from canonical states."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from corelane.scheduler.cache.states import CanonicalState
from corelane.scheduler.cache.zone_table import UNLIMITED

Integers: TypeAlias = NDArray[np.int64]

_FIRST_ZONES = 4


class ZoneColumns:
    """See above; `amounts` has the states' tables, other columns are made when they are first asked for."""

    __slots__ = ("_named", "amounts")

    def __init__(self, capacity: int) -> None:
        self._named: dict[str, tuple[Callable[[CanonicalState], Sequence[int]], Integers]] = {}
        self.amounts: Integers = np.zeros((capacity, 1, 0), dtype=np.int64)
        """By row, NUMA node and resource; see `zone_table`. NUMA nodes that a machine lacks have nothing."""

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self.amounts = _padded(self.amounts, 0, capacity - len(self.amounts))
        self._named = {
            name: (numbers, _padded(values, 0, capacity - len(values)))
            for name, (numbers, values) in self._named.items()
        }

    def put(self, row: int, state: CanonicalState) -> None:
        """Set the numbers of a row by its state."""
        table = state.table
        if table.shape == self.amounts.shape[1:]:
            self.amounts[row] = table
        else:
            self._put_other_size(row, table)
        for name in self._named:
            self._put_numbers(name, row, state)

    def _put_other_size(self, row: int, table: Integers) -> None:
        zones, resources = table.shape
        _, most, width = self.amounts.shape
        self.amounts = _padded(self.amounts, 1, zones - most)
        self.amounts = _padded(self.amounts, 2, resources - width, UNLIMITED)
        self.amounts[row, zones:] = 0
        self.amounts[row, :zones, :resources] = table
        self.amounts[row, :zones, resources:] = UNLIMITED

    def numbers(
        self,
        name: str,
        numbers: Callable[[CanonicalState], Sequence[int]],
        states: Iterable[CanonicalState | None],
    ) -> Integers:
        """Return a column, 0 beyond the last NUMA node of a row; `states` are those of the rows so far."""
        if name not in self._named:
            self._named[name] = numbers, np.zeros((len(self.amounts), _FIRST_ZONES), dtype=np.int64)
            for row, state in enumerate(states):
                if state is not None:
                    self._put_numbers(name, row, state)
        return self._named[name][1]

    def _put_numbers(self, name: str, row: int, state: CanonicalState) -> None:
        make, values = self._named[name]
        numbers = state.zones.get(name)
        if numbers is None:
            numbers = state.zones[name] = np.array(make(state), dtype=np.int64)
        more = len(numbers) - values.shape[1]
        if more > 0:
            values = _padded(values, 1, more)
            self._named[name] = make, values
        elif more:
            numbers = state.zones[name] = _padded(numbers, 0, -more)
        values[row] = numbers


def _padded(values: Integers, axis: int, more: int, fill: int = 0) -> Integers:
    """Values with so many more places along an axis, at its end."""
    if more <= 0:
        return values
    shape = list(values.shape)
    shape[axis] = more
    return np.concatenate([values, np.full(shape, fill, dtype=np.int64)], axis=axis)
