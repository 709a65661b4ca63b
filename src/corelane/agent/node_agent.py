"""The agent beside a kubelet: allocates, applies and verifies the CPUs of containers that the kubelet runs.

Everything that is read has a source of its own (see `node_sources`), and everything that is written a queue.
Ledger, runtime and kernel are compared at once: repairs wait neither for the API server nor for the
kubelet. The agent neither registers the Node, nor renews its lease, nor writes pods' statuses.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corelane.agent import agent_status
from corelane.agent.agent_lease import AgentLease
from corelane.agent.allocation import events, instructions, modes
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.instructions import Instruction
from corelane.agent.allocation.modes import Mode, ModeInputs
from corelane.agent.allocation.outbox import Drifts
from corelane.agent.allocation.records import RunCPUs
from corelane.agent.event_loop import (
    Clocks,
    EventLoop,
    EventQueue,
    KubeletReported,
    LeaseHeld,
    NodeSeen,
    StateFilesMissing,
)
from corelane.agent.execution import Execution
from corelane.agent.kubelet.kubelet_allocations import kubelet_cpusets, kubelet_report
from corelane.agent.kubelet.kubelet_pods import KubeletPods
from corelane.agent.kubelet.kubelet_sources import KubeletConnections, KubeletSources
from corelane.agent.kubelet.pod_list import AbsentPods, PodList
from corelane.agent.node_publication import NodePublication, TopologyWatch
from corelane.agent.node_sources import NodeSources
from corelane.agent.nri_handlers import NRIHandlers
from corelane.agent.reporting import AgentReporter, LogReporter
from corelane.agent.saved_state import LEDGER_FILE, StateFiles
from corelane.agent.source import AnotherAgentActs, NodeWatch
from corelane.agent.state_directory import StateDirectory
from corelane.cpuset import CPUSet
from corelane.kube.client import KubeClient
from corelane.kube.translate.koordlet import KubeletReport
from corelane.machine.model import Machine
from corelane.machine.watch import MachineWatch
from corelane.node.config import NodeConfig
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import NodeState
from corelane.reasons import Code, sentence
from corelane.runtime.base import ResourceUpdate
from corelane.runtime.cri.runtime import CRIRuntime
from corelane.runtime.nri.acting_lock import node_locks
from corelane.runtime.nri.connection import SOCKET, NRIConnection

_TICK: Final = 1.0
_LAST_WRITES: Final = 2.0
_TAKEN_FIRST: Final = (
    NodeSeen,
    LeaseHeld,
    StateFilesMissing,
    KubeletReported,
    events.ModeChanged,
)
"""Events that the others of a batch follow: those that the agent takes itself, and a mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What an operator sets. `nri` is the runtime's NRI socket, None where it is not to be used."""

    node_name: str
    state_dir: Path
    config: NodeConfig
    reconcile_seconds: float = 10.0
    read_only: bool = False
    ignore: bool = False
    nri: Path | None = SOCKET
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConnections:
    """What the agent reads and writes: `kubelet` is None where there is none, as in a test."""

    client: KubeClient
    runtime: CRIRuntime
    machine: Machine
    kubelet: KubeletConnections | None = None
    machine_watch: MachineWatch | None = None

    async def close(self) -> None:
        """Close the connections to runtime and kubelet."""
        await self.runtime.close()
        if self.kubelet is not None:
            await self.kubelet.close()


class NodeAgent:
    """One node's agent beside a kubelet; `run` it until cancelled."""

    def __init__(
        self,
        settings: AgentSettings,
        connections: AgentConnections,
        *,
        reporter: AgentReporter | None = None,
        clocks: Clocks | None = None,
        validate: bool = False,
    ) -> None:
        """Read ledger and settings. Raises OSError, NodeConfigError."""
        self.settings = settings
        self.connections = connections
        self.clocks = clocks = clocks or Clocks()
        self.reporter: AgentReporter = reporter or LogReporter(settings.node_name)
        self.queue = EventQueue()
        self.loop = EventLoop(self.queue)
        self.state = StateDirectory(settings.state_dir, self.queue, self.reporter, clocks)
        sockets = [settings.nri] if settings.nri else []
        if settings.endpoint:
            sockets.append(Path(settings.endpoint.removeprefix("unix://")))
        self.node_locks = node_locks(sockets, f"state directory {settings.state_dir}")
        # Before the files are read; while it acts, no other agent of the node does.
        self._acts = not (self.state.lock.try_acquire() or self.node_locks.try_acquire())
        self.files = StateFiles(settings.state_dir, settings.config, connections.machine, self.reporter)
        self._saved_ledger = self.files.ledger
        allocation = Allocation(
            self.files.ledger,
            reporter=self.reporter,
            validate=validate,
            follows_kubelet=connections.kubelet is not None,
        )
        self.kubelet_pods = KubeletPods(allocation)
        client, node = connections.client, settings.node_name
        self.publication = NodePublication(
            client, node, self.files, allocation, reporter=self.reporter, clocks=clocks
        )
        self.lease = AgentLease(client, node, self.queue, self.reporter, clocks)
        self.topology_watch = TopologyWatch(client, node, self.publication, self.reporter, clocks)
        self.pods = PodList(self.queue, self.publication.publisher, self.reporter, clocks)
        watch = NodeWatch(client, node, self.pods, self.queue, self.reporter, clocks)
        kubelet = KubeletSources(
            connections.kubelet,
            self.kubelet_pods,
            self.pods,
            AbsentPods(client, node, clocks),
            watch,
            self.queue,
            seconds=settings.reconcile_seconds,
            reporter=self.reporter,
            clocks=clocks,
        )
        self.sources = NodeSources(
            connections.runtime,
            self.kubelet_pods,
            kubelet,
            watch,
            self.queue,
            seconds=settings.reconcile_seconds,
            reporter=self.reporter,
            clocks=clocks,
            machine_watch=connections.machine_watch,
        )
        self._execution = Execution(connections.runtime, self.queue, reporter=self.reporter, clocks=clocks)
        self.handlers = NRIHandlers(self, connections.runtime.records, self.queue, clocks)
        self.nri = (
            NRIConnection(
                self.handlers,
                state_directory=settings.state_dir,
                socket=settings.nri,
                lock=self.state.lock,
            )
            if settings.nri
            else None
        )
        self._node_exists = asyncio.Event()
        self._settings_due = asyncio.Event()
        self.mode: Mode | None = None
        self._reported_mode = ""
        self._quotas = True
        self.started_at = clocks.wall()
        self.ledger_fault, self.ledger_fault_since = "", 0.0
        self.ordered: dict[str, CPUSet] = {}
        """CPUs ordered last, by running container."""

    @property
    def ledger(self) -> NodeState:
        """Current CPU allocation, with the phase of every entry."""
        return self.kubelet_pods.ledger

    @property
    def drifts(self) -> Drifts:
        """Containers found on other CPUs than those applied."""
        return self.kubelet_pods.allocation.recorder.drifts

    async def run(self) -> None:
        """Run until cancelled. Containers keep their CPUs.

        Of several agents of this node one acts, and the others wait. Raises OSError where the state directory
        cannot be locked, AnotherAgentActs.
        """
        await self.state.lock.acquire(self._waits)
        await self.node_locks.acquire(self._waits)
        if await self.lease.wait_for_other(self._waits) or not self._acts:
            self.files.read()  # the other agent has written them since
            self._saved_ledger = self.files.ledger
            self.kubelet_pods.allocation.start_from(self.files.ledger)
        self._acts = True
        self.files.remove_temporary()
        self.decide_mode()
        self.publication.report_start()
        # Whether the ledger can be written is published: it is written first, as it was read.
        parts = [self.loop.run(self, self.ledger), self._tick(), self._publish(), self._save_settings()]
        parts += [*self.state.parts(self.status), *self.sources.parts()]
        parts += [self.lease.run(), self.topology_watch.run()]
        if self.nri is not None:
            parts.append(self.nri.run())
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part)
        except* AnotherAgentActs:
            self._acts = False
            raise
        finally:
            self._execution.cancel()

    async def _publish(self) -> None:
        """Write what is published, once the Node is there: nothing about a node that does not exist."""
        await self._node_exists.wait()
        async with asyncio.TaskGroup() as group:
            for queue in self.publication.publisher.queues:
                group.create_task(queue.run())

    async def close(self) -> None:
        """Take a moment for the last writes, unless another agent acts by now, and close the connections."""
        await self.lease.release()
        if self._acts and self._node_exists.is_set():
            publishing = asyncio.create_task(self._publish())
            await self.publication.idle(_LAST_WRITES)
            publishing.cancel()
            await asyncio.wait([publishing])
        await self.connections.close()
        self.node_locks.release()
        self.state.lock.release()

    def _waits(self, holder: str) -> None:
        self.reporter.source_failed("another agent", RuntimeError(f"{holder}; waiting until it ends"))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self.decide_mode()  # the loop may wait for a disk that stalls
            self.queue.put(events.TimePassed(**self.clocks.times()))

    # -- what is observed, and what follows

    async def observe(self) -> None:
        """Read the kubelet's state file if it was replaced: the mode may be another one."""
        await self.sources.kubelet.refresh()
        self.decide_mode()

    def decide(self, *batch: AgentEvent) -> list[Instruction]:
        """Return what follows from events."""
        orders: list[Instruction] = []
        changes: list[AgentEvent] = [event for event in batch if isinstance(event, events.ModeChanged)]
        for event in batch:
            match event:
                case NodeSeen():
                    node = event.node
                    self.publication.owner_uid = node.metadata.uid
                    self._node_exists.set()
                    self.publication.node_seen(node)
                    changed = self.publication.apply(node.metadata.labels, node.metadata.annotations)
                    self.lease.belongs_to(node.metadata.uid)
                    self._publish_topology()
                    changes += [changed] if changed else []
                case LeaseHeld():
                    self.publication.leased = True
                    self._publish_topology()
                case StateFilesMissing():
                    self.files.settings.is_saved = False
                    orders.append(instructions.SaveLedger(self.ledger))
                case events.Pinned():
                    self.sources.overlap.pinned(event)
        if any(isinstance(event, KubeletReported | events.PodsListed) for event in batch):
            self._publish_topology()
            if self.mode is not None:
                cpusets = kubelet_cpusets(self.mode, self.ledger, self._checkpoint)
                self.publication.publisher.kubelet_cpusets(self.pods.pods.values(), cpusets)
        changes += (event for event in batch if not isinstance(event, _TAKEN_FIRST))
        return orders + self.kubelet_pods.handle(*changes)

    def runs(self) -> list[RunCPUs]:
        """Return the runs of which a process may exist."""
        return self.kubelet_pods.runs()

    @property
    def _checkpoint(self) -> Checkpoint | None:
        return self.sources.kubelet.allocations[0]

    def _kubelet_report(self) -> KubeletReport | None:
        """Return what is published of the kubelet; None without one."""
        facts = self.sources.kubelet.facts
        if facts is None or self.mode is None:
            return None
        return kubelet_report(
            self.mode,
            self.ledger,
            facts.configuration,
            self._checkpoint,
            self.pods.names(),
            allocatable=facts.resources.allocatable if facts.resources else None,
        )

    def decide_mode(self) -> None:
        """Decide what is allowed by what is known now, and report a change."""
        mode, facts = modes.decide(self._mode_inputs()), self.sources.kubelet.facts
        quotas = facts is None or facts.configuration is None or facts.configuration.cpu_cfs_quota
        if (mode, quotas) == (self.mode, self._quotas):
            return
        first, self.mode, self._quotas = self.mode is None, mode, quotas
        self.queue.put(events.ModeChanged(mode=mode, quotas=quotas, **self.clocks.times()))
        if first and mode.reasons[0].code is Code.MODE_POLICY_UNKNOWN:
            return  # nothing was read yet
        self.reporter.mode_changed(mode)
        if mode.name != self._reported_mode:
            self._reported_mode = mode.name
            text = "; ".join(map(sentence, mode.reasons))
            self.publication.event(instructions.PublishEvent("", "ModeChanged", f"mode {mode.name}: {text}"))
            self._publish_topology()

    def _mode_inputs(self) -> ModeInputs:
        facts = self.sources.kubelet.facts
        pinned, exclusive = modes.remaining(self.ledger)
        return ModeInputs(
            kubelet=facts.policies if facts else None,
            node_policy=self.publication.config.policy,
            read_only=self.settings.read_only,
            ignore=self.settings.ignore,
            pinned=pinned,
            exclusive=exclusive,
        )

    # -- what is carried out

    async def save(self, ledger: NodeState) -> str:
        """Write the ledger; return why that failed, or ""."""
        fault = await self.files.save_ledger(ledger)
        self.decide_mode()  # it may forbid by now what waits for the ledger
        if not fault:
            self._saved_ledger = ledger
        return fault

    def waits_for_ledger(self, order: Instruction) -> bool:
        """Whether an instruction changes containers."""
        return isinstance(order, instructions.Pin | instructions.AnswerCreate)

    def saved(self, fault: str) -> None:
        """Report that writing the ledger fails, or works again."""
        text = f"ledger cannot be written: {fault}; no container is moved until it can be" if fault else ""
        self.publication.publish_ledger_condition(text)
        if fault == self.ledger_fault:
            return
        worked, self.ledger_fault, self.ledger_fault_since = not self.ledger_fault, fault, self.clocks.wall()
        if fault:
            self.files.report_fault(fault)
        if worked or not fault:
            reason = "LedgerUnwritable" if fault else "LedgerWritable"
            text = text or "ledger can be written again"
            self.publication.event(instructions.PublishEvent("", reason, text, bool(fault)))

    async def batch_done(self) -> None:
        """Have changed settings saved, and decide the mode again: it depends on what the ledger holds."""
        if len(self.ordered) > len(runs := {run.id for run in self.kubelet_pods.allocation.runs()}):
            self.ordered = {run: cpus for run, cpus in self.ordered.items() if run in runs}
        self._settings_due.set()
        self.decide_mode()

    async def _save_settings(self) -> None:
        """Save changed settings until cancelled; beside the loop, which a disk that hangs is not to stop."""
        while True:
            await self._settings_due.wait()
            self._settings_due.clear()
            await self.files.save_settings()

    def carry_out(self, order: Instruction) -> None:
        """Begin to carry out an instruction."""
        if isinstance(order, instructions.Pin):
            if not self._may_pin(order.id):
                text = f"mode {self.mode.name if self.mode else 'unknown'} does not allow writing the cpuset"
                self.queue.put(events.PinFailed(id=order.id, message=text, **self.clocks.times()))
                return
            self.ordered[order.id] = order.cpus
        if self._execution.carry_out(order):
            return
        match order:
            case instructions.AnswerCreate():
                if self.handlers.answer(order) and order.placed:
                    self.sources.overlap.placed(order.placed)
            case instructions.PublishTopology():
                self._publish_topology()
            case instructions.PublishEvent(uid=""):
                self.publication.event(order)
            case instructions.PodWrite():
                pod = self.pods.pods.get(order.uid)
                if pod is not None:
                    self.publication.publisher.publish(pod, order, self.ledger.machine)

    def _may_pin(self, container_id: str) -> bool:
        """Whether the mode as it is now allows an order that was decided before."""
        allocation = self.kubelet_pods.allocation
        run = allocation.run(container_id)
        pod = allocation.pods.get(run.uid) if run else None
        return pod is None or allocation.may_write(pod, self.mode)

    def _publish_topology(self) -> None:
        self.publication.kubelet = self._kubelet_report()
        self.publication.publish_topology()

    def status(self) -> dict[str, Any]:
        """Return the status document."""
        runtime, kubelet, sources = self.connections.runtime, self.connections.kubelet, self.sources
        facts, drifts = sources.kubelet.facts, self.drifts
        drifted_at = self.clocks.wall() - (self.clocks.monotonic() - drifts.last_now)
        return agent_status.document(
            self.settings.node_name,
            running=True,
            startedAt=self.started_at,
            policy=self.publication.config.policy,
            settingsFault=self.files.settings_fault,
            mode=agent_status.of_mode(self.mode) if self.mode else None,
            kubelet=agent_status.of_kubelet(kubelet.address, facts, sources.kubelet.allocations[1])
            if kubelet and facts
            else None,
            runtime=agent_status.of_runtime(
                runtime,
                sources.runtime_version,
                self.settings.endpoint,
                events=runtime.follows_events,
                unrecorded=len(runtime.unrecorded),
            ),
            nri=agent_status.of_nri(str(self.settings.nri), self.nri.status if self.nri else None),
            sources=[
                *sources.states(),
                *(
                    source.state.plain()
                    for source in (*self.state.sources, self.lease.source, self.topology_watch.source)
                ),
            ],
            writes=agent_status.of_queues(
                self.publication.publisher.states(), self.clocks.wall(), self.started_at
            ),
            ledger={
                "path": str(self.settings.state_dir / LEDGER_FILE),
                "generation": self.ledger.generation,
                "fault": self.ledger_fault,
                "since": self.ledger_fault_since,
                "held": self.loop.held,
            },
            **agent_status.of_allocation(self.kubelet_pods.allocation, self.runs()),
            reconcile={
                "period": sources.reconcile_seconds,
                "at": sources.reconciled_at,
                "seconds": sources.reconcile_took,
            },
            drift={"count": drifts.count, "lastAt": drifted_at if drifts.count else 0.0, "last": drifts.last},
            overlap=sources.overlap.plain(),
            narrowed=sources.samples.plain(),
        )

    # -- for NRI

    def may_write(self) -> bool:
        """Whether cpusets of the kubelet's containers may be written, by all that is known now."""
        self.decide_mode()
        return self.mode is not None and self.mode.may_write_cpus(kubelet_manages=True)

    def target(self, container_id: str) -> ResourceUpdate | None:
        """Return what a running container is to have, by orders that were carried out; None if unknown.

        A quota in the shared pool is not among it: the kubelet may have changed the limit.
        """
        run = self.kubelet_pods.allocation.run(container_id)
        cpus = self.ordered.get(container_id) or run.applied if run else None
        return self.kubelet_pods.allocation.update_on(run, cpus) if run and cpus else None

    def pool(self) -> CPUSet:
        """Return the CPUs of the shared pool by the ledger on disk."""
        return self._saved_ledger.shared_pool

    def unanswered(self, what: str, why: str) -> None:
        """Report a container that starts in the shared pool: no answer was ready in time."""
        self.reporter.source_failed(f"NRI, {what}", TimeoutError(why))
        text = f"{what}: starts in the shared pool: {why}; its CPUs are applied once it runs"
        self.publication.event(instructions.PublishEvent("", "PinDelayed", text, True))

    async def find_pod(self, uid: str, seconds: float) -> bool:
        """Whether a pod or its CPUs are known, after asking the kubelet if need be."""
        return self.kubelet_pods.has_cpus(uid) or await self.sources.kubelet.find_pod(uid, seconds)

    async def refresh_kubelet(self, seconds: float) -> None:
        """Take note of a kubelet that was started with another policy."""
        await self.sources.kubelet.refresh(seconds)

    def containers_changed(self) -> None:
        """Read the containers again at once."""
        self.sources.containers_changed()
