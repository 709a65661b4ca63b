"""The store's SQLite file: locked, opened, checked, backed up, and its errors in words that say what to do.

A file that cannot be used is never changed, and never to be moved away because the disk is full: the pods of
its objects run. A copy beside it, for when the file is damaged, is written regularly.
"""

import contextlib
import errno
import fcntl
import os
import shlex
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from urllib.parse import quote

from corelane import input_files
from corelane.embedded.apiserver.store.history import EXPIRED, Life
from corelane.embedded.apiserver.stored_objects import StoreError

_COMPANIONS = ("", "-wal", "-shm")
_APPLICATION = 0x636F726C  # "corl", so that a foreign SQLite file is recognised
_LAYOUT = 2
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_CACHE_KIB = 256
"""Memory for pages of the file: whatever is read often is in the store's own memory."""
_LOG_PAGES = 8_000
"""Length of the write-ahead log, in pages of 4 KiB, at which a write folds it itself, and others wait."""
_TABLES = {
    "revision": "(number INTEGER PRIMARY KEY, resource TEXT NOT NULL, key TEXT NOT NULL, "
    "deleted INTEGER NOT NULL, value BLOB NOT NULL)",
    "life": "(base INTEGER PRIMARY KEY, after INTEGER NOT NULL)",
    "history": "(resource TEXT PRIMARY KEY, dropped INTEGER NOT NULL)",
}
"""Revisions as `database` keeps them, `history.Life`, and where the expired history of each resource ends."""
_FIRST_WINDOW = 10_000
"""Number of revisions of all resources that files of layout 1 kept."""
Row = tuple[int, str, str, int, bytes]
"""Number, resource, key, whether it is a deletion, and the object's JSON."""


def backup_path(path: Path) -> Path:
    """Return the path of the backup of a store's file."""
    return path.with_name(f"{path.name}.backup")


def backup_age(backup: Path) -> str:
    """Return when a backup was written, in local time."""
    return datetime.fromtimestamp(backup.stat().st_mtime).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def write_backup(db: sqlite3.Connection, path: Path) -> None:
    """Replace the backup of `path` by what `db` reads of it.

    SQLite rebuilds the copy row by row, so a damaged page is an error here and never replaces a good backup.
    Raises sqlite3.Error, OSError.
    """
    temporary = _half_written(path)[0]
    temporary.unlink(missing_ok=True)
    try:
        db.execute("VACUUM INTO ?", (str(temporary),))
        temporary.chmod(0o600)
        _fsync(temporary)
        temporary.replace(backup_path(path))
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sweep_backups(path: Path) -> None:
    """Remove what killed processes left half written; no other may have the file open."""
    for temporary in _half_written(path):
        for name in (temporary.name, f"{temporary.name}-journal"):
            with suppress(OSError):
                temporary.with_name(name).unlink()


def _half_written(path: Path) -> tuple[Path, Path]:
    """The names under which a backup, and what is restored from one, are written."""
    return path.with_name(f".{path.name}.backup.tmp"), path.with_name(f".{path.name}.restored.tmp")


def set_backup_aside(path: Path) -> Path | None:
    """Rename the backup of a file that is gone, so that the next backup does not replace it.

    Return its new name, None without a backup. Raises OSError.
    """
    backup = backup_path(path)
    if not backup.exists():
        return None
    aside = _free_name(backup, "kept")
    backup.rename(aside)
    return aside


def _free_name(path: Path, word: str) -> Path:
    names = (path.with_name(f"{path.name}.{word}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def failure(path: Path | None, action: str, error: sqlite3.Error | OSError) -> StoreError:
    """Return the error for a file that cannot be read or written: `action` is "read" or "write"."""
    if path is not None and is_damage(error):
        return damaged(path, str(error))
    cause = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return StoreError(f"cannot {action} {path}: {cause}; {_remedy(error)}")


def is_damage(error: sqlite3.Error | OSError) -> bool:
    """Whether an error means that the file's content is damaged, not that it cannot be reached."""
    return isinstance(error, sqlite3.Error) and (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED


def _remedy(error: sqlite3.Error | OSError) -> str:
    code = error.errno if isinstance(error, OSError) else getattr(error, "sqlite_errorcode", 0) & 0xFF
    full = errno.ENOSPC if isinstance(error, OSError) else sqlite3.SQLITE_FULL
    if code == full:
        return "free space on its file system, and leave the file in place"
    return "make file and directory readable and writable for corelane, and check the file system (dmesg)"


def damaged(path: Path, why: str) -> StoreError:
    """Return the error for a file with damaged content."""
    return StoreError(f"{path}: damaged ({why}); {_offer(path)}")


def _offer(path: Path) -> str:
    """Return what remains as it is, and what to do about a file that cannot be used."""
    backup = backup_path(path)
    remedy = (
        f"to use the backup of {backup_age(backup)}: "
        f"corelane up --data-dir {shlex.quote(str(path.parent))} --restore-backup {shlex.quote(str(backup))}"
        if backup.exists()
        else "without a backup, move the file to another name: running pods are kept, and recreated from the "
        "records of their containers"
    )
    return f"the file is left as it is, and pods go on running; {remedy}"


def restore(path: Path, backup: Path) -> Path | None:
    """Put a copy of `backup` in the place of `path`; return the new name of the file that was there.

    The copy must be one of our files, and whole, before anything is changed. No process may have the file
    open. Raises StoreError, OSError.
    """
    temporary = _half_written(path)[1]
    try:
        source = input_files.open_file(backup, regular=True)  # a device would fill the disk
        with os.fdopen(source, "rb") as original, temporary.open("wb") as copy:
            shutil.copyfileobj(original, copy)
        temporary.chmod(0o600)
        _fsync(temporary)
        if why := _unusable(temporary):
            raise StoreError(
                f"{backup}: not a backup of an API server's objects ({why}); nothing was changed"
            )
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    previous = _free_name(path, "damaged") if path.exists() else None
    for companion in _COMPANIONS:
        there = path.with_name(f"{path.name}{companion}")
        if previous is not None and there.exists():
            there.rename(previous.with_name(f"{previous.name}{companion}"))
        else:
            there.unlink(missing_ok=True)
    temporary.replace(path)
    return previous


def _unusable(path: Path) -> str:
    """Return why a file without a log cannot be used; "" if it can."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as db:
            if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
                return "empty" if path.stat().st_size == 0 else "another application's file"
            layout = db.execute("PRAGMA user_version").fetchone()[0]
            if layout not in {1, _LAYOUT}:
                return f"layout {layout}, this corelane reads layout 1 and {_LAYOUT}"
            if missing := _missing_table(db, layout):
                return f"its table {missing} is missing"
            verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            return "" if verdict == "ok" else str(verdict)
    except sqlite3.Error as error:
        return str(error)


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what is written in the block, or nothing. Raises sqlite3.Error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite itself has rolled back after some errors
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


class StateFile:
    """An opened file: `db`, and its identity, by which a deleted or replaced file is noticed."""

    def __init__(self, path: Path | None) -> None:
        """Lock and open the file; `path` None keeps everything in memory. Raises StoreError."""
        self.path = path
        self._lock = _locked(path) if path else None
        try:
            if path and path.is_dir():
                raise damaged(path, "it is a directory")
            if path:
                sweep_backups(path)
            self.is_new = path is None or not path.exists() or path.stat().st_size == 0
            self.db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
            if path:
                path.chmod(0o600)
            _prepare(self.db, path, new=self.is_new)
            self._identity = _identity(path)
        except (sqlite3.Error, OSError) as error:
            self._unlock()
            raise failure(path, "use", error) from error
        except UnicodeDecodeError as error:  # the sqlite3 module's, of SQLite's own message
            self._unlock()
            raise damaged(path, "its schema is not text") if path else error from error
        except BaseException:
            self._unlock()
            raise

    def check_in_place(self) -> None:
        """Raise StoreError if the file was deleted or replaced: what is written to it now would be lost."""
        if self.path is None:
            return
        try:
            current = _identity(self.path)
        except OSError:
            current = None
        if current != self._identity:
            raise StoreError(
                f"cannot write {self.path}: the file was deleted or replaced while corelane runs; "
                "stop corelane and start it again: running pods are kept"
            )

    def rows(self) -> Iterator[Row]:
        """Yield all rows, oldest first. Raises sqlite3.Error."""
        return iter(
            self.db.execute("SELECT number, resource, key, deleted, value FROM revision ORDER BY number")
        )

    def lives(self) -> list[Life]:
        """Return the lives, oldest first. Raises StoreError, sqlite3.Error."""
        return [Life(*pair) for pair in self._numbers("SELECT base, after FROM life ORDER BY base")]

    def floors(self) -> dict[str, int]:
        """Return the youngest expired revision by resource. Raises StoreError, sqlite3.Error."""
        names = self.db.execute("SELECT resource FROM history ORDER BY resource").fetchall()
        numbers = self._numbers("SELECT dropped FROM history ORDER BY resource")
        return {str(name): number for (name,), (number,) in zip(names, numbers, strict=True)}

    def _numbers(self, query: str) -> list[tuple[int, ...]]:
        rows = self.db.execute(query).fetchall()
        if not all(type(number) is int for row in rows for number in row):
            raise damaged(self.path or Path(":memory:"), "a revision is not a number")
        return rows

    def write_lives(self, lives: Sequence[Life]) -> None:
        """Replace the lives, within a transaction. Raises sqlite3.Error."""
        self.db.execute("DELETE FROM life")
        self.db.executemany("INSERT INTO life VALUES (?, ?)", lives)

    def remove(self, numbers: Iterable[int], floors: Mapping[str, int]) -> None:
        """Remove rows of expired history, which ends at `floors` from now on. Raises sqlite3.Error."""
        with transaction(self.db):
            self.db.executemany("DELETE FROM revision WHERE number = ?", ((number,) for number in numbers))
            self.db.executemany("INSERT OR REPLACE INTO history VALUES (?, ?)", floors.items())

    def log_bytes(self) -> int:
        """Size of the write-ahead log, 0 where there is none."""
        try:
            return self.path.with_name(f"{self.path.name}-wal").stat().st_size if self.path else 0
        except OSError:
            return 0

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the file and empty it, on a connection of its own. Raises StoreError.

        Writes go on while most of it is folded, and wait for the few pages that they added meanwhile: under
        steady writes no log is ever folded whole without that, and it would grow.
        """
        self.check_in_place()
        if self.path:
            with _second(self.path) as db:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def back_up(self) -> None:
        """Replace the backup by a copy whose structure was checked on the way. Raises StoreError."""
        self.check_in_place()
        if self.path:
            with _second(self.path) as db:
                write_backup(db, self.path)

    def close(self) -> None:
        self.db.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextlib.contextmanager
def _second(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as db:
            yield db
    except (sqlite3.Error, OSError) as error:
        raise failure(path, "copy", error) from error


def _identity(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return None
    status = path.stat()
    return status.st_dev, status.st_ino


def _locked(path: Path) -> int:
    """Hold the file for this process; the kernel lets go when the process ends, however it ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"cannot use {path}: {error.strerror}; {_remedy(error)}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StoreError(
            f"{path} is in use by another corelane; stop it, or use another data directory"
        ) from error
    return handle


def _prepare(db: sqlite3.Connection, path: Path | None, *, new: bool) -> None:
    """Make the tables of a new file; check an existing one before anything is written to it."""
    layout = _LAYOUT if new or path is None else _checked_layout(db, path)
    db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")  # the server checkpoints off the loop long before
    if new:
        with transaction(db):
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            _create(db, _TABLES)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # without its log, too, it is a state file of ours
    elif layout == 1:
        with transaction(db):
            _create(db, ("life", "history"))
            expired = "max(0, ifnull(max(number), 0) - ?)"
            db.execute(f"INSERT INTO life SELECT {expired}, {EXPIRED} FROM revision", (_FIRST_WINDOW,))  # noqa: S608


def _create(db: sqlite3.Connection, names: Iterable[str]) -> None:
    for name in names:
        db.execute(f"CREATE TABLE {name} {_TABLES[name]}")
    db.execute(f"PRAGMA user_version = {_LAYOUT}")


def _checked_layout(db: sqlite3.Connection, path: Path) -> int:
    if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        raise StoreError(f"{path} is not a corelane state file; {_offer(path)}")
    layout = db.execute("PRAGMA user_version").fetchone()[0]
    if layout not in {1, _LAYOUT}:
        raise StoreError(
            f"{path} has layout {layout}, this corelane reads layout 1 and {_LAYOUT}; "
            "use the corelane that wrote it, or another data directory"
        )
    if missing := _missing_table(db, layout):
        raise damaged(path, f"its table {missing} is missing")
    return int(layout)


def _missing_table(db: sqlite3.Connection, layout: int) -> str:
    present = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    expected = _TABLES if layout == _LAYOUT else ("revision",)
    return next((name for name in expected if name not in present), "")
