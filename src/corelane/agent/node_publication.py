"""What agents publish of their node: its topology, its condition, its events; and the settings that it sets.

A watch has what others delete or damage of the topology written again within seconds. Only metadata is
decoded, and a version that the agent's own writes left is no reason to look. Where another program undoes
each repair, the pauses between two of them grow, and that is reported once.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from msgspec import field

from corelane.agent.allocation import events
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.event_loop import Clocks
from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.stored_objects import NodeObjects
from corelane.agent.publication.topology_writer import TopologyWriter
from corelane.agent.reporting import AgentReporter
from corelane.agent.saved_state import StateFiles, excess_requests
from corelane.agent.source import Source, SourceReporter
from corelane.kube import keys, translate
from corelane.kube.client import KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.meta import API, BareMeta, Object, ObjectMeta, condition
from corelane.kube.objects import Node, NodeResourceTopology, NodeResourceTopologyV1Alpha1
from corelane.kube.translate.koordlet import KubeletReport
from corelane.machine import facts
from corelane.machine.facts import CPUFacts
from corelane.machine.model import Machine
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState, admits_alike


class NodePublication:
    """What one agent publishes of its node, by the ledger of `allocation` and the settings in effect."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        files: StateFiles,
        allocation: Allocation,
        *,
        reporter: AgentReporter,
        clocks: Clocks,
        on_this_machine: bool = True,
        objects: NodeObjects | None = None,
    ) -> None:
        self.files = files
        self.publisher = Publisher(client, name, reporter, clocks, objects)
        self.topology_writer = TopologyWriter(client, name, self.publisher, reporter, objects=objects)
        self.annotations: Mapping[str, str] = {}
        self.owner_uid = ""
        """UID of the Node, once known: the topology goes when it goes."""
        self.leased = False
        """Whether a Lease is renewed as long as the agent runs, and schedulers may judge by it."""
        self.kubelet: KubeletReport | None = None
        """What is published of a kubelet beside the agent; None where there is none."""
        self._settings_from: tuple[Mapping[str, str], Mapping[str, str], Machine] | None = None
        """What the settings in effect were made from."""
        self._node: Node | None = None
        self._ledger_fault: str | None = None
        """Why the ledger cannot be written, None before the first attempt."""
        self._has_excess = False
        """Whether requests beyond what is allocatable were reported last."""
        self._published: tuple[NodeState, Any] | None = None
        self._name = name
        self._allocation = allocation
        self._reporter = reporter
        self._clocks = clocks
        self._cpu_facts = facts.read() if on_this_machine else CPUFacts()

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
        text = excess_requests(self._allocation.ledger)
        if text and not self._has_excess:
            self._reporter.ledger_changed(text)
            self.event(PublishEvent("", "LedgerChanged", text, True))
        self._has_excess = bool(text)

    def event(self, event: PublishEvent) -> None:
        """Publish an event about the node."""
        self.publisher.event(None, event.reason, event.message, warning=event.warning)

    def apply(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> events.ConfigChanged | None:
        """Apply the Node's labels and annotations as settings; return the event if settings changed.

        An invalid setting is reported once, and changes nothing.
        """
        machine, before = self._allocation.ledger.machine, self.config
        sources = labels, annotations, machine
        if sources == self._settings_from:
            return None
        self._settings_from, self.annotations = sources, annotations
        for fault in self.files.settings.update(machine, labels, annotations):
            self.report_setting(fault)
        if self.config == before:
            return None
        self._reporter.configured(self.config)
        return events.ConfigChanged(config=self.config, **self._clocks.times())

    def report_setting(self, text: str) -> None:
        """Report an invalid setting."""
        self._reporter.setting_refused(text)
        self.publisher.event(None, "InvalidSetting", text, warning=True)

    def publish_topology(self, *, if_damaged: bool = False) -> None:
        """Write the NodeResourceTopology if what admission depends on changed, or if it was damaged.

        What was never written is not damaged: the pods may not all be known yet.
        """
        if if_damaged:
            if self.topology_writer.written.is_set():
                self.topology_writer.repair(self.topology)
            return
        ledger = self._allocation.ledger
        facts = (self.annotations, self.owner_uid, self.kubelet, self.leased)
        if self._published and self._published[1] == facts and admits_alike(self._published[0], ledger):
            return
        before, self._published = self._published, (ledger, facts)
        self.topology_writer.write(self.topology)
        if before is None or before[0].config != ledger.config:
            self.topology_writer.flush()  # rare, and pods made next are to be placed by them

    def publish_ledger_condition(self, fault: str) -> None:
        """Have the Node's condition of the ledger say so; `fault` is why it cannot be written, "" if it can.

        It is written once the Node is known, and only where its condition says otherwise: one of an earlier
        run may be there.
        """
        self._ledger_fault = fault
        if self._node is None:
            return
        present = condition(self._node.status.conditions, keys.LEDGER_WRITABLE)
        expected = ("False", fault) if fault else ("True", present.message if present else "")
        if present is None or (present.status, present.message) != expected:
            self.publisher.ledger_condition(fault, self._clocks.wall())

    def node_seen(self, node: Node) -> None:
        """Take note of the Node, and put its condition of the ledger right."""
        self._node = node
        if self._ledger_fault is not None:
            self.publish_ledger_condition(self._ledger_fault)

    def topology(self) -> dict[str, Any]:
        """Return the NodeResourceTopology of the current ledger."""
        ledger = self._allocation.ledger
        return translate.topology(
            ledger.machine,
            self._name,
            ledger,
            owner_uid=self.owner_uid,
            facts=self._cpu_facts,
            node_annotations=self.annotations,
            kubelet=self.kubelet,
            leased=self.leased,
        )

    async def idle(self, seconds: float) -> None:
        """Wait until nothing is left to write, so many seconds at most."""
        try:
            async with asyncio.timeout(seconds):
                self.topology_writer.flush()
                await self.publisher.idle()
        except TimeoutError:
            return


FIRST_PAUSE: Final = 0.5
"""Seconds between a change and the check: the answer to an own write arrives meanwhile."""
LONGEST_PAUSE: Final = 5.0
LONGEST_CONTESTED: Final = 60.0
CALM_SECONDS: Final = 120.0
"""After such a time without a check pauses are short again."""
CONTESTED: Final = 5
"""Repairs without a calm time in between, after which another program is taken to undo them."""


class TopologyMetadata(Object, frozen=True):
    """The metadata of a NodeResourceTopology."""

    api: ClassVar[API] = NodeResourceTopology.api
    metadata: ObjectMeta = field(default_factory=BareMeta)


class TopologyMetadataV1Alpha1(TopologyMetadata, frozen=True):
    """As clusters serve it that have no v1alpha2."""

    api: ClassVar[API] = NodeResourceTopologyV1Alpha1.api


class TopologyWatch:
    """Follows the object once it has been written, and has it checked after each change by others."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        publication: NodePublication,
        reporter: AgentReporter,
        clocks: Clocks,
    ) -> None:
        self.source = Source("NodeResourceTopology", seconds=0, reporter=reporter, clocks=clocks)
        self._client = client
        self._node = node
        self._publication = publication
        self._writer = publication.topology_writer
        self._reporter = reporter
        self._version = ""
        """`resourceVersion` seen last, "" where the object is gone or cannot be decoded."""
        self._timer: asyncio.TimerHandle | None = None
        self._pause = FIRST_PAUSE
        self._checked_at = float("-inf")
        self._repairs_before = 0
        self._is_reported = False

    async def run(self) -> None:
        """Follow the object until cancelled."""
        await self.source.run(self._follow)

    async def _follow(self) -> None:
        """Watch the object; what was never written is not damaged."""
        self.source.note_ok("not written yet")
        await self._writer.written.wait()
        informer = Informer(
            self._client,
            TopologyMetadata,
            field_selector=f"metadata.name={self._node}",
            handler=self._changed,
            reporter=_Reporter(self, self._reporter),
            older=TopologyMetadataV1Alpha1,
        )
        try:
            await informer.run()
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _changed(self, change: ObjectChange[TopologyMetadata]) -> None:
        self.seen(change.new.metadata.resource_version if change.new else "")

    def seen(self, version: str) -> None:
        """Have the object checked soon, unless this agent left it like that."""
        self._version = version
        if self._timer is None and version != self._writer.version:
            repairs = self._writer.repairs
            if asyncio.get_running_loop().time() - self._checked_at > CALM_SECONDS:
                self._pause, self._repairs_before, self._is_reported = FIRST_PAUSE, repairs, False
            is_contested = repairs - self._repairs_before >= CONTESTED
            if is_contested and not self._is_reported:
                self._is_reported = True
                self._report_contest(repairs - self._repairs_before)
            pause = self._pause = min(self._pause, LONGEST_CONTESTED if is_contested else LONGEST_PAUSE)
            self._pause *= 2
            self._timer = asyncio.get_running_loop().call_later(pause, self._check)

    def _report_contest(self, repairs: int) -> None:
        command = f"kubectl get noderesourcetopology {self._node} -o yaml --show-managed-fields"
        text = (
            f"NodeResourceTopology {self._node}: another program undid {repairs} repairs in a row; "
            f"the pauses between repairs grow up to {LONGEST_CONTESTED:.0f} s; stop that program "
            f"(field managers of the object: {command})"
        )
        self._reporter.source_failed(self.source.state.name, RuntimeError(text))
        self._publication.event(PublishEvent("", "TopologyContested", text, True))

    def _check(self) -> None:
        self._timer = None
        if self._version != self._writer.version:
            self._checked_at = asyncio.get_running_loop().time()
            self._publication.publish_topology(if_damaged=True)


class _Reporter(SourceReporter):
    """Has an object checked that is not there at the first list, or cannot be decoded."""

    def __init__(self, watch: TopologyWatch, reporter: AgentReporter) -> None:
        super().__init__(watch.source, reporter)
        self._watch = watch

    def listed(self, kind: type[Object], objects: int) -> None:
        super().listed(kind, objects)
        if not objects:
            self._watch.seen("")

    def malformed(self, bad: Malformed) -> None:
        self._watch.seen("")
