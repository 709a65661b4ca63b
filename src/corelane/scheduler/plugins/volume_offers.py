"""Volumes that a claim may be bound to, found for one node or for all nodes without asking each about each.

Local volumes are as many as nodes: asked one by one, 5,000 of either take minutes. Most name their node by
one label, so a node is asked only about volumes that name one of its labels.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from heapq import merge
from typing import Final

import numpy as np

from corelane.kube.node_terms import term_is_valid
from corelane.kube.objects import Node
from corelane.kube.pod import NodeSelector
from corelane.kube.storage import PersistentVolume
from corelane.kube.volumes import reaches
from corelane.scheduler.cache.columns import Columns, Mask, Rows
from corelane.scheduler.plugins.node_term_masks import labels_selector_mask

_MOST_SELECTORS: Final = 65_536
_NOWHERE: Final[tuple[int, ...]] = ()


class Offers:
    """The volumes for one claim; each node gets the first that reaches it."""

    def __init__(self, reserved: Iterable[PersistentVolume], available: Iterable[PersistentVolume]) -> None:
        """The first of the `reserved` is the only one that will do; `available` ones are in their order."""
        self._reserved = tuple(reserved)
        self._available = tuple(available)
        self._by_label: dict[str, dict[str, list[int]]] = {}
        """Label and value to the places of volumes that only nodes with it reach."""
        self._others: list[int] = []
        for place, volume in enumerate(self._available):
            label = one_label(_selector(volume))
            if label is None:
                self._others.append(place)
                continue
            key, values = label
            for value in values:
                self._by_label.setdefault(key, {}).setdefault(value, []).append(place)

    def on(self, node: Node, chosen: Mapping[str, PersistentVolume]) -> PersistentVolume | None:
        """Return the volume for a node, none of those that were `chosen` for other claims."""
        for volume in self._reserved:
            if volume.metadata.name not in chosen:
                return volume if reaches(volume, node) else None
        labels = node.metadata.labels
        named = (of.get(labels[key], _NOWHERE) for key, of in self._by_label.items() if key in labels)
        for place in merge(self._others, *named):
            volume = self._available[place]
            if volume.metadata.name not in chosen and reaches(volume, node):
                return volume
        return None

    def reached(self, columns: Columns, rows: Rows) -> Mask:
        """Return which rows get a volume."""
        if self._reserved:
            return reach_mask(self._reserved[0], columns, rows)
        found = np.zeros(len(rows), np.bool_)
        for key, of in self._by_label.items():
            ids, values = columns.label(key), columns.label_values(key)
            table = np.zeros(len(values) + 1, np.bool_)  # The last one is of nodes without the label.
            table[[values[value] for value in of if value in values]] = True
            found |= table[ids[rows]]
        for selector in dict.fromkeys(_selector(self._available[place]) for place in self._others):
            if found.all():
                break
            found |= _selector_mask(selector, columns, rows)
        return found


def reach_mask(volume: PersistentVolume, columns: Columns, rows: Rows) -> Mask:
    """Return which nodes a volume reaches; see `reaches`."""
    return _selector_mask(_selector(volume), columns, rows)


def _selector_mask(selector: NodeSelector | None, columns: Columns, rows: Rows) -> Mask:
    if selector is None:
        return np.ones(len(rows), np.bool_)
    return labels_selector_mask(selector, columns, rows)


def _selector(volume: PersistentVolume) -> NodeSelector | None:
    affinity = volume.spec.node_affinity
    return affinity.required if affinity else None


@lru_cache(_MOST_SELECTORS)
def one_label(selector: NodeSelector | None) -> tuple[str, tuple[str, ...]] | None:
    """Return the label, and its values, by which alone a selector chooses nodes; None for other selectors."""
    if selector is None or len(selector.node_selector_terms) != 1:
        return None
    term = selector.node_selector_terms[0]
    if len(term.match_expressions) != 1 or not term_is_valid(term):
        return None
    rule = term.match_expressions[0]
    return (rule.key, rule.values) if rule.operator == "In" else None
