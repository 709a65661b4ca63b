"""Replays files that Kubernetes' own code wrote: rows of `kubelet_state_files` (`.jsonl`).

A row is `kind`, `gate` (of pod-level managers) and `text`. A file of the CPU manager (`cpu`) must be read and
written again to the byte, one of the memory manager (`memory`) read with its checksum; for `memory-start` the
row has the machine, the reservation, and the error with which upstream's memory manager refused to start.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from conformance.picks import Difference, Replay, Row
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine, NUMANode, from_rows
from corelane.node.kubelet import checkpoint, memory_checkpoint, validation
from corelane.node.kubelet.statefile import CheckpointError

_VERSIONS = {"cpu": (2, 3, 4), "memory": (1, 2, 3)}
"""Of a file without and with the gate, and of one whose payload is a text with a checksum of its own."""


def replay_files(rows: Iterable[Row]) -> Replay:
    """Read every file, and compare version, content and the verdict on a start."""
    results = [(number, row["kind"], *_ANSWERS[row["kind"]](row)) for number, row in enumerate(rows)]
    differences = [
        Difference(number, kind, expected, got) for number, kind, expected, got in results if expected != got
    ]
    return Replay(len(results) - len(differences), len(results), tuple(differences))


def _version(row: Row) -> int:
    return _VERSIONS[row["kind"]][2 if '"data":' in row["text"] else row["gate"]]


def _cpu(row: Row) -> tuple[Any, Any]:
    try:
        content = checkpoint.decode(row["text"].encode())
    except CheckpointError as error:
        return _version(row), str(error)
    written = checkpoint.encode(content, content.version).decode()
    return (_version(row), row["text"]), (content.version, written)


def _memory(row: Row) -> tuple[Any, Any]:
    try:
        return _version(row), memory_checkpoint.decode(row["text"].encode()).version
    except CheckpointError as error:
        return _version(row), str(error)


def _start(row: Row) -> tuple[Any, Any]:
    """Upstream's error begins the text of the first problem here; "" where the manager starts."""
    start = row["start"]
    reserved = {int(node): sizes for node, sizes in start["reserved"].items()}
    content = memory_checkpoint.decode(row["text"].encode())
    problems = validation.memory_start_problems(content, _machine(start["nodes"]), "Static", reserved)
    text, error = problems[0].text if problems else "", start["error"]
    return error, error if error and text.startswith(error) else text


def _machine(nodes: list[dict[str, Any]]) -> Machine:
    machine = from_rows("recorded", [(node["id"], node["id"], 0, node["id"], 0) for node in nodes])
    sizes = (
        NUMANode(
            node["id"],
            CPUSet(),
            node["memory"],
            {int(kib): count for kib, count in node["hugepages"].items()},
        )
        for node in nodes
    )
    return replace(machine, nodes=tuple(sizes))


_ANSWERS = {"cpu": _cpu, "memory": _memory, "memory-start": _start}
