"""Watches of an agent's Node and its pods, and the periodic comparison of what the agent has recorded.

A single agent has a watch of its own. Many agents in one process share one, so that each change is decoded
and dispatched once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.event_loop import Clocks
from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import WatchReporter
from corelane.embedded.pods.other_instances import OthersSeen
from corelane.embedded.pods.pod_manifest import RunPod
from corelane.kube.client import KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, Key, ObjectChange
from corelane.kube.objects import Node
from corelane.machine.watch import MachineWatch
from corelane.node.recovery.unplaced import OtherContainer

_BOUND: Final = "spec.nodeName!="


class ChangeListener(Protocol):
    """Receiver of changes; neither method may block."""

    def node_changed(self, change: ObjectChange[Node]) -> None: ...

    def pod_changed(self, change: ObjectChange[RunPod]) -> None: ...

    def pod_malformed(self, bad: Malformed, *, gone: bool) -> None: ...


class PodWatchReporter(WatchReporter):
    """Forwards malformed pods to a listener, too."""

    def __init__(self, reporter: AgentReporter, listen: Callable[[Malformed, bool], None]) -> None:
        super().__init__(reporter)
        self._listen = listen

    def malformed(self, bad: Malformed) -> None:
        super().malformed(bad)
        self._listen(bad, False)

    def malformed_gone(self, bad: Malformed) -> None:
        self._listen(bad, True)


class OwnWatch:
    """The informers of one agent."""

    def __init__(self, client: KubeClient, reporter: AgentReporter) -> None:
        self._client = client
        self._reporter = reporter

    async def follow(self, name: str, listener: ChangeListener, group: asyncio.TaskGroup) -> None:
        """Report the Node of that name and its pods until `group` ends; return once all pods are listed."""
        pods = Informer(
            self._client,
            RunPod,
            field_selector=f"spec.nodeName={name}",
            handler=listener.pod_changed,
            reporter=PodWatchReporter(
                self._reporter, lambda bad, gone: listener.pod_malformed(bad, gone=gone)
            ),
        )
        node = Informer(
            self._client,
            Node,
            field_selector=f"metadata.name={name}",
            handler=listener.node_changed,
            reporter=WatchReporter(self._reporter),
        )
        group.create_task(pods.run())
        group.create_task(node.run())
        await pods.synced()


class SharedWatch:
    """The informers that many agents share; `run` it until cancelled."""

    def __init__(self, client: KubeClient, reporter: AgentReporter, *, nodes: str) -> None:
        """`nodes` is a label selector of the agents' Nodes."""
        own = WatchReporter(reporter)
        self._listeners: dict[str, ChangeListener] = {}
        self._by_node: dict[str, dict[Key, RunPod]] = defaultdict(dict)
        self._malformed: dict[Key, Malformed] = {}
        of_pods = PodWatchReporter(reporter, self._pod_malformed)
        self._pods = Informer(
            client, RunPod, field_selector=_BOUND, handler=self._pod_changed, reporter=of_pods
        )
        self._nodes = Informer(client, Node, label_selector=nodes, handler=self._node_changed, reporter=own)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._nodes.run())

    async def follow(self, name: str, listener: ChangeListener, _group: asyncio.TaskGroup) -> None:
        """Report the Node of that name and its pods from now on; return once all pods are listed."""
        await self._pods.synced()
        self._listeners[name] = listener
        if node := self._nodes.objects.get(("", name)):
            listener.node_changed(ObjectChange(None, node))
        for pod in list(self._by_node[name].values()):
            listener.pod_changed(ObjectChange(None, pod))
        for bad in self._malformed.values():
            listener.pod_malformed(bad, gone=False)

    def _pod_malformed(self, bad: Malformed, gone: bool) -> None:
        """Report a malformed pod to every agent: its node is not known, but its UID is."""
        if gone:
            self._malformed.pop(bad.key, None)
        else:
            self._malformed[bad.key] = bad
        for listener in self._listeners.values():
            listener.pod_malformed(bad, gone=gone)

    def _pod_changed(self, change: ObjectChange[RunPod]) -> None:
        pod = change.new or change.old
        assert pod is not None
        self._malformed.pop(pod.key, None)
        pods = self._by_node[pod.spec.node_name]
        if change.new is None:
            pods.pop(pod.key, None)
        else:
            pods[pod.key] = change.new
        if listener := self._listeners.get(pod.spec.node_name):
            listener.pod_changed(change)

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        listener = self._listeners.get(change.new.metadata.name) if change.new else None
        if listener:
            listener.node_changed(change)


class Reconciliation:
    """Reports differences as events, by `put`; each step is tried again in the next period."""

    def __init__(
        self,
        compare: Callable[[], Awaitable[None]],
        seconds: float,
        *,
        put: Callable[[AgentEvent], None],
        reporter: AgentReporter,
        clocks: Clocks,
        warn: Callable[[str, str], None],
        kubelet: KubeletStateFile | None = None,
        machine_watch: MachineWatch | None = None,
        others: Callable[[], Awaitable[tuple[OtherContainer, ...]]] | None = None,
    ) -> None:
        """`compare` compares the containers; `warn` makes an event of the Node from reason and text.

        The other three are looked at where they are given.
        """
        self._compare = compare
        self._seconds = seconds
        self._put = put
        self._reporter = reporter
        self._clocks = clocks
        self._warn = warn
        self._kubelet, self._kubelet_fault = kubelet, ""
        self._machine_watch, self._machine_lock = machine_watch, asyncio.Lock()
        self._others = others

    async def run(self) -> None:
        """Compare in every period, until cancelled; errors are reported."""
        steps = (self.look_at_machine, self.read_kubelet_state, self.look_for_others, self._compare)
        while True:
            await asyncio.sleep(self._seconds)
            for step in steps:
                try:
                    await step()
                except Exception as error:  # noqa: BLE001 - reported; the next period tries again
                    self._reporter.malfunction("reconcile", error)

    async def look_at_machine(self) -> None:
        """Report CPUs that went off-line, or came back."""
        if self._machine_watch is not None:
            async with self._machine_lock:
                machine = await asyncio.to_thread(self._machine_watch.changed)
            if machine is not None:
                self._put(events.MachineChanged(machine=machine, **self._clocks.times()))

    async def look_for_others(self) -> None:
        """Report the containers of other instances on this machine."""
        if self._others is not None:
            self._put(OthersSeen(containers=await self._others(), **self._clocks.times()))

    async def read_kubelet_state(self) -> None:
        """Report CPUs pinned by a kubelet on this machine; a fault is reported once."""
        if self._kubelet is None:
            return
        state = await asyncio.to_thread(self._kubelet.read)
        if state.checkpoint is not None:
            event = events.KubeletStateRead(
                checkpoint=state.checkpoint, running=state.running, names=state.names, **self._clocks.times()
            )
            self._put(event)
        if state.fault not in ("", self._kubelet_fault):
            self._reporter.kubelet_unreadable(state.fault)
            self._warn("KubeletStateUnreadable", state.fault)
        self._kubelet_fault = state.fault
