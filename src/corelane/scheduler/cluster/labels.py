"""Node labels as columns of interned values; a column is made when a selector first looks at its label."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from corelane.kube.selectors import LabelSelector
from corelane.workload.selectors import LabelRequirement, Operator

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


_MOST: Final = 256


class RowMasks:
    """Masks by the key of their condition; rows without a Node object are False."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._masks: OrderedDict[Hashable, tuple[int, NDArray[np.bool_]]] = OrderedDict()

    def get(self, key: Hashable, holds: Callable[[int], bool]) -> NDArray[np.bool_]:
        """Return the mask of a condition, asked of each live row that changed; not to be changed."""
        topology = self._topology
        version, mask = self._masks.pop(key, (-1, np.zeros(0, np.bool_)))
        if len(mask) < topology.capacity:
            mask = np.concatenate([mask, np.zeros(topology.capacity - len(mask), np.bool_)])
        for row in topology.changed_since(version).tolist():
            mask[row] = bool(topology.live[row]) and holds(row)
        self._masks[key] = (topology.version, mask)
        if len(self._masks) > _MOST:
            self._masks.popitem(last=False)
        return mask


Rules: TypeAlias = tuple[LabelRequirement, ...]
"""All must hold; without any, everything matches."""


def rules_of(selector: LabelSelector | None, extra: Iterable[LabelRequirement] = ()) -> Rules | None:
    """Return a selector's rules, and `extra` ones; None for an absent selector, which matches nothing.

    Raises ValueError for an unknown operator.
    """
    if selector is None:
        return None
    compiled = selector.compiled()
    equal = (LabelRequirement(key, Operator.IN, (value,)) for key, value in compiled.labels.items())
    rules = {*equal, *compiled.expressions, *extra}
    return tuple(sorted(rules, key=lambda rule: (rule.key, rule.operator, rule.values)))


def holds(rules: Rules | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels match; None matches nothing."""
    return rules is not None and all(rule.holds(labels) for rule in rules)


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods with matching labels in the named namespaces, and in those whose labels match."""

    rules: Rules | None
    namespaces: frozenset[str] = frozenset()
    namespace_rules: Rules | None = None

    @property
    def everywhere(self) -> bool:
        """Whether pods of all namespaces can match."""
        return self.namespace_rules == ()

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether a pod is meant; labels of an unknown namespace are none."""
        within = namespace in self.namespaces or holds(self.namespace_rules, namespace_labels)
        return within and holds(self.rules, labels)

    @property
    def pair(self) -> tuple[str, str] | None:
        """A label and value that every pod of the set has, if the rules name one."""
        for rule in self.rules or ():
            if rule.operator is Operator.IN and len(rule.values) == 1:
                return rule.key, rule.values[0]
        return None

    @property
    def keys(self) -> frozenset[str]:
        """Label keys that the rules look at."""
        return frozenset(rule.key for rule in self.rules or ())


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Term:
    """A pod affinity term: pods, and the label key of the domains in which they count.

    Equal terms are one object; `Term.of` makes them.
    """

    pods: PodSet
    topology_key: str

    @classmethod
    def of(cls, pods: PodSet, topology_key: str) -> "Term":
        term = _TERMS.get((pods, topology_key))
        if term is None:
            term = _TERMS[pods, topology_key] = cls(pods, topology_key)
        return term


_TERMS: Final[WeakValueDictionary[tuple[PodSet, str], Term]] = WeakValueDictionary()


@lru_cache(4096)
def in_namespace(namespace: str, rules: Rules | None) -> PodSet:
    """Return the pods of one namespace whose labels match."""
    return PodSet(rules, frozenset({namespace}))
