"""The steps that the kubelet's picker reports are the steps that it takes, on any machine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet, format_list
from corelane.machine import model
from corelane.machine.spec import parse_spec
from corelane.placement import topology
from corelane.placement.kubelet import picker
from corelane.placement.kubelet.accumulator import PickerSteps, Why
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
    by_socket=st.booleans(),
    version=st.sampled_from(["1.36", "1.37", "1.38"]),
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(MACHINES),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, 24),
    STRATEGIES,
    st.booleans(),
    st.integers(0, 3),
)
def test_steps_take_the_cpus_that_the_silent_picker_takes(machine, available, n, strategy, exact, hinted):
    units = topology.from_machine(machine)
    available &= units.all
    n = min(n, available.bit_count())
    take = picker.take if exact else picker.take_valid
    try:
        expected = take(units, available, n, strategy, hinted=hinted)
    except picker.AccountingError:
        return
    steps = PickerSteps()
    assert take(units, available, n, strategy, hinted=hinted, reporter=steps) == expected
    together = 0
    for step in steps.steps:
        assert bool(step.cpus) or step.why in (
            Why.NO_WHOLE_UNIT,
            Why.NO_CACHE_FITS,
            Why.NO_IDLE_CORE,
            Why.DISTRIBUTED,
            Why.MIXED_UP_NODES,
            Why.NOT_DISTRIBUTED,
        )
        together |= step.cpus
    assert together == expected


def test_picker_with_a_reporter_rejects_too_few_cpus():
    units = topology.from_machine(MACHINES[0])
    with pytest.raises(picker.NotEnoughCPUs):
        picker.take(units, 0b11, 3, Strategy(), reporter=PickerSteps())


def steps_of(machine, available, n, **strategy):
    steps = PickerSteps()
    units = topology.from_machine(machine)
    picker.take(units, CPUSet.parse(available).mask, n, Strategy(**strategy), reporter=steps)
    return steps.steps


def taking(steps):
    return [(step.level, step.why, format_list(step.cpus)) for step in steps if step.cpus]


def test_whole_nodes_come_before_cores_and_cores_before_a_single_thread():
    steps = steps_of(parse_spec("socket:2 numa:1 core:4 smt:2"), "0-15", 13)
    assert taking(steps) == [
        ("numa node", Why.WHOLE_UNIT, "0-3,8-11"),
        ("core", Why.WHOLE_CORES, "4-5,12-13"),
        ("cpu", Why.SINGLE_CPUS, "6"),
    ]
    assert (steps[0].need, format_list(steps[0].unit)) == (13, "0-3,8-11")
    assert format_list(steps[-1].following) == "7,15"


def test_levels_without_a_whole_unit_report_the_smallest_one():
    steps = steps_of(parse_spec("socket:2 numa:2 core:4 smt:2"), "0-31", 2)
    assert [(step.level, step.why, step.smallest, step.need) for step in steps if not step.cpus] == [
        ("socket", Why.NO_WHOLE_UNIT, 16, 2),
        ("numa node", Why.NO_WHOLE_UNIT, 8, 2),
    ]


def test_cores_in_part_use_come_first_and_the_next_one_is_reported():
    step = steps_of(MACHINES[0], "0-2,5-6", 1)[-1]
    assert (step.why, step.in_part, format_list(step.cpus)) == (Why.SINGLE_CPUS, True, "0")
    assert format_list(step.following) == "1,5"


def test_a_cache_that_holds_the_rest_is_reported():
    steps = steps_of(parse_spec("socket:1 numa:1 l3:2 core:4 smt:2"), "0-15", 4, uncore=True)
    assert taking(steps) == [("l3", Why.FITS_CACHE, "0-1,8-9")]
    assert (steps[-1].free, steps[-1].need, format_list(steps[-1].unit)) == (8, 4, "0-3,8-11")


def test_an_even_distribution_reports_what_each_node_gives_before_the_steps_inside():
    steps = steps_of(parse_spec("socket:2 numa:1 core:4 smt:2"), "0-15", 11, distribute=True)
    assert steps[0].why is Why.DISTRIBUTED
    assert [(node.free, node.taken) for node in steps[0].nodes] == [(8, 6), (8, 5)]
    assert sum(step.cpus.bit_count() for step in steps[1:]) == 11


def test_a_number_that_does_not_divide_is_reported_as_packed():
    steps = steps_of(MACHINES[2], "0-31", 3, distribute=True, group=2)
    assert steps[0].why is Why.NOT_DISTRIBUTED


def test_spreading_reports_whether_cores_give_in_turn():
    for version, why in (("1.36", Why.SPREAD_BY_ID), ("1.38", Why.SPREAD_IN_TURN)):
        assert steps_of(MACHINES[0], "0-7", 3, spread=True, version=version)[-1].why is why
