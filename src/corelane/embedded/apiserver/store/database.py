"""Objects and their history: a write is one numbered revision in SQLite; current objects are also in memory.

The file is a log, as etcd's is: a row a revision. A row goes once it is superseded and has left the history
of its resource, so that after a restart both the objects and the watchable history are as they were.

Writes of one pass of the event loop share a commit. Until then only other writes see them: readers and
watches do not, and the request is not answered. A commit that fails takes all of them back.
What was answered survives `kill -9` (WAL); a power cut may lose the last moments (synchronous = NORMAL).
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from corelane.embedded.apiserver.store import history, state_file
from corelane.embedded.apiserver.store.history import WINDOW, Lives, RecordRange, Shelf, Windows
from corelane.embedded.apiserver.store.state_file import StateFile, damaged, failure, transaction
from corelane.embedded.apiserver.stored_objects import (
    Compacted,
    Describe,
    EventKind,
    Object,
    StoreChange,
    StoredObject,
    StoreError,
    StoreEvent,
)

FILE_NAME = "apiserver.db"
_SWEEP = 256  # rows no longer needed are removed so many at a time

_INSERT = "INSERT INTO revision VALUES (?, ?, ?, ?, ?)"

_encoded = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Object).decode


class Store:
    """All objects of the server. Not for use from several threads at once.

    `describe(resource, obj)` gives the field labels of an object. `path` None keeps everything in memory.
    """

    def __init__(
        self, path: Path | None, describe: Describe, window: int = WINDOW, begun: float | None = None
    ) -> None:
        """`begun` is the Unix time of this start: its revisions begin there, see `lives`.

        Without it they go on after the last one in the file. Raises StoreError.
        """
        self._describe = describe
        self._path = path
        self._shelves: dict[str, Shelf] = {}
        self._windows = Windows(self._shelves, window)
        self._stale: list[int] = []
        self._pending: list[StoreEvent] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._written = asyncio.Event()
        self._later: Callable[[Callable[[], None]], object] | None = None
        self._file = StateFile(path)
        self._db = self._file.db
        self._backed_up = -1
        self.revision = 0
        """Revision committed last."""
        self.kept_backup = state_file.set_backup_aside(path) if path and self._file.is_new else None
        """Backup of a file that was gone at the start."""
        try:
            self._lives = self._load()
        except sqlite3.Error as error:
            self._file.close()
            raise failure(path, "read", error) from error
        except BaseException:
            self._file.close()
            raise
        self._number = self.revision
        """Revision given last, committed or not."""
        self._life = None if begun is None else history.begin_life(self.revision, begun)
        """Life to begin with the first commit."""

    def floor(self, resource: str) -> int:
        """The oldest revision from which a resource can still be listed exactly, or watched."""
        return max(self._shelf(resource).dropped, self._lives.start)

    def covers(self, resource: str, revision: int) -> bool:
        """Whether the history after `revision` is kept.

        It is not for a revision that is to come, or was given to a state that was lost since.
        """
        return self.floor(resource) <= revision <= self.revision and self._lives.covers(revision)

    def get(self, resource: str, key: str) -> StoredObject | None:
        return self._shelf(resource).records.get(key)

    def counts(self) -> dict[str, int]:
        """Number of objects by resource."""
        return {resource: len(shelf.records) for resource, shelf in self._shelves.items()}

    def find(self, resource: str, prefix: str = "", at: int | None = None) -> list[StoredObject]:
        """Records whose key starts with `prefix` ("" or "namespace/"), in key order, as of revision `at`.

        Raises Compacted where the history after `at` is not kept.
        """
        return self.range(resource, prefix, at)[:]

    def range(self, resource: str, prefix: str = "", at: int | None = None, start: str = "") -> RecordRange:
        """As `find`, from the key `prefix` + `start` on, and valid until the next write only."""
        shelf = self._shelf(resource)
        if at is None or at >= self.revision:
            return shelf.range(prefix, start)
        if not self.covers(resource, at):
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

        They are committed on return, or after `group_commits` with those of the same pass. Raises StoreError
        when the file cannot be written; nothing has changed then.
        """
        events = self._events(changes)
        for event in events:
            self._shelf(event.resource).apply(event)
            self._number = event.revision
        first = not self._pending
        self._pending += events
        if self._later is None:
            self.commit()
        elif first and events:
            self._later(self.settle)
        return events

    def group_commits(self, later: Callable[[Callable[[], None]], object]) -> None:
        """From now on commit through `later`, such as `call_soon` of a loop, all that was written by then."""
        self._later = later

    def commit(self) -> None:
        """Commit and announce what was written so far.

        Raises StoreError when the file cannot be written; everything since the last commit is undone then.
        """
        events, self._pending = self._pending, []
        waiting, self._waiting = self._waiting, []
        if not events:
            return
        try:
            self._insert(events)
        except BaseException as error:
            for event in reversed(events):
                self._shelf(event.resource).undo(event)
            self._number = self.revision
            _wake(waiting, error if isinstance(error, StoreError) else StoreError(repr(error)))
            raise
        for event in events:
            self._keep(event)
        for resource in {event.resource for event in events}:
            for wake in tuple(self._shelf(resource).wakers):
                wake()
        self._written.set()
        _wake(waiting)

    def settle(self) -> None:
        """Commit what was written so far, so that what is read is committed.

        Errors are those of the writers, see `committed`.
        """
        with contextlib.suppress(StoreError):
            self.commit()

    async def committed(self) -> None:
        """Wait until all that was written so far is committed. Raises StoreError, see `commit`."""
        if self._pending:
            done = asyncio.get_running_loop().create_future()
            self._waiting.append(done)
            await done

    async def next_commit(self, seconds: float) -> bool:
        """Wait until something is committed that no call returned for; return whether it was in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._written.wait()
        except TimeoutError:
            return False
        self._written.clear()
        return True

    def events(self, resource: str, after: int) -> list[StoreEvent]:
        """Events of one resource later than revision `after`, oldest first.

        Raises Compacted when some of them are no longer kept.
        """
        shelf = self._shelf(resource)
        if shelf.dropped > after:
            raise Compacted
        return shelf.after(after)

    def recent(self, resource: str) -> list[StoreEvent]:
        """Events of one resource that are still kept, oldest first."""
        return list(self._shelf(resource).events)

    @contextlib.contextmanager
    def woken(self, resource: str, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` after every commit of writes to `resource`, for as long as the context is open."""
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
        """Commit, write a last backup, and close the file."""
        self.settle()
        self._sweep()
        with contextlib.suppress(StoreError):
            self.back_up()
        self._file.close()

    def _shelf(self, resource: str) -> Shelf:
        shelf = self._shelves.get(resource)
        if shelf is None:
            shelf = self._shelves[resource] = Shelf()
        return shelf

    def _record(self, resource: str, key: str, revision: int, value: bytes, obj: Object) -> StoredObject:
        labels = obj["metadata"].get("labels") or {}
        return StoredObject(key, revision, value, labels, self._describe(resource, obj))

    def _events(self, changes: Sequence[StoreChange]) -> list[StoreEvent]:
        events: list[StoreEvent] = []
        earlier: dict[tuple[str, str], StoredObject | None] = {}
        first = max(self._number, self._life.base if self._life else 0) + 1
        for number, change in enumerate(changes, first):
            place = (change.resource, change.key)
            previous = earlier[place] if place in earlier else self.get(change.resource, change.key)
            if change.obj is None and previous is None:
                raise KeyError(change.key)
            obj = change.obj if previous is None or change.obj is not None else previous.object()
            assert obj is not None
            obj["metadata"]["resourceVersion"] = str(number)
            record = self._record(change.resource, change.key, number, _encode(obj), obj)
            kind: EventKind = "DELETED" if change.obj is None else "MODIFIED" if previous else "ADDED"
            events.append(StoreEvent(kind, change.resource, record, previous))
            earlier[place] = None if change.obj is None else record
        return events

    def _insert(self, events: Sequence[StoreEvent]) -> None:
        rows = [(e.revision, e.resource, e.record.key, e.kind == "DELETED", e.record.value) for e in events]
        self._file.check_in_place()
        try:
            if len(rows) == 1 and self._life is None:  # a statement alone is a transaction
                self._db.execute(_INSERT, rows[0])
                return
            with transaction(self._db):
                if self._life:
                    self._file.write_lives(self._lives.followed_by(self._life))
                self._db.executemany(_INSERT, rows)
        except sqlite3.Error as error:
            raise failure(self._path, "write", error) from error
        if self._life:
            self._lives, self._life = Lives(self._lives.followed_by(self._life)), None

    def _keep(self, event: StoreEvent) -> None:
        """Append a committed event to the history; what leaves it makes rows stale."""
        self.revision = event.revision
        for dropped in self._windows.add(event):
            if dropped.previous:
                self._stale.append(dropped.previous.revision)
            if dropped.kind == "DELETED":
                self._stale.append(dropped.revision)
        if len(self._stale) >= _SWEEP:
            self._sweep()

    def _sweep(self) -> None:
        """A failure only leaves rows behind, which the next sweep or start takes up again."""
        if not self._stale:
            return
        floors = {name: shelf.dropped for name, shelf in self._shelves.items() if shelf.dropped}
        with contextlib.suppress(sqlite3.Error):
            self._file.remove(self._stale, floors)
            self._stale.clear()

    def _load(self) -> Lives:
        lives, floors = Lives(self._file.lives()), self._file.floors()
        self._shelves.update((resource, Shelf(dropped=floor)) for resource, floor in floors.items())
        for number, resource, key, deleted, value in self._file.rows():
            expired = number <= max(lives.start, floors.get(resource, 0))
            try:
                self._restore(number, resource, key, bool(deleted), value, expired=expired)
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
                why = f"revision {number}: {error or type(error).__name__}"
                raise damaged(self._path or Path(":memory:"), why) from error
        return lives

    def _restore(
        self, number: int, resource: str, key: str, deleted: bool, value: bytes, *, expired: bool
    ) -> None:
        shelf = self._shelf(resource)
        previous = shelf.records.get(key)
        obj = _decode(value)
        obj["metadata"]["resourceVersion"]
        record = self._record(resource, key, number, value, obj)
        kind: EventKind = "DELETED" if deleted else "MODIFIED" if previous else "ADDED"
        event = StoreEvent(kind, resource, record, previous)
        self.revision = number
        if not expired or previous or not deleted:
            shelf.apply(event)
        if not expired:
            self._keep(event)
            return
        shelf.dropped = max(shelf.dropped, number)
        if previous:
            self._stale.append(previous.revision)
        if deleted:
            self._stale.append(number)


def _wake(waiting: Sequence[asyncio.Future[None]], error: StoreError | None = None) -> None:
    for done in waiting:
        if done.done():  # cancelled
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(StoreError(*error.args))


def _encode(obj: Object) -> bytes:
    """Return JSON in exactly its memory: msgspec's own bytes keep a buffer up to half as large again."""
    return bytes(memoryview(_encoded(obj)))
