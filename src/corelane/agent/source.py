"""One source of an agent: read again and again, each failure with a longer pause, and its state for status.

The failure of one source stops no other; only that another agent acts ends this one. Pauses follow the
monotonic clock.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from corelane.agent.event_loop import Clocks, EventQueue, NodeSeen
from corelane.agent.kubelet.pod_list import PodList
from corelane.agent.reporting import AgentReporter
from corelane.kube.client import APIError, KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, InformerReporter, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Node
from corelane.kube.pod import Pod


class AnotherAgentActs(Exception):  # noqa: N818 - a state of affairs
    """Another agent acts for the node: this one ends, whatever source shows it."""


FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0


@dataclass(slots=True)
class SourceState:
    """What is known of a source; `since` is in Unix seconds. `retries` counts the failures in a row."""

    name: str
    state: str = "starting"
    since: float = 0.0
    error: str = ""
    retries: int = 0
    failures: int = 0
    detail: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the state with stable keys, for status."""
        return asdict(self)


class Source:
    """Reads every `seconds`; `wake` makes the next read come at once.

    With `seconds` 0 a read that returns is repeated at once: for streams, which report `note_ok` themselves.
    """

    def __init__(
        self,
        name: str,
        *,
        seconds: float,
        reporter: AgentReporter,
        clocks: Clocks,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self.state = SourceState(name, since=clocks.wall())
        self._seconds = seconds
        self._reporter = reporter
        self._clocks = clocks
        self._longest = longest_pause
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Read again now, unless a failure's pause is under way."""
        if self.state.state != "failing":
            self._wake.set()

    def note_ok(self, detail: str | None = None) -> None:
        """Record that the source works."""
        state = self.state
        if detail is not None:
            state.detail = detail
        if state.state == "failing":
            self._reporter.source_recovered(state.name, state.retries)
        if state.state != "ok":
            state.state, state.since, state.error, state.retries = "ok", self._clocks.wall(), "", 0

    def note_failure(self, error: BaseException) -> None:
        """Record that the source failed; the first failure in a row is reported."""
        state, text = self.state, str(error) or type(error).__name__
        if state.state != "failing":
            state.state, state.since = "failing", self._clocks.wall()
        if text != state.error:
            self._reporter.source_failed(state.name, error)
        state.error = text
        state.retries += 1
        state.failures += 1

    async def run(self, read: Callable[[], Awaitable[None]]) -> None:
        """Call `read` until cancelled. Raises AnotherAgentActs."""
        while True:
            self._wake.clear()
            try:
                await read()
            except AnotherAgentActs:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this source's alone
                self.note_failure(error)
                await asyncio.sleep(self._pause())
                continue
            if self._seconds:
                self.note_ok()
                await self._sleep(self._seconds)

    def _pause(self) -> float:
        longest = min(self._longest, FIRST_PAUSE * 2.0 ** min(self.state.retries - 1, 10))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


def named_count(count: int, noun: str) -> str:
    """Return "1 pod", "2 pods"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def local_source(
    name: str,
    *,
    seconds: float,
    reporter: AgentReporter,
    clocks: Clocks,
) -> Source:
    """Return a source on this node: it is cheap to ask, and so is asked again within its period."""
    longest = min(seconds or LONGEST_PAUSE, LONGEST_PAUSE)
    return Source(name, seconds=seconds, reporter=reporter, clocks=clocks, longest_pause=longest)


class NodeWatch:
    """Follows the Node always, and its pods on demand, so that a thousand agents do not watch pods."""

    def __init__(
        self,
        client: KubeClient,
        name: str,
        pods: PodList,
        queue: EventQueue,
        reporter: AgentReporter,
        clocks: Clocks,
    ) -> None:
        self._client = client
        self._name = name
        self._pods = pods
        self._queue = queue
        self._clocks = clocks
        self._reporter = reporter
        self._pods_needed = asyncio.Event()
        self._pods_not_needed = asyncio.Event()
        self.node = Source("Node", seconds=0, reporter=reporter, clocks=clocks)
        self.pods = Source("pods of the API server", seconds=0, reporter=reporter, clocks=clocks)
        self.pods.note_ok("not needed")

    @property
    def sources(self) -> list[Source]:
        return [self.node, self.pods]

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the sources' tasks."""
        yield self.node.run(self._follow_node)
        yield self.pods.run(self._follow_pods)

    def follow_pods(self, needed: bool) -> None:
        """Read pods from the API server from now on, or no more."""
        (self._pods_needed if needed else self._pods_not_needed).set()
        (self._pods_not_needed if needed else self._pods_needed).clear()

    async def _follow_node(self) -> None:
        def changed(change: ObjectChange[Node]) -> None:
            if change.new is not None:
                self.node.note_ok("1 node")
                self._queue.put(NodeSeen(node=change.new, **self._clocks.times()))

        await Informer(
            self._client,
            Node,
            field_selector=f"metadata.name={self._name}",
            handler=changed,
            reporter=_NodeReporter(self.node, self._reporter, self._name),
        ).run()

    async def _follow_pods(self) -> None:
        """Follow the node's pods for as long as the kubelet does not answer."""
        await self._pods_needed.wait()
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
            await self._pods_not_needed.wait()
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
