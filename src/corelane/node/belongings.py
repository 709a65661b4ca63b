"""What containers have beside CPUs, for the ledger's file: memory, devices, and what is their whole pod's.

Values are plain JSON, sets of NUMA nodes and CPUs list strings; what is absent is left out, as in files of
before there was any. Reading raises ValueError that says what is wrong.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from corelane.cpuset import CPUSet, format_list
from corelane.node.entries import Bubble, Entry
from corelane.placement.memory import MemoryBlock, MemoryNode, Nodes

__all__ = ["nodes_of", "of_plain", "plain", "plain_nodes"]


def plain(entry: Entry) -> dict[str, Any]:
    """The members of an entry's object that are about its belongings."""
    found: dict[str, Any] = {}
    if entry.memory:
        found["memory"] = _plain_blocks(entry.memory)
    if entry.devices:
        found["devices"] = {resource: list(ids) for resource, ids in entry.devices.items()}
    if entry.bubble:
        found["bubble"] = {
            "cpus": str(entry.bubble.cpus),
            "memory": _plain_blocks(entry.bubble.memory),
        }
    return found


def of_plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an `Entry` that such members say."""
    found: dict[str, Any] = {}
    if "memory" in values:
        found["memory"] = _blocks(values["memory"], "memory")
    if "devices" in values:
        devices = _of(values["devices"], dict, "devices").items()
        found["devices"] = {str(name): tuple(_texts(ids, f"devices.{name}")) for name, ids in devices}
    if "bubble" in values:
        bubble = _of(values["bubble"], dict, "bubble")
        cpus = CPUSet.parse(_of(bubble.get("cpus"), str, "bubble.cpus"))
        found["bubble"] = Bubble(cpus, _blocks(bubble.get("memory"), "bubble.memory"))
    return found


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
    found = {}
    for number, node in _of(values, dict, "(all)").items():
        _of(node, dict, number)
        found[int(number)] = MemoryNode(
            _amounts(node.get("allocatable"), f"{number}.allocatable"),
            _amounts(node.get("free"), f"{number}.free"),
            CPUSet.parse(_of(node.get("group"), str, f"{number}.group")).mask,
            _count(node.get("assignments"), f"{number}.assignments"),
        )
    return found


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
    found: int = _of(value, int, path)
    if isinstance(value, bool) or found < 0:
        raise ValueError(f"{path}: {value!r} is no amount of 0 or more")
    return found


def _of(value: Any, kind: type, path: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{path}: {value!r} is not {kind.__name__}")
    return value
