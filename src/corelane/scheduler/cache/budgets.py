"""PodDisruptionBudgets, as preemption respects them: pods whose eviction violates one are evicted last."""

from collections.abc import Iterable
from dataclasses import dataclass

from corelane.kube.disruption import PodDisruptionBudget
from corelane.scheduler.cache.pods import PodInfo
from corelane.workload.selectors import Selector


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
