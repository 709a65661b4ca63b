"""Makes changes for the queue of what happens to a node: the node is compared before and after.

Comparing costs some tens of microseconds, and is done only while some pod waits for a change of that kind.
"""

from collections.abc import Callable

from corelane.scheduler.cache import summaries
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.summaries import NodeSummary
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue

_COMPARED = ChangeKind.NODE | ChangeKind.TOPOLOGY


class Observed:
    """Reports to the queue what the body of its `with` changes about the node of the change.

    Of kinds NODE and TOPOLOGY those are reported that really changed; a change of a pod is reported as such.
    """

    __slots__ = ("_before", "_change", "_listening", "_nodes", "_now", "_queue", "_then")

    def __init__(
        self,
        queue: SchedulingQueue,
        nodes: NodeCache,
        change: ClusterChange,
        now: float,
        then: Callable[[str, float], None],
    ) -> None:
        """`then` is called last, with the name of the node and the time."""
        self._queue, self._nodes, self._change, self._now, self._then = queue, nodes, change, now, then

    def __enter__(self) -> None:
        self._listening = self._queue.listens(self._change.kind)
        self._before = summaries.summary(self._nodes.get(self._change.node)) if self._listening else None

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            self._report()
            self._then(self._change.node, self._now)

    def _report(self) -> None:
        change = self._change
        if not self._listening:
            self._queue.noted(change.kind, self._now)
            return
        after, kind = summaries.summary(self._nodes.get(change.node)), change.kind
        if kind & _COMPARED:
            kind &= difference(self._before, after)
        if kind:
            found = ClusterChange(kind, change.node, change.old, change.new, self._before, after)
            self._queue.changed(found, self._now)


def difference(before: NodeSummary | None, after: NodeSummary | None) -> ChangeKind:
    """Return what changed about a node, as far as it can help a pod."""
    if after is None:
        return ChangeKind.NOTHING if before is None else ChangeKind.NODE_REMOVED
    if before is None:
        return _COMPARED & ~ChangeKind.NODE_REMOVED
    kind = ChangeKind.NOTHING
    if summaries.allocatable_grew(before, after):
        kind |= ChangeKind.NODE_ALLOCATABLE
    if after.labels != before.labels:
        kind |= ChangeKind.NODE_LABELS
    if (after.taints, after.unschedulable) != (before.taints, before.unschedulable):
        kind |= ChangeKind.NODE_TAINTS
    if after.amplified != before.amplified or summaries.cpus_differ(before, after):
        kind |= ChangeKind.TOPOLOGY
    return kind
