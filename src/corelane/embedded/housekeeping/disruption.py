"""The status of a disruption budget, from its pods. Pure.

As upstream's disruption controller (`pkg/controller/disruption`), in a cluster that has pods, but none of the
kinds that scale them: percentages and `maxUnavailable` need the number of pods that a controller wants.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from corelane.kube.meta import condition, rfc3339
from corelane.kube.objects import KINDS, PodDisruptionBudget
from corelane.kube.pod import Pod

DELETION_SECONDS: Final = 120.0
"""Time from an eviction to the pod's deletion, after which the eviction counts as failed."""

TARGET: Final = "DisruptionTarget"
"""Condition of a pod that is about to be deleted: evicted, or preempted."""
STALE_SECONDS: Final = 120.0
"""Time after which the condition of a pod that was not deleted becomes False."""
_BY_KUBELET: Final = "TerminationByKubelet"
_ALLOWED: Final = "DisruptionAllowed"
_SCALABLE: Final = {
    ("", "ReplicationController"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("extensions", "ReplicaSet"),
}
_UNSCALABLE: Final = {
    ("apps", "DaemonSet"): "daemonsets.apps",
    ("batch", "Job"): "jobs.batch",
    ("batch", "CronJob"): "cronjobs.batch",
    **{
        (kind.api.group, kind.api.kind): ".".join(filter(None, (kind.api.plural, kind.api.group)))
        for kind in KINDS
    },
}


class ScaleError(Exception):
    """The number of pods expected is unknown; the message is upstream's."""


@dataclass(frozen=True, slots=True)
class Disruptions:
    """What a budget's status says; `recheck_at` is when an eviction counts as failed, in Unix seconds."""

    expected: int
    desired: int
    healthy: int
    disrupted: Mapping[str, str]
    recheck_at: float | None
    unmanaged: tuple[str, ...]
    """Names of pods without a controller, where the budget needs one."""
    not_deleted: tuple[Pod, ...]
    """Pods whose eviction was allowed, but which were not deleted."""

    @property
    def allowed(self) -> int:
        """Pods that may be evicted now; none while no pod is expected."""
        return max(self.healthy - self.desired, 0) if self.expected > 0 else 0


def measure(budget: PodDisruptionBudget, pods: Collection[Pod], at: float) -> Disruptions:
    """Count a budget's pods at a time in Unix seconds. Raises ScaleError."""
    expected, desired, unmanaged = _expected(budget, pods)
    disrupted, overdue, recheck = _disrupted(budget, pods, at)
    healthy = sum(_is_healthy(pod) and pod.metadata.name not in disrupted for pod in pods)
    return Disruptions(expected, desired, healthy, disrupted, recheck, unmanaged, overdue)


def _is_healthy(pod: Pod) -> bool:
    ready = condition(pod.status.conditions, "Ready")
    return not pod.metadata.deletion_timestamp and ready is not None and ready.status == "True"


def _expected(budget: PodDisruptionBudget, pods: Collection[Pod]) -> tuple[int, int, tuple[str, ...]]:
    """Return the pods expected, the healthy ones desired, and names of pods without a controller."""
    least, most = budget.spec.min_available, budget.spec.max_unavailable
    if most is None and isinstance(least, int):
        return len(pods), least, ()
    if most is None and least is None:
        return 0, 0, ()
    # What is expected is what the pods' controllers want; pods without one are not expected.
    return 0, 0, _unmanaged(pods)


def _unmanaged(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return the pods without a controller. Raises ScaleError for one with a controller."""
    names = []
    for pod in pods:
        owner = next((one for one in pod.metadata.owner_references if one.controller), None)
        if owner is None:
            names.append(pod.metadata.name)
            continue
        group = owner.api_version.rpartition("/")[0]
        if (group, owner.kind) in _SCALABLE:
            raise ScaleError(f'found no controllers for pod "{pod.metadata.name}"')
        if (group, owner.kind) in _UNSCALABLE:
            raise ScaleError(f"{_UNSCALABLE[group, owner.kind]} does not implement the scale subresource")
        raise ScaleError(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
    return tuple(names)


def _disrupted(
    budget: PodDisruptionBudget, pods: Iterable[Pod], at: float
) -> tuple[dict[str, str], tuple[Pod, ...], float | None]:
    """Return evictions under way, pods that should be deleted by now, and when to look again."""
    under_way, overdue, recheck = {}, [], None
    for pod in pods:
        since = budget.status.disrupted_pods.get(pod.metadata.name)
        if since is None or pod.metadata.deletion_timestamp:
            continue
        until = _seconds(since) + DELETION_SECONDS
        if until < at:
            overdue.append(pod)
        else:
            under_way[pod.metadata.name] = since
            recheck = until if recheck is None else min(recheck, until)
    return under_way, tuple(overdue), recheck


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def stale_since(pod: Pod) -> float | None:
    """Return when a pod was marked as disrupted that was not deleted, in Unix seconds; None for others."""
    marked = condition(pod.status.conditions, TARGET)
    if marked is None or marked.status != "True" or marked.reason == _BY_KUBELET:
        return None
    return None if pod.metadata.deletion_timestamp or pod.ended else _seconds(marked.last_transition_time)


# What is written.


def status_patch(budget: PodDisruptionBudget, counts: Disruptions, at: float) -> dict[str, Any] | None:
    """Return a strategic merge patch of the status; None where it says the same already."""
    status, generation = budget.status, budget.metadata.generation
    reason = "SufficientPods" if counts.allowed else "InsufficientPods"
    current = condition(status.conditions, _ALLOWED)
    same = (
        (status.current_healthy, status.desired_healthy, status.expected_pods)
        == (counts.healthy, counts.desired, counts.expected)
        and (status.disruptions_allowed, status.observed_generation) == (counts.allowed, generation)
        and dict(status.disrupted_pods) == dict(counts.disrupted)
        and current is not None
        and (current.reason, current.status) == (reason, str(bool(counts.allowed)))
    )
    if same:
        return None
    return {
        "observedGeneration": generation,
        "disruptedPods": {
            **dict.fromkeys(status.disrupted_pods.keys() - counts.disrupted.keys()),
            **counts.disrupted,
        },
        "disruptionsAllowed": counts.allowed,
        "currentHealthy": counts.healthy,
        "desiredHealthy": counts.desired,
        "expectedPods": counts.expected,
        "conditions": [_condition(budget, bool(counts.allowed), reason, "", generation, at)],
    }


def failure_patch(budget: PodDisruptionBudget, message: str, at: float) -> dict[str, Any] | None:
    """Return a patch that allows no disruption, and says why the pods cannot be counted; None as above."""
    current = condition(budget.status.conditions, _ALLOWED)
    failed = current is not None and (current.reason, current.message) == ("SyncFailed", message)
    if failed and not budget.status.disruptions_allowed:
        return None
    observed = budget.status.observed_generation
    return {
        "disruptionsAllowed": 0,
        "conditions": [_condition(budget, False, "SyncFailed", message, observed, at)],
    }


def _condition(
    budget: PodDisruptionBudget, allowed: bool, reason: str, message: str, generation: int, at: float
) -> dict[str, Any]:
    """Return the condition; its time is that of the last change from or to allowed."""
    current = condition(budget.status.conditions, _ALLOWED)
    unchanged = current is not None and current.status == str(allowed)
    since = current.last_transition_time if current is not None and unchanged else rfc3339(at)
    return {
        "type": _ALLOWED,
        "status": str(allowed),
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }
