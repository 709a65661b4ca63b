"""Writes of pods' statuses, and their deletion, by the agent that runs the pods itself.

A pod that is admitted is Pending for some milliseconds, until its containers have started: that status waits
a moment for the next one, which saves half the writes.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from corelane.agent.allocation.instructions import PodWrite
from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.stored_objects import NodeObjects
from corelane.embedded.pods.instructions import DeletePod, PublishStatus
from corelane.embedded.pods.reported_status import CREATING
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod

_PENDING_SECONDS: Final = 1.0
"""Longest time by which the status of a pending pod is written later."""

Put = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Held:
    put: Put
    timer: asyncio.TimerHandle


class HeldWrites:
    """Puts what is held `seconds` later, unless it is replaced, released or dropped before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: dict[Hashable, _Held] = {}

    def hold(self, key: Hashable, put: Put) -> None:
        """Hold a write, in place of one that is held under this key; that one's time goes on."""
        held = self._held.get(key)
        loop = asyncio.get_running_loop()
        timer = held.timer if held else loop.call_later(self._seconds, self.release, key)
        self._held[key] = _Held(put, timer)

    def release(self, key: Hashable) -> None:
        """Put what is held under this key now."""
        held = self._held.pop(key, None)
        if held is not None:
            held.timer.cancel()
            held.put()

    def drop(self, key: Hashable) -> None:
        """Forget what is held under this key."""
        held = self._held.pop(key, None)
        if held is not None:
            held.timer.cancel()

    def release_all(self) -> None:
        """Put everything now."""
        for key in list(self._held):
            self.release(key)


class StatusWriter:
    """Puts statuses and deletions into the publisher's queues of pods."""

    def __init__(self, client: KubeClient, publisher: Publisher, objects: NodeObjects | None = None) -> None:
        """`objects` writes to a server in this process without HTTP."""
        self._client = client
        self._publisher = publisher
        self._objects = objects
        self._pending = HeldWrites(_PENDING_SECONDS)

    def carry_out(self, pod: Pod, order: PodWrite) -> bool:
        """Queue what an instruction asks for; return whether it is about a status or a deletion."""
        match order:
            case PublishStatus():
                self._status(pod, order.status)
            case DeletePod():
                meta = pod.metadata
                self._pending.release(meta.uid)
                delete = partial(self._client.delete, Pod, meta.name, namespace=meta.namespace)
                self._publisher.put(pod, "deletion", partial(delete, grace_seconds=0, uid=meta.uid))
            case _:
                return False
        return True

    def _status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Write a status; that of a pod which is about to run waits a moment for the next one."""
        meta = pod.metadata
        uid = meta.uid
        if self._objects is None:
            put = partial(self._publisher.patch, pod, "status", {"status": status}, "strategic", "status")
        else:
            write = partial(self._objects.patch_status, meta.namespace, meta.name, uid, dict(status))
            put = partial(self._publisher.put, pod, "status", write)
        if _is_starting(status):
            self._pending.hold(uid, put)
        else:
            self._pending.drop(uid)
            put()

    def forget(self, uid: str) -> None:
        """Drop the status that waits to be written about a pod that is gone."""
        self._pending.drop(uid)

    def flush(self) -> None:
        """Queue every status that waits."""
        self._pending.release_all()


def _is_starting(status: Mapping[str, Any]) -> bool:
    """Whether nothing is known of a pod but that its containers are to start."""
    states = [one["state"].get("waiting") for one in status.get("containerStatuses") or ()]
    return status["phase"] == "Pending" and all(one and one["reason"] == CREATING for one in states)
