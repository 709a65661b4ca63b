"""Writes conditions into pods' status, and Kubernetes events about pods.

One task writes from a bounded queue: with a slow API server new ones are dropped, and scheduling never waits.
Repeated events increase their count, as client-go's recorder does.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2s
from typing import Any, Final, NoReturn

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.objects import Event
from corelane.kube.pod import Pod
from corelane.node.explain.objective import remedies
from corelane.scheduler.instructions import NearestNode, RecordPodEvent, SetCondition

_MOST_WAITING: Final = 1000
_MOST_COUNTS: Final = 4096
_LONGEST_MESSAGE: Final = 1024
_MOST_WITH_REMEDIES: Final = 20
"""With this many waiting writes, events do not name what would help."""


def now() -> datetime:
    return datetime.now(UTC)


class PodStatusWriter:
    """Queues conditions and events, and writes them in the background."""

    def __init__(
        self,
        client: KubeClient,
        component: str,
        *,
        dropped: Callable[[str], None],
        failed: Callable[[str, APIError], None],
        clock: Callable[[], datetime] = now,
    ) -> None:
        """`dropped` and `failed` get the title of a write that was not made."""
        self._client = client
        self._component = component
        self._dropped = dropped
        self._failed = failed
        self._clock = clock
        self._queue: asyncio.Queue[RecordPodEvent | SetCondition] = asyncio.Queue(_MOST_WAITING)
        self._counts: OrderedDict[str, int] = OrderedDict()

    def put(self, note: RecordPodEvent | SetCondition) -> None:
        try:
            self._queue.put_nowait(note)
        except asyncio.QueueFull:
            self._dropped(_title(note))

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        while True:
            note = await self._queue.get()
            try:
                await self._write(note)
            except APIError as error:
                self._failed(_title(note), error)

    async def _write(self, note: RecordPodEvent | SetCondition) -> None:
        if isinstance(note, SetCondition):
            await self._set_condition(note)
        else:
            await self._record(note)

    async def _set_condition(self, note: SetCondition) -> None:
        pod = note.pod.metadata
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": note.reason,
            "message": note.message,
            "lastProbeTime": None,
            "lastTransitionTime": _timestamp(self._clock()),
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        await self._client.patch(
            Pod, pod.name, body, namespace=pod.namespace, kind_of_patch="strategic", subresource="status"
        )

    async def _record(self, note: RecordPodEvent) -> None:
        if note.nearest is not None and self._queue.qsize() < _MOST_WITH_REMEDIES:
            note = await asyncio.to_thread(_with_remedies, note, note.nearest)
        name = _event_name(note)
        count = self._counts.pop(name, 0)
        self._counts[name] = (
            await self._count_up(note, name, count) if count else await self._create(note, name)
        )
        while len(self._counts) > _MOST_COUNTS:
            self._counts.popitem(last=False)

    async def _create(self, note: RecordPodEvent, name: str) -> int:
        """The event's count: above 1 if it was recorded before a restart."""
        try:
            await self._client.create(self._event(note, name))
        except APIError as error:
            if error.code != 409:
                raise
            event = await self._client.get(Event, name, note.pod.metadata.namespace)
            return await self._count_up(note, name, event.count)
        return 1

    async def _count_up(self, note: RecordPodEvent, name: str, count: int) -> int:
        body = {"count": count + 1, "lastTimestamp": _timestamp(self._clock())}
        try:
            await self._client.patch(Event, name, body, namespace=note.pod.metadata.namespace)
        except APIError as error:
            if error.code != 404:
                raise
            # The event has expired.
            return await self._create(note, name)
        return count + 1

    def _event(self, note: RecordPodEvent, name: str) -> dict[str, Any]:
        pod, time = note.pod.metadata, _timestamp(self._clock())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": note.type,
            "reason": note.reason,
            "message": note.message[:_LONGEST_MESSAGE],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }


def _with_remedies(note: RecordPodEvent, nearest: NearestNode) -> RecordPodEvent:
    """The event with what would help on the nearest node."""
    text = remedies(nearest.state, nearest.request)
    return replace(note, message=f"{note.message} Nearest is {nearest.name}: {text}.") if text else note


def _event_name(note: RecordPodEvent) -> str:
    """Equal for equal events about a pod, so that a restart does not repeat them."""
    text = "\0".join((note.pod.metadata.uid, note.type, note.reason, note.message))
    return f"{note.pod.metadata.name[:230]}.{blake2s(text.encode(), digest_size=8).hexdigest()}"


def _title(note: RecordPodEvent | SetCondition) -> str:
    what = "condition" if isinstance(note, SetCondition) else "event"
    return f"{what} {note.reason} of pod {note.pod.title}"


def _timestamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
