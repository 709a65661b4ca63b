import json
from collections.abc import Iterable
from dataclasses import replace as changed_value
from fractions import Fraction

import msgspec
import pytest
from msgspec.structs import replace

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.meta import Condition
from corelane.kube.objects import Node, Taint
from corelane.kube.pod import (
    Affinity,
    ClaimSource,
    EphemeralSource,
    Pod,
    PodResourceClaim,
    SchedulingGate,
    Volume,
)
from corelane.node.config import AllocatorName, PoolOptions
from corelane.scheduler.binding.bindings import LATE_SECONDS
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    LookUpFailed,
    PodChanged,
    PodLookedUp,
    PreBindFailed,
    TopologyChanged,
)
from corelane.scheduler.instructions import Instruction, LookUpPod, SetCondition
from corelane.workload import BindPolicy
from support import objects
from support.core_lab import CoreLab, binds, conditions, events, only_bind
from support.objects import node
from support.pods import container, guaranteed, pod

REQUIRED = msgspec.Raw(b'{"requiredDuringSchedulingIgnoredDuringExecution":[{}]}')


def why(instructions: Iterable[Instruction]) -> str:
    """The reason why a pod was not placed, the same in condition and event."""
    (condition,) = conditions(instructions)
    (event,) = events(instructions)
    assert (condition.reason, event.type, event.reason) == ("Unschedulable", "Warning", "FailedScheduling")
    assert condition.message == event.message
    reasons, _, preemption = event.message.partition(" preemption: ")
    assert preemption or "no nodes available" in reasons
    return reasons


def test_a_pod_gets_a_node_and_its_very_cpus_in_one_binding() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    bind = only_bind(lab.place(guaranteed("a", "2")))
    assert bind.node == "n1"
    assert bind.assignments == {"main": CPUSet([1, 2])}
    assert json.loads(bind.annotations[keys.RESOURCE_STATUS]) == {"cpuset": "1-2"}
    (event,) = events(lab.tell(BindSucceeded(0, "uid-a")))
    assert (event.type, event.reason) == ("Normal", "Scheduled")
    assert event.message == "Successfully assigned ns/a to n1 (CPUs: main 1-2)"
    lab.show(bind)
    assert lab.core.pending() == {}


def test_the_policy_that_a_labelled_pod_is_bound_by_is_written_back_as_koordinators_scheduler_does() -> None:
    pools = PoolOptions(node_bind=BindPolicy.SPREAD_BY_PCPUS)
    lab = CoreLab().has("n1", spec="core:8 smt:2", policy="pools", pools=pools)
    bind = only_bind(lab.place(guaranteed("a", "2", labels={keys.QOS_CLASS: "LSR"})))
    assert json.loads(bind.annotations[keys.RESOURCE_SPEC])["requiredCPUBindPolicy"] == "SpreadByPCPUs"
    assert PodInfo.of(lab.show(bind)).request.placement_spec.bind is None  # type: ignore[union-attr]
    plain = only_bind(lab.place(guaranteed("b", "2")))
    assert keys.RESOURCE_SPEC not in plain.annotations


def spec(**policies: str) -> dict[str, str]:
    return {keys.RESOURCE_SPEC: json.dumps(policies)}


def test_a_floating_pod_is_bound_with_the_numa_node_whose_pool_it_stays_in() -> None:
    lab = CoreLab().has("n1", spec="socket:2 core:4", policy="pools")
    burst = pod(
        "a", container("x", "cpu=1", "cpu=3"), annotations=spec(preferredCPUBindPolicy="ConstrainedBurst")
    )
    bind = only_bind(lab.place(burst))
    assert json.loads(bind.annotations[keys.RESOURCE_STATUS]) == {
        "numaNodeResources": [{"node": 0, "resources": {"cpu": "1"}}],
        "cpuSharedPools": [{"socket": 0, "node": 0}],
    }
    assert translate.placement_reasons(lab.show(bind).metadata.annotations)["x"]
    again = only_bind(lab.place(replace(burst, metadata=replace(burst.metadata, name="b", uid="uid-b"))))
    assert json.loads(again.annotations[keys.RESOURCE_STATUS]) == {
        "numaNodeResources": [{"node": 1, "resources": {"cpu": "1"}}],
        "cpuSharedPools": [{"socket": 1, "node": 1}],
    }


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (
            guaranteed("a", "2", annotations=spec(requiredCPUBindPolicy="SpreadByPCPUs")),
            "1 node(s) cpu bind policy conflicts with pod's required cpu bind policy: pod requires",
        ),
        (guaranteed("a", "3"), "1 node(s) requested cpus not multiple cpus per core: "),
        (
            guaranteed("a", "1500m", labels={keys.QOS_CLASS: "LSR"}),
            "1 the requested CPUs must be integer: pod requests 1500m.",
        ),
        (
            guaranteed("a", "8", labels={keys.QOS_CLASS: "LSE"}),
            "1 not enough cpus available to satisfy request: 8 CPUs",
        ),
        (
            guaranteed("a", "2", annotations=spec(preferredCPUBindPolicy="Full")),
            "resource-spec].preferredCPUBindPolicy: invalid value 'Full': use FullPCPUs, SpreadByPCPUs,",
        ),
    ],
)
def test_what_cannot_go_together_is_said_in_koordinators_words_and_in_plain_ones(
    asked: Pod, reason: str
) -> None:
    pools = PoolOptions(node_bind=BindPolicy.FULL_PCPUS)
    lab = CoreLab().has("n1", spec="core:4 smt:2", policy="pools", pools=pools)
    assert reason in why(lab.place(asked))
    assert lab.bound(guaranteed("b", "2")) == ["n1"]


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_a_pod_that_fits_no_numa_node_gets_koordinators_text(allocator: AllocatorName) -> None:
    lab = CoreLab().has("n1", spec="socket:2 core:4", policy="pools", pools=PoolOptions(allocator))
    together = {keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'}
    told = why(lab.place(guaranteed("a", "5", annotations=together)))
    assert "1 node(s) Insufficient NUMA Node resources" in told
    assert allocator == "koordinator" or "SingleNUMANode: 5 CPUs requested, at most" in told


def test_the_same_ask_from_another_namespace_is_another_matter() -> None:
    one = PodInfo.of(guaranteed("a", "2"))
    other = PodInfo.of(replace(one.pod, metadata=replace(one.pod.metadata, namespace="elsewhere", uid="u")))
    twin = PodInfo.of(replace(one.pod, metadata=replace(one.pod.metadata, name="b", uid="u")))
    assert one.shape == twin.shape != other.shape


def test_the_reasons_of_a_choice_travel_with_the_binding() -> None:
    lab = CoreLab("n1", spec="core:8")
    shown = lab.show(only_bind(lab.place(guaranteed("a", "2"))))
    assert "NUMA node 0" in translate.placement_reasons(shown.metadata.annotations)["main"]


def test_replicas_are_answered_alike_until_the_node_changes() -> None:
    """Asks of one shape share an answer, so each must still get CPUs of its own."""
    lab = CoreLab().has("n1", "n2", spec="core:8", reserved=CPUSet([0]))
    given = binds(lab.place(*(guaranteed(f"p{number}", "3") for number in range(4))))
    lanes = {(bind.node, str(bind.assignments["main"])) for bind in given}
    assert lanes == {("n1", "1-3"), ("n1", "4-6"), ("n2", "1-3"), ("n2", "4-6")}
    assert "(2 requested)" in why(lab.place(guaranteed("q", "2")))


def test_success_is_announced_once_whichever_news_comes_first() -> None:
    lab = CoreLab("n1", spec="core:8")
    bind = only_bind(lab.place(guaranteed("a", "2")))
    lab.show(bind)
    lab.tell(BindSucceeded(0, "uid-a"))
    assert [event.reason for event in events(lab.done)] == ["Scheduled"]


def test_pods_without_whole_cpus_are_bound_without_annotations() -> None:
    lab = CoreLab("n1", spec="core:8")
    bind = only_bind(lab.place(pod("a", container("x", "cpu=500m"))))
    assert bind.annotations == {}
    (event,) = events(lab.tell(BindSucceeded(0, "uid-a")))
    assert event.message == "Successfully assigned ns/a to n1"


def test_pods_placed_in_a_row_never_share_a_cpu() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    given = binds(lab.place(*(guaranteed(f"p{number}", "2") for number in range(3))))
    taken = [cpu for bind in given for cpus in bind.assignments.values() for cpu in cpus]
    assert len(given) == 3
    assert len(set(taken)) == 6


def test_pods_of_others_and_those_on_their_way_out_are_left_alone() -> None:
    lab = CoreLab("n1", spec="core:8")
    leaving = guaranteed("b", "1")
    leaving = replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert lab.place(guaranteed("a", "1", scheduler_name="default-scheduler"), leaving) == []
    assert lab.core.pending() == {}


def test_gated_pods_wait_until_their_gates_are_gone() -> None:
    lab = CoreLab("n1", spec="core:8")
    gated = guaranteed("a", "1", scheduling_gates=(SchedulingGate("g"),))
    assert lab.place(gated) == []
    assert lab.core.pending() == {"uid-a": "waiting for scheduling gates: g"}
    assert lab.bound(guaranteed("a", "1")) == ["n1"]


def test_without_nodes_the_pod_says_so_and_waits_for_one() -> None:
    lab = CoreLab()
    assert why(lab.place(guaranteed("a", "1"))) == "no nodes available to schedule pods"
    lab.has("n1", spec="core:8")
    assert lab.bound(seconds=1) == ["n1"]


def test_reasons_are_counted_and_said_as_kube_scheduler_says_them() -> None:
    lab = CoreLab()
    lab.has(node("full", 1), spec="core:8")
    lab.has(node("tainted", taints=(Taint("dedicated", "db", "NoSchedule"),)), spec="core:8")
    lab.has(node("cordoned", unschedulable=True), spec="core:8")
    lab.has(node("elsewhere", labels={"zone": "b"}), node("away", labels={"zone": "b"}), spec="core:8")
    lab.has(node("down", ready="False"), spec="core:8")
    lab.has(node("crowded", labels={"zone": "a"}, pods=0, memory="1Mi"), spec="core:8")
    picky = guaranteed("a", "2", node_selector={"zone": "a"})
    lab.has(node("full", 1, labels={"zone": "a"}))
    assert why(lab.place(picky)) == (
        "0/7 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, "
        "1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector, "
        "2 node(s) had untolerated taint(s)."
    )


def test_too_few_exclusive_cpus_is_a_reason_of_its_own() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0, 1]))
    assert why(lab.place(guaranteed("a", "7"))) == (
        "0/1 nodes are available: 1 node(s) had too few CPUs free for exclusive use (7 requested)."
    )


def test_exclusive_cpus_need_a_published_topology_and_shared_ones_do_not() -> None:
    lab = CoreLab("plain")
    assert "1 node(s) invalid CPU Topology: no NodeResourceTopology" in why(lab.place(guaranteed("a", "2")))
    assert lab.bound(pod("b", container("x", "cpu=1"))) == ["plain"]


def test_a_pod_with_an_invalid_annotation_stays_pending_and_others_are_placed() -> None:
    lab = CoreLab().has("n1", spec="core:8", policy="pools")
    broken = guaranteed("a", "2", annotations={keys.RESOURCE_SPEC: "{"})
    told = why(lab.place(broken))
    assert f"metadata.annotations[{keys.RESOURCE_SPEC}]: invalid value '{{': not a JSON object" in told
    assert lab.bound(guaranteed("b", "2")) == ["n1"]


def test_a_cpu_that_is_bound_takes_as_much_of_an_amplified_node_as_it_counts_for() -> None:
    pools = PoolOptions(amplification=Fraction(3, 2))
    lab = CoreLab().has(node("n1", 12), spec="core:8", policy="pools", pools=pools)
    assert lab.bound(guaranteed("four", "4")) == ["n1"]
    assert "1 Insufficient amplified cpu" in why(lab.place(guaranteed("five", "5")))
    assert lab.bound(pod("floats", container("x", "cpu=6"))) == ["n1"]
    assert "1 Insufficient amplified cpu" in why(lab.place(pod("more", container("x", "cpu=1m"))))


@pytest.mark.parametrize(("nodes", "detailed"), [(8, True), (9, False)])
def test_many_different_reasons_are_listed_without_details(nodes: int, detailed: bool) -> None:
    lab = CoreLab()
    for number in range(nodes):
        reserved = CPUSet(range(9 + number))
        lab.has(node(f"n{number}", 32), spec="core:32", policy="pools", reserved=reserved)
    told = why(lab.place(guaranteed("b", "24", labels={keys.QOS_CLASS: "LSE"})))
    assert ("24 CPUs requested" in told) is detailed
    if not detailed:
        assert told == f"0/{nodes} nodes are available: {nodes} not enough cpus available to satisfy request."


def test_labels_of_a_node_count_where_koordlet_publishes_and_as_soon_as_they_change() -> None:
    def labelled(labels: dict[str, str]) -> Node:
        return node("n1", labels=labels)

    lab = CoreLab()
    published = objects.topology("n1", objects.state("core:4 smt:2", policy="pools"))
    koordlets = {
        key: text
        for key, text in published.metadata.annotations.items()
        if key not in {keys.MACHINE, keys.CPU_ALLOCATIONS}
    }
    metadata = replace(published.metadata, annotations=koordlets, labels={})
    published = replace(published, metadata=metadata)
    only_full = labelled({keys.NODE_BIND_POLICY: "FullPCPUsOnly"})
    lab.tell(TopologyChanged(0, None, published))
    lab.has(only_full)
    three = guaranteed("a", "3", labels={keys.QOS_CLASS: "LSR"})
    assert "requested cpus not multiple cpus per core" in why(lab.place(three))
    lab.delete(three)
    wrong = labelled({keys.NODE_BIND_POLICY: "Full"})
    lab.has(wrong)
    again = replace(three, metadata=replace(three.metadata, name="b", uid="uid-b"))
    told = why(lab.place(again))
    assert f"metadata.labels[{keys.NODE_BIND_POLICY}]: invalid value 'Full'" in told
    lab.now += 600
    lab.has(labelled({}))
    assert set(lab.bound(guaranteed("c", "1", labels={keys.QOS_CLASS: "LSR"}))) == {"n1"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"affinity": Affinity(pod_affinity=REQUIRED)}, "1 node(s) didn't match pod affinity rules"),
        ({"affinity": Affinity(pod_affinity=msgspec.Raw(b"[]"))}, "cannot be read: Expected `object"),
        ({"topology_spread_constraints": msgspec.Raw(b'[{"topologyKey":"no","labelSelector":{}}]')},
         "1 node(s) didn't match pod topology spread constraints (missing required label)"),
        ({"topology_spread_constraints": msgspec.Raw(b'[{"whenUnsatisfiable":"No"}]')},
         "whenUnsatisfiable 'No' is unknown; use DoNotSchedule or ScheduleAnyway"),
        ({"topology_spread_constraints": msgspec.Raw(b'{"no":"list"}')}, "cannot be read"),
        ({"resource_claims": (PodResourceClaim("gpu"),)},
         "spec.resourceClaims (gpu): dynamic resource allocation is not supported"),
        ({"volumes": (Volume("data", ClaimSource("data")),)}, 'persistentvolumeclaim "data" not found'),
        ({"volumes": (Volume("x", ephemeral=EphemeralSource()),)},
         'waiting for ephemeral volume controller to create the persistentvolumeclaim "a-x"'),
    ],
)  # fmt: skip
def test_requirements_that_are_not_met_are_said(spec: dict[str, object], message: str) -> None:
    lab = CoreLab("n1", spec="core:8")
    assert message in why(lab.place(guaranteed("a", "1", **spec)))


def test_preferred_affinity_to_other_pods_is_ignored() -> None:
    lab = CoreLab("n1", spec="core:8")
    placement_spec = Affinity(
        pod_affinity=msgspec.Raw(b'{"preferredDuringSchedulingIgnoredDuringExecution":[{}]}'),
        pod_anti_affinity=msgspec.Raw(b"null"),
    )
    spread = msgspec.Raw(b'[{"whenUnsatisfiable":"ScheduleAnyway"}]')
    assert binds(lab.place(guaranteed("a", "1", affinity=placement_spec, topology_spread_constraints=spread)))


def test_an_invalid_pod_does_not_affect_others() -> None:
    lab = CoreLab("n1", spec="core:8")
    bad, good = pod("bad", container("x", "cpu=many")), guaranteed("good", "1")
    done = lab.place(bad, good)
    assert only_bind(done).pod.metadata.name == "good"
    assert "spec.containers[0].resources.requests.cpu: invalid value 'many'" in why(done)


def test_an_event_is_not_repeated_while_nothing_changes_but_the_condition_is_kept_right() -> None:
    lab = CoreLab().has(node("n1", 4), spec="core:8")
    assert "Insufficient cpu" in why(lab.place(guaranteed("a", "6")))
    for _ in range(10):
        lab.has(node("n1", 3), node("n1", 4))
        assert not events(lab.run(11))
    assert events(lab.run(301))


def test_a_new_reason_is_recorded_at_most_every_ten_seconds() -> None:
    lab = CoreLab().has(node("n1", 4), spec="core:8")
    lab.place(guaranteed("a", "6"))
    lab.has(node("n2", 8, unschedulable=True))
    soon = lab.run(2)
    assert [type(one) for one in soon] == [SetCondition]
    lab.has(node("n3", 8, unschedulable=True))
    later = lab.run(12)
    assert any("unschedulable" in event.message for event in events(later))


def test_a_condition_that_is_there_already_is_not_written_again() -> None:
    lab = CoreLab()
    text = "no nodes available to schedule pods"
    told = guaranteed("a", "1")
    condition = Condition("PodScheduled", "False", "Unschedulable", text)
    told = replace(told, status=replace(told.status, conditions=(condition,)))
    assert not conditions(lab.place(told))


def test_heartbeats_wake_no_pod_and_changes_wake_those_they_can_help() -> None:
    lab = CoreLab().has(node("n1", 4), spec="core:8")
    lab.place(guaranteed("a", "6"))
    lab.has(node("n1", 4, version="2"))
    assert lab.run(20) == []
    lab.has(node("n1", 8))
    assert binds(lab.run())


def test_the_end_of_a_pod_makes_room_once_its_agent_says_so() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    first = lab.show(only_bind(lab.place(guaranteed("a", "6"))))
    agent, decision = nodes.admit(lab.agents["n1"], translate.request(first))
    assert not decision.repicked
    lab.publish("n1", agent)
    assert binds(lab.place(guaranteed("b", "6"))) == []
    lab.seen(replace(first, status=replace(first.status, phase="Succeeded")))
    assert binds(lab.run(30)) == []
    lab.publish("n1", nodes.release(agent, "uid-a"))
    assert binds(lab.run(30))


def test_a_pod_deleted_by_force_counts_until_its_agent_has_released_it() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    first = lab.show(only_bind(lab.place(pod("a", container("main", "cpu=6")))))
    agent, _ = nodes.admit(lab.agents["n1"], translate.request(first))
    lab.publish("n1", agent)
    lab.delete(first)
    second = pod("b", container("main", "cpu=6"))
    assert nodes.admit(agent, translate.request(second))[1].reason == "OutOfcpu"
    assert binds(lab.place(second)) == []
    lab.publish("n1", nodes.release(agent, "uid-a"))
    assert binds(lab.run(30))


def test_a_claim_ends_with_its_pod() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    bind = only_bind(lab.place(guaranteed("a", "6")))
    assert binds(lab.place(guaranteed("b", "6"))) == []
    lab.delete(bind.pod)
    assert only_bind(lab.run(5)).assignments == bind.assignments
    assert lab.tell(BindSucceeded(lab.now, "uid-a")) == []


def test_when_the_agent_picked_otherwise_the_scheduler_follows() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    bind = only_bind(lab.place(guaranteed("a", "2")))
    lab.show(bind)
    other = translate.request(guaranteed("a", "2"))
    repicked = changed_value(other, proposal={"main": CPUSet([6, 7])})
    lab.publish("n1", nodes.admit(lab.agents["n1"], repicked)[0])
    second = only_bind(lab.place(guaranteed("b", "2")))
    assert second.assignments["main"].isdisjoint(CPUSet([6, 7]))
    third = only_bind(lab.place(guaranteed("c", "3")))
    taken = second.assignments["main"] | CPUSet([0, 6, 7])
    assert third.assignments["main"].isdisjoint(taken)


def test_a_rejected_binding_gives_its_cpus_back_and_is_tried_again() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    bind = only_bind(lab.place(guaranteed("a", "6")))
    done = lab.tell(BindFailed(0, "uid-a", "rejected", "no"))
    (condition,) = conditions(done)
    assert (condition.reason, condition.message) == ("SchedulerError", "binding rejected: no")
    assert lab.run(0.9) == []
    again = only_bind(lab.run(0.2))
    assert again.assignments == bind.assignments
    lab.tell(BindFailed(lab.now, "uid-a", "rejected", "no"))
    assert lab.run(1.9) == []
    assert binds(lab.run(0.2))


def test_a_binding_whose_fate_is_unknown_keeps_its_cpus_and_is_sent_again_as_it_was() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    bind = only_bind(lab.place(guaranteed("a", "4")))
    lab.tell(BindFailed(0, "uid-a", "unknown", "timeout"))
    assert binds(lab.place(guaranteed("b", "4"))) == []
    assert only_bind(lab.run(1)) == bind
    lab.tell(BindFailed(lab.now, "uid-a", "conflict", "already assigned"))
    lab.show(bind)
    assert binds(lab.run(600)) == []
    assert set(lab.core.pending()) == {"uid-b"}


def test_a_rejection_after_an_unknown_outcome_keeps_the_cpus_until_the_pod_is_seen_bound() -> None:
    lab = CoreLab().has("n1", spec="core:8", reserved=CPUSet([0]))
    bind = only_bind(lab.place(guaranteed("a", "4")))
    lab.tell(BindFailed(0, "uid-a", "unknown", "timeout"))
    assert only_bind(lab.run(1)) == bind
    lab.tell(BindFailed(lab.now, "uid-a", "rejected", "no"))
    assert binds(lab.place(guaranteed("b", "4"))) == []
    lab.show(bind)
    assert binds(lab.run(600)) == []
    assert set(lab.core.pending()) == {"uid-b"}


def looked_up(instructions: Iterable[Instruction]) -> Pod:
    (pod,) = [one.pod for one in instructions if isinstance(one, LookUpPod)]
    return pod


def test_a_rejection_after_an_unknown_outcome_is_given_up_once_the_server_shows_no_node() -> None:
    lab = CoreLab("n1", spec="core:8")
    lab.place(guaranteed("a", "4"))
    lab.tell(BindFailed(0, "uid-a", "unknown", "timeout"))
    assert binds(lab.run(1))
    lab.tell(BindFailed(lab.now, "uid-a", "rejected", "no"))
    assert lab.run(LATE_SECONDS - 2) == []
    unbound = looked_up(lab.run(1))
    done = lab.tell(PodLookedUp(lab.now, "uid-a", unbound))
    (condition,) = conditions(done)
    assert condition.message == "binding rejected: no"
    assert binds(lab.run(2))


def test_after_a_conflict_the_server_tells_where_the_pod_is() -> None:
    lab = CoreLab().has("n1", "n2", spec="core:8", reserved=CPUSet([0]))
    bind = only_bind(lab.place(guaranteed("a", "4")))
    done = lab.tell(BindFailed(0, "uid-a", "conflict", "already assigned"))
    pod = looked_up(done)
    record = translate.proposal_annotations({"main": CPUSet([4, 5, 6, 7])}, pod)
    metadata = replace(pod.metadata, annotations=record)
    other = replace(pod, metadata=metadata, spec=replace(pod.spec, node_name="n2"))
    assert lab.tell(PodLookedUp(1, "uid-a", other)) == []
    assert lab.core.cluster.node_of("uid-a") == "n2"
    lab.tell(PodChanged(2, bind.pod, bind.pod))
    assert binds(lab.run(600)) == [], "late news of the pod without a node does not queue it"
    lanes = {b.node: b.assignments["main"] for b in binds(lab.place(*(guaranteed(x, "3") for x in "bc")))}
    assert lanes == {"n1": CPUSet([1, 2, 3]), "n2": CPUSet([1, 2, 3])}


def test_after_a_conflict_without_a_node_the_claim_outlasts_every_late_request() -> None:
    lab = CoreLab("n1", spec="core:8")
    pod = lab.add(guaranteed("a", "4"))
    lab.run()
    lab.tell(BindFailed(0, "uid-a", "conflict", "changed"))
    (event,) = events(lab.tell(PodLookedUp(0, "uid-a", pod)))
    assert "binding to node n1: the outcome of a request is unknown" in event.message
    assert lab.run(LATE_SECONDS - 1) == []
    looked_up(lab.run(1))
    assert lab.tell(LookUpFailed(lab.now, "uid-a", "timeout")) == []
    looked_up(lab.run(1))
    lab.tell(PodLookedUp(lab.now, "uid-a", pod))
    assert binds(lab.run(2))


def test_a_pod_that_is_gone_after_a_conflict_keeps_no_cpus() -> None:
    lab = CoreLab("n1", spec="core:8")
    bind = only_bind(lab.place(guaranteed("a", "7")))
    lab.tell(BindFailed(0, "uid-a", "conflict", "uid differs"))
    lab.tell(PodLookedUp(0, "uid-a", None))
    lab.tell(PodChanged(0, bind.pod, bind.pod))
    assert only_bind(lab.place(guaranteed("b", "7")))
    lab.delete(bind.pod)
    assert set(lab.core.pending()) == {"uid-b"}


def test_a_throttled_binding_is_sent_again_when_the_server_says() -> None:
    lab = CoreLab("n1", spec="core:8")
    bind = only_bind(lab.place(guaranteed("a", "4")))
    lab.tell(BindFailed(0, "uid-a", "throttled", "too many requests", retry_after=7))
    assert lab.run(6.9) == []
    assert only_bind(lab.run(0.2)) is bind
    done = lab.tell(BindFailed(lab.now, "uid-a", "rejected", "no"))
    assert conditions(done), "it cannot be carried out late"


def test_an_unknown_binding_is_not_sent_again_to_a_deleted_node() -> None:
    lab = CoreLab("n1", spec="core:8")
    bind = only_bind(lab.place(guaranteed("a", "4")))
    lab.tell(BindFailed(0, "uid-a", "unknown", "timeout"))
    lab.lose("n1")
    lab.has(node("n2"), spec="core:8")
    pod = looked_up(lab.run(1))
    (event,) = events(lab.tell(PodLookedUp(lab.now, "uid-a", pod)))
    assert (event.type, event.reason) == ("Warning", "FailedScheduling")
    assert "binding to node n1 (deleted)" in event.message
    assert f"read again in {LATE_SECONDS - 1:.0f} s" in event.message
    looked_up(lab.run(LATE_SECONDS))
    lab.tell(PodLookedUp(lab.now, "uid-a", pod))
    assert lab.bound(seconds=2) == ["n2"]
    assert bind.node == "n1"


def test_a_binding_that_waits_to_be_sent_is_not_sent_to_a_deleted_node() -> None:
    lab = CoreLab("n1", spec="core:8")
    bind = only_bind(lab.place(guaranteed("a", "4")))
    assert lab.core.bindings.unsendable(bind) == ""
    lab.lose("n1")
    assert lab.core.bindings.unsendable(bind) == "node n1 was deleted"
    lab.delete(bind.pod)
    assert lab.core.bindings.unsendable(bind) == "pod ns/a no longer waits for this binding"


def test_a_failed_pre_bind_releases_the_claim_and_names_the_plugin() -> None:
    lab = CoreLab("n1", spec="core:8")
    lab.place(guaranteed("a", "4"))
    done = lab.tell(PreBindFailed(0, "uid-a", "VolumeBinding", "claim default/c: not bound after 600 s"))
    (condition,) = conditions(done)
    assert condition.message == (
        "running PreBind plugin 'VolumeBinding': claim default/c: not bound after 600 s"
    )
    assert binds(lab.run(2))


def test_pods_wait_where_the_last_node_was_deleted() -> None:
    lab = CoreLab("n1", spec="core:8")
    lab.tell(TopologyChanged(0, objects.topology("n1", objects.state("core:8")), None))
    lab.lose("n1")
    assert why(lab.place(guaranteed("a", "1"))) == "no nodes available to schedule pods"


def test_every_binding_names_its_scheduler_and_the_ledger_that_it_was_decided_on() -> None:
    lab = CoreLab("n1", spec="core:8", core=SchedulerCore(identity="replica-1"))
    exclusive = only_bind(lab.place(guaranteed("a", "2")))
    assert exclusive.annotations[keys.SCHEDULED_BY] == "replica-1"
    assert exclusive.annotations[keys.LEDGER_GENERATION] == "0"
    copied = pod("b", container("x", "cpu=1"), annotations={keys.SCHEDULED_BY: "other"})
    assert only_bind(lab.place(copied)).annotations == {keys.SCHEDULED_BY: "replica-1"}
