"""Reads of files that a user names: bounded, and without waiting for the writer of a pipe."""

import errno
import os
import select
import stat
from pathlib import Path
from typing import Final

SETTINGS_BYTES: Final = 16 << 20
"""Most bytes of a file of settings, credentials or certificates."""
OBJECTS_BYTES: Final = 64 << 20
"""Most bytes of a file of objects: manifests, lists, states, machines."""
_WRITER_MS: Final = 1000
_CHUNK: Final = 1 << 16


def read(path: str | Path, most: int = SETTINGS_BYTES, *, regular: bool = False) -> bytes:
    """Return what a file or a pipe that a user names holds, up to `most` bytes.

    `regular`: only a regular file; a pipe has its content once, and may keep a daemon waiting. A named pipe
    needs a writer within a second. Raises OSError that names `path`.
    """
    try:
        with os.fdopen(open_file(path, regular=regular), "rb") as file:
            head = _head(file.fileno())
            content = head + file.read(most + 1 - len(head))
    except OSError as error:
        error.filename = error.filename or str(path)  # read(2) names no file
        raise
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return content


def open_file(path: str | Path, *, regular: bool = False) -> int:
    """Open a file for reading, without waiting for the writer of a pipe; `regular` as of `read`. OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(handle).st_mode
    if stat.S_ISDIR(mode) or (regular and not stat.S_ISREG(mode)):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return handle


def _head(handle: int) -> bytes:
    """Prepare a file that is not regular for reading that waits; return what was read of it for that.

    Raises OSError for a named pipe without a writer. That of `<(command)` had one, which may have ended.
    """
    mode, head = os.fstat(handle).st_mode, b""
    if stat.S_ISFIFO(mode) and not str(Path(f"/proc/self/fd/{handle}").readlink()).startswith("pipe:"):
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        had_writer = bool(poll.poll(_WRITER_MS))
        try:
            head = os.read(handle, _CHUNK)
        except BlockingIOError:
            had_writer = True
        if not head and not had_writer:
            raise OSError(errno.ENXIO, "a pipe that no process writes to")
    if not stat.S_ISREG(mode):
        os.set_blocking(handle, True)
    return head
