"""The scheduler's events: changed objects, outcomes of bindings, and time. `now` is in seconds."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod was added (`old` is None), changed, or was deleted (`new` is None)."""

    now: float
    old: Pod | None
    new: Pod | None


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """As PodChanged, for a Node."""

    now: float
    old: Node | None
    new: Node | None


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    """As PodChanged, for a node's hardware and ledger."""

    now: float
    old: NodeResourceTopology | None
    new: NodeResourceTopology | None


@dataclass(frozen=True, slots=True)
class BindSucceeded:
    """The API server accepted a binding."""

    now: float
    uid: str


@dataclass(frozen=True, slots=True)
class BindFailed:
    """A binding was `rejected`, met a `conflict` (409), or its outcome is `unknown`."""

    now: float
    uid: str
    outcome: Literal["rejected", "conflict", "unknown"]
    message: str


@dataclass(frozen=True, slots=True)
class CycleDue:
    """Time to send what is due, and to place one pod."""

    now: float


SchedulerEvent: TypeAlias = PodChanged | NodeChanged | TopologyChanged | BindSucceeded | BindFailed | CycleDue
