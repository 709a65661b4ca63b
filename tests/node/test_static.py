"""The static policy's options, and the topology manager's policies and scopes, through admission."""

from dataclasses import replace

import pytest

from corelane import node
from corelane.machine.spec import parse_spec
from corelane.node import StaticOptions, TopologyOptions
from corelane.node.kubelet.cpu_manager import pod_cpus
from corelane.reasons import sentence
from support.node_asks import LAPTOP, QUAD_NUMA, container, cpus, init, pod, sidecar


def state(machine, *, reserved=None, numa=None, exact=False, **options):
    settings = node.NodeConfig(
        reserved=cpus(reserved) if reserved else None,
        options=StaticOptions(**options),
        numa=numa or TopologyOptions(),
        exact=exact,
    )
    return node.new(machine, settings)


def sets(decision):
    assert decision.admitted, decision.message
    return {name: str(given) for name, given in decision.assignments.items()}


def test_full_cores_only_does_not_take_a_proposal_of_half_cores():
    request = pod("a", container("x", 2000), proposal={"x": "2,3"})
    _, decision = node.admit(state(LAPTOP, full_pcpus_only=True), request)
    assert decision.repicked
    assert sets(decision) == {"x": "1,5"}
    assert "violates the node's CPU manager options" in sentence(decision.reasons[0])


def test_the_last_shared_cpu_is_kept_unlike_by_the_kubelet():
    request = pod("a", container("x", 6000))
    own = state(LAPTOP, reserved="0,4", strict_cpu_reservation=True)
    _, decision = node.admit(own, request)
    assert "one CPU must remain" in decision.message
    exact = state(LAPTOP, reserved="0,4", strict_cpu_reservation=True, exact=True)
    after, decision = node.admit(exact, request)
    assert decision.admitted
    assert not after.shared_pool


def test_strict_reservation_of_everything_is_refused():
    with pytest.raises(node.NodeConfigError, match="strict-cpu-reservation: all CPUs"):
        state(LAPTOP, reserved="0-7", strict_cpu_reservation=True)


def test_close_nodes_are_preferred_and_missing_distances_are_no_error():
    far = {0: 10, 1: 30, 2: 30, 3: 11}
    nodes = tuple(replace(one, distances=far if one.id == 0 else {}) for one in QUAD_NUMA.nodes)
    close = TopologyOptions(prefer_closest_numa_nodes=True)
    machine = replace(QUAD_NUMA, nodes=nodes)
    _, decision = node.admit(state(machine, numa=close), pod("a", container("x", 12000)))
    assert decision.assignments["x"] <= cpus("0-3,12-15,16-19,28-31")


def test_a_strict_topology_manager_does_not_take_a_proposal_that_spans_nodes():
    request = pod("a", container("x", 2000), proposal={"x": "1,5"})
    _, decision = node.admit(state(QUAD_NUMA, numa=TopologyOptions("single-numa-node")), request)
    assert decision.repicked
    _, decision = node.admit(state(QUAD_NUMA), request)
    assert sets(decision) == {"x": "1,5"}


def test_a_pods_exclusive_cpus_count_what_runs_at_the_same_time():
    request = pod(
        "a", init("i", 6000), sidecar("s", 2000), init("j", 3000), container("x", 1000), container("y", 500)
    )
    assert pod_cpus(request) == 6
    assert pod_cpus(pod("b", sidecar("s", 2000), init("j", 3000), container("x", 1000))) == 5


def test_too_many_numa_nodes_are_refused_only_where_a_limit_is_set():
    machine = parse_spec("socket:2 numa:5 core:1 smt:1")
    state(machine)
    with pytest.raises(node.NodeConfigError, match="unsupported on machines with more than 8 NUMA Nodes"):
        state(machine, numa=TopologyOptions.parse("restricted", "container", {}))
    state(machine, numa=TopologyOptions.parse("restricted", "pod", {"max-allowable-numa-nodes": "10"}))


def test_options_are_read_as_go_reads_them():
    options = StaticOptions.parse({"full-pcpus-only": "T", "align-by-socket": "0"}, "1.38")
    assert options == StaticOptions(full_pcpus_only=True, version="1.38")
    numa = TopologyOptions.parse("restricted", "pod", {"prefer-closest-numa-nodes": "true"})
    assert numa == TopologyOptions("restricted", "pod", True, 8)


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (lambda: StaticOptions.parse({"pin": "true"}), 'unknown CPU Manager Policy option: "pin"'),
        (lambda: StaticOptions.parse({"version": "true"}), 'unknown CPU Manager Policy option: "version"'),
        (
            lambda: StaticOptions.parse({"full-pcpus-only": "yes"}),
            'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yes": invalid syntax',
        ),
        (lambda: TopologyOptions.parse("x", "pod", {}), 'unknown policy: "x"'),
        (lambda: TopologyOptions.parse("none", "x", {}), 'unknown scope: "x"'),
        (
            lambda: TopologyOptions.parse("none", "pod", {"x": ""}),
            'unknown Topology Manager Policy option: "x"',
        ),
        (
            lambda: TopologyOptions.parse("none", "pod", {"max-allowable-numa-nodes": "7"}),
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
        (
            lambda: TopologyOptions.parse("none", "pod", {"max-allowable-numa-nodes": "x"}),
            (
                'unable to convert policy option to integer "max-allowable-numa-nodes": '
                'strconv.Atoi: parsing "x": invalid syntax'
            ),
        ),
    ],
)
def test_bad_options_are_refused_in_upstreams_words(parse, message):
    with pytest.raises(node.NodeConfigError) as refusal:
        parse()
    assert str(refusal.value) == message
