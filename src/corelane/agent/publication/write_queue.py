"""A queue of writes to the API server: a newer write replaces a waiting one, failed ones are retried.

Theory of operation. Writes have a key and belong to a group: those of a group are carried out in the order of
their keys, so that a pod's last status precedes its deletion, and a group that fails waits, longer each time,
while the others go on. Where the server itself is in trouble (no answer, 429, 5xx) the whole queue slows
down. However long that lasts, the last write of every key waits: the queue is as long as there are keys, and
the owner forgets groups whose object is gone. Where keys are without number, as with events, a limit drops
the oldest groups. Else a write is dropped only if it is obsolete, or failed `attempts` times for a reason of
its own. All times are of the event loop's monotonic clock.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import Final

from corelane.kube.client import APIError

Write = Callable[[], Awaitable[object]]

_FIRST_DELAY: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
"""Seconds between two attempts of any write while the server is in trouble."""
_LONGEST_DELAY: Final = 60.0
"""Seconds between two attempts of a write that alone fails, for want of a permission, say."""
_REFUSED: Final = (401, 403)


class PublicationReporter:
    """Empty hooks, to be overridden by logs and metrics. Hooks must not raise and must not block."""

    def api_failed(self, what: str, error: Exception) -> None:
        """A write to the API server failed; it is retried unless it is obsolete."""

    def malfunction(self, what: str, error: BaseException) -> None:
        """An unexpected error; the agent continues."""

    def zones_owned_by(self, owner: str) -> None:
        """Another program writes the zones of the NodeResourceTopology; corelane writes annotations only."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue's state for people: `failing_for` in seconds, 0.0 where nothing fails.

    `obsolete` counts writes that the server refused as their object was gone or changed; `dropped` those that
    are lost.
    """

    name: str
    waiting: int
    written: int
    obsolete: int
    dropped: int
    failing_for: float = 0.0
    last_error: str = ""


@dataclass(slots=True)
class _Group:
    """The waiting writes of a group; `due` and `failing_since` are monotonic, `failures` in a row.

    Groups with a lower `number` are older.
    """

    number: int = 0
    keeps: bool = False
    reported: str = ""
    writes: dict[Hashable, Write] = field(default_factory=dict)
    due: float = 0.0
    failures: int = 0
    failing_since: float = 0.0


class WriteQueue:
    """The writes of one kind; `run` carries them out one after another until cancelled."""

    def __init__(
        self,
        reporter: PublicationReporter,
        limit: int = 0,
        *,
        name: str = "",
        attempts: int = 0,
        keeps: bool = False,
    ) -> None:
        """`reporter` receives failures, unexpected exceptions too, but none that repeats the last one.

        `limit` is that of groups, 0 none.
        With `keeps` no answer of the server makes a write obsolete: its object is always to be written.
        """
        self.name = name
        self._reporter = reporter
        self._limit = limit
        self._attempts = attempts
        self._keeps = keeps
        self._ready: dict[Hashable, _Group] = {}
        self._delayed: dict[Hashable, _Group] = {}
        self._numbers = count()
        self._under_way: _Group | None = None
        self._waiting = self._written = self._obsolete = self._dropped = self._troubles = 0
        self._last_error = ""
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, key: Hashable, write: Write, group: Hashable = None, *, keeps: bool = False) -> None:
        """Queue a write, in place of a waiting one of that key; a full queue drops its oldest group.

        With `keeps` no answer makes writes of the group obsolete, until `forget`.
        """
        waiting = self._delayed.get(group) or self._ready.get(group)
        if waiting is None:
            if self._limit and len(self._ready) + len(self._delayed) >= self._limit:
                self._drop_oldest()
            waiting = self._ready[group] = _Group(next(self._numbers))
        waiting.keeps = keeps
        self._waiting += key not in waiting.writes
        waiting.writes[key] = write
        self._work.set()
        self._idle.clear()

    def forget(self, group: Hashable) -> None:
        """Drop the waiting writes of a group: its object is gone. One that is under way completes."""
        waiting = self._ready.pop(group, None) or self._delayed.pop(group, None)
        if waiting is not None:
            self._waiting -= len(waiting.writes)
            self._note_idle()

    def _drop_oldest(self) -> None:
        groups = (self._ready | self._delayed).items()
        waiting = [(group.number, name) for name, group in groups if group is not self._under_way]
        if waiting:
            name = min(waiting, key=itemgetter(0))[1]
            self._dropped += len((self._ready.get(name) or self._delayed[name]).writes)
            self.forget(name)

    async def idle(self) -> None:
        """Wait until nothing is left to write."""
        await self._idle.wait()

    def state(self) -> QueueState:
        groups = (*self._ready.values(), *self._delayed.values())
        since = [group.failing_since for group in groups if group.failures]
        failing = asyncio.get_running_loop().time() - min(since) if since else 0.0
        error = self._last_error if since else ""
        counts = (self._waiting, self._written, self._obsolete, self._dropped)
        return QueueState(self.name, *counts, failing, error)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            name = await self._next()
            self._under_way = self._ready[name]
            pause = await self._attempt(name, self._under_way)
            self._under_way = None
            if pause:
                await asyncio.sleep(pause)

    async def _next(self) -> Hashable:
        """Wait for a group that is due, and return its name."""
        now = asyncio.get_running_loop().time
        while True:
            for name in [name for name, group in self._delayed.items() if group.due <= now()]:
                self._ready[name] = self._delayed.pop(name)
            if self._ready:
                return next(iter(self._ready))
            self._work.clear()
            due = min((group.due for group in self._delayed.values()), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._work.wait()

    async def _attempt(self, name: Hashable, group: _Group) -> float:
        """Carry out the group's first write; return the seconds by which the whole queue is to pause."""
        key, write = next(iter(group.writes.items()))
        try:
            await write()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one write, the others go on
            return self._failed(name, group, key, write, error)
        self._written += 1
        self._troubles = 0
        self._finish(name, group, key, write)
        return 0.0

    def _failed(self, name: Hashable, group: _Group, key: Hashable, write: Write, error: Exception) -> float:
        self._last_error = str(error) or type(error).__name__
        # Other writes would fail alike: no answer, too many requests, or a failure of the server.
        trouble = isinstance(error, APIError) and (error.code in (0, 429) or error.code >= 500)
        if not (trouble and self._troubles) and group.reported != self._last_error:
            if isinstance(error, APIError):
                self._reporter.api_failed(str(key), error)
            else:
                self._reporter.malfunction(f"publishing {key}", error)
        group.reported = self._last_error
        self._troubles = self._troubles + 1 if trouble else 0
        if not trouble and self._is_vain(group, error):
            if _is_obsolete(error):
                self._obsolete += 1
            else:
                self._dropped += 1
            self._finish(name, group, key, write)
            return 0.0
        now = asyncio.get_running_loop().time()
        group.failing_since = group.failing_since if group.failures else now
        group.failures += 1
        group.due = now + _jittered(_LONGEST_PAUSE if trouble else _LONGEST_DELAY, group.failures)
        if self._ready.get(name) is group:
            self._delayed[name] = self._ready.pop(name)
        asked = float(error.retry_after) if isinstance(error, APIError) else 0.0
        return max(asked, _jittered(_LONGEST_PAUSE, self._troubles)) if trouble else 0.0

    def _is_vain(self, group: _Group, error: Exception) -> bool:
        """Whether another attempt would fail, too: the object is gone or changed, or attempts are used up."""
        if self._attempts and group.failures + 1 >= self._attempts:
            return True
        return _is_obsolete(error) and not self._keeps and not group.keeps

    def _finish(self, name: Hashable, group: _Group, key: Hashable, write: Write) -> None:
        """Remove a write unless a newer one replaced it, and put its group behind the others."""
        if self._ready.get(name) is not group:
            return  # forgotten meanwhile
        group.failures, group.reported = 0, ""
        if group.writes[key] is write:
            del group.writes[key]
            self._waiting -= 1
        del self._ready[name]
        if group.writes:
            self._ready[name] = group
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._ready and not self._delayed:
            self._idle.set()


def _is_obsolete(error: Exception) -> bool:
    """Whether the server refuses a write for good: the object is gone, changed, or not as it must be."""
    return isinstance(error, APIError) and error.code not in _REFUSED


def _jittered(longest: float, failures: int) -> float:
    return min(longest, _FIRST_DELAY * 2.0 ** min(failures, 20)) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
