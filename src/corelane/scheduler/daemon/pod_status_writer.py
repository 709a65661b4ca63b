"""Writes conditions into pods' status and Kubernetes events about pods, and evicts victims of preemption.

A few tasks write what waits: of conditions the newest of each pod, of events the oldest; with a slow API
server events beyond a number are dropped, and scheduling never waits. Bindings come first: while some wait to
be sent, a write waits for at most a second. Repeated events increase their count, as client-go's recorder
does.

PodScheduled=False must not be written after the pod was bound. A condition that waits is dropped when its pod
is being bound; one that is under way carries the pod's resourceVersion, so that a server which has bound the
pod since refuses it (409). It is then written again only if the pod is read without a node.
"""

import asyncio
from collections import OrderedDict, deque
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2s
from typing import Any, Final, NoReturn, Protocol, TypeAlias

from msgspec.structs import replace

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Event
from corelane.kube.pod import Pod
from corelane.node.explain.pod_explanation import remedies
from corelane.scheduler.binding.binder import Binder, now, run_workers
from corelane.scheduler.binding.claims import preempted
from corelane.scheduler.events import EventSink, EvictFailed
from corelane.scheduler.instructions import (
    Evict,
    NearestNode,
    RecordNodeEvent,
    RecordPodEvent,
    SetCondition,
    SetNominatedNode,
)

StatusChange: TypeAlias = SetCondition | SetNominatedNode
Note: TypeAlias = RecordPodEvent | RecordNodeEvent | StatusChange

_MOST_WAITING: Final = 20_000
_WRITERS: Final = 4
_LONGEST_YIELD: Final = 1.0
_TRIES: Final = 3
_MOST_COUNTS: Final = 4096
_LONGEST_MESSAGE: Final = 1024
_MOST_WITH_REMEDIES: Final = 20
"""With this many waiting writes, events do not name what would help."""


class WriteReporter:
    """Hooks for logs and metrics, empty by default."""

    def dropped(self, what: str) -> None:
        """A condition or event is not written, because too many are waiting."""

    def write_failed(self, what: str, error: APIError) -> None:
        """A condition or event could not be written; scheduling goes on."""

    def preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        """A pod was deleted to make way for another one on the node."""

    def evict_failed(self, victim: Pod, error: APIError) -> None:
        """A pod could not be evicted; what it was to make way for is tried again."""


class Leadership(Protocol):
    """Whether this replica may act as the leader now."""

    @property
    def leading(self) -> bool: ...


class EventRecorder(Protocol):
    """Creates events in place of requests."""

    async def record_event(self, body: dict[str, Any]) -> None:
        """Create an event. Raises APIError."""


class PodStatusWriter:
    """Queues conditions and events, and writes them in the background."""

    def __init__(
        self,
        client: KubeClient,
        component: str,
        reporter: WriteReporter,
        binder: Binder,
        recorder: EventRecorder | None = None,
    ) -> None:
        """The bindings of `binder` go first. Without a `recorder`, the client creates events."""
        self._client = client
        self._component = component
        self._reporter = reporter
        self._binder = binder
        self._recorder = recorder
        self._events: deque[RecordPodEvent | RecordNodeEvent] = deque()
        self._conditions: dict[str, StatusChange] = {}
        """By UID, the oldest first."""
        self._work = asyncio.Semaphore(0)
        self._counts: OrderedDict[str, int] = OrderedDict()

    def put(self, note: Note) -> None:
        if isinstance(note, StatusChange):
            replaced = self._conditions.pop(note.pod.metadata.uid, None)
            self._conditions[note.pod.metadata.uid] = note
            if replaced is not None:
                return
        elif len(self._events) >= _MOST_WAITING:
            self._reporter.dropped(_title(note))
            return
        else:
            self._events.append(note)
        self._work.release()

    def being_bound(self, uid: str) -> None:
        """Drop the condition of a pod that waits to be written, if there is one."""
        self._conditions.pop(uid, None)

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        await run_workers(_WRITERS, self._write_notes)

    async def _write_notes(self) -> NoReturn:
        while True:
            await self._work.acquire()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_YIELD):
                    await self._binder.wait_sent()
            note = self._next()
            if note is None:
                continue
            try:
                await self._write_patiently(note)
            except APIError as error:
                self._reporter.write_failed(_title(note), error)

    async def _write_patiently(self, note: Note) -> None:
        """Write it, a second time if the server asks to wait."""
        try:
            await self._write(note)
        except APIError as error:
            if not error.retry_after:
                raise
            await asyncio.sleep(error.retry_after)
            await self._write(note)

    def _next(self) -> Note | None:
        if self._conditions:
            return self._conditions.pop(next(iter(self._conditions)))
        return self._events.popleft() if self._events else None

    async def _write(self, note: Note) -> None:
        if isinstance(note, StatusChange):
            await self._change_status(note)
        else:
            await self._record(note)

    async def _change_status(self, note: StatusChange) -> None:
        """Write it unless the pod has a node, is being deleted, or is not the same any more."""
        pod = note.pod
        if isinstance(note, SetNominatedNode):
            status: dict[str, Any] = {"nominatedNodeName": note.node}
        else:
            waits = _condition("PodScheduled", "False", note.reason, note.message)
            status = {"conditions": [waits], "nominatedNodeName": note.nominated or None}
        for last in range(_TRIES - 1, -1, -1):
            try:
                await _patch_status(self._client, note.pod, status, pod.metadata.resource_version)
            except APIError as error:
                if error.code == 404 and error.is_status:
                    return
                if error.code != 409 or not last:
                    raise
            else:
                return
            pod = await self._client.get(Pod, pod.metadata.name, pod.metadata.namespace)
            if pod.metadata.uid != note.pod.metadata.uid or pod.spec.node_name or pod.ended:
                return

    async def _record(self, note: RecordPodEvent | RecordNodeEvent) -> None:
        if (
            isinstance(note, RecordPodEvent)
            and note.nearest is not None
            and len(self._events) < _MOST_WITH_REMEDIES
        ):
            note = await asyncio.to_thread(_with_remedies, note, note.nearest)
        body = self._event(note)
        of = body["involvedObject"]
        text = "\0".join((of["uid"], body["type"], body["reason"], body["message"]))
        name = f"{of['name'][:230]}.{blake2s(text.encode(), digest_size=8).hexdigest()}"
        body["metadata"]["name"] = name
        count = self._counts.pop(name, 0)
        self._counts[name] = await (self._count_up(body, count) if count else self._create(body))
        while len(self._counts) > _MOST_COUNTS:
            self._counts.popitem(last=False)

    async def _create(self, body: dict[str, Any]) -> int:
        """The event's count: above 1 if it was recorded before a restart."""
        try:
            await (self._recorder.record_event(body) if self._recorder else self._client.create(body))
        except APIError as error:
            if error.code != 409:
                raise
            of = body["metadata"]
            event = await self._client.get(Event, of["name"], of["namespace"])
            return await self._count_up(body, event.count)
        return 1

    async def _count_up(self, body: dict[str, Any], count: int) -> int:
        of, change = body["metadata"], {"count": count + 1, "lastTimestamp": _timestamp()}
        try:
            await self._client.patch(Event, of["name"], change, namespace=of["namespace"])
        except APIError as error:
            if error.code != 404:
                raise
            # The event has expired.
            return await self._create(body)
        return count + 1

    def _event(self, note: RecordPodEvent | RecordNodeEvent) -> dict[str, Any]:
        """The event, but for its name. A node's UID is its name here, as in events of kubelets."""
        time, text, more = _timestamp(), note.message, dict[str, Any]()
        if isinstance(note, RecordNodeEvent):
            involved = {"apiVersion": "v1", "kind": "Node", "name": note.node, "uid": note.node}
            namespace, kind = "default", "Warning"
        else:
            involved, namespace, kind = _reference(note.pod), note.pod.metadata.namespace, note.type
            # With what would help, if that fits.
            if note.help and len(longer := f"{text} {note.help}") <= _LONGEST_MESSAGE:
                text = longer
            # What was done about the pod, and the other pod that it was done for, where there is one.
            more |= {"action": note.action} if note.action else {}
            more |= {"related": _reference(note.related)} if note.related else {}
        return more | {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace},
            "involvedObject": involved,
            "type": kind,
            "reason": note.reason,
            "message": text[:_LONGEST_MESSAGE],
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }


def _with_remedies(note: RecordPodEvent, nearest: NearestNode) -> RecordPodEvent:
    """The event with what would help on the nearest node."""
    text = remedies(nearest.state, nearest.request)
    return replace(note, help=f"Nearest is {nearest.name}: {text}.") if text else note


def _reference(pod: Pod) -> dict[str, str]:
    of = pod.metadata
    return {"apiVersion": "v1", "kind": "Pod", "namespace": of.namespace, "name": of.name, "uid": of.uid}


def _title(note: Note) -> str:
    if isinstance(note, RecordNodeEvent):
        return f"event {note.reason} of node {note.node}"
    if isinstance(note, SetNominatedNode):
        return f"nominated node {note.node} of pod {note.pod.title}"
    what = "condition" if isinstance(note, SetCondition) else "event"
    return f"{what} {note.reason} of pod {note.pod.title}"


async def _patch_status(client: KubeClient, pod: Pod, status: dict[str, Any], version: str = "") -> None:
    """Patch the status of the pod with this UID; of this version only, if one is given. Raises APIError."""
    of = pod.metadata
    metadata = {"uid": of.uid} | ({"resourceVersion": version} if version else {})
    body = {"metadata": metadata, "status": status}
    await client.patch(
        Pod, of.name, body, namespace=of.namespace, kind_of_patch="strategic", subresource="status"
    )


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    what = {"type": kind, "status": status, "reason": reason, "message": message}
    return what | {"lastProbeTime": None, "lastTransitionTime": _timestamp()}


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Evictor:
    """Evicts the victims of preemption, in order: condition DisruptionTarget, then deletion by the pod's UID.

    As kube-scheduler (`pkg/scheduler/framework/preemption/executor.go`): the condition tells controllers that
    the pod did not fail by itself; a pod that is gone meanwhile is evicted.
    """

    def __init__(
        self,
        client: KubeClient,
        name: str,
        core: EventSink,
        writer: PodStatusWriter,
        reporter: WriteReporter,
        lease: Leadership | None,
    ) -> None:
        """`name` is the scheduler's; without the `lease`, where there is one, nothing is evicted."""
        self._client = client
        self._name = name
        self._core = core
        self._writer = writer
        self._reporter = reporter
        self._lease = lease
        self._queue: asyncio.Queue[Evict] = asyncio.Queue()

    def put(self, evict: Evict) -> None:
        self._queue.put_nowait(evict)

    async def run(self) -> NoReturn:
        """Evict until cancelled."""
        await run_workers(_WRITERS, self._work)

    async def _work(self) -> NoReturn:
        while True:
            evict = await self._queue.get()
            if self._lease is not None and not self._lease.leading:
                continue
            try:
                await self._evict(evict)
            except APIError as error:
                self._reporter.evict_failed(evict.victim, error)
                preemptor, victim = evict.preemptor.metadata.uid, evict.victim.metadata.uid
                self._core.handle(EvictFailed(now(), preemptor, victim, str(error)))
            else:
                self._reporter.preempted(evict.victim, evict.preemptor, evict.node)
                self._writer.put(preempted(evict.victim, evict.preemptor, evict.node))

    async def _evict(self, evict: Evict) -> None:
        """Raises APIError, but not for a pod that is gone, or another one of that name."""
        meta = evict.victim.metadata
        try:
            target = condition(evict.victim.status.conditions, "DisruptionTarget")
            if target is None or (target.status, target.reason) != ("True", "PreemptionByScheduler"):
                why = f"{self._name}: preempting to accommodate a higher priority pod"
                target_now = _condition("DisruptionTarget", "True", "PreemptionByScheduler", why)
                await _patch_status(self._client, evict.victim, {"conditions": [target_now]})
            await self._client.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid)
        except APIError as error:
            if error.code not in {404, 409} or not error.is_status:
                raise
