"""Free storage that CSI drivers publish (CSIStorageCapacity), for volumes that are to be made.

Upstream: `hasEnoughCapacity` of kube-scheduler's volumebinding. Drivers count as long as their CSIDriver has
`storageCapacity`; one object that the node can reach must have the whole amount.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import numpy as np

from corelane import quantity
from corelane.kube.meta import WireQuantity
from corelane.kube.storage import CSIStorageCapacity, PersistentVolumeClaim
from corelane.kube.volumes import class_of
from corelane.quantity import QuantityError
from corelane.scheduler.cache.columns import Columns, Mask, Rows
from corelane.scheduler.cache.label_rules import Rules, holds, rules_of
from corelane.scheduler.cache.objects import ClusterObjects
from corelane.workload.selectors import LabelRequirement, Operator

_STORAGE: Final = "storage"


class FreeStorage:
    """Where a volume of a claim's size can be made: on nodes that reach one of these capacities."""

    def __init__(self, capacities: Iterable[CSIStorageCapacity]) -> None:
        self._by_label: dict[str, set[str]] = {}
        """Values of a label, one of which is all that a node must have."""
        self._others: set[Rules] = set()
        for one in capacities:
            rules = _rules(one)
            if rules is None:
                continue
            if len(rules) == 1 and rules[0].operator is Operator.IN:
                self._by_label.setdefault(rules[0].key, set()).update(rules[0].values)
            else:
                self._others.add(rules)

    def reached_by(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels reaches enough of it."""
        if any(labels.get(key) in values for key, values in self._by_label.items()):
            return True
        return any(holds(rules, labels) for rules in self._others)

    def reached(self, columns: Columns, rows: Rows) -> Mask:
        """Return which rows reach enough of it."""
        found = np.zeros(len(rows), np.bool_)
        for key, values in self._by_label.items():
            found |= _has_one_of(key, values, columns)[columns.label(key)[rows]]
        for rules in self._others:
            if found.all():
                break
            mask = np.ones(len(rows), np.bool_)
            for rule in rules:
                mask &= _table(rule, columns)[columns.label(rule.key)[rows]]
            found |= mask
        return found


def free_storage(claim: PersistentVolumeClaim, objects: ClusterObjects) -> FreeStorage | None:
    """Return where a volume can be made for the claim; None where that is not limited."""
    storage = objects.classes.get(class_of(claim))
    driver = objects.csi_drivers.get(storage.provisioner) if storage is not None else None
    asked = claim.spec.resources.requests.get(_STORAGE)
    if storage is None or driver is None or not driver.spec.storage_capacity or asked is None:
        return None
    size = amount(asked) or 0
    listed = objects.capacities_of_class(storage.metadata.name)
    return FreeStorage(one for one in listed if (most := largest(one)) is not None and most >= size)


def largest(capacity: CSIStorageCapacity) -> int | None:
    """Return the size of the largest volume that can be made, in bytes; None where nothing is said of it."""
    size = capacity.maximum_volume_size
    return amount(capacity.capacity if size is None else size)


@lru_cache(4096)
def amount(wire: WireQuantity | None) -> int | None:
    """Return bytes; None for an absent or invalid amount."""
    try:
        return None if wire is None else quantity.value(str(wire))
    except QuantityError:
        return None


def _rules(capacity: CSIStorageCapacity) -> Rules | None:
    """Return what a node's labels must be; None where no node has access, or the selector is invalid."""
    try:
        return rules_of(capacity.node_topology)
    except ValueError:
        return None


def _table(rule: LabelRequirement, columns: Columns) -> Mask:
    """Whether the rule holds by the id of the label's value; the last one is of nodes without the label."""
    if rule.operator is Operator.IN:
        return _has_one_of(rule.key, rule.values, columns)
    values = columns.label_values(rule.key)
    table = np.zeros(len(values) + 1, np.bool_)
    for value, number in values.items():
        table[number] = rule.holds({rule.key: value})
    table[-1] = rule.holds({})
    return table


def _has_one_of(key: str, wanted: Iterable[str], columns: Columns) -> Mask:
    values = columns.label_values(key)
    table = np.zeros(len(values) + 1, np.bool_)
    table[[values[value] for value in wanted if value in values]] = True
    return table
