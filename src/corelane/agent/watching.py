"""Watches of an agent's Node and of the pods bound to it.

A single agent has a watch of its own. Many agents in one process share one, so that each change is decoded
and dispatched once.
"""

import asyncio
from collections import defaultdict
from typing import Final, Protocol

from corelane.agent.pod_manifest import RunPod
from corelane.agent.reporting import AgentReporter
from corelane.kube.client import APIError, KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, InformerReporter, Key, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Node

_BOUND: Final = "spec.nodeName!="


class ChangeListener(Protocol):
    """Receiver of changes; neither method may block."""

    def node_changed(self, change: ObjectChange[Node]) -> None: ...

    def pod_changed(self, change: ObjectChange[RunPod]) -> None: ...


class WatchReporter(InformerReporter):
    """Forwards an informer's reports to the agent's reporter."""

    def __init__(self, reporter: AgentReporter) -> None:
        self._reporter = reporter

    def malformed(self, bad: Malformed) -> None:
        self._reporter.malformed(str(bad))

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self._reporter.api_failed(f"watching {kind.api.plural}", error)


class OwnWatch:
    """The informers of one agent."""

    def __init__(self, client: KubeClient, reporter: AgentReporter) -> None:
        self._client = client
        self._reporter = WatchReporter(reporter)

    async def follow(self, name: str, listener: ChangeListener, group: asyncio.TaskGroup) -> None:
        """Report the Node of that name and its pods until `group` ends; return once all pods are listed."""
        pods = Informer(
            self._client,
            RunPod,
            field_selector=f"spec.nodeName={name}",
            handler=listener.pod_changed,
            reporter=self._reporter,
        )
        node = Informer(
            self._client,
            Node,
            field_selector=f"metadata.name={name}",
            handler=listener.node_changed,
            reporter=self._reporter,
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
        self._pods = Informer(client, RunPod, field_selector=_BOUND, handler=self._pod_changed, reporter=own)
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

    def _pod_changed(self, change: ObjectChange[RunPod]) -> None:
        pod = change.new or change.old
        assert pod is not None
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
