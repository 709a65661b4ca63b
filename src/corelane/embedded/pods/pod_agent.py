"""The agent of `corelane up`: feeds events to the state machine, carries out the instructions it returns.

One task takes events from a queue. Instructions for the runtime run as tasks of their own, after the ledger
is on disk. The other tasks watch the API server, the runtime, the clock and /proc.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from corelane.agent.allocation import events, instructions
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.instructions import Instruction, PublishEvent
from corelane.agent.event_loop import Clocks, EventLoop, EventQueue
from corelane.agent.execution import ENDED
from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.agent.node_publication import NodePublication
from corelane.agent.saved_state import StateFiles
from corelane.embedded.pods import node_status
from corelane.embedded.pods.comparison import ComparingExecution
from corelane.embedded.pods.execution import LifecycleExecution, NodeFields, StatusWriter, lost_run
from corelane.embedded.pods.lifecycle import Lifecycle, NodeCapacity
from corelane.embedded.pods.node_status import NodeIdentity
from corelane.embedded.pods.other_instances import SharedMachineAllocation
from corelane.embedded.pods.pod_manifest import RunPod, plans_alike, pod_plan
from corelane.embedded.pods.pod_steps import PodHost
from corelane.embedded.pods.records import CHANGES, DrainRequested, PodLogReporter, PodReporter
from corelane.embedded.pods.registration import Heartbeat, SharedHeartbeats
from corelane.embedded.pods.watching import OwnWatch, Reconciliation, SharedWatch
from corelane.kube import translate
from corelane.kube.client import KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import ObjectChange
from corelane.kube.objects import Node
from corelane.machine.model import Machine
from corelane.machine.watch import MachineWatch
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState
from corelane.node.recovery.unplaced import OtherContainer
from corelane.runtime.base import (
    WHOLE_LOG,
    LifecycleRuntime,
    LogSelection,
    RuntimeStatus,
    UnknownContainer,
)

_TICK: Final = 1.0
_LAST_WRITES: Final = 2.0
_DRAIN_MARGIN: Final = 10.0


class LogNotFound(LookupError):  # noqa: N818 - as LookupError
    """There is no such log; the message is the kubelet's."""


class Agent:
    """One node's agent. `run` it until cancelled; `shutdown` ends it after its last writes.

    `shutdown` closes `runtime`. State is saved in `state_dir`. Without a shared `watch` the
    agent watches its Node and pods itself.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        node_name: str,
        machine: Machine,
        runtime: LifecycleRuntime,
        config: NodeConfig | None = None,
        state_dir: Path,
        labels: Mapping[str, str] | None = None,
        addresses: tuple[str, ...] | None = None,
        reporter: PodReporter | None = None,
        reconcile_seconds: float = 5.0,
        validate: bool = False,
        watch: SharedWatch | None = None,
        clocks: Clocks | None = None,
        kubelet: KubeletStateFile | None = None,
        machine_watch: MachineWatch | None = None,
        notices: Iterable[PublishEvent] = (),
        left_running: Collection[str] = (),
        others: Callable[[], Awaitable[tuple[OtherContainer, ...]]] | None = None,
        heartbeats: SharedHeartbeats | None = None,
    ) -> None:
        """Read ledger and settings; labels and annotations of the Node override `config`.

        CPUs pinned by a `kubelet` on this machine stay allocated until its pods end; `machine_watch` reports
        CPUs that go off-line and come back. `notices` become events of the Node. `left_running` are UIDs of
        pods whose containers are left as they run although the API server does not have the pods. `others`
        looks for containers of other instances on this machine. `heartbeats` renews lease and status, with
        those of other nodes. Raises OSError, NodeConfigError.
        """
        self.node_name = node_name
        self._notices, self._left_running = tuple(notices), tuple(left_running)
        self.reporter = reporter or PodLogReporter(node_name)
        self._client = client
        self._runtime = runtime
        self._clocks = clocks = clocks or Clocks()
        capabilities = runtime.capabilities
        self._queue = EventQueue()
        self._loop = EventLoop(self._queue)
        objects = heartbeats.objects if heartbeats else None
        self._files = StateFiles(
            state_dir,
            config or NodeConfig(),
            machine,
            self.reporter,
            durable=capabilities.on_this_machine,
        )
        ledger = self._files.ledger
        allocation = SharedMachineAllocation(
            ledger, reporter=self.reporter, validate=validate, follows_kubelet=kubelet is not None
        )
        self._publication = NodePublication(
            client,
            node_name,
            self._files,
            allocation,
            reporter=self.reporter,
            clocks=clocks,
            on_this_machine=capabilities.on_this_machine,
            objects=objects,
        )
        local = node_status.own_addresses() if capabilities.on_this_machine else ()
        self._statuses = StatusWriter(client, self._publication.publisher, objects)
        self._identity = NodeIdentity(
            node_name,
            capabilities,
            runtime.name,
            runtime.enforcement,
            runtime.notice,
            ips=local if addresses is None else addresses,
            labels=labels or {},
        )
        self._state_machine = Lifecycle(
            allocation,
            host=PodHost(self._identity.ips, runtime.name, confirms=capabilities.kernel_confirms),
            capacity=NodeCapacity(self._identity.pods, node_status.memory_for_pods(ledger)),
            reporter=self.reporter,
        )
        self._pods: dict[str, RunPod] = {}
        self._execution = ComparingExecution(runtime, self._queue, reporter=self.reporter, clocks=clocks)
        self._reconciliation = Reconciliation(
            self._compare,
            reconcile_seconds,
            put=self._queue.put,
            reporter=self.reporter,
            clocks=clocks,
            warn=lambda reason, text: self._publication.publisher.event(None, reason, text, warning=True),
            kubelet=kubelet,
            machine_watch=machine_watch,
            others=others,
        )
        self._lifecycle = LifecycleExecution(
            client,
            runtime,
            pods=self._pods,
            ledger=lambda: self.ledger,
            node_fields=self._node_fields,
            put=self._queue.put,
            cpus_lost=self._reconciliation.look_at_machine,
            reporter=self.reporter,
            clocks=clocks,
        )
        self._runner: asyncio.Task[Any] | None = None
        self._ready = asyncio.Event()
        self._drained = asyncio.Event()
        self._ticks_needed = asyncio.Event()
        self._heartbeat = Heartbeat(
            client,
            self._identity,
            self.reporter,
            clocks.wall,
            lambda: self.ledger,
            registered=self._registered,
            checked=lambda: self._publication.publish_topology(if_damaged=True),
            objects=objects,
        )
        self._heartbeats = heartbeats
        self._watch = watch or OwnWatch(client, self.reporter)

    @property
    def ledger(self) -> NodeState:
        """Current CPU allocation, with the phase of every entry."""
        return self._state_machine.ledger

    async def ready(self) -> None:
        """Wait until the node is registered, all its pods are listed and its CPUs published."""
        await self._ready.wait()
        await self._publication.topology_writer.written.wait()

    async def run(self) -> None:
        """Run until cancelled, or until `shutdown`. The pods' processes keep running after either."""
        self._runner = asyncio.current_task()
        self._files.remove_temporary()
        changes = self._runtime.wait_events()
        await self._reconciliation.read_kubelet_state()
        self._queue.put(
            events.ContainersListed(runs=await self._execution.inventory(), **self._clocks.times())
        )
        await self._reconciliation.look_for_others()
        try:
            async with asyncio.TaskGroup() as group:
                for part in (
                    self._loop.run(self),
                    self._listen(changes),
                    self._tick(),
                    self._reconciliation.run(),
                    self._come_up(),
                    *(queue.run() for queue in self._publication.publisher.queues),
                ):
                    group.create_task(part)
        finally:
            if self._heartbeats is not None:
                self._heartbeats.discard(self._heartbeat)
            self._execution.cancel()
            self._lifecycle.cancel()
            self._runner = None

    async def shutdown(self, *, stop_pods: bool = False) -> None:
        """End `run` and close the runtime; with `stop_pods` stop the pods first, within their grace periods.

        The pods stay bound to the node: the next start adopts their processes, or starts them again.
        """
        runner = self._runner
        if runner is None:
            if stop_pods:
                await self._lifecycle.stop_all(_DRAIN_MARGIN)
        else:
            if stop_pods:
                graces = (pod.plan.grace for pod in self._state_machine.pods.values())
                longest = max(graces, default=0.0) + _DRAIN_MARGIN
                self._queue.put(DrainRequested(**self._clocks.times()))
                try:
                    async with asyncio.timeout(longest):
                        await self._drained.wait()
                except TimeoutError as error:
                    self.reporter.malfunction("stopping the pods", error)
            self._statuses.flush()
            await self._publication.idle(_LAST_WRITES)
            runner.cancel()
            await asyncio.wait([runner])
        await self._runtime.close()

    # -- events

    async def _come_up(self) -> None:
        """Register the node, apply its settings, list its pods; from then on the state machine acts."""
        await self._heartbeat.register()
        self._publication.report_start()
        for notice in self._notices:
            self._publication.event(notice)
        async with asyncio.TaskGroup() as group:
            if self._heartbeats is not None:
                self._heartbeats.add(self._heartbeat)
            else:
                group.create_task(self._heartbeat.run())
            await self._watch.follow(self.node_name, self, group)
            for uid in self._left_running:
                self._queue.put(events.PodUndecodable(uid=uid, **self._clocks.times()))
            self._queue.put(events.PodsListed(**self._clocks.times()))
            self._ready.set()
            await self._runtime.sweep(self._pods)

    def _registered(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        self._publication.owner_uid = self._heartbeat.uid
        self._apply(labels, annotations)
        self._publish_topology()

    def node_changed(self, change: ObjectChange[Node]) -> None:
        """Apply the Node's labels and annotations, which are settings and may change at any time."""
        if change.new:
            before = self._publication.annotations
            self._apply(change.new.metadata.labels, change.new.metadata.annotations)
            if before != self._publication.annotations:
                self._publish_topology()

    def _apply(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        if changed := self._publication.apply(labels, annotations):
            self._queue.put(changed)

    def pod_changed(self, change: ObjectChange[RunPod]) -> None:
        """Report a pod of this node that was added, changed or deleted."""
        pod = change.new
        if pod is None:
            if change.old:
                self._pods.pop(change.old.metadata.uid, None)
                self._statuses.forget(change.old.metadata.uid)
                self._publication.publisher.forget(translate.running_uid(change.old))
                self._queue.put(events.PodGone(uid=change.old.metadata.uid, **self._clocks.times()))
            return
        self._pods[pod.metadata.uid] = pod
        if change.old is not None and plans_alike(change.old, pod):
            return  # most often a status that this agent wrote
        capabilities = self._runtime.capabilities
        plan = pod_plan(pod, processes=capabilities.plain_processes, limits_memory=capabilities.memory_limits)
        self._queue.put(events.PodSeen(pod=plan, **self._clocks.times()))

    def pod_malformed(self, bad: Malformed, *, gone: bool) -> None:
        """Report a pod that cannot be decoded, or that such a pod was deleted."""
        times = self._clocks.times()
        if gone:
            self._queue.put(events.PodGone(uid=bad.uid, **times))
        else:
            self._queue.put(
                events.PodUndecodable(uid=bad.uid, namespace=bad.namespace, name=bad.name, **times)
            )

    def _node_fields(self) -> NodeFields:
        memory = node_status.allocatable_memory(self.ledger)
        return NodeFields(self.node_name, self._identity.ips, self.ledger.allocatable, memory)

    async def _listen(self, changes: AsyncIterator[RuntimeStatus]) -> None:
        async for status in changes:
            if status.state == ENDED:
                self._execution.ended(status)

    async def _tick(self) -> None:
        """Report that time passes, for as long as something waits for it."""
        while True:
            await self._ticks_needed.wait()
            await asyncio.sleep(_TICK)
            self._queue.put(events.TimePassed(**self._clocks.times()))

    async def _compare(self) -> None:
        recorded = self._state_machine.index.live()
        await self._execution.compare(lost_run(container, uid) for container, uid in recorded)

    # -- instructions

    async def observe(self) -> None:
        """Nothing is to be read before events are decided."""

    def decide(self, *batch: AgentEvent) -> list[Instruction]:
        """Return what follows from events."""
        return self._state_machine.handle(*batch)

    async def save(self, ledger: NodeState) -> str:
        """Write the ledger; return why that failed, or ""."""
        return await self._files.save_ledger(ledger)

    def waits_for_ledger(self, order: Instruction) -> bool:
        """Whether an instruction changes containers."""
        return isinstance(order, (instructions.Pin, *CHANGES))

    async def batch_done(self) -> None:
        """Save changed settings, and note that the node is drained."""
        await self._files.save_settings()
        if self._state_machine.needs_ticks or not self._files.settings.is_saved:
            self._ticks_needed.set()
        else:
            self._ticks_needed.clear()
        if self._state_machine.drained:
            self._drained.set()

    def saved(self, fault: str) -> None:
        """Report in the Node's status and in an event that writing the ledger fails, or succeeds again."""
        text = f"ledger cannot be written: {fault}; no pod is started, moved or stopped until it can be"
        if not self._heartbeat.set_disk_fault(text if fault else ""):
            return
        if fault:
            self._files.report_fault(fault)
        self._publication.publisher.node_queue.put("status of the node", self._heartbeat.post, "status")
        reason = "LedgerUnwritable" if fault else "LedgerWritable"
        text = text if fault else "ledger can be written again"
        self._publication.event(PublishEvent("", reason, text, bool(fault)))

    def carry_out(self, order: Instruction) -> None:
        """Begin to carry out an instruction."""
        if self._execution.carry_out(order) or self._lifecycle.carry_out(order):
            return
        match order:
            case instructions.PublishTopology():
                self._publish_topology()
            case instructions.PublishEvent(uid=""):
                self._publication.event(order)
            case instructions.PodWrite():
                pod = self._pods.get(order.uid)
                if pod is not None and not self._statuses.carry_out(pod, order):
                    self._publication.publisher.publish(pod, order, self.ledger.machine)

    def _publish_topology(self) -> None:
        self._publication.publish_topology()
        self._publication.report_excess()
        if self._heartbeat.allocatable_changed():
            self._publication.publisher.node_queue.put("status of the node", self._heartbeat.post, "status")

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
