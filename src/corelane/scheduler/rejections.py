"""Why nodes reject a pod, in groups of rows: made only for a pod that fits nowhere."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from corelane.scheduler.cache.columns import Rows
from corelane.scheduler.framework.plugin import Cycle, FilterPlugin, Rejection


def rejections(
    cycle: Cycle, filters: Iterable[tuple[int, FilterPlugin]], blame: Any, rows: Rows
) -> Iterator[tuple[Rejection, Rows]]:
    """Yield rejections and their rows; `blame` has the number of the filter that rejects each row."""
    for number, plugin in filters:
        blamed = rows[blame[rows] == number]
        if len(blamed):
            yield from _of_plugin(plugin, cycle, blamed)


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
