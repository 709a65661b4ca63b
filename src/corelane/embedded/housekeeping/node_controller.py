"""Watches nodes and their leases: taints silent and cordoned nodes, deletes what deleted nodes leave.

A node is looked at when it changes, and while it is silent; an object of a node when either appears or goes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from msgspec import field

from corelane.embedded.housekeeping import node_health
from corelane.kube.client import APIError, KubeClient
from corelane.kube.informer import Informer, Key, ObjectChange
from corelane.kube.meta import BareMeta, Object, ObjectMeta, OwnerReference
from corelane.kube.objects import Lease, Node, NodeResourceTopology
from corelane.kube.pod import Pod

LEASES: Final = "kube-node-lease"
_DEBOUNCE: Final = 0.1


class NodeReporter(Protocol):
    """Hooks for logs and tests; they must not raise and must not block."""

    def node_lost(self, name: str, silent_for: float) -> None:
        """A node's agent sent no heartbeat for that many seconds."""

    def node_back(self, name: str) -> None:
        """A lost node is ready again."""

    def orphan_deleted(self, what: str) -> None:
        """An object was deleted because its node was deleted."""


class _Topology(Object, frozen=True):
    """The metadata of a NodeResourceTopology."""

    api = NodeResourceTopology.api
    metadata: ObjectMeta = field(default_factory=BareMeta)


class NodeController:
    """`run` it until cancelled, once `informers` have listed their objects."""

    def __init__(
        self,
        client: KubeClient,
        pods: Callable[[], Mapping[Key, Pod]],
        reporter: NodeReporter,
        *,
        attempt: Callable[[str, Awaitable[None]], Awaitable[None]],
        period: float = 5.0,
        clock: Callable[[], float] = time.time,
        longest_gap: float = node_health.LONGEST_GAP,
        observe: Callable[[ObjectChange[Any]], None] = lambda _: None,
    ) -> None:
        """`attempt` awaits a request and reports its failure; a later check repeats it.

        `pods` is the informer's copy, `period` the time between two checks of all nodes in seconds, `clock`
        gives Unix seconds, and `longest_gap` counts at most as absence of a node between two checks.
        `observe` gets every change that is watched here.
        """
        self._client = client
        self._pods = pods
        self._reporter = reporter
        self._attempt = attempt
        self._period = period
        self._clock = clock
        self._observe = observe
        self._awake = node_health.AwakeTime(longest_gap)
        self._renewals = node_health.LeaseRenewals()
        self._missing = node_health.MissingNodes()
        self._changed = asyncio.Event()
        self._unchecked: set[str] = set()
        """Nodes that changed since they were checked."""
        self._outlived = True
        """Whether objects of deleted nodes may be left."""
        self._nodes = Informer(client, Node, handler=self._node_changed)
        self._leases = Informer(client, Lease, handler=self._dependent_changed)
        self._topologies = Informer(client, _Topology, handler=self._dependent_changed)
        self.informers: tuple[Informer[Any], ...] = (self._nodes, self._leases, self._topologies)

    @property
    def nodes(self) -> Mapping[Key, Node]:
        """The informer's copy of the nodes."""
        return self._nodes.objects

    # -- changes

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        """A node whose heartbeat alone changed needs no look."""
        self._observe(change)
        node = change.new or change.old
        assert node is not None
        if change.new is None:
            self._outlived = True
        elif change.old is not None and node_health.same_health(change.old, change.new):
            return
        self._unchecked.add(node.metadata.name)
        self._changed.set()

    def _dependent_changed(self, change: ObjectChange[Lease] | ObjectChange[_Topology]) -> None:
        """A new object may belong to a node that was deleted before."""
        self._observe(change)
        if change.old is None:
            self._outlived = True

    # -- checks

    async def run(self) -> None:
        """Check all nodes every period, and meanwhile those that change, many changes at once."""
        while True:
            await self.check()
            end = asyncio.get_running_loop().time() + self._period
            while await self._changes_before(end):
                await asyncio.sleep(min(_DEBOUNCE, self._period))
                self._changed.clear()
                await self._check_changed()

    async def _changes_before(self, end: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                await self._changed.wait()
                return True
        return False

    async def check(self) -> None:
        """Check which nodes are silent, and what deleted nodes left."""
        now = self._clock()
        awake = self._awake.advance(now)
        nodes = {name for _, name in self._nodes.objects}
        self._renewals.retain(nodes)
        self._unchecked &= nodes
        leases = self._leases.objects
        for name in nodes:
            self._renewals.update(name, leases.get((LEASES, name)), awake)
        for name in self._renewals.older(awake - node_health.GRACE_SECONDS) | self._unchecked:
            await self._check_node(name, now, awake)
        for pod in self._missing.orphans(self._pods().values(), nodes, awake):
            await self._attempt(f"orphaned pod {pod.title}", self._delete_orphan(pod))
        await self._delete_outlived()

    async def _check_changed(self) -> None:
        now = self._clock()
        awake = self._awake.advance(now)
        for name in list(self._unchecked):
            self._renewals.update(name, self._leases.objects.get((LEASES, name)), awake)
            await self._check_node(name, now, awake)
        await self._delete_outlived()

    async def _check_node(self, name: str, now: float, awake: float) -> None:
        """Check a node; it counts as checked once nothing about it is to be written."""
        node = self._nodes.objects.get(("", name))
        silent = self._renewals.age(name, awake)
        if node is None or self._is_settled(node, now, silent):
            self._unchecked.discard(name)
        else:
            self._unchecked.add(name)
            await self._attempt(f"node {name}", self._mark(node, now, silent))

    def _is_settled(self, node: Node, now: float, silent: float) -> bool:
        taints, conditions = _due(node, now, silent)
        return taints is None and not conditions

    async def _mark(self, node: Node, now: float, silent: float) -> None:
        """Set taints and conditions of a node without heartbeat for `silent` seconds; `now` is Unix time."""
        name = node.metadata.name
        taints, conditions = _due(node, now, silent)
        if taints is not None:
            version = {"resourceVersion": node.metadata.resource_version}
            await self._client.patch(Node, name, {"metadata": version, "spec": {"taints": taints}})
            ready = not _is_lost(silent) and node_health.ready_status(node) == "True"
            if ready and node_health.is_marked(node):
                self._reporter.node_back(name)
        if conditions:
            body = {"status": {"conditions": conditions}}
            await self._client.patch(Node, name, body, kind_of_patch="strategic", subresource="status")
            self._reporter.node_lost(name, silent)

    async def _delete_orphan(self, pod: Pod) -> None:
        """Delete a pod whose node the API server, and not only the cache, no longer has."""
        if await self._node_uid(pod.spec.node_name) is not None:
            return
        meta = pod.metadata
        await self._client.delete(Pod, meta.name, namespace=meta.namespace, grace_seconds=0, uid=meta.uid)
        self._reporter.orphan_deleted(f"pod {pod.title} of node {pod.spec.node_name}")

    async def _delete_outlived(self) -> None:
        """Delete the leases and topologies of deleted nodes, judged by the nodes known now.

        They are looked for again until none is left.
        """
        if not self._outlived:
            return
        self._outlived = False
        for informer in (self._leases, self._topologies):
            uids: dict[str, str | None] = {name: node.metadata.uid for (_, name), node in self.nodes.items()}
            for obj in list(informer.objects.values()):
                if _outlived(obj, uids):
                    self._outlived = True
                    what = f"{informer.kind.api.kind} {obj.title}"
                    await self._attempt(what, self._delete(informer.kind, obj))

    async def _delete(self, kind: type[Object], obj: Object) -> None:
        """Delete an object whose nodes the API server, and not only the cache, no longer has."""
        names = {owner.name for owner in _owning_nodes(obj)}
        if not _outlived(obj, {name: await self._node_uid(name) for name in names}):
            return
        meta = obj.metadata
        await self._client.delete(kind, meta.name, namespace=meta.namespace or None, uid=meta.uid)
        self._reporter.orphan_deleted(f"{kind.api.kind} {obj.title}")

    async def _node_uid(self, name: str) -> str | None:
        """Return the UID of the API server's node of that name, None without one. Raises APIError."""
        try:
            return (await self._client.get(Node, name)).metadata.uid
        except APIError as error:
            if error.code != 404:
                raise
            return None


def _is_lost(silent: float) -> bool:
    return silent > node_health.GRACE_SECONDS


def _due(
    node: Node, now: float, silent: float
) -> tuple[list[dict[str, str]] | None, list[dict[str, Any]] | None]:
    """Return the taints and the conditions that a node is to be given; None where it has them."""
    ready = "Unknown" if _is_lost(silent) else node_health.ready_status(node)
    conditions = node_health.unknown_conditions(node, now) if _is_lost(silent) else None
    return node_health.taints(node, ready, now), conditions


def _outlived(obj: Object, uids: Mapping[str, str | None]) -> bool:
    """Whether the object belongs to Nodes of which none is left; `uids` of the nodes by name."""
    owners = _owning_nodes(obj)
    return bool(owners) and all(uids.get(owner.name) != owner.uid for owner in owners)


def _owning_nodes(obj: Object) -> list[OwnerReference]:
    return [owner for owner in obj.metadata.owner_references if owner.kind == "Node"]
