"""What the optimal allocator makes of single wishes, and the sentences in which it explains itself."""

import json
from pathlib import Path

import pytest

from corelane.cpuset import format_list, parse_list
from corelane.machine import model
from corelane.machine.spec import parse_spec
from corelane.placement import topology
from corelane.placement.optimal import demand as demands
from corelane.placement.optimal import infeasible, search
from corelane.placement.optimal.demand import (
    AntiAffinity,
    Demand,
    Limit,
    Occupancy,
    PodAffinityTerm,
    Resource,
)
from corelane.placement.optimal.infeasible import Infeasible
from corelane.reasons import label, sentence
from corelane.workload.placement_spec import (
    BindPolicy,
    ExclusivePolicy,
    Exclusivity,
    NUMAPolicy,
    NUMAStrategy,
    TopologyLevel,
)

DATA = Path(__file__).parents[1] / "data"
FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS


def shape(spec):
    return demands.from_machine(parse_spec(spec))


DESK = shape("core:4 smt:2")
TWO = shape("numa:2 core:4 smt:2")
ROME = shape("l3:4 core:4 smt:2")
EIGHT = shape("socket:2 numa:4 core:8 smt:2")


def chosen(of, demand, taken="", **others):
    free = of.all & ~parse_list(taken)
    answer = search.place(of, demand, free, Occupancy(**others))
    assert isinstance(answer, infeasible.Placement), answer
    return format_list(answer.cpus)


def missed(of, demand, taken="", **others):
    free = of.all & ~parse_list(taken)
    answer = search.explain(of, demand, free, Occupancy(**others))
    assert isinstance(answer, Infeasible), answer
    return answer


def test_without_a_wish_siblings_come_together():
    assert chosen(DESK, Demand(4)) == "0-1,4-5"


def test_an_odd_cpu_prefers_a_core_that_is_already_broken():
    assert chosen(DESK, Demand(3), taken="3") == "0,4,7"


def test_an_odd_cpu_breaks_a_core_if_it_must():
    assert chosen(DESK, Demand(3)) == "0-1,4"


def test_required_full_cores_refuse_an_odd_number():
    answer = missed(DESK, Demand(3, FULL, bind_required=True))
    assert answer.requirement == "bind"
    assert "3 CPUs requested, not a multiple of the free cores' threads" in answer.text
    assert [(change.kind, change.amount or change.requirement) for change in answer.changes] == [
        ("fewer", 2),
        ("soften", "bind policy FullPCPUs"),
    ]


def test_required_full_cores_do_not_take_what_is_left_of_broken_ones():
    answer = missed(DESK, Demand(4, FULL, bind_required=True), taken="0,1,2")
    assert answer.text == "required FullPCPUs: 4 CPUs requested, 2 of 5 usable CPUs are in whole cores"


def test_spread_takes_one_cpu_of_each_core():
    assert chosen(DESK, Demand(4, SPREAD)) == "0-3"


def test_required_spread_beyond_the_cores_is_refused():
    answer = missed(DESK, Demand(5, SPREAD, bind_required=True))
    assert answer.text == "required SpreadByPCPUs: 5 CPUs requested, 4 cores with a free CPU"


def test_requests_stay_in_the_fewest_l3_domains():
    """One core is free in each of three domains, four in the last."""
    assert chosen(ROME, Demand(6), taken="1-3,5-7,9-11,17-19,21-23,25-27") == "12-14,28-30"


def test_the_fullest_l3_domain_that_fits_is_used():
    assert chosen(ROME, Demand(2), taken="0-2,16-18,4-5,20-21") == "3,19"


def test_evenly_means_the_same_from_each_node_that_is_needed():
    evenly = Demand(10, strategy=NUMAStrategy.DISTRIBUTE_EVENLY)
    answer = search.place(TWO, evenly, TWO.all)
    assert [(answer.cpus & node).bit_count() for node in TWO.nodes] == [6, 4]
    assert chosen(TWO, Demand(8, strategy=NUMAStrategy.DISTRIBUTE_EVENLY)) == "0-3,8-11"


def test_evenly_takes_more_nodes_where_fewer_cannot_share_evenly():
    """Two nodes could only give 8 and 4; three give 4 each."""
    four = shape("numa:4 core:4 smt:2")
    free = four.all & ~parse_list("4-5,20-21,8-9,24-25,12-15,28-31")
    answer = search.place(four, Demand(12, strategy=NUMAStrategy.DISTRIBUTE_EVENLY), free)
    assert [(answer.cpus & node).bit_count() for node in four.nodes] == [4, 4, 4, 0]
    assert (answer.values["uneven"], answer.values["numa-nodes"]) == (0, 3)


def test_spread_evenly_means_that_nodes_differ_by_one_cpu():
    """Seven and three CPUs differ by three more than they may; as whole cores, by two more."""
    free = TWO.all & ~parse_list("6-7,13-15")
    for bind, uneven in ((SPREAD, 3), (FULL, 2)):
        evenly = Demand(10, bind, strategy=NUMAStrategy.DISTRIBUTE_EVENLY)
        answer = search.place(TWO, evenly, free)
        assert answer.values["uneven"] == uneven
        assert search.evaluate(TWO, evenly, free, answer.cpus) == answer.terms


def test_most_allocated_fills_the_fuller_node_and_least_the_emptier():
    assert chosen(TWO, Demand(2, strategy=NUMAStrategy.MOST_ALLOCATED), taken="4,12") == "5,13"
    assert chosen(TWO, Demand(2, strategy=NUMAStrategy.LEAST_ALLOCATED), taken="0,8") == "4,12"


def test_devices_pull_the_cpus_to_their_node():
    nic = Resource("nic", 1, {1: 1})
    assert chosen(TWO, Demand(2, resources=(nic,))) == "4,12"


def test_resources_never_cost_a_numa_node():
    nics = Resource("nic", 2, {0: 1, 1: 1})
    answer = search.place(TWO, Demand(2, resources=(nics,)), TWO.all)
    assert (answer.values["numa-nodes"], answer.values["elsewhere"]) == (1, 1)


def test_a_single_numa_node_must_have_the_resources_too():
    memory = Resource("memory", 8, {0: 4, 1: 4})
    answer = missed(TWO, Demand(2, numa=NUMAPolicy.SINGLE_NUMA_NODE, resources=(memory,)))
    assert answer.requirement == "resources"
    assert answer.text == "SingleNUMANode: the NUMA nodes with the CPUs lack memory"


def test_only_what_is_lacking_is_named_or_else_what_is_not_together_anywhere():
    memory, nic = Resource("memory", 4, {0: 4, 1: 4}), Resource("nic", 1, {})
    single = NUMAPolicy.SINGLE_NUMA_NODE
    answer = missed(TWO, Demand(2, numa=single, resources=(memory, nic)))
    assert answer.text.endswith("lack nic")
    apart = Resource("memory", 4, {0: 4}), Resource("nic", 1, {1: 1})
    assert missed(TWO, Demand(2, numa=single, resources=apart)).text.endswith("lack memory, nic")


def test_restricted_allows_what_the_empty_machine_would_need():
    restricted = NUMAPolicy.RESTRICTED
    assert chosen(TWO, Demand(10, numa=restricted)).count("-") == 2
    answer = missed(TWO, Demand(8, numa=restricted), taken="0,4")
    assert answer.requirement == "numa"
    assert answer.text == (
        "Restricted: 8 CPUs requested, at most 7 usable on one NUMA node (node 0: 7, node 1: 7)"
    )


def test_near_nodes_go_before_far_ones():
    taken = "0-5,64-69,32-37,96-101"
    answer = search.place(EIGHT, Demand(20), EIGHT.all & ~parse_list(taken))
    assert answer.values["distance"] == 12


def test_a_limit_keeps_to_its_cpus_and_names_itself():
    assert chosen(DESK, Demand(2, limits=(Limit("core kind P", parse_list("2-3,6-7")),))) == "2,6"
    answer = missed(DESK, Demand(4, limits=(Limit("core kind P", parse_list("3,7")),)))
    assert answer.text == ("core kind P: 4 CPUs requested, 2 left (CPUs 0-2,4-6 ruled out)")


@pytest.mark.parametrize("level", list(TopologyLevel))
def test_required_exclusivity_bars_units_of_other_holders(level):
    there = parse_list("0")
    answer = search.place(
        TWO, Demand(2, exclusive=Exclusivity(level, required=True)), TWO.all & ~there, Occupancy((there,))
    )
    expected = {TopologyLevel.CORE: "1,9", TopologyLevel.L3: "4,12", TopologyLevel.NUMA: "4,12"}
    assert format_list(answer.cpus) == expected[level]


def test_what_another_pod_has_to_itself_is_nobody_elses():
    there = parse_list("0")
    anti_affinity = (AntiAffinity(TopologyLevel.NUMA, there),)
    assert chosen(TWO, Demand(2), taken="0", holders=(there,), anti_affinity=anti_affinity) == "4,12"


def test_pcpu_level_avoids_cores_of_the_same_policy_only():
    wish = Demand(2, SPREAD, exclusive_policy=ExclusivePolicy.PCPU_LEVEL)
    assert chosen(DESK, wish, taken="0-1", same_core=parse_list("0")) == "2,5"


def test_numa_node_level_falls_back_to_pcpu_level_and_says_so():
    wish = Demand(2, exclusive_policy=ExclusivePolicy.NUMA_NODE_LEVEL)
    there = parse_list("0,4")
    answer = search.explain(TWO, wish, TWO.all & ~there, Occupancy((there,), same_numa=there))
    assert (answer.values["exclusive"], answer.values["fallback"]) == (1, 0)
    told = {label(reason): sentence(reason) for reason in answer.reasons}
    assert (
        told["exclusive"]
        == "exclusive policy NUMANodeLevel is unavailable, so PCPULevel holds there: 0 cores are shared"
    )


def test_the_fallback_holds_only_in_nodes_that_are_shared():
    """Six CPUs of two nodes; in the second there is a PCPULevel pod, but no NUMANodeLevel one."""
    of = shape("numa:2 core:2 smt:2")
    wish = Demand(6, exclusive_policy=ExclusivePolicy.NUMA_NODE_LEVEL)
    others = {"same_numa": parse_list("0"), "same_core": parse_list("2")}
    answer = search.place(of, wish, of.all & ~parse_list("0,2"), Occupancy(**others))
    assert (answer.values["exclusive"], answer.values["fallback"]) == (1, 1)


def test_the_fallback_keeps_off_the_cores_of_both_levels():
    """One NUMA node, held by a NUMANodeLevel pod; a core is half a PCPULevel pod's, and all must be taken."""
    wish = Demand(6, exclusive_policy=ExclusivePolicy.NUMA_NODE_LEVEL)
    others = Occupancy(same_numa=parse_list("0"), same_core=parse_list("1"))
    answer = search.place(DESK, wish, DESK.all & ~parse_list("0-1"), others)
    assert (answer.values["exclusive"], answer.values["fallback"]) == (1, 2)


def test_a_core_beside_whom_one_prefers_is_not_against_the_wish():
    beside = PodAffinityTerm(False, TopologyLevel.CORE, parse_list("0"), name="app=db")
    demand, free = Demand(1, pod_affinity=(beside,)), DESK.all & ~parse_list("0")
    answer = search.place(DESK, demand, free)
    assert (format_list(answer.cpus), answer.values["affinity"]) == ("4", 0)
    assert search.evaluate(DESK, demand, free, answer.cpus) == answer.terms


def test_preferring_nobody_asks_for_nothing():
    nobody = PodAffinityTerm(False, TopologyLevel.CORE, 0, name="app=db")
    answer = search.explain(DESK, Demand(2, pod_affinity=(nobody,)), DESK.all)
    assert answer.values["affinity"] == 0
    assert "CPU affinity: app=db selects no pod with bound CPUs" in {sentence(one) for one in answer.reasons}


def test_one_whole_core_is_broken_rather_than_two_that_are_partly_used():
    rows = [(cpu, cpu // 4, 0, 0, 0) for cpu in range(12)]
    of = demands.from_topology(topology.build(rows))
    assert chosen(of, Demand(3), taken="0-1,4-5") == "8-10"
    free = of.all & ~parse_list("0-1,4-5")
    assert dict(search.evaluate(of, Demand(3), free, parse_list("8-10")))["bind"] == 1


def test_spread_over_threads_of_few_cores_gives_most_to_one():
    """Two cores of four threads, five CPUs: one core gives more than one, and all of its threads."""
    rows = [(cpu, cpu // 4, 0, 0, 0) for cpu in range(8)]
    of = demands.from_topology(topology.build(rows))
    answer = search.place(of, Demand(5, SPREAD), of.all)
    assert (format_list(answer.cpus), answer.values["bind"]) == ("0-4", 1)


def test_of_domains_as_good_the_one_with_the_lowest_cpu_is_taken():
    """The lowest CPU of the machine is in the second of two equal L3 domains, but not free."""
    rows = [
        (0, 4, 0, 0, 1),
        (1, 0, 0, 0, 0),
        (2, 1, 0, 0, 0),
        (3, 2, 0, 0, 1),
        (4, 3, 0, 0, 1),
        (5, 5, 0, 0, 0),
    ]
    of = demands.from_topology(topology.build(rows))
    assert chosen(of, Demand(2)) == "0,3"


def test_the_lowest_cpus_may_be_in_a_later_node():
    rows = [(0, 0, 0, 1, 1), (1, 1, 0, 1, 1), (2, 2, 0, 0, 0), (3, 3, 0, 0, 0)]
    assert chosen(demands.from_topology(topology.build(rows)), Demand(2)) == "0-1"


def test_of_nodes_as_good_the_one_with_the_lowest_cpus_is_taken():
    """Three CPUs come from both L3 domains of a node; the second node has the lower ids."""
    rows = [(cpu, cpu, 0, int(cpu < 4), cpu // 2) for cpu in range(8)]
    of = demands.from_topology(topology.build(rows))
    assert chosen(of, Demand(3, sizes=())) == "0-2"
    assert chosen(of, Demand(3)) == "0-2"


def test_a_core_is_broken_for_a_lower_id_where_that_costs_no_room():
    """Two CPUs that stay whole are no room for three; half of another core is free, but has higher ids."""
    of = shape("l3:2 core:2 smt:2")
    assert chosen(of, Demand(5, sizes=(3,)), taken="7") == "0-2,4-5"
    assert chosen(of, Demand(5), taken="7") == "0-1,3-5"


def test_a_lower_id_of_a_later_domain_is_worth_a_higher_one_of_an_earlier():
    """A whole core and half of another are free in both; the odd CPU may come from either."""
    of = shape("l3:2 core:2 smt:2")
    assert chosen(of, Demand(5, sizes=(2,)), taken="1,7") == "0,2-4,6"


THREE = shape("numa:3 core:4 smt:2")


@pytest.mark.parametrize(
    "wish",
    [{"exclusive_policy": ExclusivePolicy.NUMA_NODE_LEVEL}, {"exclusive": Exclusivity(TopologyLevel.L3)}],
)
def test_nodes_that_only_a_wish_tells_apart_are_told_apart(wish):
    """A core of each of three nodes is taken, in the first by a pod to keep away from."""
    there = parse_list("0,12")
    others = {"holders": (there,), "same_numa": there}
    assert chosen(THREE, Demand(12, **wish), taken="0,12,4,16,8,20", **others) == "5-7,9-11,17-19,21-23"


def test_nodes_that_only_free_threads_tell_apart_are_told_apart():
    """Of each node three whole cores may be used; in the first a thread more is free, which may not."""
    limit = Limit("all but 12", THREE.all & ~parse_list("12"))
    most = Demand(12, strategy=NUMAStrategy.MOST_ALLOCATED, limits=(limit,))
    assert chosen(THREE, most, taken="0,4,16,8,20") == "5-7,9-11,17-19,21-23"


def test_lower_ids_never_cost_a_core_its_second_cpu():
    """Threads of two cores take turns: 3 would be lower than 4, but is of the other core."""
    rows = [(cpu, cpu % 2, 0, 0, 0) for cpu in range(8)]
    answer = search.place(of := demands.from_topology(topology.build(rows)), Demand(5, SPREAD), of.all)
    assert (format_list(answer.cpus), answer.values["bind"]) == ("0-2,4,6", 1)


def test_nodes_that_hold_a_device_are_among_those_chosen():
    """Twelve CPUs need two of three nodes; the device is near the last, and any other may join it."""
    of = shape("numa:3 core:4 smt:2")
    gpu = Resource("gpu", 1, {2: 1})
    answer = search.place(of, Demand(12, resources=(gpu,)), of.all)
    assert answer.values["elsewhere"] == 0
    assert format_list(answer.cpus) == "0-3,8-9,12-15,20-21"


def test_without_steps_the_answer_says_what_is_not_proven():
    answer = search.explain(ROME, Demand(12), ROME.all, budget=0)
    assert not answer.proven
    assert answer.cpus.bit_count() == 12
    assert {label(one) for one in answer.reasons} >= {"proof"}


def test_what_cannot_be_better_is_proven_though_the_search_is_not():
    """All CPUs of all nodes: nothing is left free, so that only the room left behind is in doubt."""
    least = Demand(32, strategy=NUMAStrategy.LEAST_ALLOCATED)
    answer = search.place(ROME, least, ROME.all, budget=0)
    assert (answer.unproven_term, answer.bound, answer.values["balance"]) == ("room", 58, 0)


def test_a_busy_thread_may_be_paired_with_a_quiet_one():
    """User story 4: beside the batch application, never beside the other service, one CPU of each core."""
    batch, service = parse_list("0-1"), parse_list("2")
    beside = PodAffinityTerm(False, TopologyLevel.CORE, batch, name="batch")
    never = PodAffinityTerm(True, TopologyLevel.CORE, service, required=True, name="service")
    demand = Demand(2, SPREAD, pod_affinity=(beside, never))
    assert chosen(DESK, demand, taken="0-2", holders=(batch, service)) == "4-5"


def test_a_required_neighbour_that_is_nowhere_is_missed():
    beside = PodAffinityTerm(False, TopologyLevel.L3, 0, required=True, name="app=db")
    answer = missed(ROME, Demand(1, pod_affinity=(beside,)))
    assert answer.requirement == "affinity"
    assert answer.text.startswith("prefer app=db at l3 level: 1 CPU requested, 0 left")
    assert answer.changes[-1].requirement == "prefer app=db at l3 level"


def test_pods_of_one_numa_node_and_of_several_keep_apart():
    spanning, single = parse_list("0,4"), parse_list("1")
    demand = Demand(2, numa_exclusive=True)
    answer = missed(TWO, demand, taken="0-1,4", holders=(spanning, single))
    assert answer.requirement == "numa-exclusive"
    assert answer.changes[0].holders == (1,)


def test_the_smallest_holders_in_the_way_are_named():
    holders = tuple(map(parse_list, ("0-2,8-10", "4-5,12-13", "6,14")))
    answer = missed(
        TWO,
        Demand(4, numa=NUMAPolicy.SINGLE_NUMA_NODE, bind_required=True),
        taken="0-2,8-10,4-6,12-14",
        holders=holders,
    )
    assert answer.requirement == "numa"
    release = answer.changes[0]
    assert (release.kind, release.holders, format_list(release.cpus)) == ("release", (2,), "6,14")


def test_where_one_change_is_not_enough_two_are_told():
    there = parse_list("0,4")
    demand = Demand(3, FULL, bind_required=True, exclusive=Exclusivity(TopologyLevel.NUMA, required=True))
    answer = missed(TWO, demand, taken="0,4", holders=(there,))
    assert answer.requirement == "exclusive"
    first = answer.changes[0]
    assert first.also is not None
    assert first.requirement == "exclusive NUMA node"


def test_reasons_tell_what_decided():
    answer = search.explain(ROME, Demand(2), ROME.all & ~parse_list("0-2,16-18"))
    told = [sentence(reason) for reason in answer.reasons if label(reason) == "decided"]
    what = "whole-core capacity score"
    assert told == [f"3,19 rather than 4,20: {what} decides, 43 against 41"]


def test_reasons_tell_where_siblings_of_an_odd_cpu_stay():
    answer = search.explain(DESK, Demand(3), DESK.all & ~parse_list("7"))
    told = {label(reason): sentence(reason) for reason in answer.reasons}
    assert told["bind"] == "cores partly used: CPU 7 reserved or allocated to other pods"
    answer = search.explain(DESK, Demand(1), DESK.all)
    told = {label(reason): sentence(reason) for reason in answer.reasons}
    assert told["bind"] == "cores partly used: CPU 4 free"


def test_spread_without_siblings_is_said_to_make_no_difference():
    plain = shape("core:4")
    answer = search.explain(plain, Demand(2, SPREAD), plain.all)
    assert "bind policy SpreadByPCPUs has no effect: no core has SMT siblings" in {
        sentence(reason) for reason in answer.reasons
    }


def test_the_only_choice_is_called_so():
    answer = search.explain(DESK, Demand(8), DESK.all)
    assert answer.runner_up is None
    assert sentence(answer.reasons[-1]) == "CPUs 0-7: no other CPUs fit"


def test_an_l3_that_spans_numa_nodes_counts_once_in_each():
    rows = [(cpu, cpu, 0, cpu // 2, 0) for cpu in range(4)]
    of = demands.from_topology(topology.build(rows))
    assert [format_list(domain) for domain in of.domains] == ["0-1", "2-3"]
    assert search.place(of, Demand(3), of.all).values["l3-domains"] == 2


def test_distances_come_from_the_kernel():
    rows = [(cpu, cpu, 0, cpu, cpu) for cpu in range(4)]
    far = {a: {b: 10 if a == b else 11 if {a, b} == {1, 3} else 21 for b in range(4)} for a in range(4)}
    of = demands.from_topology(topology.build(rows, distances=far))
    assert format_list(search.place(of, Demand(2), of.all).cpus) == "1,3"


def test_shapes_are_kept_per_machine():
    machine = model.from_rows("small", [(0, 0, 0, 0, 0), (1, 1, 0, 0, 0)])
    assert demands.from_machine(machine) is demands.from_machine(machine)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"cpus": 0}, "cpus: 0 is not a number of CPUs to place"),
        ({"cpus": 1, "bind": BindPolicy.CONSTRAINED_BURST}, "bind: ConstrainedBurst binds no CPUs"),
        ({"cpus": 1, "sizes": (2, 0)}, "sizes: (2, 0) must all be 1 CPU or more"),
    ],
)
def test_nonsense_is_refused_with_the_field_and_the_value(wrong, text):
    with pytest.raises(ValueError) as refused:
        Demand(**wrong)
    assert str(refused.value).startswith(text)


def test_cpus_that_do_not_exist_are_never_chosen():
    answer = search.place(DESK, Demand(9), DESK.all | parse_list("50-60"))
    assert isinstance(answer, Infeasible)
    assert answer.text == "9 CPUs requested, 8 free"


def test_the_steps_of_every_recorded_topology_suffice_for_the_whole_machine_less_a_core():
    for name, rows in json.loads((DATA / "topologies.json").read_text()).items():
        of = demands.from_topology(topology.build(map(tuple, rows)))
        core = next(of.cores())
        answer = search.place(of, Demand(of.all.bit_count() // 2 + 1), of.all & ~core)
        assert answer.proven, name
        assert answer.cpus.bit_count() == of.all.bit_count() // 2 + 1


def test_a_pod_that_need_not_lie_in_one_numa_node_may_span_those_of_pods_that_do():
    """SingleNUMANode brings numa_exclusive with it, and takes it away again."""
    held = parse_list("4,12")
    free = TWO.all & ~held
    demand = Demand(10, numa=NUMAPolicy.SINGLE_NUMA_NODE, numa_exclusive=True)
    answer = search.explain(TWO, demand, free, Occupancy(holders=(held,)))
    assert isinstance(answer, Infeasible)
    assert [(change.kind, change.amount, change.requirement) for change in answer.changes] == [
        ("fewer", 8, ""),
        ("soften", 0, "SingleNUMANode"),
    ]
