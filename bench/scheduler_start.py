"""How soon the scheduler binds after its start on an existing cluster, and how long its loop pauses."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Final

import scheduler_cluster as clusters
import scheduler_drain as drains
import scheduler_load as load
from report import Row
from scheduler_cluster import Cluster
from scheduler_server import PENDING, RUNNING

NODES: Final = 5000
STEADY_PODS: Final = 1000
PATIENCE_S: Final = 300.0
STILL_S: Final = 15.0


def rows(nodes: int = NODES) -> Iterator[Row]:
    """Yield the rows of a start against the embedded server."""
    with clusters.embedded(nodes) as cluster, drains.corelane(cluster) as (_, report):
        figures = _until(report, "bound", PENDING)
        title = f"start, {nodes} nodes, {nodes * RUNNING} pods"
        yield Row(f"{title}: all listed", figures["started"], "s", None)
        yield Row(f"{title}: first binding", figures["first_bound"], "s", 10)
        yield Row(f"{title}: CPU time until then", figures["cpu_at_first_s"], "s", None)
        yield Row(f"{title}: resident memory", figures["rss_at_first_mb"], "MB", 700)
        yield Row(f"{title}: longest pause while listing", figures["pause_of_lists_ms"], "ms", None)
        yield Row(f"{title}: longest pause before that binding", figures["pause_until_first_ms"], "ms", 50)
        yield Row(f"{title}: that in CPU time", figures["work_until_first_ms"], "ms", 50)
        asyncio.run(_arrivals(cluster))
        figures = _until(report, "bound", PENDING + STEADY_PODS)
        steady = f"steady, {nodes} nodes, {STEADY_PODS} pods arrive"
        yield Row(f"{steady}: longest pause of the loop", figures["longest_pause_ms"], "ms", 50)
        yield Row(f"{steady}: longest pause in CPU time", figures["longest_work_ms"], "ms", 50)
        yield Row(f"{steady}: pauses over 50 ms", figures["pauses_over_50_ms"], "", 0)
        yield Row(f"{steady}: most memory so far", figures["peak_rss_mb"], "MB", None)


async def _arrivals(cluster: Cluster) -> None:
    """Create pods of the usual shapes, as fast as the server takes them."""
    objects = zip(load.pods(12), range(STEADY_PODS), strict=False)
    async with cluster.client() as client:
        await clusters.put_pods(client, (obj for obj, _ in objects))


def _until(report: drains.Path, what: str, least: float) -> dict[str, float]:
    """Return the report once a figure has grown so far, or stopped growing."""
    figures: dict[str, float] = {}
    grown, last = time.monotonic(), -1.0
    while time.monotonic() - grown < (PATIENCE_S if last < 1 else STILL_S):
        time.sleep(0.5)
        figures = json.loads(report.read_text()) if report.exists() else {}
        if figures.get(what, -1) > last:
            grown, last = time.monotonic(), figures[what]
        if last >= least:
            break
    return figures
