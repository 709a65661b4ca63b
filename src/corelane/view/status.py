"""A cluster's CPUs as tables, maps and JSON: nodes, containers and their lanes, and what is pending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.view import tables
from corelane.view.cpumap import cpumap
from corelane.view.owners import Owner

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ContainerLine", "NodeLine", "PendingLine", "Status", "plain", "show"]


MAPS = 8
"""How many nodes are drawn."""


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
    owners: Mapping[int, str] = field(default_factory=dict)
    """CPU id to the container (`pod/container`) that has it alone."""


@dataclass(frozen=True, slots=True)
class ContainerLine:
    """One container, where it may run and how far that is true."""

    namespace: str
    pod: str
    container: str
    node: str
    simulated: bool
    qos: str
    exclusive: bool
    cpus: CPUSet
    state: str
    """Phase of the pin: reserved, applied, confirmed; "simulated" where no kernel could confirm."""
    why: str


@dataclass(frozen=True, slots=True)
class PendingLine:
    """A pod without a node, and the scheduler's last word on it."""

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
        "containers": [_container(line) for line in status.containers],
        "pending": [asdict(line) for line in status.pending],
    }


def _node(node: NodeLine) -> dict[str, Any]:
    return {
        "name": node.name,
        "simulated": node.simulated,
        "ready": node.ready,
        "policy": node.policy,
        "cpus": str(node.machine.usable) if node.machine else None,
        "reserved": str(node.reserved),
        "sharedPool": str(node.shared),
        "exclusive": {str(cpu): owner for cpu, owner in node.owners.items()},
    }


def _container(line: ContainerLine) -> dict[str, Any]:
    return {
        "namespace": line.namespace,
        "pod": line.pod,
        "container": line.container,
        "node": line.node,
        "simulated": line.simulated,
        "qosClass": line.qos,
        "exclusive": line.exclusive,
        "cpus": str(line.cpus),
        "state": line.state,
        "why": line.why,
    }


def show(status: Status, to: Console) -> None:
    """Nodes with their maps, then containers, then what is pending."""
    show_nodes(status, to)
    show_maps(status, to)
    show_containers(status.containers, to)
    show_pending(status.pending, to)


def show_nodes(status: Status, to: Console) -> None:
    rows = [
        (
            node.name,
            _kind(node),
            str(len(node.machine.usable)) if node.machine else "?",
            node.policy,
            str(node.reserved),
            str(node.shared),
            str(CPUSet(node.owners)) or "-",
        )
        for node in status.nodes
    ]
    tables.show("Nodes", ("NODE", "KIND", "CPUS", "POLICY", "RESERVED", "SHARED POOL", "EXCLUSIVE"), rows, to)


def _kind(node: NodeLine) -> str:
    kind = "simulated" if node.simulated else "real"
    return kind if node.ready else f"{kind}, not ready"


def show_maps(status: Status, to: Console) -> None:
    """The CPU map of every node, as far as they are few."""
    for node in status.nodes[:MAPS]:
        if node.machine is not None:
            to.print(f"{node.name} ({_kind(node)})", style="bold", markup=False)
            to.print(cpumap(node.machine, painted(node), width=to.width))
    if len(status.nodes) > MAPS:
        to.print(f"(and {len(status.nodes) - MAPS} more nodes)", markup=False)


def painted(node: NodeLine) -> dict[int, Owner]:
    """CPU id to its owner, as maps and drawings want it."""
    shared = dict.fromkeys(node.shared, Owner("shared pool", "shared"))
    return shared | {cpu: Owner(name, "Guaranteed") for cpu, name in node.owners.items()}


def show_containers(
    lines: tuple[ContainerLine, ...], to: Console, kernel: Mapping[str, str] | None = None
) -> None:
    """`kernel` says of a container, named as here, what was read from the kernel, past the agent."""
    rows = [
        (
            f"{_pod(line)}/{line.container}",
            line.node,
            line.qos,
            "exclusive" if line.exclusive else "shared",
            str(line.cpus),
            (kernel or {}).get(f"{_pod(line)}/{line.container}", line.state),
        )
        for line in lines
    ]
    tables.show("Containers", ("CONTAINER", "NODE", "QOS", "LANE", "CPUS", "KERNEL"), rows, to)
    whys = [(f"{_pod(line)}/{line.container}", line.why) for line in lines]
    tables.show("Why these CPUs", ("CONTAINER", "WHY"), whys, to)


def show_pending(lines: tuple[PendingLine, ...], to: Console) -> None:
    if lines:
        tables.show("Pending", ("POD", "WHY"), [(_pod(line), line.why) for line in lines], to)


def _pod(line: ContainerLine | PendingLine) -> str:
    """Its name, with the namespace where that is not the default one."""
    return line.pod if line.namespace == "default" else f"{line.namespace}/{line.pod}"
