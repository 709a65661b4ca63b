"""Status of disruption budgets, computed from their pods, and the controller that keeps it.

As upstream's disruption controller (`pkg/controller/disruption`), in a cluster that has pods, but none of the
kinds that scale them: percentages and `maxUnavailable` need the number of pods that a controller requests.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from corelane.embedded.housekeeping.work_queue import WorkQueue
from corelane.kube.client import APIError, KubeClient
from corelane.kube.informer import Informer, Key, ObjectChange
from corelane.kube.meta import Object, condition, rfc3339
from corelane.kube.objects import KINDS, PodDisruptionBudget
from corelane.kube.pod import Pod
from corelane.kube.selectors import LabelSelector
from corelane.workload.selectors import Selector

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
COMPONENT: Final = "controllermanager"
"""Upstream's name of the reporter in events."""
_GATHER_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0
_UNMANAGED: Final = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the "
    "status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account "
    'for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
)
_REMEMBERED: Final = 4096
_LONGEST_MESSAGE: Final = 1024


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
    """Return the pods expected, the healthy ones desired, and names of pods without a controller.

    Raises ScaleError for a pod with a controller.
    """
    least, most = budget.spec.min_available, budget.spec.max_unavailable
    if most is None and isinstance(least, int):
        return len(pods), least, ()
    if most is None and least is None:
        return 0, 0, ()
    # What is expected is what the pods' controllers want; pods without one are not expected.
    names = []
    for pod in pods:
        owner = next((reference for reference in pod.metadata.owner_references if reference.controller), None)
        if owner is None:
            names.append(pod.metadata.name)
            continue
        group = owner.api_version.rpartition("/")[0]
        if (group, owner.kind) in _SCALABLE:
            raise ScaleError(f'found no controllers for pod "{pod.metadata.name}"')
        if (group, owner.kind) in _UNSCALABLE:
            raise ScaleError(f"{_UNSCALABLE[group, owner.kind]} does not implement the scale subresource")
        raise ScaleError(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
    return 0, 0, tuple(names)


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


class DisruptionController:
    """Give it the changes of pods and budgets, and `run` it until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        pods: Informer[Pod],
        budgets: Informer[PodDisruptionBudget],
        *,
        failed: Callable[[str, Exception], None] = lambda _what, _error: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`pods` and `budgets` are the informers' copies, `failed` a report, `clock` gives Unix seconds."""
        self._client = client
        self._pods = pods
        self._budgets = budgets
        self._failed = failed
        self._clock = clock
        self._queue: WorkQueue[Key] = WorkQueue()
        self._stale: WorkQueue[Key] = WorkQueue()
        self._events = _EventRecorder(client, clock)
        self._selectors: dict[Key, tuple[LabelSelector | None, Selector | None]] = {}

    def budget_changed(self, change: ObjectChange[PodDisruptionBudget]) -> None:
        """Count the pods of a new or changed budget."""
        if change.new:
            self._queue.add(change.new.key)
        elif change.old:
            self._selectors.pop(change.old.key, None)

    def pod_changed(self, change: ObjectChange[Pod]) -> None:
        """Count again for the budgets that select the pod, or did; changes in short succession as one."""
        since = stale_since(change.new) if change.new else None
        if change.new and since is not None:
            self._stale.add(change.new.key, max(since + STALE_SECONDS - self._clock(), 0.0))
        budgets = self._budgets.objects
        if not budgets or (change.old and change.new and _counted(change.old) == _counted(change.new)):
            return
        for pod in filter(None, (change.old, change.new)):
            for key, budget in budgets.items():
                if self._selects(budget, pod):
                    self._queue.add(key, _GATHER_SECONDS)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(self._reconcile))
            group.create_task(self._stale.run(self._clear_mark))

    async def _clear_mark(self, key: Key) -> None:
        """Take back the mark of a pod that was to be deleted and was not."""
        pod = self._pods.objects.get(key)
        since = stale_since(pod) if pod else None
        if pod is None or since is None:
            return
        wait = since + STALE_SECONDS - self._clock()
        if wait > 0:
            self._stale.add(key, wait)
            return
        mark = {
            "type": TARGET,
            "status": "False",
            "reason": None,
            "message": None,
            "lastTransitionTime": rfc3339(self._clock()),
        }
        version = {"resourceVersion": pod.metadata.resource_version}
        body = {"metadata": version, "status": {"conditions": [mark]}}
        try:
            await self._client.patch(
                Pod, key[1], body, namespace=key[0], kind_of_patch="strategic", subresource="status"
            )
        except APIError as error:
            if error.code not in (404, 409):
                self._stale.add(key, _RETRY_SECONDS)
                self._failed(f"pod {pod.title}", error)

    async def _reconcile(self, key: Key) -> None:
        budget = self._budgets.objects.get(key)
        if budget is None:
            return
        try:
            await self._update(budget)
        except APIError as error:
            self._queue.add(key, _RETRY_SECONDS)
            if error.code not in (404, 409):
                self._failed(f"PodDisruptionBudget {budget.title}", error)

    async def _update(self, budget: PodDisruptionBudget) -> None:
        now = self._clock()
        try:
            pods = [pod for pod in self._pods.objects.values() if self._selects(budget, pod)]
            counts = measure(budget, pods, now)
        except ScaleError as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            await self._events.record(budget, "Warning", "CalculateExpectedPodCountFailed", message)
            await self._write(budget, failure_patch(budget, str(error), now))
            return
        await self._write(budget, status_patch(budget, counts, now))
        await self._report(budget, pods, counts)
        if counts.recheck_at is not None:
            self._queue.add(budget.key, max(counts.recheck_at - now, 0.0) + _GATHER_SECONDS)

    def _selects(self, budget: PodDisruptionBudget, pod: Pod) -> bool:
        if budget.metadata.namespace != pod.metadata.namespace:
            return False
        wire = budget.spec.selector
        compiled = self._selectors.get(budget.key)
        if compiled is None or compiled[0] is not wire:
            compiled = self._selectors[budget.key] = (wire, _compiled(wire))
        return compiled[1] is not None and compiled[1].matches(pod.metadata.labels)

    async def _write(self, budget: PodDisruptionBudget, status: dict[str, Any] | None) -> None:
        """Write a status, if the budget is still as it was when its pods were counted. Raises APIError."""
        if status is None:
            return
        meta = budget.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": status}
        await self._client.patch(
            PodDisruptionBudget,
            meta.name,
            body,
            namespace=meta.namespace,
            kind_of_patch="strategic",
            subresource="status",
        )

    async def _report(self, budget: PodDisruptionBudget, pods: list[Pod], counts: Disruptions) -> None:
        if not pods:
            await self._events.record(budget, "Normal", "NoPods", "No matching pods found")
        if counts.unmanaged:
            text = _UNMANAGED.format(str(_compiled(budget.spec.selector) or ""))
            await self._events.record(budget, "Warning", "UnmanagedPods", text)
        for pod in counts.not_deleted:
            text = f"Pod was expected by PDB {budget.title} to be deleted but it wasn't"
            await self._events.record(pod, "Warning", "NotDeleted", text)


def _counted(pod: Pod) -> tuple[object, ...]:
    ready = condition(pod.status.conditions, "Ready")
    meta = pod.metadata
    return (
        meta.uid,
        meta.labels,
        meta.owner_references,
        bool(meta.deletion_timestamp),
        ready and ready.status,
    )


def _compiled(selector: LabelSelector | None) -> Selector | None:
    """A selector that cannot be read selects no pod, as upstream."""
    try:
        return selector.compiled() if selector is not None else None
    except ValueError:
        return None


class _EventRecorder:
    """Writes events; what was reported last of an object is not reported again."""

    def __init__(self, client: KubeClient, clock: Callable[[], float]) -> None:
        """`clock` gives Unix seconds."""
        self._client = client
        self._clock = clock
        self._latest: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def record(self, obj: Object, kind: str, reason: str, message: str) -> None:
        """Write an event; `kind` is Normal or Warning. A failed request is dropped: events are no state."""
        key = (obj.metadata.uid, reason)
        if self._latest.get(key) == message:
            return
        self._latest[key] = message
        self._latest.move_to_end(key)
        while len(self._latest) > _REMEMBERED:
            self._latest.popitem(last=False)
        meta, now = obj.metadata, rfc3339(self._clock())
        about = {"apiVersion": obj.api.api_version, "kind": obj.api.kind}
        about |= {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta.name}.{secrets.token_hex(8)}",
                "namespace": meta.namespace or "default",
            },
            "involvedObject": {name: text for name, text in about.items() if text},
            "type": kind,
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._client.create(event)
        except APIError:
            self._latest.pop(key, None)
