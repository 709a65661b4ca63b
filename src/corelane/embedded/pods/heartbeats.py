"""Heartbeats of many nodes whose agents share a process with the API server, renewed in batches.

Every lease is renewed every RENEW_SECONDS, a part of them at a time, and every status is written again after
some minutes, spread over them. Where the process lacks CPU time for that, parts that are late are renewed
together: a node is not lost because the machine is busy. What a node needs beyond that, such as a
registration after its Node was deleted, is done for that node alone.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from corelane.agent.publication.stored_objects import NodeObjects
from corelane.embedded.pods.node_status import CONDITIONS
from corelane.embedded.pods.registration import RENEW_SECONDS, STATUS_SECONDS, Heartbeat

_PARTS: Final = 20
_STEP_SECONDS: Final = RENEW_SECONDS / _PARTS


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
        objects: NodeObjects,
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
            unnamed = set(self.objects.renew_leases([one.name for one in part], self._clock()))
            alone = [one for one in part if one.name in unnamed or not one.is_ready(self.objects)]
            await self._repost([one for one in self._due(part) if one not in alone])
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
