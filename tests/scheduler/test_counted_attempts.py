"""Metrics of kube-scheduler about plugins, Permit, events and pods that were forgotten."""

import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from corelane.kube.meta import ObjectMeta
from corelane.kube.objects import Node, Service
from corelane.kube.pod import Pod
from corelane.kube.storage import CSINode, PersistentVolume, StorageClass
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.daemon.metrics import SchedulerMetrics
from corelane.scheduler.events import (
    BindSucceeded,
    CycleDue,
    NodeChanged,
    ObjectChanged,
    PermitDecided,
    PodChanged,
    Unwatched,
    names_of,
)
from corelane.scheduler.framework.plugin import Rejection, Scope, Wait
from corelane.scheduler.plugins import default
from corelane.scheduler.queue.parked import LONGEST_PARKED
from corelane.scheduler.queue.scheduling_queue import SchedulingQueue
from support import objects
from support.core_lab import CoreLab, profile_with
from support.pods import container, pod


@dataclass
class Holds:
    """Holds every pod, and rejects those that are named."""

    rejected: set[str] = field(default_factory=set)
    name = "Holds"
    scope = Scope.CLUSTER

    def pre_filter(self, cycle: Any) -> Any:
        if cycle.pod.pod.metadata.name in self.rejected:
            return Rejection.of("Holds", Reason(Code.POD_INVALID, ("no",)))
        return None

    def filter(self, cycle: Any, node: Any) -> None:
        return None

    def permit(self, cycle: Any, node: Any) -> Wait:
        return Wait(60)

    def hints(self) -> dict[Any, Any]:
        return {}


class World(CoreLab):
    """Two nodes, and the metrics of the scheduler."""

    def __init__(self, *plugins: Any) -> None:
        self.metrics = SchedulerMetrics(clock=lambda: self.now)
        core = SchedulerCore(profiles=(profile_with(*plugins),), decisions=self.metrics)
        super().__init__("a", "b", core=core)

    def come(self, name: str, **more: Any) -> Pod:
        return self.add(pod(name, container("x", "cpu=1", ""), **more))

    def value(self, name: str, **labels: str) -> float:
        for line in self.metrics.text().splitlines():
            found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? ([0-9.e+-]+)", line)
            if found and dict(re.findall(r'([a-z_]+)="([^"]*)"', found[1] or "")) == labels:
                return float(found[2])
        return 0.0

    def waits(self, result: str) -> tuple[float, float]:
        name = "scheduler_permit_wait_duration_seconds"
        return self.value(f"{name}_count", result=result), self.value(f"{name}_sum", result=result)

    def asked(self, plugin: str, point: str) -> float:
        labels = {"plugin": plugin, "extension_point": point, "profile": "s"}
        return self.value("scheduler_plugin_evaluation_total", **labels)


def test_the_time_that_permit_plugins_hold_pods_is_counted_by_what_they_decide() -> None:
    world = World(Holds())
    core = world.core
    for name in ("p", "q", "r", "s"):
        world.come(name)
    world.run()
    assert world.waits("Success") == world.waits("Unschedulable") == (0, 0)
    core.handle(PermitDecided(2.5, "uid-p", True, "Holds"))
    assert world.waits("Success") == (1, 2.5)
    core.handle(PermitDecided(4, "uid-q", False, "Holds", "no"))
    assert world.waits("Unschedulable") == (1, 4)
    world.now = 5
    world.delete("r")
    assert world.waits("Unschedulable") == (2, 9)
    world.run(55)
    assert world.waits("Unschedulable")[0] == 3
    core.handle(BindSucceeded(61, "uid-p"))
    assert world.waits("Success") == (1, 2.5)


def test_pods_that_are_not_held_count_nothing() -> None:
    world = World()
    world.come("p")
    world.run()
    world.core.handle(BindSucceeded(1, "uid-p"))
    assert world.waits("Success") == world.waits("Unschedulable") == (0, 0)


def test_plugins_are_counted_by_attempts_that_asked_them() -> None:
    world = World(Holds({"no"}))
    for name in ("p", "q", "no"):
        world.come(name)
    world.come("nowhere", node_selector={"disk": "ssd"})
    world.run()
    assert world.asked("Holds", "PreFilter") == 4
    assert world.asked("Holds", "Filter") == 3
    assert world.asked("NodeResourcesFit", "Filter") == 3
    assert world.asked("NodeAffinity", "PreFilter") == 1, "it skips pods without rules about nodes"
    assert world.asked("NodeAffinity", "Filter") == 1
    assert world.asked("VolumeBinding", "Filter") == 0
    assert world.asked("NodeResourcesFit", "Score") == 2
    assert world.asked("SnugFit", "Score") == 2
    assert world.asked("InterPodAffinity", "Score") == world.asked("InterPodAffinity", "PreScore") == 0


def test_a_score_that_skips_is_not_counted() -> None:
    world = World()
    service = Service(metadata=ObjectMeta(name="web", namespace="ns"))
    world.core.handle(
        ObjectChanged(0, None, replace(service, spec=replace(service.spec, selector={"a": "b"})))
    )
    world.come("p", labels={"a": "b"})
    world.come("q")
    world.run()
    assert world.asked("PodTopologySpread", "Score") == world.asked("PodTopologySpread", "PreScore") == 1


def test_pods_that_only_time_had_tried_are_counted_once_they_are_bound() -> None:
    world = World(Holds({"p"}))
    one = world.come("p")
    world.run()
    plugin = world.core.profile.plugins[-1]
    assert isinstance(plugin, Holds)
    plugin.rejected.clear()
    world.run(LONGEST_PARKED + 1)
    world.core.handle(PermitDecided(world.now, "uid-p", True, "Holds"))
    assert world.value("scheduler_pod_scheduled_after_flush_total") == 0
    world.core.handle(BindSucceeded(world.now, one.metadata.uid))
    assert world.value("scheduler_pod_scheduled_after_flush_total") == 1


def test_a_pod_that_a_change_had_tried_counts_as_none_that_was_forgotten() -> None:
    queue = SchedulingQueue(default.profile("s"))
    waiting = queue.add(PodInfo.of(pod("p", container("x", "cpu=1", ""))))
    assert queue.pop(0) is waiting
    queue.park(waiting, 0, frozenset({"NodeResourcesFit"}))
    assert queue.has_ready(LONGEST_PARKED + 1)
    assert waiting.flushed
    assert queue.pop(LONGEST_PARKED + 1) is waiting
    queue.park(waiting, LONGEST_PARKED + 1, frozenset({"NodeResourcesFit"}))
    queue.activate(waiting.uid, LONGEST_PARKED + 20)
    assert not waiting.flushed


NODE = objects.node("a", labels={"zone": "a"})


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        (None, NODE, ("NodeAdd",)),
        (NODE, None, ("NodeDelete",)),
        (NODE, objects.node("a", labels={"zone": "a"}, version="2"), ()),
        (NODE, objects.node("a", labels={"zone": "b"}), ("NodeUpdateNodeLabel",)),
        (NODE, objects.node("a", 9, labels={"zone": "a"}), ("NodeUpdateNodeAllocatable",)),
        (
            NODE,
            objects.node("a", 9, labels={"zone": "a"}, unschedulable=True),
            ("NodeUpdateNodeAllocatable", "NodeUpdateNodeTaint"),
        ),
    ],
)
def test_changes_of_nodes_have_upstreams_names(
    old: Node | None, new: Node | None, names: tuple[str, ...]
) -> None:
    assert names_of(NodeChanged(0, old, new), {"s"}) == names


def placed(one: Pod, node: str) -> Pod:
    return replace(one, spec=replace(one.spec, node_name=node))


OURS = pod("p", container("x", "cpu=1", ""), scheduler_name="s")


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        (None, OURS, ("UnschedulablePodAdd",)),
        (OURS, OURS, ("UnschedulablePodUpdate",)),
        (OURS, None, ("UnschedulablePodDelete",)),
        (OURS, placed(OURS, "a"), ("UnschedulablePodDelete", "AssignedPodAdd")),
        (None, placed(OURS, "a"), ("AssignedPodAdd",)),
        (placed(OURS, "a"), placed(OURS, "a"), ("AssignedPodUpdate",)),
        (placed(OURS, "a"), None, ("AssignedPodDelete",)),
        (None, pod("q", container("x", "cpu=1", ""), scheduler_name="other"), ()),
    ],
)
def test_changes_of_pods_have_upstreams_names(
    old: Pod | None, new: Pod | None, names: tuple[str, ...]
) -> None:
    assert names_of(PodChanged(0, old, new), {"s"}) == names


def test_changes_of_other_objects_have_upstreams_names() -> None:
    volume, csi = PersistentVolume(metadata=ObjectMeta(name="v")), CSINode(metadata=ObjectMeta(name="a"))
    assert names_of(ObjectChanged(0, None, volume), set()) == ("PersistentVolumeAdd",)
    assert names_of(ObjectChanged(0, csi, csi), set()) == ("storage.k8s.io/CSINodeUpdate",)
    assert names_of(ObjectChanged(0, StorageClass(), None), set()) == ("storage.k8s.io/StorageClassDelete",)
    assert names_of(ObjectChanged(0, None, Service()), set()) == ()
    assert names_of(CycleDue(0), set()) == names_of(Unwatched(0, "x", "y"), set()) == ()
