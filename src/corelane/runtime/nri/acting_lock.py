"""The right to act on a node's containers, held by one process at a time through file locks.

Two plugins that both set a cpuset make the runtime fail the creation of containers, and two agents that both
write cgroups undo each other's work. So an agent locks `state_lock` before it acts, with or without NRI; a
connection also locks `socket_lock`, for nodes where two agents have different state directories. The kernel
releases both when the process ends, however it ends; a waiting copy then takes over within `POLL_SECONDS`.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 0.25
_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


def state_lock(state_directory: Path) -> "ActingLock":
    """Return the lock of an agent with this state directory."""
    return ActingLock(state_directory / "agent.lock")


def socket_lock(socket: Path) -> "ActingLock":
    """Return the lock of a plugin at this socket of a runtime."""
    return ActingLock(socket.with_name(f"{socket.name}.corelane.lock"))


class ActingLock:
    """A lock on one file, for one process. To be used by one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process has the lock."""
        return self._handle is not None

    def try_acquire(self) -> str:
        """Lock the file and return "", also if it is locked already; or return which process holds it.

        Raises OSError, naming the file, where it can be neither created nor opened.
        """
        if self.held:
            return ""
        handle = _open(self.path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(handle)
            os.close(handle)
            return f"{self.path} is locked by {holder}"
        if not _is_current(handle, self.path):
            os.close(handle)
            return f"{self.path} was replaced while it was being locked"
        _write_holder(handle)
        self._handle = handle
        return ""

    async def acquire(self, on_waiting: Callable[[str], None]) -> None:
        """Wait until the file is locked; call `on_waiting` whenever another process is found to hold it.

        Raises OSError as `try_acquire` does.
        """
        reported = ""
        while holder := self.try_acquire():
            if holder != reported:
                on_waiting(holder)
            reported = holder
            await asyncio.sleep(POLL_SECONDS)

    def renew(self) -> str:
        """Lock the file again if it was removed or replaced since; else as `try_acquire`."""
        if self._handle is None or _is_current(self._handle, self.path):
            return self.try_acquire()
        before, self._handle = self._handle, None
        try:
            return self.try_acquire()
        finally:
            os.close(before)

    @property
    def is_current(self) -> bool:
        """Whether the locked file is still the one at its path, so that others respect the lock."""
        return self._handle is not None and _is_current(self._handle, self.path)

    def release(self) -> None:
        """Unlock the file. It stays: a file that is removed can be locked twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _open(path: Path) -> int:
    """Open for writing; for reading only, which locks too, where the file system allows no more.

    A symbolic link is not followed: the file is written.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is_current(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _write_holder(handle: int) -> None:
    """Leave this process's id for the messages of others; locking does not depend on it."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def holder(path: Path) -> str:
    """Return which process holds a lock, "" where none does.

    Raises OSError for a file that cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for as long as the file is open here
    except BlockingIOError:
        return _holder(handle)
    finally:
        os.close(handle)
    return ""


def _holder(handle: int) -> str:
    text = os.pread(handle, 20, 0).decode(errors="replace").strip()
    return f"process {text}" if text.isdigit() else "another process"
