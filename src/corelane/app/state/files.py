"""The kubelet's `cpu_manager_state` as a file: read even where its checksum is wrong, kept as a backup."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

from corelane.app.state.errors import StateFileError
from corelane.cpuset import CPUSet
from corelane.kernel import files
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint, CheckpointError, Version

__all__ = ["Loaded", "Say", "checksum", "convert", "load", "read", "read_stream", "replace_file", "write"]

Say = Callable[[str], None]

_MAX_BYTES = 64 << 20
_MODE = 0o600


@dataclass(frozen=True, slots=True)
class Loaded:
    """A state file as it was read. Where `fault` is not "", its checksum does not fit its content."""

    path: Path
    content: bytes
    checkpoint: Checkpoint
    checksum: int | None
    """As it stands in the file; None where the file has none, which versions 1 and 2 allow."""
    fault: str = ""


def read(path: Path) -> bytes:
    """The bytes of a file of sane size; not of a pipe or a device. Raises StateFileError naming it."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            what = "a directory" if path.is_dir() else "no ordinary file"
            raise StateFileError(f"{path}: is {what}: name the kubelet's state file")
    except OSError as error:
        raise StateFileError(f"{path}: cannot be read: {error.strerror}") from None
    return read_stream(path)


def read_stream(path: Path) -> bytes:
    """What a file of sane size holds, or what comes through a pipe. Raises StateFileError naming it."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise StateFileError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise StateFileError(f"{path}: larger than {_MAX_BYTES >> 20} MiB: this cannot be what was asked for")
    return content


def load(path: Path) -> Loaded:
    """The state in a file, with a `fault` when only the checksum is wrong.

    Raises StateFileError for a file that cannot be read or makes no sense.
    """
    content = read(path)
    try:
        return Loaded(path, content, checkpoint.decode(content), checksum(content))
    except CheckpointError as error:
        fault = str(error)
    with suppress(CheckpointError):
        if _members(content):
            return Loaded(path, content, _unverified(content), checksum(content), fault)
    raise StateFileError(f"{path}: {fault}")


def _members(content: bytes) -> dict[str, Any]:
    """The members of the outermost object by their names in lower case, as Go finds them."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return {key.casefold(): member for key, member in value.items()} if isinstance(value, dict) else {}


def checksum(content: bytes) -> int | None:
    """The checksum that stands in a file, of its payload where there is one; None where it has none."""
    members = _members(content)
    found = members.get("datachecksum") or members.get("checksum")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _unverified(content: bytes) -> Checkpoint:
    """The same content with a checksum that is not looked at. Raises CheckpointError if that is not all."""
    members = _members(content)
    if isinstance(members.get("data"), str):
        payload = _members(members["data"].encode())
        return replace(_without_checksum(payload), version=4)
    return _without_checksum(members)


def _without_checksum(members: dict[str, Any]) -> Checkpoint:
    """Decoded as a file of version 2 without a checksum, and the pod-level entries that this leaves out."""
    plain = {key: value for key, value in members.items() if key not in ("checksum", "datachecksum", "data")}
    found = checkpoint.decode(json.dumps(plain).encode())
    pods = {
        uid: CPUSet.parse(next((text for key, text in value.items() if key.casefold() == "cpuset"), ""))
        for uid, value in (members.get("podentries") or {}).items()
    }
    return replace(found, pods=pods, version=3) if pods else found


def seen_by(loaded: Loaded, minor: int) -> Checkpoint:
    """What a kubelet 1.`minor` finds in the file: before 1.37 no payload. Raises StateFileError."""
    try:
        return checkpoint.decode(loaded.content, payload=minor >= 37)
    except CheckpointError as error:
        raise StateFileError(f"{loaded.path}: {error}") from None


def convert(loaded: Loaded, version: int) -> bytes:
    """The file's content in another version. Raises StateFileError where it cannot be."""
    if loaded.fault:
        raise StateFileError(f"{loaded.path}: {loaded.fault}")
    if loaded.checkpoint.version == 1:
        raise StateFileError(
            f"{loaded.path}: version: 1 names containers by id, the others by pod: "
            "`corelane state repair --pods FILE` knows the pods and writes the file anew"
        )
    found = loaded.checkpoint
    if version == 2:
        found = replace(found, default=found.default | _only_of_pods(found), pods={})
    return checkpoint.encode(found, cast("Version", version))


def _only_of_pods(found: Checkpoint) -> CPUSet:
    """CPUs that pods have as a whole, and none of their containers: version 2 cannot keep them."""
    mask = 0
    for uid, cpus in found.pods.items():
        mask |= cpus.mask
        for own in found.entries.get(uid, {}).values():
            mask &= ~own.mask
    return CPUSet.from_mask(mask)


def replace_file(path: Path, before: bytes | None, content: bytes) -> Path | None:
    """Write `content` in place of `before` (None: there was no file), which is kept as `PATH.bak-TIME`.

    Returns the backup. Raises StateFileError when the file is no longer what was read, or not writable; it is
    then as it was.
    """
    now = read(path) if path.exists() else None
    if now != before:
        raise StateFileError(f"{path}: was changed while we looked at it: stop the kubelet, then try again")
    backup = None
    if before is not None:
        backup = _free_name(path)
        write(backup, before)
    write(path, content)
    return backup


def write(path: Path, content: bytes) -> None:
    """The whole file or nothing, on disk before this returns. Raises StateFileError."""
    try:
        files.write_atomic(path, content, mode=_MODE)
    except OSError as error:
        raise StateFileError(f"{path}: cannot be written: {error.strerror}") from None


def _free_name(path: Path) -> Path:
    stamp = f"{path.name}.bak-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    names = (path.with_name(f"{stamp}-{number}" if number else stamp) for number in count())
    return next(name for name in names if not name.exists())
