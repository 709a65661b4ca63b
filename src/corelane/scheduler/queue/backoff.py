"""Back-off: how long a pod that was tried is not tried again. The numbers are kube-scheduler's.

A pod that no node fits backs off by the number of such attempts, a pod whose attempt failed otherwise (an
error) by the number of errors in a row. While no other pod is ready, pods of the first kind are tried before
their back-off ends (upstream: SchedulerPopFromBackoffQ); those with errors never are.
"""

from dataclasses import dataclass

from corelane.scheduler.queue.waiting import SortKey, Waiting, WaitingHeap


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds: `initial` after the first attempt, doubled by each further one up to `maximum` (0: never)."""

    initial: float = 1.0
    maximum: float = 10.0

    def seconds(self, attempts: int) -> float:
        """Return how long to wait after that many attempts, by default 1, 2, 4, 8, then 10."""
        return min(self.maximum, self.initial * 2.0 ** min(attempts - 1, 60)) if attempts else 0.0


class BackoffQueue:
    """Pods whose back-off is not over, by its end; pods with errors apart."""

    def __init__(self) -> None:
        self._unschedulable = WaitingHeap()
        self._errors = WaitingHeap()
        self._heaps = self._unschedulable, self._errors

    def push(self, waiting: Waiting, key: SortKey) -> None:
        heap = self._errors if waiting.errors else self._unschedulable
        heap.push((waiting.ready_at, key), waiting)

    def over(self, now: float) -> Waiting | None:
        """Return a pod whose back-off is over."""
        for heap in self._heaps:
            if (head := heap.head()) and head[1].ready_at <= now:
                return head[1]
        return None

    def early(self) -> Waiting | None:
        """Return the pod that may be tried now if no other is ready."""
        head = self._unschedulable.head()
        return head[1] if head else None

    def next_time(self) -> float | None:
        """Return when the next back-off is over."""
        heads = (heap.head() for heap in self._heaps)
        return min((head[1].ready_at for head in heads if head), default=None)
