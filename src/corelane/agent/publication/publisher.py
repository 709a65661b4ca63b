"""What the agent writes to the API server about its pods and its node, each kind in a queue of its own."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final
from uuid import uuid4

from corelane.agent.allocation.instructions import (
    Annotate,
    PodWrite,
    PublishCondition,
    PublishEvent,
    RecordResized,
)
from corelane.agent.event_loop import Clocks
from corelane.agent.publication.stored_objects import NodeObjects
from corelane.agent.publication.write_queue import PublicationReporter, QueueState, Write, WriteQueue
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.client import KubeClient, PatchKind
from corelane.kube.meta import condition, rfc3339
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.machine.model import Machine
from corelane.node.explain.pod_explanation import remedies

_POD_QUEUES: Final = 4
_MOST_EVENTS: Final = 1000
_EVENT_ATTEMPTS: Final = 5
_COMPONENT: Final = "corelane-agent"


class Publisher:
    """Writes of one agent about its pods and its node."""

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        reporter: PublicationReporter,
        clocks: Clocks,
        objects: NodeObjects | None = None,
    ) -> None:
        self._client = client
        self._objects = objects
        self._node = node_name
        self._clocks = clocks
        self._numbers = count()
        self._pods = [WriteQueue(reporter, name="pods") for _ in range(_POD_QUEUES)]
        self._events = WriteQueue(reporter, _MOST_EVENTS, name="events", attempts=_EVENT_ATTEMPTS)
        self.node_queue = WriteQueue(reporter, name="node", keeps=True)
        self.queues = (*self._pods, self.node_queue, self._events)
        self._mirrors: dict[str, dict[str, str]] = {}

    def states(self) -> list[QueueState]:
        """Return the state of every queue, for people."""
        states = [queue.state() for queue in self._pods]
        worst = max(states, key=lambda state: state.failing_for)
        pods = QueueState(
            worst.name,
            sum(state.waiting for state in states),
            sum(state.written for state in states),
            sum(state.obsolete for state in states),
            sum(state.dropped for state in states),
            worst.failing_for,
            worst.last_error,
        )
        return [pods, self.node_queue.state(), self._events.state()]

    async def idle(self) -> None:
        """Wait until nothing is left to write."""
        await asyncio.gather(*(queue.idle() for queue in self.queues))

    def publish(self, pod: Pod, order: PodWrite, machine: Machine) -> None:
        """Carry out an instruction about a pod on this machine, unless its name belongs to a newer pod."""
        match order:
            case Annotate():
                record = translate.proposal_annotations(order.cpus, pod, machine, order.zone)
                annotations = record | translate.reasons_annotation(order.reasons)
                self.patch(pod, "annotations", {"metadata": {"annotations": annotations}})
            case RecordResized():
                annotations = translate.in_pool_annotation(pod, order.containers)
                self.patch(pod, "resized", {"metadata": {"annotations": annotations}})
            case PublishEvent():
                remedy = partial(remedies, *order.rejected) if order.rejected else None
                self.event(pod, order.reason, order.message, warning=order.warning, remedy=remedy)
            case PublishCondition():
                at = order.at or self._clocks.wall()
                written = _condition(keys.PINNED, order.holds, order.reason, order.message, at)
                before = condition(pod.status.conditions, keys.PINNED)
                if before and before.status == written["status"] and before.last_transition_time:
                    # the time of the last transition stays while the status does
                    written["lastTransitionTime"] = before.last_transition_time
                self.patch(pod, "condition", {"status": {"conditions": [written]}}, "strategic", "status")

    def kubelet_cpusets(self, pods: Iterable[Pod], assignments: Mapping[str, Mapping[str, CPUSet]]) -> None:
        """Write the CPUs that the kubelet gave containers, by UID, to the pods where they differ.

        The kubelet lists a static pod as its manifest has it: what was written to its mirror is remembered.
        """
        by_uid = {translate.running_uid(pod): pod for pod in pods}
        self._mirrors = {uid: written for uid, written in self._mirrors.items() if uid in by_uid}
        published = (
            (uid, self._mirrors.get(uid, {}) if translate.is_static(pod) else pod.metadata.annotations)
            for uid, pod in by_uid.items()
        )
        for uid, annotations in translate.differing_cpusets(assignments, published).items():
            if translate.is_static(by_uid[uid]):
                self._mirrors[uid] = {key: text for key, text in annotations.items() if text is not None}
            self.patch(by_uid[uid], "kubelet-cpusets", {"metadata": {"annotations": annotations}})

    def ledger_condition(self, fault: str, at: float) -> None:
        """Write the Node's condition of the ledger; `fault` is why it cannot be written, "" if it can."""
        written = _condition(
            keys.LEDGER_WRITABLE,
            not fault,
            "LedgerUnwritable" if fault else "LedgerWritable",
            fault or "the ledger can be written",
            at,
        )
        body = {"status": {"conditions": [written]}}
        patch = partial(self._client.patch, Node, self._node, body)
        self.node_queue.put(
            "condition", partial(patch, kind_of_patch="strategic", subresource="status"), "condition"
        )

    def patch(
        self,
        pod: Pod,
        part: str,
        body: dict[str, Any],
        kind_of_patch: PatchKind = "merge",
        subresource: str | None = None,
    ) -> None:
        """Queue a patch of a part of a pod."""
        meta = pod.metadata
        if not translate.is_static(pod):
            body["metadata"] = {"uid": meta.uid} | body.get("metadata", {})
        patch = partial(self._client.patch, Pod, meta.name, body, namespace=meta.namespace)
        self.put(pod, part, partial(patch, kind_of_patch=kind_of_patch, subresource=subresource))

    def put(self, pod: Pod, part: str, write: Write) -> None:
        """Queue a write about a pod; that of a static pod waits until the kubelet has made its mirror."""
        uid = translate.running_uid(pod)
        key = f"{part} of {pod.title} ({uid})"
        self._queue_of(uid).put(key, write, uid, keeps=translate.is_static(pod))

    def forget(self, uid: str) -> None:
        """Drop the writes about a pod that is gone; `uid` is the one under which it ran."""
        self._queue_of(uid).forget(uid)

    def _queue_of(self, uid: str) -> WriteQueue:
        return self._pods[hash(uid) % len(self._pods)]

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
        at = rfc3339(self._clocks.wall())
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
            create = self._objects.record_event if self._objects else self._client.create
            await create(event | longer)

        key = f"event {next(self._numbers)} {reason} of {name}"
        self._events.put(key, write, key)


def _condition(kind: str, holds: bool, reason: str, message: str, at: float) -> dict[str, str]:
    """Return a condition since `at`, in Unix seconds, without those of other types."""
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(at),
    }
