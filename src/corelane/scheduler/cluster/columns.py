"""The nodes as numpy columns: one row a node, patched row by row, and a log of the rows that changed.

A row belongs to a node from its first appearance until nothing is known of it any more; then another node
may get it. Arrays are longer than there are nodes: index them with row numbers, `live_rows` for all. Vectors
kept by others (per pod shape) remember a position in the log, and are computed again for the rows after it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from corelane.kube.objects import Taint
from corelane.node.ledger import NodeState
from corelane.node.zones.zone_state import ZonesState
from corelane.scheduler.cluster.labels import ABSENT, Ids, Topology
from corelane.scheduler.cluster.node_kinds import UNLIMITED
from corelane.scheduler.cluster.pods import Shape
from corelane.scheduler.cluster.states import CanonicalState, Fact

Rows: TypeAlias = NDArray[np.intp]

Integers: TypeAlias = NDArray[np.int64]

Mask: TypeAlias = NDArray[np.bool_]
Scores: TypeAlias = NDArray[np.float64]


CPU: Final = 0
MEMORY: Final = 1
PODS: Final = 2
"""Columns of amounts; of pods, 1 is requested for each pod."""
_FIRST_ROWS: Final = 64
_MOST: Final = (1 << 62) - 1
_MOST_REQUESTED: Final = 1 << 52
_MOST_SHAPES: Final = 4096
_PODS_SHIFT: Final = 32
_NO_ROWS: Final = np.array([], dtype=np.intp)
_LOGGED: Final = 1 << 15
_FIRST_ZONES = 4
_FEWEST_KINDS: Final = 1024
Number = TypeVar("Number", bound=np.generic)


@dataclass(slots=True, eq=False)
class RowKind:
    """Rows with equal amounts and one canonical state, and what `Columns` has there, by the names there."""

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


class RowKinds:
    """The kind of each row, found when it is read: in a large cluster many nodes are alike.

    To ask about a kind, which is plain numbers, costs less than to ask numpy about ten rows.
    """

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

    def of(self, columns: "Columns", rows: Iterable[int]) -> list[RowKind]:
        """Return the kinds of rows, which have a canonical state each."""
        of_row = self._of_row
        return [of_row[row] or self._find(columns, row) for row in rows]

    def _find(self, columns: "Columns", row: int) -> RowKind:
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
            if len(self._kinds) >= max(_FEWEST_KINDS, 2 * columns.capacity):
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


class ZoneColumns:
    """Numbers by row and NUMA node: the states' tables, and columns made when they are first asked for."""

    __slots__ = ("_named", "amounts")

    def __init__(self, capacity: int) -> None:
        self._named: dict[str, tuple[Callable[[CanonicalState], Sequence[int]], Integers]] = {}
        self.amounts: Integers = np.zeros((capacity, 1, 0), dtype=np.int64)
        """By row, NUMA node and resource; see `table_of`. NUMA nodes that a machine lacks have nothing."""

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
            zones, resources = table.shape
            _, most, width = self.amounts.shape
            self.amounts = _padded(self.amounts, 1, zones - most)
            self.amounts = _padded(self.amounts, 2, resources - width, UNLIMITED)
            self.amounts[row, zones:] = 0
            self.amounts[row, :zones, :resources] = table
            self.amounts[row, :zones, resources:] = UNLIMITED
        for name in self._named:
            self._put_numbers(name, row, state)

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


class Columns:
    """The columns: arrays with an entry a row. CPU is in milliCPU, other amounts in whole units."""

    def __init__(self) -> None:
        self.capacity = _FIRST_ROWS
        self.names: list[str] = []
        """Name of each row's node."""
        self._free: list[int] = []
        self._resources: dict[str, int] = {}
        self.topology = Topology()
        """Labels by row, and which rows have a Node object."""
        self._taint_ids: dict[tuple[Taint, ...], int] = {}
        self.taint_sets: list[tuple[Taint, ...]] = []
        """By the ids in `taints`."""
        self._zones = ZoneColumns(self.capacity)
        self._states: list[CanonicalState | None] = []
        self.kinds = RowKinds()
        self.nodes_log = ChangeLog()
        """Changes of Node objects."""
        self.pods_log = ChangeLog()
        """Changes of pods and CPUs."""
        self.unschedulable: Mask = np.zeros(self.capacity, dtype=np.bool_)
        self.taints: Ids = np.zeros(self.capacity, dtype=np.int32)
        self.pods: Integers = np.zeros(self.capacity, dtype=np.int64)
        """Number of pods."""
        self._amounts: dict[int, tuple[Integers, Integers]] = {}
        """What pods request, and what counts for scores, by the id of their shape."""
        self.allocatable: Integers = np.zeros((self.capacity, 4), dtype=np.int64)
        self.requested: Integers = np.zeros((self.capacity, 4), dtype=np.int64)
        self.left: Integers = np.zeros((self.capacity, 4), dtype=np.int64)
        """Allocatable and not requested."""
        self.scored: Integers = np.zeros((self.capacity, 2), dtype=np.int64)
        """MilliCPU and bytes of memory by `Shape.scored`."""
        self.used = np.zeros((self.capacity, 2))
        """The share of CPU and memory that counts for scores; 0 where nothing is allocatable."""
        self.weighed = np.ones(self.capacity)
        """Number of CPU and memory that are allocatable, at least 1."""
        self.share = np.zeros((self.capacity, 2))
        """One over what is allocatable of CPU and memory; 0 where nothing is."""
        self.admitted: Integers = np.zeros(self.capacity, dtype=np.int64)
        """MilliCPU that the node's ledger counts, claims included."""
        self.state: Ids = np.full(self.capacity, ABSENT, dtype=np.int32)
        """Id of the canonical state of the node's CPUs."""
        self.room: Integers = np.zeros(self.capacity, dtype=np.int64)
        """MilliCPU that pods may still request by the ledger's capacity."""
        self.config: Ids = np.zeros(self.capacity, dtype=np.int32)
        """Number of the machine with its settings, in `configs`."""
        self.configs: list[CanonicalState] = []
        """A state of each machine with its settings."""
        self.any_koordinator = False
        """Whether some row ever was judged by Koordinator's rules."""
        self._config_numbers: dict[int, int] = {}
        self.derived: dict[Any, Any] = {}
        """What others keep beside the columns."""
        self.vectors: dict[Any, Any] = {}
        """Feasibility and scores of shapes; see `plans`."""
        self.needs: dict[int, Any] = {}
        """What pods need, by the id of their shape; see `needs`."""
        self.amplified: Mask = np.zeros(self.capacity, dtype=np.bool_)
        """Whether more CPUs are allocatable than the node has: its ledger checks them."""
        self.any_amplified = False
        """Whether some row ever was."""
        self.unknown: Mask = np.zeros(self.capacity, dtype=np.bool_)
        """Whether some pod on the node may have any CPUs: its record cannot be read."""
        self.zoned: Mask = np.zeros(self.capacity, dtype=np.bool_)
        """Whether only amounts by NUMA node are known of the node's CPUs."""
        self.facts: Integers = np.zeros((self.capacity, len(Fact)), dtype=np.int64)
        """Amounts of the canonical state, by `Fact`."""
        self._live_rows: Rows | None = None
        self.order: Integers = np.zeros(self.capacity, dtype=np.int64)
        """Sorts rows by number of pods, then by name; call `sort` first."""
        self._sorted = True
        for name in ("cpu", "memory", "pods"):
            self.add_column(name)

    # Rows.

    def new_row(self, name: str) -> int:
        """Return the row for a new node."""
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            self._states.append(None)
            self.kinds.add()
            if row == self.capacity:
                self._grow()
        self.topology.put(row, None)
        self._sorted = False
        return row

    def free_row(self, row: int) -> None:
        """Give up a row: nothing is known of its node any more."""
        self.put_node(row, None, None, {}, ())
        of_pods = self.pods, self.requested, self.left, self.scored, self.used, self.admitted, self.order
        for values in of_pods:
            values[row] = 0
        self.state[row], self._states[row] = ABSENT, None
        self.names[row] = ""
        self._free.append(row)

    def live_rows(self) -> Rows:
        """Return the rows of all nodes that have a Node object, ascending."""
        if self._live_rows is None:
            self._live_rows = np.flatnonzero(self.topology.live[: len(self.names)])
        return self._live_rows

    @property
    def has_gaps(self) -> bool:
        """Whether some row has no Node object."""
        return len(self.live_rows()) < len(self.names)

    def sort(self) -> None:
        """Bring `order` up to date with new names."""
        if not self._sorted:
            order = np.argsort(np.array(self.names, dtype=np.str_), kind="stable")
            self.order[order] = np.arange(len(order))
            self.order += self.pods << _PODS_SHIFT
            self._sorted = True

    def _grow(self) -> None:
        """Make room for as many rows again: all arrays are by row."""
        self.capacity *= 2
        self._live_rows = None
        for name, values in vars(self).items():
            if isinstance(values, np.ndarray):
                vars(self)[name] = _padded(values, 0, len(values))
        self._zones.grow(self.capacity)

    # Node objects.

    def put_node(
        self,
        row: int,
        unschedulable: bool | None,
        labels: Mapping[str, str] | None,
        allocatable: Mapping[str, int],
        taints: tuple[Taint, ...],
    ) -> None:
        """Set what a Node object says; `unschedulable` and `labels` are None without a Node."""
        if self.topology.live[row] != (labels is not None):
            self._live_rows = None
        self.unschedulable[row] = bool(unschedulable)
        number = self._taint_ids.setdefault(taints, len(self.taint_sets))
        if number == len(self.taint_sets):
            self.taint_sets.append(taints)
        self.taints[row] = number
        self.topology.put(row, labels)
        indices = {name: self.add_column(name) for name in allocatable}
        self.allocatable[row] = 0
        for name, amount in allocatable.items():
            self.allocatable[row, indices[name]] = _int64(amount)
        for index in (CPU, MEMORY):
            amount = int(self.allocatable[row, index])
            self.share[row, index] = 1 / amount if amount > 0 else 0.0
            self.used[row, index] = self.scored[row, index] * self.share[row, index]
        self.left[row] = self.allocatable[row] - self.requested[row]
        self.weighed[row] = max(1, int(np.count_nonzero(self.share[row])))
        self.kinds.changed(row)
        self.nodes_log.add(row)

    def label(self, key: str) -> Ids:
        """Return the ids of a label's values by row, ABSENT for nodes without it; for plugins."""
        return self.topology.ids(key)

    # Pods.

    def column(self, resource: str) -> int:
        """Return the index of a resource in `allocatable` and `requested`; -1 where no node or pod has it."""
        return self._resources.get(resource, ABSENT)

    def resources(self) -> list[str]:
        """Return the resources' names in the order of their columns."""
        return sorted(self._resources, key=lambda name: self._resources[name])

    def add_column(self, resource: str) -> int:
        """Return the index of a resource, which is added if it is new."""
        index = self._resources.setdefault(resource, len(self._resources))
        if index >= self.allocatable.shape[1]:
            self._amounts.clear()
            self.left = _padded(self.left, 1, index)
            self.allocatable = _padded(self.allocatable, 1, index)
            self.requested = _padded(self.requested, 1, index)
        return index

    def count(self, row: int, shape: Shape, sign: int) -> None:
        """Add (1) or take off (-1) a pod and its requests."""
        self._count(row, shape, sign)
        self.pods_log.add(row)

    def _count(self, row: int, shape: Shape, sign: int) -> None:
        amounts = self._amounts.get(shape.id)
        if amounts is None:
            amounts = self._amounts_of(shape)
        of_pod, of_scores = amounts if sign > 0 else (-amounts[0], -amounts[1])
        self.kinds.changed(row)
        self.pods[row] += sign
        self.order[row] += sign << _PODS_SHIFT
        requested, left, scored = self.requested[row], self.left[row], self.scored[row]
        requested += of_pod
        left -= of_pod
        scored += of_scores
        np.multiply(scored, self.share[row], self.used[row])

    def _amounts_of(self, shape: Shape) -> tuple[Integers, Integers]:
        """What a pod of the shape requests, in the order of the columns, and 1 pod; what scores count."""
        if len(self._amounts) >= _MOST_SHAPES:
            self._amounts.clear()
        indices = [self.add_column(name) for name in shape.requests]
        amounts = np.zeros(self.requested.shape[1], dtype=np.int64)
        amounts[indices] = [min(amount, _MOST_REQUESTED) for amount in shape.requests.values()]
        amounts[PODS] += 1
        scored = np.array([min(amount, _MOST_REQUESTED) for amount in shape.scored], dtype=np.int64)
        self._amounts[shape.id] = amounts, scored
        return amounts, scored

    # CPUs.

    def claim(
        self, row: int, shape: Shape, state: CanonicalState, admitted: int, *, unknown: bool = False
    ) -> None:
        """Add a pod with the canonical state that follows from it: `count` and `put_state`, logged once."""
        self._count(row, shape, 1)
        self.put_state(row, state, admitted, unknown=unknown)

    def put_state(self, row: int, state: CanonicalState, admitted: int, *, unknown: bool = False) -> None:
        """Set the canonical state of the CPUs, and the milliCPU that the ledger and claims request."""
        self.admitted[row] = admitted = _int64(admitted)
        self.room[row] = _int64(state.capacity - admitted)
        self.unknown[row] = unknown
        self.kinds.changed(row)
        before = self._states[row]
        if before is not state:
            self._states[row] = state
            self.state[row] = state.id
            self.facts[row] = state.facts
            if before is None or before.config != state.config:
                number = self._config_numbers.setdefault(state.config, len(self.configs))
                if number == len(self.configs):
                    self.configs.append(state)
                    ledger = state.state if isinstance(state.state, NodeState) else None
                    self.any_koordinator |= ledger is not None and ledger.config.koordinator is not None
                self.config[row] = number
                self.any_amplified |= state.amplified
                self.amplified[row] = state.amplified
                self.zoned[row] = isinstance(state.state, ZonesState)
            self._zones.put(row, state)
        self.pods_log.add(row)

    def state_of(self, row: int) -> CanonicalState | None:
        """Return the canonical state of a row's CPUs."""
        return self._states[row]

    def zones(self, name: str, numbers: Callable[[CanonicalState], Sequence[int]]) -> Integers:
        """Return a column with a number for each NUMA node of each row, 0 beyond the last; `name` is any."""
        return self._zones.numbers(name, numbers, self._states)

    def amounts(self) -> Integers:
        """Return what is left, by row, NUMA node (first the node as a whole) and resource: `table_of`."""
        return self._zones.amounts


def at(values: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """Return the values of ascending rows: of all rows without a copy."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        return values[rows[0] : rows[-1] + 1]
    return values[rows]


def _int64(amount: int) -> int:
    """Amounts beyond what a column holds are as good as its largest."""
    return max(-_MOST, min(amount, _MOST))


def _padded(values: NDArray[Number], axis: int, more: int, fill: int = 0) -> NDArray[Number]:
    """Values with so many more places along an axis, at its end."""
    if more <= 0:
        return values
    shape = list(values.shape)
    shape[axis] = more
    return np.concatenate([values, np.full(shape, fill, dtype=values.dtype)], axis=axis)


def sorted_values(values: NDArray[Number]) -> NDArray[Number]:
    """Return the distinct values in ascending order.

    The index is asked for because `np.unique` without it imports numpy.ma: 1 MB, and 20 ms of the first call.
    """
    distinct: NDArray[Number] = np.unique(values, return_index=True)[0]
    return distinct
