"""Services wake pods whose default spreading constraints they decide, and no others."""

from typing import Any

import pytest
from msgspec.structs import replace

from corelane.kube.meta import ObjectMeta
from corelane.kube.objects import Service, ServiceSpec
from corelane.kube.pod import Pod
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, ServiceChanged
from corelane.scheduler.framework.changes import ChangeKind
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind
from corelane.scheduler.plugins import default
from corelane.scheduler.plugins.topology_spread import PodTopologySpread
from support import objects
from support.pods import container, pod

ZONE = "topology.kubernetes.io/zone"
HARD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}


def service(name: str = "web", namespace: str = "ns", **selector: str) -> Service:
    return Service(metadata=ObjectMeta(name=name, namespace=namespace), spec=ServiceSpec(selector))


def web(name: str, node: str = "", **more: Any) -> Pod:
    one = pod(name, container("x", "cpu=1", ""), node=node, labels={"app": "web"}, **more)
    return replace(one, spec=replace(one.spec, scheduler_name="s"))


class Story:
    """Two pods of a service are in zone a; zone b is full, so that a third one waits."""

    def __init__(self) -> None:
        ours = default.profile("s")
        spread = PodTopologySpread("List", [HARD])
        plugins = tuple(spread if one.name == spread.name else one for one in ours.plugins)
        self.core, self.now = SchedulerCore(profiles=(Profile("s", plugins, ours.weights),)), 0.0
        self.core.handle(NodeChanged(0, None, objects.node("a", labels={ZONE: "a"})))
        self.core.handle(NodeChanged(0, None, objects.node("b", 1, labels={ZONE: "b"})))
        filler = pod("full", container("x", "cpu=1", ""), node="b")
        for one in (filler, web("p", "a")):
            self.core.handle(PodChanged(0, None, one))
        self.service = service(app="web")
        self.core.handle(ServiceChanged(0, None, self.service))
        self.core.handle(PodChanged(0, None, web("q")))
        assert self.bound() == []

    def bound(self) -> list[str]:
        self.now += 20
        done: list[Any] = []
        while self.core.ready(self.now):
            done += self.core.handle(CycleDue(self.now))
        return [one.node for one in done if isinstance(one, Bind)]

    def change(self, old: Service | None, new: Service | None) -> list[str]:
        self.core.handle(ServiceChanged(self.now, old, new))
        return self.bound()


def test_a_service_that_selects_the_pod_no_longer_wakes_it() -> None:
    assert Story().change(Story().service, service(app="other")) == ["a"]
    story = Story()
    assert story.change(story.service, None) == ["a"]


@pytest.mark.parametrize(
    "other", [service("x", app="db"), service("x", "elsewhere", app="web"), service("x")]
)
def test_other_services_wake_no_pod(other: Service) -> None:
    story = Story()
    number = story.core.queue.changes.number
    assert story.change(None, other) == []
    assert story.change(other, None) == []
    assert story.core.queue.counts() == {"unschedulable": 1}
    assert (story.core.queue.changes.number > number) == bool(other.spec.selector)


def test_the_systems_constraints_only_score_and_pods_do_not_wait_for_services() -> None:
    assert ChangeKind.SERVICE not in PodTopologySpread().hints()
    soft = HARD | {"whenUnsatisfiable": "ScheduleAnyway"}
    assert ChangeKind.SERVICE not in PodTopologySpread("List", [soft]).hints()
    assert ChangeKind.SERVICE in PodTopologySpread("List", [HARD]).hints()
