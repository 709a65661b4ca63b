"""Makes changes for the queue of what happens to a node: the node is compared before and after.

Comparing costs some tens of microseconds, and is done only while some pod waits for a change of that kind.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from corelane.scheduler.cache import summaries
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.summaries import NodeSummary
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue

_COMPARED = ChangeKind.NODE | ChangeKind.TOPOLOGY


@contextmanager
def observed(
    queue: SchedulingQueue,
    nodes: NodeCache,
    change: ClusterChange,
    now: float,
) -> Iterator[None]:
    """Report to the queue what the body changes about the node of the change.

    Of kinds NODE and TOPOLOGY those are reported that really changed; a change of a pod is reported as such.
    """
    listening = queue.listens(change.kind)
    before = summaries.summary(nodes.get(change.node)) if listening else None
    yield
    if not listening:
        queue.changed(change, now)
        return
    after = summaries.summary(nodes.get(change.node))
    kind = change.kind
    if kind & _COMPARED:
        kind &= difference(before, after)
    if kind:
        queue.changed(ClusterChange(kind, change.node, change.old, change.new, before, after), now)


def difference(before: NodeSummary | None, after: NodeSummary | None) -> ChangeKind:
    """Return what changed about a node, as far as it can help a pod."""
    if after is None:
        return ChangeKind.NOTHING
    if before is None:
        return _COMPARED
    kind = ChangeKind.NOTHING
    if summaries.allocatable_grew(before, after):
        kind |= ChangeKind.NODE_ALLOCATABLE
    if after.labels != before.labels:
        kind |= ChangeKind.NODE_LABELS
    if (after.taints, after.unschedulable) != (before.taints, before.unschedulable):
        kind |= ChangeKind.NODE_TAINTS
    if after.amplified != before.amplified or summaries.cpus_grew(before, after):
        kind |= ChangeKind.TOPOLOGY
    return kind
