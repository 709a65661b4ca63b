"""Filters of plugins, asked about each node alone and about all at once."""

from typing import Any

from corelane.reasons import sentence
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.framework.plugin import Cycle, Rejection


def rejections(plugin: Any, cycle: Cycle, cache: NodeCache) -> dict[str, Rejection]:
    """Why nodes are rejected, by name: asked one by one; over columns the answers are the same."""
    columns = cache.columns
    rows = columns.live_rows()
    alone = {columns.names[row]: plugin.filter(cycle, cache.by_row[row]) for row in rows.tolist()}
    rejected = {name: rejection for name, rejection in alone.items() if rejection is not None}
    if hasattr(plugin, "feasible"):
        passed = plugin.feasible(cycle, columns, rows)
        assert passed.tolist() == [rejection is None for rejection in alone.values()]
        if hasattr(plugin, "rejections"):
            groups = plugin.rejections(cycle, columns, rows[~passed])
            assert {columns.names[row]: one for one, some in groups for row in some.tolist()} == rejected
    return rejected


def told(rejection: Rejection | None) -> dict[str, Any] | None:
    """A rejection as kube-scheduler's status; amounts that a node lacks come in the order of a Go map."""
    if rejection is None:
        return None
    code = "Unschedulable" if rejection.resolvable else "UnschedulableAndUnresolvable"
    return {"code": code, "reasons": sorted(sentence(one.reason) for one in rejection.reasons)}
