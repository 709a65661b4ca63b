"""Which rows of the columns changed, in order: vectors kept by others are computed again for these only."""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.intp]

_NO_ROWS: Final = np.array([], dtype=np.intp)
_LOGGED: Final = 1 << 15


class ChangeLog:
    """Rows that changed, with a position that only grows; only the latest changes are kept."""

    __slots__ = ("_first", "_rows")

    def __init__(self) -> None:
        self._first = 0
        self._rows: list[int] = []

    @property
    def position(self) -> int:
        """Position after the last change."""
        return self._first + len(self._rows)

    def add(self, row: int) -> None:
        self._rows.append(row)
        if len(self._rows) > 2 * _LOGGED:
            del self._rows[:_LOGGED]
            self._first += _LOGGED

    def few_since(self, position: int, most: int) -> list[int] | None:
        """Return the rows changed since, each once; None where there are more, or it is no longer known."""
        if position < self._first or self._first + len(self._rows) - position > most:
            return None
        return list({*self._rows[position - self._first :]})

    def since(self, position: int) -> Rows | None:
        """Return the rows changed since, each once and ascending; None where it is no longer known."""
        if position == self.position:
            return _NO_ROWS
        if position < self._first:
            return None
        return np.array(sorted(set(self._rows[position - self._first :])), dtype=np.intp)
