"""The sentences of the steps that the kubelet's picker reports."""

import pytest

from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import StaticOptions
from corelane.node.config import NodeConfig
from corelane.node.explain import static_steps
from corelane.placement import topology
from corelane.placement.kubelet import picker

SMALL = parse_spec("socket:1 numa:1 core:4 smt:2")
TWO_SOCKETS = parse_spec("socket:2 numa:1 core:4 smt:2")


def explained(machine, cpus, n, **options):
    config = NodeConfig(options=StaticOptions(**options), exact=True)
    units = topology.from_machine(machine)
    return static_steps.picker_steps(machine, units, config, CPUSet.parse(cpus).mask, n)


def taking(steps):
    return [(step.step, step.cpus) for step in steps if step.cpus]


def test_too_few_cpus_raise_the_error_of_the_picker():
    with pytest.raises(picker.NotEnoughCPUs):
        explained(SMALL, "0-1", 3)


def test_whole_nodes_then_cores_then_a_thread_are_reported_in_that_order():
    steps = explained(TWO_SOCKETS, "0-15", 13)
    assert taking(steps) == [("numa node", "0-3,8-11"), ("core", "4-5,12-13"), ("cpu", "6")]
    assert steps[0].text == "all of NUMA node 0: idle, and 13 CPUs needed"


def test_cores_in_partial_use_come_first_and_the_next_choice_is_named():
    steps = explained(SMALL, "0-2,5-6", 1)
    assert taking(steps) == [("cpu", "0")]
    assert steps[-1].text == "1 single CPU from cores in partial use first; next would be CPUs 1,5"


def test_an_l3_domain_that_holds_the_rest_is_named():
    machine = parse_spec("socket:1 numa:1 l3:2 core:4 smt:2")
    steps = explained(machine, "0-15", 4, prefer_align_cpus_by_uncorecache=True)
    assert taking(steps) == [("l3", "0-1,8-9")]
    assert steps[-1].text == "L3 domain 0 has 8 free CPUs, 4 needed"


def test_an_even_distribution_names_the_share_of_each_node_and_the_free_cpus():
    steps = explained(TWO_SOCKETS, "0-15", 11, distribute_cpus_across_numa=True)
    assert steps[0].text.startswith("evenly from 2 NUMA nodes (NUMA node 0: 6, NUMA node 1: 5), which leaves")


def test_cores_are_taken_from_the_nodes_with_the_fewest_free_cpus():
    steps = explained(TWO_SOCKETS, "0-6,8-14", 4)
    whole = next(step for step in steps if step.step == "core")
    assert "from NUMA node 1 (fewest free CPUs first: NUMA node 1: 6, NUMA node 0: 8)" in whole.text
