"""Watches: cursors into the store's history; a slow one costs no memory, and gets 410 when it falls behind.

An object that enters a selection is ADDED; one that leaves it is DELETED with its last selected state.
Frames are encoded once per form and shared among watchers.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator

from corelane.embedded.apiserver import api_requests, status_errors
from corelane.embedded.apiserver.api_requests import ListOptions, Target
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.store import listing, server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Compacted, StoredObject, StoreEvent

BOOKMARK_PERIOD = 60.0
"""Seconds between bookmarks, for those who asked for them."""

_SHORTEST, _LONGEST = 1800, 3600  # seconds, where the client sets no timeout, as upstream's default
_CHUNK = 32 * 1024


class WatchTimer:
    """Times at which a watch has something to do without a write: bookmarks, and its end.

    All times are seconds of one monotonic clock. `period` None is a watch without bookmarks, which sleeps
    until its deadline: a bookmark that is never sent is never due.
    """

    def __init__(self, now: float, seconds: float, period: float | None) -> None:
        self._period = period
        self._deadline = now + seconds
        self._due = self._deadline if period is None else now + period

    def expired(self, now: float) -> bool:
        """Whether the watch ends now."""
        return now >= self._deadline

    def bookmark(self, now: float) -> bool:
        """Whether a bookmark is sent now, the last one at the deadline; the next is due a period later."""
        if self._period is None or now < min(self._due, self._deadline):
            return False
        self._due = now + self._period
        return True

    def pause(self, now: float) -> float:
        """Seconds until `bookmark` or `expired` changes without a write."""
        return max(0.0, min(self._due, self._deadline) - now)


class WatchStream:
    """One client's watch. `frames()` yields what to send, until its timeout, `end()`, or an error event."""

    def __init__(
        self,
        backend: Backend,
        target: Target,
        view: wire.View,
        options: ListOptions,
        bookmark_period: float = BOOKMARK_PERIOD,
    ) -> None:
        """Raises StatusError for what cannot be watched."""
        self._store = backend.store
        self._target = target
        self._view = view
        self._options = options
        self._period = bookmark_period
        self._resource = server_backend.resource(target)
        self._wake = asyncio.Event()
        self._ended = False
        self._columns = True  # only the first event of a Table watch defines the columns
        listing.check_selectable(server_backend.kind_of(target), target.version, options.selection)
        self._start = self._revision()

    def end(self) -> None:
        """End the stream after the frames that were sent."""
        self._ended = True
        self._wake.set()

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Lines of JSON, several at a time."""
        seconds = self._options.timeout or random.randint(_SHORTEST, _LONGEST)  # noqa: S311 - spreads load
        timer = WatchTimer(time.monotonic(), seconds, self._period if self._options.bookmarks else None)
        with self._store.woken(self._resource, self._wake.set):
            self._store.settle()
            if not (self._initial or self._store.covers(self._resource, self._start)):
                yield wire.error(wire.gone(self._start, self._store.floor(self._resource)))
                return
            cursor = self._store.revision if self._initial else self._start
            for chunk in _chunks(self._opening(cursor)):
                yield chunk
            async for chunk in self._following(cursor, timer):
                yield chunk

    async def _following(self, cursor: int, timer: WatchTimer) -> AsyncIterator[bytes]:
        while not self._ended:
            self._wake.clear()
            try:
                events = self._store.events(self._resource, cursor)
            except Compacted:
                yield wire.error(wire.gone(cursor, self._store.floor(self._resource)))
                return
            cursor = self._store.revision
            for chunk in _chunks(self._selected(events)):
                yield chunk
            now = time.monotonic()
            if timer.bookmark(now):
                yield self._bookmark(cursor)
            if timer.expired(now):
                return
            await self._pause(timer.pause(time.monotonic()))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    @property
    def _initial(self) -> bool:
        """Whether the watch begins with what is there."""
        asked = self._options.initial_events
        return self._start == 0 if asked is None else asked

    def _revision(self) -> int:
        text = self._options.resource_version
        try:
            found = api_requests.revision(text) if text else 0
        except ValueError as error:
            raise status_errors.internal(str(error)) from None
        if self._options.initial_events is None:
            return found
        if found > self._store.revision:
            raise status_errors.resource_version_too_large(found, self._store.revision)
        return found or self._store.revision

    def _opening(self, revision: int) -> Iterator[bytes]:
        if not self._initial:
            return
        for record in self._store.find(self._resource, self._target.prefix):
            if self._matches(record):
                yield wire.added(self._view, record, columns=self._first())
        if self._options.initial_events and self._options.bookmarks:
            yield self._bookmark(revision, initial=True)

    def _bookmark(self, revision: int, *, initial: bool = False) -> bytes:
        return wire.bookmark(self._view, revision, initial=initial, columns=self._first())

    def _selected(self, events: Iterable[StoreEvent]) -> Iterator[bytes]:
        for event in events:
            found = self._seen(event)
            if found:
                yield wire.event(self._view, event, *found, columns=self._first())

    def _seen(self, event: StoreEvent) -> tuple[str, StoredObject] | None:
        """Return an event's type and state as this watch sees it, None if it is not selected."""
        if not event.record.key.startswith(self._target.prefix):
            return None
        before = event.previous is not None and self._matches(event.previous)
        after = event.kind != "DELETED" and self._matches(event.record)
        if after:
            return ("MODIFIED" if before else "ADDED"), event.record
        if before and event.previous is not None:
            return "DELETED", event.record if event.kind == "DELETED" else event.previous
        return None

    def _matches(self, record: StoredObject) -> bool:
        selection = self._options.selection
        return selection.empty or listing.matches(self._view.kind, self._view.version, selection, record)

    def _first(self) -> bool:
        first, self._columns = self._columns, False
        return first


def _chunks(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Frames joined to pieces worth a write."""
    batch: list[bytes] = []
    size = 0
    for frame in frames:
        batch.append(frame)
        size += len(frame)
        if size >= _CHUNK:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)
