"""Why nodes reject a pod, in groups of rows: made only for a pod that fits nowhere."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from corelane.scheduler.cache.columns import Rows
from corelane.scheduler.framework.plugin import Cycle, FilterPlugin, Rejection


def rejections(
    cycle: Cycle, filters: Iterable[tuple[int, FilterPlugin]], blame: Any, rows: Rows
) -> Iterator[tuple[Rejection, Rows]]:
    """Yield rejections, each once, and their rows; `blame` has the number of the filter that rejects a row.

    Equal rejections are mostly one object, and hashing one takes some µs: those are told apart by identity.
    """
    parts: dict[int, tuple[Rejection, list[Rows]]] = {}
    for number, plugin in filters:
        blamed = rows[blame[rows] == number]
        if len(blamed):
            for rejection, some in _of_plugin(plugin, cycle, blamed):
                parts.setdefault(id(rejection), (rejection, []))[1].append(some)
    for rejection, groups in parts.values():
        yield rejection, groups[0] if len(groups) == 1 else np.sort(np.concatenate(groups))


def _of_plugin(plugin: FilterPlugin, cycle: Cycle, rows: Rows) -> Iterator[tuple[Rejection, Rows]]:
    grouping = getattr(plugin, "rejections", None)
    if grouping is not None:
        yield from grouping(cycle, cycle.cluster.columns, rows)
        return
    groups: dict[Rejection, list[int]] = {}
    for row in rows:
        node = cycle.cluster.by_row[row]
        rejection = plugin.filter(cycle, node) if node else None
        if rejection is not None:
            groups.setdefault(rejection, []).append(int(row))
    for rejection, found in groups.items():
        yield rejection, np.array(found, dtype=np.intp)
