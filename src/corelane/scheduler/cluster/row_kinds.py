"""Rows that are alike: equal amounts and one canonical state, so that most plugins answer alike.

In a large cluster many nodes are alike, and a node often becomes what another one was before. A kind is plain
numbers: to ask about one costs less than to ask numpy about ten rows.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from corelane.scheduler.cluster.states import CanonicalState

_FEWEST_KEPT: Final = 1024


@dataclass(slots=True, eq=False)
class RowKind:
    """What `Columns` has in each row of the kind, by the names there."""

    state: CanonicalState
    config: int
    left: list[int]
    used: list[float]
    share: list[float]
    weighed: float
    admitted: int
    room: int
    unknown: bool
    amplified: bool


class ColumnsOfKinds(Protocol):
    """What of `Columns` a kind is made of."""

    capacity: int
    allocatable: Any
    requested: Any
    scored: Any
    left: Any
    used: Any
    share: Any
    weighed: Any
    config: Any
    admitted: Any
    room: Any
    unknown: Any
    amplified: Any

    def state_of(self, row: int) -> CanonicalState | None:
        """Return the canonical state of a row."""


class RowKinds:
    """The kind of each row, found when it is read."""

    __slots__ = ("_kinds", "_of_row")

    def __init__(self) -> None:
        self._of_row: list[RowKind | None] = []
        self._kinds: dict[Hashable, RowKind] = {}

    def add(self) -> None:
        """Add a row after the last one."""
        self._of_row.append(None)

    def changed(self, row: int) -> None:
        """Note that a row changed."""
        self._of_row[row] = None

    def of(self, columns: ColumnsOfKinds, rows: Iterable[int]) -> list[RowKind]:
        """Return the kinds of rows, which have a canonical state each."""
        of_row = self._of_row
        return [of_row[row] or self._find(columns, row) for row in rows]

    def _find(self, columns: ColumnsOfKinds, row: int) -> RowKind:
        state, admitted, unknown = (
            columns.state_of(row),
            columns.admitted.item(row),
            columns.unknown.item(row),
        )
        assert state is not None
        of_pods = columns.requested[row].tobytes(), columns.scored[row].tobytes()
        key = state.id, admitted, unknown, columns.allocatable[row].tobytes(), of_pods
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= max(_FEWEST_KEPT, 2 * columns.capacity):
                self._kinds.clear()
            kind = self._kinds[key] = RowKind(
                state,
                columns.config.item(row),
                columns.left[row].tolist(),
                columns.used[row].tolist(),
                columns.share[row].tolist(),
                columns.weighed.item(row),
                admitted,
                columns.room.item(row),
                unknown,
                columns.amplified.item(row),
            )
        self._of_row[row] = kind
        return kind
