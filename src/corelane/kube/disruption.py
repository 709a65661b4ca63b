"""PodDisruptionBudgets: how many pods may be evicted at a time."""

# ruff: noqa: D101 - the API reference documents its own structs

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from corelane.kube.meta import API, Condition, Object, Wire
from corelane.kube.selectors import LabelSelector


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """Numbers are counts or percentages (`"30%"`); at most one of both is present."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"
    """IfHealthyBudget or AlwaysAllow."""


class PodDisruptionBudgetStatus(Wire, frozen=True):
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = field(default_factory=dict)
    """Pod to the time at which its eviction was permitted, until its deletion is seen."""
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Object, frozen=True):
    api: ClassVar[API] = API("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True)
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
