"""Attempts that found no node, kept while preemption goes on in portions: the next one would find the same.

To find out again why each of 5,000 nodes rejects a pod takes 10 to 20 ms, as much as a portion itself.
"""

from typing import Final, TypeAlias

from corelane.scheduler.attempts import Attempt, Rejections
from corelane.scheduler.cache.nodes import NodeCache
from corelane.scheduler.cache.pods import PodInfo

MOST_KEPT: Final = 8
"""Attempts kept; one takes up to 1 MB where 5,000 nodes reject a pod for different reasons."""

MANY_REASONS: Final = 1024
"""Of more different reasons, what follows is for the next portion: finding these took 15 ms already."""

_Positions: TypeAlias = tuple[int, int]


class KeptAttempts:
    """By pod; an attempt holds until a row changes, a node is nominated, or `clear`, due at every event."""

    def __init__(self, cluster: NodeCache) -> None:
        self._cluster = cluster
        self._kept: dict[str, tuple[PodInfo, _Positions, Attempt]] = {}
        self._popped: Attempt | None = None
        """The attempt that was used again last; None where it was a new one."""

    def clear(self) -> None:
        """Forget all: an event may have changed anything."""
        if self._kept:
            self._kept.clear()

    def is_worth_a_portion(self, attempt: Attempt) -> bool:
        """Return whether it took long to find out why the nodes reject the pod, and that can be kept."""
        rejections = attempt.rejections
        many = isinstance(rejections, Rejections) and len(rejections.groups) > MANY_REASONS
        return many and attempt is not self._popped and self._can_keep(attempt)

    def _can_keep(self, attempt: Attempt) -> bool:
        """Whether it is an attempt on all nodes, while none is nominated for a pod."""
        return not self._cluster.nominations and attempt.cycle.only is None

    def keep(self, info: PodInfo, attempt: Attempt) -> None:
        """Keep an attempt, if it may be kept at all."""
        if not self._can_keep(attempt):
            return
        while len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[info.uid] = info, self._positions(), attempt

    def pop(self, info: PodInfo) -> Attempt | None:
        """Return the attempt of a pod, if the next one would find the same; it is kept no longer."""
        self._popped = None
        if info.uid not in self._kept:
            return None
        of, positions, attempt = self._kept.pop(info.uid)
        holds = of is info and positions == self._positions() and not self._cluster.nominations
        self._popped = attempt if holds else None
        return self._popped

    def _positions(self) -> _Positions:
        columns = self._cluster.columns
        return columns.nodes_log.position, columns.pods_log.position
