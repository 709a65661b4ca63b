"""The log of a `corelane up` in the background: bounded in size, with one old file kept beside it."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

NAME: Final = "corelane.log"
LIMIT: Final = 10 << 20
"""Bytes after which the log is renamed to NAME.1, as a container's log is; an older NAME.1 is replaced."""


def old(path: Path) -> Path:
    """Return the path of the old file."""
    return path.with_name(f"{path.name}.1")


def make_room(path: Path, limit: int = LIMIT) -> None:
    """Rename a log that has reached the limit. Raises OSError."""
    if path.exists() and path.stat().st_size >= limit:
        path.replace(old(path))


class BoundedLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Logs to stderr, which is `path`; when that is full, deleted or renamed, goes on in a new file.

    stdout and stderr themselves are redirected, so that what is printed goes there, too.
    """

    def __init__(self, path: Path, limit: int = LIMIT, descriptors: Sequence[int] = (1, 2)) -> None:
        super().__init__()
        self.path, self.limit, self.descriptors = path, limit, descriptors

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        try:
            self._follow()
        except OSError:  # as with a deleted data directory, or without file descriptors
            self._empty_if_full()

    def _empty_if_full(self) -> None:
        """The present file takes what is still to come: no more than twice the limit."""
        with suppress(OSError):
            if os.fstat(self.descriptors[-1]).st_size >= 2 * self.limit:
                os.ftruncate(self.descriptors[-1], 0)

    def _follow(self) -> None:
        ours = os.fstat(self.descriptors[-1])
        try:
            is_ours = os.path.samestat(ours, self.path.stat())
        except FileNotFoundError:
            is_ours = False
        if is_ours and ours.st_size < self.limit:
            return
        if is_ours:
            self.path.replace(old(self.path))
        new = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for descriptor in self.descriptors:
                os.dup2(new, descriptor)
        finally:
            os.close(new)
