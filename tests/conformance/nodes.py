"""Replays recorded kubelet nodes: rows of `kubelet_node` (CPUs) and `kubelet_memory` (memory, devices too).

A row is a machine, the kubelet's settings, and operations: admissions, container starts and pod removals with
the state that the kubelet had after each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from conformance.picks import Difference, Replay, Row, Topologies, replayed
from corelane import node, quantity
from corelane.cpuset import CPUSet
from corelane.kube.pod import Pod
from corelane.kube.translate import pod_requests
from corelane.machine import model
from corelane.machine.model import Machine, NUMANode
from corelane.node.kubelet import checkpoint


def replay_node(rows: Iterable[Row], topologies: Topologies) -> Replay:
    """Replay every admission, refusal and pod removal, and compare the text of the last checkpoint.

    Raises KeyError when a row names a topology that is not among these.
    """
    plain, built = _machines(topologies), dict[str, Machine]()

    def machine(row: Row) -> Machine:
        key = f"{row['topo']} {row['distances']}"
        if key not in built:
            built[key] = _with_distances(plain[row["topo"]], row["distances"])
        return built[key]

    return replayed(rows, lambda row: _node(row, machine(row)))


def replay_memory(rows: Iterable[Row], topologies: Topologies) -> Replay:
    """Replay nodes with memory and device managers; every step shows CPUs, memory blocks, nodes and devices.

    Raises KeyError when a row names a topology that is not among these.
    """
    plain = _machines(topologies)
    return replayed(rows, lambda row: _memory_node(row, _with_memory(plain[row["topo"]], row)))


def _machines(topologies: Topologies) -> dict[str, Machine]:
    return {
        name: model.from_rows(name, [(c, core, s, numa, l3) for c, core, s, numa, l3 in rows])
        for name, rows in topologies.items()
    }


def _with_distances(machine: Machine, distances: Sequence[Sequence[int]]) -> Machine:
    nodes = (replace(one, distances=dict(enumerate(distances[one.id]))) for one in machine.nodes)
    return replace(machine, nodes=tuple(nodes))


def _with_memory(plain: Machine, row: Row) -> Machine:
    """The row's machine: memory, huge pages and distances are the row's own, some nodes have no CPU."""
    ids = [one["id"] for one in row["nodes"]]
    cpus = {one.id: one.cpus for one in plain.nodes}
    nodes = tuple(
        NUMANode(
            one["id"],
            cpus.get(one["id"], CPUSet()),
            one["memory"],
            {size: count for size, count in one["hugepages"]},  # noqa: C416 - lists of two
            dict(zip(ids, distances, strict=True)),
        )
        for one, distances in zip(row["nodes"], row["distances"], strict=True)
    )
    return replace(plain, nodes=nodes)


def _node(row: Row, machine: Machine) -> Difference | None:
    expect = row["expect"]
    try:
        state = node.new(machine, _config(row))
    except node.NodeConfigError as error:
        return _compared(row, "start", expect, {"startError": f"new static policy error: {error}"})
    if "startError" in expect:
        return Difference(row["id"], "start", expect, "no error")
    state, difference = _steps(row, state, _cpus)
    text = checkpoint.encode(checkpoint.from_state(state)).decode()
    return difference or _compared(row, "checkpoint", expect["checkpoint"], text)


def _memory_node(row: Row, machine: Machine) -> Difference | None:
    try:
        state = node.new(machine, _memory_config(row))
    except node.NodeConfigError as error:
        return _compared(row, "start", row["expect"], {"startError": str(error)})
    if "steps" not in row["expect"]:
        return Difference(row["id"], "start", row["expect"], "no error")
    return _steps(row, state, _everything)[1]


def _config(row: Row) -> node.NodeConfig:
    return node.NodeConfig(
        reserved=CPUSet.parse(row["reservedSet"]) if row["reservedSet"] else None,
        reserved_count=None if row["reservedSet"] else quantity.value(row["reservedCPU"]),
        options=node.StaticOptions.parse(row["options"]),
        numa=node.TopologyOptions.parse(row["topologyPolicy"], row["topologyScope"], row["topologyOptions"]),
        exact=True,
    )


def _memory_config(row: Row) -> node.NodeConfig:
    reserved = {
        int(one): {name: quantity.value(text) for name, text in amounts.items()}
        for one, amounts in row["reservedMemory"].items()
    }
    devices = {
        resource: {name: sum(1 << one for one in near or ()) for name, near in inventory.items()}
        for resource, inventory in row["devices"].items()
    }
    options = node.StaticOptions.parse(row["options"], "1.37" if row["narrowDevices"] else "1.36")
    if row["narrowDevices"] and not options.distribute_cpus_across_numa:
        options = replace(options, version="1.37")
    return node.NodeConfig(
        policy=row["cpuPolicy"],
        reserved_count=quantity.value(row["reservedCPU"]) if row["cpuPolicy"] == "static" else None,
        options=options,
        numa=node.TopologyOptions.parse(row["topologyPolicy"], row["topologyScope"], row["topologyOptions"]),
        memory=node.MemoryOptions(row["memoryPolicy"], reserved),
        devices=devices,
        pod_level=row["podLevelManagers"],
        exact=True,
    )


def _steps(row: Row, state: node.NodeState, shown: Any) -> tuple[node.NodeState, Difference | None]:
    """Carry out the operations up to the first whose outcome, or state as `shown`, differs."""
    for i, (operation, expected) in enumerate(zip(row["ops"], row["expect"]["steps"], strict=True)):
        state, outcome = _step(state, operation)
        difference = _compared(row, f"step {i}", expected, {**outcome, **shown(state)})
        if difference:
            return state, difference
    return state, None


def _step(state: node.NodeState, operation: Row) -> tuple[node.NodeState, dict[str, Any]]:
    if operation["op"] == "remove":
        return node.release(state, operation["uid"]), {}
    if operation["op"] == "start":
        return node.started(state, operation["uid"], operation["container"]), {}
    state, decision = node.admit(state, pod_requests.request(_pod(operation)))
    outcome: dict[str, Any] = {"admit": decision.admitted}
    if not decision.admitted:
        outcome |= {"reason": decision.reason, "message": decision.message}
    return state, outcome


def _compared(row: Row, where: str, expected: Any, got: Any) -> Difference | None:
    """The difference; of two mappings only the members that differ."""
    if got == expected:
        return None
    if isinstance(got, dict) and isinstance(expected, dict):
        keys = [key for key in expected | got if expected.get(key) != got.get(key)]
        expected, got = ({key: one.get(key) for key in keys} for one in (expected, got))
    return Difference(row["id"], where, expected, got)


def _pod(operation: Row) -> Pod:
    spec = operation.get("spec") or {
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


def _cpus(state: node.NodeState) -> dict[str, Any]:
    """What `kubelet_node` records after each step."""
    now = checkpoint.from_state(state)
    assigned = {
        uid: {name: str(cpus) for name, cpus in containers.items()} for uid, containers in now.entries.items()
    }
    return {"default": str(now.default), "assignments": assigned}


def _everything(state: node.NodeState) -> dict[str, Any]:
    """What `kubelet_memory` records after each step."""
    blocks: dict[str, dict[str, list[Any]]] = {}
    devices: dict[str, dict[str, Mapping[str, list[str]]]] = {}
    for (uid, name), entry in state.entries.items():
        if entry.memory:
            rows = [[block.resource, block.size, list(block.nodes)] for block in entry.memory]
            blocks.setdefault(uid, {})[name] = rows
        if entry.devices:
            devices.setdefault(uid, {})[name] = {kind: sorted(ids) for kind, ids in entry.devices.items()}
    return {**_cpus(state), "memory": blocks, "nodes": _memory_nodes(state), "devices": devices}


def _memory_nodes(state: node.NodeState) -> dict[str, Any]:
    sizes = {one.id: one for one in state.machine.nodes}
    nodes = {}
    for one, memory in state.memory.items():
        tables = {}
        for name, allocatable in memory.allocatable.items():
            reserved = state.config.memory.reserved.get(one, {}).get(name, 0)
            total = sizes[one].memory if name == "memory" else allocatable + reserved
            tables[name] = [total, reserved, allocatable, memory.reserved(name), memory.free[name]]
        cells = list(CPUSet.from_mask(memory.group or 1 << one))
        nodes[str(one)] = {"assignments": memory.assignments, "cells": cells, "tables": tables}
    return nodes
