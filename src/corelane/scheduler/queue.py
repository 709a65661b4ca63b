"""Pods without a node: ready ones by priority and age, others until a time or a change in the cluster.

A pod is in one of three places. Ready: to be tried next. Backing off: tried before, ready at a set time.
Parked: no node fits; a change that can help its failed filters makes it ready (or back off, if its back-off
is not over), and five minutes make it ready in any case. The numbers are kube-scheduler's.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final

from corelane.scheduler.node_cache import PodInfo

FIRST_BACKOFF: Final = 1.0
LONGEST_BACKOFF: Final = 10.0
LONGEST_PARKED: Final = 300.0


class Wake(Flag):
    """Kinds of change that can make a parked pod fit."""

    NOTHING = 0
    NODE = auto()
    """A node was added, or its labels, taints, conditions or amounts changed."""
    FREED = auto()
    """A pod ended, or its binding failed."""
    LEDGER = auto()
    """A node's agent published another machine or ledger."""


class QueuePlace(Enum):
    """The place of a pod in the queue; OUT is outside, while it is tried or bound."""

    READY = auto()
    BACKING_OFF = auto()
    PARKED = auto()
    OUT = auto()


@dataclass(slots=True, eq=False)
class Waiting:
    """A pod without a node, with the history of its attempts. Times are in seconds, of the events' clock."""

    info: PodInfo
    place: QueuePlace = QueuePlace.OUT
    attempts: int = 0
    ready_at: float = 0.0
    """When its back-off ends."""
    parked_at: float = 0.0
    helped_by: Wake = Wake.NOTHING
    reason: str = ""
    """Why the last attempt failed: the message of its condition."""
    event: str = ""
    """Message of the last event about it."""
    event_at: float = float("-inf")
    number: int = 0
    """Number of its latest heap entry; entries with older numbers are void."""


class SchedulingQueue:
    """Pods without a node, each in exactly one place."""

    def __init__(self) -> None:
        self._pods: dict[str, Waiting] = {}
        self._ready: list[tuple[int, str, int, str]] = []
        self._backing_off: list[tuple[float, int, str]] = []
        self._parked: dict[str, Waiting] = {}
        self._number = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._pods.values())

    def add(self, info: PodInfo) -> None:
        """Add a pod, ready at once."""
        waiting = self._pods[info.uid] = Waiting(info)
        self._make_ready(waiting)

    def remove(self, uid: str) -> None:
        """Remove a pod, if it is there."""
        if waiting := self._pods.pop(uid, None):
            self._leave(waiting)

    def pop(self, now: float) -> Waiting | None:
        """Take out the next ready pod, for an attempt."""
        if not self.has_ready(now):
            return None
        *_, uid = heapq.heappop(self._ready)
        waiting = self._pods.pop(uid)
        self._leave(waiting)
        waiting.attempts += 1
        return waiting

    def park(self, waiting: Waiting, now: float, helped_by: Wake) -> None:
        """Put back a pod that fits on no node."""
        self._pods[waiting.info.uid] = waiting
        waiting.ready_at = now + backoff(waiting.attempts)
        waiting.parked_at, waiting.helped_by = now, helped_by
        self._enter(waiting, QueuePlace.PARKED)
        self._parked[waiting.info.uid] = waiting

    def retry(self, waiting: Waiting, now: float) -> None:
        """Put back a pod whose binding failed, to be tried again after its back-off."""
        self._pods[waiting.info.uid] = waiting
        waiting.ready_at = now + backoff(waiting.attempts)
        self._back_off(waiting)

    def wake(self, now: float, change: Wake) -> None:
        """Make ready the parked pods that the change can help."""
        for waiting in [w for w in self._parked.values() if w.helped_by & change]:
            self._unpark(waiting, now)

    def update(self, info: PodInfo, now: float) -> None:
        """Replace a pod that may fit now, and try it again."""
        waiting = self._pods[info.uid]
        waiting.info = info
        if waiting.place is QueuePlace.PARKED:
            self._unpark(waiting, now)
        elif waiting.place is QueuePlace.READY:
            self._make_ready(waiting)

    def refresh(self, info: PodInfo) -> None:
        """Replace a pod whose change does not affect where it fits."""
        self._pods[info.uid].info = info

    def has_ready(self, now: float) -> bool:
        """Whether `pop` would return a pod."""
        self._advance(now)
        while self._ready and not self._holds(QueuePlace.READY, *self._ready[0][-2:]):
            heapq.heappop(self._ready)
        return bool(self._ready)

    def next_time(self) -> float | None:
        """When the next pod becomes ready without a change; None if none will."""
        times = [self._backing_off[0][0]] if self._backing_off else []
        if self._parked:
            times.append(next(iter(self._parked.values())).parked_at + LONGEST_PARKED)
        return min(times, default=None)

    def _advance(self, now: float) -> None:
        while self._backing_off and self._backing_off[0][0] <= now:
            _, number, uid = heapq.heappop(self._backing_off)
            if self._holds(QueuePlace.BACKING_OFF, number, uid):
                self._make_ready(self._pods[uid])
        while self._parked:
            oldest = next(iter(self._parked.values()))
            if oldest.parked_at + LONGEST_PARKED > now:
                return
            self._make_ready(oldest)

    def _holds(self, place: QueuePlace, number: int, uid: str) -> bool:
        """Whether a heap entry is valid."""
        waiting = self._pods.get(uid)
        return waiting is not None and waiting.place is place and waiting.number == number

    def _unpark(self, waiting: Waiting, now: float) -> None:
        if waiting.ready_at <= now:
            self._make_ready(waiting)
        else:
            self._back_off(waiting)

    def _make_ready(self, waiting: Waiting) -> None:
        self._enter(waiting, QueuePlace.READY)
        pod = waiting.info.pod
        order = (-pod.spec.priority, pod.metadata.creation_timestamp, waiting.number, waiting.info.uid)
        heapq.heappush(self._ready, order)

    def _back_off(self, waiting: Waiting) -> None:
        self._enter(waiting, QueuePlace.BACKING_OFF)
        heapq.heappush(self._backing_off, (waiting.ready_at, waiting.number, waiting.info.uid))

    def _enter(self, waiting: Waiting, place: QueuePlace) -> None:
        self._leave(waiting)
        self._number += 1
        waiting.place, waiting.number = place, self._number

    def _leave(self, waiting: Waiting) -> None:
        self._parked.pop(waiting.info.uid, None)
        waiting.place = QueuePlace.OUT


def backoff(attempts: int) -> float:
    """Return the seconds to wait after that many attempts: 1, 2, 4, 8, then 10."""
    return float(min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(attempts - 1, 30)))
