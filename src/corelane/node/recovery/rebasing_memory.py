"""Memory when machine or settings have changed: who can keep what he has, and who leaves it to the kernel."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from corelane.cpuset import format_list
from corelane.node.entries import Bubble, Entry
from corelane.node.invariants import Problem, problem
from corelane.node.memory import nodes_of
from corelane.placement.memory import MemoryBlock, MemoryNode, Nodes, holds, taken

__all__ = ["nodes_of", "rebased"]


def rebased(
    entries: Iterable[Entry], before: Nodes, idle: Mapping[int, MemoryNode], problems: list[Problem]
) -> tuple[list[Entry], Nodes]:
    """The entries that keep their memory, and the nodes with it; `idle` are the nodes as they are now.

    Where nothing changed all stays as it is. Else every container in turn keeps its memory, if its NUMA nodes
    are there and still hold it, and is otherwise no longer bound to any.
    """
    kept = list(entries)
    if _sizes(before) == _sizes(idle):
        return kept, before
    nodes: Nodes = idle
    bubbles: dict[str, Bubble | None] = {}
    for i, entry in enumerate(kept):
        if entry.bubble and entry.bubble.memory:
            if entry.uid not in bubbles:
                nodes, fits = _put(nodes, entry.bubble.memory)
                bubbles[entry.uid] = entry.bubble if fits else replace(entry.bubble, memory=())
            fits = bubbles[entry.uid] == entry.bubble
        else:
            nodes, fits = _put(nodes, entry.memory)
        if not fits:
            kept[i] = _without_memory(entry, problems)
    return kept, nodes


def _sizes(nodes: Nodes) -> dict[int, Mapping[str, int]]:
    return {number: node.allocatable for number, node in nodes.items()}


def _put(nodes: Nodes, blocks: Iterable[MemoryBlock]) -> tuple[Nodes, bool]:
    """The nodes with these blocks, and True; as they are, and False, if one does not fit."""
    found = nodes
    for block in blocks:
        if not block.nodes or not set(block.nodes) <= found.keys():
            return nodes, False
        if not holds(found, block.nodes.mask, {block.resource: block.size}):
            return nodes, False
        found = taken(found, block.nodes.mask, block.resource, block.size)
    return found, True


def _without_memory(entry: Entry, problems: list[Problem]) -> Entry:
    nodes = format_list(entry.mems.mask) if entry.mems else ""
    text = f"its memory on NUMA nodes {nodes} is no longer kept for it there: the kernel decides from now on"
    problems.append(problem("memory", entry, text))
    bubble = replace(entry.bubble, memory=()) if entry.bubble else None
    return replace(entry, memory=(), mems=None, bubble=bubble)
