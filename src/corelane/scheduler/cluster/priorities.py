"""How much of each node pods of lower priority hold: preemption leaves out nodes where it cannot help."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from corelane.scheduler.cluster.columns import sorted_values
from corelane.scheduler.cluster.pods import PodInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Amounts: TypeAlias = NDArray[np.int64]


Free: TypeAlias = Callable[["Amounts"], "Amounts"]
"""Rows to the milliCPU and bytes that are free, two columns."""
NONE: Final = 2**62
"""Above every priority."""
_PODS: Final = 2
_MOST_LEVELS: Final = 16


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """What a pod of one priority could get of each node at best: free, or held by pods of lower priority."""

    rows: "Amounts"
    """Rows of nodes that have pods of lower priority, in ascending order."""
    free: "Amounts"
    """MilliCPU and bytes, two columns; a number above all others where CPUs are amplified."""
    levels: tuple[tuple[int, "Amounts"], ...]
    """Priorities, ascending, and what is free with the pods up to each: the last has all of them."""

    def least_priority(self, pod: PodInfo) -> "Amounts":
        """Return per row a priority that some victim must have at least; `NONE` where no victims suffice."""
        need = np.array([pod.requests.get("cpu", 0), pod.requests.get("memory", 0)])
        least = np.full(len(self.rows), NONE, np.int64)
        for priority, available in reversed(self.levels):
            least[(available >= need).all(axis=1)] = priority
        return least


class Priorities:
    """Amounts held by pods on nodes, by priority and row."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, list[int]]] = {}
        self._pods: dict[str, tuple[int, int, int, int]] = {}
        self._answers: dict[int, Reclaimable] = {}

    def put(self, info: PodInfo, row: int) -> None:
        """Count a pod on a node, and on no other."""
        cpu, memory = info.requests.get("cpu", 0), info.requests.get("memory", 0)
        priority = info.pod.spec.priority
        if self._pods.get(info.uid) == (priority, row, cpu, memory):
            return
        self.drop(info.uid)
        self._pods[info.uid] = (priority, row, cpu, memory)
        self._add(priority, row, cpu, memory, 1)

    def drop(self, uid: str) -> None:
        if held := self._pods.pop(uid, None):
            priority, row, cpu, memory = held
            self._add(priority, row, -cpu, -memory, -1)

    def touched(self) -> None:
        """Note that a node has changed."""
        self._answers.clear()

    def lowest(self) -> int | None:
        """Return the lowest priority of all pods on nodes."""
        return min(self._held, default=None)

    def reclaimable(self, priority: int, free: Free) -> Reclaimable:
        """Return what a pod of this priority could get, by what is free now."""
        answer = self._answers.get(priority)
        if answer is None:
            answer = self._answers[priority] = self._reclaimable(priority, free)
        return answer

    def _reclaimable(self, priority: int, free: Free) -> Reclaimable:
        lower = sorted(one for one in self._held if one < priority)
        held = [(one, *self._amounts(one)) for one in lower]
        every = [rows for _, rows, _ in held]
        rows = sorted_values(np.concatenate(every)) if every else np.zeros(0, np.int64)
        available = free(rows).reshape(-1, 2)
        total, levels = available.copy(), []
        size = max(1, -(-len(lower) // _MOST_LEVELS))
        for start in range(0, len(lower), size):
            for _, some, amounts in held[start : start + size]:
                total[np.searchsorted(rows, some)] += amounts
            levels.append((lower[start], total.copy()))
        return Reclaimable(rows, available, tuple(levels))

    def _amounts(self, priority: int) -> "tuple[Amounts, Amounts]":
        """The rows of pods of a priority, and the milliCPU and bytes that they hold there."""
        held = self._held[priority]
        amounts = np.array(list(held.values()), np.int64)[:, :_PODS]
        return np.fromiter(held, np.int64, len(held)), amounts

    def _add(self, priority: int, row: int, cpu: int, memory: int, pods: int) -> None:
        self._answers.clear()
        rows = self._held.setdefault(priority, {})
        held = rows.setdefault(row, [0, 0, 0])
        held[0] += cpu
        held[1] += memory
        held[_PODS] += pods
        if not held[_PODS]:
            del rows[row]
            if not rows:
                del self._held[priority]
