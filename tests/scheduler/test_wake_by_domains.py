"""Pods that wait for a domain of other nodes are tried again when a node changes that domain."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from corelane.kube.meta import Condition
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged
from corelane.scheduler.instructions import Bind
from support import objects

ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"
SELECTOR = {"matchLabels": {"app": "web"}}


def pod(name: str, node: str = "", **spec: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
    made = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"schedulerName": "corelane-scheduler", "containers": containers, **spec},
    }
    if node:
        made["spec"]["nodeName"] = node
    return msgspec.json.decode(msgspec.json.encode(made), type=Pod)


def spread(policy: str = "Honor") -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": SELECTOR,
        "nodeTaintsPolicy": policy,
    }
    return {"topologySpreadConstraints": [constraint]}


def apart(key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": SELECTOR}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def node(name: str, *, cordoned: bool = False, **labels: str) -> Node:
    named = {ZONE: labels.pop("zone", ""), RACK: labels.pop("rack", "")} | labels
    one = objects.node(name, labels={key: value for key, value in named.items() if value})
    return replace(one, spec=replace(one.spec, unschedulable=cordoned))


def woken(nodes: list[Node], placed: list[Pod], waiting: Pod, old: Node, new: Node | None) -> list[str]:
    """Have the pod parked, change a node, and return where it is bound then."""
    core = SchedulerCore()
    for one in nodes:
        core.handle(NodeChanged(0, None, one))
    for bound in placed:
        core.handle(PodChanged(0, None, bound))
    core.handle(PodChanged(0, None, waiting))
    assert not any(isinstance(one, Bind) for one in core.handle(CycleDue(0)))
    core.handle(NodeChanged(20, old, new))
    assert core.ready(20)
    return [one.node for one in core.handle(CycleDue(20)) if isinstance(one, Bind)]


def test_the_emptiest_domain_goes_with_its_node() -> None:
    a, b = node("a", zone="a"), node("b", zone="b", cordoned=True)
    assert woken([a, b], [pod("p", "a")], pod("q", **spread()), b, None) == ["a"]


def test_the_emptiest_domains_node_counts_no_longer_by_the_pods_node_affinity() -> None:
    a, b = node("a", zone="a", disk="ssd"), node("b", zone="b", disk="ssd", cordoned=True)
    waiting = pod("q", nodeSelector={"disk": "ssd"}, **spread())
    changed = node("b", zone="b", disk="hdd", cordoned=True)
    assert woken([a, b], [pod("p", "a")], waiting, b, changed) == ["a"]


def test_the_emptiest_domains_node_counts_no_longer_as_it_is_not_ready() -> None:
    a, b = node("a", zone="a"), node("b", zone="b")
    b = replace(b, status=replace(b.status, allocatable={"cpu": "8", "pods": "0"}))
    down = replace(b, status=replace(b.status, conditions=(Condition("Ready", "False"),)))
    assert woken([a, b], [pod("p", "a")], pod("q", **spread()), b, down) == ["a"]


@pytest.mark.parametrize("own", [{}, apart(RACK)])
def test_another_pods_anti_affinity_goes_with_its_nodes_label(own: dict[str, Any]) -> None:
    a, b = node("a", zone="a", rack="1"), node("b", zone="a", rack="2", cordoned=True)
    moved = node("b", zone="b", rack="2", cordoned=True)
    assert woken([a, b], [pod("p", "b", **apart(ZONE))], pod("q", **own), b, moved) == ["a"]


def test_another_pods_anti_affinity_goes_with_its_node() -> None:
    a, b = node("a", zone="a"), node("b", zone="a", cordoned=True)
    assert woken([a, b], [pod("p", "b", **apart(ZONE))], pod("q"), b, None) == ["a"]
