"""The Lease that the agent beside a kubelet renews: its sign of life, and which process acts on the node.

It has the node's name, in a namespace of corelane's, and goes with the Node. Five thousand agents make 250
renewals a second, half of what the kubelets' own leases make. An orderly end gives the Lease up, so that no
pod with exclusive CPUs is bound to the node from then on.

A Lease also names the process that acts. Where that process still lives on this machine, beside locks that
it does not share with this one, another agent acts, and this one has to wait, or ends if it acts already.
What the Lease says is only believed if /proc says so too. A write names the version of the Lease that this
agent wrote or read last: so it never replaces unseen what another one wrote. An API server that does not
answer, for however long, ends no agent.
"""

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from corelane.agent.event_loop import Clocks, EventQueue, LeaseHeld
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import AnotherAgentActs, Source
from corelane.kernel import proc
from corelane.kube import keys
from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import micro_time
from corelane.kube.objects import Lease

RENEW_SECONDS: Final = 20.0
DURATION_SECONDS: Final = 60
_LONGEST_PAUSE: Final = 5.0
_ASK_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 1.0
_RELEASE_SECONDS: Final = 2.0
_HOLDER: Final = re.compile(r".*_(?P<pid>[0-9]{1,19})_(?P<ticks>[0-9]{1,19})_(?P<boot>[^_]*)", re.DOTALL)


def own_identity() -> str:
    """Return who this process is, for good: host, pid, start time, boot."""
    own = proc.identity(os.getpid())
    return f"{os.uname().nodename}_{os.getpid()}_{own.start_ticks if own else 0}_{proc.boot_id()}"


def living_process(holder: str) -> str:
    """Return which other process of this machine a holder's identity names, "" if none that lives."""
    named = _HOLDER.fullmatch(holder)
    if named is None or named["boot"] != proc.boot_id():
        return ""
    process = proc.Identity(int(named["pid"]), int(named["ticks"]))
    return f"process {process.pid}" if process.pid != os.getpid() and proc.is_alive(process) else ""


class AgentLease:
    """The Lease of one node, renewed once `owner_uid`, that of the Node, is known; then LeaseHeld is put."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        queue: EventQueue,
        reporter: AgentReporter,
        clocks: Clocks,
    ) -> None:
        self.held = False
        """Whether this agent has renewed it."""
        self.owner_uid = ""
        self.source = Source(
            "lease",
            seconds=RENEW_SECONDS,
            reporter=reporter,
            clocks=clocks,
            longest_pause=_LONGEST_PAUSE,
        )
        self._client = client
        self._node = node
        self._queue = queue
        self._identity = own_identity()
        self._version = ""
        """`resourceVersion` as this agent wrote or read it last; "" where it is to be read first."""
        self._clocks = clocks

    async def wait_for_other(self, waits: Callable[[str], None]) -> bool:
        """Wait while another agent of this machine acts for the node; return whether there was one.

        An API server that does not answer at once cannot say so; then the holder counts that it named before.
        """
        holder = reported = ""
        while True:
            with suppress(APIError, TimeoutError):
                async with asyncio.timeout(_ASK_SECONDS):
                    holder = await self._holder()
            other = self._other(holder)
            if not other:
                return bool(reported)
            if other != reported:
                waits(other)
            reported = other
            await asyncio.sleep(_POLL_SECONDS)

    async def _holder(self) -> str:
        """Read the Lease: note its version and return its holder, "" where there is none. Raises APIError."""
        try:
            lease = await self._client.get(Lease, self._node, keys.AGENT_NAMESPACE)
        except APIError as error:
            if error.code != 404:
                raise
            self._version = ""
            return ""
        self._version = lease.metadata.resource_version
        return lease.spec.holder_identity

    def _other(self, holder: str) -> str:
        """Return which other living process holds the Lease, "" for none."""
        process = living_process(holder)
        return f"{process} holds Lease {keys.AGENT_NAMESPACE}/{self._node}" if process else ""

    async def run(self) -> None:
        """Renew until cancelled. Raises AnotherAgentActs."""
        await self.source.run(self._renew)

    def belongs_to(self, owner_uid: str) -> None:
        """Renew for the Node of this UID, at once where it is another one."""
        if owner_uid != self.owner_uid:
            self.owner_uid = owner_uid
            self.source.wake()

    async def _renew(self) -> None:
        """Renew or create the Lease, once the Node is known. Raises APIError, AnotherAgentActs."""
        if not self.owner_uid:
            self.source.state.detail = f"waits for Node {self._node}"
            return
        await self._write(self._identity)
        self.source.state.detail = f"{keys.AGENT_NAMESPACE}/{self._node}, {DURATION_SECONDS} s"
        if not self.held:
            self.held = True
            self._queue.put(LeaseHeld(**self._clocks.times()))

    async def release(self) -> None:
        """Give the Lease up; one that cannot be written expires."""
        if not self.held:
            return
        self.held = False
        with suppress(APIError, TimeoutError, AnotherAgentActs):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._write("")

    async def _write(self, holder: str) -> None:
        """Write the Lease as it was left, or, where it was changed since, unless another agent has it.

        Raises APIError, AnotherAgentActs.
        """
        body = {
            "apiVersion": Lease.api.api_version,
            "kind": "Lease",
            "metadata": {
                "name": self._node,
                "namespace": keys.AGENT_NAMESPACE,
                "labels": keys.AGENT_LABELS,
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self.owner_uid}
                ],
            },
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": micro_time(datetime.fromtimestamp(self._clocks.wall(), UTC)),
            },
        }
        stored: dict[str, Any] | None = None
        if self._version:
            try:
                stored = await self._patch(body)
            except APIError as error:
                # Else it was deleted, or written by another, or the answer to a write was lost.
                if error.code not in (404, 409):
                    raise
        if stored is None:
            if other := self._other(await self._holder()):
                self.held = False
                raise AnotherAgentActs(
                    f"{other}, and acts for the node; this agent ends, and containers keep their CPUs"
                )
            stored = await (self._patch(body) if self._version else self._client.create(body))
        self._version = str(stored.get("metadata", {}).get("resourceVersion", ""))

    async def _patch(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write onto the version that is known. Raises APIError."""
        versioned = body | {"metadata": body["metadata"] | {"resourceVersion": self._version}}
        return await self._client.patch(Lease, self._node, versioned, namespace=keys.AGENT_NAMESPACE)
