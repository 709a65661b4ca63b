"""Keeps the status of disruption budgets; see `disruption` for what it says."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from corelane.embedded.housekeeping import disruption
from corelane.embedded.housekeeping.work_queue import WorkQueue
from corelane.kube.client import APIError, KubeClient
from corelane.kube.informer import Key, ObjectChange
from corelane.kube.meta import Object, condition, rfc3339
from corelane.kube.objects import PodDisruptionBudget
from corelane.kube.pod import Pod
from corelane.kube.selectors import LabelSelector
from corelane.workload.selectors import Selector

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


class DisruptionController:
    """Give it the changes of pods and budgets, and `run` it until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        pods: Callable[[], Mapping[Key, Pod]],
        budgets: Callable[[], Mapping[Key, PodDisruptionBudget]],
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
        since = disruption.stale_since(change.new) if change.new else None
        if change.new and since is not None:
            self._stale.add(change.new.key, max(since + disruption.STALE_SECONDS - self._clock(), 0.0))
        budgets = self._budgets()
        if not budgets or _counts_alike(change):
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
        pod = self._pods().get(key)
        since = disruption.stale_since(pod) if pod else None
        if pod is None or since is None:
            return
        wait = since + disruption.STALE_SECONDS - self._clock()
        if wait > 0:
            self._stale.add(key, wait)
            return
        mark = {
            "type": disruption.TARGET,
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
        budget = self._budgets().get(key)
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
            pods = [pod for pod in self._pods().values() if self._selects(budget, pod)]
            counts = disruption.measure(budget, pods, now)
        except disruption.ScaleError as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            await self._events.record(budget, "Warning", "CalculateExpectedPodCountFailed", message)
            await self._write(budget, disruption.failure_patch(budget, str(error), now))
            return
        await self._write(budget, disruption.status_patch(budget, counts, now))
        await self._report(budget, pods, counts)
        if counts.recheck_at is not None:
            self._queue.add(budget.key, max(counts.recheck_at - now, 0.0) + _GATHER_SECONDS)

    def _selects(self, budget: PodDisruptionBudget, pod: Pod) -> bool:
        if budget.metadata.namespace != pod.metadata.namespace:
            return False
        wire = budget.spec.selector
        known = self._selectors.get(budget.key)
        if known is None or known[0] is not wire:
            known = self._selectors[budget.key] = (wire, _compiled(wire))
        return known[1] is not None and known[1].matches(pod.metadata.labels)

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

    async def _report(
        self, budget: PodDisruptionBudget, pods: list[Pod], counts: disruption.Disruptions
    ) -> None:
        if not pods:
            await self._events.record(budget, "Normal", "NoPods", "No matching pods found")
        if counts.unmanaged:
            text = _UNMANAGED.format(_selector_text(budget))
            await self._events.record(budget, "Warning", "UnmanagedPods", text)
        for pod in counts.not_deleted:
            text = f"Pod was expected by PDB {budget.title} to be deleted but it wasn't"
            await self._events.record(pod, "Warning", "NotDeleted", text)


def _counts_alike(change: ObjectChange[Pod]) -> bool:
    """Whether nothing changed that a budget counts."""
    old, new = change.old, change.new
    return old is not None and new is not None and _counted(old) == _counted(new)


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


def _selector_text(budget: PodDisruptionBudget) -> str:
    return str(_compiled(budget.spec.selector) or "")


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
        try:
            await self._client.create(self._event(obj, kind, reason, message[:_LONGEST_MESSAGE]))
        except APIError:
            self._latest.pop(key, None)

    def _event(self, obj: Object, kind: str, reason: str, message: str) -> dict[str, Any]:
        meta, now = obj.metadata, rfc3339(self._clock())
        about = {
            "apiVersion": obj.api.api_version,
            "kind": obj.api.kind,
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta.name}.{secrets.token_hex(8)}",
                "namespace": meta.namespace or "default",
            },
            "involvedObject": {name: text for name, text in about.items() if text},
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
