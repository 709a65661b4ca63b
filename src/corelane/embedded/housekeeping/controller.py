"""The controller: watches namespaces, nodes, leases and pods, and cleans up the embedded server's cluster.

As upstream's controllers: a terminating namespace is emptied and finalized; conditions and taints of nodes
without heartbeat are set; pods, leases and topologies of deleted nodes are deleted. Its parts count the pods
of disruption budgets, and delete what belongs to deleted objects.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from msgspec.json import encode

from corelane.embedded.apiserver.served_kinds import by_path
from corelane.embedded.housekeeping import node_controller
from corelane.embedded.housekeeping.disruption_budgets import DisruptionController
from corelane.embedded.housekeeping.garbage_collector import GarbageCollector
from corelane.embedded.housekeeping.node_controller import NodeController, NodeReporter
from corelane.kube.client import APIError, KubeClient
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import KINDS, Lease, Namespace, Node, NodeResourceTopology, PodDisruptionBudget
from corelane.kube.pod import Pod

_FINALIZER: Final = "kubernetes"
_CONTENTS: Final[tuple[type[Object], ...]] = tuple(
    kind
    for kind in KINDS
    if kind.api.namespaced and by_path(kind.api.group, kind.api.version, kind.api.plural)
)
"""Kinds of which a namespace is emptied."""
_WATCHED: Final[tuple[type[Object], ...]] = (
    Lease,
    Namespace,
    Node,
    NodeResourceTopology,
    Pod,
    PodDisruptionBudget,
)
"""Kinds whose changes the garbage collector gets from the others' watches."""
_RETRY_SECONDS: Final = 0.5

T = TypeVar("T", bound=Object)


class ControllerReporter(NodeReporter):
    """Hooks of all parts."""

    def namespace_ended(self, name: str) -> None:
        """A terminating namespace was empty, and is deleted."""

    def api_failed(self, what: str, error: Exception) -> None:
        """A request failed; it is repeated later."""


class Controller:
    """Housekeeping of the embedded server's cluster. `run` it until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        *,
        reporter: ControllerReporter | None = None,
        period: float = 5.0,
        clock: Callable[[], float] = time.time,
        longest_gap: float = node_controller.LONGEST_GAP,
    ) -> None:
        """`period` is the time between two checks of all nodes, in seconds; `clock` gives Unix seconds.

        `longest_gap`: seconds between two checks that count at most as absence of a node.
        """
        self._client = client
        self._reporter = reporter or ControllerReporter()
        self._terminating = asyncio.Event()
        self._garbage = GarbageCollector(client, _WATCHED, failed=self._reporter.api_failed)
        self._namespaces = Informer(client, Namespace, handler=self._namespace_changed)
        self._pods = Informer(client, Pod, handler=self._pod_changed)
        self._budgets = Informer(client, PodDisruptionBudget, handler=self._budget_changed)
        self._disruptions = DisruptionController(
            client,
            self._pods,
            self._budgets,
            failed=self._reporter.api_failed,
            clock=clock,
        )
        self._nodes = NodeController(
            client,
            self._pods,
            self._reporter,
            attempt=self._attempt,
            period=period,
            clock=clock,
            longest_gap=longest_gap,
            observe=self._garbage.changed,
        )
        self._informers: tuple[Informer[Any], ...] = (
            self._namespaces,
            *self._nodes.informers,
            self._pods,
            self._budgets,
            *self._garbage.informers,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            for informer in self._informers:
                await informer.synced()
            group.create_task(self._end_namespaces())
            group.create_task(self._nodes.run())
            group.create_task(self._disruptions.run())
            group.create_task(self._garbage.run())

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        self._garbage.changed(change)
        self._disruptions.pod_changed(change)

    def _budget_changed(self, change: ObjectChange[PodDisruptionBudget]) -> None:
        self._garbage.changed(change)
        self._disruptions.budget_changed(change)

    def _namespace_changed(self, change: ObjectChange[Namespace]) -> None:
        self._garbage.changed(change)
        if change.new and _is_terminating(change.new):
            self._terminating.set()

    async def _end_namespaces(self) -> None:
        """When a namespace starts to terminate, and repeatedly while its pods do."""
        while True:
            await self._terminating.wait()
            self._terminating.clear()
            for namespace in [
                candidate for candidate in self._namespaces.objects.values() if _is_terminating(candidate)
            ]:
                await self._attempt(f"ending namespace {namespace.title}", self._end_namespace(namespace))
            if any(map(_is_terminating, self._namespaces.objects.values())):
                await asyncio.sleep(_RETRY_SECONDS)
                self._terminating.set()

    async def _end_namespace(self, namespace: Namespace) -> None:
        """Delete the contents of a terminating namespace, then its finalizer. Raises APIError."""
        name = namespace.metadata.name
        held = [kind for kind in _CONTENTS if await _holds(self._client, kind, name)]
        for kind in held:
            await self._client.raw("DELETE", kind.api.path(name))
        if [kind for kind in (_CONTENTS if held else ()) if await _holds(self._client, kind, name)]:
            return
        # without the finalizer the server deletes the namespace; a deleted one is no error
        remaining = [finalizer for finalizer in namespace.spec.finalizers if finalizer != _FINALIZER]
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "uid": namespace.metadata.uid},
            "spec": {"finalizers": remaining},
        }
        try:
            await self._client.raw("PUT", Namespace.api.path(None, name, "finalize"), body=encode(body))
        except APIError as error:
            if error.code != 404:
                raise
        self._reporter.namespace_ended(name)

    async def _attempt(self, what: str, work: Awaitable[None]) -> None:
        """Report a failed request, which the next check repeats. A conflict or a 404 is no failure."""
        try:
            await work
        except APIError as error:
            if error.code not in (404, 409):
                self._reporter.api_failed(what, error)


# Namespaces.


def _is_terminating(namespace: Namespace) -> bool:
    """Return whether it is deleted but for its finalizer."""
    return bool(namespace.metadata.deletion_timestamp) and _FINALIZER in namespace.spec.finalizers


async def _holds(client: KubeClient, kind: type[Object], namespace: str) -> bool:
    listing = await client.list(kind, namespace=namespace, page=1)
    return bool(listing.items or listing.malformed)
