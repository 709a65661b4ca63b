"""What an agent hears from the API server: of its Node, and of the pods that are bound to it.

An agent alone watches both itself. Of a thousand agents in one process each would be offered the changes of
all nodes and pods; they share one watch of either.
"""

import asyncio
from collections import defaultdict
from typing import Final, Protocol

from corelane.agent.manifest import RunPod
from corelane.agent.reporter import Reporter
from corelane.kube.client import APIError, KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, InformerReporter, Key, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Node

_BOUND: Final = "spec.nodeName!="


class Listener(Protocol):
    """An agent, as far as it is told of changes; neither method may block."""

    def node_changed(self, change: ObjectChange[Node]) -> None: ...

    def pod_changed(self, change: ObjectChange[RunPod]) -> None: ...


class Listening(InformerReporter):
    """What an informer has to say, to the agent's reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def malformed(self, bad: Malformed) -> None:
        self._reporter.malformed(str(bad))

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self._reporter.api_failed(f"watching {kind.api.plural}", error)


class OwnWatch:
    """One agent's informers."""

    def __init__(self, client: KubeClient, reporter: Reporter) -> None:
        self._client = client
        self._reporter = Listening(reporter)

    async def follow(self, name: str, listener: Listener, group: asyncio.TaskGroup) -> None:
        """Tell of the Node of that name and its pods until `group` ends; returns once all pods are told."""
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
    """The informers of many agents; `run` it until cancelled."""

    def __init__(self, client: KubeClient, reporter: Reporter, *, nodes: str) -> None:
        """`nodes` is a label selector of the Nodes whose agents share it."""
        told = Listening(reporter)
        self._listeners: dict[str, Listener] = {}
        self._by_node: dict[str, dict[Key, RunPod]] = defaultdict(dict)
        self._pods = Informer(client, RunPod, field_selector=_BOUND, handler=self._pod_changed, reporter=told)
        self._nodes = Informer(client, Node, label_selector=nodes, handler=self._node_changed, reporter=told)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._nodes.run())

    async def follow(self, name: str, listener: Listener, _group: asyncio.TaskGroup) -> None:
        """Tell of the Node of that name and its pods from now on; returns once all pods are told."""
        await self._pods.synced()
        self._listeners[name] = listener
        if node := self._nodes.objects.get(("", name)):
            listener.node_changed(ObjectChange(None, node))
        for pod in list(self._by_node[name].values()):
            listener.pod_changed(ObjectChange(None, pod))

    def _pod_changed(self, change: ObjectChange[RunPod]) -> None:
        known = change.new or change.old
        assert known is not None
        pods = self._by_node[known.spec.node_name]
        if change.new is None:
            pods.pop(known.key, None)
        else:
            pods[known.key] = change.new
        if listener := self._listeners.get(known.spec.node_name):
            listener.pod_changed(change)

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        listener = self._listeners.get(change.new.metadata.name) if change.new else None
        if listener:
            listener.node_changed(change)
