"""The agent beside a kubelet: allocates, applies and verifies the CPUs of containers that the kubelet runs.

Everything that is read has a source of its own (see `node_sources`), and everything that is written a queue.
Ledger, runtime and kernel are compared at once: repairs wait neither for the API server nor for the
kubelet. The agent neither registers the Node, nor renews its lease, nor writes pods' statuses.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from corelane.agent import agent_status
from corelane.agent.agent_lease import AgentLease
from corelane.agent.allocation import events, instructions, modes
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.instructions import Instruction
from corelane.agent.allocation.modes import Mode, ModeInputs
from corelane.agent.allocation.records import NO_POD_OBJECT, RunCPUs
from corelane.agent.bound_pods import PodEvents
from corelane.agent.event_loop import Clocks, EventLoop
from corelane.agent.execution import Execution
from corelane.agent.kubelet.kubelet_allocations import kubelet_cpusets, kubelet_report
from corelane.agent.kubelet.kubelet_pods import KubeletPods
from corelane.agent.kubelet.kubelet_sources import KubeletSources
from corelane.agent.kubelet.pod_list import PodList
from corelane.agent.node_publication import NodeUpkeep, TopologyWatch
from corelane.agent.node_sources import NodeSources
from corelane.agent.node_surroundings import NodeAgentSettings, NodeSurroundings
from corelane.agent.nri_handlers import NRIHandlers
from corelane.agent.reporting import AgentReporter, DriftCounter, LogReporter, Reporters
from corelane.agent.saved_state import LEDGER_FILE
from corelane.agent.source import NodeWatch
from corelane.agent.state_directory import StateDirectory
from corelane.cpuset import CPUSet
from corelane.kube.objects import Node
from corelane.kube.translate.koordlet import KubeletReport
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import NodeState
from corelane.reasons import Code, sentence
from corelane.runtime.base import ResourceUpdate
from corelane.runtime.nri.acting_lock import node_locks
from corelane.runtime.nri.connection import NRIConnection

_TICK: Final = 1.0
_LAST_WRITES: Final = 2.0


class NodeAgent:
    """One node's agent beside a kubelet; `run` it until cancelled."""

    def __init__(
        self,
        settings: NodeAgentSettings,
        around: NodeSurroundings,
        *,
        reporter: AgentReporter | None = None,
        clocks: Clocks | None = None,
        validate: bool = False,
    ) -> None:
        """Read ledger and settings. Raises OSError, NodeConfigError."""
        self.settings = settings
        self.around = around
        self.clocks = clocks or Clocks()
        self.drifts = DriftCounter(self.clocks.wall)
        self.reporter: AgentReporter = Reporters(reporter or LogReporter(settings.node_name), self.drifts)
        self.state = StateDirectory(
            settings.state_dir, self.status, self._state_renewed, self.reporter, self.clocks.wall
        )
        sockets = [settings.nri] if settings.nri else []
        if settings.endpoint:
            sockets.append(Path(settings.endpoint.removeprefix("unix://")))
        self.node_locks = node_locks(sockets, f"state directory {settings.state_dir}")
        # Before the files are read.
        self._acts = not (self.state.lock.try_acquire() or self.node_locks.try_acquire())
        self.loop = EventLoop(self, lambda: self.refresh_kubelet())
        self.upkeep = NodeUpkeep(
            around.client,
            settings.node_name,
            around.machine,
            settings.config,
            settings.state_dir,
            ledger=lambda: self.ledger,
            put=self.put,
            reporter=self.reporter,
            clocks=self.clocks,
        )
        self.lease = AgentLease(
            around.client,
            settings.node_name,
            lambda: self.upkeep.owner_uid,
            self._announced,
            self.reporter,
            self.clocks.wall,
        )
        self.topology_watch = TopologyWatch(
            around.client, settings.node_name, self.upkeep, self.reporter, self.clocks
        )
        self._validate = validate
        self._take_saved_state()
        self._node_found = asyncio.Event()
        self.mode: Mode | None = None
        self._reported_mode = ""
        self._quotas = True
        self.upkeep.kubelet_report = self._kubelet_report
        self.pods = PodList(PodEvents(self.put, self.upkeep.publisher.forget, self.reporter, self.clocks))
        node, seconds = settings.node_name, settings.reconcile_seconds
        watch = NodeWatch(around.client, node, self.pods, self._node_changed, self.reporter, self.clocks)
        side = around.kubelet_side(node, self.kubelet_changed, self.pods, self.clocks.monotonic)
        self.sources = NodeSources(
            self,
            around.runtime,
            KubeletSources(self, side, seconds=seconds, pods=self.pods, node_watch=watch),
            seconds=seconds,
            node_watch=watch,
            machine_watch=around.machine_watch,
        )
        self.refresh_kubelet = self.sources.kubelet.refresh
        self.started_at = self.clocks.wall()
        self.ledger_fault, self.ledger_fault_since = "", 0.0
        self.ordered: dict[str, CPUSet] = {}  # last, by running container
        self._execution = Execution(
            around.runtime, around.runtime.apply, put=self.put, reporter=self.reporter, clocks=self.clocks
        )
        self.handlers = NRIHandlers(self, around.runtime.records, self.clocks, self.reporter)
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

    @property
    def ledger(self) -> NodeState:
        """Current CPU allocation, with the phase of every entry."""
        return self.machine.ledger

    async def run(self) -> None:
        """Run until cancelled. Containers keep their CPUs.

        Of several agents of this node one acts, and the others wait. Raises OSError where the state directory
        cannot be locked, StateDirectoryTaken.
        """
        await self.state.lock.acquire(self._waits)
        await self.node_locks.acquire(self._waits)
        if await self.lease.wait_for_other(self._waits) or not self._acts:
            self.upkeep.read_files()  # the other agent has written them since
            self._take_saved_state()
        self.upkeep.files.remove_temporary()
        self.decide_mode()
        self.upkeep.report_start()
        self.loop.save_again(self.ledger)  # whether it can be written is published
        parts = [self.loop.run(), self._tick(), *self.state.parts(), *self.sources.parts()]
        parts.append(self._publish())
        parts += [self.lease.source.run(), self.topology_watch.source.run()]
        if self.nri is not None:
            parts.append(self.nri.run())
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part)
        finally:
            self._execution.cancel()

    async def _publish(self) -> None:
        """Write what is published, once the Node is there: nothing about a node that does not exist."""
        await self._node_found.wait()
        async with asyncio.TaskGroup() as group:
            for queue in self.upkeep.publisher.queues:
                group.create_task(queue.run())

    async def close(self) -> None:
        """Wait a moment for the last writes, and close the runtime's connection."""
        await self.lease.release()
        if self._node_found.is_set():
            await self.upkeep.idle(_LAST_WRITES)
        await self.around.close()
        self.node_locks.release()
        self.state.lock.release()

    def _take_saved_state(self) -> None:
        """Start from the ledger as it is on disk."""
        self._saved_ledger = self.upkeep.files.ledger
        self.machine = KubeletPods(
            Allocation(
                self._saved_ledger,
                reporter=self.reporter,
                validate=self._validate,
                follows_kubelet=self.around.kubelet is not None,
            )
        )

    def _state_renewed(self) -> None:
        """Write everything again: the state directory was deleted, and made anew."""
        self.loop.save_again(self.ledger)
        self.upkeep.files.settings.is_saved = False

    def _announced(self) -> None:
        """Have schedulers judge the node by its Lease from now on."""
        self.upkeep.leased = True
        self.upkeep.publish_topology()

    def _waits(self, holder: str) -> None:
        self.reporter.source_failed("another agent", RuntimeError(f"{holder}; waiting until it ends"))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            self.put(events.TimePassed(**self.clocks.times()))

    # -- events

    def put(self, event: AgentEvent) -> None:
        """Queue an event for the allocation."""
        if isinstance(event, events.Pinned):
            self.sources.overlap.pinned(event)
        self.loop.put(event)

    def runs(self) -> list[RunCPUs]:
        """Return the runs of which a process may exist."""
        return [run for run in self.machine.allocation.runs() if not run.creating]

    def allocated_pods(self) -> dict[str, str]:
        """Return `namespace/name` by UID of the pods that the ledger has, and that have an object."""
        unlisted = {pod.uid for pod in self.machine.pods.values() if pod.unplaced is NO_POD_OBJECT}
        return {one.uid: one.pod for one in self.ledger.entries.values() if one.uid not in unlisted}

    def _node_changed(self, node: Node) -> None:
        """Apply the Node's labels and annotations, which are settings and may change at any time."""
        known, self.upkeep.owner_uid = self.upkeep.owner_uid, node.metadata.uid
        self._node_found.set()
        self.upkeep.node_seen(node)
        changed = self.upkeep.apply(node.metadata.labels, node.metadata.annotations)
        if known != node.metadata.uid:
            self.lease.source.wake()
        if changed or known != node.metadata.uid:
            self.upkeep.publish_topology()

    def kubelet_changed(self) -> None:
        """Decide again what is allowed, and publish what the kubelet says."""
        self.decide_mode()
        self.upkeep.publish_topology()
        self.publish_kubelet_cpusets()

    def publish_kubelet_cpusets(self) -> None:
        """Write the CPUs that the kubelet gave containers to its pods, where they differ."""
        if self.mode is not None:
            cpusets = kubelet_cpusets(self.mode, self.ledger, self._checkpoint)
            self.upkeep.publisher.kubelet_cpusets(self.pods.pods.values(), cpusets)

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
        self.put(events.ModeChanged(mode=mode, quotas=quotas, **self.clocks.times()))
        if first and mode.reasons[0].code is Code.MODE_POLICY_UNKNOWN:
            return  # nothing was read yet
        self.reporter.mode_changed(mode)
        if mode.name != self._reported_mode:
            self._reported_mode = mode.name
            text = "; ".join(map(sentence, mode.reasons))
            self.upkeep.event(instructions.PublishEvent("", "ModeChanged", f"mode {mode.name}: {text}"))
            self.upkeep.publish_topology()

    def _mode_inputs(self) -> ModeInputs:
        facts = self.sources.kubelet.facts
        pinned, exclusive = modes.remaining(self.ledger)
        return ModeInputs(
            kubelet=facts.policies if facts else None,
            node_policy=self.upkeep.config.policy,
            read_only=self.settings.read_only,
            ignore=self.settings.ignore,
            pinned=pinned,
            exclusive=exclusive,
        )

    # -- the loop's owner

    def handle(self, *batch: AgentEvent) -> list[Instruction]:
        """Return what follows from events."""
        return self.machine.handle(*batch)

    async def save(self, ledger: NodeState) -> str:
        """Write the ledger; return why that failed, or ""."""
        fault = await self.upkeep.files.save_ledger(ledger)
        if not fault:
            self._saved_ledger = ledger
        return fault

    def waits_for_ledger(self, order: Instruction) -> bool:
        """Whether an instruction changes containers."""
        return isinstance(order, instructions.Pin | instructions.AnswerCreate)

    def saved(self, fault: str) -> None:
        """Report that writing the ledger fails, or works again."""
        text = f"ledger cannot be written: {fault}; no container is moved until it can be" if fault else ""
        self.upkeep.publish_ledger_condition(text)
        if fault == self.ledger_fault:
            return
        worked, self.ledger_fault, self.ledger_fault_since = not self.ledger_fault, fault, self.clocks.wall()
        if worked or not fault:
            reason = "LedgerUnwritable" if fault else "LedgerWritable"
            text = text or "ledger can be written again"
            self.upkeep.event(instructions.PublishEvent("", reason, text, bool(fault)))

    async def batch_done(self) -> None:
        """Save changed settings, and decide the mode again: it depends on what the ledger holds."""
        if len(self.ordered) > len(runs := {run.id for run in self.machine.allocation.runs()}):
            self.ordered = {run: cpus for run, cpus in self.ordered.items() if run in runs}
        await self.upkeep.files.save_settings()
        self.decide_mode()

    def carry_out(self, order: Instruction) -> None:
        """Begin to carry out an instruction."""
        if isinstance(order, instructions.Pin):
            self.ordered[order.id] = order.cpus
        if self._execution.carry_out(order):
            return
        match order:
            case instructions.AnswerCreate():
                if self.handlers.answer(order) and order.placed:
                    self.sources.overlap.placed(order.placed)
            case instructions.PublishTopology():
                self.upkeep.publish_topology()
            case instructions.PublishEvent(uid=""):
                self.upkeep.event(order)
            case instructions.PodWrite():
                pod = self.pods.pods.get(order.uid)
                if pod is not None:
                    self.upkeep.publisher.publish(pod, order, self.ledger.machine)

    def status(self) -> dict[str, Any]:
        """Return the status document."""
        runtime, sources, facts = self.around.runtime, self.sources, self.sources.kubelet.facts
        return agent_status.document(
            self.settings.node_name,
            running=True,
            startedAt=self.started_at,
            policy=self.upkeep.config.policy,
            settingsFault=self.upkeep.files.settings_fault,
            mode=agent_status.of_mode(self.mode) if self.mode else None,
            kubelet=agent_status.of_kubelet(
                self.around.kubelet_address, facts, sources.kubelet.allocations[1]
            )
            if facts
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
                self.upkeep.publisher.states(), self.clocks.wall(), self.started_at
            ),
            ledger={
                "path": str(self.settings.state_dir / LEDGER_FILE),
                "generation": self.ledger.generation,
                "fault": self.ledger_fault,
                "since": self.ledger_fault_since,
                "held": self.loop.held,
            },
            **agent_status.of_allocation(self.machine.allocation, self.runs()),
            reconcile={
                "period": sources.reconcile_seconds,
                "at": sources.reconciled_at,
                "seconds": sources.reconcile_took,
            },
            drift={"count": self.drifts.count, "lastAt": self.drifts.last_at, "last": self.drifts.last},
            overlap=sources.overlap.plain(),
            narrowed=sources.samples.plain(),
        )

    # -- for NRI

    def may_write(self) -> bool:
        """Whether cpusets of the kubelet's containers may be written."""
        return self.mode is not None and self.mode.may_write_cpus(kubelet_manages=True)

    def target(self, container_id: str) -> ResourceUpdate | None:
        """Return what a running container is to have, by orders that were carried out; None if unknown.

        A quota in the shared pool is not among it: the kubelet may have changed the limit.
        """
        run = self.machine.allocation.run(container_id)
        cpus = self.ordered.get(container_id) or run.applied if run else None
        return self.machine.allocation.update_on(run, cpus) if run and cpus else None

    def pool(self) -> CPUSet:
        """Return the CPUs of the shared pool by the ledger on disk."""
        return self._saved_ledger.shared_pool

    def unanswered(self, what: str, why: str) -> None:
        """Report a container that starts in the shared pool: no answer was ready in time."""
        self.reporter.source_failed(f"NRI, {what}", TimeoutError(why))
        text = f"{what}: starts in the shared pool: {why}; its CPUs are applied once it runs"
        self.upkeep.event(instructions.PublishEvent("", "PinDelayed", text, True))

    async def find_pod(self, uid: str, seconds: float) -> bool:
        """Whether a pod or its CPUs are known, after asking the kubelet if need be."""
        if any(entry.cpus for entry in self.ledger.of_pod(uid)):
            return True
        return await self.sources.kubelet.find_pod(uid, seconds)

    def containers_changed(self) -> None:
        """Read the containers again at once."""
        self.sources.containers_changed()
