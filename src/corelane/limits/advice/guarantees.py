"""Whether requests still guarantee a node's pods their share when one of them takes all it can get.

Requests are weights: of the kubelet's groups, Guaranteed pods and the Burstable class compete at the top,
then Burstable pods among themselves (pkg/kubelet/cm, qos_container_manager). Exclusive CPUs are out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corelane.kernel import cfs
from corelane.limits.advice.facts import Neighbour, Node
from corelane.workload import QOSClass

__all__ = [
    "Danger",
    "NodeRisk",
    "Risk",
    "Share",
    "Weight",
    "crowded",
    "exclusive",
    "none",
    "own_cpus",
    "shares",
    "unlimited",
]

Weight = Callable[[int], int]
"""From cpu.shares to what the kernel gets: the same in cgroup v1, `cfs.pod_weight` in v2."""
_ENOUGH: Final = 0.95
"""Weights are whole numbers: a share this close to the request is the request."""
_NAMED: Final = 3


class Danger(StrEnum):
    """How much others may lose."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Share:
    """What a pod gets at least, in milliCPU, when everybody on its node wants everything."""

    pod: Neighbour
    milli: float

    @property
    def short(self) -> bool:
        return self.milli < _ENOUGH * self.pod.request


@dataclass(frozen=True, slots=True)
class NodeRisk:
    """What stands on one node. CPU in milliCPU; `short` are neighbours who would get less than requested."""

    name: str
    milli: int
    requested: int
    pods: int
    without_request: tuple[str, ...]
    short: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Risk:
    """How dangerous a change is to others, and why, on every node where the workload runs."""

    danger: Danger
    why: str
    nodes: tuple[NodeRisk, ...] = ()


def shares(node: Node, weight: Weight = cfs.pod_weight) -> list[Share]:
    """Every pod's least share of the CPUs that nobody has alone."""
    free = node.milli - 1000 * sum(pod.exclusive for pod in node.pods)
    sharing = [pod for pod in node.pods if not pod.exclusive]
    classes = {qos: [pod for pod in sharing if pod.qos is qos] for qos in QOSClass}
    burstable = classes[QOSClass.BURSTABLE]
    total = weight(cfs.shares(sum(pod.request for pod in burstable))) if burstable else 0
    best = weight(cfs.MIN_SHARES) if classes[QOSClass.BEST_EFFORT] else 0
    top = {pod: weight(cfs.shares(pod.request)) for pod in classes[QOSClass.GUARANTEED]}
    everything = max(sum(top.values()) + total + best, 1)
    found = [Share(pod, free * own / everything) for pod, own in top.items()]
    found += _split(burstable, free * total / everything, weight)
    return found + _split(classes[QOSClass.BEST_EFFORT], free * best / everything, weight)


def _split(pods: Sequence[Neighbour], milli: float, weight: Weight) -> list[Share]:
    weights = [weight(cfs.shares(pod.request)) for pod in pods]
    return [Share(pod, milli * own / sum(weights)) for pod, own in zip(pods, weights, strict=True)]


def none(why: str) -> Risk:
    """Nobody is concerned."""
    return Risk(Danger.NONE, why)


def own_cpus() -> Risk:
    """A container that has its CPUs alone cannot take anybody else's."""
    return none("its CPUs are nobody else's")


def unlimited(
    nodes: Sequence[Node], limit: float | None, weight: Weight = cfs.pod_weight, request: int = 0
) -> Risk:
    """A container of the workload takes all it can get, or up to `limit` CPUs; now it requests `request`."""
    known = [node for node in nodes if node.milli]
    if not known:
        return Risk(Danger.UNKNOWN, _unknown(nodes))
    if limit is not None and all(_fits(node, limit, request) for node in known):
        return Risk(
            Danger.NONE,
            f"even at {limit:g} CPUs it leaves every neighbour what it requests",
            tuple(_node(node, weight) for node in known),
        )
    found = tuple(_node(node, weight) for node in known)
    return Risk(max((_danger(one) for one in found), key=list(Danger).index), _worst(found), found)


def _unknown(nodes: Sequence[Node]) -> str:
    if nodes:
        return "how many CPUs its node has is not known: add the nodes to --pods, or give --node-cpus"
    return "who else is on its node is not known: give --pods"


def _fits(node: Node, limit: float, request: int) -> bool:
    """Whether its limits and everybody else's requests find room side by side."""
    enough = _asked(node, 1000 * limit, request) <= node.milli
    return enough and all(pod.request or pod.own for pod in node.pods)


def _asked(node: Node, wanted: float, request: int) -> float:
    """MilliCPU on the node once the container has `wanted` in every pod of its own, instead of `request`."""
    return sum(pod.request + (wanted - request if pod.own else 0) for pod in node.pods)


def crowded(nodes: Sequence[Node], wanted: int, request: int) -> Risk | None:
    """Why its pods would not fit their nodes with a request of `wanted` milliCPU; None where they do."""
    for node in nodes:
        asked = _asked(node, wanted, request)
        if node.milli and wanted > request and asked > node.milli:
            return Risk(Danger.HIGH, _no_room(node, asked))
    return None


def _no_room(node: Node, asked: float) -> str:
    where = f"on {node.name}" if node.name else "on its node"
    return f"{where} there is no room: {asked / 1000:g} of {node.milli / 1000:g} CPUs would be asked"


def _node(node: Node, weight: Weight) -> NodeRisk:
    found = [one for one in shares(node, weight) if not one.pod.own]
    return NodeRisk(
        node.name,
        node.milli,
        sum(pod.request for pod in node.pods),
        len(node.pods),
        tuple(one.pod.title for one in found if not one.pod.request),
        tuple(one for one in found if one.pod.request and one.short),
    )


def _danger(one: NodeRisk) -> Danger:
    if one.requested > one.milli:
        return Danger.HIGH
    return Danger.MEDIUM if one.without_request or one.short else Danger.LOW


def _worst(found: Sequence[NodeRisk]) -> str:
    one = max(found, key=lambda node: list(Danger).index(_danger(node)))
    where = f"on {one.name}" if one.name else "on its node"
    asked = f"requests are {one.requested / 1000:g} of {one.milli / 1000:g} CPUs"
    if one.requested > one.milli:
        return f"{where} {asked}: they guarantee nobody what he asked for"
    parts = [f"{where} {asked}, which still guarantees every pod with a request its share"]
    if one.short:
        parts = [f"{where} {asked}, but weights are whole numbers, so {_shortest(one)}"]
    if one.without_request:
        parts.append(f"{_names(one.without_request)} without a request may starve")
    return "; ".join(parts)


def _shortest(one: NodeRisk) -> str:
    worst = min(one.short, key=lambda share: share.milli / share.pod.request)
    more = f", and {len(one.short) - 1} more less than requested" if len(one.short) > 1 else ""
    return f"{worst.pod.title} is sure of {worst.milli:.0f}m of its {worst.pod.request}m only{more}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def exclusive(nodes: Sequence[Node], cpus: int, request: int = 0) -> Risk:
    """A container has `cpus` CPUs alone in every pod of the workload, and the rest must do for all others."""
    known = [node for node in nodes if node.milli]
    if not known:
        return Risk(Danger.UNKNOWN, _unknown(nodes))
    if full := crowded(known, 1000 * cpus, request):
        return full
    left = [(node.milli - _asked(node, 1000 * cpus, request), node) for node in known]
    found = [f"{free / 1000:g} of {node.milli / 1000:g} CPUs stay free of requests" for free, node in left]
    whose = "its own CPU" if cpus == 1 else f"its own {cpus} CPUs"
    return Risk(Danger.LOW, f"{found[0]}; nobody else can use {whose}, idle or not")
