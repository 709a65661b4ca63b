"""A pod without a node, and a heap of such pods in one place of the queue."""

import heapq
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.plugin import Rejection

SortKey: TypeAlias = tuple[Any, ...]
_SPARE: Final = 64
MOST_PORTIONS: Final = 16
"""Of one attempt, 150 to 400 ms; then other pods come before its next one."""


class QueuePlace(Enum):
    """The place of a pod in the queue."""

    GATED = auto()
    """A PreEnqueue plugin keeps it from being tried."""
    READY = auto()
    BACKING_OFF = auto()
    PARKED = auto()
    """No node fits: it waits for a change."""
    OUT = auto()
    """Outside, while it is tried or bound."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an attempt failed: the plugins that rejected the pod, and the message of its condition."""

    plugins: frozenset[str]
    message: str
    sequence: int
    """Number of changes in the cluster before the attempt."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A pod without a node, with the history of its attempts. Times are in seconds, of the events' clock."""

    info: PodInfo
    place: QueuePlace = QueuePlace.OUT
    attempts: int = 0
    failures: int = 0
    """Attempts that found no node."""
    errors: int = 0
    """Attempts in a row that failed otherwise, as by a rejected binding."""
    ready_at: float = 0.0
    """When its back-off ends."""
    group: Hashable = None
    """Of equal pods; None if not known yet."""
    grouping: int = 0
    """Version of the keys of groups when it was found."""
    alone: bool = False
    """What was found out for it holds for no other pod."""
    trial: bool = False
    """A change may help its group, and this pod is to find out."""
    started: int = 0
    """Number of changes in the cluster before its attempt."""
    continued: bool = False
    """Its attempt is not finished; changes count from when it was started."""
    portions: int = 0
    """Of its attempt, so far."""
    flushed: bool = False
    """It is tried because nothing else had it tried for too long."""
    rejected: bool = False
    """All nodes rejected it for many reasons in the portion before: this one goes on, whatever changed."""
    gate: Rejection | None = None
    """Of the PreEnqueue plugin that keeps it from being tried."""
    nominated: str = ""
    """Name of the node where pods were evicted for it."""
    reason: str = ""
    """Why the last attempt failed: the message of its condition."""
    event: str = ""
    """Message of the last event about it."""
    event_at: float = float("-inf")
    number: int = 0
    """Number of its latest heap entry; entries with older numbers are void."""

    @property
    def uid(self) -> str:
        return self.info.uid

    @property
    def labels(self) -> Mapping[str, str]:
        return self.info.pod.metadata.labels

    @property
    def pending_because(self) -> str:
        """Why it has no node yet."""
        if self.gate is not None:
            return "; ".join(map(str, self.gate.reasons))
        return self.reason or "queued"


class WaitingHeap:
    """Pods in one place by a key. Entries of pods that left are void, and dropped sooner or later."""

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, Waiting]] = []
        self._limit = _SPARE

    def push(self, key: object, waiting: Waiting) -> None:
        if len(self._heap) >= self._limit:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].number]
            heapq.heapify(self._heap)
            self._limit = 2 * len(self._heap) + _SPARE
        heapq.heappush(self._heap, (key, waiting.number, waiting))

    def head(self) -> tuple[Any, Waiting] | None:
        """Return the least key and its pod; None if there is no pod."""
        heap = self._heap
        while heap:
            key, number, waiting = heap[0]
            if waiting.number == number:
                return key, waiting
            heapq.heappop(heap)
        return None

    def drop(self) -> None:
        """Remove the head."""
        heapq.heappop(self._heap)
