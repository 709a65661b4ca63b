"""Devices and memory under policy pools: on the NUMA nodes of the CPUs, nobody's twice, and all come back."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, codec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.reasons import label, sentence
from corelane.workload import CPUPolicy, NUMAPolicy, PlacementSpec, PodQOS
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass
from support.node_asks import cpus

GI = 1 << 30
GPU = "example.com/gpu"
MACHINE = parse_spec("socket:2 numa:1 core:4 smt:2 mem:12G")


def state(allocator="optimal", numa=NUMAPolicy.NONE, gpus=(0, 1, 1)):
    config = NodeConfig(
        policy="pools",
        memory=MemoryOptions("Static", {0: {"memory": GI}}),
        devices={GPU: {f"g{i}": 1 << near for i, near in enumerate(gpus)}},
        pools=PoolOptions(allocator=allocator, numa=numa),
    )
    return node.new(MACHINE, config)


def request(uid="a", milli=2000, memory=2 * GI, gpus=0, **placement_spec):
    devices = {GPU: gpus} if gpus else {}
    one = ContainerRequest("a", ContainerKind.APP, milli, milli, memory, memory, devices=devices)
    return PodRequest(
        uid, "test", uid, QOSClass.GUARANTEED, (one,), placement_spec=PlacementSpec(**placement_spec)
    )


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
@pytest.mark.parametrize("numa", [NUMAPolicy.SINGLE_NUMA_NODE, NUMAPolicy.RESTRICTED])
def test_cpus_memory_and_devices_come_from_one_numa_node_where_the_node_is_strict(allocator, numa):
    after, decision = node.admit(state(allocator, numa), request(gpus=2))
    assert decision.admitted, decision.message
    entry = after.entries["a", "a"]
    assert (entry.mems, entry.devices[GPU]) == (cpus("1"), ("g1", "g2"))
    assert entry.cpus.mask & ~after.cpus_of(cpus("1")) == 0
    told = [(label(reason), sentence(reason)) for reason in decision.reasons][-2:]
    assert told == [("devices", f"{GPU}: g1, g2"), ("memory", "2Gi of memory on NUMA node 1")]


def test_the_optimal_allocator_goes_where_the_devices_are_though_nobody_is_strict():
    after, _ = node.admit(state(), request(gpus=2))
    assert after.entries["a", "a"].mems == cpus("1")


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_a_pod_whose_devices_lie_apart_is_refused_where_the_node_is_strict(allocator):
    after, decision = node.admit(state(allocator, NUMAPolicy.SINGLE_NUMA_NODE), request(gpus=3))
    assert not decision.admitted
    assert decision.reason == "InsufficientCPUs"
    assert after.memory == state().memory


def test_a_floating_pod_is_held_where_its_devices_are():
    after, decision = node.admit(state(numa=NUMAPolicy.SINGLE_NUMA_NODE), request(milli=500, gpus=2))
    assert decision.zone == cpus("1")
    assert after.entries["a", "a"].devices[GPU] == ("g1", "g2")


@st.composite
def requests(draw, uid):
    gpus, milli = draw(st.integers(0, 2)), draw(st.sampled_from([0, 500, 1000, 2000, 3000]))
    placement_spec = {
        "qos": draw(st.sampled_from([None, *PodQOS])),
        "numa": draw(st.sampled_from([None, *NUMAPolicy])),
        "cpu_policy": draw(st.sampled_from([None, *CPUPolicy])),
    }
    one = request(uid, milli, draw(st.integers(1, 14)) * GI, gpus, **placement_spec)
    init = replace(one.containers[0], name="i", kind=ContainerKind.INIT)
    return replace(one, containers=(init, *one.containers)) if draw(st.booleans()) else one


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["optimal", "koordinator"]),
    st.sampled_from([NUMAPolicy.NONE, NUMAPolicy.RESTRICTED, NUMAPolicy.SINGLE_NUMA_NODE]),
    st.lists(st.integers(0, 1), max_size=4),
    st.data(),
)
def test_nothing_is_handed_out_twice_and_all_of_it_comes_back(allocator, numa, gpus, data):
    idle = after = state(allocator, numa, gpus)
    for step in range(data.draw(st.integers(1, 6))):
        before = after
        after, decision = node.admit(before, data.draw(requests(f"pod-{step}")))
        assert decision.admitted or after is before
        assert node.validate(after) == []
    assert codec.decode(codec.encode(after), after.machine, after.config) == after
    for uid in list(after.pods):
        after = node.release(after, uid)
    assert (after.memory, after.bound, dict(after.placed_pods)) == (idle.memory, cpus(""), {})
