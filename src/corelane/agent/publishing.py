"""Writes to the API server: the newer replaces what waits, failures are tried again, the moot is dropped.

A lane carries out its jobs one after another, so that a pod's last status goes before its deletion.
Events have a lane of their own and never hold up anything else.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final
from uuid import uuid4

from corelane.agent import messages
from corelane.agent.reporter import Reporter
from corelane.agent.status import rfc3339
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node import NodeState, Reason
from corelane.node.explain.objective import remedies

Job = Callable[[], Awaitable[None]]

_FIRST_DELAY: Final = 0.2
_LONGEST_DELAY: Final = 10.0
_POD_LANES: Final = 4
_MOST_EVENTS: Final = 1000
_COMPONENT: Final = "corelane-agent"
_NO_FACTS: Final = CPUFacts()


class WriteQueue:
    """Jobs by key, in the order in which the keys came; a job put again takes the place of the old one."""

    def __init__(self, report: Callable[[str, Exception], None], limit: int = 0) -> None:
        self._jobs: dict[Hashable, Job] = {}
        self._report = report
        self._limit = limit
        self._work = asyncio.Event()
        self._rest = asyncio.Event()
        self._rest.set()

    def put(self, key: Hashable, job: Job) -> None:
        if self._limit and len(self._jobs) >= self._limit:
            return
        self._jobs[key] = job
        self._work.set()
        self._rest.clear()

    async def idle(self) -> None:
        """Wait until everything is written."""
        await self._rest.wait()

    async def run(self) -> None:
        """Work until cancelled."""
        failures = 0
        while True:
            await self._work.wait()
            key, job = next(iter(self._jobs.items()))
            failures = failures + 1 if await self._failed(str(key), job) else 0
            if failures:
                longest = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(failures, 20))
                await asyncio.sleep(longest * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            elif self._jobs[key] is job:
                self._finish(key)

    async def _failed(self, what: str, job: Job) -> bool:
        """Whether to try again."""
        try:
            await job()
        except APIError as error:
            self._report(what, error)
            return error.code in (0, 429) or error.code >= 500
        return False

    def _finish(self, key: Hashable) -> None:
        del self._jobs[key]
        if not self._jobs:
            self._work.clear()
            self._rest.set()


class Publisher:
    """What one agent writes about its pods and its node."""

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        reporter: Reporter,
        clock: Callable[[], float],
        facts: CPUFacts = _NO_FACTS,
    ) -> None:
        self._client = client
        self._facts = facts
        self._node = node_name
        self._clock = clock
        self._numbers = count()
        self._pods = [WriteQueue(reporter.api_failed) for _ in range(_POD_LANES)]
        self._events = WriteQueue(reporter.api_failed, _MOST_EVENTS)
        self._topology = WriteQueue(reporter.api_failed)
        self.lanes = (*self._pods, self._topology, self._events)

    def _lane(self, uid: str) -> WriteQueue:
        return self._pods[hash(uid) % len(self._pods)]

    async def idle(self) -> None:
        """Wait until everything is written."""
        await asyncio.gather(*(lane.idle() for lane in self.lanes))

    def publish(
        self,
        pod: Pod,
        order: messages.PublishStatus | messages.DeletePod | messages.Annotate | messages.Tell,
        machine: Machine,
    ) -> None:
        """Write what the core ordered about a pod on this machine."""
        match order:
            case messages.PublishStatus():
                self.status(pod, order.status)
            case messages.DeletePod():
                self.delete(pod)
            case messages.Annotate():
                self.annotate(pod, order.cpus, order.reasons, machine, order.zone)
            case messages.Tell():
                more = partial(remedies, *order.refused) if order.refused else None
                self.event(pod, order.reason, order.message, warning=order.warning, more=more)

    def status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Write a pod's status, unless by now another pod has its name."""
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": status}

        async def job() -> None:
            await self._client.patch(
                Pod,
                meta.name,
                body,
                namespace=meta.namespace,
                kind_of_patch="strategic",
                subresource="status",
            )

        self._lane(meta.uid).put(f"status of {pod.title} ({meta.uid})", job)

    def delete(self, pod: Pod) -> None:
        """Take a pod away that has ended, unless by now another pod has its name."""
        meta = pod.metadata

        async def job() -> None:
            await self._client.delete(Pod, meta.name, namespace=meta.namespace, grace_seconds=0, uid=meta.uid)

        self._lane(meta.uid).put(f"deletion of {pod.title} ({meta.uid})", job)

    def annotate(
        self,
        pod: Pod,
        cpus: Mapping[str, CPUSet],
        reasons: Iterable[Reason] = (),
        machine: Machine | None = None,
        zone: CPUSet | None = None,
    ) -> None:
        """Record the CPUs that a pod's containers really have, or the machine's NUMA nodes that hold them."""
        meta = pod.metadata
        record = translate.proposal_annotations(cpus, pod, machine, zone)
        annotations = record | translate.reasons_annotation(reasons)
        body = {"metadata": {"uid": meta.uid, "annotations": annotations}}

        async def job() -> None:
            await self._client.patch(Pod, meta.name, body, namespace=meta.namespace)

        self._lane(meta.uid).put(f"annotations of {pod.title} ({meta.uid})", job)

    def topology(
        self,
        ledger: Callable[[], NodeState],
        owner_uid: Callable[[], str],
        node_annotations: Callable[[], Mapping[str, str]] = dict,
        *,
        if_damaged: bool = False,
    ) -> None:
        """Write the NodeResourceTopology as it is when its turn comes; or only if somebody damaged it."""

        async def job() -> None:
            state = ledger()
            body = translate.topology(
                state.machine,
                self._node,
                state,
                owner_uid=owner_uid(),
                facts=self._facts,
                node_annotations=node_annotations(),
            )
            try:
                if if_damaged and not await self._is_damaged(body):
                    return
                await self._client.patch(NodeResourceTopology, self._node, translate.as_patch(body))
            except APIError as error:
                if error.code != 404:
                    raise
                await self._client.create(body)

        self._topology.put("topology as it was" if if_damaged else "topology", job)

    async def _is_damaged(self, body: Mapping[str, Any]) -> bool:
        """Raises APIError."""
        path = NodeResourceTopology.api.path(name=self._node)
        return translate.is_damaged(json.loads(await self._client.raw("GET", path)), body)

    def node_status(self, write: Job) -> None:
        """Write the Node's status, which is not as it was."""
        self._topology.put("status of the node", write)

    def event(
        self, pod: Pod, reason: str, message: str, *, warning: bool, more: Callable[[], str] | None = None
    ) -> None:
        """Record an event about a pod; what takes long to say, `more`, is found out in a thread."""
        meta = pod.metadata
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        }
        self._put_event(meta.namespace, meta.name, about, reason, message, warning=warning, more=more)

    def node_event(self, reason: str, message: str, *, warning: bool) -> None:
        """Record an event about the node; as the kubelet does, with its name for a UID."""
        about = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}
        self._put_event("default", self._node, about, reason, message, warning=warning)

    def _put_event(
        self,
        namespace: str,
        name: str,
        about: dict[str, str],
        reason: str,
        message: str,
        *,
        warning: bool,
        more: Callable[[], str] | None = None,
    ) -> None:
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

        async def job() -> None:
            found = await asyncio.to_thread(more) if more else ""
            whole = event | {"message": f"{message}; what would help: {found}"[:1024]} if found else event
            await self._client.create(whole)

        self._events.put(f"event {next(self._numbers)} {reason} of {name}", job)
