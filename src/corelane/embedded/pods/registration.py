"""The Node at the API server: registered, its status posted, its lease renewed; for one agent, or for many.

`SharedHeartbeats` renews in batches for many nodes whose agents share a process with the API server: every
lease every RENEW_SECONDS, a part of them at a time, and every status again after some minutes, spread over
them. Where the process lacks CPU time for that, parts that are late are renewed together: a node is not lost
because the machine is busy. What a node needs beyond that, such as a registration after its Node was deleted,
is done for that node alone.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec

from corelane.agent.publication import stored_objects
from corelane.agent.publication.stored_objects import NodeObjects
from corelane.agent.publication.write_queue import PublicationReporter
from corelane.embedded.pods.node_status import (
    CONDITIONS,
    LedgerDisk,
    NodeIdentity,
    node_status,
    raw_allocatable,
)
from corelane.kube import keys
from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Lease, Node, NodeResourceTopology
from corelane.node.ledger import NodeState

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEW_SECONDS: Final = 10.0
DEVICES: Final = "corelane.io/devices"
"""Annotation: the Node's extended resources that this agent added, so that it can remove them again."""
_CHECK_EVERY: Final = 3
STATUS_SECONDS: Final = 300.0
"""Time after which an unchanged status is written again."""
_RETRY_SECONDS: Final = 1.0
_PARTS: Final = 20
_STEP_SECONDS: Final = RENEW_SECONDS / _PARTS


class HeartbeatObjects(NodeObjects, Protocol):
    """The nodes' objects, with what heartbeats and statuses of pods change."""

    async def patch_status(self, namespace: str, name: str, uid: str, status: dict[str, Any]) -> None:
        """Patch the status of the pod of this UID, as a strategic merge patch."""

    def renew_leases(self, names: Iterable[str], at: float) -> list[str]:
        """Renew the nodes' leases at Unix seconds, in one commit; return the nodes without a lease."""

    def refresh_heartbeats(self, names: Iterable[str], conditions: Collection[str], at: float) -> list[str]:
        """Set the conditions' heartbeats to Unix seconds, in one commit; return missing nodes."""


class Heartbeat:
    """Registers one node and renews its lease and status; `uid` is the Node's, once registered."""

    def __init__(
        self,
        client: KubeClient,
        identity: NodeIdentity,
        reporter: PublicationReporter,
        clock: Callable[[], float],
        ledger: Callable[[], NodeState],
        registered: Callable[[Mapping[str, str], Mapping[str, str]], None],
        checked: Callable[[], None],
        objects: HeartbeatObjects | None = None,
    ) -> None:
        """With `objects` what concerns this node alone is read and written without requests.

        `registered` is called with the Node's labels and annotations when it was created or updated.

        `checked` is called twice a minute, when the Node was looked at: other objects of the node may need a
        repair, too.
        """
        self.uid = ""
        self.name = identity.name
        self.checked = checked
        self._objects = objects
        self._client = client
        self._identity = identity
        self._reporter = reporter
        self._clock = clock
        self._ledger = ledger
        self._registered = registered
        self._since = clock()
        self._posted = 0.0
        self._disk = LedgerDisk()
        self._raw: str | None = None
        self._seen = 0
        """Revision in which the Node was last seen to be ready."""
        self._allocatable = _variable_allocatable(ledger())

    # -- the Node

    async def register(self) -> None:
        """Register the node; retry until that succeeds."""
        while True:
            try:
                await self._register()
                return
            except Exception as error:  # noqa: BLE001 - nothing about one write ends the agent
                self.report("registering the node", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _register(self) -> None:
        """Create the Node with its status and its lease, or update existing ones. Raises APIError."""
        self._raw = raw_allocatable(self._ledger())
        devices = ",".join(sorted(self._ledger().config.devices))
        own = {DEVICES: devices, keys.RAW_ALLOCATABLE: self._raw}
        annotations = {key: text or None for key, text in (self._identity.annotations() | own).items()}
        taints = self._identity.taints()
        labels = self._identity.all_labels()
        metadata = {"name": self.name, "labels": labels, "annotations": annotations}
        self._since = self._clock()
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {"taints": taints} if taints else {},
            "status": self._status(),
        }
        meta = await self._create(node)
        if meta is None:  # annotations that are None are removed
            before = await self._update(metadata)
            # Extended resources that this agent added earlier and that the settings lack now are removed.
            added = set(filter(None, before.metadata.annotations.get(DEVICES, "").split(",")))
            meta = (await self._post(added - self._ledger().config.devices.keys()))["metadata"]
        self.uid, self._posted = str(meta["uid"]), _monotonic()
        await self._renew_lease()
        self._registered(meta.get("labels") or {}, meta.get("annotations") or {})

    async def _create(self, node: Mapping[str, Any]) -> dict[str, Any] | None:
        """Create the Node and return its metadata; None where one exists that is to be updated."""
        annotations = {key: text for key, text in node["metadata"]["annotations"].items() if text}
        body = {**node, "metadata": {**node["metadata"], "annotations": annotations}}
        if self._objects is not None:
            metadata = self._ensure(self._objects, node, body)
            await self._objects.committed()
            return metadata
        try:
            stored = await self._client.create(body)
        except APIError as error:
            if error.code != 409:
                raise
            return None
        return stored["metadata"]  # type: ignore[no-any-return]

    def _ensure(
        self, objects: HeartbeatObjects, node: Mapping[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        record, is_new = objects.ensure(body)
        stored = record.object()
        if not is_new:
            if not stored_objects.agrees(stored, node):
                return None
            objects.refresh_heartbeats([self.name], CONDITIONS, self._clock())
        return stored["metadata"]  # type: ignore[no-any-return]

    async def _update(self, metadata: dict[str, Any]) -> Node:
        """Set labels and annotations, and add this agent's taints; return the Node as it was."""
        before = await self._client.get(Node, self.name)
        body: dict[str, Any] = {"metadata": metadata}
        present = {taint.key for taint in before.spec.taints}
        missing = [taint for taint in self._identity.taints() if taint["key"] not in present]
        if missing:
            others = [msgspec.to_builtins(taint) for taint in before.spec.taints]
            version = {"resourceVersion": before.metadata.resource_version}
            body = {"metadata": metadata | version, "spec": {"taints": others + missing}}
        await self._client.patch(Node, self.name, body)
        return before

    # -- its status

    async def post(self) -> None:
        """Write the Node's status. Raises APIError."""
        await self._post()
        raw = raw_allocatable(self._ledger())
        if raw != self._raw:
            body = {"metadata": {"annotations": {keys.RAW_ALLOCATABLE: raw}}}
            await self._client.patch(Node, self.name, body)
            self._raw = raw
        self._posted = _monotonic()

    async def _post(self, removed: Iterable[str] = ()) -> dict[str, Any]:
        """Write the Node's status without the `removed` resources; return the whole Node. Raises APIError."""
        status = self._status()
        for part in ("capacity", "allocatable"):
            status[part] |= dict.fromkeys(removed)
        return await self._client.patch(
            Node,
            self.name,
            {"status": status},
            kind_of_patch="strategic",
            subresource="status",
        )

    def _status(self) -> dict[str, Any]:
        return node_status(self._identity, self._ledger(), self._since, self._clock(), self._disk)

    def is_posted(self, objects: HeartbeatObjects) -> bool:
        """Whether the Node has the status that `post` would write, but for times."""
        record = objects.get(Node.api, self.name)
        return record is not None and stored_objects.agrees(record.object(), {"status": self._status()})

    def is_ready(self, objects: HeartbeatObjects) -> bool:
        """Whether the API server has the Node, with the condition Ready."""
        record = objects.get(Node.api, self.name)
        if record is None:
            return False
        if record.revision != self._seen:
            conditions = record.object()["status"].get("conditions") or ()
            ready = (one.get("status") == "True" for one in conditions if one["type"] == "Ready")
            self._seen = record.revision if any(ready) else self._seen
        return record.revision == self._seen

    def check_topology(self, objects: HeartbeatObjects) -> None:
        """Have the topology written again if the API server has none."""
        if objects.get(NodeResourceTopology.api, self.name) is None:
            self.checked()

    def set_disk_fault(self, fault: str) -> bool:
        """Record why the ledger cannot be written, "" if it can; return whether that changed."""
        if fault == self._disk.fault:
            return False
        self._disk = LedgerDisk(fault, self._clock())
        return True

    def allocatable_changed(self) -> bool:
        """Record what the ledger makes allocatable; return whether that changed and must be posted."""
        before, self._allocatable = self._allocatable, _variable_allocatable(self._ledger())
        return self._allocatable != before

    # -- its lease

    async def run(self) -> None:
        """Renew the lease until cancelled; check now and then that the Node exists and is ready."""
        beats = 0
        while True:
            await asyncio.sleep(RENEW_SECONDS if beats >= 0 else _RETRY_SECONDS)
            try:
                await self._beat(check=beats % _CHECK_EVERY == 0)
                beats = max(beats, 0) + 1
            except Exception as error:  # noqa: BLE001 - nothing about one write ends the agent
                self.report("renewing the node's lease", error)
                beats = -_CHECK_EVERY  # after a gap the Node may have been marked as not ready

    async def beat(self) -> None:
        """Renew the lease once, and register the node again where that is needed; report failures."""
        try:
            await self._beat(check=True)
        except Exception as error:  # noqa: BLE001 - nothing about one write ends the agent
            self.report("renewing the node's lease", error)

    def report(self, what: str, error: Exception) -> None:
        """Report a failed write."""
        if isinstance(error, APIError):
            self._reporter.api_failed(what, error)
        else:
            self._reporter.malfunction(what, error)

    async def _beat(self, *, check: bool) -> None:
        await self._renew_lease()
        if check and not await self._is_ready():
            await self._register()
        elif _monotonic() - self._posted >= STATUS_SECONDS:
            await self.post()
        if check:
            self.checked()

    async def _is_ready(self) -> bool:
        """Whether the API server has the Node, with the condition Ready. Raises APIError except 404."""
        try:
            node = await self._client.get(Node, self.name)
        except APIError as error:
            if error.code == 404:
                return False
            raise
        ready = condition(node.status.conditions, "Ready")
        return ready is not None and ready.status == "True"

    async def _renew_lease(self) -> None:
        """Renew the node's lease as kubelets do (KEP-589), or create it. Raises APIError."""
        name, at = self.name, self._clock()
        now = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self._objects is not None:
            if self._objects.renew_leases([name], at):
                self._objects.ensure(_lease(name, self.uid, now))
                await self._objects.committed()
            return
        try:
            await self._client.patch(Lease, name, {"spec": {"renewTime": now}}, namespace=LEASE_NAMESPACE)
        except APIError as error:
            if error.code != 404:
                raise
            await self._client.create(_lease(name, self.uid, now))


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


def _lease(name: str, owner_uid: str, now: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    }


def _variable_allocatable(ledger: NodeState) -> tuple[int, int]:
    """Return the parts of the Node's status that settings change: milliCPU, and bytes of withheld memory."""
    return ledger.allocatable, ledger.withheld_memory


def due_parts(done: int, elapsed: float) -> range:
    """Return the numbers of the parts to renew `elapsed` seconds after the start, when `done` were renewed.

    Part n is the remainder of n by the number of parts; however late, each is renewed once.
    """
    due = int(elapsed / _STEP_SECONDS)
    return range(max(done, due - _PARTS), due)


class SharedHeartbeats:
    """The heartbeats of the nodes that were added; `run` it until cancelled."""

    def __init__(
        self,
        objects: HeartbeatObjects,
        clock: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`clock` gives Unix seconds; `monotonic` and `sleep` count the time between renewals."""
        self.objects = objects
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._parts: tuple[dict[Heartbeat, float], ...] = tuple({} for _ in range(_PARTS))
        """Each heartbeat with the monotonic time at which its status is written again."""

    def add(self, heartbeat: Heartbeat) -> None:
        """Renew a registered node's lease and status from now on."""
        first = self._monotonic() + STATUS_SECONDS * random.random()  # noqa: S311 - spreads load
        min(self._parts, key=len)[heartbeat] = first

    def discard(self, heartbeat: Heartbeat) -> None:
        """Leave lease and status of a node as they are."""
        for part in self._parts:
            part.pop(heartbeat, None)

    async def run(self) -> None:
        """Renew until cancelled."""
        begun, done = self._monotonic(), 0
        while True:
            await self._sleep(max(0.0, begun + (done + 1) * _STEP_SECONDS - self._monotonic()))
            numbers = due_parts(done, self._monotonic() - begun)
            for number in numbers:
                if part := self._parts[number % _PARTS]:
                    await self._renew(part)
            done = numbers.stop if numbers else done

    async def _renew(self, part: dict[Heartbeat, float]) -> None:
        try:
            unnamed = set(self.objects.renew_leases([beat.name for beat in part], self._clock()))
            alone = [beat for beat in part if beat.name in unnamed or not beat.is_ready(self.objects)]
            await self._repost([beat for beat in self._due(part) if beat not in alone])
        except Exception as error:  # noqa: BLE001 - nothing about one write ends the agents
            next(iter(part)).report(f"renewing the leases of {len(part)} nodes", error)
            return
        for heartbeat in alone:
            await heartbeat.beat()
        for heartbeat in part:
            if heartbeat not in alone:
                heartbeat.check_topology(self.objects)

    def _due(self, part: dict[Heartbeat, float]) -> list[Heartbeat]:
        """Return the heartbeats of which the status is to be written now."""
        now = self._monotonic()
        due = [heartbeat for heartbeat, at in part.items() if at <= now]
        part |= dict.fromkeys(due, now + STATUS_SECONDS)
        return due

    async def _repost(self, due: Iterable[Heartbeat]) -> None:
        """Write statuses again: where nothing changed only their times, in one commit. Raises APIError."""
        unchanged = []
        for heartbeat in due:
            if heartbeat.is_posted(self.objects):
                unchanged.append(heartbeat.name)
            else:
                await heartbeat.post()
            heartbeat.checked()
        if unchanged:
            self.objects.refresh_heartbeats(unchanged, CONDITIONS, self._clock())
