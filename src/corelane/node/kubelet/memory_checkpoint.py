"""The kubelet's `memory_manager_state`, versions 1 to 3: bytes in, frozen values out, checksums verified.

Upstream: `pkg/kubelet/cm/memorymanager/state` (v1.36; version 3 from 1.37). Sizes are in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from corelane.node.kubelet.statefile import (
    INT,
    STRING,
    UINT64,
    CheckpointError,
    ListOf,
    MalformedError,
    MapOf,
    Member,
    Pairs,
    PointerTo,
    StateFields,
    String,
    Struct,
    fnv1a,
    parse,
    payload_checksum,
)

Version: TypeAlias = Literal[1, 2, 3]
"""1: up to 1.36; 2: 1.36 with pod-level managers, which holds blocks of whole pods too; 3: from 1.37."""

_WHAT_TO_DO = "the kubelet will not start with it: drain the node and remove the file"


@dataclass(frozen=True, slots=True)
class Block:
    """An amount of `memory` or `hugepages-SIZE` from some NUMA nodes, in bytes."""

    nodes: tuple[int, ...]
    resource: str
    size: int


@dataclass(frozen=True, slots=True)
class Table:
    """One resource of one NUMA node, in bytes: `free` + `reserved` (for containers) are `allocatable`."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What the kubelet believes of one NUMA node."""

    memory: Mapping[str, Table]
    assignments: int = 0
    """How many blocks lie here; a container with memory and huge pages has two."""
    group: tuple[int, ...] = ()
    """The NUMA nodes over which these blocks stretch; just this one where none does."""


@dataclass(frozen=True, slots=True)
class MemoryCheckpoint:
    """What the kubelet remembers of a node's memory."""

    policy: str
    machine: Mapping[int, NodeMemory] = field(default_factory=dict)
    """By NUMA node; empty under policy None, and on a node on which nothing was ever started."""
    entries: Mapping[str, Mapping[str, tuple[Block, ...]]] = field(default_factory=dict)
    """Pod UID to container name to blocks."""
    pods: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    """Pod UID to the blocks of a pod-level request, in versions 2 and 3."""
    version: Version = 1
    """The version that it was read from."""


def is_memory(content: bytes) -> bool:
    """Whether these bytes are a memory manager's state, rather than anything else or nothing at all."""
    try:
        fields = StateFields(parse(content, "the file"))
        return "machineState" in fields or "machineState" in StateFields(parse(_payload(fields), "data"))
    except MalformedError:
        return False


def decode(content: bytes, *, verify: bool = True) -> MemoryCheckpoint:
    """The checkpoint, of whatever version it is, if its checksum is right or, as for the kubelet, absent.

    Without `verify`, whatever the checksum says. Raises CheckpointError.
    """
    try:
        pairs = parse(content, "the file")
        fields = StateFields(pairs)
        if fields.text("data") or fields.number("dataChecksum"):
            return _newer(fields, verify=verify)
        return _older(pairs, fields.number("checksum"), verify=verify)
    except MalformedError as error:
        raise CheckpointError(f"{error}; {_WHAT_TO_DO}") from None


def _newer(fields: StateFields, *, verify: bool) -> MemoryCheckpoint:
    """Version 3: the payload counts, and what stands beside it for older kubelets does not."""
    if verify and payload_checksum(fields.text("data")) != fields.number("dataChecksum"):
        raise MalformedError("dataChecksum: checkpoint is corrupted")
    return _values(_VERSION_2.read(parse(_payload(fields), "data"), ""), 3)


def _payload(fields: StateFields) -> bytes:
    return fields.text("data").encode()


def _older(pairs: Pairs, checksum: int, *, verify: bool) -> MemoryCheckpoint:
    """Version 2 where its checksum says so, else 1, of which the kubelet accepts 0 for a checksum."""
    raw = _VERSION_2.read(pairs, "")
    if checksum == _checksum(_VERSION_2, raw) or (not verify and raw["podEntries"]):
        return _values(raw, 2)
    plain = {**raw, "podEntries": {}}
    if not verify or checksum in (0, *(_checksum(version, plain) for version in _VERSIONS_1)):
        return _values(plain, 1)
    raise MalformedError("checksum: checkpoint is corrupted")


_RESOURCE = String("v1.ResourceName")
_TABLE = Struct(
    "state.MemoryTable",
    (
        Member("TotalMemSize", "total", UINT64),
        Member("SystemReserved", "systemReserved", UINT64),
        Member("Allocatable", "allocatable", UINT64),
        Member("Reserved", "reserved", UINT64),
        Member("Free", "free", UINT64),
    ),
)
_NODE = Struct(
    "state.NUMANodeState",
    (
        Member("NumberOfAssignments", "numberOfAssignments", INT),
        Member("MemoryMap", "memoryMap", MapOf(_RESOURCE, PointerTo(_TABLE))),
        Member("Cells", "cells", ListOf(INT)),
    ),
)
_BLOCKS = ListOf(
    Struct(
        "state.Block",
        (
            Member("NUMAAffinity", "numaAffinity", ListOf(INT)),
            Member("Type", "type", _RESOURCE),
            Member("Size", "size", UINT64),
        ),
    )
)
_POD = Struct("state.PodEntry", (Member("MemoryBlocks", "memoryBlocks", _BLOCKS),))
_MEMBERS = (
    Member("PolicyName", "policyName", STRING),
    Member("MachineState", "machineState", MapOf(INT, PointerTo(_NODE), "state.NUMANodeMap"), {}),
    Member(
        "Entries",
        "entries",
        MapOf(STRING, MapOf(STRING, _BLOCKS), "state.ContainerMemoryAssignments"),
        {},
    ),
)
_PODS = Member("PodEntries", "podEntries", MapOf(STRING, _POD, "state.PodMemoryAssignments"), {})
_LEGACY = "state.MemoryManagerCheckpoint"
_VERSION_2 = Struct(_LEGACY, (*_MEMBERS, _PODS))
_VERSIONS_1 = (Struct(_LEGACY, _MEMBERS), Struct(f"{_LEGACY}V1", _MEMBERS))
"""The name that all releases read, and one that 1.36 takes as well."""


def _checksum(version: Struct, raw: dict[str, Any]) -> int:
    """Of the structure as it is printed through a pointer, its own checksum at 0."""
    printed = version.dump(raw).removesuffix("}")
    return fnv1a(f"(*{version.name}){printed} Checksum:(checksum.Checksum)0}}")


def _values(raw: dict[str, Any], version: Version) -> MemoryCheckpoint:
    return MemoryCheckpoint(
        policy=raw["policyName"],
        machine={node: _node(state or {}) for node, state in sorted((raw["machineState"] or {}).items())},
        entries={
            uid: {name: _blocks(blocks) for name, blocks in (containers or {}).items()}
            for uid, containers in (raw["entries"] or {}).items()
        },
        pods={uid: _blocks(pod["memoryBlocks"]) for uid, pod in (raw["podEntries"] or {}).items()},
        version=version,
    )


def _node(raw: dict[str, Any]) -> NodeMemory:
    tables = {name: _table(table or {}) for name, table in sorted((raw.get("memoryMap") or {}).items())}
    return NodeMemory(tables, raw.get("numberOfAssignments", 0), tuple(raw.get("cells") or ()))


def _table(raw: dict[str, int]) -> Table:
    return Table(*(raw.get(member.json, 0) for member in _TABLE.members))


def _blocks(raw: list[dict[str, Any]] | None) -> tuple[Block, ...]:
    return tuple(Block(tuple(one["numaAffinity"] or ()), one["type"], one["size"]) for one in raw or ())
