"""Writes to the API server: a newer write replaces a waiting one, and failed ones are retried.

A queue carries out its writes one after another, so that a pod's last status precedes its deletion. Events
have a queue of their own and delay nothing else.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final
from uuid import uuid4

from corelane.agent import instructions
from corelane.agent.reported_status import rfc3339
from corelane.agent.reporting import AgentReporter
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient, PatchKind
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine.model import Machine
from corelane.node.explain.objective import remedies

Write = Callable[[], Awaitable[object]]

_FIRST_DELAY: Final = 0.2
_LONGEST_DELAY: Final = 10.0
_POD_QUEUES: Final = 4
_MOST_EVENTS: Final = 1000
_COMPONENT: Final = "corelane-agent"


class WriteQueue:
    """Writes by key, in the order in which the keys came; a new write replaces a waiting one."""

    def __init__(self, report: Callable[[str, Exception], None], limit: int = 0) -> None:
        self._writes: dict[Hashable, Write] = {}
        self._report = report
        self._limit = limit
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, key: Hashable, write: Write) -> None:
        if self._limit and len(self._writes) >= self._limit:
            return
        self._writes[key] = write
        self._work.set()
        self._idle.clear()

    async def idle(self) -> None:
        """Wait until nothing is left to write."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        failures = 0
        while True:
            await self._work.wait()
            key, write = next(iter(self._writes.items()))
            failures = failures + 1 if await self._failed(str(key), write) else 0
            if failures:
                longest = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(failures, 20))
                await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            elif self._writes[key] is write:
                self._finish(key)

    async def _failed(self, what: str, write: Write) -> bool:
        """Carry out a write; return whether to retry it."""
        try:
            await write()
        except APIError as error:
            self._report(what, error)
            return error.code in (0, 429) or error.code >= 500
        return False

    def _finish(self, key: Hashable) -> None:
        del self._writes[key]
        if not self._writes:
            self._work.clear()
            self._idle.set()


class Publisher:
    """Writes of one agent about its pods and its node."""

    def __init__(
        self, client: KubeClient, node_name: str, reporter: AgentReporter, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._node = node_name
        self._clock = clock
        self._numbers = count()
        self._pods = [WriteQueue(reporter.api_failed) for _ in range(_POD_QUEUES)]
        self._events = WriteQueue(reporter.api_failed, _MOST_EVENTS)
        self._topology = WriteQueue(reporter.api_failed)
        self.queues = (*self._pods, self._topology, self._events)

    async def idle(self) -> None:
        """Wait until nothing is left to write."""
        await asyncio.gather(*(queue.idle() for queue in self.queues))

    def publish(self, pod: Pod, order: instructions.PodWrite, machine: Machine) -> None:
        """Carry out an instruction about a pod on this machine, unless its name belongs to a newer pod."""
        match order:
            case instructions.PublishStatus():
                self._patch(pod, "status", {"status": order.status}, "strategic", "status")
            case instructions.DeletePod():
                meta = pod.metadata
                delete = partial(self._client.delete, Pod, meta.name, namespace=meta.namespace)
                self._put(pod, "deletion", partial(delete, grace_seconds=0, uid=meta.uid))
            case instructions.Annotate():
                record = translate.proposal_annotations(order.cpus, pod, machine, order.zone)
                annotations = record | translate.reasons_annotation(order.reasons)
                self._patch(pod, "annotations", {"metadata": {"annotations": annotations}})
            case instructions.PublishEvent():
                remedy = partial(remedies, *order.rejected) if order.rejected else None
                self.event(pod, order.reason, order.message, warning=order.warning, remedy=remedy)

    def _patch(
        self,
        pod: Pod,
        part: str,
        body: dict[str, Any],
        kind_of_patch: PatchKind = "merge",
        subresource: str | None = None,
    ) -> None:
        meta = pod.metadata
        body["metadata"] = {"uid": meta.uid} | body.get("metadata", {})
        patch = partial(self._client.patch, Pod, meta.name, body, namespace=meta.namespace)
        self._put(pod, part, partial(patch, kind_of_patch=kind_of_patch, subresource=subresource))

    def _put(self, pod: Pod, part: str, write: Write) -> None:
        uid = pod.metadata.uid
        self._pods[hash(uid) % len(self._pods)].put(f"{part} of {pod.title} ({uid})", write)

    def topology(self, make: Callable[[], dict[str, Any]], *, if_damaged: bool = False) -> None:
        """Write the NodeResourceTopology that `make` returns then; or only if its content was damaged."""

        async def write() -> None:
            body = make()
            try:
                if if_damaged and not await self._is_damaged(body):
                    return
                await self._client.patch(NodeResourceTopology, self._node, translate.as_patch(body))
            except APIError as error:
                if error.code != 404:
                    raise
                await self._client.create(body)

        self._topology.put("topology check" if if_damaged else "topology", write)

    async def _is_damaged(self, body: Mapping[str, Any]) -> bool:
        """Whether the object at the API server lacks parts of `body`. Raises APIError."""
        path = NodeResourceTopology.api.path(name=self._node)
        return translate.is_damaged(json.loads(await self._client.raw("GET", path)), body)

    def node_status(self, write: Write) -> None:
        """Write the Node's status."""
        self._topology.put("status of the node", write)

    def event(
        self,
        pod: Pod | None,
        reason: str,
        message: str,
        *,
        warning: bool,
        remedy: Callable[[], str] | None = None,
    ) -> None:
        """Record an event about a pod, or about the node; `remedy` may take long and runs in a thread.

        The UID of the node is its name, as in the kubelet's events.
        """
        about = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}
        if pod:
            meta = pod.metadata
            about |= {"kind": "Pod", "name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        namespace, name = about.get("namespace", "default"), about["name"]
        at = rfc3339(self._clock())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": about,
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": _COMPONENT, "host": self._node},
            "reportingComponent": _COMPONENT,
            "reportingInstance": self._node,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }

        async def write() -> None:
            text = await asyncio.to_thread(remedy) if remedy else ""
            longer = {"message": f"{message}; remedy: {text}"[:1024]} if text else {}
            await self._client.create(event | longer)

        self._events.put(f"event {next(self._numbers)} {reason} of {name}", write)
