"""A cluster's CPUs as tables, maps and JSON: nodes, containers with their CPUs, and pending pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from corelane.cpuset import CPUSet, named
from corelane.machine.model import Machine
from corelane.node.explain.json_values import json_value
from corelane.node.recovery.takeover import Stage, Takeover
from corelane.view import tables
from corelane.view.cpumap import cpumap
from corelane.view.owners import Owner

if TYPE_CHECKING:
    from rich.console import Console

MAPS = 8
"""How many nodes have a map."""

CLASSES = (
    "LSE: exclusive CPUs. LSR: exclusive CPUs, shared with BE only. LS: shared pool. "
    "BE: BE pool, which is the shared pool and the exclusive CPUs of LSR containers. "
    "The class is the pod's: a container whose CPU request is not an integer runs in the shared pool."
)
"""What the classes under policy pools mean, below the table of containers."""

PHASES: Final[Mapping[str, str]] = {
    "reserved": "allocated to the container, not written to its cgroup yet (it has not started)",
    "applied": "written to the container's cgroup, not confirmed by reading back from the kernel",
    "releasing": "the container is ending, its CPUs are not free yet",
    "no agent": "no agent on the node applies or reads them; the condition corelane.io/Pinned of its pods is "
    "as old as the agent's last sign of life",
}
"""What the column KERNEL says of containers whose CPUs are not confirmed."""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node and what its CPUs are used for."""

    name: str
    simulated: bool
    ready: bool
    policy: str
    machine: Machine | None
    """None where the node publishes no topology."""
    reserved: CPUSet = field(default_factory=CPUSet)
    shared: CPUSet = field(default_factory=CPUSet)
    best_effort: CPUSet = field(default_factory=CPUSet)
    """CPUs of the BE pool: the shared pool, and exclusive CPUs that are shared with BE."""
    lent: CPUSet = field(default_factory=CPUSet)
    owners: Mapping[int, Owner] = field(default_factory=dict)
    """CPU id to the container (`pod/container`) that is bound to it, with its class."""
    allocator: str = ""
    """The allocator under policy pools, else ""."""
    takeover: Takeover = field(default_factory=lambda: Takeover(Stage.DONE))
    """How far the node's CPUs have been taken over from a kubelet."""
    agent_fault: str = ""
    """Why the node's agent does not run, "" where it does or is not judged."""


@dataclass(frozen=True, slots=True)
class ContainerLine:
    """One container, the CPUs on which it may run, and how far the kernel confirms them."""

    namespace: str
    pod: str
    container: str
    node: str
    simulated: bool
    qos: str
    cls: str
    """Koordinator's class under policy pools, else ""."""
    lane: str
    """How its CPUs are shared, or the pool in which it runs."""
    exclusive: bool
    cpus: CPUSet
    state: str
    """Phase of the pin: reserved, applied, confirmed; "simulated" where no kernel confirms it, "no agent"."""
    why: str
    unconfirmed: str = ""
    """The agent's reason why the kernel does not confirm the pod's CPUs, "" without one."""


@dataclass(frozen=True, slots=True)
class PendingLine:
    """A pod without a node, and the scheduler's last reason."""

    namespace: str
    pod: str
    why: str


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that `corelane status` shows."""

    nodes: tuple[NodeLine, ...]
    containers: tuple[ContainerLine, ...]
    pending: tuple[PendingLine, ...]


def plain(status: Status) -> dict[str, Any]:
    """JSON with stable keys; CPU sets are list strings."""
    return {
        "nodes": [_node(node) for node in status.nodes],
        "containers": json_value(status.containers, {"qos": "qosClass", "cls": "class"}),
        "pending": json_value(status.pending),
    }


def _node(node: NodeLine) -> dict[str, Any]:
    return {
        "name": node.name,
        "simulated": node.simulated,
        "ready": node.ready,
        "policy": node.policy,
        "cpus": str(node.machine.usable) if node.machine else None,
        "reserved": str(node.reserved),
        "agentFault": node.agent_fault,
        "allocator": node.allocator,
        "sharedPool": str(node.shared),
        "bestEffortPool": str(node.best_effort),
        "lent": str(node.lent),
        "exclusive": {str(cpu): owner.name for cpu, owner in node.owners.items()},
        "takeover": {
            "stage": node.takeover.stage.value,
            "cpus": str(node.takeover.cpus),
            "pods": [_nameless(pod) for pod in node.takeover.pods],
        },
        "pools": [
            {"node": one.node, "shared": str(one.shared), "bestEffort": str(one.best_effort)}
            for one in _parts(node)
        ],
    }


def show(status: Status, to: Console) -> None:
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


def _parts(node: NodeLine) -> list[_Part]:
    """By NUMA node, those without usable CPUs left out."""
    if node.machine is None:
        return []
    sets = (node.machine.usable, node.reserved, node.shared, node.best_effort, CPUSet(node.owners))
    inside = ((numa, CPUSet.from_mask(mask)) for numa, mask in node.machine.numa_masks)
    parts = (_Part(numa, *(cpus & here for cpus in sets)) for numa, here in inside)
    return [part for part in parts if part.cpus]


def show_nodes(status: Status, to: Console) -> None:
    """One row for each NUMA node."""
    headings = ("NODE", "KIND", "POLICY", "NUMA", "CPUS", "RESERVED", "SHARED POOL", "BE POOL", "EXCLUSIVE")
    tables.show("Nodes", headings, (row for node in status.nodes for row in _node_rows(node)), to)
    for node in status.nodes:
        if node.takeover.stage is Stage.BOTH:
            to.print(tables.printable(_waits(node)), markup=False, highlight=False)
        if node.agent_fault:
            text = (
                f"node {node.name}: no agent runs, CPUs are neither applied nor checked: {node.agent_fault}"
            )
            to.print(tables.printable(text), markup=False, highlight=False)


def _waits(node: NodeLine) -> str:
    """Return the line about CPUs that pods pinned by a kubelet still have, and these pods."""
    cpus = named(node.takeover.cpus.mask)
    pods = [_nameless(pod) for pod in node.takeover.pods]
    titles = ", ".join(pods[:MAPS]) + (f" and {len(pods) - MAPS} more" if len(pods) > MAPS else "")
    return (
        f"node {node.name}: takeover from the kubelet in progress; {cpus} held for the "
        f"pods that the kubelet pinned until these end: {titles}"
    )


def _nameless(pod: str) -> str:
    """Return a pod's name, or its UID if the name is not available."""
    return pod.removeprefix("/")


def _node_rows(node: NodeLine) -> Iterator[tuple[str, ...]]:
    title = (node.name, _kind(node), node.policy)
    if node.machine is None:
        yield (*title, *"??????")
    for part in _parts(node):
        sets = (part.reserved, part.shared, part.best_effort, part.exclusive)
        yield (*title, str(part.node), str(len(part.cpus)), *(str(cpus) or "-" for cpus in sets))
        title = ("", "", "")


def _kind(node: NodeLine) -> str:
    kind = "simulated" if node.simulated else "real"
    faults = ("" if node.ready else "not ready", "no agent" if node.agent_fault else "")
    return ", ".join(filter(None, (kind, *faults)))


def show_maps(status: Status, to: Console) -> None:
    """The CPU maps of the first `MAPS` nodes."""
    for node in status.nodes[:MAPS]:
        if node.machine is not None:
            to.print(f"{node.name} ({_kind(node)})", style="bold", markup=False)
            to.print(cpumap(node.machine, painted(node), width=to.width))
    if len(status.nodes) > MAPS:
        to.print(f"(and {len(status.nodes) - MAPS} more nodes)", markup=False)


def painted(node: NodeLine) -> dict[int, Owner]:
    """CPU id to its owner, for maps and drawings."""
    return {**dict.fromkeys(node.shared, Owner("shared pool", "shared")), **node.owners}


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
