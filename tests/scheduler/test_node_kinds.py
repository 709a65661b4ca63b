"""Nodes of every kind, through the scheduler's core: who published the CPUs, and what follows for pods."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.meta import ObjectMeta
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod, PodStatus
from corelane.kube.translate import node_labels
from corelane.kube.translate.crane import CraneTopology
from corelane.kube.translate.koordlet import KubeletReport, PodCPUs
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.ledger import new, usable_topology
from corelane.node.zones.zone_state import fingerprint
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import (
    CycleDue,
    ObjectChanged,
    TopologyChanged,
)
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, Instruction, RecordNodeEvent
from corelane.scheduler.plugins import default
from corelane.scheduler.plugins.cpu_scores import NodeResourceTopologyMatch, NUMALocality
from corelane.scheduler.plugins.node_resources import CPUPlacement
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAPolicy, NUMAStrategy, SchedulerDefaults
from support import objects
from support.core_lab import CoreLab, binds, conditions, events, names, only_bind, profile_with
from support.pods import container, guaranteed, pod

OURS = "corelane-scheduler"
SINGLE = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "container"}
FINGERPRINT = "nodeTopologyPodsFingerprint"


class Lab(CoreLab):
    """Nodes of 256 GiB, and the NodeResourceTopologies that anybody published for them."""

    def __init__(
        self,
        *names: str,
        cpus: int = 64,
        defaults: SchedulerDefaults | None = None,
        profile: Profile | None = None,
        **more: Any,
    ) -> None:
        if defaults:
            profile = Profile(plugins=default.plugins(), defaults=defaults)
        nodes = (objects.node(name, cpus, memory="256Gi", **more) for name in names or ("n",))
        super().__init__(*nodes, core=SchedulerCore(profile=profile))
        self.published: dict[str, NodeResourceTopology] = {}

    def shows(self, *topologies: NodeResourceTopology) -> "Lab":
        for obj in topologies:
            name = obj.metadata.name
            self.now += 1
            self.tell(TopologyChanged(self.now, self.published.get(name), obj))
            self.published[name] = obj
        return self

    def binds(self, pod: Pod) -> Bind:
        """Place the pod; the API server accepts the binding."""
        bind = only_bind(self._tried(pod))
        self.accept(bind)
        return bind

    def cpus(self, pod: Pod) -> str:
        """Place the pod, and return the CPUs of its container."""
        return str(self.binds(pod).assignments["main"])

    def refuses(self, pod: Pod) -> str:
        """Fail to place the pod, and return why."""
        done = self._tried(pod)
        assert not binds(done)
        return conditions(done)[0].message

    def answers(self, pod: Pod) -> str:
        """Place the pod or not: why not, or an empty text."""
        done = self._tried(pod)
        return "" if [self.accept(bind) for bind in binds(done)] else conditions(done)[0].message

    def _tried(self, pod: Pod) -> list[Instruction]:
        self.now += 1
        self.add(pod)
        self.now += 400
        return self.tell(CycleDue(self.now))

    def starts(self, name: str) -> None:
        pod = self.pods[f"uid-{name}"]
        self.seen(replace(pod, status=PodStatus(phase="Running")))

    def node(self, name: str = "n") -> NodeInfo:
        return super().node(name)


LSR = {keys.QOS_CLASS: "LSR"}


def lsr(name: str, cpus: str, annotations: Mapping[str, str] | None = None, label: str = "LSR") -> Pod:
    return guaranteed(name, cpus, labels={keys.QOS_CLASS: label}, annotations=annotations, priority=9500)


def shared(name: str = "shared", cpu: str = "500m") -> Pod:
    return pod(name, container("main", f"cpu={cpu}", ""))


def zones(
    *available: Mapping[str, object],
    name: str = "n",
    attributes: Mapping[str, str] = SINGLE,
    policies: tuple[str, ...] = (),
    annotations: Mapping[str, str] | None = None,
) -> NodeResourceTopology:
    """What NFD's topology-updater publishes."""
    obj = {
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "topologyPolicies": policies,
        "attributes": [{"name": key, "value": text} for key, text in attributes.items()],
        "zones": [
            {
                "name": f"node-{index}",
                "type": "Node",
                "resources": [
                    {"name": key, "capacity": "64", "allocatable": "64", "available": str(amount)}
                    for key, amount in amounts.items()
                ],
            }
            for index, amounts in enumerate(available)
        ],
    }
    return msgspec.convert(obj, NodeResourceTopology)


def koordlets(spec: str = "socket:2 numa:1 core:4 smt:2", **annotations: str) -> NodeResourceTopology:
    machine = parse_spec(spec, name="n")
    full = translate.topology(machine, "n", new(machine, NodeConfig("pools")))
    theirs = {keys.CPU_TOPOLOGY: full["metadata"]["annotations"][keys.CPU_TOPOLOGY]}
    meta = {"name": "n", "labels": {keys.MANAGED_BY: "Koordinator"}, "annotations": theirs | annotations}
    return msgspec.convert({"metadata": meta, "zones": full["zones"]}, NodeResourceTopology)


FOUR = {"cpu": 4, "memory": "8Gi"}


# Zones of other exporters.


def test_zones_only_are_valid_and_bindings_to_them_name_no_cpus() -> None:
    lab = Lab().shows(zones(FOUR, FOUR))
    bind = lab.binds(guaranteed("a", "4"))
    assert (bind.assignments, dict(bind.annotations)) == ({}, {})
    assert (lab.node().cpus.kind, lab.node().problem) == (NodeKind.ZONES, "")


def test_a_container_that_no_zone_holds_is_refused_with_the_zones() -> None:
    lab = Lab().shows(zones(FOUR, {"cpu": "3500m", "memory": "8Gi"}))
    assert lab.refuses(guaranteed("a", "6")) == (
        "0/1 nodes are available: 1 cannot align container: container main requests 6000m cpu, available by "
        "NUMA node: 0: 4000m, 1: 3500m (policy single-numa-node). "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_a_refusal_names_memory_with_its_unit() -> None:
    lab = Lab().shows(zones({"cpu": 4, "memory": "512Mi"}, {"cpu": 4}))
    told = lab.refuses(guaranteed("a", "1", memory="1Gi"))
    assert "container main requests 1Gi memory, available by NUMA node: 0: 512Mi (policy" in told


def test_scope_pod_needs_one_zone_for_all_containers() -> None:
    two = (container("a", "cpu=3 memory=1Gi"), container("b", "cpu=3 memory=1Gi"))
    by_container, by_pod = Lab(), Lab()
    by_container.shows(zones(FOUR, FOUR))
    by_pod.shows(zones(FOUR, FOUR, attributes=SINGLE | {"topologyManagerScope": "pod"}))
    by_container.binds(pod("p", *two))
    assert "cannot align pod: pod requests 6000m cpu" in by_pod.refuses(pod("p", *two))


@pytest.mark.parametrize(
    ("attributes", "policies", "fits"),
    [
        ({}, ("SingleNUMANodeContainerLevel",), True),
        ({}, ("SingleNUMANodePodLevel",), False),
        ({"topologyManagerScope": "pod"}, ("SingleNUMANodeContainerLevel",), False),
        ({"topologyManagerScope": "pods"}, ("SingleNUMANodeContainerLevel",), True),
        ({"topologyManagerPolicy": "none"}, ("SingleNUMANodePodLevel",), True),
        ({"topologyManagerPolicy": "single-numa-node"}, ("RestrictedPodLevel",), False),
        ({}, ("RestrictedPodLevel", "SingleNUMANodePodLevel"), True),
    ],
)
def test_each_attribute_overrides_the_deprecated_policies(attributes, policies, fits) -> None:
    lab = Lab().shows(zones(FOUR, FOUR, attributes=attributes, policies=policies))
    two = (container("a", "cpu=3 memory=1Gi"), container("b", "cpu=3 memory=1Gi"))
    assert (not lab.answers(pod("p", *two))) is fits


def test_an_invalid_attribute_is_a_problem_and_counts_as_absent() -> None:
    lab = Lab().shows(zones(FOUR, attributes=SINGLE | {"topologyManagerScope": "pods"}))
    why = "topologyManagerScope must be container or pod; it is ignored"
    assert lab.node().problem == f"attributes[1].value: invalid value 'pods': {why}"
    lab.binds(guaranteed("a", "4"))


def test_an_invalid_amount_is_damage_to_that_node_alone() -> None:
    lab = Lab("n", "good").shows(zones({"cpu": "four"}), zones(FOUR, name="good"))
    assert lab.node().cpus.kind is NodeKind.DAMAGED
    assert lab.node().problem.startswith("zones[0].resources[0].available: invalid value 'four': quantities")
    assert lab.binds(guaranteed("a", "4")).node == "good"


@pytest.mark.parametrize("requests", ["cpu=1e18", "cpu=1 memory=1e30", "cpu=1 vendor/nic=1e25"])
def test_requests_that_no_machine_has_end_nothing(requests) -> None:
    lab = Lab("n", "good").shows(zones(FOUR), objects.topology("good", objects.state("core:8", "good")))
    huge = pod("bound", container("main", requests))
    lab.seen(replace(huge, spec=replace(huge.spec, node_name="n")))
    assert "Insufficient" in lab.refuses(pod("huge", container("main", requests)))
    lab.binds(guaranteed("a", "1"))


@pytest.mark.parametrize("amount", ["1e30", "9" * 60, "-1e30", "1n"])
def test_amounts_that_no_machine_has_end_nothing(amount) -> None:
    lab = Lab().shows(zones({"cpu": amount, "memory": "8Gi"}, FOUR))
    lab.binds(guaranteed("a", "4"))
    lab.tell(ObjectChanged(0, None, cranes(10**40)))
    lab.tell(TopologyChanged(lab.now, lab.published["n"], None))
    lab.binds(guaranteed("b", "4"))


def test_pods_that_are_not_counted_yet_are_taken_off_every_zone() -> None:
    lab = Lab().shows(zones(FOUR, FOUR))
    lab.binds(guaranteed("a", "3"))
    assert "0: 1000m, 1: 1000m" in lab.refuses(guaranteed("b", "2"))
    lab.starts("a")
    lab.shows(zones({"cpu": 1, "memory": "7Gi"}, FOUR))
    lab.binds(guaranteed("c", "4"))


def test_an_object_counts_the_pods_of_its_fingerprint() -> None:
    def published(*names: str, free: int = 4) -> NodeResourceTopology:
        text = fingerprint(("ns", name) for name in names)
        return zones({"cpu": free, "memory": "8Gi"}, FOUR, attributes=SINGLE | {FINGERPRINT: text})

    lab = Lab().shows(published())
    lab.binds(guaranteed("a", "3"))
    lab.starts("a")
    lab.shows(published())
    assert "cannot align" in lab.refuses(guaranteed("b", "4"))
    lab.delete("b")
    lab.shows(published("a", free=1))
    lab.binds(guaranteed("c", "4"))


def test_an_object_that_knows_more_pods_waits_until_they_are_seen() -> None:
    text = fingerprint([("ns", "a"), ("ns", "foreign")])
    lab = Lab().shows(zones(FOUR, FOUR, attributes=SINGLE | {FINGERPRINT: fingerprint([])}))
    lab.binds(guaranteed("a", "1"))
    lab.starts("a")
    lab.shows(zones({"cpu": 0}, FOUR, attributes=SINGLE | {FINGERPRINT: text}))
    assert "0: 3000m, 1: 3000m" in lab.refuses(guaranteed("b", "4"))
    lab.delete("b")
    lab.seen(guaranteed("foreign", "3", node="n", phase="Running"))
    lab.binds(guaranteed("c", "4"))


def test_pods_that_ran_before_the_scheduler_are_counted() -> None:
    lab = Lab().shows(zones({"cpu": 1, "memory": "8Gi"}, FOUR))
    lab.seen(guaranteed("old", "3", node="n", phase="Running"))
    lab.binds(guaranteed("new", "4"))


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ({}, "large"),
        ({"scoringStrategy": {"type": "LeastAllocated"}}, "large"),
        (
            {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]}},
            "small",
        ),
        (
            {"scoringStrategy": {"type": "BalancedAllocation"}, "cache": {"resyncMethod": "Autodetect"}},
            "large",
        ),
    ],
)
def test_nodes_are_ordered_by_upstreams_strategy(arguments, chosen) -> None:
    plugin = NodeResourceTopologyMatch.of(**arguments)
    weights = {one.name: 0.0 for one in default.plugins()} | {plugin.name: 1.0}
    lab = Lab("small", "large", profile=Profile(plugins=profile_with(plugin).plugins, weights=weights))
    for name, cpus in (("small", 3), ("large", 32)):
        lab.shows(zones({"cpu": cpus, "memory": "64Gi"}, name=name))
    assert lab.binds(guaranteed("a", "2", memory="4Gi")).node == chosen


def test_a_victim_that_zones_count_frees_no_zone_one_that_they_do_not_count_frees_all() -> None:
    def lab() -> Lab:
        made = Lab(cpus=16)
        made.shows(zones({"cpu": 4, "memory": "64Gi"}, {"cpu": 4, "memory": "64Gi"}))
        made.binds(guaranteed("low", "3"))
        return made

    high = guaranteed("high", "4", priority=10)
    counted, uncounted = lab(), lab()
    counted.starts("low")
    counted.shows(zones({"cpu": 1, "memory": "64Gi"}, {"cpu": 1, "memory": "64Gi"}))
    assert "preemption: 0/1 nodes are available: 1 cannot align" in counted.refuses(high)
    assert uncounted.core.cluster.nominations.of("uid-high") == ""
    uncounted.refuses(high)
    assert uncounted.core.cluster.nominations.of("uid-high") == "n"


RESTRICTED = {"topologyManagerPolicy": "restricted"}


def test_a_node_whose_zones_do_not_hold_the_pod_is_the_worst() -> None:
    lab = Lab("a", "b", cpus=16)
    for name in ("a", "b"):
        eight = {"cpu": 8, "memory": "64Gi"}
        lab.shows(zones(eight, eight, name=name, attributes=RESTRICTED))
    assert {lab.binds(guaranteed(name, cpus)).node for name, cpus in (("five", "5"), ("nine", "9"))} == {
        "a",
        "b",
    }


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=2, max_size=4),
    st.integers(1, 12),
)
def test_fewer_numa_nodes_never_score_lower_and_none_that_hold_the_pod_score_0(
    nodes: list[list[int]], cpus: int
) -> None:
    def spans(free: list[int]) -> int:
        """The fewest zones that together have the CPUs; more than there are where all have too few."""
        most = sorted(free, reverse=True)
        return next((n for n in range(1, len(most) + 1) if sum(most[:n]) >= cpus), 9)

    plugin = NUMALocality()
    lab = Lab(*(f"n{number}" for number in range(len(nodes))))
    for number, free in enumerate(nodes):
        offered = [{"cpu": amount, "memory": "64Gi"} for amount in free]
        lab.shows(zones(*offered, name=f"n{number}", attributes=RESTRICTED))
    cycle, _, _ = finalists.begin(lab.core.profile, lab.core.cluster, PodInfo.of(guaranteed("p", str(cpus))))
    scores = []
    for number, free in enumerate(nodes):
        node = lab.node(f"n{number}")
        CPUPlacement().filter(cycle, node)
        scores.append((spans(free), plugin.score(cycle, node)))
    expected = [0 if span == 9 else 100 / span for span, _ in scores]
    assert [score for _, score in scores] == pytest.approx(expected)
    rows = np.array([lab.node(f"n{number}").row for number in range(len(nodes))])
    bounds = plugin.scores(cycle, lab.core.cluster.columns, rows)
    assert all(bound >= score for bound, (_, score) in zip(bounds.tolist(), scores, strict=True))


@pytest.mark.parametrize(
    "arguments",
    [{"scoringStrategy": {"type": "Best"}}, {"scoringStrategy": {"resources": ["cpu"]}}],
)
def test_arguments_of_the_strategy_are_checked(arguments) -> None:
    with pytest.raises(ValueError, match="scoringStrategy"):
        NodeResourceTopologyMatch.of(**arguments)


def test_a_class_that_the_kubelet_does_not_know_stays_off_zones() -> None:
    lab = Lab().shows(zones(FOUR))
    burstable = pod("p", container("main", "cpu=2", ""), labels=LSR, priority=9500)
    assert "LSR needs exclusive CPUs, which the kubelet gives to Guaranteed pods" in lab.refuses(burstable)


# koordlet.


def recorded(name: str, cpus: str, record: Mapping[str, str] | None = None, **more: Any) -> Pod:
    annotations = {keys.RESOURCE_STATUS: json.dumps({"cpuset": cpus})} | dict(record or {})
    return guaranteed(name, "4", node="n", phase="Running", annotations=annotations, **more)


@pytest.mark.parametrize("labels", [{}, {keys.QOS_CLASS: "LS"}, {keys.QOS_CLASS: "LSR"}])
@pytest.mark.parametrize(
    "on_node",
    [{}, {keys.RESERVATION: '{"reservedCPUs":"0-3"}'}, {keys.AMPLIFICATION: '{"cpu":1.5}'}],
)
def test_recorded_cpus_of_bound_pods_are_never_proposed_again(labels, on_node) -> None:
    lab = Lab().shows(koordlets("core:16", **on_node))
    lab.seen(recorded("old", "0-3", labels=labels))
    assert lab.cpus(lsr("a", "4", label="LSE")) == "4-7"
    if binds(second := lab.place(lsr("b", "4", label="LSE"))):
        assert str(only_bind(second).assignments["main"]) == "8-11"


def damaged(one: Pod) -> Pod:
    annotations = {**one.metadata.annotations, keys.RESOURCE_STATUS: "{"}
    return replace(one, metadata=replace(one.metadata, annotations=annotations))


def test_a_bound_pod_whose_cpus_cannot_be_read_has_one_event() -> None:
    lab = Lab()
    broken = guaranteed("a", "2", node="n", annotations={keys.RESOURCE_STATUS: "{"}, labels=LSR)
    started = replace(broken, status=PodStatus(phase="Running"))
    first, *later = (events(lab.seen(pod)) for pod in (broken, started, recorded("b", "2-5")))
    assert later == [[], []]
    (event,) = first
    assert (event.type, event.reason) == ("Warning", "CPUsUnknown")
    assert event.message.startswith(
        f"CPUs of the pod cannot be read: metadata.annotations[{keys.RESOURCE_STATUS}]"
    )


def test_a_bound_pod_keeps_its_cpus_when_its_record_becomes_unreadable() -> None:
    lab = Lab().shows(koordlets("core:16"))
    lab.seen(recorded("old", "0-3", labels=LSR))
    lab.seen(damaged(lab.pods["uid-old"]))
    assert lab.cpus(lsr("new", "4")) == "4-7"


def test_exclusive_pods_stay_off_a_node_with_a_pod_whose_cpus_were_never_readable() -> None:
    lab = Lab().shows(koordlets("core:16"))
    lab.seen(damaged(recorded("old", "0-3", labels=LSR, priority=9500)))
    lab.binds(shared("shared"))
    assert "1 node(s) had pod ns/old with unreadable CPUs" in lab.refuses(lsr("new", "4"))
    lab.delete("old")
    assert names(lab.run(400)) == ["new"]


def test_bindings_go_in_order_to_kubelets_that_allocate_cpus() -> None:
    static = {keys.CPU_MANAGER_POLICY: '{"policy": "static", "reservedCPUs": "0"}'}
    orders = []
    for published in (koordlets(**static), koordlets(), zones(FOUR)):
        lab = Lab().shows(published)
        orders.append([lab.binds(pod).in_order for pod in (guaranteed("a", "2"), shared("b"))])
    assert orders == [[True, False], [False, False], [False, False]]


def test_container_cpusets_win_over_resource_status() -> None:
    lab = Lab().shows(koordlets("core:16"))
    lab.seen(recorded("old", "4-7", record={keys.CONTAINER_CPUSETS: '{"main":"0-3"}'}))
    assert lab.cpus(lsr("new", "4")) == "4-7"


@pytest.mark.parametrize(
    ("defaults", "cpus"),
    [
        (SchedulerDefaults(), "0,8"),
        (SchedulerDefaults(bind=BindPolicy.SPREAD_BY_PCPUS), "0-1"),
        (SchedulerDefaults(strategy=NUMAStrategy.MOST_ALLOCATED), "4,12"),
    ],
)
def test_a_profiles_defaults_hold_for_pods_that_do_not_say(defaults, cpus) -> None:
    lab = Lab(defaults=defaults).shows(koordlets())
    lab.seen(recorded("old", "5,13"))
    assert lab.cpus(lsr("a", "2")) == cpus


def test_a_topology_policy_none_of_node_or_pod_comes_before_the_profiles_default() -> None:
    own = {keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"None"}'}
    verdicts = []
    for labels, annotations in (({}, {}), ({keys.NODE_NUMA_POLICY: "None"}, {}), ({}, own)):
        for published in (koordlets(), of_agent(labels)):
            lab = Lab(labels=labels, defaults=SchedulerDefaults(numa=NUMAPolicy.SINGLE_NUMA_NODE))
            verdicts.append(not lab.shows(published).answers(lsr("a", "10", annotations)))
    assert verdicts == [False, False, True, True, True, True]


def of_agent(labels: Mapping[str, str]) -> NodeResourceTopology:
    """What corelane's agent publishes on a Node with these labels."""
    machine = parse_spec("socket:2 numa:1 core:4 smt:2", name="n")
    cpus = usable_topology(machine)
    options = node_labels.pool_options(
        node_labels.node_labels(labels, {}), KubeletSettings(), PoolOptions(), cpus
    )
    return objects.topology("n", new(machine, NodeConfig("pools", pools=options)))


@pytest.mark.parametrize(("own", "cpus"), [("", "3"), ("Default", "3"), ("PCPULevel", "3"), ("None", "2")])
@pytest.mark.parametrize("published", [koordlets("core:2 smt:2"), None])
def test_a_pod_without_exclusivity_by_its_own_word_comes_before_the_profiles_default(
    published, own, cpus
) -> None:
    def spec(policy: str) -> dict[str, str]:
        return {keys.RESOURCE_SPEC: json.dumps({"preferredCPUExclusivePolicy": policy})}

    defaults = SchedulerDefaults(bind=BindPolicy.SPREAD_BY_PCPUS, exclusive_policy=ExclusivePolicy.PCPU_LEVEL)
    lab = Lab(defaults=defaults).shows(published or with_allocator_of_koordinator())
    policies = (("a", "PCPULevel"), ("b", "None"), ("c", own))
    assert [lab.cpus(lsr(name, "1", spec(policy))) for name, policy in policies] == ["0", "1", cpus]


@pytest.mark.parametrize(
    ("default_", "of_node", "own", "zone"),
    [
        (None, None, "", 0),
        ("MostAllocated", None, "", 1),
        ("MostAllocated", "LeastAllocated", "", 0),
        ("LeastAllocated", "MostAllocated", "", 1),
        ("MostAllocated", "MostAllocated", "LeastAllocated", 0),
    ],
)
def test_the_profiles_numa_strategy_holds_for_pods_in_the_shared_pool_of_one_numa_node(
    default_, of_node, own, zone
) -> None:
    """NUMA node 1 has 4 CPUs taken; the pod is confined to the shared pool of one."""
    lab = Lab(cpus=16, defaults=SchedulerDefaults(strategy=NUMAStrategy(default_) if default_ else None))
    options = PoolOptions(strategy=NUMAStrategy(of_node) if of_node else None)
    state = objects.state("socket:2 core:8", "n", policy="pools", reserved=CPUSet([0]), pools=options)
    lab.shows(objects.topology("n", state))
    lab.seen(recorded("old", "8-11"))
    spec = {keys.RESOURCE_SPEC: '{"requiredCPUBindPolicy":"ConstrainedBurst"}'}
    spec |= {keys.NUMA_TOPOLOGY_SPEC: json.dumps({"numaAllocateStrategy": own})}
    labels = {keys.QOS_CLASS: "LS"}
    bind = lab.binds(pod("a", container("main", "cpu=1", "cpu=2"), labels=labels, annotations=spec))
    (pool,) = json.loads(bind.annotations[keys.RESOURCE_STATUS])["cpuSharedPools"]
    assert pool["node"] == zone


def with_allocator_of_koordinator() -> NodeResourceTopology:
    """A ledger without reserved CPUs."""
    options = PoolOptions(allocator="koordinator", be_minimum=0)
    machine = parse_spec("core:2 smt:2", name="n")
    config = NodeConfig("pools", pools=options)
    return objects.topology("n", dataclasses.replace(new(machine, config), reserved=CPUSet()))


# A kubelet's static policy, as koordlet reports it.

STATIC = {keys.CPU_MANAGER_POLICY: '{"policy":"static","options":{},"reservedCPUs":"0"}'}


def test_a_static_kubelet_is_replayed_and_no_ids_are_written() -> None:
    lab = Lab(cpus=16)
    obj = koordlets(**STATIC)
    lab.shows(replace(obj, topology_policies=("SingleNUMANodeContainerLevel",)))
    first, second = lab.binds(guaranteed("a", "6")), lab.binds(guaranteed("b", "8"))
    assert (dict(first.annotations), first.assignments, second.assignments) == ({}, {}, {})
    assert "too few CPUs free" in lab.refuses(guaranteed("c", "2"))
    assert lab.node().cpus.kind is NodeKind.KUBELET_REPLAY
    lab.binds(shared(cpu="1"))


def test_a_replay_knows_the_kubelets_options_and_pods() -> None:
    policy = '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0,8"}'
    allocs = '[{"namespace":"ns","name":"x","uid":"u","cpuset":"1-7,9-15","managedByKubelet":true}]'
    lab = Lab(cpus=16).shows(
        koordlets("core:8 smt:2", **{keys.CPU_MANAGER_POLICY: policy, keys.POD_CPU_ALLOCS: allocs})
    )
    assert "SMT Alignment Error" in lab.refuses(guaranteed("odd", "3"))
    assert "SMT Alignment Error: not enough free physical CPUs" in lab.refuses(guaranteed("more", "2"))


def test_a_ledger_beside_a_static_kubelet_is_replayed_too() -> None:
    machine = parse_spec("core:8", name="n")
    settings_ = KubeletSettings("static", {}, CPUSet([0]), "single-numa-node", "container")
    report = KubeletReport(settings_, (PodCPUs("ns", "x", "u", CPUSet.parse("1-4")),))
    body = translate.topology(machine, "n", new(machine, NodeConfig("none")), kubelet=report)
    lab = Lab().shows(msgspec.convert(body, NodeResourceTopology))
    assert lab.node().cpus.kind is NodeKind.KUBELET_REPLAY
    bind = lab.binds(guaranteed("a", "3"))
    assert dict(bind.annotations) == {}
    assert "too few CPUs free" in lab.refuses(guaranteed("b", "1"))


FULL = {
    keys.CPU_MANAGER_POLICY: '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0"}'
}


def requiring(name: str, cpus: str, policy: str, numa: str = "") -> Pod:
    annotations = {keys.RESOURCE_SPEC: json.dumps({"requiredCPUBindPolicy": policy})}
    if numa:
        annotations[keys.NUMA_TOPOLOGY_SPEC] = json.dumps({"numaTopologyPolicy": numa})
    labels = {keys.QOS_CLASS: "LSR"}
    return guaranteed(name, cpus, labels=labels, annotations=annotations, priority=9500)


@pytest.mark.parametrize("policy", ["FullPCPUs", "SpreadByPCPUs"])
def test_without_smt_a_static_kubelet_meets_every_bind_policy(policy: str) -> None:
    lab = Lab(cpus=16).shows(koordlets("socket:2 numa:1 core:8 smt:1", **STATIC))
    lab.binds(requiring("p", "3", policy))


@pytest.mark.parametrize(
    ("options", "pod", "why"),
    [
        (FULL, requiring("p", "4", "FullPCPUs"), ""),
        (FULL, requiring("p", "5", "FullPCPUs"), "SMT Alignment Error"),
        (FULL, requiring("p", "4", "SpreadByPCPUs"), "bind policy conflicts with pod's required"),
        (STATIC, requiring("p", "4", "FullPCPUs"), ""),
        (
            STATIC,
            requiring("p", "4", "SpreadByPCPUs"),
            "insufficient CPUs to satisfy required cpu bind policy",
        ),
        (STATIC, requiring("p", "10", "FullPCPUs", "SingleNUMANode"), "node(s) Insufficient NUMA"),
        (STATIC, requiring("p", "6", "FullPCPUs", "SingleNUMANode"), ""),
    ],
)
def test_what_a_pod_requires_must_be_what_the_kubelet_will_do(options, pod, why) -> None:
    lab = Lab(cpus=16).shows(koordlets(**options))
    answer = lab.answers(pod)
    assert why in answer if why else not answer


@pytest.mark.parametrize(
    ("label", "member", "policy", "why"),
    [
        ("FullPCPUsOnly", "preferredCPUBindPolicy", "SpreadByPCPUs", ""),
        ("FullPCPUsOnly", "requiredCPUBindPolicy", "SpreadByPCPUs", "cpu bind policy conflicts"),
        ("FullPCPUsOnly", "requiredCPUBindPolicy", "FullPCPUs", ""),
        ("SpreadByPCPUs", "requiredCPUBindPolicy", "FullPCPUs", "cpu bind policy conflicts"),
        ("SpreadByPCPUs", "preferredCPUBindPolicy", "FullPCPUs", ""),
    ],
)
def test_bind_policies_of_koordlets_node_and_pod_meet_as_in_koordinators_code(
    label, member, policy, why
) -> None:
    lab = Lab().shows(koordlets("socket:2 numa:1 core:4 smt:2"))
    lab.has(objects.node("n", 64, labels={keys.NODE_BIND_POLICY: label}))
    spec = {keys.RESOURCE_SPEC: json.dumps({member: policy})}
    labels = {keys.QOS_CLASS: "LSR"}
    answer = lab.answers(guaranteed("p", "4", labels=labels, annotations=spec, priority=9500))
    assert why in answer if why else not answer


def test_the_amplification_ratio_on_a_koordlets_node_counts_as_soon_as_it_changes() -> None:
    lab = Lab(cpus=64)
    lab.shows(koordlets("socket:2 numa:1 core:8 smt:2"))
    lab.seen(recorded("old", "0-3"))
    ratio = {keys.AMPLIFICATION: '{"cpu":2}'}
    lab.change("n", metadata=replace(lab.nodes["n"].metadata, annotations=ratio))
    lab.binds(guaranteed("shared", "20"))
    assert "Insufficient amplified cpu" in lab.refuses(lsr("bound", "20"))


def test_koordinator_binds_the_last_cpus_too() -> None:
    lab = Lab().shows(koordlets("core:4 smt:2"))
    bind = lab.binds(lsr("all", "8"))
    assert len(bind.assignments["main"]) == 8


@pytest.mark.parametrize(
    ("cpus", "why"), [("5", "not multiple cpus per core"), ("5200m", "must be integer"), ("4", "")]
)
def test_a_bind_policy_of_koordlets_node_binds_every_pod_with_a_cpu_request(cpus, why) -> None:
    lab = Lab().shows(koordlets("core:8 smt:2"))
    lab.has(objects.node("n", 64, memory="256Gi", labels={keys.NODE_BIND_POLICY: "FullPCPUsOnly"}))
    if why:
        assert why in lab.refuses(shared(cpu=cpus))
        return
    first, second = (lab.binds(shared(name, cpus)).assignments["main"] for name in "pq")
    assert len(first) == len(second) == 4
    assert not first & second


def test_an_option_that_no_replay_knows_is_damage_with_its_name() -> None:
    lab = Lab()
    text = '{"policy":"static","options":{"new-option":"true"},"reservedCPUs":"0"}'
    lab.shows(koordlets(**{keys.CPU_MANAGER_POLICY: text}))
    assert lab.node().cpus.kind is NodeKind.DAMAGED
    assert 'unknown CPU Manager Policy option: "new-option"' in lab.node().problem


# gocrane.


def cranes(*milli: int, policy: str = "Static", aware: str = "SingleNUMANodePodLevel") -> CraneTopology:
    obj = {
        "metadata": {"name": "n"},
        "craneManagerPolicy": {"cpuManagerPolicy": policy, "topologyManagerPolicy": aware},
        "zones": [
            {
                "name": f"node{index}",
                "type": "Node",
                "resources": {"capacity": {"cpu": "16"}, "allocatable": {"cpu": f"{free}m"}},
            }
            for index, free in enumerate(milli)
        ],
    }
    return msgspec.convert(obj, CraneTopology)


def crane_lab(obj: CraneTopology) -> Lab:
    lab = Lab()
    lab.tell(ObjectChanged(0, None, obj))
    return lab


def result(bind: Bind) -> dict[str, str]:
    """CPUs by zone that the binding tells gocrane's agent."""
    listed = json.loads(bind.annotations.get(keys.CRANE_RESULT, "[]"))
    return {zone["name"]: zone["resources"]["capacity"]["cpu"] for zone in listed}


def test_gocranes_agent_gets_the_numa_nodes_in_its_own_annotation() -> None:
    lab = crane_lab(cranes(4000, 6500))
    bind = lab.binds(guaranteed("a", "4"))
    assert bind.annotations == {
        keys.CRANE_RESULT: '[{"name":"node1","type":"Node","resources":{"capacity":{"cpu":"4"}}}]'
    }
    assert result(lab.binds(guaranteed("b", "3"))) == {"node0": "3"}
    told = lab.refuses(guaranteed("c", "3"))
    assert "node(s) had insufficient resource of NUMA node: 3 CPUs requested" in told
    assert "free by NUMA node: 0: 1000m, 1: 2500m" in told
    lab.delete("a")
    lab.delete("c")
    assert result(lab.binds(guaranteed("d", "6"))) == {"node1": "6"}


def test_a_pod_or_node_that_is_not_aware_may_span_numa_nodes() -> None:
    lab = crane_lab(cranes(2500, 3900, aware="None"))
    assert result(lab.binds(guaranteed("a", "5"))) == {"node0": "2", "node1": "3"}
    assert "insufficient resource" in lab.refuses(guaranteed("b", "1"))
    own = {keys.CRANE_AWARENESS: "true"}
    lab = crane_lab(cranes(4000, 4000, aware="None"))
    assert "insufficient" in lab.refuses(guaranteed("c", "6", annotations=own))


@pytest.mark.parametrize(
    ("obj", "pod"),
    [
        (cranes(1000, policy="None"), guaranteed("p", "4")),
        (cranes(1000), guaranteed("p", "4", annotations={keys.CRANE_CPU_POLICY: "none"})),
        (cranes(1000), pod("p", container("main", "cpu=4", ""))),
    ],
)
def test_what_gocranes_agent_does_not_pin_is_bound_without_a_result(obj, pod) -> None:
    assert result(crane_lab(obj).binds(pod)) == {}


def test_results_of_bound_pods_count_and_invalid_ones_do_not() -> None:
    lab = crane_lab(cranes(4000, 4000))
    text = '[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"3"}}}]'
    lab.seen(guaranteed("old", "3", node="n", annotations={keys.CRANE_RESULT: text}))
    lab.seen(guaranteed("odd", "3", node="n", annotations={keys.CRANE_RESULT: "{"}))
    assert result(lab.binds(guaranteed("a", "4"))) == {"node1": "4"}


def test_another_object_comes_before_gocranes_and_a_damaged_one_is_told() -> None:
    lab = crane_lab(cranes(4000))
    lab.shows(zones(FOUR))
    assert result(lab.binds(guaranteed("a", "2"))) == {}
    lab.tell(TopologyChanged(lab.now, lab.published["n"], None))
    assert result(lab.binds(guaranteed("b", "2"))) == {"node0": "2"}
    lab.tell(ObjectChanged(lab.now, None, cranes(4000, policy="Loose")))
    assert lab.node().cpus.kind is NodeKind.DAMAGED
    assert "craneManagerPolicy.cpuManagerPolicy" in lab.node().problem


# Damage, and nothing at all.


def without_ledger(**config: Any) -> NodeResourceTopology:
    obj = objects.topology("n", objects.state("core:8", "n", **config))
    rest = {key: text for key, text in obj.metadata.annotations.items() if key != keys.CPU_ALLOCATIONS}
    return replace(obj, metadata=replace(obj.metadata, annotations=rest))


@pytest.mark.parametrize("lost", [(), (keys.MACHINE,)])
@pytest.mark.parametrize("policy", ["static", "pools"])
def test_a_node_of_corelanes_that_lost_its_ledger_is_damaged(policy, lost) -> None:
    lab = Lab()
    obj = without_ledger(policy=policy)
    for key in lost:
        del obj.metadata.annotations[key]
    lab.shows(obj)
    assert lab.node().cpus.kind is NodeKind.DAMAGED
    assert "without a ledger; restart the agent on the node" in lab.node().problem
    told = lab.refuses(guaranteed("a", "1"))
    assert "node(s) invalid CPU Topology: invalid NodeResourceTopology (metadata.annotations" in told
    lab.binds(shared(cpu="1"))


def test_a_fault_is_one_event_about_the_node_until_it_changes() -> None:
    lab = Lab()
    broken, other = without_ledger(), zones({"cpu": "x"})
    told = [lab.tell(TopologyChanged(1, None, obj)) for obj in (broken, broken, other, zones(FOUR), broken)]
    assert [len(done) for done in told] == [1, 0, 1, 0, 1]
    (event,) = told[0]
    assert isinstance(event, RecordNodeEvent)
    assert (event.node, event.reason) == ("n", "InvalidNodeResourceTopology")
    assert event.message == lab.node().problem


def with_config(policy: str = "pools", **changes: Any) -> NodeResourceTopology:
    obj = objects.topology("n", objects.state("core:8", "n", policy=policy))
    ledger = json.loads(obj.metadata.annotations[keys.CPU_ALLOCATIONS])
    ledger["config"]["pools"] |= changes
    annotations = {**obj.metadata.annotations, keys.CPU_ALLOCATIONS: json.dumps(ledger)}
    return replace(obj, metadata=replace(obj.metadata, annotations=annotations))


@pytest.mark.parametrize(
    "changes",
    [{"profile": [0]}, {"profile": []}, {"bind": "ConstrainedBurst"}, {"node_bind": "ConstrainedBurst"}],
)
@pytest.mark.parametrize("policy", ["pools", "static"])
def test_settings_that_make_no_sense_are_damage_and_end_nothing(policy, changes) -> None:
    lab = Lab().shows(with_config(policy, **changes))
    assert "invalid NodeResourceTopology" in lab.refuses(guaranteed("a", "2"))
    assert f"config: {next(iter(changes))}" in lab.node().problem
    assert "<" not in lab.node().problem


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 100) | st.sampled_from(["", "LS", "0-3", "x", "3/0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)


SETTINGS = with_config()
GOOD = objects.topology("good", objects.state("core:8", "good", policy="pools"))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_setting_in_a_ledger_leaves_the_scheduler_working(data: st.DataObject) -> None:
    ledger = json.loads(SETTINGS.metadata.annotations[keys.CPU_ALLOCATIONS])
    part = data.draw(st.sampled_from([ledger["config"], ledger["config"]["pools"], ledger["config"]["numa"]]))
    part[data.draw(st.sampled_from(sorted(part)))] = data.draw(JUNK)
    annotations = {**SETTINGS.metadata.annotations, keys.CPU_ALLOCATIONS: json.dumps(ledger)}
    drawn = replace(SETTINGS, metadata=replace(SETTINGS.metadata, annotations=annotations))
    lab = Lab("n", "good").shows(GOOD, drawn)
    for name in "abc":
        lab.answers(lsr(name, "2"))


@pytest.mark.parametrize("amount", ["9" * 400, "1e30", "-1", "0", ""])
@pytest.mark.parametrize("policy", ["Restricted", "SingleNUMANodePodLevel", "BestEffort"])
def test_koordlets_zones_with_any_amount_or_none_at_all_end_nothing(policy, amount) -> None:
    asked = lsr("a", "2")
    for resource in (None, "cpu", "memory"):
        plain = msgspec.to_builtins(koordlets()) | {"topologyPolicies": [policy]}
        listed = [one for zone in plain["zones"][1:] for one in zone.get("resources", ())]
        for one in listed:
            if one["name"] == resource:
                one["allocatable"] = amount
        if resource is None:
            plain["zones"] = []
        Lab(cpus=16).shows(msgspec.convert(plain, NodeResourceTopology)).answers(asked)


def test_without_an_object_totals_decide_and_pods_with_exclusive_cpus_stay_away() -> None:
    lab = Lab()
    assert lab.node().cpus.kind is NodeKind.TOTALS
    lab.binds(shared(cpu="1"))
    assert "node(s) invalid CPU Topology: no NodeResourceTopology" in lab.refuses(guaranteed("a", "1"))


def test_a_ledger_beside_zones_of_another_exporter_stays_a_ledger() -> None:
    ours = objects.topology("n", objects.state("core:8", "n", policy="pools"))
    meta = ObjectMeta(name="n", annotations=ours.metadata.annotations)
    lab = Lab().shows(replace(zones({"cpu": 0}), metadata=meta))
    bind = lab.binds(guaranteed("a", "4"))
    assert len(bind.assignments["main"]) == 4
    assert lab.node().cpus.kind is NodeKind.LEDGER


def test_the_kind_follows_each_version_of_the_object() -> None:
    lab = Lab()
    static, damaged = koordlets(**STATIC), zones({"cpu": "x"})
    versions = (zones(FOUR), koordlets(), static, without_ledger(), damaged, zones(FOUR))
    kinds = [lab.shows(obj).node().cpus.kind for obj in versions]
    assert kinds == ["zones", "koordlet", "kubelet-replay", "damaged", "damaged", "zones"]
    lab.tell(TopologyChanged(lab.now, lab.published["n"], None))
    assert lab.node().cpus.kind is NodeKind.TOTALS
