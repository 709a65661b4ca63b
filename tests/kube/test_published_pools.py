"""What is published of a node under policy pools is enough to decide there as its agent does."""

import json
from dataclasses import replace
from fractions import Fraction

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.objects import NodeResourceTopology
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.workload.request import PodRequest
from support.pool_asks import options, requests

MACHINE = parse_spec("socket:2 numa:2 core:4 smt:2", name="n")


def through_the_api(state: node.NodeState) -> node.NodeState:
    written = msgspec.json.encode(translate.topology(state.machine, "n", state))
    return translate.state_from_topology(msgspec.json.decode(written, type=NodeResourceTopology))


@given(
    options,
    st.sampled_from([Fraction(1), Fraction(1), Fraction(3, 2)]),
    st.lists(requests(), max_size=6, unique_by=lambda request: request.uid),
    requests(),
)
@settings(max_examples=25, deadline=None)
def test_the_scheduler_decides_from_it_as_the_agent_does(
    pools: PoolOptions, ratio: Fraction, inside: list[PodRequest], next_one: PodRequest
) -> None:
    config = NodeConfig("pools", pools=replace(pools, amplification=ratio))
    state = node.new(MACHINE, config)
    known = []
    for request in inside:
        state, decision = node.admit(state, request)
        if decision.admitted:
            known.append(request)
    back = through_the_api(state)
    for request in known:  # the API server tells of the pods that float; those with CPUs are in already
        back, decision = node.admit(back, request)
        assert decision.admitted
    newcomer = replace(next_one, uid="newcomer")
    ours, theirs = node.admit(back, newcomer)[1], node.admit(state, newcomer)[1]
    assert (ours.admitted, ours.reason, ours.message) == (theirs.admitted, theirs.reason, theirs.message)
    assert (ours.assignments, ours.zone, ours.shared) == (theirs.assignments, theirs.zone, theirs.shared)
    assert (back.best_effort_pool, back.shared_with_be) == (state.best_effort_pool, state.shared_with_be)


def test_the_nodes_own_annotations_are_repeated_for_koordinators_scheduler() -> None:
    system = json.dumps({"cpuset": "3"})
    config = NodeConfig("pools", pools=PoolOptions(system=CPUSet([3])))
    told = translate.topology(
        MACHINE, "n", node.new(MACHINE, config), node_annotations={keys.SYSTEM_QOS: system, "other": "x"}
    )["metadata"]["annotations"]
    assert json.loads(told[keys.SYSTEM_QOS]) == {"cpuset": "3", "cpusetExclusive": True}
    assert "other" not in told
