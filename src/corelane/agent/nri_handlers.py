"""Answers to the container runtime's questions over NRI, within its deadline and without a call to CRI.

CreateContainer: the allocation decides and its ledger is written to disk; containers that lose CPUs are
shrunk by their cgroups' files, read back; then the answer goes out, with the same sets as updates, so that
the runtime's record agrees. Where any of that fails the container starts in the shared pool, with an event,
and is repaired through CRI as after any drift.
"""

import asyncio
from collections.abc import Hashable
from itertools import count
from typing import Final, Protocol

from corelane.agent.allocation import events
from corelane.agent.allocation.instructions import AnswerCreate
from corelane.agent.event_loop import Clocks, EventQueue
from corelane.cpuset import CPUSet
from corelane.runtime.base import ResourceUpdate
from corelane.runtime.cri.recording import Recorder
from corelane.runtime.nri.connection import Report
from corelane.runtime.nri.values import (
    NOTHING,
    Answer,
    ContainerCreating,
    ContainerUpdating,
    Lost,
    Notification,
    Synchronized,
    Unanswered,
    Updates,
)

ANSWER_SECONDS: Final = 0.4
"""Of the 0.5 that the connection allows: what is left is for the thread that sends the answer."""
DECISION_SECONDS: Final = 0.25
"""After which the allocation settles for the shared pool."""
POD_SECONDS: Final = 0.15
UPDATE_SECONDS: Final = 0.2
_MOST_ANSWERED: Final = 64


class NRIAgent(Protocol):
    """What the handlers need of the agent."""

    async def find_pod(self, uid: str, seconds: float) -> bool:
        """Whether the pod or its CPUs are known, after asking the kubelet if need be."""

    def target(self, container_id: str) -> ResourceUpdate | None:
        """What was last ordered for a running container; None where nothing was."""

    def pool(self) -> CPUSet:
        """CPUs of the shared pool by the ledger on disk."""

    def may_write(self) -> bool:
        """Whether the mode allows to write cpusets."""

    async def refresh_kubelet(self, seconds: float) -> None:
        """Take note of a kubelet that was started with another policy."""

    def containers_changed(self) -> None:
        """Read the containers again soon."""

    def unanswered(self, what: str, why: str) -> None:
        """Report a container that starts in the shared pool: no answer was ready in time."""


class NRIHandlers:
    """Handlers for an `NRIConnection`; `answer` takes the allocation's instruction."""

    def __init__(self, agent: NRIAgent, records: Recorder, queue: EventQueue, clocks: Clocks) -> None:
        self._agent = agent
        self._records = records
        self._queue = queue
        self._clocks = clocks
        self._tokens = count(1)
        self._waiting: dict[Hashable, asyncio.Future[AnswerCreate]] = {}
        self._answered: dict[str, Updates] = {}
        """Updates in the last answers, by the container that was created: an answer may come too late."""

    def answer(self, order: AnswerCreate) -> bool:
        """Hand an answer to its handler; one that comes too late is dropped, and False returned."""
        waiting = self._waiting.get(order.token)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(order)
        return True

    # -- questions

    async def on_synchronized(self, event: Synchronized) -> Updates:
        """Change nothing here: what runs already is listed, and repaired through CRI."""
        self._agent.containers_changed()
        return ()

    async def on_creating(self, event: ContainerCreating) -> Answer:
        """Return a container's CPUs before its first instruction; those of the shared pool where that fails.

        Its class is not known then: CPUs that exclusive containers share with BE are not among them.
        """
        if not self._agent.may_write() or not event.container.pod_uid:
            return NOTHING
        try:
            if not await self._agent.find_pod(event.container.pod_uid, POD_SECONDS):
                raise LookupError("the kubelet does not name the pod yet")
            return await self._placed(event)
        except Exception as error:  # noqa: BLE001 - the container starts all the same
            why = str(error) or f"no answer within {ANSWER_SECONDS} s"
            self._agent.unanswered(f"container {event.container.name} of pod {_pod(event)}", why)
            if not self._agent.may_write():
                return NOTHING
            return Answer(ResourceUpdate(cpus=self._agent.pool() or None))

    async def _placed(self, event: ContainerCreating) -> Answer:
        """Wait for the allocation's answer: its ledger is on disk, and other containers have left the CPUs.

        Raises TimeoutError.
        """
        token, times = next(self._tokens), self._clocks.times()
        loop = asyncio.get_running_loop()
        waiting = self._waiting[token] = loop.create_future()
        question = events.ContainerCreating(
            token=token,
            uid=event.container.pod_uid,
            container=event.container.name,
            id=event.container.id,
            namespace=event.pod.namespace,
            pod=event.pod.name,
            deadline=times["now"] + DECISION_SECONDS,
            **times,
        )
        alarm = loop.call_later(DECISION_SECONDS + 0.01, self._pass_time)
        try:
            with self._records.held():
                self._queue.put(question)
                async with asyncio.timeout(ANSWER_SECONDS):
                    order = await waiting
        except TimeoutError:
            self._queue.put(events.CreationLost(token=token, **self._clocks.times()))
            raise
        finally:
            alarm.cancel()
            del self._waiting[token]
        if not self._agent.may_write():
            return NOTHING
        for container_id, update in order.updates:
            self._records.note_recorded(container_id, update)
        self._answered[event.container.id] = order.updates
        while len(self._answered) > _MOST_ANSWERED:
            del self._answered[next(iter(self._answered))]
        return Answer(order.adjust, order.updates)

    def _pass_time(self) -> None:
        self._queue.put(events.TimePassed(**self._clocks.times()))

    async def on_updating(self, event: ContainerUpdating) -> Updates:
        """Keep this agent's CPUs and quota where the kubelet, or another client, sets others.

        A kubelet that was started with policy static sets its own CPUs, and these stay.
        """
        if self._agent.may_write():
            await self._agent.refresh_kubelet(UPDATE_SECONDS)
        target = self._agent.target(event.container.id) if self._agent.may_write() else None
        return () if target is None else ((event.container.id, target),)

    # -- notifications

    def on_event(self, event: Report) -> None:
        """Take note of starts, ends and lost connections."""
        if isinstance(event, Notification):
            if event.kind in ("ContainerStarted", "ContainerStopped"):
                self._agent.containers_changed()
        elif isinstance(event, Lost):
            self._agent.containers_changed()
        elif isinstance(event, Unanswered) and isinstance(event.question, ContainerCreating):
            for container_id, update in self._answered.pop(event.question.container.id, ()):
                self._records.note_unrecorded(container_id, update)
            what = f"container {event.question.container.name} of pod {_pod(event.question)}"
            self._agent.unanswered(what, f"NRI question {event.outcome} after {event.seconds:.2f} s")


def _pod(event: ContainerCreating) -> str:
    return f"{event.pod.namespace}/{event.pod.name}"
