"""Evicts the victims of preemption: condition DisruptionTarget, then deletion, by the pod's UID.

As kube-scheduler (`pkg/scheduler/framework/preemption/executor.go`): the condition tells controllers that the
pod did not fail by itself; a pod that is gone meanwhile is evicted.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final, NoReturn

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.pod import Pod
from corelane.scheduler.instructions import Evict

_WORKERS: Final = 4
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class Evictor:
    """Carries out Evict instructions with a few workers, in their order."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        *,
        evicted: Callable[[Evict], None],
        failed: Callable[[Evict, APIError], None],
        may_evict: Callable[[], bool],
        clock: Callable[[], datetime],
    ) -> None:
        """`name` is the scheduler's; `may_evict` is asked right before each eviction."""
        self._client = client
        self._name = name
        self._evicted = evicted
        self._failed = failed
        self._may_evict = may_evict
        self._clock = clock
        self._queue: asyncio.Queue[Evict] = asyncio.Queue()

    def put(self, evict: Evict) -> None:
        self._queue.put_nowait(evict)

    async def run(self) -> NoReturn:
        """Evict until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work())
        raise AssertionError("workers do not end")

    async def _work(self) -> NoReturn:
        while True:
            evict = await self._queue.get()
            if not self._may_evict():
                continue
            try:
                await self._evict(evict)
            except APIError as error:
                self._failed(evict, error)
            else:
                self._evicted(evict)

    async def _evict(self, evict: Evict) -> None:
        """Raises APIError, but not for a pod that is gone, or another one of that name."""
        meta = evict.victim.metadata
        try:
            if not _is_target(evict.victim):
                await self._set_condition(evict)
            await self._client.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid)
        except APIError as error:
            if error.code not in {_NOT_FOUND, _CONFLICT} or not error.is_status:
                raise

    async def _set_condition(self, evict: Evict) -> None:
        meta = evict.victim.metadata
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{self._name}: preempting to accommodate a higher priority pod",
            "lastProbeTime": None,
            "lastTransitionTime": self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": meta.uid}, "status": {"conditions": [target]}}
        await self._client.patch(
            Pod, meta.name, body, namespace=meta.namespace, kind_of_patch="strategic", subresource="status"
        )


def _is_target(pod: Pod) -> bool:
    """Whether the pod has the condition already."""
    found = condition(pod.status.conditions, "DisruptionTarget")
    return found is not None and (found.status, found.reason) == ("True", "PreemptionByScheduler")
