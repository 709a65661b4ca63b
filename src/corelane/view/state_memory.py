"""The memory manager's state file for people and scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from corelane.node.explain.json_values import json_value
from corelane.node.kubelet.memory_checkpoint import Block, MemoryCheckpoint, NodeMemory
from corelane.node.recovery.rebuilding import StateFile
from corelane.view import tables
from corelane.view.state import checksum
from corelane.view.units import size

if TYPE_CHECKING:
    from rich.console import Console


def plain_contents(file: StateFile[MemoryCheckpoint]) -> dict[str, Any]:
    """JSON with stable keys; sizes are in bytes."""
    content = file.checkpoint
    return {
        "file": file.path,
        "kind": "memory_manager_state",
        "version": content.version,
        "policy": content.policy,
        "nodes": [
            {
                "node": node,
                "assignments": state.assignments,
                "group": list(state.group),
                "memory": json_value(state.memory),
            }
            for node, state in content.machine.items()
        ],
        "entries": [
            {"podUID": uid, "container": name, **_plain_block(block)} for uid, name, block in _blocks(content)
        ],
        "podEntries": [
            {"podUID": uid, **_plain_block(block)}
            for uid, blocks in sorted(content.pods.items())
            for block in blocks
        ],
        "checksum": file.checksum,
        "checksumOk": not file.fault,
        "fault": file.fault,
    }


def _plain_block(block: Block) -> dict[str, Any]:
    return {"type": block.resource, "size": block.size, "numaAffinity": list(block.nodes)}


def _blocks(content: MemoryCheckpoint) -> Iterator[tuple[str, str, Block]]:
    for uid, containers in sorted(content.entries.items()):
        for name, blocks in sorted(containers.items()):
            yield from ((uid, name, block) for block in blocks)


def show_contents(file: StateFile[MemoryCheckpoint], to: Console) -> None:
    """The file's fields, a table for each NUMA node, then a row for each block."""
    content = file.checkpoint
    fields = [
        ("policy", content.policy or "(none)"),
        ("version", str(content.version)),
        ("checksum", checksum(file.checksum, file.fault)),
    ]
    tables.show(file.path, ("field", "value"), fields, to)
    for node, state in content.machine.items():
        blocks = "1 block" if state.assignments == 1 else f"{state.assignments} blocks"
        title = f"NUMA node {node}: {blocks}, group {_nodes(state.group)}"
        tables.show(title, ("amount", *state.memory), _sizes(state), to)
    if rows := list(_block_rows(content)):
        tables.show("Memory of containers", ("pod UID", "container", "resource", "size", "nodes"), rows, to)
    else:
        to.print("No container has memory assigned.")


def _sizes(state: NodeMemory) -> Iterator[tuple[str, ...]]:
    """A row for each amount, a column for each resource."""
    for name in ("total", "system_reserved", "allocatable", "reserved", "free"):
        amounts = (size(getattr(table, name)) for table in state.memory.values())
        yield name.replace("_", " "), *amounts


def _block_rows(content: MemoryCheckpoint) -> Iterator[tuple[str, ...]]:
    for uid, name, block in _blocks(content):
        yield uid, name, block.resource, size(block.size), _nodes(block.nodes)
    for uid, blocks in sorted(content.pods.items()):
        for block in blocks:
            yield uid, "(whole pod)", block.resource, size(block.size), _nodes(block.nodes)


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "-"
