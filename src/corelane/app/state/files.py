"""The kubelet's state files on disk: read whole, written whole, and kept as a backup."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from corelane import input_files
from corelane.kernel import files
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.memory_checkpoint import MemoryCheckpoint
from corelane.node.kubelet.statefile import CheckpointError
from corelane.node.recovery import rebuilding
from corelane.node.recovery.rebuilding import StateFile
from corelane.reasons import Code, Reason, sentence

Say = Callable[[str], None]

_MODE = 0o600
_NR_CPUS = 8192
"""The most CPUs that Linux can be built for (x86, CONFIG_MAXSMP)."""


class StateFileError(ValueError):
    """A file that cannot be used; the message names the file, the field, and a remedy."""


def read(path: Path) -> bytes:
    """Return the bytes of a regular file of up to 64 MiB. Raises StateFileError naming it."""
    return read_stream(path, regular=True)


def read_stream(path: Path, *, regular: bool = False) -> bytes:
    """Return what a file or a pipe holds, up to 64 MiB. Raises StateFileError naming it."""
    try:
        return input_files.read(path, input_files.OBJECTS_BYTES, regular=regular)
    except OSError as error:
        raise StateFileError(f"{path}: cannot be read: {error.strerror}") from None


def load(path: Path) -> StateFile[Checkpoint]:
    """Return a CPU manager's state, with a `fault` where only the checksum is wrong.

    Raises StateFileError for a file that cannot be read or decoded.
    """
    try:
        return rebuilding.decode(str(path), read(path))
    except CheckpointError as error:
        raise StateFileError(f"{path}: {error}") from None


def load_intact(path: Path) -> StateFile[Checkpoint]:
    """As `load`. Raises StateFileError for a wrong checksum too."""
    loaded = load(path)
    refuse_foreign(loaded)
    if loaded.fault:
        raise StateFileError(f"{path}: {loaded.fault}")
    return loaded


def refuse_foreign(loaded: StateFile[Checkpoint]) -> None:
    """Raise StateFileError for a file of another CPU manager, naming an id in it that is not a CPU's."""
    content = loaded.checkpoint
    if content.policy in ("", "none", "static"):
        return
    ids = [cpu for of in content.entries.values() for cpus in of.values() for cpu in cpus if cpu >= _NR_CPUS]
    strange = f", nor is {ids[0]} a CPU" if ids else ""
    raise StateFileError(
        f'{loaded.path}: policy "{content.policy}" is not a kubelet\'s (none, static){strange}: another CPU '
        "manager wrote this file, with rules and a checksum of its own; use its vendor's tools, or, to go "
        "back to the kubelet's, drain the node and remove the file"
    )


def load_memory(path: Path) -> StateFile[MemoryCheckpoint]:
    """Return a memory manager's state, likewise."""
    try:
        return rebuilding.decode_memory(str(path), read(path))
    except CheckpointError as error:
        raise StateFileError(f"{path}: {error}") from None


def is_memory(path: Path) -> bool:
    """Whether the file is a memory manager's: by its content, or by its name where it has no JSON object."""
    return rebuilding.is_memory(path.name, read(path))


def refuse_memory(path: Path, command: str) -> None:
    """Raise StateFileError where a command for `cpu_manager_state` is given the memory manager's file."""
    if path.exists() and is_memory(path):
        raise StateFileError(
            f"{path}: is a memory_manager_state, which `corelane state {command}` does not change; "
            f"`corelane state verify` shows what is wrong with it; {sentence(Reason(Code.REMEDY_REMOVE))}"
        )


def replace_file(path: Path, before: bytes | None, content: bytes) -> Path | None:
    """Write `content` in place of `before` (None: there was no file), which is kept as `PATH.bak-TIME`.

    Returns the backup. Raises StateFileError, with the file unchanged, where it is no longer what was read or
    cannot be written.
    """
    now = read(path) if path.exists() else None
    if now != before:
        raise StateFileError(f"{path}: changed since it was read; stop the kubelet, then try again")
    backup = None
    if before is not None:
        stamp = f"{path.name}.bak-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        names = (path.with_name(f"{stamp}-{number}" if number else stamp) for number in count())
        backup = next(name for name in names if not name.exists())
        write(backup, before)
    write(path, content)
    return backup


def write(path: Path, content: bytes) -> None:
    """Write the whole file or nothing, synced to disk. Raises StateFileError."""
    try:
        files.write_atomic(path, content, mode=_MODE)
    except OSError as error:
        raise StateFileError(f"{path}: cannot be written: {error.strerror}") from None
