"""Watches of an agent's Node and of the pods bound to it.

A single agent has a watch of its own. Many agents in one process share one, so that each change is decoded
and dispatched once.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from corelane.agent.reporting import AgentReporter
from corelane.agent.source import WatchReporter
from corelane.embedded.pods.pod_manifest import RunPod
from corelane.kube.client import KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, Key, ObjectChange
from corelane.kube.objects import Node

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
