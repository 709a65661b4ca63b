"""What the scheduler's core is told, and what it wants done: plain values both ways. Times are in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from corelane.cpuset import CPUSet
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node import NodeState
from corelane.workload import PodRequest

__all__ = [
    "Announce",
    "Bind",
    "BindFailed",
    "BindSucceeded",
    "CycleDue",
    "Event",
    "Instruction",
    "NodeChanged",
    "PodChanged",
    "SetCondition",
    "TopologyChanged",
    "Unfit",
]


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod came (`old` is None), changed, or went (`new` is None)."""

    now: float
    old: Pod | None
    new: Pod | None


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """As PodChanged, of a node."""

    now: float
    old: Node | None
    new: Node | None


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """As PodChanged, of a node's hardware and ledger."""

    now: float
    old: NodeResourceTopology | None
    new: NodeResourceTopology | None


@dataclass(frozen=True, slots=True)
class BindSucceeded:
    """The API server took a binding."""

    now: float
    uid: str


@dataclass(frozen=True, slots=True)
class BindFailed:
    """A binding came to nothing: it was `rejected`, met a `conflict` (409), or its fate is `unknown`."""

    now: float
    uid: str
    outcome: Literal["rejected", "conflict", "unknown"]
    message: str


@dataclass(frozen=True, slots=True)
class CycleDue:
    """Time has passed: do what is due, and place one pod."""

    now: float


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a pod to a node, `annotations` and all, in one call. Answer with Bound or BindFailed."""

    pod: Pod
    node: str
    annotations: Mapping[str, str]
    assignments: Mapping[str, CPUSet] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetCondition:
    """Write into a pod's status that it is not scheduled, and why."""

    pod: Pod
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """A node that lacks CPUs for a pod: its state with all claims, and what the pod asks for."""

    node: str
    state: NodeState
    request: PodRequest


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish a Kubernetes event about a pod; `type` is Normal or Warning.

    `nearest` is the node that comes nearest to fitting: the event goes on with what would help there.
    """

    pod: Pod
    type: str
    reason: str
    message: str
    nearest: Unfit | None = None


Event: TypeAlias = PodChanged | NodeChanged | TopologyChanged | BindSucceeded | BindFailed | CycleDue
Instruction: TypeAlias = Bind | SetCondition | Announce
