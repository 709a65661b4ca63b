"""Every write to files of given names below a directory, whoever makes it (inotify)."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MODIFY = 0x2
_NONBLOCK = os.O_NONBLOCK
_EVENT = struct.Struct("iIII")


class FileWrites:
    """`seen` returns the files that were written since the watch began, in order."""

    def __init__(self, descriptor: int, watches: dict[int, Path]) -> None:
        self._descriptor, self._watches = descriptor, watches
        self._seen: list[Path] = []

    def seen(self) -> list[Path]:
        with suppress(BlockingIOError):
            while data := os.read(self._descriptor, 1 << 16):
                while data:
                    watch, _, _, length = _EVENT.unpack_from(data)
                    self._seen.append(self._watches[watch])
                    data = data[_EVENT.size + length :]
        return self._seen


@contextmanager
def watching(top: Path, *names: str) -> Iterator[FileWrites]:
    """Watch the files of these names that exist below `top` now."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(_NONBLOCK)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    try:
        watches = {}
        for path in (path for name in names for path in top.rglob(name)):
            watch = libc.inotify_add_watch(descriptor, os.fsencode(path), _MODIFY)
            assert watch >= 0, f"{path}: {os.strerror(ctypes.get_errno())}"
            watches[watch] = path
        yield FileWrites(descriptor, watches)
    finally:
        os.close(descriptor)
