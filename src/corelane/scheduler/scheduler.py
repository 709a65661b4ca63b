"""The scheduler: informers feed the core, whose instructions become requests to the API server."""

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal, TypeVar

from corelane.cpuset import CPUSet
from corelane.kube.apierrors import APIError, Unreachable
from corelane.kube.client import KubeClient
from corelane.kube.informer import Informer, InformerReporter, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.scheduler import events, pod_status_writer
from corelane.scheduler.events import BindFailed, BindSucceeded, CycleDue
from corelane.scheduler.instructions import Bind, Instruction, SetCondition
from corelane.scheduler.pod_status_writer import PodStatusWriter
from corelane.scheduler.scheduling import DEFAULT_NAME, Plugins, SchedulerCore

T = TypeVar("T", bound=Object)

_ALIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"
_BINDS_AT_ONCE: Final = 16


class SchedulerReporter(InformerReporter):
    """Hooks for logs, metrics and tests, empty by default; the informers' hooks included."""

    def started(self, name: str) -> None:
        """All objects are listed, and scheduling starts."""

    def binding(self, pod: Pod, node: str, assignments: Mapping[str, CPUSet]) -> None:
        """A binding is sent, with these CPUs for the pod's containers."""

    def bound(self, pod: Pod, node: str, seconds: float) -> None:
        """The API server accepted the binding, after that many seconds."""

    def bind_failed(self, pod: Pod, node: str, error: APIError) -> None:
        """The API server did not accept the binding."""

    def unschedulable(self, pod: Pod, reason: str, message: str) -> None:
        """A pod did not fit on any node, or its binding failed."""

    def unusable_topology(self, node: str, problem: str) -> None:
        """The NodeResourceTopology of a node is invalid."""

    def write_failed(self, what: str, error: APIError) -> None:
        """A condition or event could not be written; scheduling goes on."""

    def dropped(self, what: str) -> None:
        """A condition or event is not written, because too many are waiting."""


class Scheduler:
    """Schedules the pods whose `schedulerName` is `name`; `clock` gives the time for what it writes."""

    def __init__(
        self,
        client: KubeClient,
        *,
        name: str = DEFAULT_NAME,
        plugins: Plugins | None = None,
        clock: Callable[[], datetime] = pod_status_writer.now,
        rng: random.Random | None = None,
        reporter: SchedulerReporter | None = None,
    ) -> None:
        self.core = SchedulerCore(name, plugins)
        self._client = client
        self._reporter = reporter or SchedulerReporter()
        self._writer = PodStatusWriter(
            client, name, dropped=self._reporter.dropped, failed=self._reporter.write_failed, clock=clock
        )
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(_BINDS_AT_ONCE)
        self._tasks: asyncio.TaskGroup | None = None
        self._informers: tuple[Informer[Node], Informer[NodeResourceTopology], Informer[Pod]] = (
            self._informer(Node, events.NodeChanged, rng),
            self._informer(NodeResourceTopology, events.TopologyChanged, rng),
            self._informer(Pod, events.PodChanged, rng, field_selector=_ALIVE),
        )

    def _informer(
        self,
        kind: type[T],
        event: Callable[[float, T | None, T | None], events.SchedulerEvent],
        rng: random.Random | None,
        field_selector: str | None = None,
    ) -> Informer[T]:
        def handle(change: ObjectChange[T]) -> None:
            self._handle(event(_now(), change.old, change.new))
            self._report_problem(kind, change.new)

        return Informer(
            self._client,
            kind,
            handler=handle,
            field_selector=field_selector,
            reporter=self._reporter,
            rng=rng,
        )

    def _report_problem(self, kind: type[Object], new: Object | None) -> None:
        if kind is NodeResourceTopology and new is not None:
            node = self.core.cluster.get(new.metadata.name)
            if node is not None and node.problem:
                self._reporter.unusable_topology(node.name, node.problem)

    async def run(self) -> None:
        """Schedule until cancelled. No pod is placed before nodes, topologies and pods are listed."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._writer.run())
            for informer in self._informers:
                tasks.create_task(informer.run())
            for informer in self._informers:
                await informer.synced()
            self._reporter.started(self.core.name)
            await self._schedule()

    async def _schedule(self) -> None:
        while True:
            self._changed.clear()
            while self.core.ready(_now()):
                self._handle(CycleDue(_now()))
                await asyncio.sleep(0)
            await self._wait(self.core.next_time())

    async def _wait(self, time: float | None) -> None:
        try:
            async with asyncio.timeout_at(time):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _handle(self, event: events.SchedulerEvent) -> None:
        for instruction in self.core.handle(event):
            self._carry_out(instruction)
        self._changed.set()

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Bind):
            assert self._tasks is not None
            self._reporter.binding(instruction.pod, instruction.node, instruction.assignments)
            self._tasks.create_task(self._bind(instruction))
            return
        if isinstance(instruction, SetCondition):
            self._reporter.unschedulable(instruction.pod, instruction.reason, instruction.message)
        self._writer.put(instruction)

    async def _bind(self, bind: Bind) -> None:
        pod, begun = bind.pod.metadata, _now()
        try:
            async with self._slots:
                await self._client.bind(pod.namespace, pod.name, pod.uid, bind.node, bind.annotations)
        except APIError as error:
            self._reporter.bind_failed(bind.pod, bind.node, error)
            self._handle(BindFailed(_now(), pod.uid, _outcome(error), str(error)))
        else:
            self._reporter.bound(bind.pod, bind.node, _now() - begun)
            self._handle(BindSucceeded(_now(), pod.uid))


def _outcome(error: APIError) -> Literal["rejected", "conflict", "unknown"]:
    if isinstance(error, Unreachable) or error.code == 429 or error.code >= 500:
        return "unknown"
    return "conflict" if error.code == 409 else "rejected"


def _now() -> float:
    return asyncio.get_running_loop().time()
