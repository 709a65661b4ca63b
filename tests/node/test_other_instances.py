"""CPUs of other instances in the ledger: never exclusive here, and free again with their containers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.machine import spec
from corelane.node import admit, codec, validate
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.entries import Sharing
from corelane.node.ledger import new
from corelane.node.recovery.unplaced import OTHERS, hold_others
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass

CONFIGS = [NodeConfig("static", reserved=CPUSet([0])), NodeConfig("pools", pools=PoolOptions())]
SETS = st.lists(
    st.tuples(st.sampled_from(["/a", "b"]), st.sets(st.integers(0, 9), min_size=1).map(CPUSet)), max_size=4
)


def ledger(config, owned=0):
    state = new(spec.parse_spec("socket:1 core:8 smt:1"), config)
    for number in range(owned):
        requests = (ContainerRequest("app", ContainerKind.APP, 2000, 2000, 1, 1),)
        state, decision = admit(
            state, PodRequest(f"u{number}", "d", f"p{number}", QOSClass.GUARANTEED, requests)
        )
        assert decision.admitted
    return state


@pytest.mark.parametrize("config", CONFIGS, ids=["static", "pools"])
@given(sets=SETS, owned=st.integers(0, 3))
def test_their_cpus_are_never_exclusive_here(config, sets, owned):
    before = ledger(config, owned)
    after = hold_others(before, sets)
    theirs = CPUSet(cpu for _, cpus in sets for cpu in cpus)
    assert after.free_exclusive.isdisjoint(theirs)
    assert after.shared_pool
    assert not validate(after)
    for key, entry in before.entries.items():
        assert after.entries[key] == entry
    assert hold_others(after, sets) is after
    assert codec.decode(codec.encode(after), after.machine, config).entries == after.entries
    gone = hold_others(after, [])
    assert (gone.entries, gone.pods, gone.free_exclusive) == (
        before.entries,
        before.pods,
        before.free_exclusive,
    )


@pytest.mark.parametrize("config", CONFIGS, ids=["static", "pools"])
def test_exclusive_sets_leave_the_pool_and_shared_ones_stay(config):
    state = hold_others(ledger(config), [("/a", CPUSet([5])), ("/b", CPUSet([0, 1, 2]))])
    assert 5 not in state.shared_pool
    assert CPUSet([0, 1, 2]) <= state.shared_pool
    assert {entry.sharing for entry in state.of_pod(OTHERS)} == {Sharing.ALONE, Sharing.POOL}
    assert state.free_exclusive == CPUSet([3, 4, 6, 7])


def test_pool_keeps_its_last_cpus():
    state = hold_others(
        ledger(NodeConfig("static", reserved=CPUSet([0]))), [("/a", CPUSet(range(1, 8))), ("/a", CPUSet([0]))]
    )
    assert state.shared_pool == CPUSet([0])
    odd = hold_others(ledger(NodeConfig("pools")), [("/a", CPUSet(range(8)))])
    assert odd.shared_pool == CPUSet(range(8))
    assert not odd.free_exclusive


def test_policy_none_holds_nothing():
    state = ledger(NodeConfig("none"))
    assert hold_others(state, [("/a", CPUSet([3]))]) is state
