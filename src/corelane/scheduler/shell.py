"""The scheduler at work: informers feed the core, its instructions become requests to the API server."""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from corelane.kube.apierrors import APIError, Unreachable
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.scheduler import messages, notes
from corelane.scheduler.core import DEFAULT_NAME, DEFAULT_PLUGINS, SchedulerCore
from corelane.scheduler.messages import Bind, BindFailed, BindSucceeded, CycleDue, Instruction, SetCondition
from corelane.scheduler.plugins import Plugins
from corelane.scheduler.reporter import SchedulerReporter

if TYPE_CHECKING:
    from corelane.kube.client import KubeClient

__all__ = ["Scheduler"]

T = TypeVar("T", bound=Object)

_ALIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
_BINDS_AT_ONCE: Final = 16


class Scheduler:
    """Places the pods whose `schedulerName` is `name`. `clock` gives the time for events and conditions."""

    def __init__(
        self,
        client: "KubeClient",
        *,
        name: str = DEFAULT_NAME,
        plugins: Plugins = DEFAULT_PLUGINS,
        clock: Callable[[], datetime] = notes.now,
        rng: random.Random | None = None,
        reporter: SchedulerReporter | None = None,
    ) -> None:
        self.core = SchedulerCore(name, plugins)
        self._client = client
        self._reporter = reporter or SchedulerReporter()
        self._notes = notes.PodStatusWriter(client, name, self._reporter, clock)
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(_BINDS_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None
        self._informers: tuple[Informer[Node], Informer[NodeResourceTopology], Informer[Pod]] = (
            self._informer(Node, messages.NodeChanged, rng),
            self._informer(NodeResourceTopology, messages.TopologyChanged, rng),
            self._informer(Pod, messages.PodChanged, rng, field_selector=_ALIVE),
        )

    def _informer(
        self,
        kind: type[T],
        event: Callable[[float, T | None, T | None], messages.Event],
        rng: random.Random | None,
        field_selector: str | None = None,
    ) -> Informer[T]:
        def handle(change: ObjectChange[T]) -> None:
            self._tell(event(_now(), change.old, change.new))
            self._complain(kind, change.new)

        return Informer(
            self._client,
            kind,
            handler=handle,
            field_selector=field_selector,
            reporter=self._reporter,
            rng=rng,
        )

    def _complain(self, kind: type[Object], new: Object | None) -> None:
        if kind is NodeResourceTopology and new is not None:
            node = self.core.cluster.get(new.metadata.name)
            if node is not None and node.problem:
                self._reporter.unusable_topology(node.name, node.problem)

    async def run(self) -> None:
        """Schedule until cancelled. Nothing is placed before nodes, topologies and pods are all known."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._notes.run())
            for informer in self._informers:
                tasks.create_task(informer.run())
            for informer in self._informers:
                await informer.synced()
            self._reporter.started(self.core.name)
            await self._schedule()

    async def _schedule(self) -> None:
        while True:
            self._news.clear()
            while self.core.ready(_now()):
                self._tell(CycleDue(_now()))
                await asyncio.sleep(0)
            await self._news_or(self.core.next_time())

    async def _news_or(self, time: float | None) -> None:
        try:
            async with asyncio.timeout_at(time):
                await self._news.wait()
        except TimeoutError:
            pass

    def _tell(self, event: messages.Event) -> None:
        for instruction in self.core.handle(event):
            self._carry_out(instruction)
        self._news.set()

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Bind):
            assert self._tasks is not None
            self._reporter.binding(instruction.pod, instruction.node, instruction.assignments)
            self._tasks.create_task(self._bind(instruction))
            return
        if isinstance(instruction, SetCondition):
            self._reporter.unschedulable(instruction.pod, instruction.reason, instruction.message)
        self._notes.take(instruction)

    async def _bind(self, bind: Bind) -> None:
        pod, begun = bind.pod.metadata, _now()
        try:
            async with self._slots:
                await self._client.bind(pod.namespace, pod.name, pod.uid, bind.node, bind.annotations)
        except APIError as error:
            self._reporter.bind_failed(bind.pod, bind.node, error)
            self._tell(BindFailed(_now(), pod.uid, _outcome(error), str(error)))
        else:
            self._reporter.bound(bind.pod, bind.node, _now() - begun)
            self._tell(BindSucceeded(_now(), pod.uid))


def _outcome(error: APIError) -> Literal["rejected", "conflict", "unknown"]:
    if isinstance(error, Unreachable) or error.code == 429 or error.code >= 500:
        return "unknown"
    return "conflict" if error.code == 409 else "rejected"


def _now() -> float:
    return asyncio.get_running_loop().time()
