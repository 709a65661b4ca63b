"""The kubelet's `memory_manager_state`, versions 1 to 3: bytes in, frozen values out, checksums verified.

Upstream: `pkg/kubelet/cm/memorymanager/state` (v1.36; version 3 from 1.37). Sizes are in bytes. A
checksum covers what spew prints of the Go structure (`encoding/json`; `github.com/davecgh/go-spew` as set up
by `k8s.io/utils/dump`), so the structure is a table of Go types here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from corelane.node.kubelet.statefile import (
    CheckpointError,
    MalformedError,
    Pairs,
    StateFields,
    fnv1a,
    parse,
    payload_checksum,
)


class GoType(Protocol):
    """A Go type; `name` is its text in Go, with the package where it has one."""

    @property
    def name(self) -> str: ...

    def read(self, value: Any, where: str) -> Any:
        """The value of a JSON value; null is Go's zero. Raises MalformedError naming `where`."""

    def dump(self, value: Any) -> str:
        """As spew prints it, without its type in front."""


@dataclass(frozen=True, slots=True)
class String:
    """A string, or a type made of one."""

    name: str = "string"

    def read(self, value: Any, where: str) -> str:
        if not isinstance(value, str | None):
            raise MalformedError(f"{where}: is {type(value).__name__}, not a string")
        return value or ""

    def dump(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`."""

    name: str
    low: int
    high: int

    def read(self, value: Any, where: str) -> int:
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise MalformedError(f"{where}: is {_shown(value)}, not a whole number of Go's type {self.name}")
        return value

    def dump(self, value: int) -> str:
        return str(value)


STRING = String()


INT = Whole("int", -(1 << 63), (1 << 63) - 1)


UINT64 = Whole("uint64", 0, (1 << 64) - 1)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A slice."""

    item: GoType

    @property
    def name(self) -> str:
        return f"[]{self.item.name}"

    def read(self, value: Any, where: str) -> list[Any] | None:
        if value is None:
            return None
        if not isinstance(value, list) or isinstance(value, Pairs):
            raise MalformedError(f"{where}: is {_kind(value)}, not a list")
        return [self.item.read(item, f"{where}[{index}]") for index, item in enumerate(value)]

    def dump(self, value: list[Any] | None) -> str:
        return "<nil>" if value is None else f"[{' '.join(map(self.item.dump, value))}]"


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with string keys, or with `int` ones; `named` is its name where the map type has one."""

    key: GoType
    item: GoType
    named: str = ""

    @property
    def name(self) -> str:
        return self.named or f"map[{self.key.name}]{self.item.name}"

    def read(self, value: Any, where: str) -> dict[Any, Any] | None:
        if value is None:
            return None
        if not isinstance(value, Pairs):
            raise MalformedError(f"{where}: is {_kind(value)}, not an object")
        return {self._key(key, where): self.item.read(item, f"{where}.{key}") for key, item in value}

    def _key(self, text: str, where: str) -> Any:
        if not isinstance(self.key, Whole):
            return text
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text, re.ASCII):
            raise MalformedError(f"{where}: the key {text!r} is not a number")
        return self.key.read(int(text), f"{where}.{text}")

    def dump(self, value: dict[Any, Any] | None) -> str:
        if value is None:
            return "<nil>"
        members = (f"{key}:{self.item.dump(value[key])}" for key in sorted(value))
        return f"map[{' '.join(members)}]"


@dataclass(frozen=True, slots=True)
class PointerTo:
    """A pointer, which spew follows but whose address it leaves out."""

    target: GoType

    @property
    def name(self) -> str:
        return f"*{self.target.name}"

    def read(self, value: Any, where: str) -> Any:
        return None if value is None else self.target.read(value, where)

    def dump(self, value: Any) -> str:
        return "<nil>" if value is None else f"<*>{self.target.dump(value)}"


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a structure by its names in Go and in JSON; `made` is its value where JSON has none."""

    go: str
    json: str
    type: GoType
    made: Any = None


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure; its values are dicts with every member, by JSON name."""

    name: str
    members: Sequence[Member]

    def read(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, Pairs | None):
            raise MalformedError(f"{where}: is {_kind(value)}, not an object")
        fields = StateFields(value or Pairs())
        prefix = f"{where}." if where else ""
        return {
            member.json: member.type.read(fields.get(member.json), f"{prefix}{member.json}")
            if member.json in fields or member.made is None
            else member.made
            for member in self.members
        }

    def dump(self, value: dict[str, Any]) -> str:
        """Every member with its type, as spew prints structures."""
        members = (f"{m.go}:({m.type.name}){m.type.dump(value[m.json])}" for m in self.members)
        return f"{{{' '.join(members)}}}"


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, Pairs) else type(value).__name__


def _shown(value: Any) -> str:
    return _kind(value) if isinstance(value, list) else repr(value)


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
    """The kubelet's record of one NUMA node."""

    memory: Mapping[str, Table]
    assignments: int = 0
    """Number of blocks here; a container with memory and huge pages has two."""
    group: tuple[int, ...] = ()
    """The NUMA nodes over which these blocks stretch; just this one where none does."""


@dataclass(frozen=True, slots=True)
class MemoryCheckpoint:
    """The kubelet's record of a node's memory."""

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
            # Version 3: the payload counts, and what stands beside it for older kubelets does not.
            if verify and payload_checksum(fields.text("data")) != fields.number("dataChecksum"):
                raise MalformedError("dataChecksum: checkpoint is corrupted")
            return _values(_VERSION_2.read(parse(_payload(fields), "data"), ""), 3)
        # Version 2 where its checksum says so, else 1, of which the kubelet accepts 0 for a checksum.
        checksum = fields.number("checksum")
        raw = _VERSION_2.read(pairs, "")
        if checksum == _checksum(_VERSION_2, raw) or (not verify and raw["podEntries"]):
            return _values(raw, 2)
        plain = {**raw, "podEntries": {}}
        if not verify or checksum in (0, *(_checksum(version, plain) for version in _VERSIONS_1)):
            return _values(plain, 1)
        raise MalformedError("checksum: checkpoint is corrupted")
    except MalformedError as error:
        raise CheckpointError(f"{error}; {_WHAT_TO_DO}") from None


def _payload(fields: StateFields) -> bytes:
    return fields.text("data").encode()


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
    return tuple(Block(tuple(each["numaAffinity"] or ()), each["type"], each["size"]) for each in raw or ())
