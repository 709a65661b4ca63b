"""The kubelet's state files as values: read even where a checksum is wrong, and written in other versions."""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from corelane.cpuset import CPUSet
from corelane.node.kubelet import checkpoint, memory_checkpoint, statefile
from corelane.node.kubelet.checkpoint import Checkpoint, CheckpointError, Version
from corelane.node.kubelet.memory_checkpoint import MemoryCheckpoint

_Content = TypeVar("_Content", Checkpoint, MemoryCheckpoint)


@dataclass(frozen=True, slots=True)
class StateFile(Generic[_Content]):
    """A state file as it was read. `fault` is "" where the checksum fits the content."""

    path: str
    content: bytes
    checkpoint: _Content
    checksum: int | None
    """As the file has it; None where it has none, which versions 1 and 2 allow."""
    fault: str = ""
    whole: bool = False
    """Whether the fault is only that something follows a state whose checksum is right."""


def decode(path: str, content: bytes) -> StateFile[Checkpoint]:
    """Return the content of a `cpu_manager_state`, with a `fault` where only its checksum or end is wrong.

    Raises CheckpointError for anything else that is wrong.
    """
    found = _checksum(content)
    try:
        return StateFile(path, content, checkpoint.decode(content), found)
    except CheckpointError as error:
        fault = error
    if first := statefile.whole_object(content):
        with suppress(CheckpointError):
            file = decode(path, first)
            return replace(file, content=content, fault=str(fault), whole=not file.fault)
    with suppress(CheckpointError):
        if _members(content):
            return StateFile(path, content, _unverified(content), found, str(fault))
    raise fault


def decode_memory(path: str, content: bytes) -> StateFile[MemoryCheckpoint]:
    """Return the content of a `memory_manager_state`, likewise."""
    found = _checksum(content)
    try:
        return StateFile(path, content, memory_checkpoint.decode(content), found)
    except CheckpointError as error:
        with suppress(CheckpointError):
            unverified = memory_checkpoint.decode(content, verify=False)
            return StateFile(path, content, unverified, found, str(error))
        raise


def is_memory(name: str, content: bytes) -> bool:
    """Whether a file is a memory manager's: by its content, or by its name where it has no JSON object."""
    if memory_checkpoint.is_memory(content):
        return True
    if not name.startswith("memory_manager_state"):
        return False
    try:
        return not isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return True


def _members(content: bytes) -> dict[str, Any]:
    """The outermost object's members by their names in lower case, as Go matches them."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return {key.casefold(): member for key, member in value.items()} if isinstance(value, dict) else {}


def _checksum(content: bytes) -> int | None:
    """The checksum in a file, of its payload where there is one; None where the file has none."""
    members = _members(content)
    found = members.get("datachecksum") or members.get("checksum")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _unverified(content: bytes) -> Checkpoint:
    """The content without its checksum's verification. Raises CheckpointError where more is wrong."""
    members = _members(content)
    if isinstance(members.get("data"), str):
        return replace(_without_checksum(_members(members["data"].encode())), version=4)
    return _without_checksum(members)


def _without_checksum(members: dict[str, Any]) -> Checkpoint:
    """Decode as version 2 without a checksum, and add the pod-level entries that this leaves out."""
    plain = {key: value for key, value in members.items() if key not in ("checksum", "datachecksum", "data")}
    found = checkpoint.decode(json.dumps(plain).encode())
    pods = {
        uid: CPUSet.parse(next((text for key, text in value.items() if key.casefold() == "cpuset"), ""))
        for uid, value in (members.get("podentries") or {}).items()
    }
    return replace(found, pods=pods, version=3) if pods else found


def read_by(file: StateFile[Checkpoint], minor: int) -> Checkpoint:
    """What a kubelet 1.`minor` reads in the file: before 1.37 no payload. Raises CheckpointError."""
    return checkpoint.decode(file.content, payload=minor >= 37)


def convert(file: StateFile[Checkpoint], version: int) -> bytes:
    """Return the file's content in another version. Raises CheckpointError where that is impossible."""
    if file.fault:
        raise CheckpointError(file.fault)
    if file.checkpoint.version == 1:
        raise CheckpointError(
            "version: 1 has container ids instead of pods and names; rewrite the file with "
            "`corelane state repair --pods FILE`"
        )
    found = file.checkpoint
    if version == 2:
        found = replace(found, default=found.default | _of_pods_only(found), pods={})
    return checkpoint.encode(found, cast("Version", version))


def _of_pods_only(found: Checkpoint) -> CPUSet:
    """CPUs of pods as a whole that no container of them has: version 2 cannot hold them."""
    mask = 0
    for uid, cpus in found.pods.items():
        mask |= cpus.mask
        for own in found.entries.get(uid, {}).values():
            mask &= ~own.mask
    return CPUSet.from_mask(mask)
