"""State files that Kubernetes 1.36's own code wrote, and what its memory manager said of some at its start.

The data file was made by driving upstream's checkpoint and memory manager packages; files of the form of 1.37
by its structures under 1.36's checksum. A row is `kind`, `gate` (of pod-level managers), `text`, and for a
start the machine, the reservation and upstream's error.
"""

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "data/kubelet_state_files.jsonl.gz"


@dataclass(frozen=True)
class Written:
    """A file, and the version in which it was written."""

    content: bytes
    version: int


@dataclass(frozen=True)
class Start:
    """A file with which upstream's memory manager was started: by NUMA node the reserved bytes."""

    content: bytes
    nodes: list[dict[str, Any]]
    reserved: dict[int, dict[str, int]]
    error: str


def written(kind: str) -> list[Written]:
    """Files of `cpu` or `memory`, in the order in which they were written."""
    versions = {"cpu": (2, 3, 4), "memory": (1, 2, 3)}[kind]
    return [
        Written(row["text"].encode(), versions[2 if '"data":' in row["text"] else row["gate"]])
        for row in _rows()
        if row["kind"] == kind
    ]


def starts() -> list[Start]:
    rows = [(row["text"].encode(), row["start"]) for row in _rows() if row["kind"] == "memory-start"]
    return [
        Start(
            text,
            start["nodes"],
            {int(node): sizes for node, sizes in start["reserved"].items()},
            start["error"],
        )
        for text, start in rows
    ]


@cache
def _rows() -> list[dict[str, Any]]:
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
