"""A watch of the node's NodeResourceTopology: what others delete or damage is written again within seconds.

Only metadata is decoded, and a version that the agent's own writes left is no reason to look. Where another
program undoes each repair, the pauses between two of them grow, and that is reported once.
"""

import asyncio
from typing import ClassVar, Final

from msgspec import field

from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.clocks import Clocks
from corelane.agent.node_upkeep import NodeUpkeep
from corelane.agent.node_watch import SourceReporter
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import Source
from corelane.kube.client import KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.meta import API, BareMeta, Object, ObjectMeta
from corelane.kube.objects import NodeResourceTopology, NodeResourceTopologyV1Alpha1

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
        self, client: KubeClient, node: str, upkeep: NodeUpkeep, reporter: AgentReporter, clocks: Clocks
    ) -> None:
        self.source = Source(
            "NodeResourceTopology", self._follow, seconds=0, reporter=reporter, clock=clocks.wall
        )
        self._client = client
        self._node = node
        self._upkeep = upkeep
        self._writer = upkeep.publisher.topology_writer
        self._reporter = reporter
        self._version = ""
        """`resourceVersion` seen last, "" where the object is gone or cannot be decoded."""
        self._timer: asyncio.TimerHandle | None = None
        self._pause = FIRST_PAUSE
        self._checked_at = float("-inf")
        self._repairs_before = 0
        self._is_reported = False

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
            self._timer = asyncio.get_running_loop().call_later(self._next_pause(), self._check)

    def _next_pause(self) -> float:
        repairs = self._writer.repairs
        if asyncio.get_running_loop().time() - self._checked_at > CALM_SECONDS:
            self._pause, self._repairs_before, self._is_reported = FIRST_PAUSE, repairs, False
        is_contested = repairs - self._repairs_before >= CONTESTED
        if is_contested and not self._is_reported:
            self._is_reported = True
            self._report_contest(repairs - self._repairs_before)
        pause = self._pause = min(self._pause, LONGEST_CONTESTED if is_contested else LONGEST_PAUSE)
        self._pause *= 2
        return pause

    def _report_contest(self, repairs: int) -> None:
        command = f"kubectl get noderesourcetopology {self._node} -o yaml --show-managed-fields"
        text = (
            f"NodeResourceTopology {self._node}: another program undid {repairs} repairs in a row; "
            f"the pauses between repairs grow up to {LONGEST_CONTESTED:.0f} s; stop that program "
            f"(field managers of the object: {command})"
        )
        self._reporter.source_failed(self.source.state.name, RuntimeError(text))
        self._upkeep.event(PublishEvent("", "TopologyContested", text, True))

    def _check(self) -> None:
        self._timer = None
        if self._version != self._writer.version:
            self._checked_at = asyncio.get_running_loop().time()
            self._upkeep.publish_topology(if_damaged=True)


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
