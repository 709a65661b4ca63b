"""Nodes with memory and devices as the kubelet ran them, replayed; rows of `kubelet_memory.jsonl`."""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from corelane import node, quantity
from corelane.cpuset import CPUSet
from corelane.kube.pod import Pod
from corelane.kube.translate import pod_requests
from corelane.machine import model
from corelane.machine.model import Machine, NUMANode
from corelane.node.kubelet import checkpoint

DATA = Path(__file__).parents[1] / "data"
Row = Mapping[str, Any]


def rows(path: Path = DATA / "kubelet_memory.jsonl.gz") -> Iterator[Row]:
    with gzip.open(path, "rt") as lines:
        yield from map(json.loads, lines)


def machines() -> dict[str, Machine]:
    found = json.loads((DATA / "topologies.json").read_text())
    return {name: model.from_rows(name, map(tuple, cpus)) for name, cpus in found.items()}


def machine(row: Row, plain: Machine) -> Machine:
    """The row's machine: memory, huge pages and distances are its own, some nodes have no CPU."""
    ids = [one["id"] for one in row["nodes"]]
    cpus = {one.id: one.cpus for one in plain.nodes}
    nodes = tuple(
        NUMANode(
            one["id"],
            cpus.get(one["id"], CPUSet()),
            one["memory"],
            dict(map(tuple, one["hugepages"])),
            dict(zip(ids, far, strict=True)),
        )
        for one, far in zip(row["nodes"], row["distances"], strict=True)
    )
    return replace(plain, nodes=nodes)


def config(row: Row) -> node.NodeConfig:
    reserved = {
        int(one): {name: quantity.value(text) for name, text in of.items()}
        for one, of in row["reservedMemory"].items()
    }
    devices = {
        resource: {name: sum(1 << one for one in near or ()) for name, near in of.items()}
        for resource, of in row["devices"].items()
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


def difference(row: Row, plain: Machine) -> str:
    """The first thing that came out otherwise; "" when nothing did."""
    try:
        state = node.new(machine(row, plain), config(row))
    except node.NodeConfigError as error:
        return _compared(row, "start", row["expect"], {"startError": str(error)})
    if "steps" not in row["expect"]:
        return _compared(row, "start", row["expect"], {})
    for i, (operation, expected) in enumerate(zip(row["ops"], row["expect"]["steps"], strict=True)):
        state, got = _step(state, operation)
        if found := _compared(row, f"step {i}", expected, got):
            return found
    return ""


def _compared(row: Row, where: str, expected: Any, got: Any) -> str:
    if got == expected:
        return ""
    parts = sorted(
        f"{key}: upstream {expected.get(key)!r}\n      here {got.get(key)!r}"
        for key in expected.keys() | got.keys()
        if expected.get(key) != got.get(key)
    )
    return "\n    ".join((f"row {row['id']} {where}", *parts))


def _step(state: node.NodeState, operation: Row) -> tuple[node.NodeState, dict[str, Any]]:
    outcome: dict[str, Any] = {}
    if operation["op"] == "remove":
        state = node.release(state, operation["uid"])
    elif operation["op"] == "start":
        state = node.started(state, operation["uid"], operation["container"])
    else:
        state, decision = node.admit(state, pod_requests.request(_pod(operation)))
        outcome["admit"] = decision.admitted
        if not decision.admitted:
            outcome |= {"reason": decision.reason, "message": decision.message}
    return state, {**outcome, **shown(state)}


def _pod(operation: Row) -> Pod:
    metadata = {"uid": operation["uid"], "name": operation["uid"], "namespace": "default"}
    return msgspec.convert({"metadata": metadata, "spec": operation["spec"]}, Pod)


def shown(state: node.NodeState) -> dict[str, Any]:
    """What the recording shows of a node."""
    remembered = checkpoint.from_state(state)
    return {
        "default": str(remembered.default),
        "assignments": {
            uid: {name: str(cpus) for name, cpus in of.items()} for uid, of in remembered.entries.items()
        },
        "memory": _blocks(state),
        "nodes": _nodes(state),
        "devices": _devices(state),
    }


def _blocks(state: node.NodeState) -> dict[str, dict[str, list[Any]]]:
    found: dict[str, dict[str, list[Any]]] = {}
    for (uid, name), entry in state.entries.items():
        if entry.memory:
            blocks = [[block.resource, block.size, list(block.nodes)] for block in entry.memory]
            found.setdefault(uid, {})[name] = blocks
    return found


def _nodes(state: node.NodeState) -> dict[str, Any]:
    sizes = {one.id: one for one in state.machine.nodes}
    found = {}
    for one, memory in state.memory.items():
        tables = {}
        for name, allocatable in memory.allocatable.items():
            reserved = state.config.memory.reserved.get(one, {}).get(name, 0)
            total = sizes[one].memory if name == "memory" else allocatable + reserved
            tables[name] = [total, reserved, allocatable, memory.reserved(name), memory.free[name]]
        cells = list(CPUSet.from_mask(memory.group or 1 << one))
        found[str(one)] = {"assignments": memory.assignments, "cells": cells, "tables": tables}
    return found


def _devices(state: node.NodeState) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (uid, name), entry in state.entries.items():
        if entry.devices:
            found.setdefault(uid, {})[name] = {kind: sorted(ids) for kind, ids in entry.devices.items()}
    return found
