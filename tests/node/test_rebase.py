from dataclasses import replace

import pytest

from corelane import node
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
    assert problems == ["test/a/x: CPU 5 is gone: keeps 1"]


def test_a_container_that_lost_all_its_cpus_shares_the_pool():
    state, problems = rebased(after(pod("a", container("x", 2000))), without(LAPTOP, "1,5"))
    assert state.entries["a", "x"].exclusive is False
    assert problems == ["test/a/x: CPUs 1,5 are gone: shares the pool from now on"]


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
    assert "gives CPU 6 to the shared pool, which had none left: keeps 1-2,5" in problems[0]


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
    assert problems == ["test/b/y: CPU 5 belonged to another as well: keeps 2"]


def test_even_one_cpu_is_left_to_the_pool():
    state, _ = rebased(after(pod("a", container("x", 2000))), SINGLE)
    assert str(state.shared_pool) == "0"


def test_a_machine_without_usable_cpus_is_refused():
    with pytest.raises(node.NodeConfigError):
        node.rebase(after(), LAPTOP.restricted(0))
