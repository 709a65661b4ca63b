"""Lists at one revision, and watches: cursors into the store's history.

All pages of a list show the same revision; continue tokens are upstream's (`storage/continue.go`): the first
page's revision and the key to go on from. A slow watch costs no memory, and gets 410 when it falls behind.
An object that enters a selection is ADDED; one that leaves it is DELETED with its last selected state.
Frames are encoded once per form and shared among watchers.
"""

import asyncio
import base64
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec

from corelane.embedded.apiserver import api_requests, selector_syntax, status_errors
from corelane.embedded.apiserver.api_requests import ListOptions, Target
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.selector_syntax import Selectors
from corelane.embedded.apiserver.served_kinds import ServedKind
from corelane.embedded.apiserver.store import server_backend
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.apiserver.stored_objects import Compacted, StoredObject, StoreEvent

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - not a secret, the name of a format
_PLACE = {"metadata.name", "metadata.namespace"}
_TOO_OLD = "The resourceVersion for the provided list is too old."
_PAGE_TOO_OLD = (
    "The provided continue parameter is too old. Start a new list without it, or use the continue token of "
    "this response for the rest of the list, which may differ from the first page by later changes."
)
BOOKMARK_PERIOD = 60.0
"""Seconds between bookmarks, for those who asked for them."""
_CHUNK = 32 * 1024


@dataclass(frozen=True, slots=True)
class ListPage:
    """Records of a list and its ListMeta."""

    records: Sequence[StoredObject]
    meta: dict[str, Any]


def page(backend: Backend, target: Target, options: ListOptions) -> ListPage:
    """The records that a list request asks for. Raises StatusError 400, 410 or 504."""
    kind = server_backend.kind_of(target)
    check_selectable(kind, target.version, options.selection)
    at, start, limit = _position(backend, options)
    try:
        records = backend.store.range(kind.stored, target.prefix, at, start)
    except Compacted:
        raise _too_old(options, start) from None
    chosen = select(kind, target.version, options.selection, records, limit + 1 if limit else None)
    meta: dict[str, Any] = {"resourceVersion": str(backend.store.revision if at is None else at)}
    if not limit or len(chosen) <= limit:
        return ListPage(chosen[:], meta)
    last = chosen[limit - 1].key[len(target.prefix) :]
    meta["continue"] = _token(int(meta["resourceVersion"]), last + "\0")
    if options.selection.empty:
        meta["remainingItemCount"] = len(chosen) - limit
    return ListPage(chosen[:limit], meta)


def _position(backend: Backend, options: ListOptions) -> tuple[int | None, str, int]:
    """Return the revision to list at (None: now), the key to begin with, and how many. Raises StatusError."""
    limit = max(options.limit, 0)
    if options.continuation:
        revision, start = _read_token(options.continuation)
        if options.resource_version not in {"", "0"}:
            raise status_errors.bad_request("specifying resource version is not allowed when using continue")
        return (None if revision < 0 else revision), start, limit
    given = _revision(options.resource_version)
    if given > backend.store.revision:
        raise status_errors.resource_version_too_large(given, backend.store.revision)
    exact = options.match == "Exact" or (limit and not options.match)
    if given and exact:
        return given, "", limit
    # what may come from a cache comes whole, as upstream's cache gives it
    return None, "", 0 if options.resource_version == "0" else limit


def _revision(text: str) -> int:
    try:
        return api_requests.revision(text) if text else 0
    except ValueError as error:
        raise status_errors.bad_request(str(error)) from None


def _too_old(options: ListOptions, start: str) -> status_errors.StatusError:
    if not options.continuation:
        return status_errors.expired(_TOO_OLD)
    error = status_errors.expired(_PAGE_TOO_OLD)
    return replace(error, metadata={"continue": _token(-1, start)})


class _Token(msgspec.Struct):
    """A continue token: at which revision and key a list goes on; revision -1 is the newest."""

    v: str
    rv: int
    start: str


def _token(revision: int, start: str) -> str:
    text = msgspec.json.encode(_Token(_TOKEN_VERSION, revision, start))
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _read_token(text: str) -> tuple[int, str]:
    """Return a token's revision and start. Raises StatusError 400."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(raw, type=_Token)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise _bad_token(str(error)) from None
    if token.v != _TOKEN_VERSION or not token.rv or not token.start:
        raise _bad_token(f"v must be {_TOKEN_VERSION}, rv and start must be set")
    if not {"", ".", ".."}.isdisjoint(token.start.removeprefix("/").split("/")):
        raise _bad_token(f"start is not a key: {token.start}")
    return token.rv, token.start


def _bad_token(why: str) -> status_errors.StatusError:
    return status_errors.bad_request(f"invalid continue token, list again without it: {why}")


def check_selectable(kind: ServedKind, version: str, selection: Selectors) -> None:
    """Raises StatusError 400 for field labels that objects of this kind do not have."""
    if not selection.fields:
        return
    empty = wire.typed(kind, version, {"metadata": {}})
    fields = set(wire.selectable_fields(kind, empty))
    if not kind.custom and fields <= _PLACE:
        fields = _PLACE
    try:
        selector_syntax.check_fields(selection.fields, fields)
    except ValueError as error:
        raise status_errors.bad_request(str(error)) from None


def select(
    kind: ServedKind,
    version: str,
    selection: Selectors,
    records: Sequence[StoredObject],
    most: int | None = None,
) -> Sequence[StoredObject]:
    """Return the selected records; with a selection not more than `most`."""
    if selection.empty:
        return records
    return list(islice((record for record in records if matches(kind, version, selection, record)), most))


def matches(kind: ServedKind, version: str, selection: Selectors, record: StoredObject) -> bool:
    """Whether a record is selected; the store keeps the labels of the stored form only."""
    if not selection.fields or kind is wire.stored_kind(kind):
        return selection.matches(record.labels, record.fields)
    obj = wire.convert(kind, record.object(), version)
    return selection.matches(record.labels, wire.selectable_fields(kind, obj))


_SHORTEST, _LONGEST = 1800, 3600  # seconds, where the client sets no timeout, as upstream's default


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
        check_selectable(server_backend.kind_of(target), target.version, options.selection)
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
            with suppress(TimeoutError):
                async with asyncio.timeout(timer.pause(time.monotonic())):
                    await self._wake.wait()

    @property
    def _initial(self) -> bool:
        """Whether the watch begins with what is there."""
        asked = self._options.initial_events
        return self._start == 0 if asked is None else asked

    def _revision(self) -> int:
        revision = server_backend.parse_revision(self._options.resource_version)
        if self._options.initial_events is None:
            return revision
        if revision > self._store.revision:
            raise status_errors.resource_version_too_large(revision, self._store.revision)
        return revision or self._store.revision

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
        """Yield the events that this watch sees, with the type and state that they have for it."""
        for event in events:
            record, previous = event.record, event.previous
            if not record.key.startswith(self._target.prefix):
                continue
            before = previous is not None and self._matches(previous)
            if event.kind != "DELETED" and self._matches(record):
                kind = "MODIFIED" if before else "ADDED"
            elif before and previous is not None:
                kind, record = "DELETED", record if event.kind == "DELETED" else previous
            else:
                continue
            yield wire.event(self._view, event, kind, record, columns=self._first())

    def _matches(self, record: StoredObject) -> bool:
        selection = self._options.selection
        return selection.empty or matches(self._view.kind, self._view.version, selection, record)

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
