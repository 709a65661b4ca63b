"""What is left of each resource on each NUMA node of a state as one array, and of the node as a whole.

Row 0 is the node as a whole, each other row one NUMA node. Amounts are upper bounds: `node_kinds.admit` gives
no pod more, so a pod that needs more is rejected. An amount that is not counted by NUMA node is `UNLIMITED`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corelane.node import NodeState
from corelane.node.koordinator.zone_shares import left_by_zone
from corelane.node.zones.zone_state import ZonesState
from corelane.scheduler.cache.zone_amounts import CPUState, ZoneAmounts, free_devices
from corelane.workload import Amounts

UNLIMITED: Final = 1 << 60
FREE: Final = "CPUs"
"""CPUs that may become exclusive."""
WHOLE: Final = "CPUs of whole cores"
"""Of these, the ones on cores of which every CPU is free."""
CORES: Final = "cores"
"""Cores with a CPU that may become exclusive."""
L3: Final = "CPUs of whole L3 domains"
"""CPUs that may become exclusive in L3 domains where no pod has any."""
_NOTHING: Final = (0, 0, 0, 0)
_NOT_COUNTED: Final = UNLIMITED >> 16
"""As good as unlimited, and so is the sum over NUMA nodes."""
_FIXED: Final = (FREE, WHOLE, CORES, L3)
MOST_RESOURCES: Final = 64
"""Resources with a column; others are left to `admit`."""


class ResourceIndex:
    """Numbers the columns of a table; resources are added as they appear, and keep their column."""

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns = {name: number for number, name in enumerate(_FIXED)}

    def __len__(self) -> int:
        return len(self._columns)

    def column(self, name: str) -> int | None:
        """Return the column of a resource, which is added if it is new; None where there are too many."""
        found = self._columns.get(name)
        if found is None and len(self._columns) < MOST_RESOURCES:
            found = self._columns[name] = len(self._columns)
        return found

    def vector(self, amounts: Amounts) -> NDArray[np.int64]:
        """Return amounts by column; resources without one are left out."""
        columns = [(self.column(name), amount) for name, amount in amounts.items()]
        found = np.zeros(len(self._columns), dtype=np.int64)
        for column, amount in columns:
            if column is not None:
                found[column] = min(amount, UNLIMITED)
        return found


def table_of(state: CPUState, amounts: Sequence[ZoneAmounts], index: ResourceIndex) -> NDArray[np.int64]:
    """Return the table of a state, whose amounts by NUMA node these are."""
    named = _named(state, amounts)
    zones = [_fixed(one) for one in amounts] + [_NOTHING] * (len(named) - len(amounts))
    columns = {name: index.column(name) for here in named for name in here}
    beyond = [UNLIMITED] * (len(index) - len(_FIXED))
    rows = [[*map(sum, zip(_NOTHING, *zones, strict=True)), *beyond], *([*zone, *beyond] for zone in zones)]
    totals = free_devices(state) if columns and isinstance(state, NodeState) else {}
    for name, column in columns.items():
        if column is not None:
            here = [max(0, min(one.get(name, 0), UNLIMITED)) for one in named]
            rows[0][column] = min(totals.get(name, sum(here)), UNLIMITED)
            for row, amount in zip(rows[1:], here, strict=True):
                row[column] = amount
    return np.array(rows, dtype=np.int64)


def _fixed(zone: ZoneAmounts) -> tuple[int, int, int, int]:
    whole, touchable, quiet = zone.whole, zone.touchable, zone.quiet
    if whole is None or touchable is None or quiet is None:
        return max(0, zone.cpus), _NOT_COUNTED, _NOT_COUNTED, _NOT_COUNTED
    return zone.cpus, whole, touchable, quiet


def _named(state: CPUState, amounts: Sequence[ZoneAmounts]) -> list[Mapping[str, int]]:
    """Memory, huge pages, devices and others by name, in the order of the NUMA nodes, then of other zones."""
    if isinstance(state, ZonesState):
        return [zone.available for zone in state.free]
    if isinstance(state, NodeState) and state.config.koordinator is not None:
        left = left_by_zone(state)
        numbered = [left.pop(one.numa, {}) for one in amounts]
        return numbered + list(left.values())
    return [dict(_of_ledger(one)) for one in amounts] if isinstance(state, NodeState) else []


def _of_ledger(zone: ZoneAmounts) -> Iterator[tuple[str, int]]:
    if zone.memory is not None:
        yield "memory", zone.memory
    yield from zone.hugepages.items()
    yield from zone.devices.items()
