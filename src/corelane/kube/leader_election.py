"""Leader election by a Lease (coordination.k8s.io), compatible with client-go's `leaderelection`.

One replica holds the lease and renews it; the others take it once it was not renewed for its duration, as
measured by their own clock from the moment they saw the last renewal: no two clocks are compared. The holder
stops before that: it leads until `renew_deadline` after the start of its last successful renewal, which is
shorter than the duration. `leading` says so at every moment, also right after a pause of the process.

Beyond client-go: a holder that reads another's name in the lease stops at once, not at its deadline.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from corelane.kube.apierrors import APIError, MalformedObject
from corelane.kube.client import KubeClient
from corelane.kube.decode import UNDECODABLE, without_nulls
from corelane.kube.meta import micro_time
from corelane.kube.objects import Lease

JITTER: Final = 1.2
"""Retries are up to this times the retry period plus one apart (client-go's JitterFactor)."""


class ElectionSettingsError(ValueError):
    """Times that do not fit together; says which and how to correct them.

    `settings` are the names of these times in `LeaseSettings`, the one to be corrected first.
    """

    def __init__(self, message: str, *settings: str) -> None:
        super().__init__(message)
        self.settings = settings


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Where the lease is, and client-go's times, in s."""

    name: str
    namespace: str = "kube-system"
    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if self.duration < 1 or self.duration != int(self.duration):
            raise ElectionSettingsError(
                f"lease duration {self.duration:g} s: must be a whole number of seconds, 1 or more",
                "duration",
            )
        if self.renew_deadline >= self.duration:
            raise ElectionSettingsError(
                f"renew deadline {self.renew_deadline:g} s: must be shorter than the lease duration "
                f"({self.duration:g} s)",
                "renew_deadline",
                "duration",
            )
        if self.retry_period <= 0 or self.renew_deadline <= JITTER * self.retry_period:
            raise ElectionSettingsError(
                f"retry period {self.retry_period:g} s: must be above 0 and {JITTER:g} times it shorter than "
                f"the renew deadline ({self.renew_deadline:g} s)",
                "retry_period",
                "renew_deadline",
            )


class ElectionReporter:
    """Hooks for logs and metrics, empty by default."""

    def waiting(self, holder: str) -> None:
        """Another replica holds the lease."""

    def leading(self, *, leads: bool) -> None:
        """This replica has the lease now, or no longer."""

    def lease_failed(self, error: Exception) -> None:
        """The lease could not be read or written; it is tried again."""


def uptime() -> float:
    """Return seconds of a clock that nothing sets, and that runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaderElector:
    """One replica's part in the election."""

    def __init__(
        self,
        client: KubeClient,
        settings: LeaseSettings,
        identity: str,
        *,
        reporter: ElectionReporter | None = None,
        now: Callable[[], float] = uptime,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """`clock` is for what is written; decisions go by `now`."""
        self.identity = identity
        self.settings = settings
        self._client = client
        self._reporter = reporter or ElectionReporter()
        self._now = now
        self._clock = clock
        self._sleep = sleep
        self._random = rng or random.Random()  # noqa: S311 - jitter, not secrets
        self._lease: Lease | None = None
        self._seen_at = 0.0
        """When the lease was first seen as it is."""
        self._leads_until = float("-inf")

    @property
    def leading(self) -> bool:
        """Whether this replica may act as the leader now."""
        return self._now() < self._leads_until

    @property
    def holder(self) -> str:
        """Identity of the lease's holder as last seen; "" without one."""
        return self._lease.spec.holder_identity if self._lease else ""

    @property
    def renewals_late(self) -> bool:
        """Whether a leader's last renewal is longer ago than the lease lasts: its loop hangs."""
        ended = self._leads_until != float("-inf") and self.holder == self.identity
        margin = self.settings.duration - self.settings.renew_deadline
        return ended and self._now() > self._leads_until + margin

    async def acquire(self) -> None:
        """Wait until this replica has the lease."""
        while not await self._acquire_or_renew():
            period = self.settings.retry_period
            await self._sleep(period + self._random.random() * JITTER * period)
        self._reporter.leading(leads=True)

    async def hold(self) -> None:
        """Renew the lease; return when it is lost."""
        try:
            while await self._renewed():
                await self._sleep(self.settings.retry_period)
        finally:
            self._leads_until = float("-inf")
            self._reporter.leading(leads=False)

    async def _renewed(self) -> bool:
        """Try until it succeeds, the time is over, or another holds the lease."""
        while self.leading:
            try:
                async with asyncio.timeout(max(0.001, self._leads_until - self._now())):
                    if await self._acquire_or_renew():
                        return True
            except TimeoutError:
                return False
            if self.holder != self.identity:
                return False
            await self._sleep(min(self.settings.retry_period, max(0.0, self._leads_until - self._now())))
        return False

    async def release(self) -> None:
        """Give the lease up, so that another replica takes it at once; an error leaves it to expire."""
        if self.holder != self.identity or self._lease is None:
            return
        self._leads_until = float("-inf")
        now = micro_time(self._clock())
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now, "acquireTime": now}
        try:
            async with asyncio.timeout(self.settings.renew_deadline):
                await self._patch(self._lease, spec)
        except (APIError, TimeoutError) as error:
            self._reporter.lease_failed(error)

    async def _acquire_or_renew(self) -> bool:
        begun = self._now()
        try:
            # client-go's limit for each request of its election client.
            async with asyncio.timeout(self.settings.renew_deadline):
                won = await self._attempt(begun)
        except (APIError, TimeoutError) as error:
            self._reporter.lease_failed(error)
            return False
        if won:
            self._leads_until = begun + self.settings.renew_deadline
        return won

    async def _attempt(self, begun: float) -> bool:
        if self.leading and self._lease is not None and self.holder == self.identity:
            try:
                await self._take(self._lease)
            except APIError as error:
                # Changed or deleted by another: look.
                if error.code not in {404, 409}:
                    raise
            else:
                return True
        lease = await self._read()
        if lease is None:
            now = micro_time(self._clock())
            new = {
                "apiVersion": Lease.api.api_version,
                "kind": "Lease",
                "metadata": {"name": self.settings.name, "namespace": self.settings.namespace},
                "spec": {
                    "holderIdentity": self.identity,
                    "leaseDurationSeconds": int(self.settings.duration),
                    "acquireTime": now,
                    "renewTime": now,
                    "leaseTransitions": 0,
                },
            }
            self._observe_stored(await self._client.create(new))
            return True
        if self._lease is None or self._lease.metadata.resource_version != lease.metadata.resource_version:
            self._observe(lease)
        expires = self._seen_at + max(0, lease.spec.lease_duration_seconds)
        if self.holder and self.holder != self.identity and begun < expires:
            self._reporter.waiting(self.holder)
            return False
        await self._take(lease)
        return True

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(Lease, self.settings.name, self.settings.namespace)
        except APIError as error:
            if error.code == 404:
                return None
            raise

    async def _take(self, lease: Lease) -> None:
        """Write the lease, unless it changed since. Raises APIError 409."""
        renewal = lease.spec.holder_identity == self.identity
        now = micro_time(self._clock())
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self.settings.duration),
            "renewTime": now,
        }
        if not renewal:
            spec |= {"acquireTime": now, "leaseTransitions": lease.spec.lease_transitions + 1}
        await self._patch(lease, spec)

    async def _patch(self, lease: Lease, spec: dict[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        stored = await self._client.patch(
            Lease, self.settings.name, body, namespace=self.settings.namespace, kind_of_patch="merge"
        )
        self._observe_stored(stored)

    def _observe_stored(self, stored: dict[str, Any]) -> None:
        try:
            lease = msgspec.convert(without_nulls(stored), Lease)
        except UNDECODABLE as error:
            raise MalformedObject(f"the stored Lease cannot be decoded: {error}") from error
        self._observe(lease)

    def _observe(self, lease: Lease) -> None:
        self._lease, self._seen_at = lease, self._now()
