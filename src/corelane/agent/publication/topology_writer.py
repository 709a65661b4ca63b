"""The NodeResourceTopology at the API server: written when what admission depends on changes.

There is one writer of zones. Where another exporter owns them, only annotations are written.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from corelane.agent.publication.publish_schedule import PublishSchedule
from corelane.agent.publication.write_queue import WriteQueue
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate.zone_owner import FIELD_MANAGER, without_zones, zone_owner

Make = Callable[[], dict[str, Any]]


class TopologyWriter:
    """Writes one node's object through `queue`; `owner_changed` is called with another owner of the zones."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        queue: WriteQueue,
        owner_changed: Callable[[str], None],
        schedule: PublishSchedule | None = None,
    ) -> None:
        self.owner = ""
        """The program beside corelane that owns the zones, "" where corelane does."""
        self.written = asyncio.Event()
        """Set once the object has been written."""
        self._client = client
        self._node = node
        self._queue = queue
        self._owner_changed = owner_changed
        self._schedule = schedule or PublishSchedule()
        self._timer: asyncio.TimerHandle | None = None
        self._make: Make | None = None
        self._owner_read = False

    def write(self, make: Make) -> None:
        """Write what `make` returns then, once for all calls until the write is due."""
        self._make = make
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._schedule.due(loop.time()), self.flush)

    def flush(self) -> None:
        """Put a write that waits for its time into the queue."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._queue.put("topology", self._write, "topology")

    def repair(self, make: Make) -> None:
        """Write what `make` returns if the object lacks parts of it."""

        async def write() -> None:
            body = make()
            stored = await self._stored()
            expected = without_zones(body) | {"zones": []} if self.owner else body
            if stored is None or translate.is_damaged(stored, expected):
                await self._put(body)

        self._queue.put("topology check", write, "topology")

    async def _write(self) -> None:
        assert self._make is not None
        if not self._owner_read:
            self._note(await self._stored())
        await self._put(self._make())
        self.written.set()

    async def _stored(self) -> dict[str, Any] | None:
        """Return the object at the API server. Raises APIError."""
        try:
            text = await self._client.raw("GET", NodeResourceTopology.api.path(name=self._node))
        except APIError as error:
            if error.code != 404:
                raise
            return None
        stored: dict[str, Any] = json.loads(text)
        return stored

    async def _put(self, body: dict[str, Any]) -> None:
        """Patch the object, or create it. Raises APIError."""
        foreign = bool(self.owner)
        patch = translate.as_patch(without_zones(body) if foreign else body)
        try:
            stored = await self._client.patch(
                NodeResourceTopology, self._node, patch, field_manager=FIELD_MANAGER
            )
        except APIError as error:
            if error.code != 404:
                raise
            self._note(await self._client.create(body, field_manager=FIELD_MANAGER))
            return
        self._note(stored)
        if foreign and not self.owner:
            await self._put(body)

    def _note(self, stored: dict[str, Any] | None) -> None:
        before, self.owner = self.owner, zone_owner(stored) if stored else ""
        self._owner_read = True
        if self.owner != before:
            self._owner_changed(self.owner)
