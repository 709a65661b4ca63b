"""What is told of a request is what `admit` decides, on any node and under any options."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node
from corelane.app.pod_manifests import pod_request
from corelane.cpuset import CPUSet, parse_list
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, StaticOptions, TopologyOptions
from corelane.node.config import NodeConfig
from corelane.node.explain.pod_explanation import Locality
from corelane.node.explain.what_if import explain
from corelane.view import allocate as view
from corelane.workload.request import PodResources, QOSClass
from support.node_asks import container, init, pod, sidecar

MACHINES = [parse_spec("socket:2 numa:2 core:4 smt:2"), parse_spec("socket:1 numa:1 core:6 smt:2")]
GI, GPU = 1 << 30, "example.com/gpu"
KINDS = {"app": container, "init": init, "sidecar": sidecar}


@st.composite
def configs(draw):
    options = st.sampled_from(
        [
            {},
            {"full_pcpus_only": True},
            {"distribute_cpus_across_numa": True},
            {"distribute_cpus_across_cores": True},
            {"prefer_align_cpus_by_uncorecache": True},
            {"align_by_socket": True},
            {"strict_cpu_reservation": True, "full_pcpus_only": True, "distribute_cpus_across_numa": True},
        ]
    )
    policy = draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]))
    chosen = draw(options)
    if policy == "single-numa-node":
        chosen = {name: on for name, on in chosen.items() if name != "align_by_socket"}
    version = draw(st.sampled_from(["1.36", "1.37", "1.38"]))
    more = {}
    if draw(st.booleans()):
        more = {
            "memory": MemoryOptions("Static", {0: {"memory": GI}}),
            "devices": {GPU: {"g0": 1, "g1": 1, "g2": 0}},
            "pod_level": draw(st.booleans()),
        }
    return NodeConfig(
        **more,
        reserved_count=draw(st.integers(1, 4)),
        options=StaticOptions(**chosen, version=version),
        numa=TopologyOptions(policy, draw(st.sampled_from(["container", "pod"])), draw(st.booleans())),
        exact=draw(st.booleans()),
    )


@st.composite
def requests(draw, uid):
    members = draw(
        st.lists(
            st.tuples(st.sampled_from(list(KINDS)), st.sampled_from([0, 500, 1000, 2000, 4000, 7000])),
            min_size=1,
            max_size=3,
        )
    )
    members.sort(key=lambda member: member[0] == "app")
    qos = draw(st.sampled_from([QOSClass.GUARANTEED, QOSClass.GUARANTEED, QOSClass.BURSTABLE]))
    containers = [
        replace(KINDS[kind](f"c{i}", milli), devices=draw(st.sampled_from([{}, {GPU: 1}, {GPU: 2}])))
        for i, (kind, milli) in enumerate(members)
    ]
    level = draw(st.sampled_from([None, None, None, PodResources(8000, 4 * GI)]))
    return replace(pod(uid, *containers, qos=qos), level=level)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(MACHINES), configs(), st.data())
def test_the_answer_is_what_admit_decides_and_every_cpu_has_a_step(machine, config, data):
    state = node.new(machine, config)
    for number in range(data.draw(st.integers(0, 3))):
        state, _ = node.admit(state, data.draw(requests(f"before{number}")))
    request = data.draw(requests("now"))
    after, decision = node.admit(state, request)
    _, found = explain(state, request)
    assert found.decision.admitted == decision.admitted
    assert (found.decision.reason, found.decision.message) == (decision.reason, decision.message)
    told = {line.name: line.cpus for line in found.containers if line.cpus}
    assert told == dict(decision.assignments)
    for line in found.containers:
        assert line.steps
        if line.cpus:
            assert sum(1 << cpu for cpu in line.cpus) == union(line)
            assert line.runner_up.isdisjoint(line.cpus)
            assert len(line.runner_up) in (0, line.requested)
            assert sum(candidate.chosen for candidate in line.candidates) <= 1
        entry = after.entries.get((request.uid, line.name))
        held = entry if decision.admitted and entry else None
        told = {name: tuple(ids) for name, ids in line.devices.items()}
        assert told == (dict(held.devices) if held else {})
        assert [one.size for one in line.memory] == [one.size for one in (held.memory if held else ())]
    merges = [found.merge, *(line.merge for line in found.containers)]
    for merge in filter(None, merges):
        assert merge.admitted or not decision.admitted
    json.dumps(view.plain(found))


def union(line):
    mask = 0
    for step in line.steps:
        mask |= parse_list(step.cpus)
    return mask


def asked(cpus, machine=MACHINES[0], **options):
    state = node.new(machine, NodeConfig(reserved_count=1, **options))
    return explain(state, pod_request(cpus))[1]


def test_the_runner_up_is_what_comes_when_the_choice_is_taken():
    found = asked("4")
    only = found.containers[0]
    assert str(only.cpus) == "1-2,17-18"
    assert str(only.runner_up) == "4-5,20-21"
    assert only.locality == Locality(1, 1, 2, 0)


def test_candidates_are_in_the_order_of_the_topology_manager():
    candidates = asked("8").containers[0].candidates
    assert [(one.nodes, one.free, one.preferred, one.chosen) for one in candidates[:3]] == [
        ("1", 8, True, True),
        ("2", 8, True, False),
        ("3", 8, True, False),
    ]
    assert candidates[3].preferred is False


def test_a_refusal_says_why_and_gives_nothing():
    found = asked("9", numa=TopologyOptions("single-numa-node"))
    assert not found.decision.admitted
    assert found.decision.reason == "TopologyAffinityError"
    assert found.containers[0].cpus == CPUSet()
    assert found.containers[0].steps[-1].step == "refused"
    assert found.containers[0].candidates


@pytest.mark.parametrize("cpus", ["0", "1500m"])
def test_what_is_no_whole_number_shares_the_pool(cpus):
    only = asked(cpus).containers[0]
    assert only.cpus == CPUSet()
    assert only.steps[0].step == "shared"


def test_without_distances_the_usual_ones_stand_in():
    machine = parse_spec("socket:2 numa:2 core:4 smt:2")
    found = asked("20", machine, numa=TopologyOptions(prefer_closest_numa_nodes=True))
    assert found.decision.admitted
    assert found.containers[0].candidates
