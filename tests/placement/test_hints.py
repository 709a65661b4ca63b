"""NUMA hints and their merge, against upstream's fold over the cross product of all hints."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.placement import families, hints, topology, topologymanager
from corelane.placement.hints import Hint
from support.executed_lines import counted
from support.numa_reference import fold

FOUR_NODES = topology.build([(cpu, cpu, cpu // 8, cpu // 4, cpu // 8) for cpu in range(16)])
SPARSE_IDS = topology.build([(cpu, cpu, cpu // 4, [0, 0, 1, 1, 8, 8, 9, 9][cpu], 0) for cpu in range(8)])


POLICIES = st.sampled_from(["best-effort", "restricted", "single-numa-node"])
HINTS = st.builds(Hint, st.one_of(st.none(), st.integers(1, 15)), st.booleans())
LISTS = st.lists(st.one_of(st.none(), st.lists(HINTS, max_size=5)), max_size=3)


@st.composite
def distances(draw, nodes=4):
    far = {(a, b): draw(st.integers(11, 40)) for a in range(nodes) for b in range(nodes) if a != b}
    return {a: {b: far.get((a, b), 10) for b in range(nodes)} for a in range(nodes)}


@settings(max_examples=250, deadline=None)
@given(LISTS, POLICIES, st.one_of(st.none(), distances()))
def test_merging_gives_what_upstreams_fold_gives(lists, policy, table):
    assert topologymanager.merge(lists, 0b1111, policy, distances=table) == fold(lists, 0b1111, policy, table)


@st.composite
def merges(draw):
    """Hints of up to four resources over up to ten nodes, whose ids may have gaps."""
    ids = draw(st.lists(st.integers(0, 20), min_size=1, max_size=10, unique=True))
    some = st.sets(st.sampled_from(ids), min_size=1).map(lambda ids: sum(1 << node for node in ids))
    hint = st.builds(Hint, st.one_of(st.none(), some), st.booleans())
    lists = draw(st.lists(st.one_of(st.none(), st.lists(hint, max_size=6)), max_size=4))
    return sum(1 << node for node in ids), lists


@settings(max_examples=120, deadline=None)
@given(merges(), POLICIES, st.one_of(st.none(), distances(21)))
def test_merging_over_many_nodes_gives_what_upstreams_fold_gives(case, policy, table):
    nodes, lists = case
    assert topologymanager.merge(lists, nodes, policy, distances=table) == fold(lists, nodes, policy, table)


def test_a_hint_for_a_node_that_the_machine_lacks_is_refused():
    with pytest.raises(ValueError, match="NUMA nodes 0x4, but the machine has 0x3"):
        topologymanager.merge([[Hint(4, True)]], 3, "best-effort")


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from([FOUR_NODES, SPARSE_IDS]),
    st.data(),
    st.integers(1, 17),
    st.booleans(),
    POLICIES,
    st.booleans(),
)
def test_the_best_cpu_hint_is_what_merging_all_cpu_hints_gives(machine, data, n, by_socket, policy, closest):
    cpus = st.integers(0, machine.all)
    available = data.draw(cpus)
    reusable = data.draw(cpus) & data.draw(cpus) & data.draw(cpus) & ~available
    table = data.draw(distances(10)) if closest and policy != "single-numa-node" else None
    nodes = sum(1 << node for node in machine.numa_ids)
    every = hints.cpu_hints(machine, available, reusable, n, by_socket=by_socket)
    best = hints.best_cpu_hint(machine, available, reusable, n, by_socket=by_socket, distances=table)
    if policy == "single-numa-node" and not topologymanager.is_single(best):
        best = Hint(None, False)
    if not (policy == "single-numa-node" and by_socket):
        assert topologymanager.judge(best, nodes, policy) == fold([every], nodes, policy, table)


def test_of_unequal_nodes_the_largest_tell_what_an_idle_machine_needs():
    machine = topology.build([(cpu, cpu, int(cpu > 1), int(cpu > 1), int(cpu > 1)) for cpu in range(8)])
    assert hints.cpu_hints(machine, machine.all, 0, 5) == [Hint(0b10, True), Hint(0b11, False)]
    assert hints.best_cpu_hint(machine, machine.all & ~0xF0, 0, 4) == Hint(0b11, False)
    family = hints.cpu_family(machine, machine.all, 0, 5, 0b11)
    assert list(families.members(family.preferred)) == [0b10]


def test_hints_come_in_upstreams_order_with_the_narrowest_preferred():
    found = hints.cpu_hints(FOUR_NODES, CPUSet(range(2, 16)).mask, 0, 4)
    assert [hint.nodes for hint in found[:4]] == [0b0010, 0b0100, 0b1000, 0b0011]
    assert [hint.preferred for hint in found] == [True] * 3 + [False] * (len(found) - 3)


def test_reserved_cpus_can_make_every_hint_unpreferred():
    """Upstream's complaint kubernetes#132187: the smallest set is judged by the idle machine."""
    available = CPUSet([1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15]).mask
    assert hints.best_cpu_hint(FOUR_NODES, available, 0, 4) == Hint(0b0011, False)


def test_reusable_cpus_force_their_node():
    assert hints.best_cpu_hint(FOUR_NODES, CPUSet(range(8)).mask, CPUSet([9]).mask, 2) == Hint(0b0101, False)


def test_align_by_socket_prefers_any_nodes_of_one_socket():
    available = CPUSet([0, 1, 4, 5, 8, 9]).mask
    assert hints.best_cpu_hint(FOUR_NODES, available, 0, 3) == Hint(0b0011, False)
    assert hints.best_cpu_hint(FOUR_NODES, available, 0, 3, by_socket=True) == Hint(0b0011, True)


def test_close_nodes_win_over_low_ones_where_distances_count():
    far = {a: {b: 10 if a == b else 11 if a + b == 3 else 30 for b in range(4)} for a in range(4)}
    assert hints.best_cpu_hint(FOUR_NODES, FOUR_NODES.all, 0, 6) == Hint(0b0011, True)
    assert hints.best_cpu_hint(FOUR_NODES, FOUR_NODES.all, 0, 6, distances=far) == Hint(0b0110, True)


@pytest.mark.parametrize("n", [1, 40, 130, 250])
def test_sixteen_nodes_are_no_explosion(n):
    machine = topology.build([(cpu, cpu, cpu // 64, cpu // 16, 0) for cpu in range(256)])
    hint, lines = counted(hints.best_cpu_hint, machine, machine.all & ~1, 0, n)
    assert hint.nodes is not None
    assert lines < 5_000
