"""Follow starts and ends of containers: by the runtime's events, or by lists where it has none."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from typing import Final, Protocol

from corelane.runtime.base import ContainerState, RuntimeStatus
from corelane.runtime.cri.client import CRIClient
from corelane.runtime.cri.index import reached
from corelane.runtime.cri.values import Change, ContainerDetails, CRIError, RuntimeVersion
from corelane.runtime.process_watch import Tasks

_EXPECTED: Final[dict[str, ContainerState]] = {"started": "running", "stopped": "exited"}
_LATE_SECONDS: Final = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
"""Pauses between reads of a status: the event of a start or an end comes before the status shows it."""
_RELIST_SECONDS: Final = 1.0
_BACKOFF_SECONDS: Final = (0.1, 5.0)

_log = logging.getLogger(__name__)


class Containers(Protocol):
    """The containers that are followed; every method raises CRIError."""

    listed_at: float
    """On the monotonic clock."""

    async def containers(self) -> list[RuntimeStatus]: ...

    async def version(self, *, again: bool = False) -> RuntimeVersion: ...

    async def take(self, details: ContainerDetails) -> object:
        """Add what the runtime describes."""

    def retire(self, container_id: str) -> None:
        """Drop a container that the runtime does not have any more; sandboxes and unknown ids are ignored."""


class Follower:
    """Keeps containers up to date. `live`: whether a stream of events is open."""

    def __init__(self, containers: Containers, client: CRIClient, tasks: Tasks, list_seconds: float) -> None:
        self._containers, self._client, self._tasks = containers, client, tasks
        self._list_seconds = list_seconds
        self.live = False

    async def run(self) -> None:
        """Follow until cancelled; what fails is tried again with a growing pause."""
        least, most = _BACKOFF_SECONDS
        wait, logged = least, ""
        while True:
            began = time.monotonic()
            try:
                await self._run_once()
            except CRIError as error:
                if error.code == "UNIMPLEMENTED":
                    await self._poll()
                if str(error) != logged:
                    _log.warning("events of containers are interrupted: %s", error)
                logged = str(error)
            except Exception:  # noqa: BLE001 - the next attempt may succeed; without one, no start is seen
                _log.exception("events of containers are interrupted by an unexpected error")
            self.live = False
            if time.monotonic() - began > most:
                wait, logged = least, ""
            else:
                wait = min(wait * 2, most)
            await asyncio.sleep(wait)

    async def _run_once(self) -> None:
        async with aclosing(self._client.changes(await self._containers.version(again=True))) as changes:
            ended = asyncio.Event()
            relist = self._tasks.spawn(self._relist(ended))
            try:
                async for change in changes:
                    self._tasks.spawn(self._handle(change))
            finally:
                ended.set()
                await asyncio.wait([relist])  # its own error must not replace a cancellation
            relist.result()

    async def _relist(self, ended: asyncio.Event) -> None:
        """List at once, and again when the stream has begun for certain: events before that are lost."""
        while True:
            with suppress(CRIError):
                await self._containers.containers()
                if self.live or ended.is_set():
                    return
                self.live = True
            with suppress(TimeoutError):
                async with asyncio.timeout(_RELIST_SECONDS):
                    await ended.wait()
                return

    async def _poll(self) -> None:
        """List once a period, unless the agent has; ends when the runtime does not answer."""
        with suppress(CRIError):
            while True:
                if time.monotonic() - self._containers.listed_at >= 1.5 * self._list_seconds:
                    await self._containers.containers()
                await asyncio.sleep(self._list_seconds / 2)

    async def _handle(self, change: Change) -> None:
        try:
            details = await self._settled(change)
            if details is None:
                self._containers.retire(change.id)
            else:
                await self._containers.take(details)
        except CRIError as error:
            _log.warning("container %s: the next list shows what has changed: %s", change.id, error)

    async def _settled(self, change: Change) -> ContainerDetails | None:
        """Return the container of an event, read again while its state does not show the change yet."""
        expected = _EXPECTED.get(change.kind, "created")
        for seconds in _LATE_SECONDS:
            details = await self._client.details(change.id)
            if details is None or reached(details.state, expected):
                return details
            await asyncio.sleep(seconds)
        return await self._client.details(change.id)
