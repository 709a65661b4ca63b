"""The ledger's file of one agent, kept as the ledger changes.

A durable file is replaced whole, and is on disk before a container changes. One that only has to survive this
process, because no container of the node survives the machine, gets a line with each change instead: a
replaced file costs a hundred times as much.
"""

import os
from pathlib import Path
from typing import Final, TypeAlias

from corelane.kernel import files
from corelane.node import NodeState, codec

_MOST_LINES: Final = 200
"""Lines after which the file is written anew; more with many entries."""

_Version: TypeAlias = tuple[int, int, int]
"""Inode, size and time of the last change: another one was not written by this process."""


def save_ledger(path: Path, ledger: NodeState, *, durable: bool = True) -> None:
    """Replace the ledger's file; until the new content is on disk the old file stays.

    `durable` is as of `files.write_atomic`. Raises OSError.
    """
    files.write_atomic(path, codec.encode(ledger), mode=0o600, durable=durable)


class ChangedFile:
    """A file that is not durable, to which changes are appended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: NodeState | None = None
        """What the file says, None where it is to be written whole."""
        self._version: _Version | None = None
        self._lines = 0

    def save(self, ledger: NodeState) -> None:
        """Make the file one of this ledger. Raises OSError; the file is then as it was."""
        most = max(_MOST_LINES, 2 * len(ledger.entries))
        if self._written is None or self._lines >= most or self._version != _version(self._path):
            self._written = None
            save_ledger(self._path, ledger, durable=False)
            self._lines = 0
        elif ledger is not self._written:
            files.append(self._path, codec.encode_changes(self._written, ledger))
            self._lines += 1
        self._written, self._version = ledger, _version(self._path)


def _version(path: Path) -> _Version | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a tenth of the time of Path.stat
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
