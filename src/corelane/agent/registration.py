"""The Node at the API server: registered, its status posted, its lease renewed."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from corelane.agent.node_status import WRITABLE, LedgerDisk, NodeIdentity, node_status, raw_allocatable
from corelane.agent.reporting import AgentReporter
from corelane.kube import keys
from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Lease, Node
from corelane.node import NodeState

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEW_SECONDS: Final = 10.0
DEVICES: Final = "corelane.io/devices"
"""Annotation: the Node's extended resources that this agent added, so that it can remove them again."""
_CHECK_EVERY: Final = 3
_STATUS_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """UID, labels and annotations of the Node at the API server."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


async def register(
    client: KubeClient, identity: NodeIdentity, ledger: NodeState, at: float, disk: LedgerDisk = WRITABLE
) -> RegisteredNode:
    """Create the Node, or update an existing one, and post its status. Raises APIError."""
    annotations = identity.annotations() | {DEVICES: ",".join(sorted(ledger.config.devices))}
    metadata = {
        "name": identity.name,
        "labels": identity.all_labels(),
        "annotations": {key: value or None for key, value in annotations.items()},
    }
    removed: Iterable[str] = ()
    try:
        non_empty = {key: value for key, value in annotations.items() if value}
        uid = await _create(client, identity, {**metadata, "annotations": non_empty})
    except APIError as error:
        if error.code != 409:
            raise
        before = await _update(client, identity, metadata)
        uid, removed = before.metadata.uid, _removed_devices(before, ledger)
    answer = await post_status(client, identity, ledger, since=at, at=at, removed=removed, disk=disk)
    meta: dict[str, Any] = answer["metadata"]
    return RegisteredNode(uid, meta.get("labels") or {}, meta.get("annotations") or {})


async def _create(client: KubeClient, identity: NodeIdentity, metadata: dict[str, Any]) -> str:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": identity.taints()} if identity.taints() else {},
    }
    return str((await client.create(node))["metadata"]["uid"])


def _removed_devices(before: Node, ledger: NodeState) -> set[str]:
    """Return the extended resources that this agent added earlier and that the settings no longer have."""
    added = set(filter(None, before.metadata.annotations.get(DEVICES, "").split(",")))
    return added - ledger.config.devices.keys()


async def _update(client: KubeClient, identity: NodeIdentity, metadata: dict[str, Any]) -> Node:
    """Set labels and annotations, and add this agent's taints to the others; return the Node as it was."""
    before = await client.get(Node, identity.name)
    body: dict[str, Any] = {"metadata": metadata}
    keys_present = {taint.key for taint in before.spec.taints}
    missing = [taint for taint in identity.taints() if taint["key"] not in keys_present]
    if missing:
        others = [_taint(taint) for taint in before.spec.taints]
        version = {"resourceVersion": before.metadata.resource_version}
        body = {"metadata": metadata | version, "spec": {"taints": others + missing}}
    await client.patch(Node, identity.name, body)
    return before


def _taint(taint: Any) -> dict[str, str]:
    members = {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }
    return {key: value for key, value in members.items() if value}


async def post_status(
    client: KubeClient,
    identity: NodeIdentity,
    ledger: NodeState,
    *,
    since: float,
    at: float,
    removed: Iterable[str] = (),
    disk: LedgerDisk = WRITABLE,
) -> dict[str, Any]:
    """Write the Node's status without the `removed` resources; return the whole Node. Raises APIError."""
    status = node_status(identity, ledger, since, at, disk)
    for part in ("capacity", "allocatable"):
        status[part] |= dict.fromkeys(removed)
    body = {"status": status}
    return await client.patch(Node, identity.name, body, kind_of_patch="strategic", subresource="status")


async def is_ready(client: KubeClient, name: str) -> bool:
    """Whether the API server has the Node, with the condition Ready. Raises APIError except 404."""
    try:
        node = await client.get(Node, name)
    except APIError as error:
        if error.code == 404:
            return False
        raise
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


async def renew_lease(client: KubeClient, name: str, owner_uid: str, at: float) -> None:
    """Renew the node's lease as kubelets do (KEP-589), or create it. Raises APIError."""
    now = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    try:
        await client.patch(Lease, name, {"spec": {"renewTime": now}}, namespace=LEASE_NAMESPACE)
    except APIError as error:
        if error.code != 404:
            raise
        await client.create(_lease(name, owner_uid, now))


def _lease(name: str, owner_uid: str, now: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
    }


class Heartbeat:
    """Registers one node and renews its lease and status; `uid` is the Node's, once registered."""

    def __init__(
        self,
        client: KubeClient,
        identity: NodeIdentity,
        reporter: AgentReporter,
        clock: Callable[[], float],
        ledger: Callable[[], NodeState],
        registered: Callable[[RegisteredNode], None] = lambda _: None,
        reposted: Callable[[], None] = lambda: None,
    ) -> None:
        """`registered` is called whenever the Node was created or updated.

        `reposted` is called every few minutes, when the unchanged status is written again: other objects of
        the node may need a repair, too.
        """
        self.uid = ""
        self._client = client
        self._identity = identity
        self._reporter = reporter
        self._clock = clock
        self._ledger = ledger
        self._registered = registered
        self._reposted = reposted
        self._since = clock()
        self._posted = 0.0
        self._disk = LedgerDisk()
        self._raw: str | None = ""
        self._allocatable = _variable_allocatable(ledger())

    async def register(self) -> None:
        """Register the node; retry until that succeeds."""
        while True:
            try:
                await self._register()
                return
            except APIError as error:
                self._reporter.api_failed("registering the node", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _register(self) -> None:
        now = self._clock()
        node = await register(self._client, self._identity, self._ledger(), now, self._disk)
        self.uid = node.uid
        self._since = self._posted = now
        await renew_lease(self._client, self._identity.name, self.uid, now)
        self._registered(node)

    async def run(self) -> None:
        """Renew the lease until cancelled; check now and then that the Node exists and is ready."""
        beats = 0
        while True:
            await asyncio.sleep(RENEW_SECONDS if beats >= 0 else _RETRY_SECONDS)
            try:
                await self._beat(check=beats % _CHECK_EVERY == 0)
                beats = max(beats, 0) + 1
            except APIError as error:
                self._reporter.api_failed("renewing the node's lease", error)
                beats = -_CHECK_EVERY  # after a gap the Node may have been marked as not ready

    async def _beat(self, *, check: bool) -> None:
        now = self._clock()
        await renew_lease(self._client, self._identity.name, self.uid, now)
        if check and not await is_ready(self._client, self._identity.name):
            await self._register()
        elif now - self._posted >= _STATUS_SECONDS:
            await self.post()
            self._reposted()

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

    async def post(self) -> None:
        """Write the Node's status. Raises APIError."""
        now = self._clock()
        ledger = self._ledger()
        await post_status(self._client, self._identity, ledger, since=self._since, at=now, disk=self._disk)
        raw = raw_allocatable(ledger)
        if raw != self._raw:
            body = {"metadata": {"annotations": {keys.RAW_ALLOCATABLE: raw}}}
            await self._client.patch(Node, self._identity.name, body)
            self._raw = raw
        self._posted = now


def _variable_allocatable(ledger: NodeState) -> tuple[int, int]:
    """Return the parts of the Node's status that settings change: milliCPU, and bytes of withheld memory."""
    return ledger.allocatable, ledger.withheld_memory
