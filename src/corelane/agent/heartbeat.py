"""Keeps the node registered and its lease renewed, and its status right where it was taken for lost."""

import asyncio
from collections.abc import Callable
from typing import Final

from corelane.agent import registration
from corelane.agent.registration import Disk, Identity, Registered
from corelane.agent.reporter import Reporter
from corelane.kube import keys
from corelane.kube.client import APIError, KubeClient
from corelane.node import NodeState

RENEW_SECONDS: Final = 10.0
_CHECK_EVERY: Final = 3
_STATUS_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = 1.0


class Heartbeat:
    """The node's sign of life; `uid` is the Node's, once registered."""

    def __init__(
        self,
        client: KubeClient,
        identity: Identity,
        reporter: Reporter,
        clock: Callable[[], float],
        ledger: Callable[[], NodeState],
        registered: Callable[[Registered], None] = lambda _: None,
        said_again: Callable[[], None] = lambda: None,
    ) -> None:
        """`registered` is called whenever the Node was made or brought up to date.

        `said_again` is called every few minutes, as the Node's status is written though it is the same:
        others may have damaged what else the node says of itself.
        """
        self.uid = ""
        self._client = client
        self._identity = identity
        self._reporter = reporter
        self._clock = clock
        self._ledger = ledger
        self._registered = registered
        self._said_again = said_again
        self._since = clock()
        self._posted = 0.0
        self._disk = Disk()
        self._raw: str | None = ""
        self._offered = _offered(ledger())

    async def register(self) -> None:
        """Make the node known, however long that takes."""
        while True:
            try:
                await self._register()
                return
            except APIError as error:
                self._reporter.api_failed("registering the node", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _register(self) -> None:
        now = self._clock()
        found = await registration.register(self._client, self._identity, self._ledger(), now, self._disk)
        self.uid = found.uid
        self._since = self._posted = now
        await registration.renew_lease(self._client, self._identity.name, self.uid, now)
        self._registered(found)

    async def run(self) -> None:
        """Renew the lease until cancelled; look now and then whether the node is still there, and ready."""
        beats = 0
        while True:
            await asyncio.sleep(RENEW_SECONDS if beats >= 0 else _RETRY_SECONDS)
            try:
                await self._beat(check=beats % _CHECK_EVERY == 0)
                beats = max(beats, 0) + 1
            except APIError as error:
                self._reporter.api_failed("the node's lease", error)
                beats = -_CHECK_EVERY  # after a gap somebody may have taken the node for lost

    async def _beat(self, *, check: bool) -> None:
        now = self._clock()
        await registration.renew_lease(self._client, self._identity.name, self.uid, now)
        if check and not await registration.is_ready(self._client, self._identity.name):
            await self._register()
        elif now - self._posted >= _STATUS_SECONDS:
            await self.post()
            self._said_again()

    def disk_is(self, fault: str) -> bool:
        """Note why the ledger cannot be written, "" if it can; whether that is new, and must be posted."""
        if fault == self._disk.fault:
            return False
        self._disk = Disk(fault, self._clock())
        return True

    def offers_other(self) -> bool:
        """Note what the ledger offers; whether that is other than before, and must be posted."""
        before, self._offered = self._offered, _offered(self._ledger())
        return self._offered != before

    async def post(self) -> None:
        """Write the Node's status. Raises APIError."""
        now = self._clock()
        ledger = self._ledger()
        await registration.post_status(
            self._client, self._identity, ledger, since=self._since, at=now, disk=self._disk
        )
        raw = registration.raw_allocatable(ledger)
        if raw != self._raw:
            await registration.annotate(self._client, self._identity.name, keys.RAW_ALLOCATABLE, raw)
            self._raw = raw
        self._posted = now


def _offered(ledger: NodeState) -> tuple[int, int]:
    """What settings can change of the Node's status: milliCPU, and bytes of memory kept from pods."""
    return ledger.allocatable, ledger.withheld_memory
