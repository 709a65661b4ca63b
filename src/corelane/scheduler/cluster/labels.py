"""Node labels as columns of interned values, pods counted by the domains these make, and selectors of pods.

A column is made when a selector or a topology key first names its label.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
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
_FIRST_ROWS: Final = 64
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class _Label:
    """One label of all nodes: the id of its value by row, and the ids of values."""

    __slots__ = ("ids", "values")

    def __init__(self, capacity: int) -> None:
        self.ids: Ids = np.full(capacity, ABSENT, dtype=np.int32)
        self.values: dict[str, int] = {}

    def put(self, row: int, value: str | None) -> None:
        self.ids[row] = ABSENT if value is None else self.values.setdefault(value, len(self.values))


class Topology:
    """Labels of nodes by row; the ids of a label's values number the topology domains of its key.

    Ids of values that no node has any longer are not used again.
    """

    def __init__(self) -> None:
        self.live = np.zeros(_FIRST_ROWS, np.bool_)
        """Whether the row has a Node object."""
        self._of_row: list[Mapping[str, str]] = []
        self._labels: dict[str, _Label] = {}

    @property
    def capacity(self) -> int:
        """Length of all arrays by row."""
        return len(self.live)

    def put(self, row: int, labels: Mapping[str, str] | None) -> None:
        """Set the labels of a node; None where the row has no Node object."""
        self._of_row.extend([_NO_LABELS] * (row + 1 - len(self._of_row)))
        if row >= self.capacity:
            more = max(row + 1, 2 * self.capacity) - self.capacity
            self.live = np.concatenate([self.live, np.zeros(more, np.bool_)])
            for label in self._labels.values():
                label.ids = np.concatenate([label.ids, np.full(more, ABSENT, np.int32)])
        self.live[row] = labels is not None
        self._of_row[row] = labels = labels or _NO_LABELS
        for key, label in self._labels.items():
            label.put(row, labels.get(key))

    def ids(self, key: str) -> Ids:
        """Return the id of a label's value by row, `ABSENT` for nodes without it."""
        return self._label(key).ids

    def id(self, key: str, row: int) -> int:
        """Return the id of the label's value on one row."""
        return int(self._label(key).ids[row])

    def values(self, key: str) -> Mapping[str, int]:
        """Return the ids of all values of a label, in ascending order."""
        return self._label(key).values

    def value(self, key: str, value: str) -> int:
        """Return the id of a label's value, `UNUSED` where no node had it."""
        return self._label(key).values.get(value, UNUSED)

    def size(self, key: str) -> int:
        """Return a number above all ids of the label's values."""
        return len(self._label(key).values)

    def _label(self, key: str) -> _Label:
        label = self._labels.get(key)
        if label is None:
            label = self._labels[key] = _Label(self.capacity)
            for row, labels in enumerate(self._of_row):
                label.put(row, labels.get(key))
        return label


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
