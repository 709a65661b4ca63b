"""A change that makes a parked pod fit has it tried, whichever plugin rejected it: hints against filters."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import keys, translate
from corelane.kube.meta import Condition, ObjectMeta, OwnerReference
from corelane.kube.objects import Node, Service, ServiceSpec, Taint
from corelane.kube.pod import ContainerPort, Pod
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import ObjectChanged, Unwatched
from corelane.scheduler.framework.changes import ChangeKind
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.plugins.node_affinity import NodeAffinity
from corelane.scheduler.plugins.topology_spread import PodTopologySpread
from corelane.scheduler.queue import scheduling_queue
from support import objects
from support.core_lab import CoreLab, profile_with
from support.kube_scheduler.objects import HOSTNAME, ZONE
from support.pods import container, guaranteed, pod
from support.waking_cluster import WakingCluster

STEPS = 60


def profiles() -> tuple[Profile, ...]:
    """Two profiles whose plugins of one name reject for other reasons."""
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
    added = NodeAffinity({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
    return profile_with(name="plain"), profile_with(added, PodTopologySpread("List", [HARD]), name="added")


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


def waits(lab: CoreLab, pod: Pod) -> Pod:
    """Create a pod that fits nowhere."""
    pod = lab.add(pod)
    assert lab.bound(seconds=20) == []
    return pod


def affinity(kind: str, app: str, **more: Any) -> dict[str, Any]:
    """Fields of a pod's spec."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}, **more}
    made = {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    spec = msgspec.json.decode(msgspec.json.encode({"spec": made}), type=Pod).spec
    return {"affinity": spec.affinity}


def small(name: str, **more: Any) -> Pod:
    return pod(name, container("c", "cpu=100m", ""), **more)


def test_the_last_peer_of_a_group_goes_and_the_pod_may_be_first_anywhere() -> None:
    lab = CoreLab(*(objects.node(name, labels={HOSTNAME: name}) for name in "ab"))
    together = {"labels": {"app": "x"}, **affinity("podAffinity", "x")}
    old = lab.on("a", small("old", **together))
    lab.change("a", unschedulable=True)
    waits(lab, small("new", **together))
    lab.delete(old)
    assert lab.bound(seconds=20) == ["b"]


def test_a_taint_goes_from_a_node_that_is_too_small_and_then_it_grows() -> None:
    taint = Taint("team", "a", "NoSchedule")
    lab = CoreLab(objects.node("a", 2, taints=(taint,)))
    waits(lab, pod("p", container("c", "cpu=3", "")))
    lab.change("a", taints=())
    assert lab.bound(seconds=20) == []
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "9"}
    lab.change("a", status=replace(lab.nodes["a"].status, allocatable=allocatable))
    assert lab.bound(seconds=20) == ["a"]


def test_the_second_profiles_affinity_is_met_by_a_label() -> None:
    lab = CoreLab(objects.node("a", labels={"disk": "hdd", ZONE: "z"}), profiles=profiles())
    waits(lab, small("p", scheduler_name="added"))
    lab.change("a", metadata=replace(lab.nodes["a"].metadata, labels={"disk": "ssd", ZONE: "z"}))
    assert lab.bound(seconds=20) == ["a"]


def test_a_denied_kind_can_be_watched_again() -> None:
    lab = CoreLab(objects.node("a", labels={HOSTNAME: "a"}))
    lab.tell(Unwatched(0, "namespaces", "forbidden"))
    teams = {"matchLabels": {"team": "a"}}
    waits(lab, small("p", **affinity("podAntiAffinity", "x", namespaceSelector=teams)))
    lab.tell(Unwatched(lab.now, "namespaces", ""))
    assert lab.bound(seconds=20) == ["a"]


def with_port(name: str, requests: str, priority: int, **more: Any) -> Pod:
    ports = (ContainerPort(host_port=80),)
    return pod(name, replace(container("c", requests, ""), ports=ports), priority=priority, **more)


def test_a_nomination_ends_for_a_pod_that_leaves_the_port_free() -> None:
    lab = CoreLab(objects.node("a", 4, memory="2Gi"))
    victim = lab.on("a", pod("v", container("c", "memory=2Gi", "")))
    lower = waits(lab, with_port("lower", "memory=1Gi", 5))
    assert lab.core.cluster.nominations.of(lower.metadata.uid) == "a"
    waits(lab, with_port("equal", "cpu=1", 5, preemption_policy="Never"))
    high = lab.add(pod("high", container("c", "memory=2Gi", ""), priority=10))
    assert lab.bound(seconds=20) == ["a"]
    nominated = [lab.core.cluster.nominations.of(one.metadata.uid) for one in (lower, high, victim)]
    assert nominated == ["", "a", ""]


def test_what_rejects_the_pod_without_the_victims_too_wakes_it() -> None:
    """The port is a lower pod's, the CPUs are a higher one's: once these are free, preemption helps."""
    lab = CoreLab(objects.node("a", 4))
    lab.on("a", with_port("low", "cpu=1", 0))
    high = lab.on("a", pod("high", container("c", "cpu=3", ""), priority=20))
    waiting = waits(lab, with_port("p", "cpu=2", 10))
    assert lab.core.cluster.nominations.of(waiting.metadata.uid) == ""
    lab.delete(high)
    lab.bound(seconds=20)
    assert lab.core.cluster.nominations.of(waiting.metadata.uid) == "a"


def test_a_ledger_that_gives_the_same_cpus_to_a_pod_with_other_labels() -> None:
    empty = objects.state("core:4", "a", policy="pools")
    noisy, quiet = (guaranteed(name, "1", labels={"app": name}) for name in ("noisy", "quiet"))
    before, after = (nodes.admit(empty, translate.request(one))[0] for one in (noisy, quiet))
    lab = CoreLab(objects.node("a", 4))
    lab.publish("a", before)
    avoid = '[{"avoid": {"matchLabels": {"app": "noisy"}}, "level": "numa", "required": true}]'
    waits(lab, guaranteed("p", "1", annotations={keys.CPU_AFFINITY: avoid}))
    lab.publish("a", after)
    assert lab.bound(seconds=20) == ["a"]


def test_a_pod_is_adopted_by_the_controller_that_is_spread() -> None:
    both = profile_with(PodTopologySpread("List", [HARD]))
    owner = (OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="r", uid="r", controller=True),)
    a, b = (objects.node(name, labels={ZONE: name}) for name in ("a", "b"))
    lab = CoreLab(a, replace(b, spec=replace(b.spec, unschedulable=True)), profiles=(both,))
    owned, orphan = small("one"), small("two")
    lab.on("a", replace(owned, metadata=replace(owned.metadata, owner_references=owner)))
    other = lab.on("b", orphan)
    waiting = small("p")
    waits(lab, replace(waiting, metadata=replace(waiting.metadata, owner_references=owner)))
    adopted = replace(other, metadata=replace(other.metadata, owner_references=owner))
    lab.seen(adopted)
    assert lab.bound(seconds=20) == ["a"]


# Domains of other nodes.

RACK = "example.com/rack"
HARD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}


def web(name: str, **spec: Any) -> Pod:
    """A pod with the label that constraints select; `spec` as in JSON."""
    read = msgspec.json.decode(msgspec.json.encode({"spec": spec}), type=Pod).spec
    fields = {field: getattr(read, field) for field in read.__struct_fields__ if getattr(read, field)}
    return pod(name, container("c", "cpu=100m", ""), labels={"app": "web"}, **fields)


def spread(policy: str = "Honor") -> dict[str, Any]:
    constraint = HARD | {"labelSelector": {"matchLabels": {"app": "web"}}, "nodeTaintsPolicy": policy}
    return {"topologySpreadConstraints": [constraint]}


def apart(key: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def node(name: str, zone: str, *, cordoned: bool = False, rack: str = "", **labels: str) -> Node:
    named = {ZONE: zone, RACK: rack} | labels
    labels = {key: value for key, value in named.items() if value}
    return objects.node(name, labels=labels, unschedulable=cordoned)


B = node("b", "b")
FULL = replace(B, status=replace(B.status, allocatable={"cpu": "8", "pods": "0"}))
DOWN = replace(FULL, status=replace(FULL.status, conditions=(Condition("Ready", "False"),)))


@pytest.mark.parametrize(
    ("old", "new", "placed", "waiting"),
    [
        (node("b", "b", cordoned=True), None, ("a", {}), spread()),
        (
            node("b", "b", cordoned=True, disk="ssd"),
            node("b", "b", cordoned=True, disk="hdd"),
            ("a", {}),
            {"nodeSelector": {"disk": "ssd"}} | spread(),
        ),
        (FULL, DOWN, ("a", {}), spread()),
        *(
            (
                node("b", "a", rack="2", cordoned=True),
                node("b", "b", rack="2", cordoned=True),
                ("b", apart(ZONE)),
                own,
            )
            for own in ({}, apart(RACK))
        ),
        (node("b", "a", cordoned=True), None, ("b", apart(ZONE)), {}),
    ],
    ids=[
        "the emptiest domain goes with its node",
        "its node counts no longer by the pod's node affinity",
        "its node counts no longer as it is not ready",
        "another pod's anti-affinity goes with its node's label",
        "another pod's anti-affinity goes with its node's label, and the pod has its own",
        "another pod's anti-affinity goes with its node",
    ],
)
def test_a_change_of_another_nodes_domain_wakes_the_pod(
    old: Node, new: Node | None, placed: tuple[str, dict[str, Any]], waiting: dict[str, Any]
) -> None:
    lab = CoreLab(node("a", "a", rack="1", disk="ssd"), old)
    lab.on(placed[0], web("p", **placed[1]))
    waits(lab, web("q", **waiting))
    lab.lose("b") if new is None else lab.has(new)
    assert lab.bound(seconds=20) == ["a"]


# Services, which decide default spreading constraints.


def service(name: str = "web", namespace: str = "ns", **selector: str) -> Service:
    return Service(metadata=ObjectMeta(name=name, namespace=namespace), spec=ServiceSpec(selector))


def waiting_for_a_service() -> CoreLab:
    """Two pods of a service are in zone a; zone b is full, so that a third one waits."""
    made = profile_with(PodTopologySpread("List", [HARD]))
    lab = CoreLab(node("a", "a"), objects.node("b", 1, labels={ZONE: "b"}), profiles=(made,))
    lab.on("b", pod("full", container("x", "cpu=1", "")))
    lab.on("a", web("p"))
    lab.tell(ObjectChanged(0, None, service(app="web")))
    waits(lab, web("q"))
    return lab


@pytest.mark.parametrize("new", [service(app="other"), None])
def test_a_service_that_selects_the_pod_no_longer_wakes_it(new: Service | None) -> None:
    lab = waiting_for_a_service()
    lab.tell(ObjectChanged(lab.now, service(app="web"), new))
    assert lab.bound(seconds=20) == ["a"]


@pytest.mark.parametrize(
    "other", [service("x", app="db"), service("x", "elsewhere", app="web"), service("x")]
)
def test_other_services_wake_no_pod(other: Service) -> None:
    lab = waiting_for_a_service()
    number = lab.core.queue.changes.number
    for old, new in ((None, other), (other, None)):
        lab.tell(ObjectChanged(lab.now, old, new))
        assert lab.bound(seconds=20) == []
    assert lab.core.queue.counts() == {"unschedulable": 1}
    assert (lab.core.queue.changes.number > number) == bool(other.spec.selector)


def test_the_systems_constraints_only_score_and_pods_do_not_wait_for_services() -> None:
    soft = HARD | {"whenUnsatisfiable": "ScheduleAnyway"}
    plugins = PodTopologySpread(), *(PodTopologySpread("List", [one]) for one in (soft, HARD))
    assert [ChangeKind.SERVICE in plugin.hints() for plugin in plugins] == [False, False, True]
