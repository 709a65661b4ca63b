"""Replays recorded picks of CPUs: rows of `kubelet_take` and `koordinator_take` (`.jsonl`).

A topology is a list of rows `[cpu, core, socket, NUMA node, uncore cache]`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corelane.cpuset import format_list, parse_list
from corelane.placement import topology
from corelane.placement.koordinator import allocator
from corelane.placement.kubelet import picker
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAStrategy

Row = Mapping[str, Any]
Topologies = Mapping[str, Sequence[Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row with another answer than the recorded one: where in the row, recorded and actual answer."""

    id: int
    where: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        recorded, got = _compact(self.expected), _compact(self.got)
        return f"row {self.id}, {self.where}: recorded {recorded}, corelane answers {got}"


@dataclass(frozen=True, slots=True)
class Replay:
    """How many rows have the recorded answer, and the first difference of each other row."""

    passed: int
    total: int
    differences: tuple[Difference, ...]


def replay_take(rows: Iterable[Row], topologies: Topologies) -> Replay:
    """Replay picks of the kubelet. Where upstream hangs, any n of the available CPUs are right.

    Raises KeyError when a row names a topology that is not among these.
    """
    built = _built(topologies)
    return replayed(rows, lambda row: _take(row, built[row["topo"]]))


def replay_koordinator(rows: Iterable[Row], topologies: Topologies) -> Replay:
    """Replay picks of Koordinator's scheduler.

    Raises KeyError when a row names a topology that is not among these.
    """
    built = _built(topologies)
    return replayed(rows, lambda row: _take_as_koordinator(row, built[row["topo"]]))


def replayed(rows: Iterable[Row], answer: Callable[[Row], Difference | None]) -> Replay:
    """Answer every row, and count the answers that differ from the recorded ones."""
    answers = [answer(row) for row in rows]
    differences = tuple(found for found in answers if found)
    return Replay(len(answers) - len(differences), len(answers), differences)


def _built(topologies: Topologies) -> dict[str, topology.Topology]:
    return {name: topology.build(_row(row) for row in rows) for name, rows in topologies.items()}


def _row(row: Sequence[int]) -> topology.CPURow:
    return topology.CPURow(*row)


def _take(row: Row, of: topology.Topology) -> Difference | None:
    available, n = parse_list(row["avail"]), row["n"]
    strategy = picker.Strategy(
        distribute=row["mode"] == "distributed",
        spread=row["strategy"] == "spread",
        uncore=row["uncore"],
        group=row["group"],
    )
    try:
        taken = picker.take(of, available, n, strategy)
        got = {"cpus": format_list(taken)}
    except ValueError as error:
        taken, got = 0, {"error": str(error)}
    if row["expect"].get("hang"):
        return None if taken.bit_count() == n and not taken & ~available else _differs(row, "pick", got)
    return None if got == row["expect"] else _differs(row, "pick", got)


def _take_as_koordinator(row: Row, of: topology.Topology) -> Difference | None:
    request = allocator.Request(
        BindPolicy(row["bind"]), ExclusivePolicy(row["exclusive"]), NUMAStrategy(row["strategy"])
    )
    held = ((one["cpu"], one["ref"], ExclusivePolicy(one["exclusive"])) for one in row["allocated"])
    others, preferred = allocator.held(held, row["maxRef"]), parse_list(row["preferred"])
    try:
        taken = allocator.take(of, parse_list(row["avail"]), row["n"], request, others, preferred=preferred)
        got = {"cpus": format_list(taken)}
    except allocator.NotSatisfied as error:
        got = {"error": str(error)}
    return None if got == row["expect"] else _differs(row, "pick", got)


def _differs(row: Row, where: str, got: Any) -> Difference:
    return Difference(row["id"], where, row["expect"], got)


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
