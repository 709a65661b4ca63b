"""A change that makes a parked pod fit has it tried, whichever plugin rejected it: hints against filters."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import keys, translate
from corelane.kube.meta import OwnerReference
from corelane.kube.objects import Taint
from corelane.kube.pod import ContainerPort, Pod
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, TopologyChanged, Unwatched
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind
from corelane.scheduler.plugins import default
from corelane.scheduler.plugins.node_affinity import NodeAffinity
from corelane.scheduler.plugins.topology_spread import PodTopologySpread
from corelane.scheduler.queue import scheduling_queue
from support import objects
from support.kube_scheduler.objects import HOSTNAME, ZONE
from support.pods import container, guaranteed, pod
from support.waking_cluster import WakingCluster

STEPS = 60


def profile(name: str, *plugins: Any) -> Profile:
    own = {plugin.name: plugin for plugin in plugins}
    return Profile(name, tuple(own.get(one.name, one) for one in default.plugins()), default.WEIGHTS)


def profiles() -> tuple[Profile, ...]:
    """Two profiles whose plugins of one name reject for other reasons."""
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
    added = NodeAffinity({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return profile("plain"), profile("added", added, PodTopologySpread("List", [spread]))


@pytest.mark.parametrize("seed", range(30))
def test_no_parked_pod_fits_after_any_change(seed: int) -> None:
    run(WakingCluster(seed))


@pytest.mark.parametrize("seed", range(100, 115))
def test_hints_are_those_of_the_pods_own_profile(seed: int) -> None:
    run(WakingCluster(seed, profiles()))


@pytest.mark.parametrize("seed", range(200, 215))
def test_changes_that_are_asked_about_later_together_are_not_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_queue, "AT_ONCE", 0)
    run(WakingCluster(seed, asked=0.3))


@pytest.mark.parametrize("seed", range(300, 315))
def test_changes_during_an_attempt_in_portions_are_not_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finalists, "MOST_ADMISSIONS", 1)
    monkeypatch.setattr(finalists, "COUNTED_AT_ONCE", 1)
    run(WakingCluster(seed, attempts=2))


def run(cluster: WakingCluster) -> None:
    for _ in range(STEPS):
        cluster.step()
        cluster.run()
    cluster.asked = 1.0
    cluster.run(1000)
    assert cluster.seen["changes"] > 0


class Story:
    """A core, and the pods that it has bound."""

    def __init__(self, *nodes: Any, profiles: tuple[Profile, ...] = ()) -> None:
        self.core = SchedulerCore(profiles=profiles)
        self.now = 0.0
        self.known = {node.metadata.name: node for node in nodes}
        for node in nodes:
            self.core.handle(NodeChanged(0, None, node))

    def node(self, name: str, **fields: Any) -> None:
        old = self.known[name]
        new = self.known[name] = replace(old, **fields)
        self.core.handle(NodeChanged(self.now, old, new))

    def tell(self, event: Any) -> None:
        self.core.handle(event)

    def placed(self, one: Pod, node: str) -> Pod:
        placed = replace(one, spec=replace(one.spec, node_name=node))
        self.core.handle(PodChanged(self.now, None, placed))
        return placed

    def waits(self, one: Pod, scheduler: str = "corelane-scheduler") -> Pod:
        waiting = replace(one, spec=replace(one.spec, scheduler_name=scheduler))
        self.core.handle(PodChanged(self.now, None, waiting))
        assert self.tried() == []
        return waiting

    def tried(self) -> list[str]:
        """Return the nodes of what is bound by the pods that are ready, without waiting for 5 minutes."""
        self.now += 20
        found = []
        for _ in range(10):
            for one in self.core.handle(CycleDue(self.now)):
                found += [one.node] if isinstance(one, Bind) else []
        return found


def affinity(kind: str, app: str, **more: Any) -> dict[str, Any]:
    """Fields of a pod's spec."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}, **more}
    made = {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    spec = msgspec.json.decode(msgspec.json.encode({"spec": made}), type=Pod).spec
    return {"affinity": spec.affinity}


def labelled(name: str) -> Any:
    return objects.node(name, labels={HOSTNAME: name})


def small(name: str, **more: Any) -> Pod:
    return pod(name, container("c", "cpu=100m", ""), **more)


def test_the_last_peer_of_a_group_goes_and_the_pod_may_be_first_anywhere() -> None:
    story = Story(labelled("a"), labelled("b"))
    together = {"labels": {"app": "x"}, **affinity("podAffinity", "x")}
    old = story.placed(small("old", **together), "a")
    story.node("a", spec=replace(story.known["a"].spec, unschedulable=True))
    story.waits(small("new", **together))
    story.tell(PodChanged(story.now, old, None))
    assert story.tried() == ["b"]


def test_a_taint_goes_from_a_node_that_is_too_small_and_then_it_grows() -> None:
    taint = Taint("team", "a", "NoSchedule")
    story = Story(objects.node("a", 2, taints=(taint,)))
    story.waits(pod("p", container("c", "cpu=3", "")))
    story.node("a", spec=replace(story.known["a"].spec, taints=()))
    assert story.tried() == []
    story.node(
        "a", status=replace(story.known["a"].status, allocatable={"cpu": "4", "memory": "8Gi", "pods": "9"})
    )
    assert story.tried() == ["a"]


def test_the_second_profiles_affinity_is_met_by_a_label() -> None:
    story = Story(objects.node("a", labels={"disk": "hdd", ZONE: "z"}), profiles=profiles())
    story.waits(small("p"), "added")
    story.node("a", metadata=replace(story.known["a"].metadata, labels={"disk": "ssd", ZONE: "z"}))
    assert story.tried() == ["a"]


def test_a_denied_kind_can_be_watched_again() -> None:
    story = Story(labelled("a"))
    story.tell(Unwatched(0, "namespaces", "forbidden"))
    teams = {"matchLabels": {"team": "a"}}
    story.waits(small("p", **affinity("podAntiAffinity", "x", namespaceSelector=teams)))
    story.tell(Unwatched(story.now, "namespaces", ""))
    assert story.tried() == ["a"]


def with_port(name: str, requests: str, priority: int, **more: Any) -> Pod:
    ports = (ContainerPort(host_port=80),)
    return pod(name, replace(container("c", requests, ""), ports=ports), priority=priority, **more)


def test_a_nomination_ends_for_a_pod_that_leaves_the_port_free() -> None:
    story = Story(objects.node("a", 4, memory="2Gi"))
    victim = story.placed(pod("v", container("c", "memory=2Gi", "")), "a")
    lower = story.waits(with_port("lower", "memory=1Gi", 5))
    assert story.core.cluster.nominations.of(lower.metadata.uid) == "a"
    story.waits(with_port("equal", "cpu=1", 5, preemption_policy="Never"))
    high = pod("high", container("c", "memory=2Gi", ""), priority=10)
    story.tell(
        PodChanged(
            story.now, None, replace(high, spec=replace(high.spec, scheduler_name="corelane-scheduler"))
        )
    )
    assert story.tried() == ["a"]
    assert [story.core.cluster.nominations.of(one.metadata.uid) for one in (lower, high, victim)] == [
        "",
        "a",
        "",
    ]


def test_what_rejects_the_pod_without_the_victims_too_wakes_it() -> None:
    """The port is a lower pod's, the CPUs are a higher one's: once these are free, preemption helps."""
    story = Story(objects.node("a", 4))
    story.placed(with_port("low", "cpu=1", 0), "a")
    high = story.placed(pod("high", container("c", "cpu=3", ""), priority=20), "a")
    waiting = story.waits(with_port("p", "cpu=2", 10))
    assert story.core.cluster.nominations.of(waiting.metadata.uid) == ""
    story.tell(PodChanged(story.now, high, None))
    story.tried()
    assert story.core.cluster.nominations.of(waiting.metadata.uid) == "a"


def test_a_ledger_that_gives_the_same_cpus_to_a_pod_with_other_labels() -> None:
    empty = objects.state("core:4", "a", policy="pools")
    noisy, quiet = (guaranteed(name, "1", labels={"app": name}) for name in ("noisy", "quiet"))
    before, after = (nodes.admit(empty, translate.request(one))[0] for one in (noisy, quiet))
    story = Story(objects.node("a", 4))
    first, second = (objects.topology("a", state) for state in (before, after))
    story.tell(TopologyChanged(0, None, first))
    avoid = '[{"avoid": {"matchLabels": {"app": "noisy"}}, "level": "numa", "required": true}]'
    story.waits(guaranteed("p", "1", annotations={keys.CPU_AFFINITY: avoid}))
    story.tell(TopologyChanged(story.now, first, second))
    assert story.tried() == ["a"]


def test_a_pod_is_adopted_by_the_controller_that_is_spread() -> None:
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    both = profile("corelane-scheduler", PodTopologySpread("List", [spread]))
    owner = (OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="r", uid="r", controller=True),)
    a, b = (objects.node(name, labels={ZONE: name}) for name in ("a", "b"))
    story = Story(a, replace(b, spec=replace(b.spec, unschedulable=True)), profiles=(both,))
    owned, orphan = small("one"), small("two")
    story.placed(replace(owned, metadata=replace(owned.metadata, owner_references=owner)), "a")
    other = story.placed(orphan, "b")
    waiting = small("p")
    story.waits(replace(waiting, metadata=replace(waiting.metadata, owner_references=owner)))
    adopted = replace(other, metadata=replace(other.metadata, owner_references=owner))
    story.tell(PodChanged(story.now, other, adopted))
    assert story.tried() == ["a"]
