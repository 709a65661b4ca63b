from dataclasses import replace

import pytest

from corelane import node
from corelane.cpuset import CPUSet
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.entries import Sharing
from corelane.node.pools import zones
from corelane.workload import BindPolicy, CPUPolicy, NUMAPolicy, NUMAStrategy, PodQOS
from support.node_asks import LAPTOP, QUAD_NUMA, cpus, without
from support.pool_asks import admitted, bound, floating, labelled, pools, refused

SINGLE, RESTRICTED = NUMAPolicy.SINGLE_NUMA_NODE, NUMAPolicy.RESTRICTED
BURST = BindPolicy.CONSTRAINED_BURST


def zone(state, uid):
    return next(str(entry.zone) for entry in state.of_pod(uid))


def test_the_pools_are_told_by_socket_and_numa_node():
    state = admitted(pools(QUAD_NUMA), labelled("e", PodQOS.LSE, 6000), labelled("r", PodQOS.LSR, 8000))
    assert [(one.socket, one.node) for one in zones.pools_by_zone(state)] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    lse, lsr = (cpus(bound(state, uid)["a"]) for uid in "er")
    parts = zones.pools_by_zone(state)
    assert all(one.shared == one.best_effort - lsr for one in parts)
    assert all(one.best_effort.isdisjoint(lse) for one in parts)


def test_best_effort_that_is_squeezed_keeps_reserved_cpus_longest_and_lent_ones_least():
    state = admitted(pools(LAPTOP, reserved="3"), labelled("r", PodQOS.LSR, 2000))
    lent = cpus(bound(state, "r")["a"])
    assert node.best_effort_cpus(state, 1) == cpus("3")
    assert node.best_effort_cpus(state, 6) == state.shared_pool
    assert node.best_effort_cpus(state, 7) - state.shared_pool < lent
    assert node.best_effort_cpus(state, 99) == state.best_effort_pool


@pytest.mark.parametrize(
    ("strategy", "first", "second"),
    [(None, "0", "1"), (NUMAStrategy.LEAST_ALLOCATED, "0", "1"), (NUMAStrategy.MOST_ALLOCATED, "0", "0")],
)
def test_a_floating_pod_is_held_to_one_numa_node_where_the_node_is_strict(strategy, first, second):
    state = pools(QUAD_NUMA, numa=SINGLE, strategy=strategy)
    state = admitted(state, floating("a", 3000), floating("b", 3000))
    assert (zone(state, "a"), zone(state, "b")) == (first, second)
    entry = state.entries["a", "a"]
    assert state.runs_on(entry).mask == state.shared_pool.mask & state.topology.numa[0]


def test_a_restricted_node_allows_as_many_numa_nodes_as_the_request_needs():
    state = pools(QUAD_NUMA, numa=RESTRICTED)
    assert zone(admitted(state, floating("a", 12_000)), "a") == "0-1"
    assert zone(admitted(state, floating("a", 8000)), "a") == "0"
    state = admitted(state, *(floating(f"p{i}", 5000) for i in range(4)))
    assert "no NUMA node has 4000m left in the shared pool for the pod's CPU request" in refused(
        state, floating("q", 4000)
    )


def test_a_pod_that_requests_no_cpu_fits_even_where_less_than_nothing_is_left():
    state = admitted(pools(QUAD_NUMA, numa=SINGLE), *(floating(f"p{i}", 8000) for i in range(4)))
    state, _ = node.rebase(state, without(QUAD_NUMA, "1,5,9,13"))
    assert all(free < 0 for free in zones.room(state).values())
    assert zone(admitted(state, floating("zero", 0)), "zero") == "0"
    kept = replace(floating("zero", 0), zone=cpus("2"))
    assert zone(admitted(state, kept), "zero") == "2"
    assert refused(state, floating("some", 100)).startswith("OutOfcpu")


def test_constrained_burst_goes_by_the_limit_and_is_refused_where_none_fits():
    state = pools(QUAD_NUMA)
    state = admitted(state, *(floating(f"p{i}", 500, 6000, bind=BURST) for i in range(4)))
    assert sorted(zone(state, f"p{i}") for i in range(4)) == ["0", "1", "2", "3"]
    text = refused(state, floating("q", 500, 4000, bind=BURST))
    assert text.startswith("InsufficientNUMA: node(s) Insufficient NUMA Node resources")
    assert "4000m left in the shared pool for the pod's CPU limit" in text
    assert "remaining CPU by NUMA node: 0: 2000m" in text
    assert zone(admitted(state, floating("q", 500, 2000, bind=BURST)), "q") == "0"


def test_what_others_held_there_request_leaves_less_room_to_burst():
    """On a strict node LS pods are held to NUMA nodes too: each here has 3 of 8 CPUs for its requests."""
    state = pools(QUAD_NUMA, numa=SINGLE)
    state = admitted(state, *(floating(f"p{i}", 3000) for i in range(4)))
    assert "remaining CPU by NUMA node: 0: 5000m" in refused(state, floating("q", 500, 6000, bind=BURST))
    assert zone(admitted(state, floating("q", 500, 5000, bind=BURST)), "q") == "0"


def test_what_those_held_there_request_stays_in_the_nodes_pool():
    """NUMA node 0 has 8 CPUs, of which two are reserved: three more must stay for 5000m."""
    state = admitted(pools(QUAD_NUMA), floating("f", 5000, 6000, bind=BURST))
    request = replace(labelled("e", PodQOS.LSE, 6000), proposal={"a": cpus("1-3,17-19")})
    after, decision = node.admit(state, request)
    assert decision.repicked
    left = after.runs_on(after.entries["f", "a"])
    assert left.mask & ~after.cpus_of(cpus("0")) == 0
    assert len(left) >= 5


@pytest.mark.parametrize(("bind", "n", "taken"), [("SpreadByPCPUs", 4, "1-4"), ("FullPCPUs", 4, "1-2,5-6")])
def test_what_stays_for_others_is_what_a_newcomer_misses_least(bind, n, taken):
    """CPU 0 is reserved, and two more stay for 3000m: of CPUs 4 to 7, or 4 and a thread of the last core."""
    state = admitted(pools(LAPTOP, numa=SINGLE, reserved="0"), floating("f", 3000))
    request = labelled("e", PodQOS.LSE, 1000 * n, bind=BindPolicy(bind), bind_required=True)
    assert bound(admitted(state, request), "e") == {"a": taken}


def test_what_stays_for_others_is_not_what_was_proposed():
    state = admitted(pools(LAPTOP, numa=SINGLE, reserved="0"), floating("f", 4000))
    for proposed in ("1,5", "2-3,6-7", "3,7"):
        request = labelled("e", PodQOS.LSE, 1000 * len(cpus(proposed)))
        _, decision = node.admit(state, replace(request, proposal={"a": cpus(proposed)}))
        assert decision.assignments == {"a": cpus(proposed)}
        assert not decision.repicked


def test_gocranes_numa_floats_in_the_fewest_nodes_where_it_fits():
    wish = {"cpu_policy": CPUPolicy.NUMA}
    state = admitted(pools(QUAD_NUMA), floating("a", 2000, **wish), floating("b", 12_000, **wish))
    assert zone(state, "a") == "0"
    assert zone(state, "b") == "1-2"


@pytest.mark.parametrize(("proposed", "kept"), [("2", True), ("0-1", False), ("7", False)])
def test_a_proposed_zone_is_kept_if_the_pod_fits_there(proposed, kept):
    request = replace(floating("a", 3000), zone=cpus(proposed))
    _, decision = node.admit(pools(QUAD_NUMA, numa=SINGLE), request)
    assert decision.zone == (cpus(proposed) if kept else cpus("0"))
    assert decision.repicked is not kept


def test_siblings_of_a_bound_container_stay_beside_it_where_the_node_is_strict():
    state = admitted(pools(QUAD_NUMA, numa=SINGLE), labelled("a", None, 2000, 500))
    own = cpus(bound(state, "a")["a"]).mask
    sibling = state.runs_on(state.entries["a", "b"]).mask
    assert sum(bool(mask & (own | sibling)) for mask in state.topology.numa) == 1


def test_a_zone_that_lost_its_cpus_opens_rather_than_to_stop_the_pod():
    state = admitted(pools(QUAD_NUMA, numa=SINGLE), floating("a", 3000))
    lost = CPUSet.from_mask(state.topology.numa[0])
    after, _ = node.rebase(state, without(QUAD_NUMA, str(lost)))
    assert node.validate(after) == []
    assert after.runs_on(after.entries["a", "a"]) == after.shared_pool


def test_best_effort_is_not_held_to_a_zone():
    state = admitted(pools(QUAD_NUMA, numa=SINGLE), labelled("b", PodQOS.BE, 500))
    assert state.entries["b", "a"].sharing is Sharing.BEST_EFFORT
    assert state.runs_on(state.entries["b", "a"]) == state.best_effort_pool


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"allocator": "best"}, "allocator: 'best' is unknown: use optimal or koordinator"),
        ({"guaranteed_default": PodQOS.LSE}, "guaranteed_default: .* use LSR or LS"),
        (
            {"isolated_cpus": "yes"},
            "isolated_cpus: 'yes' is unknown: use ignore or exclude or exclusive-only",
        ),
        ({"bind": BURST}, "bind: .* use FullPCPUs or SpreadByPCPUs"),
        ({"be_minimum": 9}, "be_minimum: 9 is not between 0 and 8"),
        ({"profile": ()}, "profile: nothing: name sizes"),
        ({"profile": (4, 0)}, "profile: 4, 0: name sizes of requests, each at least 1 CPU"),
        ({"withheld": cpus("0-6"), "system": cpus("7")}, "leave none of CPUs 0-7 to the shared pool"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings, words):
    with pytest.raises(node.NodeConfigError, match=words):
        node.new(LAPTOP, NodeConfig("pools", pools=PoolOptions(**settings)))


def test_settings_of_pools_do_not_count_under_other_policies():
    state = node.new(LAPTOP, NodeConfig("static", pools=PoolOptions(withheld=cpus("0-7"), be_minimum=99)))
    assert state.shared_pool == LAPTOP.usable
