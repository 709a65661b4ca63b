"""The memory manager's state file for people and scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from corelane.node.kubelet.memory_checkpoint import Block, MemoryCheckpoint
from corelane.view import tables
from corelane.view.state import checksum
from corelane.view.units import size

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["MemoryContents", "plain_contents", "show_contents"]


@dataclass(frozen=True, slots=True)
class MemoryContents:
    """A memory manager's state file; `fault` is "" when its checksum is right."""

    file: str
    checkpoint: MemoryCheckpoint
    checksum: int | None
    fault: str = ""


def plain_contents(contents: MemoryContents) -> dict[str, Any]:
    """JSON with stable keys; sizes are in bytes."""
    found = contents.checkpoint
    return {
        "file": contents.file,
        "kind": "memory_manager_state",
        "version": found.version,
        "policy": found.policy,
        "nodes": [
            {
                "node": node,
                "assignments": state.assignments,
                "group": list(state.group),
                "memory": {name: _camel(asdict(table)) for name, table in state.memory.items()},
            }
            for node, state in found.machine.items()
        ],
        "entries": [
            {"podUID": uid, "container": name, **_plain_block(block)} for uid, name, block in _blocks(found)
        ],
        "podEntries": [
            {"podUID": uid, **_plain_block(block)}
            for uid, blocks in sorted(found.pods.items())
            for block in blocks
        ],
        "checksum": contents.checksum,
        "checksumOk": not contents.fault,
        "fault": contents.fault,
    }


def _camel(table: dict[str, int]) -> dict[str, int]:
    return {"systemReserved" if name == "system_reserved" else name: n for name, n in table.items()}


def _plain_block(block: Block) -> dict[str, Any]:
    return {"type": block.resource, "size": block.size, "numaAffinity": list(block.nodes)}


def _blocks(found: MemoryCheckpoint) -> Iterator[tuple[str, str, Block]]:
    for uid, containers in sorted(found.entries.items()):
        for name, blocks in sorted(containers.items()):
            yield from ((uid, name, block) for block in blocks)


def show_contents(contents: MemoryContents, to: Console) -> None:
    """The facts of the file, a row for each resource of each NUMA node, then a row for each block."""
    found = contents.checkpoint
    facts = [
        ("policy", found.policy or "(none named)"),
        ("version", str(found.version)),
        ("checksum", checksum(contents.checksum, contents.fault)),
    ]
    tables.show(contents.file, ("field", "value"), facts, to)
    if rows := list(_node_rows(found)):
        headings = (
            "node",
            "resource",
            "total",
            "system",
            "allocatable",
            "reserved",
            "free",
            "blocks",
            "group",
        )
        tables.show("NUMA nodes", headings, rows, to)
    if rows := list(_block_rows(found)):
        tables.show("Memory of containers", ("pod UID", "container", "resource", "size", "nodes"), rows, to)
    else:
        to.print("No container has memory of its own.")


def _node_rows(found: MemoryCheckpoint) -> Iterator[tuple[str, ...]]:
    for node, state in found.machine.items():
        for name, table in state.memory.items():
            sizes = (table.total, table.system_reserved, table.allocatable, table.reserved, table.free)
            yield str(node), name, *map(size, sizes), str(state.assignments), _nodes(state.group)


def _block_rows(found: MemoryCheckpoint) -> Iterator[tuple[str, ...]]:
    for uid, name, block in _blocks(found):
        yield uid, name, block.resource, size(block.size), _nodes(block.nodes)
    for uid, blocks in sorted(found.pods.items()):
        for block in blocks:
            yield uid, "(whole pod)", block.resource, size(block.size), _nodes(block.nodes)


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "-"
