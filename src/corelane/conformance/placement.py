"""Replays recorded answers of upstream programs: picks of CPUs, and nodes with pods that come and go.

The rows are those of `kubelet_take`, `kubelet_node` and `koordinator_take` (`.jsonl`); a topology is a list
of rows `[cpu, core, socket, NUMA node, uncore cache]`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from corelane import node, quantity
from corelane.cpuset import CPUSet, format_list, parse_list
from corelane.kube.pod import Pod
from corelane.kube.translate import pod_requests
from corelane.machine import model
from corelane.machine.model import Machine
from corelane.node.kubelet import checkpoint
from corelane.placement import topology
from corelane.placement.koordinator import allocator
from corelane.placement.kubelet import picker
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAStrategy

__all__ = ["Difference", "Replay", "replay_koordinator", "replay_node", "replay_take"]

Row = Mapping[str, Any]
Topologies = Mapping[str, Sequence[Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that we answer otherwise: where in it, what was recorded, and what we say."""

    id: int
    where: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        recorded, got = _compact(self.expected), _compact(self.got)
        return f"row {self.id}, {self.where}: recorded {recorded}, corelane says {got}"


@dataclass(frozen=True, slots=True)
class Replay:
    """How many rows were answered as recorded, and where the others differ first."""

    passed: int
    total: int
    differences: tuple[Difference, ...]


def replay_take(rows: Iterable[Row], topologies: Topologies) -> Replay:
    """Single picks. Where upstream hangs, any n of the available CPUs are right.

    Raises KeyError when a row names a topology that is not among these.
    """
    built = _built(topologies)
    return _replayed(rows, lambda row: _take(row, built[row["topo"]]))


def replay_koordinator(rows: Iterable[Row], topologies: Topologies) -> Replay:
    """Single picks of Koordinator's scheduler.

    Raises KeyError when a row names a topology that is not among these.
    """
    built = _built(topologies)
    return _replayed(rows, lambda row: _take_as_koordinator(row, built[row["topo"]]))


def replay_node(rows: Iterable[Row], topologies: Topologies) -> Replay:
    """Whole nodes: every admission, refusal and end of a pod, and the text of the checkpoint at the end.

    Raises KeyError when a row names a topology that is not among these.
    """
    plain = {name: model.from_rows(name, map(_row, rows)) for name, rows in topologies.items()}
    known: dict[str, Machine] = {}

    def machine(row: Row) -> Machine:
        key = f"{row['topo']} {row['distances']}"
        if key not in known:
            known[key] = _with_distances(plain[row["topo"]], row["distances"])
        return known[key]

    return _replayed(rows, lambda row: _node(row, machine(row)))


def _replayed(rows: Iterable[Row], answer: Callable[[Row], Difference | None]) -> Replay:
    answers = [answer(row) for row in rows]
    differences = tuple(found for found in answers if found)
    return Replay(len(answers) - len(differences), len(answers), differences)


def _built(topologies: Topologies) -> dict[str, topology.Topology]:
    return {name: topology.build(_row(row) for row in rows) for name, rows in topologies.items()}


def _row(row: Sequence[int]) -> topology.Row:
    return topology.Row(*row)


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


def _node(row: Row, machine: Machine) -> Difference | None:
    expect = row["expect"]
    try:
        state = node.new(machine, _config(row))
    except node.NodeConfigError as error:
        got = {"startError": f"new static policy error: {error}"}
        return None if got == expect else _differs(row, "start", got)
    if "startError" in expect:
        return _differs(row, "start", "no error")
    for i, (operation, expected) in enumerate(zip(row["ops"], expect["steps"], strict=True)):
        state, got = _step(state, operation)
        if got != expected:
            return Difference(row["id"], f"step {i}", expected, got)
    text = checkpoint.encode(checkpoint.from_state(state)).decode()
    if text != expect["checkpoint"]:
        return Difference(row["id"], "checkpoint", expect["checkpoint"], text)
    return None


def _with_distances(machine: Machine, distances: Sequence[Sequence[int]]) -> Machine:
    nodes = (replace(one, distances=dict(enumerate(distances[one.id]))) for one in machine.nodes)
    return replace(machine, nodes=tuple(nodes))


def _config(row: Row) -> node.NodeConfig:
    return node.NodeConfig(
        reserved=CPUSet.parse(row["reservedSet"]) if row["reservedSet"] else None,
        reserved_count=None if row["reservedSet"] else quantity.value(row["reservedCPU"]),
        options=node.StaticOptions.parse(row["options"]),
        numa=node.TopologyOptions.parse(row["topologyPolicy"], row["topologyScope"], row["topologyOptions"]),
        exact=True,
    )


def _step(state: node.NodeState, operation: Row) -> tuple[node.NodeState, dict[str, Any]]:
    """One operation, and what the recording shows after it."""
    outcome: dict[str, Any] = {}
    if operation["op"] == "remove":
        state = node.release(state, operation["uid"])
    else:
        state, decision = node.admit(state, pod_requests.request(_pod(operation)))
        outcome["admit"] = decision.admitted
        if not decision.admitted:
            outcome |= {"reason": decision.reason, "message": decision.message}
    remembered = checkpoint.from_state(state)
    assigned = {uid: {name: str(cpus) for name, cpus in of.items()} for uid, of in remembered.entries.items()}
    return state, {**outcome, "default": str(remembered.default), "assignments": assigned}


def _pod(operation: Row) -> Pod:
    spec = {
        "initContainers": [_container(container) for container in operation["init"]],
        "containers": [_container(container) for container in operation["containers"]],
    }
    metadata = {"uid": operation["uid"], "name": operation["uid"], "namespace": "default"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def _container(container: Row) -> dict[str, Any]:
    resources = {
        kind: {name: container[name + suffix] for name in ("cpu", "memory") if container[name + suffix]}
        for kind, suffix in (("requests", "Request"), ("limits", "Limit"))
    }
    policy = {"restartPolicy": "Always"} if container.get("sidecar") else {}
    return {"name": container["name"], "resources": resources, **policy}


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
