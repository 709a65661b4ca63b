"""Ports, affinity to other pods, spread and claims, through the core: claims count as pods at once."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane.kube.objects import Namespace
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    ObjectChanged,
    PreBindFailed,
    Unwatched,
)
from corelane.scheduler.framework.plugin import Cycle, Skip
from corelane.scheduler.instructions import Instruction
from corelane.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from corelane.scheduler.plugins.topology_spread import PodTopologySpread
from corelane.scheduler.plugins.volume_binding import VolumeWork
from support import objects
from support.core_lab import CoreLab, conditions, message, only_bind, placed

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SELECTED = "volume.kubernetes.io/selected-node"


def pod(name: str, node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": "100m"}}, "ports": spec.pop("ports", [])}
    body = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"containers": [container], "nodeName": node, "schedulerName": "corelane-scheduler", **spec},
    }
    return msgspec.json.decode(json.dumps(body), type=Pod)


def required(kind: str, key: str, **labels: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


NODES = [objects.node(name, labels={HOST: name, ZONE: name[0]}) for name in ("a1", "a2", "b1", "b2")]


class Cluster(CoreLab):
    """Two nodes in each of two zones."""

    def __init__(self) -> None:
        super().__init__(*NODES)


def test_a_host_port_is_given_once_to_a_node_also_among_claims() -> None:
    cluster, port = Cluster(), [{"containerPort": 80, "hostPort": 80}]
    placed = cluster.bound(*(pod(f"p{n}", ports=port) for n in range(4)))
    assert sorted(placed) == ["a1", "a2", "b1", "b2"]
    more = cluster.place(pod("p4", ports=port))
    assert message(more) == (
        "0/4 nodes are available: 4 node(s) didn't have free ports for the requested pod ports."
    )
    other = [{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]
    assert cluster.bound(pod("p5", ports=other))
    cluster.delete("p0")
    assert cluster.bound(seconds=2.0) == [placed[0]]


def test_a_pod_on_the_hosts_network_takes_the_ports_of_its_containers() -> None:
    cluster, port = Cluster(), [{"containerPort": 9100}]
    placed = cluster.bound(*(pod(f"p{n}", ports=port, hostNetwork=True) for n in range(5)))
    assert sorted(placed) == ["a1", "a2", "b1", "b2"]


def test_replicas_that_avoid_each_other_get_a_node_each() -> None:
    cluster, labels = Cluster(), {"app": "db"}
    apart = required("podAntiAffinity", HOST, app="db")
    replicas = [pod(f"db{n}", labels=labels, affinity=apart) for n in range(5)]
    done = cluster.place(*replicas)
    assert sorted(placed(done).values()) == ["a1", "a2", "b1", "b2"]
    assert message(done) == "0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules."
    plain = cluster.place(pod("other", labels=labels))
    assert message(plain) == (
        "0/4 nodes are available: 4 node(s) didn't satisfy existing pods anti-affinity rules."
    )


def test_the_first_pod_of_a_group_chooses_the_zone_of_the_others() -> None:
    cluster, together = Cluster(), required("podAffinity", ZONE, app="web")
    placed = cluster.bound(*(pod(f"w{n}", labels={"app": "web"}, affinity=together) for n in range(4)))
    assert len({name[0] for name in placed}) == 1
    stranger = cluster.place(pod("s", affinity=required("podAffinity", ZONE, app="none")))
    assert message(stranger) == "0/4 nodes are available: 4 node(s) didn't match pod affinity rules."


def test_a_pod_that_comes_wakes_the_one_that_wants_to_be_near_it() -> None:
    cluster = Cluster()
    cluster.place(pod("near", affinity=required("podAffinity", HOST, app="db")))
    cluster.seen(pod("x", node="b2", labels={"app": "cache"}))
    assert cluster.bound(seconds=2.0) == []
    cluster.seen(pod("db", node="b1", labels={"app": "db"}))
    assert cluster.bound(seconds=20.0) == ["b1"]


def test_spread_counts_claims_and_not_pods_that_are_being_deleted() -> None:
    cluster, labels = Cluster(), {"app": "web"}
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    replicas = [pod(f"w{n}", labels=labels, topologySpreadConstraints=spread) for n in range(6)]
    placed = cluster.bound(*replicas)
    assert [name[0] for name in placed].count("a") == 3
    for number, name in enumerate(placed):
        if name[0] == "a":
            shown = cluster.on(name, replicas[number])
            leaving = replace(shown.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            cluster.seen(replace(shown, metadata=leaving))
    after = [pod(f"n{n}", labels=labels, topologySpreadConstraints=spread) for n in range(3)]
    assert [name[0] for name in cluster.bound(*after)] == ["a", "a", "a"]


def test_namespaces_are_chosen_by_their_labels_as_they_change() -> None:
    cluster = Cluster()
    cluster.seen(pod("db", node="b1", labels={"app": "db"}))
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "topologyKey": HOST,
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert "didn't match pod affinity rules" in message(cluster.place(pod("near", affinity=affinity)))
    named = msgspec.convert({"metadata": {"name": "ns", "labels": {"team": "a"}}}, Namespace)
    cluster.tell(ObjectChanged(cluster.now, None, named))
    assert cluster.bound(seconds=2.0) == ["b1"]
    blind = Cluster()
    blind.tell(Unwatched(0.0, "namespaces", "403 Forbidden"))
    told = message(blind.place(pod("near", affinity=affinity)))
    assert "namespaces cannot be watched: 403 Forbidden; allow the scheduler's service account" in told


def test_a_bad_affinity_of_a_bound_pod_leaves_its_amounts_counted() -> None:
    cluster = Cluster()
    cluster.seen(pod("odd", node="a1", affinity={"podAffinity": [1]}))
    assert cluster.node("a1").requested["cpu"] == 100
    assert "cannot be read" in message(cluster.place(pod("odd2", affinity={"podAntiAffinity": "x"})))


# Volumes.


def claim(
    name: str, storage_class: str = "wait", *, volume: str = "", version: str = "1", **annotations: str
):
    if volume:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    body = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "annotations": {key.replace("__", "/"): value for key, value in annotations.items()},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return msgspec.convert(body, PersistentVolumeClaim)


def volume(name: str, node: str, version: str = "1", storage_class: str = "local") -> PersistentVolume:
    rule = {"key": HOST, "operator": "In", "values": [node]}
    body = {
        "metadata": {"name": name, "resourceVersion": version},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
        },
        "status": {"phase": "Available"},
    }
    return msgspec.convert(body, PersistentVolume)


def storage(name: str, provisioner: str, zone: str = "") -> StorageClass:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}] if zone else []
    body = {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": terms,
    }
    return msgspec.convert(body, StorageClass)


def using(name: str, *claims: str) -> Pod:
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return pod(name, volumes=volumes)


class Storage(Cluster):
    """Classes: local volumes, and volumes that are made in zone b only."""

    def __init__(self) -> None:
        super().__init__()
        for one in (storage("local", "kubernetes.io/no-provisioner"), storage("wait", "example.com", "b")):
            self.tell(ObjectChanged(0.0, None, one))

    def shows(self, *changed: PersistentVolumeClaim | PersistentVolume) -> None:
        for one in changed:
            self.tell(ObjectChanged(self.now, None, one))


def work(instructions: list[Instruction]) -> VolumeWork:
    bind = only_bind(instructions)
    (found,) = bind.work
    assert isinstance(found, VolumeWork)
    assert found.node == bind.node
    return found


def test_a_volume_is_made_where_its_class_allows_and_written_before_the_binding() -> None:
    cluster = Storage()
    cluster.shows(claim("data"))
    found = work(cluster.place(using("p", "data")))
    assert found.node[0] == "b"
    assert [one.metadata.name for one in found.provisions] == ["data"]


def test_a_local_volume_is_taken_by_one_of_two_pods_and_given_back_if_writing_fails() -> None:
    cluster = Storage()
    cluster.shows(claim("c1", "local"), claim("c2", "local"), volume("pv", "a2"))
    first = cluster.place(using("p1", "c1"))
    assert [(pv.metadata.name, pvc.metadata.name) for pv, pvc in work(first).static] == [("pv", "c1")]
    assert work(first).node == "a2"
    second = cluster.place(using("p2", "c2"))
    assert message(second) == (
        "0/4 nodes are available: 4 node(s) didn't find available persistent volumes to bind."
    )
    failed = cluster.tell(PreBindFailed(cluster.now, "uid-p1", "VolumeBinding", "409 Conflict"))
    (told,) = conditions(failed)
    assert told.message == "running PreBind plugin 'VolumeBinding': 409 Conflict"
    assert cluster.core.cluster.objects.taken_volumes == {}


def test_two_pods_with_one_claim_go_to_the_node_that_was_chosen_first() -> None:
    cluster = Storage()
    cluster.shows(claim("data"))
    first = cluster.bound(using("p1", "data"))
    assert cluster.bound(using("p2", "data")) == first
    cluster.tell(BindFailed(cluster.now, "uid-p1", "rejected", "no"))
    cluster.tell(BindFailed(cluster.now, "uid-p2", "rejected", "no"))
    assert cluster.core.cluster.objects.provisioned_claims == {}


def test_a_bound_claim_keeps_a_pod_near_its_volume_and_a_lost_one_keeps_it_waiting() -> None:
    cluster = Storage()
    cluster.shows(volume("pv", "b2"), claim("data", "local", volume="pv"))
    done = cluster.place(using("p", "data"))
    assert list(placed(done).values()) == ["b2"]
    assert only_bind(done).work == ()
    waiting = cluster.place(using("q", "more"))
    assert message(waiting) == '0/4 nodes are available: persistentvolumeclaim "more" not found.'
    cluster.shows(claim("more"))
    assert cluster.bound(seconds=2.0)


def test_volumes_that_cannot_be_watched_keep_only_pods_with_claims_waiting() -> None:
    cluster = Cluster()
    cluster.tell(Unwatched(0.0, "persistentvolumes", "403 Forbidden"))
    assert cluster.bound(pod("plain"))
    assert "persistentvolumes cannot be watched: 403 Forbidden" in message(cluster.place(using("p", "data")))


def test_a_claim_of_one_pod_is_used_by_one_pod_also_while_it_is_being_bound() -> None:
    cluster = Storage()
    one = claim("data")
    cluster.shows(replace(one, spec=replace(one.spec, access_modes=("ReadWriteOncePod",))))
    assert cluster.bound(using("p1", "data"))
    told = message(cluster.place(using("p2", "data")))
    assert "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod" in told
    cluster.tell(BindSucceeded(cluster.now, "uid-p1"))
    cluster.delete("p1")
    assert cluster.bound(seconds=2.0)


# What-if: adding and removing pods in a cycle's state equals having them in the cluster or not.

_LABELS = st.sampled_from([{}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"}])
_KEYS = st.sampled_from([HOST, ZONE])


@st.composite
def requiring(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if draw(st.booleans()):
            spec.setdefault("affinity", {}).update(
                required(kind, draw(_KEYS), app=draw(st.sampled_from("ab")))
            )
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": draw(st.integers(1, 2)),
                "topologyKey": draw(_KEYS),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": draw(st.sampled_from("ab"))}},
            }
        ]
    return spec


def cached(pods: list[Pod]) -> NodeCache:
    cache = NodeCache()
    for node in NODES:
        cache.put_node(node.metadata.name, node)
    for one in pods:
        cache.put_pod(one.spec.node_name, PodInfo.of(one))
    return cache


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(_LABELS, st.sampled_from(["a1", "a2", "b1", "b2"]), requiring()), max_size=6),
    _LABELS,
    requiring(),
    st.data(),
)
@pytest.mark.parametrize("make", [InterPodAffinity, PodTopologySpread])
def test_what_if_answers_as_if_the_pods_were_there_or_not(
    make: type, placed: list, labels: dict[str, str], spec: dict[str, Any], data: st.DataObject
) -> None:
    pods = [pod(f"e{n}", node, own, **more) for n, (own, node, more) in enumerate(placed)]
    asking = PodInfo.of(pod("new", labels=labels, **spec))
    changed = data.draw(st.sampled_from(pods)) if pods else None
    with_all, without = cached(pods), cached([one for one in pods if one is not changed])
    answers = []
    for cluster, fewer in ((with_all, False), (without, False), (with_all, True), (without, True)):
        plugin, cycle = make(), Cycle(asking, asking.shape, cluster=cluster)
        skipped = isinstance(plugin.pre_filter(cycle), Skip)
        if changed is not None and fewer and not skipped:
            kept, cycle = cycle, cycle.copy()
            step = plugin.remove_pod if cluster is with_all else plugin.add_pod
            step(cycle, PodInfo.of(changed), cluster.node(changed.spec.node_name))
            assert kept.state is not cycle.state
        nodes = cluster.placeable()
        answers.append(None if skipped and fewer else [skipped or not plugin.filter(cycle, n) for n in nodes])
    there, gone, removed, added = answers
    assert removed in (gone, None)
    assert added in (there, None) or changed is None
