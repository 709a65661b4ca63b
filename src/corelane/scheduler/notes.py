"""What the scheduler writes about pods: conditions in their status, and Kubernetes events.

A bounded queue and one writer: when the API server is slow the latest are dropped, and scheduling never
waits. The same event said again counts up, as client-go's recorder does.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, Final, NoReturn

from corelane.kube.apierrors import APIError
from corelane.kube.objects import Event
from corelane.kube.pod import Pod
from corelane.node.explain.objective import remedies
from corelane.scheduler.messages import Announce, SetCondition, Unfit
from corelane.scheduler.reporter import SchedulerReporter

if TYPE_CHECKING:
    from corelane.kube.client import KubeClient

__all__ = ["PodStatusWriter", "now"]

_WAITING: Final = 1000
_REMEMBERED: Final = 4096
_LONGEST_MESSAGE: Final = 1024
_FEW: Final = 20
"""With so many notes waiting, none goes into what would help."""


def now() -> datetime:
    return datetime.now(UTC)


class PodStatusWriter:
    """Takes notes at once, writes them when it can."""

    def __init__(
        self,
        client: "KubeClient",
        component: str,
        reporter: SchedulerReporter,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self._client = client
        self._component = component
        self._reporter = reporter
        self._clock = clock
        self._queue: asyncio.Queue[Announce | SetCondition] = asyncio.Queue(_WAITING)
        self._said: OrderedDict[str, int] = OrderedDict()

    def take(self, note: Announce | SetCondition) -> None:
        try:
            self._queue.put_nowait(note)
        except asyncio.QueueFull:
            self._reporter.dropped(_title(note))

    async def run(self) -> NoReturn:
        """Write what was taken, until cancelled."""
        while True:
            note = await self._queue.get()
            try:
                await self._write(note)
            except APIError as error:
                self._reporter.write_failed(_title(note), error)

    async def _write(self, note: Announce | SetCondition) -> None:
        if isinstance(note, SetCondition):
            await self._set_condition(note)
        else:
            await self._announce(note)

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

    async def _announce(self, note: Announce) -> None:
        if note.nearest is not None and self._queue.qsize() < _FEW:
            note = await asyncio.to_thread(_with_help, note, note.nearest)
        name = _event_name(note)
        count = self._said.pop(name, 0)
        self._said[name] = (
            await self._count_up(note, name, count) if count else await self._create(note, name)
        )
        while len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)

    async def _create(self, note: Announce, name: str) -> int:
        """The event's count: more than 1 if it was there, said before a restart."""
        try:
            await self._client.create(self._event(note, name))
        except APIError as error:
            if error.code != 409:
                raise
            known = await self._client.get(Event, name, note.pod.metadata.namespace)
            return await self._count_up(note, name, known.count)
        return 1

    async def _count_up(self, note: Announce, name: str, count: int) -> int:
        body = {"count": count + 1, "lastTimestamp": _timestamp(self._clock())}
        try:
            await self._client.patch(Event, name, body, namespace=note.pod.metadata.namespace)
        except APIError as error:
            if error.code != 404:
                raise
            # It has expired meanwhile.
            return await self._create(note, name)
        return count + 1

    def _event(self, note: Announce, name: str) -> dict[str, Any]:
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


def _with_help(note: Announce, nearest: Unfit) -> Announce:
    """The event with what would help on the nearest node."""
    found = remedies(nearest.state, nearest.request)
    return replace(note, message=f"{note.message} Nearest is {nearest.node}: {found}.") if found else note


def _event_name(note: Announce) -> str:
    """The same for the same words about the same pod, so that a restart does not say it all again."""
    text = "\0".join((note.pod.metadata.uid, note.type, note.reason, note.message))
    return f"{note.pod.metadata.name[:230]}.{blake2s(text.encode(), digest_size=8).hexdigest()}"


def _title(note: Announce | SetCondition) -> str:
    what = "condition" if isinstance(note, SetCondition) else "event"
    return f"{what} {note.reason} of pod {note.pod.title}"


def _timestamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
