"""Objects and their history: a write is one numbered revision in SQLite; current objects are also in memory.

The file is a log, as etcd's is: a row a revision. A row goes once it is superseded and has left the window of
the last events, so that after a restart both the objects and the watchable history are as they were.
What was answered survives `kill -9` (WAL, one commit a write); a power cut may lose the last moments.
"""

import contextlib
import sqlite3
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

import msgspec

from corelane.apiserver.store import backups
from corelane.apiserver.store.state_file import StateFile, damaged, failure, transaction
from corelane.apiserver.stored_objects import (
    Compacted,
    Describe,
    EventKind,
    Object,
    StoreChange,
    StoredObject,
    StoreError,
    StoreEvent,
)

WINDOW = 10_000
"""Number of events that a watch can go back."""

FILE_NAME = "apiserver.db"
_HOT = 256  # how many of the last events keep their encoded frames for watchers that are nearly up to date
_SWEEP = 256  # rows no longer needed are removed so many at a time

_INSERT = "INSERT INTO revision VALUES (?, ?, ?, ?, ?)"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Object).decode


@dataclass(slots=True)
class _Shelf:
    """One resource: its objects, their keys in etcd's order, and its part of the window."""

    records: dict[str, StoredObject] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    events: deque[StoreEvent] = field(default_factory=deque)
    dropped: int = 0  # revision of the youngest event that has left the window
    wakers: set[Callable[[], None]] = field(default_factory=set)

    def set(self, record: StoredObject) -> None:
        if record.key not in self.records:
            insort(self.keys, record.key)
        self.records[record.key] = record

    def remove(self, key: str) -> None:
        del self.records[key]
        del self.keys[bisect_left(self.keys, key)]

    def range(self, prefix: str, start: str = "", revision: int | None = None) -> "RecordRange":
        """The records from the key `prefix` + `start` on; as they were at `revision`."""
        first = bisect_left(self.keys, prefix + start)
        end = bisect_left(self.keys, _after(prefix)) if prefix else len(self.keys)
        keys, former = self.keys[first:end], {}
        for event in reversed(self.events if revision is not None else ()):
            if revision is None or event.revision <= revision:
                break
            if event.record.key.startswith(prefix) and event.record.key >= prefix + start:
                former[event.record.key] = event.previous
        if former:
            present = {key for key, record in former.items() if record}
            keys = sorted(({*keys} - former.keys()) | present)
        return RecordRange(keys, self.records, former)


class RecordRange(Sequence[StoredObject]):
    """Records in the order of their keys, looked up as they are read: a page costs what is on it.

    Valid until the next write. `former` holds earlier states of records that were changed later.
    """

    __slots__ = ("_former", "_keys", "_records")

    def __init__(
        self,
        keys: list[str],
        records: Mapping[str, StoredObject],
        former: Mapping[str, StoredObject | None],
    ) -> None:
        self._keys, self._records, self._former = keys, records, former

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> StoredObject: ...

    @overload
    def __getitem__(self, index: slice) -> list[StoredObject]: ...

    def __getitem__(self, index: int | slice) -> StoredObject | list[StoredObject]:
        if isinstance(index, slice):
            return list(map(self._record, self._keys[index]))
        return self._record(self._keys[index])

    def _record(self, key: str) -> StoredObject:
        return self._former.get(key) or self._records[key]


def _after(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


class Store:
    """All objects of the server. Not for use from several threads at once; writes commit before they return.

    `describe(resource, obj)` gives the field labels of an object. `path` None keeps everything in memory.
    """

    def __init__(self, path: Path | None, describe: Describe, window: int = WINDOW) -> None:
        self._describe = describe
        self._size = window
        self._path = path
        self._shelves: dict[str, _Shelf] = {}
        self._window: deque[StoreEvent] = deque()
        self._stale: list[tuple[int]] = []
        self._file = StateFile(path)
        self._db = self._file.db
        self._backed_up = -1
        self.revision = 0
        self.kept_backup = backups.set_aside(path) if path and self._file.is_new else None
        """Backup of a file that was gone at the start."""
        try:
            self._load()
        except sqlite3.Error as error:
            self._file.close()
            raise failure(path, "read", error) from error
        except BaseException:
            self._file.close()
            raise

    @property
    def floor(self) -> int:
        """The oldest revision that can still be listed exactly, or watched from."""
        return max(0, self.revision - self._size)

    def get(self, resource: str, key: str) -> StoredObject | None:
        return self._shelf(resource).records.get(key)

    def counts(self) -> dict[str, int]:
        """Number of objects by resource."""
        return {resource: len(shelf.records) for resource, shelf in self._shelves.items()}

    def find(self, resource: str, prefix: str = "", at: int | None = None) -> list[StoredObject]:
        """Records whose key starts with `prefix` ("" or "namespace/"), in key order, as of revision `at`.

        Raises Compacted when `at` is older than the window.
        """
        return self.range(resource, prefix, at)[:]

    def range(self, resource: str, prefix: str = "", at: int | None = None, start: str = "") -> RecordRange:
        """As `find`, from the key `prefix` + `start` on, and valid until the next write only."""
        shelf = self._shelf(resource)
        if at is None or at >= self.revision:
            return shelf.range(prefix, start)
        if at < self.floor:
            raise Compacted
        return shelf.range(prefix, start, at)

    def put(self, resource: str, key: str, obj: Object) -> StoredObject:
        """Write `obj` (stored form); its metadata.resourceVersion becomes the new revision."""
        return self.write([StoreChange(resource, key, obj)])[0].record

    def delete(self, resource: str, key: str) -> StoredObject:
        """Remove an object; the record returned is its last state with the deletion's revision."""
        return self.write([StoreChange(resource, key, None)])[0].record

    def write(self, changes: Sequence[StoreChange]) -> list[StoreEvent]:
        """Several changes, all or nothing, each with a revision of its own.

        Raises StoreError when the file cannot be written; nothing has changed then.
        """
        events: list[StoreEvent] = []
        pending: dict[tuple[str, str], StoredObject | None] = {}
        for number, change in enumerate(changes, self.revision + 1):
            place = (change.resource, change.key)
            previous = pending[place] if place in pending else self.get(change.resource, change.key)
            event = self._event(change, previous, number)
            pending[place] = None if event.kind == "DELETED" else event.record
            events.append(event)
        self._commit(events)
        for event in events:
            self._apply(event)
        for resource in {event.resource for event in events}:
            for wake in tuple(self._shelf(resource).wakers):
                wake()
        return events

    def events(self, resource: str, after: int) -> list[StoreEvent]:
        """Events of one resource later than revision `after`, oldest first.

        Raises Compacted when some of them have left the window.
        """
        shelf = self._shelf(resource)
        if shelf.dropped > after:
            raise Compacted
        found: list[StoreEvent] = []
        for event in reversed(shelf.events):
            if event.revision <= after:
                break
            found.append(event)
        found.reverse()
        return found

    def recent(self, resource: str) -> list[StoreEvent]:
        """Events of one resource that are still in the window, oldest first."""
        return list(self._shelf(resource).events)

    @contextlib.contextmanager
    def woken(self, resource: str, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` after every write to `resource`, for as long as the context is open."""
        wakers = self._shelf(resource).wakers
        wakers.add(wake)
        try:
            yield
        finally:
            wakers.discard(wake)

    @property
    def log_bytes(self) -> int:
        """Size of the write-ahead log."""
        return self._file.log_bytes()

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the file and empty it; any thread may do it. Raises StoreError."""
        self._file.checkpoint()

    def check_in_place(self) -> None:
        """Raise StoreError if the file was deleted or replaced."""
        self._file.check_in_place()

    def back_up(self) -> None:
        """Replace the backup, if there was a write since the last one; any thread may do it.

        Raises StoreError.
        """
        revision = self.revision
        if revision != self._backed_up:
            self._file.back_up()
            self._backed_up = revision

    def close(self) -> None:
        """Write a last backup, and close the file."""
        self._sweep()
        with contextlib.suppress(StoreError):
            self.back_up()
        self._file.close()

    def _shelf(self, resource: str) -> _Shelf:
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = _Shelf()
        return shelf

    def _record(self, resource: str, key: str, revision: int, value: bytes, obj: Object) -> StoredObject:
        labels = obj["metadata"].get("labels") or {}
        return StoredObject(key, revision, value, labels, self._describe(resource, obj))

    def _event(self, change: StoreChange, previous: StoredObject | None, revision: int) -> StoreEvent:
        obj = change.obj
        if obj is None:
            if previous is None:
                raise KeyError(change.key)
            obj = previous.object()
        obj["metadata"]["resourceVersion"] = str(revision)
        record = self._record(change.resource, change.key, revision, _encode(obj), obj)
        kind: EventKind = "DELETED" if change.obj is None else "MODIFIED" if previous else "ADDED"
        return StoreEvent(kind, change.resource, record, previous)

    def _commit(self, events: Sequence[StoreEvent]) -> None:
        rows = [(e.revision, e.resource, e.record.key, e.kind == "DELETED", e.record.value) for e in events]
        self._file.check_in_place()
        try:
            if len(rows) == 1:  # a statement alone is a transaction
                self._db.execute(_INSERT, rows[0])
                return
            with transaction(self._db):
                self._db.executemany(_INSERT, rows)
        except sqlite3.Error as error:
            raise failure(self._path, "write", error) from error

    def _apply(self, event: StoreEvent) -> None:
        shelf = self._shelf(event.resource)
        if event.kind == "DELETED":
            shelf.remove(event.record.key)
        else:
            shelf.set(event.record)
        self.revision = event.revision
        shelf.events.append(event)
        self._window.append(event)
        if len(self._window) > _HOT:
            self._window[-_HOT].frames.clear()
        if len(self._window) > self._size:
            self._drop(self._window.popleft())

    def _drop(self, event: StoreEvent) -> None:
        shelf = self._shelf(event.resource)
        shelf.events.popleft()
        shelf.dropped = event.revision
        if event.previous:
            self._stale.append((event.previous.revision,))
        if event.kind == "DELETED":
            self._stale.append((event.revision,))
        if len(self._stale) >= _SWEEP:
            self._sweep()

    def _sweep(self) -> None:
        """A failure only leaves rows behind, which the next sweep or start takes up again."""
        with contextlib.suppress(sqlite3.Error), transaction(self._db):
            self._db.executemany("DELETE FROM revision WHERE number = ?", self._stale)
            self._stale.clear()

    def _load(self) -> None:
        rows = self._db.execute("SELECT number, resource, key, deleted, value FROM revision ORDER BY number")
        last = self._db.execute("SELECT max(number) FROM revision").fetchone()[0] or 0
        for number, resource, key, deleted, value in rows:
            try:
                self._restore(number, resource, key, bool(deleted), value, recent=number > last - self._size)
            except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
                why = f"revision {number}: {error or type(error).__name__}"
                raise damaged(self._path or Path(":memory:"), why) from error
        self.revision = last

    def _restore(
        self, number: int, resource: str, key: str, deleted: bool, value: bytes, *, recent: bool
    ) -> None:
        shelf = self._shelf(resource)
        previous = shelf.records.get(key)
        obj = _decode(value)
        obj["metadata"]["resourceVersion"]
        record = self._record(resource, key, number, value, obj)
        kind: EventKind = "DELETED" if deleted else "MODIFIED" if previous else "ADDED"
        event = StoreEvent(kind, resource, record, previous)
        if recent:
            self._apply(event)
            return
        shelf.dropped = number
        if previous:
            self._stale.append((previous.revision,))
        if not deleted:
            shelf.set(record)
            return
        self._stale.append((number,))
        if previous:
            shelf.remove(key)
