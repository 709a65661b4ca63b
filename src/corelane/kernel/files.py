"""The kernel's interfaces are files: reads rooted at a path, and the one atomic, fsynced file write."""

import errno
import glob
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_CHUNK = 1 << 16


class Tree(Protocol):
    """A read-only tree of small text files: a directory, or an archive of one. Paths are relative, with `/`.

    What is missing or cannot be read is None, empty or 0, never an exception: sysfs is full of both.
    """

    def read(self, path: str) -> str | None:
        """The text of a file as it is; None when it is missing or unreadable."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""

    def target(self, path: str) -> str | None:
        """The last part of what a symbolic link points to; None when it is not a link."""

    def mode(self, path: str) -> int:
        """The permission bits of a file; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The tree below a directory: `/sys`, `/proc`, a cgroup mount, or a copy of one in a test."""

    root: str

    def read(self, path: str) -> str | None:
        try:
            fd = os.open(f"{self.root}/{path}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        try:
            return read_all(fd).decode("utf-8", "replace")
        except OSError:
            return None
        finally:
            os.close(fd)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(entry.name for entry in Path(self.root, path).iterdir())
        except OSError:
            return []

    def directories(self, path: str) -> list[str]:
        """The names of the directories in a directory, sorted; none when there is no such directory."""
        try:
            with os.scandir(f"{self.root}/{path}") as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def target(self, path: str) -> str | None:
        try:
            return Path(self.root, path).readlink().name
        except OSError:
            return None

    def mode(self, path: str) -> int:
        try:
            return stat.S_IMODE(Path(self.root, path).stat().st_mode)
        except OSError:
            return 0


def read_all(fd: int) -> bytes:
    """All of a file: /proc and sysfs give it in pieces, without a size beforehand."""
    data = chunk = os.read(fd, _CHUNK)
    while chunk:
        chunk = os.read(fd, _CHUNK)
        data += chunk
    return data


def write_atomic(path: str | Path, data: str | bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace a file whole: readers, also after a crash, see the old content or the new one.

    Content and directory entry are fsynced before this returns. Unless `durable` they are not, so that the
    new content outlives this process, however it ends, but not the machine's crash. Raises OSError that names
    `path`, which is untouched then.
    """
    path = Path(path)
    content = data.encode() if isinstance(data, str) else data
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException as error:
        with suppress(OSError):
            Path(temporary).unlink()
        if isinstance(error, OSError) and not error.filename:
            error.filename = str(path)  # write(2) names no file
        raise
    if durable:
        _fsync_directory(path.parent)


def append(path: str | Path, data: bytes) -> None:
    """Append to a file that is there: all of `data`, or nothing. It survives our own death.

    Raises OSError that names `path`.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            before = os.fstat(handle).st_size
            if os.write(handle, data) != len(data):
                os.ftruncate(handle, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def remove_temporary(path: str | Path) -> None:
    """Remove what killed processes left of `write_atomic` for this path; no other may be writing it."""
    path = Path(path)
    with suppress(OSError):
        for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            temporary.unlink(missing_ok=True)


def _fsync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
