"""Whether a pod certainly fits nowhere, for a microsecond: too large for every node, or labels that none has.

What is said of a pod serves the order of attempts only; the attempt itself decides, and says why.
"""

from collections.abc import Mapping

from corelane.scheduler.cache.columns import UNUSED
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.pods import PodInfo

_CPU = "cpu"


class Screen:
    """The most of each resource on one node: kept until a node or pod changes."""

    def __init__(self, cluster: NodeCache) -> None:
        self._cluster = cluster
        self._version: tuple[int, int] | None = None
        self._free: Mapping[str, int] = {}
        self._allocatable: Mapping[str, int] = {}
        self._amplified = False

    def fits_nowhere(self, pod: PodInfo) -> bool:
        """Return True only if no node can run the pod now, nor by preemption."""
        columns = self._cluster.columns
        version = columns.nodes_log.position, columns.pods_log.position
        if version != self._version:
            self._version = version
            self._measure()
        selector = pod.pod.spec.node_selector.items()
        if any(columns.label_value(key, value) == UNUSED for key, value in selector):
            return True
        most = self._allocatable if self._may_preempt(pod) else self._free
        return any(
            amount > most.get(name, 0)
            for name, amount in pod.requests.items()
            if amount > 0 and not (self._amplified and name == _CPU)
        )

    def _may_preempt(self, pod: PodInfo) -> bool:
        spec, lowest = pod.pod.spec, self._cluster.priorities.lowest()
        return spec.preemption_policy != "Never" and lowest is not None and lowest < spec.priority

    def _measure(self) -> None:
        columns, rows = self._cluster.columns, self._cluster.columns.live_rows()
        names = columns.resources()
        if not len(rows):
            self._free = self._allocatable = {}
            return
        allocatable = columns.allocatable[rows]
        free = (allocatable - columns.requested[rows]).max(axis=0)
        self._allocatable = {
            name: int(most) for name, most in zip(names, allocatable.max(axis=0), strict=False)
        }
        self._free = {name: int(most) for name, most in zip(names, free, strict=False)}
        self._amplified = bool(columns.amplified[rows].any())
