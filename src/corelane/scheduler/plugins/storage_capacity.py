"""Free storage that CSI drivers publish (CSIStorageCapacity), for volumes that are to be made.

Upstream: `hasEnoughCapacity` of kube-scheduler's volumebinding. Drivers count as long as their CSIDriver has
`storageCapacity`; one object that the node can reach must have the whole amount.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from corelane.kube.storage import PersistentVolumeClaim
from corelane.kube.volumes import class_of
from corelane.scheduler.cache.columns import Columns, Mask, Rows
from corelane.scheduler.cache.label_rules import Rules, holds
from corelane.scheduler.cache.objects import ClusterObjects
from corelane.scheduler.cache.storage_capacity import amount
from corelane.workload.selectors import LabelRequirement, Operator

_STORAGE: Final = "storage"


class FreeStorage:
    """Where a volume of a claim's size can be made: on nodes that reach one of these capacities."""

    def __init__(self, capacities: Iterable[Rules]) -> None:
        """`capacities` are what the labels of their nodes must be."""
        self._by_label: dict[str, set[str]] = {}
        """Values of a label, one of which is all that a node must have."""
        self._others: set[Rules] = set()
        for rules in capacities:
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
    return FreeStorage(
        one.rules
        for one in listed
        if one.rules is not None and one.largest is not None and one.largest >= size
    )


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
