"""The ledger's own state file: bytes out, bytes in. JSON with a version and a checksum, CPU sets as lists.

Lines of changes may follow (JSON objects with a checksum each); together with them the file is the state
after the last one. Machine and settings are not in it: `decode` takes those of today, and `rebase` says what
that changes.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from corelane.cpuset import CPUSet, CPUSetError, format_list
from corelane.machine.model import Machine
from corelane.node.config import NodeConfig
from corelane.node.entries import (
    Bubble,
    Entry,
    Origin,
    Phase,
    PlacedPod,
    Sharing,
    bound_mask,
    exclusive_mask,
    placed_pod_of_plain,
    plain_placed_pod,
    shared_with_be_mask,
)
from corelane.node.ledger import LedgerError, NodeState, frozen, usable_topology
from corelane.placement.memory_blocks import MemoryBlock, MemoryNode, Nodes
from corelane.workload.request import ContainerKind

# Lines of changes. A line replaces the named pods, entries and rules, removes those that are null or gone,
# and has all single values. A last line without its end was being written when the process ended, and is
# dropped.


_MAPS = ("pods", "tenants")


def checksum(body: Any) -> str:
    """Return the checksum of a file's or a line's content."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def line(changes: Mapping[str, Any]) -> bytes:
    """Return the line of changes, with its end."""
    whole = {"checksum": checksum(changes), "changes": changes}
    return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


def split(text: str) -> tuple[Any, list[str]]:
    """Return the JSON value at the start of a file, and the complete lines after it. Raises ValueError."""
    start = len(text) - len(text.lstrip())
    whole, end = json.JSONDecoder().raw_decode(text, start)
    first, *lines = text[end:].split("\n")
    if first.strip():
        raise ValueError(f"extra data at character {end}")
    return whole, lines[:-1]


def applied(body: Mapping[str, Any], lines: Iterable[str]) -> dict[str, Any]:
    """Return a file's body after the changes of its lines. Raises ValueError, naming the line."""
    made = dict(body)
    entries = {(entry["uid"], entry["container"]): entry for entry in body["entries"]}
    maps = {name: dict(body[name]) for name in _MAPS}
    for number, text in enumerate(lines, 1):
        changes = _verified_change(text, number)
        for name, values in maps.items():
            _update(values, changes.pop(name))
        for uid, container in changes.pop("gone"):
            entries.pop((uid, container), None)
        entries |= {(entry["uid"], entry["container"]): entry for entry in changes.pop("entries")}
        made |= changes
    return {**made, **maps, "entries": list(entries.values())}


def _verified_change(text: str, number: int) -> dict[str, Any]:
    try:
        read = json.loads(text)
        changes: dict[str, Any] = read["changes"]
        if read["checksum"] == checksum(changes):
            return changes
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"line {number} of changes is damaged ({error})") from None
    raise ValueError(f"line {number} of changes does not match its checksum")


def _update(values: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for name, value in changes.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value


VERSION = 1
_KIND = "corelane-ledger"
_WHAT_TO_DO = "restore a backup, or move the file away to start from what is running"

_T = TypeVar("_T")
_Word = TypeVar("_Word", bound=StrEnum)


class LedgerVersionError(LedgerError):
    """The file is of another version of corelane: intact, but not to be read or replaced by this one."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"ledger of version {version}; this corelane reads and writes version {VERSION}: start the "
            "corelane that wrote it, or move the file away to rebuild the ledger from the running containers"
        )
        self.version = version


class _Fields:
    """A JSON object of the file, and where in it: reads fields, or says which one is wrong."""

    __slots__ = ("path", "values")

    def __init__(self, values: Any, path: str) -> None:
        self.path = path
        self.values: dict[str, Any] = _checked(values, dict, path or "(whole file)")

    def of(self, name: str, kind: type[_T]) -> _T:
        return _checked(self.values.get(name), kind, self.at(name))

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def cpus(self, name: str) -> CPUSet:
        try:
            return CPUSet.parse(self.of(name, str))
        except CPUSetError as error:
            raise _damaged(f"field {self.at(name)}: {error}") from None

    def read(self, name: str, reader: Callable[[], _T]) -> _T:
        """Return what a reader makes of a member that has a form of its own."""
        try:
            return reader()
        except ValueError as error:
            raise _damaged(f"field {self.at(name).rstrip('.')}: {error}") from None

    def word(self, name: str, words: type[_Word]) -> _Word:
        text = self.of(name, str)
        try:
            return words(text)
        except ValueError:
            raise _damaged(f"field {self.at(name)}: {text!r} is none of {', '.join(words)}") from None


def encode(state: NodeState) -> bytes:
    """The file's content: one JSON object, an entry a line, ending in a newline."""
    body: dict[str, Any] = {
        **_values(state),
        "pods": dict(state.pods),
        "entries": [_plain(entry) for entry in state.entries.values()],
        "tenants": {uid: plain_placed_pod(placed_pod) for uid, placed_pod in state.placed_pods.items()},
    }
    if state.memory:
        body["memory"] = plain_nodes(state.memory)
    head = json.dumps({"kind": _KIND, "version": VERSION, "checksum": checksum(body)})
    return f'{head[:-1]}, "ledger": {{\n{_lines(body)}\n}}}}\n'.encode()


def _lines(body: dict[str, Any]) -> str:
    """The members of an object, a line each and each entry; `indent` takes ten times as long."""
    entries = ",\n".join(f"  {json.dumps(entry)}" for entry in body["entries"])
    members = (f" {json.dumps(name)}: {json.dumps(part)}" for name, part in body.items() if name != "entries")
    return ",\n".join((*members, f' "entries": [\n{entries}\n ]'))


def encode_changes(before: NodeState, after: NodeState) -> bytes:
    """The line that makes a file of the state `before` one of `after`, ending in a newline."""
    changes: dict[str, Any] = {
        **_values(after),
        "pods": _differing(before.pods, after.pods),
        "gone": [list(key) for key in before.entries.keys() - after.entries.keys()],
        "entries": [
            _plain(entry) for key, entry in after.entries.items() if before.entries.get(key) is not entry
        ],
        "tenants": {
            uid: placed_pod and plain_placed_pod(placed_pod)
            for uid, placed_pod in _differing(before.placed_pods, after.placed_pods).items()
        },
    }
    if after.memory != before.memory:
        changes["memory"] = plain_nodes(after.memory)
    return line(changes)


def _values(state: NodeState) -> dict[str, Any]:
    return {"generation": state.generation, "reserved": str(state.reserved)}


def _differing(before: Mapping[str, _T], after: Mapping[str, _T]) -> dict[str, _T | None]:
    """The members that are new or changed, and None for those that are gone."""
    gone = dict.fromkeys(before.keys() - after.keys())
    return {**gone, **{name: value for name, value in after.items() if before.get(name) is not value}}


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "uid": entry.uid,
        "container": entry.container,
        "pod": entry.pod,
        "cpus": str(entry.cpus),
        "mems": None if entry.mems is None else str(entry.mems),
        "class": entry.cls,
        "kind": entry.kind.value,
        "origin": entry.origin.value,
        "allocator": entry.allocator,
        "phase": entry.phase.value,
        "cpuRequest": entry.cpu_request,
        "sharing": entry.sharing.value,
        "common": entry.common,
        "zone": None if entry.zone is None else str(entry.zone),
        **({"lost": str(entry.lost)} if entry.lost else {}),
        **({"lostSharing": entry.lost_sharing.value} if entry.lost_sharing else {}),
        **plain(entry),
    }


def decode(data: bytes, machine: Machine, config: NodeConfig) -> NodeState:
    """The state that `encode` wrote, on this machine and under these settings; call `rebase` on it next.

    Raises LedgerError, naming the field and what to do, for a file that is truncated, corrupt, or of another
    version; NodeConfigError when the machine has no usable CPU.
    """
    body = _verified(data)
    pods = {
        uid: _checked(milli, int, f"ledger.pods[{uid!r}]") for uid, milli in body.of("pods", dict).items()
    }
    items = body.of("entries", list)
    entries = [_entry(_Fields(item, f"ledger.entries[{i}]")) for i, item in enumerate(items)]
    return NodeState(
        machine=machine,
        config=config,
        topology=usable_topology(machine),
        reserved=body.cpus("reserved"),
        entries=frozen({entry.key: entry for entry in entries}),
        pods=frozen(pods),
        exclusive=CPUSet.from_mask(exclusive_mask(entries)),
        shared_with_be=CPUSet.from_mask(shared_with_be_mask(entries)),
        bound=CPUSet.from_mask(bound_mask(entries)),
        placed_pods=frozen(dict(_tenants(body, pods))),
        memory=_memory(body),
        requested=sum(pods.values()),
        generation=body.of("generation", int),
    )


def _verified(data: bytes) -> _Fields:
    """The `ledger` member of a file whose kind, version and checksum are right."""
    try:
        tree, lines = split(data.decode())
    except (ValueError, RecursionError) as error:
        raise _damaged(f"is not valid JSON, perhaps truncated after {len(data)} bytes ({error})") from None
    whole = _Fields(tree, "")
    if (kind := whole.of("kind", str)) != _KIND:
        raise _damaged(f"field kind: {kind!r} is not {_KIND!r}: this is some other program's file")
    if (version := whole.of("version", int)) != VERSION:
        raise LedgerVersionError(version)
    body = whole.of("ledger", dict)
    if (written := whole.of("checksum", str)) != (right := checksum(body)):
        raise _damaged(
            f"field checksum: {written} does not match the content ({right}): the file was changed or damaged"
        )
    return _Fields(_with_changes(body, lines) if lines else body, "ledger")


def _with_changes(body: dict[str, Any], lines: list[str]) -> dict[str, Any]:
    try:
        return applied(body, lines)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(f"has changes that cannot be read: {error}") from None


def _entry(fields: _Fields) -> Entry:
    cpus = fields.cpus("cpus")
    return Entry(
        uid=fields.of("uid", str),
        container=fields.of("container", str),
        pod=fields.of("pod", str),
        cpus=cpus,
        sharing=fields.word("sharing", Sharing) if "sharing" in fields.values else _earlier(cpus),
        common=fields.values.get("common") is True,
        zone=fields.cpus("zone") if fields.values.get("zone") is not None else None,
        mems=fields.cpus("mems") if fields.values.get("mems") is not None else None,
        cls=fields.of("class", str),
        kind=fields.word("kind", ContainerKind),
        origin=fields.word("origin", Origin),
        allocator=fields.of("allocator", str),
        phase=fields.word("phase", Phase),
        cpu_request=fields.of("cpuRequest", int),
        lost=fields.cpus("lost") if "lost" in fields.values else CPUSet(),
        lost_sharing=fields.word("lostSharing", Sharing) if "lostSharing" in fields.values else None,
        **fields.read("", lambda: of_plain(fields.values)),
    )


def _memory(body: _Fields) -> Nodes:
    if "memory" not in body.values:
        return frozen({})
    return frozen(body.read("memory", lambda: nodes_of(body.values["memory"])))


def _tenants(body: _Fields, pods: Collection[str]) -> Iterator[tuple[str, PlacedPod]]:
    for uid, plain in _checked(body.values.get("tenants", {}), dict, body.at("tenants")).items():
        try:
            placed_pod = placed_pod_of_plain(plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _damaged(f"field ledger.tenants[{uid!r}]: {error}") from None
        if uid in pods:
            yield uid, placed_pod


def _earlier(cpus: CPUSet) -> Sharing:
    """Of a file from before there were pools."""
    return Sharing.ALONE if cpus else Sharing.POOL


def _checked(value: Any, kind: type[_T], path: str) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        fault = "is missing" if value is None else f"is {type(value).__name__}"
        raise _damaged(f"field {path}: {fault}, not {kind.__name__}")
    return value


def _damaged(text: str) -> LedgerError:
    return LedgerError(f"ledger {text}; {_WHAT_TO_DO}")


def plain(entry: Entry) -> dict[str, Any]:
    """The members of an entry's object that are about its belongings."""
    members: dict[str, Any] = {}
    if entry.memory:
        members["memory"] = _plain_blocks(entry.memory)
    if entry.devices:
        members["devices"] = {resource: list(ids) for resource, ids in entry.devices.items()}
    if entry.bubble:
        members["bubble"] = {
            "cpus": str(entry.bubble.cpus),
            "memory": _plain_blocks(entry.bubble.memory),
        }
    return members


def of_plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an `Entry` that such members say."""
    members: dict[str, Any] = {}
    if "memory" in values:
        members["memory"] = _blocks(values["memory"], "memory")
    if "devices" in values:
        devices = _of(values["devices"], dict, "devices").items()
        members["devices"] = {str(name): tuple(_texts(ids, f"devices.{name}")) for name, ids in devices}
    if "bubble" in values:
        bubble = _of(values["bubble"], dict, "bubble")
        cpus = CPUSet.parse(_of(bubble.get("cpus"), str, "bubble.cpus"))
        members["bubble"] = Bubble(cpus, _blocks(bubble.get("memory"), "bubble.memory"))
    return members


def plain_nodes(nodes: Nodes) -> dict[str, Any]:
    """The memory of NUMA nodes, by their ids."""
    return {
        str(number): {
            "allocatable": dict(node.allocatable),
            "free": dict(node.free),
            "group": format_list(node.group),
            "assignments": node.assignments,
        }
        for number, node in nodes.items()
    }


def nodes_of(values: Any) -> dict[int, MemoryNode]:
    """The memory that `plain_nodes` wrote."""
    entries = {}
    for number, node in _of(values, dict, "(all)").items():
        _of(node, dict, number)
        entries[int(number)] = MemoryNode(
            _amounts(node.get("allocatable"), f"{number}.allocatable"),
            _amounts(node.get("free"), f"{number}.free"),
            CPUSet.parse(_of(node.get("group"), str, f"{number}.group")).mask,
            _count(node.get("assignments"), f"{number}.assignments"),
        )
    return entries


def _plain_blocks(blocks: Iterable[MemoryBlock]) -> list[dict[str, Any]]:
    return [{"resource": block.resource, "size": block.size, "nodes": str(block.nodes)} for block in blocks]


def _blocks(values: Any, path: str) -> tuple[MemoryBlock, ...]:
    return tuple(
        _block(_of(value, dict, f"{path}[{i}]"), f"{path}[{i}]")
        for i, value in enumerate(_of(values, list, path))
    )


def _block(value: Mapping[str, Any], path: str) -> MemoryBlock:
    resource = _of(value.get("resource"), str, f"{path}.resource")
    nodes = CPUSet.parse(_of(value.get("nodes"), str, f"{path}.nodes"))
    return MemoryBlock(resource, _count(value.get("size"), f"{path}.size"), nodes)


def _amounts(values: Any, path: str) -> dict[str, int]:
    return {name: _count(size, f"{path}.{name}") for name, size in _of(values, dict, path).items()}


def _texts(values: Any, path: str) -> list[str]:
    return [_of(value, str, path) for value in _of(values, list, path)]


def _count(value: Any, path: str) -> int:
    number: int = _of(value, int, path)
    if isinstance(value, bool) or number < 0:
        raise ValueError(f"{path}: {value!r} is not an amount of 0 or more")
    return number


def _of(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{path}: {value!r} is not {kind.__name__}")
    return value
