"""Node health: taints silent and cordoned nodes, and deletes what deleted nodes leave.

The rules are those of upstream's node lifecycle controller: a node whose lease does not change for 40 s gets
its conditions set to Unknown and the unreachable taints; once its agent reports it ready, the taints are
removed. A cordoned node and one under pressure have a taint as long as that lasts; set or removed by hand,
these taints are put right again, all others stay. Time counts from when a change was seen here, so that
clocks need not agree, and a restart of the controller starts it anew. Time during which the controller did
not run counts for 10 s at most: while the machine was suspended, the agents did not run either. Pods of a
deleted node are deleted after 40 s, as by upstream's pod garbage collector: the node may return.

A node is looked at when it changes, and while it is silent; an object of a node when either appears or goes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Final

from msgspec import to_builtins

from corelane.embedded.housekeeping.garbage_collector import metadata_of
from corelane.kube.client import APIError, KubeClient
from corelane.kube.informer import Informer, Key, ObjectChange
from corelane.kube.meta import Object, OwnerReference, condition, rfc3339
from corelane.kube.objects import Lease, Node, NodeResourceTopology, Taint
from corelane.kube.pod import Pod

GRACE_SECONDS: Final = 40.0
QUARANTINE_SECONDS: Final = 40.0
LONGEST_GAP: Final = 10.0
"""Seconds that count at most between two checks; more is a suspension or a clock that was set."""
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_READY: Final = (UNREACHABLE, NOT_READY)
_EFFECTS: Final = ("NoSchedule", "NoExecute")
_OF_CONDITIONS: Final = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
"""Taints with the effect NoSchedule of conditions that are True."""
_OURS: Final = {(key, effect) for key in _READY for effect in _EFFECTS} | {
    (key, "NoSchedule") for key in (UNSCHEDULABLE, *_OF_CONDITIONS.values())
}
_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
LEASES: Final = "kube-node-lease"
_DEBOUNCE: Final = 0.1


class AwakeTime:
    """Seconds of a clock during which this process ran, from checks at short intervals.

    After a suspension of the machine, a stopped process or a clock that was set, the clock jumps: of each gap
    at most `longest_gap` seconds count, and of a step back none.
    """

    def __init__(self, longest_gap: float = LONGEST_GAP) -> None:
        self._longest_gap = longest_gap
        self._last: float | None = None
        self._awake = 0.0

    def advance(self, at: float) -> float:
        """Return the awake seconds up to this reading of the clock, counted from the first one."""
        gap = 0.0 if self._last is None else at - self._last
        self._last = at
        self._awake += min(max(gap, 0.0), self._longest_gap)
        return self._awake


class LeaseRenewals:
    """The last renewal of each node's lease."""

    def __init__(self) -> None:
        self._by_node: dict[str, tuple[str, float]] = {}
        """The lease's `renewTime`, and when it was first seen here."""

    def update(self, node: str, lease: Lease | None, at: float) -> None:
        """Record a node's lease as it is now."""
        text = lease.spec.renew_time if lease else ""
        last = self._by_node.get(node)
        if last is None or last[0] != text:
            self._by_node[node] = (text, at)

    def retain(self, nodes: AbstractSet[str]) -> None:
        """Drop all other nodes."""
        if len(self._by_node) != len(nodes) or self._by_node.keys() != nodes:
            self._by_node = {node: renewal for node, renewal in self._by_node.items() if node in nodes}

    def older(self, at: float) -> set[str]:
        """Return the nodes whose last renewal was before."""
        return {node for node, (_, since) in self._by_node.items() if since < at}

    def age(self, node: str, at: float) -> float:
        """Return the seconds since the last renewal; 0 for an unknown node."""
        last = self._by_node.get(node)
        return at - last[1] if last else 0.0


class MissingNodes:
    """Since when nodes are missing that pods are bound to."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def orphans(self, pods: Iterable[Pod], nodes: Collection[str], at: float) -> list[Pod]:
        """Return the pods whose node has been missing for the quarantine."""
        bound = [pod for pod in pods if pod.spec.node_name and pod.spec.node_name not in nodes]
        missing = {pod.spec.node_name for pod in bound}
        self._since = {node: self._since.get(node, at) for node in missing}
        return [pod for pod in bound if at - self._since[pod.spec.node_name] >= QUARANTINE_SECONDS]


def ready_status(node: Node) -> str:
    """Return the status of the node's Ready condition; Unknown without one."""
    ready = condition(node.status.conditions, "Ready")
    return ready.status if ready else "Unknown"


def same_health(old: Node, new: Node) -> bool:
    """Whether taints, cordon and conditions are equal, so that what holds of one node holds of the other."""
    return old.spec == new.spec and old.status.conditions == new.status.conditions


def unknown_conditions(node: Node, at: float) -> list[dict[str, Any]] | None:
    """Return the conditions of a node without heartbeat, as a merge patch; None if they are Unknown."""
    if all(_status(node, kind) == "Unknown" for kind in _CONDITIONS):
        return None
    return [
        {
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": rfc3339(at),
        }
        for kind in _CONDITIONS
        if _status(node, kind) != "Unknown"
    ]


def _status(node: Node, kind: str) -> str:
    present = condition(node.status.conditions, kind)
    return present.status if present else ""


def health_taints(node: Node, ready: str, at: float) -> list[dict[str, str]] | None:
    """Return all taints of a node with that ready status, others' included; None if they do not change."""
    expected = list(_expected(node, ready))
    present = {(taint.key, taint.effect) for taint in node.spec.taints} & _OURS
    if present == set(expected):
        return None
    remaining = [
        taint for taint in node.spec.taints if (taint.key, taint.effect) not in _OURS.difference(expected)
    ]
    new = [Taint(key, "", effect, rfc3339(at)) for key, effect in expected if (key, effect) not in present]
    trees = [to_builtins(taint) for taint in (*remaining, *new)]
    return [{name: text for name, text in tree.items() if text} for tree in trees]


def is_marked(node: Node) -> bool:
    """Return whether the node has a taint of nodes that are not ready or unreachable."""
    return any(taint.key in _READY for taint in node.spec.taints)


def _expected(node: Node, ready: str) -> Iterator[tuple[str, str]]:
    """Yield key and effect of the taints that the node is to have of `_OURS`."""
    if key := {"True": "", "False": NOT_READY}.get(ready, UNREACHABLE):
        yield from ((key, effect) for effect in _EFFECTS)
    if node.spec.unschedulable:
        yield UNSCHEDULABLE, "NoSchedule"
    for kind, key in _OF_CONDITIONS.items():
        if _status(node, kind) == "True":
            yield key, "NoSchedule"


class NodeReporter:
    """Hooks for logs and tests, empty by default; they must not raise and must not block."""

    def node_lost(self, name: str, silent_for: float) -> None:
        """A node's agent sent no heartbeat for that many seconds."""

    def node_back(self, name: str) -> None:
        """A lost node is ready again."""

    def orphan_deleted(self, what: str) -> None:
        """An object was deleted because its node was deleted."""


class NodeController:
    """`run` it until cancelled, once `informers` have listed their objects."""

    def __init__(
        self,
        client: KubeClient,
        pods: Informer[Pod],
        reporter: NodeReporter,
        *,
        attempt: Callable[[str, Awaitable[None]], Awaitable[None]],
        period: float = 5.0,
        clock: Callable[[], float] = time.time,
        longest_gap: float = LONGEST_GAP,
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
        self._awake = AwakeTime(longest_gap)
        self._renewals = LeaseRenewals()
        self._missing = MissingNodes()
        self._changed = asyncio.Event()
        self._unchecked: set[str] = set()
        """Nodes that changed since they were checked."""
        self._outlived = True
        """Whether objects of deleted nodes may be left."""
        self._nodes = Informer(client, Node, handler=self._node_changed)
        self._leases = Informer(client, Lease, handler=self._dependent_changed)
        self._topologies = Informer(
            client, metadata_of(NodeResourceTopology), handler=self._dependent_changed
        )
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
        elif change.old is not None and same_health(change.old, change.new):
            return
        self._unchecked.add(node.metadata.name)
        self._changed.set()

    def _dependent_changed(self, change: ObjectChange[Any]) -> None:
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
                now = self._clock()
                awake = self._awake.advance(now)
                for name in list(self._unchecked):
                    self._renewals.update(name, self._leases.objects.get((LEASES, name)), awake)
                    await self._check_node(name, now, awake)
                await self._delete_outlived()

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
        for name in self._renewals.older(awake - GRACE_SECONDS) | self._unchecked:
            await self._check_node(name, now, awake)
        for pod in self._missing.orphans(self._pods.objects.values(), nodes, awake):
            await self._attempt(f"orphaned pod {pod.title}", self._delete_orphan(pod))
        await self._delete_outlived()

    async def _check_node(self, name: str, now: float, awake: float) -> None:
        """Check a node; it counts as checked once nothing about it is to be written."""
        node = self._nodes.objects.get(("", name))
        silent = self._renewals.age(name, awake)
        taints, conditions = _due(node, now, silent) if node else (None, None)
        if node is None or (taints is None and not conditions):
            self._unchecked.discard(name)
        else:
            self._unchecked.add(name)
            await self._attempt(f"node {name}", self._mark(node, silent, taints, conditions))

    async def _mark(
        self, node: Node, silent: float, taints: list[Any] | None, conditions: list[Any] | None
    ) -> None:
        """Set taints and conditions of a node without heartbeat for `silent` seconds."""
        name = node.metadata.name
        if taints is not None:
            version = {"resourceVersion": node.metadata.resource_version}
            await self._client.patch(Node, name, {"metadata": version, "spec": {"taints": taints}})
            ready = not _is_lost(silent) and ready_status(node) == "True"
            if ready and is_marked(node):
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
    return silent > GRACE_SECONDS


def _due(
    node: Node, now: float, silent: float
) -> tuple[list[dict[str, str]] | None, list[dict[str, Any]] | None]:
    """Return the taints and the conditions that a node is to be given; None where it has them."""
    ready = "Unknown" if _is_lost(silent) else ready_status(node)
    conditions = unknown_conditions(node, now) if _is_lost(silent) else None
    return health_taints(node, ready, now), conditions


def _outlived(obj: Object, uids: Mapping[str, str | None]) -> bool:
    """Whether the object belongs to Nodes of which none is left; `uids` of the nodes by name."""
    owners = _owning_nodes(obj)
    return bool(owners) and all(uids.get(owner.name) != owner.uid for owner in owners)


def _owning_nodes(obj: Object) -> list[OwnerReference]:
    return [owner for owner in obj.metadata.owner_references if owner.kind == "Node"]
