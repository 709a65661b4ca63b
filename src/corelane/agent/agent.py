"""The node agent: the thin shell that feeds the core with what happens, and carries out what it orders.

One task takes events from a queue; instructions for the runtime run as tasks of their own, once the ledger
that they rest on is on disk. Everything else here listens: to the API server, the runtime, the clock, /proc.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from corelane.agent import intake, messages, registration
from corelane.agent.admission import Capacity
from corelane.agent.core import Core
from corelane.agent.environment import Host
from corelane.agent.execution import ENDED, Execution
from corelane.agent.heartbeat import Heartbeat
from corelane.agent.journal import Journal
from corelane.agent.kubelet import Kubelet
from corelane.agent.manifest import RunPod
from corelane.agent.messages import Event, Instruction
from corelane.agent.publishing import Publisher
from corelane.agent.reporter import Reporter
from corelane.agent.statefiles import StateFiles
from corelane.agent.status import Place
from corelane.agent.watching import OwnWatch, SharedWatch
from corelane.kube.client import KubeClient
from corelane.kube.informer import ObjectChange
from corelane.kube.objects import Node
from corelane.machine import facts
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState
from corelane.runtime.base import ContainerStatus, Runtime, RuntimeFailure, UnknownContainer

SIMULATED: Final = "simulated"
_BATCH: Final = 50
_TICK: Final = 1.0
_FAREWELL: Final = 2.0
_DRAIN_MARGIN: Final = 10.0
_RETRY_CHECKPOINT: Final = 2.0


class NoLogs(LookupError):  # noqa: N818 - says what is the case
    """There is no such log; the text says why, in the kubelet's words."""


class Agent:
    """One node's agent. `run` it until cancelled; `shutdown` ends it in good order.

    `runtime` is closed by `shutdown`. State is kept in `state_dir`. Times are Unix seconds by `clock`.
    It watches its Node and pods itself, unless it is given a `watch` that it shares with others.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        node_name: str,
        machine: Machine,
        runtime: Runtime,
        config: NodeConfig | None = None,
        state_dir: Path,
        labels: Mapping[str, str] | None = None,
        addresses: tuple[str, ...] | None = None,
        reporter: Reporter | None = None,
        reconcile_seconds: float = 5.0,
        validate: bool = False,
        watch: SharedWatch | None = None,
        clock: Callable[[], float] = time.time,
        kubelet: Kubelet | None = None,
    ) -> None:
        """Read ledger and settings; `config` holds as far as the Node does not say otherwise.

        What a `kubelet` has pinned on this machine is held for its pods, and free as they end.

        Raises OSError, NodeConfigError.
        """
        self.node_name = node_name
        self.reporter = reporter or Journal(node_name)
        self._client = client
        self._runtime = runtime
        self._clock = clock
        self._reconcile_seconds = reconcile_seconds
        self._files = StateFiles(state_dir, config or NodeConfig(), machine, self.reporter)
        self._settings = self._files.settings
        simulated = runtime.enforcement == SIMULATED
        local = () if simulated else registration.own_addresses()
        self._identity = registration.Identity(
            node_name,
            simulated,
            runtime.name,
            runtime.enforcement,
            runtime.notice,
            ips=local if addresses is None else addresses,
            labels=labels or {},
        )
        self._core = Core(
            self._files.ledger,
            place=Place(self._identity.ips, runtime.name, confirms=not simulated),
            capacity=Capacity(self._identity.pods, registration.memory_for_pods(self._files.ledger)),
            reporter=self.reporter,
            validate=validate,
            follows_kubelet=kubelet is not None,
        )
        self._kubelet, self._kubelet_fault = kubelet, ""
        self._pods: dict[str, RunPod] = {}
        self._node_annotations: Mapping[str, str] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._execution = Execution(
            client,
            runtime,
            pods=self._pods,
            ledger=lambda: self.ledger,
            host=self._host,
            put=self._put,
            reporter=self.reporter,
            clock=clock,
        )
        self._runner: asyncio.Task[Any] | None = None
        self._ready = asyncio.Event()
        self._drained = asyncio.Event()
        told = CPUFacts() if simulated else facts.read()
        self._publisher = Publisher(client, node_name, self.reporter, clock, told)
        self._heartbeat = Heartbeat(
            client,
            self._identity,
            self.reporter,
            clock,
            lambda: self.ledger,
            registered=self._registered,
            said_again=lambda: self._put_topology(if_damaged=True),
        )
        self._watch = watch or OwnWatch(client, self.reporter)

    @property
    def ledger(self) -> NodeState:
        """Who has which CPUs now, and how far the kernel has confirmed it."""
        return self._core.ledger

    def machine_changed(self, machine: Machine) -> None:
        """CPUs came or went: fit ledger and containers to what is there now."""
        self._put(messages.MachineChanged(machine=machine, at=self._clock()))

    async def ready(self) -> None:
        """Wait until the node is registered and every pod of it is known."""
        await self._ready.wait()

    async def run(self) -> None:
        """Work until cancelled, or until `shutdown`. The pods' processes go on running after either."""
        self._runner = asyncio.current_task()
        changes = self._runtime.wait_events()
        await self._look_at_kubelet()
        self._put(messages.Found(runs=await self._execution.inventory(), at=self._clock()))
        try:
            async with asyncio.TaskGroup() as group:
                for part in (
                    self._work(),
                    self._listen(changes),
                    self._tick(),
                    self._reconcile(),
                    self._come_up(),
                    *(lane.run() for lane in self._publisher.lanes),
                ):
                    group.create_task(part)
        finally:
            self._execution.cancel()
            self._runner = None

    async def shutdown(self, *, stop_pods: bool = False) -> None:
        """End `run`, and close the runtime; with `stop_pods` end the pods' processes first, with their grace.

        The pods stay bound to the node: the next start takes them over, or starts them again.
        """
        runner = self._runner
        if runner is None:
            if stop_pods:
                await self._execution.stop_all(_DRAIN_MARGIN)
        else:
            if stop_pods:
                await self._drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._publisher.idle(), _FAREWELL)
            runner.cancel()
            await asyncio.wait([runner])
        await self._runtime.close()

    async def _drain(self) -> None:
        """Stop everything in its order; what cannot be stopped is left, and said to be."""
        longest = max((pod.plan.grace for pod in self._core.pods.values()), default=0.0) + _DRAIN_MARGIN
        self._put(messages.Drain(at=self._clock()))
        try:
            await asyncio.wait_for(self._drained.wait(), longest)
        except TimeoutError as error:
            self.reporter.malfunction("stopping the pods", error)

    # -- what happens

    def _put(self, event: Event) -> None:
        self._events.put_nowait(event)

    async def _come_up(self) -> None:
        """Register the node, learn how it is set up, then of its pods; from then on the core acts."""
        await self._heartbeat.register()
        for news in self._files.news():
            self._carry_out(news)
        if self._files.settings_fault:
            self._refuse_setting(self._files.settings_fault)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeat.run())
            await self._watch.follow(self.node_name, self, group)
            self._put(messages.Synced(at=self._clock()))
            self._ready.set()

    def _registered(self, node: registration.Registered) -> None:
        self._hear(node.labels, node.annotations)
        self._publish_topology()

    def node_changed(self, change: ObjectChange[Node]) -> None:
        """Labels and annotations of our own Node are settings, and may change at any time."""
        if change.new is not None:
            before = self._node_annotations
            self._hear(change.new.metadata.labels, change.new.metadata.annotations)
            if before != self._node_annotations:
                self._publish_topology()

    def _hear(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        """Take settings over; what cannot be meant is told once, and changes nothing."""
        known, self._node_annotations = self._settings.config, annotations
        for fault in self._settings.hear(self.ledger.machine, labels, annotations):
            self._refuse_setting(fault)
        if self._settings.config != known:
            self.reporter.configured(self._settings.config)
            self._put(messages.Configured(config=self._settings.config, at=self._clock()))

    def _refuse_setting(self, text: str) -> None:
        self.reporter.setting_refused(text)
        self._publisher.node_event("InvalidSetting", text, warning=True)

    def pod_changed(self, change: ObjectChange[RunPod]) -> None:
        """A pod of this node came, changed or went."""
        pod = change.new
        if pod is None:
            if change.old:
                self._pods.pop(change.old.metadata.uid, None)
                self._put(messages.PodGone(uid=change.old.metadata.uid, at=self._clock()))
            return
        self._pods[pod.metadata.uid] = pod
        plan = intake.plan(pod, processes=not self._identity.simulated)
        self._put(messages.PodSeen(plan=plan, at=self._clock()))

    def _host(self) -> Host:
        memory = registration.memory_offered(self.ledger)
        return Host(self.node_name, self._identity.ips, self.ledger.allocatable, memory)

    async def _listen(self, changes: AsyncIterator[ContainerStatus]) -> None:
        async for status in changes:
            if status.state == ENDED:
                self._execution.ended(status)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._put(messages.Tick(at=self._clock()))

    async def _reconcile(self) -> None:
        """Now and then look at everything: what ended unnoticed, and what the kernel allows the others."""
        while True:
            await asyncio.sleep(self._reconcile_seconds)
            try:
                await self._look_at_kubelet()
                await self._execution.look_around(self._core.roster.live())
            except (RuntimeFailure, OSError) as error:
                self.reporter.malfunction("reconcile", error)

    async def _look_at_kubelet(self) -> None:
        """Tell the core what a kubelet beside us has pinned; what cannot be read is told once."""
        if self._kubelet is None:
            return
        said = await asyncio.to_thread(self._kubelet.look)
        if said.checkpoint is not None:
            found, at = said.checkpoint, self._clock()
            self._put(messages.KubeletSaid(checkpoint=found, running=said.running, names=said.names, at=at))
        if said.fault not in ("", self._kubelet_fault):
            self.reporter.kubelet_unreadable(said.fault)
            self._publisher.node_event("KubeletStateUnreadable", said.fault, warning=True)
        self._kubelet_fault = said.fault

    # -- what is ordered

    async def _work(self) -> None:
        """Events to the core, its instructions to whom they concern; a burst of events is one batch."""
        while True:
            events = [await self._events.get()]
            while not self._events.empty() and len(events) < _BATCH:
                events.append(self._events.get_nowait())
            batch = self._core.handle(*events)
            await self._files.save_settings()
            await self._checkpoint(batch)
            for instruction in batch:
                self._carry_out(instruction)
            if self._core.drained:
                self._drained.set()

    async def _checkpoint(self, batch: list[Instruction]) -> None:
        """Write the last ledger of a batch; until that is done, nothing else is."""
        ledgers = [one.ledger for one in batch if isinstance(one, messages.Checkpoint)]
        while ledgers:
            fault = await self._files.save_ledger(ledgers[-1])
            self._disk_is(fault)
            if not fault:
                return
            await asyncio.sleep(_RETRY_CHECKPOINT)

    def _disk_is(self, fault: str) -> None:
        """Say in the Node's status, and in an event, that the ledger cannot be written, or can again."""
        halts = f"the ledger cannot be written: {fault}: until it can, no pod is started, moved or ended"
        if not self._heartbeat.disk_is(halts if fault else ""):
            return
        self._publisher.node_status(self._heartbeat.post)
        if fault:
            self._publisher.node_event("LedgerUnwritable", halts, warning=True)
        else:
            self._publisher.node_event("LedgerWritable", "the ledger can be written again", warning=False)

    def _carry_out(self, order: Instruction) -> None:
        if self._execution.carry_out(order):
            return
        match order:
            case messages.PublishTopology():
                self._publish_topology()
            case messages.Tell(uid=""):
                self._publisher.node_event(order.reason, order.message, warning=order.warning)
            case messages.PublishStatus() | messages.DeletePod() | messages.Annotate() | messages.Tell():
                pod = self._pods.get(order.uid)
                if pod is not None:
                    self._publisher.publish(pod, order, self.ledger.machine)

    def _publish_topology(self) -> None:
        self._put_topology()
        if self._heartbeat.offers_other():
            self._publisher.node_status(self._heartbeat.post)

    def _put_topology(self, *, if_damaged: bool = False) -> None:
        self._publisher.topology(
            lambda: self.ledger,
            lambda: self._heartbeat.uid,
            lambda: self._node_annotations,
            if_damaged=if_damaged,
        )

    # -- what others ask

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,
        tail_lines: int | None = None,
        since: float | None = None,
        timestamps: bool = False,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Open the log of a container's current or `previous` run; `since` in Unix seconds. Raises NoLogs."""
        run = self._core.roster.run_of(namespace, pod, container, previous=previous)
        if not run:
            missing = f'previous terminated container "{container}" in pod "{pod}" not found'
            waiting = f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
            raise NoLogs(missing if previous else waiting)
        try:
            return self._runtime.logs(
                run,
                follow=follow,
                tail_lines=tail_lines,
                since=since,
                timestamps=timestamps,
                limit_bytes=limit_bytes,
            )
        except UnknownContainer as error:
            raise NoLogs(f'the log of container "{container}" in pod "{pod}" is gone') from error
