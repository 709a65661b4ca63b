"""Which nodes send no heartbeat, what their conditions and taints become, and which pods they leave. Pure.

The rules are those of upstream's node lifecycle controller: a node whose lease does not change for 40 s gets
its conditions set to Unknown and the unreachable taints; once its agent reports it ready, the taints are
removed. A cordoned node and one under pressure have a taint as long as that lasts; set or removed by hand,
these taints are put right again, all others stay. Time counts from when a change was seen here, so that
clocks need not agree, and a restart of the controller starts it anew. Time during which the controller itself
did not run counts for 10 s at most: while the machine was suspended, the agents did not run either. Pods of a
deleted node are deleted after 40 s, as by upstream's pod garbage collector: the node may return.
"""

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from corelane.kube.meta import condition
from corelane.kube.objects import Lease, Node, Taint
from corelane.kube.pod import Pod

GRACE_SECONDS: Final = 40.0
QUARANTINE_SECONDS: Final = 40.0
LONGEST_GAP: Final = 10.0
"""Seconds that count at most between two checks; more is a suspension or a clock that was set."""
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_READY: Final = (UNREACHABLE, NOT_READY)
_EFFECTS: Final = ("NoSchedule", "NoExecute")
_OF_CONDITIONS: Final = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
"""Taints with the effect NoSchedule of conditions that are True."""
_OURS: Final = {(key, effect) for key in _READY for effect in _EFFECTS} | {
    (key, "NoSchedule") for key in (UNSCHEDULABLE, *_OF_CONDITIONS.values())
}
_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class AwakeTime:
    """Seconds of a clock during which this process ran, from checks at short intervals.

    After a suspension of the machine, a stopped process or a clock that was set, the clock jumps: of each gap
    at most `longest_gap` seconds count, and of a step back none.
    """

    def __init__(self, longest_gap: float = LONGEST_GAP) -> None:
        self._longest_gap = longest_gap
        self._last: float | None = None
        self._awake = 0.0

    def advance(self, at: float) -> float:
        """Return the awake seconds up to this reading of the clock, counted from the first one."""
        gap = 0.0 if self._last is None else at - self._last
        self._last = at
        self._awake += min(max(gap, 0.0), self._longest_gap)
        return self._awake


@dataclass(frozen=True, slots=True)
class LeaseRenewal:
    """A lease's `renewTime`, and when it was first seen here."""

    text: str
    at: float


class LeaseRenewals:
    """The last renewal of each node's lease."""

    def __init__(self) -> None:
        self._by_node: dict[str, LeaseRenewal] = {}

    def update(self, node: str, lease: Lease | None, at: float) -> None:
        """Record a node's lease as it is now."""
        text = lease.spec.renew_time if lease else ""
        last = self._by_node.get(node)
        if last is None or last.text != text:
            self._by_node[node] = LeaseRenewal(text, at)

    def retain(self, nodes: AbstractSet[str]) -> None:
        """Drop all other nodes."""
        if len(self._by_node) != len(nodes) or self._by_node.keys() != nodes:
            self._by_node = {node: renewal for node, renewal in self._by_node.items() if node in nodes}

    def older(self, at: float) -> set[str]:
        """Return the nodes whose last renewal was before."""
        return {node for node, renewal in self._by_node.items() if renewal.at < at}

    def age(self, node: str, at: float) -> float:
        """Return the seconds since the last renewal; 0 for an unknown node."""
        last = self._by_node.get(node)
        return at - last.at if last else 0.0


class MissingNodes:
    """Since when nodes are missing that pods are bound to."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def orphans(self, pods: Iterable[Pod], nodes: Collection[str], at: float) -> list[Pod]:
        """Return the pods whose node has been missing for the quarantine."""
        bound = [pod for pod in pods if pod.spec.node_name and pod.spec.node_name not in nodes]
        missing = {pod.spec.node_name for pod in bound}
        self._since = {node: self._since.get(node, at) for node in missing}
        return [pod for pod in bound if at - self._since[pod.spec.node_name] >= QUARANTINE_SECONDS]


def ready_status(node: Node) -> str:
    """Return the status of the node's Ready condition; Unknown without one."""
    ready = condition(node.status.conditions, "Ready")
    return ready.status if ready else "Unknown"


def same_health(one: Node, other: Node) -> bool:
    """Whether taints, cordon and conditions are equal, so that what holds of one node holds of the other."""
    return one.spec == other.spec and one.status.conditions == other.status.conditions


def unknown_conditions(node: Node, at: float) -> list[dict[str, Any]] | None:
    """Return the conditions of a node without heartbeat, as a merge patch; None if they are Unknown."""
    if all(_status(node, kind) == "Unknown" for kind in _CONDITIONS):
        return None
    return [_unknown(kind, at) for kind in _CONDITIONS if _status(node, kind) != "Unknown"]


def _status(node: Node, kind: str) -> str:
    present = condition(node.status.conditions, kind)
    return present.status if present else ""


def _unknown(kind: str, at: float) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": timestamp(at),
    }


def taints(node: Node, ready: str, at: float) -> list[dict[str, str]] | None:
    """Return all taints of a node with that ready status, others' included; None if they do not change."""
    expected = list(_expected(node, ready))
    present = {(taint.key, taint.effect) for taint in node.spec.taints} & _OURS
    if present == set(expected):
        return None
    remaining = [
        taint for taint in node.spec.taints if (taint.key, taint.effect) not in _OURS.difference(expected)
    ]
    new = [Taint(key, "", effect, timestamp(at)) for key, effect in expected if (key, effect) not in present]
    return [_plain(taint) for taint in (*remaining, *new)]


def is_marked(node: Node) -> bool:
    """Return whether the node has a taint of nodes that are not ready or unreachable."""
    return any(taint.key in _READY for taint in node.spec.taints)


def _expected(node: Node, ready: str) -> Iterator[tuple[str, str]]:
    """Yield key and effect of the taints that the node is to have of `_OURS`."""
    if key := {"True": "", "False": NOT_READY}.get(ready, UNREACHABLE):
        yield from ((key, effect) for effect in _EFFECTS)
    if node.spec.unschedulable:
        yield UNSCHEDULABLE, "NoSchedule"
    for kind, key in _OF_CONDITIONS.items():
        if _status(node, kind) == "True":
            yield key, "NoSchedule"


def _plain(taint: Taint) -> dict[str, str]:
    members = {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }
    return {key: value for key, value in members.items() if value}


def timestamp(at: float) -> str:
    """Return Unix seconds as Kubernetes writes times."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
