"""The API server as a source: the agent's Node, and its pods while the kubelet does not name them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from corelane.agent.clocks import Clocks
from corelane.agent.pod_list import PodList
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import Source, named_count
from corelane.kube.client import APIError, KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, InformerReporter, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Node
from corelane.kube.pod import Pod


class NodeWatch:
    """Follows the Node always, and its pods on demand, so that a thousand agents do not watch pods."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        pods: PodList,
        node_changed: Callable[[Node], None],
        reporter: AgentReporter,
        clocks: Clocks,
    ) -> None:
        self._client = client
        self._name = name
        self._pods = pods
        self._node_changed = node_changed
        self._reporter = reporter
        self._wanted = asyncio.Event()
        self._unwanted = asyncio.Event()
        self.node = Source("Node", self._follow_node, seconds=0, reporter=reporter, clock=clocks.wall)
        self.pods = Source(
            "pods of the API server", self._follow_pods, seconds=0, reporter=reporter, clock=clocks.wall
        )
        self.pods.note_ok("not needed")

    @property
    def sources(self) -> list[Source]:
        return [self.node, self.pods]

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the sources' tasks."""
        yield from (source.run() for source in self.sources)

    def follow_pods(self, needed: bool) -> None:
        """Read pods from the API server from now on, or no more."""
        (self._wanted if needed else self._unwanted).set()
        (self._unwanted if needed else self._wanted).clear()

    async def _follow_node(self) -> None:
        def changed(change: ObjectChange[Node]) -> None:
            if change.new is not None:
                self.node.note_ok("1 node")
                self._node_changed(change.new)

        await Informer(
            self._client,
            Node,
            field_selector=f"metadata.name={self._name}",
            handler=changed,
            reporter=_NodeReporter(self.node, self._reporter, self._name),
        ).run()

    async def _follow_pods(self) -> None:
        """Follow the node's pods for as long as the kubelet does not answer."""
        await self._wanted.wait()
        informer = Informer(
            self._client,
            Pod,
            field_selector=f"spec.nodeName={self._name}",
            handler=self._pod_changed,
            reporter=SourceReporter(self.pods, self._reporter, self._pods),
        )
        running = asyncio.create_task(informer.run())
        listing = asyncio.create_task(self._take_list(informer))
        try:
            await self._unwanted.wait()
        finally:
            running.cancel()
            listing.cancel()
        self.pods.note_ok("not needed")

    async def _take_list(self, informer: Informer[Pod]) -> None:
        await informer.synced()
        self._pods.complete(informer.objects.values())

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        if change.new is not None:
            self._pods.put(change.new)
        elif change.old is not None:
            self._pods.deleted(change.old)


class WatchReporter(InformerReporter):
    """Forwards an informer's reports to the agent's reporter."""

    def __init__(self, reporter: AgentReporter) -> None:
        self._reporter = reporter

    def malformed(self, bad: Malformed) -> None:
        self._reporter.malformed(str(bad))

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self._reporter.api_failed(f"watching {kind.api.plural}", error)


class SourceReporter(InformerReporter):
    """Records an informer's progress as its source's state."""

    def __init__(self, source: Source, reporter: AgentReporter, pods: PodList | None = None) -> None:
        self._source = source
        self._inner = WatchReporter(reporter)
        self._pods = pods

    def malformed(self, bad: Malformed) -> None:
        if self._pods is not None and bad.uid:
            self._pods.put_malformed(bad)
        else:
            self._inner.malformed(bad)

    def listed(self, kind: type[Object], objects: int) -> None:
        self._source.note_ok(named_count(objects, kind.api.kind.lower()))

    def watching(self, kind: type[Object], objects: int) -> None:
        self.listed(kind, objects)

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self._source.note_failure(error)

    def recovered(self, kind: type[Object]) -> None:
        self._source.note_ok()


class _NodeReporter(SourceReporter):
    """Reports a Node that does not exist as a failure, with the remedy."""

    def __init__(self, source: Source, reporter: AgentReporter, name: str) -> None:
        super().__init__(source, reporter)
        self._name = name

    def listed(self, kind: type[Object], objects: int) -> None:
        if objects:
            super().listed(kind, objects)
            return
        self._source.note_failure(
            LookupError(
                f"Node {self._name} does not exist: nothing is published until it does; to act for another "
                "node, start the agent with --node-name and a name that `kubectl get nodes` lists"
            )
        )
