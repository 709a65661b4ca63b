"""The nearest node and the smallest change, each carried out on a copy; and decisions taken again."""

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.objects import Node, NodeResourceTopology, Taint
from corelane.kube.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
)
from corelane.node.explain import pod_explanation
from corelane.node.explain.pod_decision import NearestNode, PodDecision, Source, Verdict
from corelane.node.ledger import NodeState
from corelane.node.recovery import unplaced
from corelane.scheduler.explain import pod_changes, recompute
from corelane.scheduler.explain.recompute import Snapshot, Trial
from corelane.scheduler.plugins import default
from support import objects
from support.core_lab import CoreLab, events
from support.pods import container, guaranteed, pod

NOW = datetime(2026, 11, 23, 12, 3, 4, tzinfo=UTC)


class Cluster:
    """Nodes with ledgers, and pods bound there as their agents admitted them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.states: dict[str, NodeState] = {}
        self.pods: dict[str, Pod] = {}

    def node(
        self, name: str, spec: str = "core:4", cpus: int = 4, policy: str = "pools", **more: object
    ) -> "Cluster":
        self.nodes[name] = objects.node(name, cpus, **more)  # type: ignore[arg-type]
        if spec:
            self.states[name] = objects.state(spec, name, reserved=CPUSet([0]), policy=policy)
        return self

    def runs(self, node: str, *bound: Pod) -> "Cluster":
        for one in bound:
            self.states[node], decision = nodes.admit(self.states[node], translate.request(one))
            assert decision.admitted, decision.message
            self.pods[one.metadata.uid] = replace(one, spec=replace(one.spec, node_name=node))
        return self

    def trial(self) -> Trial:
        topologies = {name: objects.topology(name, state) for name, state in self.states.items()}
        return Trial(default.profile(), Snapshot(self.nodes, topologies, self.pods))

    def decide(self, asked: Pod) -> PodDecision:
        return recompute.decide(self.trial(), asked, NOW)

    def nearest(self, asked: Pod) -> NearestNode:
        found = self.decide(asked).nearest
        assert found is not None
        return found


def texts(found: NearestNode) -> list[str]:
    return [one.text for one in found.changes]


GPU = Taint("gpu", "yes", "NoSchedule")
NO_ARCH = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement("arch", "DoesNotExist"),)),))
NOWHERE = Affinity(node_affinity=NodeAffinity(required=NO_ARCH))


@pytest.mark.parametrize(
    ("node", "asked", "text"),
    [
        ({"taints": (GPU,)}, guaranteed("a", "2"), "tolerate taint gpu=yes:NoSchedule"),
        (
            {"taints": (GPU,)},
            guaranteed("a", "4"),
            "tolerate taint gpu=yes:NoSchedule, and request 3 CPUs instead of 4",
        ),
        ({"unschedulable": True}, guaranteed("a", "2"), "uncordon node n1"),
        (
            {"ready": "False"},
            guaranteed("a", "2"),
            "wait until node n1 has no taint node.kubernetes.io/not-ready",
        ),
        (
            {"labels": {"disk": "hdd"}},
            guaranteed("a", "2", node_selector={"disk": "ssd", "zone": "a"}),
            "label node n1 with disk=ssd, zone=a",
        ),
        (
            {"labels": {"arch": "arm"}},
            guaranteed("a", "2", affinity=NOWHERE),
            "drop the pod's required node affinity",
        ),
        (
            {},
            pod("a", container("main", "cpu=2 memory=1Gi example.com/gpu=1")),
            "drop the pod's request for example.com/gpu",
        ),
    ],
)
def test_what_lets_the_pod_fit_is_named(node: dict[str, object], asked: Pod, text: str) -> None:
    """A taint of a node that is not ready is not to be tolerated; two parts may be one change."""
    nearest = Cluster().node("n1", **node).nearest(asked)
    assert (nearest.name, texts(nearest)) == ("n1", [text])
    assert node != {"taints": (GPU,)} or nearest.missing[0] == "node(s) had untolerated taint(s)"


def test_fewer_cpus_and_pods_to_move_are_both_named() -> None:
    cluster = Cluster().node("n1").runs("n1", guaranteed("old", "1"))
    found = cluster.nearest(guaranteed("a", "3"))
    assert texts(found) == ["request 2 CPUs instead of 3", "move pod ns/old off node n1"]
    assert found.changes[1].pods == ("ns/old",)


def test_cpus_that_no_container_requests_are_not_searched_one_by_one() -> None:
    overhead = pod("a", container("main", "cpu=1"), overhead={"cpu": "2000000000000"})
    assert not list(pod_changes.Requests(overhead).fewer_cpus(1_000_000_000_000_000))


def test_as_few_pods_as_possible_are_moved() -> None:
    many = [guaranteed(f"small-{number}", "1") for number in range(4)]
    cluster = Cluster().node("n1", "core:9", 9).runs("n1", *many, guaranteed("large", "3"))
    found = cluster.nearest(guaranteed("a", "4"))
    assert "move pod ns/large off node n1" in texts(found)
    found = cluster.nearest(guaranteed("b", "5"))
    moved = next(one for one in found.changes if one.kind == "release")
    assert len(moved.pods) == 2
    assert "ns/large" in moved.pods


def test_memory_is_named_with_the_amount_left() -> None:
    cluster = Cluster().node("n1", memory="4Gi").runs("n1", guaranteed("old", "1", memory="1Gi"))
    found = cluster.nearest(guaranteed("a", "1", memory="8Gi"))
    assert texts(found) == ["request 3072Mi memory instead of 8192Mi"]


def test_the_node_with_the_smaller_change_is_the_nearest() -> None:
    cluster = Cluster().node("n1", taints=(Taint("gpu", "", "NoSchedule"),)).node("n2", "core:8", 8)
    assert cluster.nearest(guaranteed("a", "3")) if cluster.decide(guaranteed("a", "3")).nearest else True
    cluster.runs("n2", guaranteed("x", "7"))
    found = cluster.nearest(guaranteed("a", "3"))
    assert (found.name, texts(found)) == ("n1", ["tolerate taint gpu:NoSchedule"])


def test_a_required_bind_policy_may_become_a_preference() -> None:
    spec = '{"requiredCPUBindPolicy": "FullPCPUs"}'
    labels = {keys.QOS_CLASS: "LSR"}
    cluster = Cluster().node("n1", "core:2 smt:2", 4)
    cluster.states["n1"] = objects.state("core:2 smt:2", "n1", reserved=CPUSet([0]), policy="pools")
    asked = guaranteed("a", "3", annotations={keys.RESOURCE_SPEC: spec}, labels=labels)
    found = cluster.decide(asked)
    assert found.nearest is not None
    assert any(one.kind == "fewer" or one.kind == "soften" for one in found.nearest.changes)


def test_every_change_named_lets_the_pod_fit_and_the_trial_is_as_before() -> None:
    cluster = Cluster().node("n1").node("n2", policy="static").runs("n1", guaranteed("old", "2"))
    cluster.runs("n2", guaranteed("other", "2"))
    trial = cluster.trial()
    asked = guaranteed("a", "3")
    first, again = (recompute.decide(trial, asked, NOW) for _ in range(2))
    assert first == again
    assert first.nearest is not None


def test_no_change_is_named_where_none_helps() -> None:
    cluster = Cluster().node("n1", spec="", cpus=8)
    decided = cluster.decide(guaranteed("a", "2"))
    assert decided.verdict is Verdict.UNSCHEDULABLE
    assert decided.groups[0].code == "invalid-cpu-topology"


def test_a_pending_pod_that_fits_today_has_node_scores_and_cpus() -> None:
    decided = Cluster().node("n1").node("n2").decide(guaranteed("a", "2"))
    assert (decided.source, decided.node, decided.feasible) == (Source.RECOMPUTED, "n1", 2)
    assert decided.containers[0].proposed == CPUSet([1, 2])
    assert decided.objective is not None
    assert decided.time == "2026-11-23T12:03:04Z"


def test_a_bound_pod_is_decided_on_as_if_it_were_not_bound() -> None:
    bound = guaranteed("a", "2")
    cluster = Cluster().node("n1").runs("n1", bound)
    decided = cluster.decide(cluster.pods[bound.metadata.uid])
    assert (decided.node, decided.verdict) == ("n1", Verdict.BOUND)
    assert decided.containers[0].proposed == CPUSet([1, 2])


@pytest.mark.parametrize("kind", ["zones", "totals"])
def test_nodes_without_cpu_ids_come_with_a_note(kind: str) -> None:
    cluster = Cluster().node("n1", spec="", cpus=8)
    shared = pod("a", container("main", "cpu=500m memory=1Gi"))
    trial = cluster.trial()
    if kind == "zones":
        zone = {
            "metadata": {"name": "n1"},
            "topologyPolicies": ["SingleNUMANodeContainerLevel"],
            "zones": [
                {
                    "name": "node-0",
                    "type": "Node",
                    "resources": [
                        {"name": name, "capacity": size, "allocatable": size, "available": size}
                        for name, size in (("cpu", "8"), ("memory", "32Gi"))
                    ],
                }
            ],
        }
        topology = msgspec.convert(zone, NodeResourceTopology)
        trial = Trial(default.profile(), Snapshot(cluster.nodes, {"n1": topology}, {}))
    decided = recompute.decide(trial, shared, NOW)
    assert decided.kind == kind, decided
    assert "without a promise" in decided.notes[0]


def test_a_pending_pod_says_how_nodes_of_each_kind_were_judged() -> None:
    cluster = Cluster().node("exact").node("t1", spec="")
    pending = guaranteed("a", "64")
    (one,) = cluster.decide(pending).notes
    assert one == "node t1: no CPU topology is published: judged by totals, without a promise"
    for name in ("t2", "t3", "t4", "t5"):
        cluster.node(name, spec="")
    cluster.node("static", policy="static")
    (several,) = cluster.decide(pending).notes
    assert several.startswith("5 nodes (t1, t2, t3 and 2 more): no CPU topology is published"), several
    broken = {"metadata": {"name": "t1", "annotations": {keys.CPU_TOPOLOGY: "{"}}, "zones": []}
    topology = msgspec.convert(broken, NodeResourceTopology)
    trial = Trial(default.profile(), Snapshot({"t1": cluster.nodes["t1"]}, {"t1": topology}, {}))
    (damaged,) = recompute.decide(trial, pending, NOW).notes
    assert damaged.startswith("node t1: an invalid CPU topology is published"), damaged
    assert not Cluster().node("exact").decide(pending).notes


def test_missing_cpu_is_named_with_what_is_requested_and_free_and_what_uses_the_rest() -> None:
    cluster = Cluster().node("n1").runs("n1", guaranteed("old", "2"), guaranteed("small", "1"))
    found = cluster.nearest(pod("a", container("c", "cpu=1500m")))
    assert found.missing == ("Insufficient cpu",)
    text = "1500m CPU requested, 1 CPU free of 4 CPUs allocatable; used by ns/old 2 CPUs, ns/small 1 CPU"
    assert found.amounts == (text,)
    exclusive = cluster.nearest(guaranteed("b", "1"))
    assert exclusive.amounts == ("exclusive CPUs held by ns/old (CPUs 1-2), ns/small (CPU 3)",)


def test_a_pod_larger_than_the_node_is_to_request_less_and_others_to_be_moved() -> None:
    found = Cluster().node("n1").runs("n1", guaranteed("old", "3")).nearest(guaranteed("a", "7"))
    assert texts(found) == ["request 3 CPUs instead of 7, and move pod ns/old off node n1"]
    assert found.amounts == ("7 CPUs requested, 1 CPU free of 4 CPUs allocatable; used by ns/old 3 CPUs",)


def test_cpus_of_another_instance_are_named_with_the_command_that_frees_them() -> None:
    cluster = Cluster().node("n1")
    others = [("/var/my data", CPUSet([1, 2, 3]))]
    cluster.states["n1"] = unplaced.hold_others(cluster.states["n1"], others)
    exclusive = cluster.nearest(guaranteed("a", "1"))
    command = "`corelane down --data-dir '/var/my data'`"
    ends = f"; to end the containers of other instances: {command}"
    assert exclusive.amounts == (f"exclusive CPUs held by other corelane instances (CPUs 1-3){ends}",)
    (shared,) = cluster.nearest(pod("b", container("c", "cpu=2"))).amounts
    assert shared.endswith(f"used by other corelane instances 3 CPUs{ends}")
    state, request = cluster.states["n1"], translate.request(guaranteed("a", "1"))
    text = f"end the containers of other corelane instances on CPUs 1-3: {command}"
    assert pod_explanation.remedies(state, request) == text


def test_an_event_says_what_would_help_on_the_nearest_node_and_changes_nothing() -> None:
    tainted = objects.node("n1", 4, taints=(Taint("gpu", "", "NoSchedule"),))
    lab = CoreLab().has(
        tainted,
        objects.node("n2", 4, labels={"disk": "hdd"}),
        spec="core:4",
        reserved=CPUSet([0]),
        policy="pools",
    )

    def state() -> list[object]:
        placeable = lab.core.cluster.placeable()
        return [(info.taints, info.labels, dict(info.pods), info.state) for info in placeable]

    before = state()
    memory = "(64Gi memory requested, 32Gi memory free of 32Gi memory allocatable)"
    for name, more, expected in (
        ("a", {"node_selector": {"disk": "ssd"}}, "Nearest is n2: label node n2 with disk=ssd."),
        ("b", {"memory": "64Gi"}, f"Nearest is n2 {memory}: request 32Gi memory instead of 64Gi."),
    ):
        lab.now += 1
        (event,) = events(lab.place(guaranteed(name, "2", **more)))  # type: ignore[arg-type]
        assert event.help == expected
        assert event.message.startswith("0/2 nodes are available: ")
    assert state() == before


def test_an_event_names_no_remedy_for_cpus_on_a_node_that_another_rule_excludes() -> None:
    lab = CoreLab()
    for name, cpus in (("n1", 2), ("n2", 8)):
        node = objects.node(name, labels={"kubernetes.io/hostname": name})
        lab.has(node, spec=f"core:{cpus}", reserved=CPUSet([0]), policy="pools")
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "none"}}}
    terms = msgspec.json.encode({"requiredDuringSchedulingIgnoredDuringExecution": [rule]})
    asked = guaranteed("a", "2", affinity=Affinity(pod_affinity=msgspec.Raw(terms)))
    (event,) = events(lab.place(asked))
    assert event.nearest is None  # On n1 only one CPU is free, but no CPU would help there.
    assert event.help == "Nearest is n2: drop the pod's podAffinity."


def test_no_node_is_told_to_take_the_name_or_place_of_another() -> None:
    for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone"):
        fixed = pod("p")
        fixed = replace(fixed, spec=replace(fixed.spec, node_selector={key: "n1"}))
        assert pod_changes.missing_labels(fixed, objects.node("n2")) is None
