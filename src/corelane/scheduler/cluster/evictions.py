"""What preemption goes by: nominated nodes, budgets, and the amounts that pods of lower priority hold."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from corelane.kube.objects import PodDisruptionBudget
from corelane.scheduler.cluster.columns import Integers, sorted_values
from corelane.scheduler.cluster.pods import PodInfo
from corelane.workload.selectors import Selector

Free: TypeAlias = Callable[[Integers], Integers]
"""Rows to the milliCPU and bytes that are free, two columns."""
NONE: Final = 2**62
"""Above every priority."""
_PODS: Final = 2
_MOST_LEVELS: Final = 16


class Nominations:
    """Pending pods by their nominated node. Upstream: `pkg/scheduler/backend/queue/nominator.go`."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._pods: dict[str, dict[str, PodInfo]] = {}
        self._victims: dict[str, frozenset[str]] = {}
        self.evicting: set[str] = set()
        """UIDs of pods whose eviction is ordered, and neither seen nor failed."""
        self.label_keys: frozenset[str] = frozenset()
        """Label keys that affinity terms of nominated pods look at."""

    def __len__(self) -> int:
        return len(self._nodes)

    def of(self, uid: str) -> str:
        """Return the name of the pod's nominated node, "" without one."""
        return self._nodes.get(uid, "")

    def on(self, node: str) -> Iterator[PodInfo]:
        """Yield the pods for which the node is nominated."""
        return iter(self._pods.get(node, {}).values())

    def matter_to(self, info: PodInfo) -> bool:
        """Return whether another pod of equal or higher priority has a nominated node."""
        priority = info.pod.spec.priority
        pods = (pod for pods in self._pods.values() for pod in pods.values())
        return any(pod.pod.spec.priority >= priority and pod.uid != info.uid for pod in pods)

    def get(self, uid: str) -> PodInfo | None:
        node = self._nodes.get(uid)
        return self._pods[node][uid] if node is not None else None

    def victims(self, uid: str) -> frozenset[str]:
        """Return the UIDs of the pods that were evicted for a pod, as far as this process did it."""
        return self._victims.get(uid, frozenset())

    def waiting_for(self, victim: str) -> Iterator[str]:
        """Yield the UIDs of the pods for which that pod is evicted."""
        return (uid for uid, victims in self._victims.items() if victim in victims)

    def put(self, info: PodInfo, node: str, victims: Iterable[str] = ()) -> None:
        """Nominate a node, and no other any more."""
        self.drop(info.uid)
        self._victims[info.uid] = frozenset(victims)
        self._nodes[info.uid] = node
        self._pods.setdefault(node, {})[info.uid] = info
        self.label_keys |= info.facts.affinities.keys

    def refresh(self, info: PodInfo) -> None:
        """Replace a nominated pod, if it is one."""
        if node := self._nodes.get(info.uid):
            self._pods[node][info.uid] = info

    def drop(self, uid: str) -> str:
        """Forget a pod's nomination, and return the node's name, "" without one."""
        node = self._nodes.pop(uid, "")
        if node:
            self._victims.pop(uid, None)
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]
        return node


@dataclass(frozen=True, slots=True)
class _Budget:
    namespace: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str]
    """Names of pods whose eviction the API server has counted already."""


class Budgets:
    """All budgets with a selector that can be read and is not empty: others match no pod, as upstream."""

    def __init__(self) -> None:
        self._budgets: dict[tuple[str, str], _Budget] = {}

    def __len__(self) -> int:
        return len(self._budgets)

    def put(self, key: tuple[str, str], budget: PodDisruptionBudget | None) -> None:
        """Add or replace a budget; None removes it."""
        self._budgets.pop(key, None)
        selector = budget.spec.selector if budget else None
        if budget is None or selector is None or not (selector.match_labels or selector.match_expressions):
            return
        try:
            compiled = selector.compiled()
        except ValueError:
            return
        status = budget.status
        self._budgets[key] = _Budget(
            budget.metadata.namespace,
            compiled,
            status.disruptions_allowed,
            frozenset(status.disrupted_pods),
        )

    def split(self, pods: Iterable[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Return the pods whose eviction violates a budget when they are evicted in this order, and the rest.

        Upstream: `filterPodsWithPDBViolation` of `defaultpreemption`.
        """
        left = {key: budget.allowed for key, budget in self._budgets.items()}
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            (violating if self._violates(pod, left) else others).append(pod)
        return violating, others

    def _violates(self, info: PodInfo, left: dict[tuple[str, str], int]) -> bool:
        meta, violated = info.pod.metadata, False
        if not meta.labels:
            return False
        for key, budget in self._budgets.items():
            if budget.namespace != meta.namespace or meta.name in budget.disrupted:
                continue
            if budget.selector.matches(meta.labels):
                left[key] -= 1
                violated |= left[key] < 0
        return violated


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """What a pod of one priority could get of each node at best: free, or held by pods of lower priority."""

    rows: Integers
    """Rows of nodes that have pods of lower priority, in ascending order."""
    free: Integers
    """MilliCPU and bytes, two columns; a number above all others where CPUs are amplified."""
    levels: tuple[tuple[int, Integers], ...]
    """Priorities, ascending, and what is free with the pods up to each: the last has all of them."""

    def least_priority(self, pod: PodInfo) -> Integers:
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

    def _amounts(self, priority: int) -> tuple[Integers, Integers]:
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
