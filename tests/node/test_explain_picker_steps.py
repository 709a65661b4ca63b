"""The steps told are the steps taken: the slow walk ends where the picker does, on any machine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet, format_list, parse_list
from corelane.machine import model
from corelane.machine.spec import parse_spec
from corelane.node.explain import picker_steps
from corelane.placement import topology
from corelane.placement.kubelet import picker
from corelane.placement.kubelet.picker import Strategy


def hybrid():
    """Eight cores of two threads and six of one."""
    rows = [(cpu, cpu // 2 if cpu < 16 else cpu - 8, 0, 0, 0) for cpu in range(22)]
    return model.from_rows("hybrid", rows)


def two_sockets_in_a_node():
    rows = [(cpu, cpu % 16, cpu % 16 // 4, cpu % 16 // 8, cpu % 16 // 2) for cpu in range(32)]
    return model.from_rows("two sockets in a node", rows)


MACHINES = [
    parse_spec("socket:1 numa:1 core:4 smt:2"),
    parse_spec("socket:2 numa:1 core:6 smt:2"),
    parse_spec("socket:2 numa:2 core:4 smt:2"),
    parse_spec("socket:2 numa:4 core:4 smt:1"),
    parse_spec("socket:1 numa:2 l3:2 core:4 smt:2"),
    hybrid(),
    two_sockets_in_a_node(),
]
STRATEGIES = st.builds(
    Strategy,
    distribute=st.booleans(),
    spread=st.booleans(),
    uncore=st.booleans(),
    group=st.sampled_from([1, 2]),
    version=st.sampled_from(["1.36", "1.37", "1.38"]),
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(MACHINES), st.integers(0, (1 << 32) - 1), st.integers(0, 24), STRATEGIES, st.booleans()
)
def test_the_steps_end_where_the_picker_does(machine, available, n, strategy, exact):
    units = topology.from_machine(machine)
    available &= units.all
    if n > available.bit_count():
        n = available.bit_count()
    take = picker.take if exact else picker.take_valid
    try:
        expected = take(units, available, n, strategy)
    except picker.AccountingError:
        return
    taken, steps = picker_steps.explain(machine, units, available, n, strategy, exact=exact)
    assert taken == expected
    told = 0
    for step in steps:
        assert step.text
        told |= parse_list(step.cpus)
    assert told == taken
    assert [step.step for step in steps] != ["pick"] or not n


def test_too_few_are_refused_as_by_the_picker():
    machine = MACHINES[0]
    with pytest.raises(picker.NotEnoughCPUs):
        picker_steps.explain(machine, topology.from_machine(machine), 0b11, 3, Strategy(), exact=True)


def explained(machine, available, n, **strategy):
    units = topology.from_machine(machine)
    taken, steps = picker_steps.explain(
        machine, units, CPUSet.parse(available).mask, n, Strategy(**strategy), exact=True
    )
    return format_list(taken), [(step.step, step.cpus) for step in steps if step.cpus], steps


def test_whole_nodes_then_cores_then_a_thread_are_told_in_that_order():
    machine = parse_spec("socket:2 numa:1 core:4 smt:2")
    taken, told, steps = explained(machine, "0-15", 13)
    assert told == [("numa node", "0-3,8-11"), ("core", "4-5,12-13"), ("cpu", "6")]
    assert taken == "0-6,8-13"
    assert "all of NUMA node 0" in steps[0].text


def test_cores_in_part_use_come_first_and_the_next_in_line_is_named():
    _, told, steps = explained(MACHINES[0], "0-2,5-6", 1)
    assert told == [("cpu", "0")]
    assert "cores in part use first" in steps[-1].text
    assert "next in line: CPUs 1,5" in steps[-1].text


def test_a_cache_that_holds_the_rest_is_named():
    machine = parse_spec("socket:1 numa:1 l3:2 core:4 smt:2")
    _, told, steps = explained(machine, "0-15", 4, uncore=True)
    assert told == [("l3", "0-1,8-9")]
    assert "fit into L3 0 (8 free)" in steps[-1].text


def test_an_even_distribution_says_how_many_from_where_and_who_bears_the_rest():
    machine = parse_spec("socket:2 numa:1 core:4 smt:2")
    _, _, steps = explained(machine, "0-15", 11, distribute=True)
    assert "evenly over 2 NUMA nodes, NUMA node 0: 6, NUMA node 1: 5" in steps[0].text
