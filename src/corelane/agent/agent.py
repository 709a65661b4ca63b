"""The node agent: feeds events to the state machine, and carries out the instructions that it returns.

One task takes events from a queue. Instructions for the runtime run as tasks of their own, after the ledger
is on disk. The other tasks watch the API server, the runtime, the clock and /proc.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from corelane.agent import instructions, node_status
from corelane.agent.container_env import NodeFields
from corelane.agent.execution import ENDED, Execution
from corelane.agent.instructions import AgentEvent, Instruction
from corelane.agent.kubelet_state import KubeletStateFile
from corelane.agent.node_status import NodeIdentity
from corelane.agent.pod_admission import NodeCapacity
from corelane.agent.pod_manifest import RunPod, pod_plan
from corelane.agent.publishing import Publisher
from corelane.agent.registration import Heartbeat
from corelane.agent.reported_status import PodHost
from corelane.agent.reporting import AgentReporter, LogReporter
from corelane.agent.saved_state import StateFiles
from corelane.agent.state_machine import StateMachine
from corelane.agent.watching import OwnWatch, SharedWatch
from corelane.kube import translate
from corelane.kube.client import KubeClient
from corelane.kube.informer import ObjectChange
from corelane.kube.objects import Node
from corelane.machine import facts
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState
from corelane.runtime.base import (
    WHOLE_LOG,
    LogSelection,
    Runtime,
    RuntimeFailure,
    RuntimeStatus,
    UnknownContainer,
)

SIMULATED: Final = "simulated"
_BATCH: Final = 50
_TICK: Final = 1.0
_LAST_WRITES: Final = 2.0
_DRAIN_MARGIN: Final = 10.0
_RETRY_SAVE: Final = 2.0


class LogNotFound(LookupError):  # noqa: N818 - as LookupError
    """There is no such log; the message is the kubelet's."""


class Agent:
    """One node's agent. `run` it until cancelled; `shutdown` ends it after its last writes.

    `shutdown` closes `runtime`. State is saved in `state_dir`. `clock` returns Unix seconds. Without a shared
    `watch` the agent watches its Node and pods itself.
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
        reporter: AgentReporter | None = None,
        reconcile_seconds: float = 5.0,
        validate: bool = False,
        watch: SharedWatch | None = None,
        clock: Callable[[], float] = time.time,
        kubelet: KubeletStateFile | None = None,
    ) -> None:
        """Read ledger and settings; labels and annotations of the Node override `config`.

        CPUs pinned by a `kubelet` on this machine stay allocated until its pods end. Raises OSError,
        NodeConfigError.
        """
        self.node_name = node_name
        self.reporter = reporter or LogReporter(node_name)
        self._client = client
        self._runtime = runtime
        self._clock = clock
        self._reconcile_seconds = reconcile_seconds
        self._files = StateFiles(state_dir, config or NodeConfig(), machine, self.reporter)
        self._settings = self._files.settings
        simulated = runtime.enforcement == SIMULATED
        local = () if simulated else node_status.own_addresses()
        self._identity = NodeIdentity(
            node_name,
            simulated,
            runtime.name,
            runtime.enforcement,
            runtime.notice,
            ips=local if addresses is None else addresses,
            labels=labels or {},
        )
        self._state_machine = StateMachine(
            self._files.ledger,
            host=PodHost(self._identity.ips, runtime.name, confirms=not simulated),
            capacity=NodeCapacity(self._identity.pods, node_status.memory_for_pods(self._files.ledger)),
            reporter=self.reporter,
            validate=validate,
            follows_kubelet=kubelet is not None,
        )
        self._kubelet, self._kubelet_fault = kubelet, ""
        self._pods: dict[str, RunPod] = {}
        self._node_annotations: Mapping[str, str] = {}
        self._events: asyncio.Queue[AgentEvent] = asyncio.Queue()
        self._execution = Execution(
            client,
            runtime,
            pods=self._pods,
            ledger=lambda: self.ledger,
            node_fields=self._node_fields,
            put=self._put,
            reporter=self.reporter,
            clock=clock,
        )
        self._runner: asyncio.Task[Any] | None = None
        self._ready = asyncio.Event()
        self._drained = asyncio.Event()
        self._cpu_facts = CPUFacts() if simulated else facts.read()
        self._publisher = Publisher(client, node_name, self.reporter, clock)
        self._heartbeat = Heartbeat(
            client,
            self._identity,
            self.reporter,
            clock,
            lambda: self.ledger,
            registered=self._registered,
            reposted=lambda: self._put_topology(if_damaged=True),
        )
        self._watch = watch or OwnWatch(client, self.reporter)

    @property
    def ledger(self) -> NodeState:
        """Current CPU allocation, with the phase of every entry."""
        return self._state_machine.ledger

    def machine_changed(self, machine: Machine) -> None:
        """Fit ledger and containers to a machine whose CPUs changed."""
        self._put(instructions.MachineChanged(machine=machine, at=self._clock()))

    async def ready(self) -> None:
        """Wait until the node is registered and all its pods are listed."""
        await self._ready.wait()

    async def run(self) -> None:
        """Run until cancelled, or until `shutdown`. The pods' processes keep running after either."""
        self._runner = asyncio.current_task()
        changes = self._runtime.wait_events()
        await self._read_kubelet_state()
        self._put(instructions.ContainersListed(runs=await self._execution.inventory(), at=self._clock()))
        try:
            async with asyncio.TaskGroup() as group:
                for part in (
                    self._work(),
                    self._listen(changes),
                    self._tick(),
                    self._reconcile(),
                    self._come_up(),
                    *(queue.run() for queue in self._publisher.queues),
                ):
                    group.create_task(part)
        finally:
            self._execution.cancel()
            self._runner = None

    async def shutdown(self, *, stop_pods: bool = False) -> None:
        """End `run` and close the runtime; with `stop_pods` stop the pods first, within their grace periods.

        The pods stay bound to the node: the next start adopts their processes, or starts them again.
        """
        runner = self._runner
        if runner is None:
            if stop_pods:
                await self._execution.stop_all(_DRAIN_MARGIN)
        else:
            if stop_pods:
                await self._drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._publisher.idle(), _LAST_WRITES)
            runner.cancel()
            await asyncio.wait([runner])
        await self._runtime.close()

    async def _drain(self) -> None:
        """Stop all pods; report a timeout."""
        longest = (
            max((pod.plan.grace for pod in self._state_machine.pods.values()), default=0.0) + _DRAIN_MARGIN
        )
        self._put(instructions.DrainRequested(at=self._clock()))
        try:
            await asyncio.wait_for(self._drained.wait(), longest)
        except TimeoutError as error:
            self.reporter.malfunction("stopping the pods", error)

    # -- events

    def _put(self, event: AgentEvent) -> None:
        self._events.put_nowait(event)

    async def _come_up(self) -> None:
        """Register the node, apply its settings, list its pods; from then on the state machine acts."""
        await self._heartbeat.register()
        for event in self._files.startup_events():
            self._carry_out(event)
        if self._files.settings_fault:
            self._report_invalid_setting(self._files.settings_fault)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeat.run())
            await self._watch.follow(self.node_name, self, group)
            self._put(instructions.PodsListed(at=self._clock()))
            self._ready.set()

    def _registered(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        self._update_settings(labels, annotations)
        self._publish_topology()

    def node_changed(self, change: ObjectChange[Node]) -> None:
        """Apply the Node's labels and annotations, which are settings and may change at any time."""
        if change.new is not None:
            before = self._node_annotations
            self._update_settings(change.new.metadata.labels, change.new.metadata.annotations)
            if before != self._node_annotations:
                self._publish_topology()

    def _update_settings(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        """Apply settings; an invalid one is reported once, and changes nothing."""
        before, self._node_annotations = self._settings.config, annotations
        for fault in self._settings.update(self.ledger.machine, labels, annotations):
            self._report_invalid_setting(fault)
        if self._settings.config != before:
            self.reporter.configured(self._settings.config)
            self._put(instructions.ConfigChanged(config=self._settings.config, at=self._clock()))

    def _report_invalid_setting(self, text: str) -> None:
        self.reporter.setting_refused(text)
        self._publisher.event(None, "InvalidSetting", text, warning=True)

    def pod_changed(self, change: ObjectChange[RunPod]) -> None:
        """Report a pod of this node that was added, changed or deleted."""
        pod = change.new
        if pod is None:
            if change.old:
                self._pods.pop(change.old.metadata.uid, None)
                self._put(instructions.PodGone(uid=change.old.metadata.uid, at=self._clock()))
            return
        self._pods[pod.metadata.uid] = pod
        plan = pod_plan(pod, processes=not self._identity.simulated)
        self._put(instructions.PodSeen(plan=plan, at=self._clock()))

    def _node_fields(self) -> NodeFields:
        memory = node_status.allocatable_memory(self.ledger)
        return NodeFields(self.node_name, self._identity.ips, self.ledger.allocatable, memory)

    async def _listen(self, changes: AsyncIterator[RuntimeStatus]) -> None:
        async for status in changes:
            if status.state == ENDED:
                self._execution.ended(status)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self._put(instructions.TimePassed(at=self._clock()))

    async def _reconcile(self) -> None:
        """Compare periodically all containers with the runtime and the kernel."""
        while True:
            await asyncio.sleep(self._reconcile_seconds)
            try:
                await self._read_kubelet_state()
                await self._execution.compare(self._state_machine.index.live())
            except (RuntimeFailure, OSError) as error:
                self.reporter.malfunction("reconcile", error)

    async def _read_kubelet_state(self) -> None:
        """Report CPUs pinned by a kubelet on this machine; a fault is reported once."""
        if self._kubelet is None:
            return
        state = await asyncio.to_thread(self._kubelet.read)
        if state.checkpoint is not None:
            event = instructions.KubeletStateRead(
                checkpoint=state.checkpoint, running=state.running, names=state.names, at=self._clock()
            )
            self._put(event)
        if state.fault not in ("", self._kubelet_fault):
            self.reporter.kubelet_unreadable(state.fault)
            self._publisher.event(None, "KubeletStateUnreadable", state.fault, warning=True)
        self._kubelet_fault = state.fault

    # -- instructions

    async def _work(self) -> None:
        """Feed events to the state machine, a burst as one batch, and carry out its instructions."""
        while True:
            events = [await self._events.get()]
            while not self._events.empty() and len(events) < _BATCH:
                events.append(self._events.get_nowait())
            batch = self._state_machine.handle(*events)
            await self._files.save_settings()
            await self._save_ledger(batch)
            for instruction in batch:
                self._carry_out(instruction)
            if self._state_machine.drained:
                self._drained.set()

    async def _save_ledger(self, batch: list[Instruction]) -> None:
        """Write the last ledger of a batch; retry until that succeeds."""
        ledgers = [order.ledger for order in batch if isinstance(order, instructions.SaveLedger)]
        while ledgers:
            fault = await self._files.save_ledger(ledgers[-1])
            self._report_disk(fault)
            if not fault:
                return
            await asyncio.sleep(_RETRY_SAVE)

    def _report_disk(self, fault: str) -> None:
        """Report in the Node's status and in an event that writing the ledger fails, or succeeds again."""
        text = f"ledger cannot be written: {fault}; no pod is started, moved or stopped until it can be"
        if not self._heartbeat.set_disk_fault(text if fault else ""):
            return
        self._publisher.node_status(self._heartbeat.post)
        if fault:
            self._publisher.event(None, "LedgerUnwritable", text, warning=True)
        else:
            self._publisher.event(None, "LedgerWritable", "ledger can be written again", warning=False)

    def _carry_out(self, order: Instruction) -> None:
        if self._execution.carry_out(order):
            return
        match order:
            case instructions.PublishTopology():
                self._publish_topology()
            case instructions.PublishEvent(uid=""):
                self._publisher.event(None, order.reason, order.message, warning=order.warning)
            case instructions.PodWrite():
                pod = self._pods.get(order.uid)
                if pod is not None:
                    self._publisher.publish(pod, order, self.ledger.machine)

    def _publish_topology(self) -> None:
        self._put_topology()
        if self._heartbeat.allocatable_changed():
            self._publisher.node_status(self._heartbeat.post)

    def _put_topology(self, *, if_damaged: bool = False) -> None:
        self._publisher.topology(self._topology, if_damaged=if_damaged)

    def _topology(self) -> dict[str, Any]:
        return translate.topology(
            self.ledger.machine,
            self.node_name,
            self.ledger,
            owner_uid=self._heartbeat.uid,
            facts=self._cpu_facts,
            node_annotations=self._node_annotations,
        )

    # -- logs

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool = False,
        follow: bool = False,
        choice: LogSelection = WHOLE_LOG,
    ) -> AsyncIterator[bytes]:
        """Open the log of the current or `previous` run. Raises LogNotFound."""
        run = self._state_machine.index.run_of(namespace, pod, container, previous=previous)
        if not run:
            missing = f'previous terminated container "{container}" in pod "{pod}" not found'
            waiting = f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
            raise LogNotFound(missing if previous else waiting)
        try:
            return self._runtime.logs(run, choice, follow=follow)
        except UnknownContainer as error:
            raise LogNotFound(f'the log of container "{container}" in pod "{pod}" is gone') from error
