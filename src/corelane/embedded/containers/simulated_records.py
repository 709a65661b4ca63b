"""The file of simulated containers: a list of them on the first line, then a line for each change since.

A change is appended in one write, so that it survives this process, however it ends; nothing is fsynced, for
it need not survive the machine. A last line without its end was never answered, and is dropped.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from corelane.kernel.files import append, remove_temporary, write_atomic
from corelane.runtime.base import RuntimeStatus

_MOST_CHANGES: Final = 200
"""Lines after which the list is written anew; more with many containers."""


class SimulationStateError(ValueError):
    """The file of simulated containers cannot be read; the message names the file and the remedy."""


class Row(msgspec.Struct):
    """A simulated container, and its CPUs as a list."""

    status: RuntimeStatus
    cpus: str


class _Removed(msgspec.Struct):
    removed: str


class _Change(msgspec.Struct):
    """A line: a container as it is now, or the id of one that is gone."""

    status: RuntimeStatus | None = None
    cpus: str = ""
    removed: str = ""


_encode: Final = msgspec.json.Encoder().encode
_CHANGES: Final = msgspec.json.Decoder(_Change)


class SimulatedRecords:
    """The file at `path`; None keeps nothing. `rows` returns all containers as they are."""

    def __init__(self, path: Path | None, rows: Callable[[], Iterable[Row]]) -> None:
        self._path = path
        self._rows = rows
        self._changes: int | None = None
        """Lines after the list; None where the list has to be written first."""
        self._most = _MOST_CHANGES

    def load(self) -> list[Row]:
        """Return what ran before. Raises SimulationStateError, OSError."""
        if self._path is None:
            return []
        remove_temporary(self._path)
        if not self._path.exists():
            return []
        try:
            return list(_read(self._path.read_bytes()).values())
        except (ValueError, RecursionError) as error:
            raise SimulationStateError(
                f"{self._path}: not a list of simulated containers ({error}); "
                "remove it, and they are started anew"
            ) from error

    def put(self, row: Row) -> None:
        """Record a container that is new or changed. Raises OSError."""
        self._append(row)

    def remove(self, container_id: str) -> None:
        """Record that a container is gone. Raises OSError."""
        self._append(_Removed(container_id))

    def _append(self, change: Row | _Removed) -> None:
        if self._path is None:
            return
        if self._changes is None or self._changes >= self._most:
            self._write_all(self._path)
            return
        try:
            append(self._path, _encode(change) + b"\n")
            self._changes += 1
        except FileNotFoundError:  # it was deleted
            self._write_all(self._path)

    def _write_all(self, path: Path) -> None:
        rows = list(self._rows())
        write_atomic(path, _encode(rows) + b"\n", durable=False)
        self._changes, self._most = 0, max(_MOST_CHANGES, 2 * len(rows))


def _read(content: bytes) -> dict[str, Row]:
    """Return the containers by id. Raises ValueError."""
    first, *lines = content.split(b"\n")
    rows = {row.status.id: row for row in msgspec.json.decode(first, type=list[Row])}
    for line in lines[:-1]:
        change = _CHANGES.decode(line)
        if change.status is None:
            rows.pop(change.removed, None)
        else:
            rows[change.status.id] = Row(change.status, change.cpus)
    return rows
