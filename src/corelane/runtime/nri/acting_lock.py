"""The right to act on a node's containers, held by one process at a time through file locks.

Two plugins that both set a cpuset make the runtime fail the creation of containers, and two agents that both
write cgroups undo each other's work. So an agent locks `state_lock` before it acts, with or without NRI, and
`node_locks` in the directories of the runtime's sockets, for nodes where two agents have different state
directories; a connection also locks `socket_lock`. The kernel releases all of them when the process ends,
however it ends; a waiting copy then takes over within `POLL_SECONDS`.
"""

import asyncio
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 0.25
_MOST_HOLDER: Final = 4096
_READ_ONLY: Final = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR)
_NODE_LOCK: Final = "corelane-agent.lock"


def state_lock(state_directory: Path) -> "ActingLock":
    """Return the lock of an agent with this state directory."""
    return ActingLock(state_directory / "agent.lock")


def socket_lock(socket: Path) -> "ActingLock":
    """Return the lock of a plugin at this socket of a runtime."""
    return ActingLock(socket.with_name(f"{socket.name}.corelane.lock"))


def node_locks(sockets: Iterable[Path], note: str) -> "ActingLocks":
    """Return the locks of an agent that acts on a runtime with these sockets, with a note for others.

    A file beside each socket is locked, and the directory itself, which works where it is mounted read-only.
    Left out is what users other than root could lock or replace, and a directory that is not the socket's: in
    a container into which the socket alone is mounted.
    """
    directories = {path.parent.resolve(): path for path in sockets}
    locks: list[ActingLock] = []
    for directory, socket in directories.items():
        mode = _mode_of(directory, socket)
        if mode is None or mode & stat.S_IWOTH:
            continue
        locks.append(ActingLock(directory / _NODE_LOCK, note))  # first: it tells who holds it
        if not mode & (stat.S_IRGRP | stat.S_IROTH):
            locks.append(ActingLock(directory))
    return ActingLocks(locks)


def _mode_of(directory: Path, socket: Path) -> int | None:
    """Return the mode of a socket's directory, None where it is another user's or on another mount."""
    try:
        found = directory.stat()
    except OSError:
        return None
    with suppress(OSError):
        if socket.stat().st_dev != found.st_dev:
            return None
    own = found.st_uid in (0, os.geteuid()) and (found.st_gid == 0 or not found.st_mode & stat.S_IWGRP)
    return found.st_mode if own else None


class ActingLocks:
    """Several locks that are held together, or none of them."""

    def __init__(self, locks: Iterable["ActingLock"]) -> None:
        self._locks = tuple(locks)

    @property
    def paths(self) -> tuple[Path, ...]:
        """What is locked."""
        return tuple(lock.path for lock in self._locks if lock.held)

    def try_acquire(self) -> str:
        """Lock all that can be locked and return "", or return who holds one.

        A file that cannot be made, as on a read-only mount, is left out.
        """
        for lock in self._locks:
            with suppress(OSError):
                if holder := lock.try_acquire():
                    self.release()
                    return holder
        return ""

    async def acquire(self, on_waiting: Callable[[str], None]) -> None:
        """Wait until no other process holds one; call `on_waiting` whenever another one is found to."""
        await _wait_for(self.try_acquire, on_waiting)

    def release(self) -> None:
        """Unlock all of them."""
        for lock in self._locks:
            lock.release()


async def _wait_for(try_acquire: Callable[[], str], on_waiting: Callable[[str], None]) -> None:
    reported = ""
    while holder := try_acquire():
        if holder != reported:
            on_waiting(holder)
        reported = holder
        await asyncio.sleep(POLL_SECONDS)


class ActingLock:
    """A lock on one file, for one process. To be used by one thread."""

    def __init__(self, path: Path, note: str = "") -> None:
        """`note` is told to others beside the process that holds the lock."""
        self.path = path
        self._note = note
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
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n{self._note}".encode(), 0)
        self._handle = handle
        return ""

    async def acquire(self, on_waiting: Callable[[str], None]) -> None:
        """Wait until the file is locked; call `on_waiting` whenever another process is found to hold it.

        Raises OSError as `try_acquire` does.
        """
        await _wait_for(self.try_acquire, on_waiting)

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
    text = ""
    with suppress(OSError):  # a directory
        text = os.pread(handle, _MOST_HOLDER, 0).decode(errors="replace")
    pid, _, note = text.partition("\n")
    if not pid.strip().isdigit():
        return "another process"
    return f"process {pid}" + (f" ({note})" if note.isprintable() and note else "")
