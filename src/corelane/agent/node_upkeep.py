"""What agents of both kinds do about their node: save state, follow settings, publish the topology."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.clocks import Clocks
from corelane.agent.publication.node_objects import NodeObjects
from corelane.agent.publication.publisher import Publisher
from corelane.agent.reporting import AgentReporter
from corelane.agent.saved_state import StateFiles, excess_requests
from corelane.kube import keys, translate
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Node
from corelane.kube.translate import KubeletReport
from corelane.machine import facts
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node import NodeConfig, NodeState
from corelane.node.ledger import admits_alike


class NodeUpkeep:
    """State files, settings in effect and publications of one node. `ledger` returns the current one."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        machine: Machine,
        config: NodeConfig,
        state_dir: Path,
        *,
        ledger: Callable[[], NodeState],
        put: Callable[[AgentEvent], None],
        reporter: AgentReporter,
        clocks: Clocks,
        on_this_machine: bool = True,
        objects: NodeObjects | None = None,
    ) -> None:
        """Read ledger and settings. Raises OSError, NodeConfigError."""
        self._read_files = partial(StateFiles, state_dir, config, machine, reporter, durable=on_this_machine)
        self.read_files()
        self._given: tuple[Mapping[str, str], Mapping[str, str], Machine] | None = None
        """What the settings in effect were made from."""
        self.publisher = Publisher(client, name, reporter, clocks.wall, objects)
        self.annotations: Mapping[str, str] = {}
        self.owner_uid = ""
        """UID of the Node, once known: the topology goes when it goes."""
        self.leased = False
        """Whether a Lease is renewed as long as the agent runs, and schedulers may judge by it."""
        self.kubelet_report: Callable[[], KubeletReport | None] = lambda: None
        """What is published of a kubelet beside the agent; None where there is none."""
        self._node: Node | None = None
        self._ledger_fault: str | None = None
        """Why the ledger cannot be written, None before the first attempt."""
        self._has_excess = False
        """Whether requests beyond what is allocatable were reported last."""
        self._published: tuple[NodeState, Any] | None = None
        self._name = name
        self._ledger = ledger
        self._put = put
        self._reporter = reporter
        self._clocks = clocks
        self._cpu_facts = facts.read() if on_this_machine else CPUFacts()

    def read_files(self) -> None:
        """Read ledger and settings. Raises OSError, NodeConfigError."""
        self.files = self._read_files()

    @property
    def config(self) -> NodeConfig:
        """Settings in effect."""
        return self.files.settings.config

    def report_start(self) -> None:
        """Publish what changed since the last run, and what is wrong with the state files."""
        for event in self.files.startup_events():
            self.event(event)
        self.report_excess()
        if self.files.settings_fault:
            self.report_setting(self.files.settings_fault)

    def report_excess(self) -> None:
        """Publish once that the pods request more CPU than is allocatable, as after CPUs were taken away."""
        text = excess_requests(self._ledger())
        if text and not self._has_excess:
            self._reporter.ledger_changed(text)
            self.event(PublishEvent("", "LedgerChanged", text, True))
        self._has_excess = bool(text)

    def event(self, event: PublishEvent) -> None:
        """Publish an event about the node."""
        self.publisher.event(None, event.reason, event.message, warning=event.warning)

    def apply(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
        """Apply the Node's labels and annotations as settings; return whether annotations changed.

        An invalid setting is reported once, and changes nothing.
        """
        before, changed = self.config, annotations != self.annotations
        given = labels, annotations, self._ledger().machine
        if given == self._given:
            return False
        self._given, self.annotations = given, annotations
        for fault in self.files.settings.update(self._ledger().machine, labels, annotations):
            self.report_setting(fault)
        if self.config != before:
            self._reporter.configured(self.config)
            self._put(events.ConfigChanged(config=self.config, **self._clocks.times()))
        return changed

    def report_setting(self, text: str) -> None:
        """Report an invalid setting."""
        self._reporter.setting_refused(text)
        self.publisher.event(None, "InvalidSetting", text, warning=True)

    def publish_topology(self, *, if_damaged: bool = False) -> None:
        """Write the NodeResourceTopology if what admission depends on changed, or if it was damaged.

        What was never written is not damaged: the pods may not all be known yet.
        """
        if if_damaged:
            if self.publisher.topology_writer.written.is_set():
                self.publisher.topology(self.topology, if_damaged=True)
            return
        ledger = self._ledger()
        facts = (self.annotations, self.owner_uid, self.kubelet_report(), self.leased)
        if self._published and self._published[1] == facts and admits_alike(self._published[0], ledger):
            return
        before, self._published = self._published, (ledger, facts)
        self.publisher.topology(self.topology)
        if before is None or before[0].config != ledger.config:
            self.publisher.topology_writer.flush()  # rare, and pods made next are to be placed by them

    def publish_ledger_condition(self, fault: str) -> None:
        """Have the Node's condition of the ledger say so; `fault` is why it cannot be written, "" if it can.

        It is written once the Node is known, and only where its condition says otherwise: one of an earlier
        run may be there.
        """
        self._ledger_fault = fault
        if self._node is None:
            return
        found = condition(self._node.status.conditions, keys.LEDGER_WRITABLE)
        expected = ("False", fault) if fault else ("True", found.message if found else "")
        if found is None or (found.status, found.message) != expected:
            self.publisher.ledger_condition(fault, self._clocks.wall())

    def node_seen(self, node: Node) -> None:
        """Take note of the Node, and put its condition of the ledger right."""
        self._node = node
        if self._ledger_fault is not None:
            self.publish_ledger_condition(self._ledger_fault)

    def topology(self) -> dict[str, Any]:
        """Return the NodeResourceTopology of the current ledger."""
        ledger = self._ledger()
        return translate.topology(
            ledger.machine,
            self._name,
            ledger,
            owner_uid=self.owner_uid,
            facts=self._cpu_facts,
            node_annotations=self.annotations,
            kubelet=self.kubelet_report(),
            leased=self.leased,
        )

    async def idle(self, seconds: float) -> None:
        """Wait until nothing is left to write, so many seconds at most."""
        try:
            async with asyncio.timeout(seconds):
                await self.publisher.idle()
        except TimeoutError:
            return
