"""The runtime's own records of its containers, brought into line with what their cgroups have.

Without it the runtime would bring the old values back with its next update.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from corelane.runtime.base import ResourceUpdate, RuntimeFailure, UnknownContainer
from corelane.runtime.cri import changing
from corelane.runtime.cri.client import CRIClient
from corelane.runtime.cri.index import ContainerIndex, TrackedContainer
from corelane.runtime.cri.values import CRIError, CRIResources
from corelane.runtime.process_watch import Tasks

_BACKOFF_SECONDS: Final = (0.1, 30.0)
_LAST_SECONDS: Final = 1.0
_AT_A_TIME: Final = 4
"""Fewer than the calls in flight, so that others need not wait."""

_log = logging.getLogger(__name__)

Write = Callable[[TrackedContainer, ResourceUpdate], Awaitable[None]]


class Recorder:
    """Sends changes to the runtime, at once or in the background; `write` writes a container's cgroup."""

    def __init__(self, index: ContainerIndex, client: CRIClient, tasks: Tasks, write: Write) -> None:
        self._index, self._client, self._tasks, self._write = index, client, tasks, write
        self._task: asyncio.Task[None] | None = None
        self._postponed = asyncio.Event()
        self._holders = 0
        self._released = asyncio.Event()
        self._released.set()

    @property
    def lacking(self) -> list[str]:
        """Ids of containers whose record lacks what their cgroup has."""
        return [container.status.id for container in self._lacking()]

    def _lacking(self) -> list[TrackedContainer]:
        return [one for one in self._index if one.unrecorded and one.status.state != "exited"]

    @property
    def are_held(self) -> bool:
        return self._holders > 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Begin no update meanwhile: an NRI handler is at work, for whose end the update would wait."""
        self._holders += 1
        self._released.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._released.set()

    def note_recorded(self, container_id: str, change: ResourceUpdate) -> None:
        """Note that the runtime gets a change by other means, as in the answer of an NRI handler."""
        if container := self._index.get(container_id):
            container.unrecorded = container.unrecorded and changing.without(container.unrecorded, change)
            container.older = container.older and changing.without(container.older, change)

    def note_unrecorded(self, container_id: str, change: ResourceUpdate) -> None:
        """Note that the runtime did not get a change after all."""
        if container := self._index.get(container_id):
            self.postpone(container, change)

    async def record(self, container: TrackedContainer, change: ResourceUpdate) -> None:
        """Send a change, and what is not recorded yet: the runtime applies its record as a whole.

        Raises UnknownContainer, CRIError.
        """
        for earlier in (container.unrecorded, container.older):
            change = changing.merged(earlier or ResourceUpdate(), change)
        resources = changing.cri_resources(change)
        try:
            if resources != CRIResources():
                await self._client.update(container.status.id, resources)
        except CRIError as error:
            if error.code != "NOT_FOUND":
                raise
            self._index.retire(container.status.id)
            raise UnknownContainer(container.status.id) from None
        container.unrecorded = container.older = None

    def postpone(self, container: TrackedContainer, change: ResourceUpdate) -> None:
        """Send a change in the background."""
        container.unrecorded = changing.merged(container.unrecorded or ResourceUpdate(), change)
        self._postponed.set()
        if self._task is None or self._task.done():
            self._task = self._tasks.spawn(self._record_all())

    async def _record_all(self) -> None:
        """Bring the runtime's record of every container into line, for as long as that takes."""
        least, most = _BACKOFF_SECONDS
        wait = least
        while pending := self._lacking():
            self._postponed.clear()
            places = asyncio.Semaphore(_AT_A_TIME)
            await asyncio.gather(*(self._record_postponed(one, places) for one in pending))
            if any(container.unrecorded for container in pending):
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._postponed.wait()
                wait = min(wait * 2, most)
            else:
                wait = least

    async def _record_postponed(self, container: TrackedContainer, places: asyncio.Semaphore) -> None:
        async with places:
            await self._released.wait()
            async with container.lock:
                change, container.newer = container.unrecorded, ResourceUpdate()
                try:
                    if change:
                        await self.record(container, change)
                except CRIError as failure:
                    _log.info(
                        "container %s: the runtime's record is behind: %s", container.status.id, failure
                    )
                except UnknownContainer:
                    return
                with suppress(RuntimeFailure, UnknownContainer):
                    await self.repeat_newer(container)

    async def repeat_newer(self, container: TrackedContainer) -> None:
        """Write again what a handler wrote meanwhile: the runtime may have applied its record after that."""
        if container.newer != ResourceUpdate():
            self.postpone(container, container.newer)
            await self._write(container, container.newer)

    async def close(self) -> None:
        """End; what can be recorded within a moment is."""
        if self._task:
            await asyncio.wait([self._task], timeout=_LAST_SECONDS)
            self._task.cancel()
