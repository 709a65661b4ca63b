"""A cluster's CPUs as tables, maps and JSON: nodes, containers with their CPUs, and pending pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from corelane.cpuset import CPUSet, named
from corelane.node.entries import WHOLE_POD
from corelane.node.explain.cluster_status import (
    ClusterStatus,
    ContainerLine,
    NodeLine,
    PendingLine,
    is_shared_with_be,
)
from corelane.node.explain.json_values import json_value
from corelane.node.ledger import NodeState
from corelane.node.recovery.takeover import Stage, Takeover, takeover
from corelane.reasons.codes import OTHER_INSTANCES
from corelane.view import tables
from corelane.view.cpumap import Owner, cpumap

if TYPE_CHECKING:
    from rich.console import Console

MAPS = 8
"""Number of nodes with a map."""

CLASSES = (
    "LSE: exclusive CPUs. LSR: exclusive CPUs, shared with BE only. LS: shared pool. "
    "BE: BE pool, which is the shared pool and the exclusive CPUs of LSR containers. "
    "The class is the pod's: a container whose CPU request is not an integer runs in the shared pool."
)
"""Meaning of the classes under policy pools, below the table of containers."""

PHASES: Final[Mapping[str, str]] = {
    "reserved": "allocated to the container, not written to its cgroup yet when the ledger was published",
    "applied": "written to the container's cgroup, not confirmed by reading back from the kernel",
    "releasing": "the container is ending, its CPUs are not free yet",
    "no agent": "no agent on the node applies or reads them; the condition corelane.io/Pinned of its pods is "
    "as old as the agent's last sign of life",
}
"""Meaning of the column KERNEL for containers whose CPUs are not confirmed."""


def plain(status: ClusterStatus) -> dict[str, Any]:
    """JSON with stable keys; CPU sets are list strings."""
    return {
        "nodes": [_node(node) for node in status.nodes],
        "containers": json_value(status.containers, {"qos": "qosClass", "cls": "class"}),
        "pending": json_value(status.pending),
    }


def _node(node: NodeLine) -> dict[str, Any]:
    state, moved = node.state, _takeover(node)
    pools = state is not None and state.config.policy == "pools"
    return {
        "name": node.name,
        "simulated": node.simulated,
        "ready": node.ready,
        "policy": _policy(node),
        "cpus": str(state.machine.usable) if state else None,
        "reserved": str(state.reserved) if state else "",
        "agentFault": node.agent_fault,
        "allocator": state.config.pools.allocator if state and pools else "",
        "sharedPool": str(state.shared_pool) if state else "",
        "bestEffortPool": str(state.best_effort_pool) if state else "",
        "lent": str(state.shared_with_be & state.best_effort_pool) if state else "",
        "exclusive": {str(cpu): owner.name for cpu, owner in _owners(state).items()} if state else {},
        "takeover": {
            "stage": moved.stage.value,
            "cpus": str(moved.cpus),
            "pods": [_nameless(pod) for pod in moved.pods],
        },
        "pools": [
            {"node": part.node, "shared": str(part.shared), "bestEffort": str(part.best_effort)}
            for part in _parts(state)
        ],
    }


def _policy(node: NodeLine) -> str:
    return node.state.config.policy if node.state else "?"


def _takeover(node: NodeLine) -> Takeover:
    """Return how far the node's CPUs have been taken over from a kubelet."""
    return takeover(node.state) if node.state else Takeover(Stage.DONE)


def _owners(state: NodeState) -> dict[int, Owner]:
    """Return CPU id to the container (`pod/container`) that is bound to it, with its class."""
    owners = {}
    for cpu, entry in state.owners().items():
        pod = entry.pod.removeprefix("default/").removeprefix("/")
        if entry.pod.startswith(OTHER_INSTANCES):
            pod = f"other instances ({', '.join(entry.pod.removeprefix(OTHER_INSTANCES).split(':'))})"
        shared = ", shared with BE" if is_shared_with_be(state, entry) else ""
        part = "" if entry.container == WHOLE_POD else f"/{entry.container}"
        owners[cpu] = Owner(f"{pod}{part}", f"{entry.cls}{shared}")
    return owners


def show(status: ClusterStatus, to: Console) -> None:
    """Print nodes with their maps, then containers, then pending pods."""
    show_nodes(status, to)
    show_maps(status, to)
    show_containers(status.containers, to)
    show_pending(status.pending, to)


@dataclass(frozen=True, slots=True)
class _Part:
    """A node's CPUs in one NUMA node."""

    node: int
    cpus: CPUSet
    reserved: CPUSet
    shared: CPUSet
    best_effort: CPUSet
    exclusive: CPUSet


def _parts(state: NodeState | None) -> list[_Part]:
    """By NUMA node, those without usable CPUs left out."""
    if state is None:
        return []
    machine, owned = state.machine, CPUSet(state.owners())
    sets = (machine.usable, state.reserved, state.shared_pool, state.best_effort_pool, owned)
    inside = ((numa, CPUSet.from_mask(mask)) for numa, mask in machine.numa_masks)
    parts = (_Part(numa, *(cpus & here for cpus in sets)) for numa, here in inside)
    return [part for part in parts if part.cpus]


def show_nodes(status: ClusterStatus, to: Console) -> None:
    """One row for each NUMA node."""
    headings = ("NODE", "KIND", "POLICY", "NUMA", "CPUS", "RESERVED", "SHARED POOL", "BE POOL", "EXCLUSIVE")
    tables.show("Nodes", headings, (row for node in status.nodes for row in _node_rows(node)), to)
    for node in status.nodes:
        if (moved := _takeover(node)).stage is Stage.BOTH:
            pods = [_nameless(pod) for pod in moved.pods]
            titles = ", ".join(pods[:MAPS]) + (f" and {len(pods) - MAPS} more" if len(pods) > MAPS else "")
            text = (
                f"node {node.name}: takeover from the kubelet in progress; {named(moved.cpus.mask)} held for "
                f"the pods that the kubelet pinned until these end: {titles}"
            )
            to.print(tables.printable(text), markup=False, highlight=False)
        if node.agent_fault:
            text = f"no agent runs, CPUs are neither applied nor checked: {node.agent_fault}"
            to.print(tables.printable(f"node {node.name}: {text}"), markup=False, highlight=False)


def _nameless(pod: str) -> str:
    """Return a pod's name, or its UID if the name is not available."""
    return pod.removeprefix("/")


def _node_rows(node: NodeLine) -> Iterator[tuple[str, ...]]:
    title = (node.name, _kind(node), _policy(node))
    if node.state is None:
        yield (*title, *"??????")
    for part in _parts(node.state):
        sets = (part.reserved, part.shared, part.best_effort, part.exclusive)
        yield (*title, str(part.node), str(len(part.cpus)), *(str(cpus) or "-" for cpus in sets))
        title = ("", "", "")


def _kind(node: NodeLine) -> str:
    kind = "simulated" if node.simulated else "real"
    faults = ("" if node.ready else "not ready", "no agent" if node.agent_fault else "")
    return ", ".join(filter(None, (kind, *faults)))


def show_maps(status: ClusterStatus, to: Console) -> None:
    """The CPU maps of the first `MAPS` nodes."""
    for node in status.nodes[:MAPS]:
        if node.state is not None:
            to.print(f"{node.name} ({_kind(node)})", style="bold", markup=False)
            to.print(cpumap(node.state.machine, painted(node.state), width=to.width))
    if len(status.nodes) > MAPS:
        to.print(f"(and {len(status.nodes) - MAPS} more nodes)", markup=False)


def painted(state: NodeState) -> dict[int, Owner]:
    """CPU id to its owner, for maps and drawings."""
    return {**dict.fromkeys(state.shared_pool, Owner("shared pool", "shared")), **_owners(state)}


def show_containers(
    lines: tuple[ContainerLine, ...], to: Console, kernel: Mapping[str, str] | None = None
) -> None:
    """`kernel` maps a container, named as here, to what was read from the kernel, bypassing the agent."""
    if not lines:
        to.print("No containers.")
        return
    rows = [
        (
            f"{_pod(line)}/{line.container}",
            line.node,
            line.cls or line.qos,
            line.lane,
            str(line.cpus),
            (kernel or {}).get(f"{_pod(line)}/{line.container}", line.state),
        )
        for line in lines
    ]
    headings = ("CONTAINER", "NODE", "CLASS", "RUNS ON", "CPUS", "KERNEL")
    tables.show("Containers", headings, rows, to)
    if any(line.cls for line in lines):
        to.print("\n".join(tables.wrapped(CLASSES, min(to.width, 110))) + "\n", markup=False)
    shown = {row[-1] for row in rows}
    if phases := " ".join(f"{phase}: {text}." for phase, text in PHASES.items() if phase in shown):
        to.print("\n".join(tables.wrapped(phases, min(to.width, 110))) + "\n", markup=False)
    unconfirmed = [(f"{_pod(line)}/{line.container}", line.unconfirmed) for line in lines if line.unconfirmed]
    if unconfirmed:
        tables.show("Not confirmed by the kernel", ("CONTAINER", "REASON"), unconfirmed, to)
    whys = [(f"{_pod(line)}/{line.container}", line.why) for line in lines]
    tables.show("Why these CPUs", ("CONTAINER", "WHY"), whys, to)


def show_pending(lines: tuple[PendingLine, ...], to: Console) -> None:
    if lines:
        tables.show("Pending", ("POD", "WHY"), [(_pod(line), line.why) for line in lines], to)


def _pod(line: ContainerLine | PendingLine) -> str:
    """The pod's name, with its namespace unless that is `default`."""
    return line.pod if line.namespace == "default" else f"{line.namespace}/{line.pod}"
