"""The kubelet's CPU state file as tables and JSON: content, the rules of the kubelet's start, a repair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from corelane.cpuset import CPUSet
from corelane.node.explain.json_values import json_value
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.memory_checkpoint import Block, MemoryCheckpoint
from corelane.node.kubelet.validation import StartRule, broken
from corelane.node.recovery.rebuilding import EntryChange, StateDifference, StateFile
from corelane.reasons import sentence
from corelane.view import tables
from corelane.view.cpumap import size

if TYPE_CHECKING:
    from rich.console import Console


def plain_contents(file: StateFile[Checkpoint]) -> dict[str, Any]:
    """JSON with stable keys; CPU sets are list strings."""
    return {
        "file": file.path,
        "kind": "cpu_manager_state",
        **_plain_checkpoint(file.checkpoint),
        "checksum": file.checksum,
        "checksumOk": file.whole or not file.fault,
        "fault": file.fault,
    }


def _plain_checkpoint(content: Checkpoint) -> dict[str, Any]:
    return {
        "version": content.version,
        "policy": content.policy,
        "defaultCpuSet": str(content.default),
        "entries": [
            {"podUID": uid, "container": name, "cpus": str(cpus), "count": len(cpus)}
            for uid, name, cpus in _entries(content)
        ],
        "podEntries": [
            {"podUID": uid, "cpus": str(cpus), "count": len(cpus)}
            for uid, cpus in sorted(content.pods.items())
        ],
    }


def _entries(content: Checkpoint) -> Iterator[tuple[str, str, CPUSet]]:
    for uid, containers in sorted(content.entries.items()):
        for name, cpus in sorted(containers.items()):
            yield uid, name, cpus


def show_contents(file: StateFile[Checkpoint], to: Console) -> None:
    """The file's fields, then a row for each entry."""
    content = file.checkpoint
    fields = [
        ("policy", content.policy or "(none)"),
        ("version", str(content.version)),
        ("checksum", checksum(file.checksum, "" if file.whole else file.fault)),
        ("default CPU set", _set(content.default)),
    ]
    tables.show(file.path, ("field", "value"), fields, to)
    rows = [(uid or "-", name, str(cpus), str(len(cpus))) for uid, name, cpus in _entries(content)]
    rows += [(uid, "(whole pod)", str(cpus), str(len(cpus))) for uid, cpus in sorted(content.pods.items())]
    if rows:
        tables.show("Exclusive CPUs", ("pod UID", "container", "CPUs", "count"), rows, to)
    else:
        to.print("No container has exclusive CPUs.")


def checksum(value: int | None, fault: str) -> str:
    """A file's checksum and whether it is right."""
    if fault and value is None:
        return "not a number"
    if fault:
        return f"{value} (wrong: does not match the content)"
    return f"{value} (right)" if value else "none (the kubelet accepts this)"


def _set(cpus: CPUSet) -> str:
    return f"{cpus} ({len(cpus)} CPUs)" if cpus else "(empty)"


def plain_rules(file: str, rules: list[StartRule], settings: Mapping[str, Any]) -> dict[str, Any]:
    """JSON with stable keys."""
    plain = [asdict(rule) | {"remedy": _remedy(rule)} for rule in rules]
    return {"file": file, "starts": not broken(rules), **settings, "rules": plain}


def _remedy(rule: StartRule) -> str:
    return sentence(rule.remedy) if rule.remedy else ""


def show_rules(file: str, rules: list[StartRule], to: Console) -> None:
    """A row for each rule, and a last line with the verdict."""
    rows = [
        (rule.verdict, rule.name, f"{rule.text}\n→ {_remedy(rule)}" if rule.remedy else rule.text)
        for rule in rules
    ]
    tables.show(file, ("result", "rule", "detail"), rows, to)
    to.print(f"The kubelet would {'not start' if broken(rules) else 'start'} with this file.", markup=False)


def plain_difference(difference: StateDifference, *, written: bool, backup: str | None) -> dict[str, Any]:
    """JSON with stable keys; `before` is null where there was no readable file."""
    return {
        "file": difference.file,
        "needed": difference.needed,
        "written": written,
        "backup": backup,
        "before": _plain_checkpoint(difference.before) if difference.before else None,
        "after": {**_plain_checkpoint(difference.after), "version": difference.version},
        "changes": [
            {"kind": change.kind, **json_value(change, {"uid": "podUID", "reasons": ""}), "why": _why(change)}
            for change in difference.changes
        ],
        "notes": list(difference.notes),
    }


def show_difference(difference: StateDifference, to: Console) -> None:
    """The fields before and after, a row for each container, and the notes."""
    before, after = difference.before, difference.after
    rows = [
        ("policy", before.policy if before else "-", after.policy),
        ("version", str(before.version) if before else "-", str(difference.version)),
        ("default CPU set", _set(before.default) if before else "-", _set(after.default)),
    ]
    tables.show(difference.file, ("field", "before", "after"), rows, to)
    if difference.changes:
        headings = ("change", "pod", "container", "before", "after", "why")
        tables.show("Containers", headings, map(_row, difference.changes), to)
    for note in difference.notes:
        to.print(f"note: {note}", markup=False)


def _row(change: EntryChange) -> tuple[str, ...]:
    before, after = ("-" if cpus is None else str(cpus) for cpus in (change.before, change.after))
    return change.kind, change.pod or change.uid, change.container, before, after, _why(change)


def _why(change: EntryChange) -> str:
    return ", ".join(map(sentence, change.reasons))


def plain_memory_contents(file: StateFile[MemoryCheckpoint]) -> dict[str, Any]:
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


def show_memory_contents(file: StateFile[MemoryCheckpoint], to: Console) -> None:
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
        rows = [
            (name.replace("_", " "), *(size(getattr(table, name)) for table in state.memory.values()))
            for name in ("total", "system_reserved", "allocatable", "reserved", "free")
        ]
        tables.show(title, ("amount", *state.memory), rows, to)
    entries = [*_blocks(content)]
    entries += [(uid, "(whole pod)", block) for uid, held in sorted(content.pods.items()) for block in held]
    if entries:
        rows = [(*own, block.resource, size(block.size), _nodes(block.nodes)) for *own, block in entries]
        tables.show("Memory of containers", ("pod UID", "container", "resource", "size", "nodes"), rows, to)
    else:
        to.print("No container has memory assigned.")


def _nodes(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "-"
