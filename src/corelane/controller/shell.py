"""The controller: watches namespaces, nodes, leases and pods, and now and then does what is due."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from corelane.controller import health, namespaces, orphans
from corelane.controller.reporter import ControllerReporter
from corelane.kube.client import APIError, KubeClient
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Lease, Namespace, Node, NodeResourceTopology
from corelane.kube.pod import Pod

LEASES: Final = "kube-node-lease"
_SOON: Final = 0.5
_DEBOUNCE: Final = 0.1

T = TypeVar("T", bound=Object)


class _Topology(Object, frozen=True):
    """A NodeResourceTopology as far as it matters here: whose it is."""

    api = NodeResourceTopology.api


class Controller:
    """The housekeeping that a cluster needs and that no agent can do. `run` it until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        *,
        reporter: ControllerReporter | None = None,
        period: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`period` is how often nodes are looked at, in seconds; `clock` gives Unix seconds."""
        self._client = client
        self._reporter = reporter or ControllerReporter()
        self._period = period
        self._clock = clock
        self._signs = health.Signs()
        self._missing = orphans.Missing()
        self._ending = asyncio.Event()
        self._news = asyncio.Event()
        self._namespaces = Informer(client, Namespace, handler=self._namespace_changed)
        self._nodes = Informer(client, Node, handler=lambda _: self._news.set())
        self._leases = Informer(client, Lease, namespace=LEASES)
        self._topologies = Informer(client, _Topology)
        self._pods = Informer(client, Pod)
        self._informers: tuple[Informer[Any], ...] = (
            self._namespaces,
            self._nodes,
            self._leases,
            self._topologies,
            self._pods,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            for informer in self._informers:
                await informer.synced()
            group.create_task(self._end_namespaces())
            group.create_task(self._watch_nodes())

    def _namespace_changed(self, change: ObjectChange[Namespace]) -> None:
        if change.new and namespaces.is_terminating(change.new):
            self._ending.set()

    async def _end_namespaces(self) -> None:
        """Whenever one begins to end, and soon again while its pods take their time."""
        while True:
            await self._ending.wait()
            self._ending.clear()
            for namespace in [
                one for one in self._namespaces.objects.values() if namespaces.is_terminating(one)
            ]:
                await self._attempt(f"ending namespace {namespace.title}", self._end_namespace(namespace))
            if any(namespaces.is_terminating(one) for one in self._namespaces.objects.values()):
                await asyncio.sleep(_SOON)
                self._ending.set()

    async def _end_namespace(self, namespace: Namespace) -> None:
        if await namespaces.end(self._client, namespace):
            self._reporter.namespace_ended(namespace.metadata.name)

    async def _watch_nodes(self) -> None:
        """Every `period`, and when a node has changed; many changes together are one."""
        while True:
            self._news.clear()
            await self.look()
            await asyncio.sleep(min(_DEBOUNCE, self._period))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), self._period)

    async def look(self) -> None:
        """Look at every node once, and at pods whose node is gone."""
        now = self._clock()
        nodes = {node.metadata.name: node for node in self._nodes.objects.values()}
        self._signs.keep(nodes)
        for name, node in nodes.items():
            self._signs.note(name, self._leases.objects.get((LEASES, name)), now)
            await self._attempt(f"node {name}", self._judge(node, now))
        for pod in self._missing.orphans(self._pods.objects.values(), nodes, now):
            await self._attempt(f"orphaned pod {pod.title}", self._delete_orphan(pod))
        await self._tidy(nodes)

    async def _judge(self, node: Node, now: float) -> None:
        name = node.metadata.name
        silent = self._signs.silence(name, now)
        lost = silent > health.GRACE_SECONDS
        taints = health.taints(node, "Unknown" if lost else health.is_ready(node), now)
        if taints is not None:
            version = {"resourceVersion": node.metadata.resource_version}
            await self._client.patch(Node, name, {"metadata": version, "spec": {"taints": taints}})
            if not lost and health.is_ready(node) == "True":
                self._reporter.node_back(name)
        conditions = health.unknown_conditions(node, now) if lost else None
        if conditions:
            body = {"status": {"conditions": conditions}}
            await self._client.patch(Node, name, body, kind_of_patch="strategic", subresource="status")
            self._reporter.node_lost(name, silent)

    async def _delete_orphan(self, pod: Pod) -> None:
        """Ask once more for the node, for the copies may lag; without it nobody will ever end the pod."""
        try:
            await self._client.get(Node, pod.spec.node_name)
        except APIError as error:
            if error.code != 404:
                raise
        else:
            return
        meta = pod.metadata
        await self._client.delete(Pod, meta.name, namespace=meta.namespace, grace_seconds=0, uid=meta.uid)
        self._reporter.orphan_deleted(f"pod {pod.title} of node {pod.spec.node_name}")

    async def _tidy(self, nodes: dict[str, Node]) -> None:
        """Leases and topologies that belong to a Node that is gone."""
        for informer in (self._leases, self._topologies):
            for obj in list(informer.objects.values()):
                if _outlived(obj, nodes):
                    await self._attempt(
                        f"{informer.kind.api.kind} {obj.title}", self._delete(informer.kind, obj)
                    )

    async def _delete(self, kind: type[Object], obj: Object) -> None:
        meta = obj.metadata
        await self._client.delete(kind, meta.name, namespace=meta.namespace or None, uid=meta.uid)
        self._reporter.orphan_deleted(f"{kind.api.kind} {obj.title}")

    async def _attempt(self, what: str, work: Awaitable[None]) -> None:
        """What fails is told and left for the next time; what changed or went meanwhile is no failure."""
        try:
            await work
        except APIError as error:
            if error.code not in (404, 409):
                self._reporter.api_failed(what, error)


def _outlived(obj: Object, nodes: dict[str, Node]) -> bool:
    """Whether it belongs to a Node, and that one is not there any more."""
    owners = [owner for owner in obj.metadata.owner_references if owner.kind == "Node"]
    return bool(owners) and not any(
        owner.name in nodes and nodes[owner.name].metadata.uid == owner.uid for owner in owners
    )
