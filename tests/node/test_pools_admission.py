from dataclasses import replace

import pytest

from corelane import node
from corelane.cpuset import CPUSet
from corelane.machine.model import from_rows
from corelane.machine.spec import parse_spec
from corelane.node.entries import Origin, Sharing
from corelane.reasons import label, sentence
from corelane.workload import (
    BindPolicy,
    CPUPolicy,
    ExclusivePolicy,
    Exclusivity,
    LabelRequirement,
    NUMAPolicy,
    NUMAStrategy,
    Operator,
    PodCPUAffinity,
    PodQOS,
    Selector,
    TopologyLevel,
)
from corelane.workload.request import QOSClass
from support.node_asks import DUAL, LAPTOP, QUAD_NUMA, container, cpus, init, pod, without
from support.pool_asks import admitted, bound, floating, labelled, pools, refused

LSE, LSR, LS, BE, SYSTEM = PodQOS
both = pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
X, Y = {"app": "x"}, {"app": "y"}


def avoid(labels, level, *, required=True):
    return (PodCPUAffinity(True, level, Selector(labels), required),)


def beside(labels, level, *, required=True):
    return (PodCPUAffinity(False, level, Selector(labels), required),)


@both
def test_a_labelled_pod_has_one_set_in_common_for_all_its_containers(allocator):
    request = replace(labelled("a", LSE, 3000, 1000), containers=(init("i", 500), container("x", 3000)))
    state = admitted(pools(LAPTOP, allocator=allocator), request)
    own = bound(state, "a")
    assert set(own) == {"i", "x"}
    assert len(set(own.values())) == 1
    assert len(cpus(own["x"])) == 3
    assert all(entry.common and entry.sharing is Sharing.ALONE for entry in state.of_pod("a"))


@both
def test_containers_of_an_unlabelled_pod_divide_cpus_that_lie_together(allocator):
    state = pools(QUAD_NUMA, allocator=allocator)
    state = admitted(state, labelled("a", None, 3000, 2000, 500, 1000))
    own = {name: cpus(text) for name, text in bound(state, "a").items()}
    assert {name: len(one) for name, one in own.items()} == {"a": 3, "b": 2, "d": 1}
    union = own["a"] | own["b"] | own["d"]
    assert len(union) == 6
    assert sum(bool(mask & union.mask) for mask in state.topology.numa) == 1
    assert state.topology.whole_cores(union.mask) == union.mask


def test_an_init_container_lends_its_cpus_to_those_after_it():
    state = admitted(pools(LAPTOP), pod("a", init("i", 4000), container("x", 2000), container("y", 1000)))
    own = {name: cpus(text) for name, text in bound(state, "a").items()}
    assert len(state.bound) == 4
    assert own["x"] | own["y"] <= own["i"]
    assert own["x"].isdisjoint(own["y"])


def test_lent_cpus_stay_in_the_best_effort_pool_and_leave_the_shared_one():
    state = admitted(
        pools(LAPTOP), labelled("r", LSR, 2000), labelled("e", LSE, 2000), labelled("b", BE, 500)
    )
    lent, alone = cpus(bound(state, "r")["a"]), cpus(bound(state, "e")["a"])
    assert state.shared_pool == LAPTOP.usable - lent - alone
    assert state.best_effort_pool == LAPTOP.usable - alone
    assert state.runs_on(state.entries["b", "a"]) == state.best_effort_pool


def test_an_immovable_pod_is_bound_to_cpus_that_stay_in_the_pool_but_are_never_anothers_own():
    state = admitted(pools(LAPTOP), labelled("i", None, 2000, cpu_policy=CPUPolicy.IMMOVABLE))
    own = cpus(bound(state, "i")["a"])
    assert state.shared_pool == LAPTOP.usable
    assert own.isdisjoint(state.free_exclusive)
    state = admitted(state, labelled("e", LSE, 4000))
    assert own.isdisjoint(cpus(bound(state, "e")["a"]))
    assert own <= state.shared_pool


def test_system_pods_run_on_the_cpus_set_aside_for_them_and_nobody_else_does():
    state = admitted(pools(LAPTOP, system=cpus("1,5")), labelled("s", SYSTEM, 500), labelled("e", LSE, 4000))
    assert state.runs_on(state.entries["s", "a"]) == cpus("1,5")
    assert (state.best_effort_pool | state.shared_pool | state.bound).isdisjoint(cpus("1,5"))
    shared = admitted(pools(LAPTOP, system=cpus("1,5"), system_exclusive=False), labelled("s", SYSTEM, 500))
    assert cpus("1,5") <= shared.shared_pool


def test_withheld_cpus_are_nobodys():
    state = pools(LAPTOP, withheld=cpus("0-1"))
    assert state.shared_pool == state.best_effort_pool == cpus("2-7")
    assert state.allocatable == 6000
    assert state.reserved.isdisjoint(cpus("0-1"))


# -- what must be left


def test_best_effort_keeps_its_minimum():
    state = pools(LAPTOP, be_minimum=5)
    text = refused(state, labelled("e", LSE, 4000))
    assert text.startswith("BestEffortExhausted: BE pool: 4 CPUs would be left")
    assert "at least 5 must remain on this node (beMinimum)" in text
    assert bound(admitted(state, labelled("r", LSR, 4000)), "r"), "LSR lends, so best effort loses nothing"


def test_the_shared_pool_keeps_its_last_cpu():
    """With nothing left but isolated CPUs, which could be bound, the pool has these."""
    machine = replace(LAPTOP, name="isolated", isolated=cpus("2-3,6-7"))
    state = pools(machine, isolated_cpus="exclusive-only", be_minimum=0)
    state, _ = node.rebase(state, without(machine, "0-1,4-5"))
    assert (state.shared_pool, state.reserved) == (cpus("2-3,6-7"), cpus(""))
    assert refused(state, labelled("e", LSE, 4000)).startswith("SharedPoolExhausted")
    assert bound(admitted(state, labelled("e", LSE, 2000)), "e")


# -- isolated CPUs and kinds of cores

ISOLATED = replace(QUAD_NUMA, name="isolated", isolated=cpus("4-7,20-23"))


def test_isolated_cpus_are_as_any_other_by_default():
    assert pools(ISOLATED).shared_pool == ISOLATED.usable


@both
def test_isolated_cpus_may_be_for_those_alone_who_have_cpus_of_their_own(allocator):
    state = pools(ISOLATED, isolated_cpus="exclusive-only", allocator=allocator)
    assert state.shared_pool == state.best_effort_pool == ISOLATED.usable - ISOLATED.isolated
    state = admitted(state, *(labelled(f"r{i}", LSR, 4000) for i in range(6)))
    assert ISOLATED.isolated <= state.bound
    assert state.best_effort_pool == ISOLATED.usable - ISOLATED.isolated
    immovable = admitted(
        pools(ISOLATED, isolated_cpus="exclusive-only", allocator=allocator),
        *(labelled(f"i{i}", None, 4000, cpu_policy=CPUPolicy.IMMOVABLE) for i in range(5)),
    )
    assert immovable.bound.isdisjoint(ISOLATED.isolated)


def test_isolated_cpus_may_be_left_out():
    state = pools(ISOLATED, isolated_cpus="exclude")
    assert (state.shared_pool | state.free_exclusive).isdisjoint(ISOLATED.isolated)


HYBRID = replace(
    LAPTOP, name="hybrid", cpus=tuple(replace(one, kind="P" if one.core < 2 else "E") for one in LAPTOP.cpus)
)


@both
def test_a_pod_may_want_cores_of_one_kind(allocator):
    state = admitted(pools(HYBRID, allocator=allocator), labelled("e", LSE, 4000, core_kind="E"))
    assert bound(state, "e") == {"a": "2-3,6-7"}
    assert "core kind P: 4 CPUs requested" in refused(
        pools(HYBRID, allocator="optimal"), labelled("p", LSE, 4000, core_kind="P")
    )
    assert "this machine has one kind only" in refused(
        pools(LAPTOP, allocator=allocator), labelled("p", LSE, 2000, core_kind="P")
    )


# -- proposals


@both
def test_what_the_scheduler_proposes_is_kept(allocator):
    state = pools(LAPTOP, allocator=allocator)
    one = replace(labelled("a", LSE, 2000, 2000), proposal=dict.fromkeys("ab", cpus("1-2,5-6")))
    after, decision = node.admit(state, one)
    assert bound(after, "a") == {"a": "1-2,5-6", "b": "1-2,5-6"}
    assert not decision.repicked
    assert after.entries["a", "a"].origin is Origin.SCHEDULER
    each = replace(labelled("a", None, 2000, 1000), proposal={"a": cpus("3,7"), "b": cpus("2")})
    after, decision = node.admit(state, each)
    assert bound(after, "a") == {"a": "3,7", "b": "2"}
    assert not decision.repicked


@both
def test_of_a_running_pod_the_containers_that_may_stay_do_and_others_are_placed_anew(allocator):
    state = admitted(pools(LAPTOP, allocator=allocator), labelled("e", LSE, 2000))
    taken = cpus(bound(state, "e")["a"])
    request = replace(labelled("a", None, 2000, 1000), proposal={"a": taken, "b": cpus("7")})
    after, decision = node.admit(state, request)
    assert decision.repicked
    assert bound(after, "a")["b"] == "7"
    assert cpus(bound(after, "a")["a"]).isdisjoint(taken | cpus("7"))
    assert any("unavailable; reallocated" in sentence(reason) for reason in decision.reasons)


@pytest.mark.parametrize(
    ("proposal", "why"),
    [
        ({"a": "1-2", "b": "5-6"}, "proposed CPUs differ between containers"),
        ({"a": "1-3"}, "proposed CPUs 1-3: 3 CPUs, 4 required"),
        ({"a": "0-1,4-5"}, "proposed CPUs 0-1,4-5: 0 is unavailable"),
    ],
)
def test_a_proposal_that_cannot_be_is_told_why(proposal, why):
    request = replace(
        labelled("a", LSR, 2000, 2000), proposal={name: cpus(text) for name, text in proposal.items()}
    )
    _, decision = node.admit(pools(LAPTOP), request)
    assert decision.repicked
    assert any(why in sentence(reason) for reason in decision.reasons)


def test_a_proposal_against_a_rule_of_the_node_is_not_kept():
    state = pools(QUAD_NUMA, numa=NUMAPolicy.SINGLE_NUMA_NODE)
    request = replace(labelled("a", LSE, 2000), proposal={"a": cpus("1,5")})
    _, decision = node.admit(state, request)
    assert decision.repicked
    assert any("violates a rule of the node or the pod" in sentence(reason) for reason in decision.reasons)


# -- policies of node and pod


@both
def test_node_and_pod_may_not_contradict_each_other(allocator):
    state = pools(LAPTOP, allocator=allocator, node_bind=BindPolicy.FULL_PCPUS, numa=NUMAPolicy.RESTRICTED)
    spread = labelled("a", LSE, 2000, bind=BindPolicy.SPREAD_BY_PCPUS, bind_required=True)
    assert "node(s) cpu bind policy conflicts with pod's required cpu bind policy" in refused(state, spread)
    single = labelled("a", LSE, 2000, numa=NUMAPolicy.SINGLE_NUMA_NODE)
    assert "NUMAPolicyConflict: node(s) NUMA Topology policy not match" in refused(state, single)
    odd = labelled("a", LSE, 3000)
    assert "node(s) requested cpus not multiple cpus per core" in refused(state, odd)
    own = labelled("a", None, 1000, 1000)
    assert "container a requests 1, a core has 2" in refused(state, own)


@both
def test_required_spread_takes_one_cpu_of_each_core(allocator):
    request = labelled("a", LSE, 3000, bind=BindPolicy.SPREAD_BY_PCPUS, bind_required=True)
    state = admitted(pools(LAPTOP, allocator=allocator), request)
    assert state.topology.cores_of(state.bound.mask).bit_count() == 3
    assert "InsufficientCPUs" in refused(
        pools(LAPTOP, allocator=allocator), replace(request, containers=(container("a", 5000),))
    )


@both
def test_a_pod_that_must_lie_in_one_numa_node_does_or_is_refused(allocator):
    state = pools(QUAD_NUMA, allocator=allocator, numa=NUMAPolicy.SINGLE_NUMA_NODE)
    state = admitted(state, *(labelled(f"p{i}", LSE, 6000) for i in range(4)))
    for one in range(4):
        own = cpus(bound(state, f"p{one}")["a"]).mask
        assert sum(bool(mask & own) for mask in state.topology.numa) == 1
    text = refused(state, labelled("q", LSE, 4000))
    assert "4 CPUs requested" in text
    assert "; 6 of 32 CPUs free for exclusive use; " in text
    assert "exclusive CPUs held by: test/p0, test/p1, test/p2, test/p3" in text


@both
def test_gocranes_awareness_stands_in_for_a_numa_policy(allocator):
    state = admitted(pools(QUAD_NUMA, allocator=allocator), *(labelled(f"p{i}", LSE, 6000) for i in range(4)))
    assert refused(state, labelled("q", LSE, 4000, topology_aware=True))
    assert bound(admitted(state, labelled("q", LSE, 4000)), "q")


# -- beside whom


@both
@pytest.mark.parametrize("level", TopologyLevel)
def test_required_exclusivity_binds_the_pod_and_those_who_come_later(allocator, level):
    state = pools(DUAL, allocator=allocator)
    alone = labelled("e", LSE, 3000, exclusive=Exclusivity(level, required=True))
    state = admitted(state, labelled("a", LSR, 3000), alone, labelled("b", LSR, 3000))
    units = {
        TopologyLevel.CORE: state.topology.whole_cores,
        TopologyLevel.L3: lambda mask: sum(one for one in state.topology.uncore if one & mask),
        TopologyLevel.NUMA: lambda mask: sum(one for one in state.topology.numa if one & mask),
    }
    mine = units[level](cpus(bound(state, "e")["a"]).mask)
    for other in "ab":
        assert not mine & cpus(bound(state, other)["a"]).mask


@both
def test_where_required_exclusivity_cannot_be_had_the_pod_is_refused_with_what_is_in_the_way(allocator):
    state = admitted(pools(LAPTOP, allocator=allocator), labelled("a", LSR, 2000))
    text = refused(state, labelled("e", LSE, 2000, exclusive=Exclusivity(TopologyLevel.NUMA, required=True)))
    assert text.startswith("InsufficientCPUs")
    assert "exclusive NUMA node" in text
    assert "exclusive CPUs held by: test/a" in text


@both
def test_preferred_exclusivity_yields_where_it_must(allocator):
    state = admitted(pools(LAPTOP, allocator=allocator), labelled("a", LSR, 2000))
    assert bound(admitted(state, labelled("e", LSE, 2000, exclusive=Exclusivity(TopologyLevel.NUMA))), "e")


@both
def test_never_beside_an_application_holds_for_newcomers_too(allocator):
    state = pools(DUAL, allocator=allocator)
    shy = labelled("shy", LSE, 2000, labels=Y, affinities=avoid(X, TopologyLevel.NUMA))
    first = admitted(state, labelled("x", LSE, 2000, labels=X), shy)
    second = admitted(state, shy, labelled("x", LSE, 2000, labels=X))
    for found in (first, second):
        nodes = [
            {one for one in found.topology.numa if one & cpus(bound(found, uid)["a"]).mask}
            for uid in ("x", "shy")
        ]
        assert not nodes[0] & nodes[1]


@both
def test_a_pod_is_spread_over_the_cores_of_a_hybrid_machine(allocator):
    """Two cores of two threads and four of one: on average one, which is no reason to give a whole core."""
    cores = (0, 0, 1, 1, 2, 3, 4, 5)
    hybrid = from_rows("hybrid", ((cpu, core, 0, 0, 0) for cpu, core in enumerate(cores)), source="test")
    spread = BindPolicy.SPREAD_BY_PCPUS
    state = admitted(
        pools(hybrid, allocator=allocator), labelled("a", LSE, 4000, bind=spread, bind_required=True)
    )
    assert len({cores[cpu] for cpu in cpus(bound(state, "a")["a"])}) == 4


def test_cpus_are_spread_evenly_over_numa_nodes_whoever_asks_for_it():
    for found in evenly(allocator="optimal"), evenly(allocator="koordinator", as_proposed=True):
        assert max(found) - min(found) <= 2


def test_koordinators_allocator_distributes_as_little_as_upstream_unless_told_to():
    counts = evenly(allocator="koordinator")
    assert max(counts) - min(counts) > 2
    _, decision = node.admit(pools(DUAL, allocator="koordinator"), EVENLY)
    assert any("see distributeAsProposed" in sentence(reason) for reason in decision.reasons)


EVENLY = labelled("a", LSE, 18000, strategy=NUMAStrategy.DISTRIBUTE_EVENLY)


def evenly(**options):
    """How many CPUs of each NUMA node a pod gets; the pod or the node asks for even numbers."""
    asked = admitted(pools(DUAL, **options), EVENLY)
    strategy = NUMAStrategy.DISTRIBUTE_EVENLY
    said = admitted(pools(DUAL, strategy=strategy, **options), labelled("a", LSE, 18000))
    counts = [
        [(cpus(bound(one, "a")["a"]).mask & node).bit_count() for node in one.topology.numa]
        for one in (asked, said)
    ]
    assert counts[0] == counts[1]
    return counts[0]


@both
def test_whom_to_avoid_may_be_said_by_expressions(allocator):
    others = Selector(expressions=(LabelRequirement("app", Operator.NOT_IN, ("y",)),))
    shy = labelled(
        "shy", LSE, 2000, labels=Y, affinities=(PodCPUAffinity(True, TopologyLevel.NUMA, others, True),)
    )
    state = admitted(pools(LAPTOP, allocator=allocator), shy)
    assert bound(admitted(state, labelled("pal", LSE, 2000, labels=Y)), "pal")
    assert "numa units exclusive to other pods" in refused(state, labelled("bare", LSE, 2000))
    told = refused(admitted(pools(LAPTOP, allocator=allocator), labelled("x", LSE, 2000, labels=X)), shy)
    assert "avoid app notin (y) at numa level" in told


@both
def test_a_wish_about_neighbours_counts_within_the_namespace_only(allocator):
    state = admitted(pools(LAPTOP, allocator=allocator), labelled("x", LSE, 2000, labels=X))
    shy = labelled("shy", LSE, 2000, affinities=avoid(X, TopologyLevel.NUMA))
    assert refused(state, shy)
    assert bound(admitted(state, replace(shy, namespace="other")), "shy")


@both
def test_rather_beside_an_application_goes_there(allocator):
    state = admitted(
        pools(DUAL, allocator=allocator),
        labelled("far", LSE, 8000),
        labelled("x", LSE, 1000, labels=X, bind=BindPolicy.SPREAD_BY_PCPUS),
    )
    request = labelled("pal", LSE, 1000, affinities=beside(X, TopologyLevel.CORE))
    after = admitted(state, request)
    one, other = (cpus(bound(after, uid)["a"]).mask for uid in ("x", "pal"))
    assert state.topology.whole_cores(one) == state.topology.whole_cores(other)


@both
def test_only_beside_one_that_is_not_there_is_refused_but_for_the_first_of_its_kind(allocator):
    state = pools(LAPTOP, allocator=allocator)
    request = labelled("pal", LSE, 1000, affinities=beside(X, TopologyLevel.L3))
    assert refused(state, request)
    assert bound(admitted(state, replace(request, labels=X)), "pal")


def test_a_required_wish_about_cpus_is_no_good_to_a_pod_without():
    request = floating("f", 500, affinities=avoid(X, TopologyLevel.CORE))
    assert "this pod is not: Burstable pod: class LS; runs in the shared pool" in refused(
        pools(LAPTOP), request
    )


@both
def test_pods_with_the_same_exclusive_policy_keep_off_each_others_cores(allocator):
    state = pools(LAPTOP, allocator=allocator, reserved="0")
    placement_spec = {"exclusive_policy": ExclusivePolicy.PCPU_LEVEL, "bind": BindPolicy.SPREAD_BY_PCPUS}
    state = admitted(
        state, labelled("a", LSE, 2000, **placement_spec), labelled("b", LSE, 1000, **placement_spec)
    )
    one, other = (cpus(bound(state, uid)["a"]).mask for uid in "ab")
    assert not state.topology.whole_cores(one) & state.topology.whole_cores(other)


# -- in words


def test_reasons_say_which_class_and_what_the_placement_came_to():
    _, decision = node.admit(pools(QUAD_NUMA), labelled("a", None, 2000, 500))
    told = [(reason.container, label(reason), sentence(reason)) for reason in decision.reasons]
    assert told[0] == (
        "a",
        "class",
        "Guaranteed pod: class LSR on this node; exclusive CPUs, shared with BE only",
    )
    assert told[1][:2] == ("a", "pick")
    assert "on 1 NUMA node" in told[1][2]
    assert told[2] == ("b", "shared", "shared pool: CPU request 500m is not an integer")


def picked(state, name, *containers, **placement_spec):
    """What is said of the choice for each container."""
    decision = node.admit(state, labelled(name, None, *containers, **placement_spec))[1]
    return {reason.container: sentence(reason) for reason in decision.reasons if label(reason) == "pick"}


def test_what_holds_of_all_cpus_of_a_pod_is_not_said_of_one_container():
    told = picked(pools(QUAD_NUMA), "vm", 4000, 1000)
    assert told["a"].startswith("CPUs 1-2,17-18 of the pod's CPUs 1-3,17-18 on 1 NUMA node")
    assert told["b"].startswith("CPU 3 of the pod's CPUs 1-3,17-18 on 1 NUMA node")


def test_a_wish_that_is_kept_is_told_too():
    plain = picked(pools(QUAD_NUMA), "p", 2000)["a"]
    alone = picked(pools(QUAD_NUMA), "p", 2000, exclusive_policy=ExclusivePolicy.PCPU_LEVEL)["a"]
    assert "units shared against exclusivity" not in plain
    assert "exclusivity preference met" in alone


def test_what_means_nothing_on_a_machine_without_smt_is_told():
    flat = parse_spec("core:8 smt:1")
    _, decision = node.admit(pools(flat), labelled("a", LSE, 2000, bind=BindPolicy.SPREAD_BY_PCPUS))
    assert any("has no effect" in sentence(reason) for reason in decision.reasons)


def test_a_pod_that_is_in_keeps_what_it_has():
    state = admitted(pools(LAPTOP), labelled("a", LSE, 2000))
    after, decision = node.admit(state, labelled("a", LSE, 4000))
    assert after is state
    assert {name: str(own) for name, own in decision.assignments.items()} == bound(state, "a")


def test_why_a_container_shares_follows_from_the_ask_alone():
    state = pools(LAPTOP)
    burstable = floating("f", 500)
    assert (
        sentence(node.why_shared(state, burstable, burstable.containers[0]))
        == "Burstable pod: class LS; runs in the shared pool"
    )
    assert CPUSet() == node.admit(state, burstable)[1].assignments.get("a", CPUSet())
    bare = pod("b", container("a", 0), qos=QOSClass.BEST_EFFORT)
    assert (
        sentence(node.why_shared(state, bare, bare.containers[0]))
        == "BestEffort pod: class BE; runs in the BE pool"
    )
