"""The controller: watches namespaces, nodes, leases and pods, and cleans up the embedded server's cluster.

As upstream's controllers: a terminating namespace is emptied and finalized; conditions and taints of nodes
without heartbeat are set; pods, leases and topologies of deleted nodes are deleted. Its parts count the pods
of disruption budgets, and bind claims to volumes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from corelane.controller import node_health
from corelane.controller.disruption_controller import DisruptionController
from corelane.controller.volume_controller import VolumeController
from corelane.kube.client import APIError, KubeClient
from corelane.kube.disruption import PodDisruptionBudget
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.meta import Object, OwnerReference
from corelane.kube.objects import KINDS, Lease, Namespace, Node, NodeResourceTopology
from corelane.kube.pod import Pod

LEASES: Final = "kube-node-lease"
_FINALIZER: Final = "kubernetes"
_CONTENTS: Final[tuple[type[Object], ...]] = tuple(kind for kind in KINDS if kind.api.namespaced)
"""Kinds of which a namespace is emptied."""
_RETRY_SECONDS: Final = 0.5
_DEBOUNCE: Final = 0.1

T = TypeVar("T", bound=Object)


class ControllerReporter:
    """Hooks for logs and tests, empty by default; they must not raise and must not block."""

    def namespace_ended(self, name: str) -> None:
        """A terminating namespace was empty, and is deleted."""

    def node_lost(self, name: str, silent_for: float) -> None:
        """A node's agent sent no heartbeat for that many seconds."""

    def node_back(self, name: str) -> None:
        """A lost node is ready again."""

    def orphan_deleted(self, what: str) -> None:
        """An object was deleted because its node was deleted."""

    def api_failed(self, what: str, error: Exception) -> None:
        """A request failed; it is repeated later."""


class _Topology(Object, frozen=True):
    """The metadata of a NodeResourceTopology."""

    api = NodeResourceTopology.api


class Controller:
    """Housekeeping of the embedded server's cluster. `run` it until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        *,
        reporter: ControllerReporter | None = None,
        period: float = 5.0,
        clock: Callable[[], float] = time.time,
        longest_gap: float = node_health.LONGEST_GAP,
    ) -> None:
        """`period` is the time between two checks of all nodes, in seconds; `clock` gives Unix seconds.

        `longest_gap`: seconds between two checks that count at most as absence of a node.
        """
        self._client = client
        self._reporter = reporter or ControllerReporter()
        self._period = period
        self._clock = clock
        self._awake = node_health.AwakeTime(longest_gap)
        self._renewals = node_health.LeaseRenewals()
        self._missing = node_health.MissingNodes()
        self._terminating = asyncio.Event()
        self._changed = asyncio.Event()
        self._namespaces = Informer(client, Namespace, handler=self._namespace_changed)
        self._nodes = Informer(client, Node, handler=lambda _: self._changed.set())
        self._leases = Informer(client, Lease, namespace=LEASES)
        self._topologies = Informer(client, _Topology)
        self._pods = Informer(client, Pod, handler=self._pod_changed)
        self._budgets = Informer(client, PodDisruptionBudget, handler=self._budget_changed)
        self._disruptions = DisruptionController(
            client,
            lambda: self._pods.objects,
            lambda: self._budgets.objects,
            failed=self._reporter.api_failed,
            clock=clock,
        )
        self._storage = VolumeController(
            client, lambda: self._nodes.objects, failed=self._reporter.api_failed, clock=clock
        )
        self._informers: tuple[Informer[Any], ...] = (
            self._namespaces,
            self._nodes,
            self._leases,
            self._topologies,
            self._pods,
            self._budgets,
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
            group.create_task(self._disruptions.run())
            group.create_task(self._storage.run())

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        self._disruptions.pod_changed(change)
        self._storage.pod_changed(change)

    def _budget_changed(self, change: ObjectChange[PodDisruptionBudget]) -> None:
        self._disruptions.budget_changed(change)

    def _namespace_changed(self, change: ObjectChange[Namespace]) -> None:
        if change.new and _is_terminating(change.new):
            self._terminating.set()

    async def _end_namespaces(self) -> None:
        """When a namespace starts to terminate, and repeatedly while its pods do."""
        while True:
            await self._terminating.wait()
            self._terminating.clear()
            for namespace in [one for one in self._namespaces.objects.values() if _is_terminating(one)]:
                await self._attempt(f"ending namespace {namespace.title}", self._end_namespace(namespace))
            if any(map(_is_terminating, self._namespaces.objects.values())):
                await asyncio.sleep(_RETRY_SECONDS)
                self._terminating.set()

    async def _end_namespace(self, namespace: Namespace) -> None:
        if await _empty(self._client, namespace):
            self._reporter.namespace_ended(namespace.metadata.name)

    async def _watch_nodes(self) -> None:
        """Every `period`, and after a change of a node; changes in short succession count as one."""
        while True:
            self._changed.clear()
            await self.check()
            await asyncio.sleep(min(_DEBOUNCE, self._period))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period):
                    await self._changed.wait()

    async def check(self) -> None:
        """Check every node, and the objects of deleted nodes."""
        now = self._clock()
        awake = self._awake.advance(now)
        nodes = {node.metadata.name: node for node in self._nodes.objects.values()}
        self._renewals.retain(nodes)
        for name, node in nodes.items():
            self._renewals.update(name, self._leases.objects.get((LEASES, name)), awake)
            await self._attempt(f"node {name}", self._check_node(node, now, self._renewals.age(name, awake)))
        for pod in self._missing.orphans(self._pods.objects.values(), nodes, awake):
            await self._attempt(f"orphaned pod {pod.title}", self._delete_orphan(pod))
        await self._delete_outlived()

    async def _check_node(self, node: Node, now: float, silent: float) -> None:
        """Set taints and conditions of a node without heartbeat for `silent` seconds; `now` is Unix time."""
        name = node.metadata.name
        lost = silent > node_health.GRACE_SECONDS
        taints = node_health.taints(node, "Unknown" if lost else node_health.ready_status(node), now)
        if taints is not None:
            version = {"resourceVersion": node.metadata.resource_version}
            await self._client.patch(Node, name, {"metadata": version, "spec": {"taints": taints}})
            if not lost and node_health.ready_status(node) == "True":
                self._reporter.node_back(name)
        conditions = node_health.unknown_conditions(node, now) if lost else None
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

        Nodes may have been added while earlier parts of the check awaited answers.
        """
        for informer in (self._leases, self._topologies):
            uids = {node.metadata.name: node.metadata.uid for node in self._nodes.objects.values()}
            for obj in list(informer.objects.values()):
                if _outlived(obj, uids):
                    await self._attempt(
                        f"{informer.kind.api.kind} {obj.title}", self._delete(informer.kind, obj)
                    )

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

    async def _attempt(self, what: str, work: Awaitable[None]) -> None:
        """Report a failed request, which the next check repeats. A conflict or a 404 is no failure."""
        try:
            await work
        except APIError as error:
            if error.code not in (404, 409):
                self._reporter.api_failed(what, error)


def _outlived(obj: Object, uids: Mapping[str, str | None]) -> bool:
    """Whether the object belongs to Nodes of which none is left; `uids` of the nodes by name."""
    owners = _owning_nodes(obj)
    return bool(owners) and all(uids.get(owner.name) != owner.uid for owner in owners)


def _owning_nodes(obj: Object) -> list[OwnerReference]:
    return [owner for owner in obj.metadata.owner_references if owner.kind == "Node"]


# Namespaces.


def _is_terminating(namespace: Namespace) -> bool:
    """Return whether it is deleted but for its finalizer."""
    return bool(namespace.metadata.deletion_timestamp) and _FINALIZER in namespace.spec.finalizers


async def _empty(client: KubeClient, namespace: Namespace) -> bool:
    """Delete the contents of a terminating namespace; true once it is finalized. Raises APIError."""
    name = namespace.metadata.name
    held = [kind for kind in _CONTENTS if await _holds(client, kind, name)]
    if held:
        for kind in held:
            await client.raw("DELETE", kind.api.path(name))
        if [kind for kind in _CONTENTS if await _holds(client, kind, name)]:
            return False
    await _finalize(client, namespace)
    return True


async def _holds(client: KubeClient, kind: type[Object], namespace: str) -> bool:
    """Return whether objects of the kind are in the namespace; none are of a kind that is not served."""
    try:
        listing = await client.list(kind, namespace=namespace, page=1)
    except APIError as error:
        if error.code == 404:
            return False
        raise
    return bool(listing.items or listing.malformed)


async def _finalize(client: KubeClient, namespace: Namespace) -> None:
    """Remove the finalizer, so that the server deletes the namespace; a deleted one is no error."""
    remaining = [finalizer for finalizer in namespace.spec.finalizers if finalizer != _FINALIZER]
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace.metadata.name, "uid": namespace.metadata.uid},
        "spec": {"finalizers": remaining},
    }
    path = Namespace.api.path(None, namespace.metadata.name, "finalize")
    try:
        await client.raw("PUT", path, body=msgspec.json.encode(body))
    except APIError as error:
        if error.code != 404:
            raise
