"""A copy of the store's file beside it, for when the file is damaged: written, kept, restored."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from corelane import input_files

_COMPANIONS = ("", "-wal", "-shm")


def path_of(path: Path) -> Path:
    """Return the path of the backup of a store's file."""
    return path.with_name(f"{path.name}.backup")


def age(backup: Path) -> str:
    """Return when a backup was written, in local time."""
    return datetime.fromtimestamp(backup.stat().st_mtime).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def write(db: sqlite3.Connection, path: Path) -> None:
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
        temporary.replace(path_of(path))
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sweep(path: Path) -> None:
    """Remove what killed processes left half written; no other may have the file open."""
    for temporary in _half_written(path):
        for name in (temporary.name, f"{temporary.name}-journal"):
            with suppress(OSError):
                temporary.with_name(name).unlink()


def _half_written(path: Path) -> tuple[Path, Path]:
    """The names under which a backup, and what is restored from one, are written."""
    return path.with_name(f".{path.name}.backup.tmp"), path.with_name(f".{path.name}.restored.tmp")


def set_aside(path: Path) -> Path | None:
    """Rename the backup of a file that is gone, so that the next backup does not replace it.

    Return its new name, None without a backup. Raises OSError.
    """
    backup = path_of(path)
    if not backup.exists():
        return None
    kept = _free_name(backup, "kept")
    backup.rename(kept)
    return kept


def restore(path: Path, backup: Path, check: Callable[[Path], None] = lambda _: None) -> Path | None:
    """Put a copy of `backup` in the place of `path`; return the new name of the file that was there.

    The copy is checked before anything is changed; what `check` raises is passed on. No process may have the
    file open. Raises OSError.
    """
    temporary = _half_written(path)[1]
    try:
        source = input_files.open_file(backup, regular=True)  # a device would fill the disk
        with os.fdopen(source, "rb") as original, temporary.open("wb") as copy:
            shutil.copyfileobj(original, copy)
        temporary.chmod(0o600)
        _fsync(temporary)
        check(temporary)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    kept = _free_name(path, "damaged") if path.exists() else None
    for companion in _COMPANIONS:
        there = path.with_name(f"{path.name}{companion}")
        if kept is not None and there.exists():
            there.rename(kept.with_name(f"{kept.name}{companion}"))
        else:
            there.unlink(missing_ok=True)
    temporary.replace(path)
    return kept


def _free_name(path: Path, word: str) -> Path:
    names = (path.with_name(f"{path.name}.{word}-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
