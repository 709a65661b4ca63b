from dataclasses import replace

import pytest

from corelane import node
from corelane.node.entries import Origin, Phase, Sharing
from support.node_asks import DUAL, LAPTOP, container, cpus, init, pod


def after(*requests, machine=LAPTOP, config=None):
    state = node.new(machine, config)
    for request in requests:
        state, decision = node.admit(state, request)
        assert decision.admitted, decision.message
    return state


def codes(state):
    return {problem.code for problem in node.validate(state)}


def test_releasing_a_pod_returns_its_cpus_and_its_requests():
    state = after(pod("a", container("x", 2000)), pod("b", container("x", 2000)))
    state = node.release(state, "a")
    assert str(state.shared_pool) == "0-1,3-5,7"
    assert state.requested == 2000
    assert node.validate(state) == []
    assert set(state.pods) == {"b"}


def test_releasing_one_container_leaves_what_a_sibling_took_over():
    state = after(pod("a", init("i", 4000), container("x", 2000)))
    state = node.release(state, "a", "i")
    assert state.exclusive == state.entries["a", "x"].cpus
    assert state.requested == 4000
    assert node.validate(state) == []


def test_releasing_the_last_container_ends_the_pod():
    state = node.release(after(pod("a", container("x", 2000))), "a", "x")
    assert not state.pods
    assert state.requested == 0


def test_releasing_twice_changes_nothing():
    state = node.release(after(pod("a", container("x", 2000))), "a")
    assert node.release(state, "a") is state
    assert node.release(state, "a", "x") is state


def test_a_pod_without_containers_can_be_released():
    assert not node.release(after(pod("a")), "a").pods


def test_every_change_raises_the_generation():
    state = node.new(LAPTOP)
    generations = [state.generation]
    state, _ = node.admit(state, pod("a", container("x", 2000)))
    generations.append(state.generation)
    state = node.mark(state, "a", "x", Phase.APPLIED)
    generations.append(state.generation)
    generations.append(node.release(state, "a").generation)
    assert generations == [0, 1, 2, 3]


def test_states_are_never_changed_in_place():
    state = after(pod("a", container("x", 2000)))
    before = node.codec.encode(state)
    node.release(state, "a")
    node.mark(state, "a", "x", Phase.CONFIRMED)
    node.admit(state, pod("b", container("x", 1000)))
    assert node.codec.encode(state) == before
    with pytest.raises(TypeError):
        state.entries["a", "y"] = None


def test_marking_moves_a_container_through_its_phases():
    state = after(pod("a", container("x", 2000)))
    for phase in (Phase.APPLIED, Phase.CONFIRMED, Phase.APPLIED, Phase.RELEASING):
        state = node.mark(state, "a", "x", phase)
        assert state.entries["a", "x"].phase is phase
    assert node.mark(state, "a", "x", Phase.RELEASING) is state


def test_what_is_being_released_does_not_come_back():
    state = node.mark(after(pod("a", container("x", 2000))), "a", "x", Phase.RELEASING)
    with pytest.raises(node.LedgerError, match="test/a is being released: it cannot be confirmed"):
        node.mark(state, "a", "x", Phase.CONFIRMED)


def test_marking_an_unknown_container_is_an_error():
    with pytest.raises(node.LedgerError, match="container 'x' of pod 'a' is not in the ledger"):
        node.mark(node.new(LAPTOP), "a", "x", Phase.APPLIED)


def test_owners_name_who_has_a_cpu_alone():
    state = after(pod("a", container("x", 2000)), pod("b", container("y", 1000)), pod("c", container("z", 0)))
    assert {cpu: entry.pod for cpu, entry in state.owners().items()} == {
        1: "test/a",
        5: "test/a",
        4: "test/b",
    }


@pytest.mark.parametrize(
    ("machine", "count"),
    [(LAPTOP, 1), (DUAL, 2)],
)
def test_five_percent_rounded_up_is_reserved_by_default(machine, count):
    assert len(node.new(machine).reserved) == count == node.default_reserved_count(len(machine.cpus))


def test_explicit_reserved_cpus_are_honoured():
    state = after(pod("a", container("x", 6000)), config=node.NodeConfig(reserved=cpus("3,7")))
    assert str(state.entries["a", "x"].cpus) == "0-2,4-6"


def test_validate_finds_every_kind_of_damage():
    state = after(pod("a", container("x", 2000)), pod("b", container("y", 2000)))
    x = state.entries["a", "x"]

    def damaged(**changes):
        entries = {**state.entries, ("a", "x"): replace(x, **changes)}
        return codes(replace(state, entries=entries))

    assert damaged(cpus=cpus("1,2")) == {"doubled", "derived"}
    assert damaged(cpus=cpus("1,9")) == {"lost", "derived"}
    assert damaged(cpus=cpus("0,1")) == {"reserved", "derived"}
    assert damaged(sharing=Sharing.POOL) == {"derived"}
    assert damaged(cpus=cpus("")) == {"exclusive", "derived"}
    assert damaged(container="z") == {"key"}
    assert codes(replace(state, requested=1)) == {"derived"}
    assert codes(replace(state, reserved=cpus(""))) == {"reserved"}
    assert codes(replace(state, pods={"a": 4000})) == {"pod"}
    assert codes(replace(state, reserved=cpus("8"))) == {"reserved", "pool"}


def test_entries_tell_origin_and_allocator():
    state = after(pod("a", container("x", 2000), container("y", 500)))
    assert state.entries["a", "x"].origin is Origin.CORELANE
    assert (state.entries["a", "x"].allocator, state.entries["a", "y"].allocator) == ("kubelet", "")
