from dataclasses import replace

import pytest

from corelane import node
from corelane.node.recovery.rebasing import exclusive_shortfall
from corelane.node.recovery.unplaced import keep_in_pool
from corelane.workload import PlacementSpec, PodQOS
from support.node_asks import DUAL, LAPTOP, SINGLE, container, cpus, pod, without


def after(*requests, machine=LAPTOP, config=None):
    state = node.new(machine, config)
    for request in requests:
        state, decision = node.admit(state, request)
        assert decision.admitted, decision.message
    return state


def rebased(state, machine, config=None):
    state, problems = node.rebase(state, machine, config)
    assert node.validate(state) == []
    return state, [problem.text for problem in problems]


def test_nothing_changes_on_the_same_machine():
    state = after(pod("a", container("x", 2000)))
    assert node.rebase(state, LAPTOP) == (state, [])
    assert node.rebase(state, LAPTOP)[0] is state


def test_a_container_keeps_the_cpus_that_are_still_there():
    state, problems = rebased(after(pod("a", container("x", 2000))), without(LAPTOP, "5"))
    assert str(state.entries["a", "x"].cpus) == "1"
    assert problems == ["test/a/x: CPU 5 no longer usable on this node; keeps CPU 1"]


def test_a_container_that_lost_all_its_cpus_shares_the_pool():
    state, problems = rebased(after(pod("a", container("x", 2000))), without(LAPTOP, "1,5"))
    assert state.entries["a", "x"].exclusive is False
    assert problems == ["test/a/x: CPUs 1,5 no longer usable on this node; runs in the shared pool"]


@pytest.mark.parametrize("gone", ["5", "1,5"], ids=["some", "all"])
def test_cpus_that_come_back_are_their_containers_again(gone):
    before = after(pod("a", container("x", 2000)))
    less, _ = rebased(before, without(LAPTOP, gone))
    kept = node.codec.decode(node.codec.encode(less), without(LAPTOP, gone), less.config)
    state, problems = rebased(kept, LAPTOP)
    assert problems == []
    assert (state.entries, state.exclusive) == (before.entries, before.exclusive)


def test_cpus_come_back_to_all_containers_that_have_them_in_common():
    options = node.PoolOptions()
    config = node.NodeConfig(policy="pools", pools=options)
    request = replace(
        pod("a", container("x", 1500), container("y", 500)), placement_spec=PlacementSpec(qos=PodQOS.LSE)
    )
    before = after(request, config=config)
    one = str(max(before.exclusive))
    state, problems = rebased(rebased(before, without(LAPTOP, one))[0], LAPTOP)
    assert problems == []
    assert state.entries == before.entries


def test_a_cpu_that_another_container_got_meanwhile_does_not_come_back():
    less, _ = rebased(after(pod("a", container("x", 2000))), without(LAPTOP, "5"))
    state, _ = rebased(less, LAPTOP)
    assert state.entries["a", "x"].cpus == cpus("1,5")
    other = replace(less.entries["a", "x"], uid="b", cpus=cpus("5"), lost=cpus(""))
    taken = replace(less, entries={**less.entries, other.key: other}, pods={**less.pods, "b": 1000})
    state, _ = node.rebase(taken, LAPTOP)
    assert state.entries["a", "x"].cpus == cpus("1")
    assert state.entries["b", "x"].cpus == cpus("5")


def test_a_cpu_given_up_to_the_pool_does_not_come_back():
    before = after(pod("a", container("x", 4000)), pod("b", container("y", 3000)))
    less, _ = rebased(before, without(LAPTOP, "0"))
    state, problems = rebased(less, without(LAPTOP, "0"))
    assert (state, problems) == (less, [])


def test_a_reserved_cpu_that_is_gone_is_replaced_by_a_free_one():
    state, problems = rebased(after(pod("a", container("x", 4000))), without(LAPTOP, "0"))
    assert str(state.reserved) == "4"
    assert problems == []


def test_the_pool_gets_a_cpu_when_nothing_else_is_left():
    state = after(pod("a", container("x", 4000)), pod("b", container("y", 3000)))
    state, problems = rebased(state, without(LAPTOP, "0"))
    assert len(state.shared_pool) == 1
    assert len(state.entries["a", "x"].cpus) == 3
    assert len(problems) == 1
    assert "CPU 6 moved to the shared pool, which had no CPU left; keeps CPUs 1-2,5" in problems[0]


def test_cpus_reserved_short_are_topped_up_at_the_next_release():
    state = after(
        pod("a", container("x", 4000)),
        pod("b", container("y", 2000)),
        config=node.NodeConfig(reserved_count=2),
    )
    state, problems = rebased(state, without(LAPTOP, "0"))
    assert len(state.reserved) == 1
    assert "2 CPUs are to be reserved, but only" in problems[0]
    state = node.release(state, "b")
    assert len(state.reserved) == 2
    assert node.validate(state) == []


def test_new_settings_never_take_a_cpu_from_a_running_container():
    state = after(pod("a", container("x", 2000)))
    state, problems = rebased(state, LAPTOP, node.NodeConfig(reserved=cpus("1-2")))
    assert str(state.reserved) == "2"
    assert str(state.entries["a", "x"].cpus) == "1,5"
    assert problems == ["CPU 1 should be reserved, but is not free: have 2"]
    assert str(node.release(state, "a").reserved) == "1-2"


def test_a_larger_machine_reserves_more():
    state, problems = rebased(after(pod("a", container("x", 2000))), DUAL)
    assert len(state.reserved) == 2
    assert problems == []


def test_of_two_owners_the_first_admitted_keeps_the_cpu():
    state = after(pod("a", container("x", 2000)), pod("b", container("y", 2000)))
    entries = {**state.entries, ("b", "y"): replace(state.entries["b", "y"], cpus=cpus("2,5"))}
    state, problems = rebased(replace(state, entries=entries), LAPTOP)
    assert str(state.entries["b", "y"].cpus) == "2"
    assert problems == ["test/b/y: CPU 5 also allocated to another container; keeps CPU 2"]


def test_even_one_cpu_is_left_to_the_pool():
    state, _ = rebased(after(pod("a", container("x", 2000))), SINGLE)
    assert str(state.shared_pool) == "0"


def test_a_machine_without_usable_cpus_is_refused():
    with pytest.raises(node.NodeConfigError):
        node.rebase(after(), LAPTOP.restricted(0))


def test_cpus_withheld_from_pods_stay_with_their_containers_and_are_named():
    config = node.NodeConfig(policy="pools")
    before = after(pod("a", container("x", 2000)), config=config)
    reserved = replace(config, pools=node.PoolOptions(withheld=before.exclusive))
    state, problems = rebased(before, LAPTOP, reserved)
    assert (state.exclusive, state.shared_pool) == (before.exclusive, before.shared_pool)
    (text,) = problems
    assert text == "CPUs 1,5 are withheld from pods, but allocated exclusively: in use until the pods end"


GUARANTEED = pod("a", container("x", 2000), container("y", 500))
LABELLED = replace(
    pod("a", container("x", 1500), container("y", 500)), placement_spec=PlacementSpec(qos=PodQOS.LSE)
)


@pytest.mark.parametrize(
    ("policy", "request_", "some", "none"),
    [
        ("static", GUARANTEED, {"x": (2, 1)}, {"x": (2, 0)}),
        ("pools", GUARANTEED, {"x": (2, 1)}, {"x": (2, 0)}),
        ("pools", LABELLED, {"x": (2, 1), "y": (2, 1)}, {"x": (2, 0), "y": (2, 0)}),
        ("static", pod("a", container("x", 500)), {}, {}),
        ("pools", replace(GUARANTEED, placement_spec=PlacementSpec(qos=PodQOS.LS)), {}, {}),
    ],
)
def test_the_shortfall_of_exclusive_cpus_is_that_of_admission(policy, request_, some, none):
    config = node.NodeConfig(policy=policy)
    state = after(request_, config=config)
    assert exclusive_shortfall(state, request_) == {}
    lost = list(state.exclusive) or [1, 2]
    for gone, expected in ((lost[:1], some), (lost, none)):
        less, _ = rebased(state, without(LAPTOP, ",".join(map(str, gone))))
        assert exclusive_shortfall(less, request_) == expected
        back, _ = rebased(less, LAPTOP)
        assert (exclusive_shortfall(back, request_) == {}) == (back.exclusive == state.exclusive)


def test_a_cpu_given_up_for_the_pool_is_part_of_the_shortfall():
    state = after(pod("a", container("x", 2000)))
    request = pod("a", container("x", 2000))
    less, problems = rebased(state, LAPTOP.restricted(state.exclusive.mask))
    assert "moved to the shared pool" in problems[0]
    assert exclusive_shortfall(less, request) == {"x": (2, 1)}


def test_pods_under_other_settings_or_without_admission_have_no_shortfall():
    request = pod("a", container("x", 2000))
    state = after(request)
    assert exclusive_shortfall(node.new(LAPTOP), request) == {}
    assert exclusive_shortfall(keep_in_pool(node.new(LAPTOP), request), request) == {}
    assert exclusive_shortfall(rebased(state, LAPTOP, node.NodeConfig(policy="none"))[0], request) == {}
    pools = node.NodeConfig(policy="pools", pools=node.PoolOptions(guaranteed_default=PodQOS.LS))
    in_pool = after(request, config=pools)
    assert exclusive_shortfall(rebased(in_pool, LAPTOP, node.NodeConfig(policy="pools"))[0], request) == {}
