"""Memory nodes and quotas follow a container's CPUs, and are put back when those are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.agent.allocation import events
from corelane.agent.allocation.cpu_moves import CPUAllocation, ResourcePolicy, due_change, memory_nodes
from corelane.agent.allocation.instructions import Pin
from corelane.cpuset import CPUSet
from corelane.machine import spec
from corelane.node.entries import Sharing
from corelane.runtime.base import KEEP, ObservedResources, ResourceUpdate
from corelane.workload.request import QOSClass
from support.agent_world import APP, World, plan
from support.node_asks import without

CPUS, NODES = CPUSet.parse("1-2"), CPUSet.parse("0-1")
ALONE, POOL = CPUAllocation(CPUS, Sharing.ALONE), CPUAllocation(CPUS, Sharing.POOL)


def observed(**members):
    return ObservedResources(cpus=CPUS, **({"mems": NODES, "cgroup": "g"} | members))


def due(seen, target, limit=2000, **policy):
    return due_change(seen, target, limit=limit, nodes=NODES, policy=ResourcePolicy(**policy))


@pytest.mark.parametrize(
    ("seen", "target", "change"),
    [
        (observed(quota_us=200_000), ALONE, ResourceUpdate(quota_us=None)),
        (observed(), POOL, ResourceUpdate(quota_us=200_000)),
        (observed(period_us=50_000), POOL, ResourceUpdate(quota_us=100_000)),
        (observed(mems=CPUSet([0])), ALONE, ResourceUpdate(mems=NODES)),
        (observed(), replace(ALONE, mems=CPUSet([1])), ResourceUpdate(mems=CPUSet([1]))),
        (observed(), ALONE, None),
        (observed(quota_us=70_000), POOL, None),
        (observed(mems=CPUSet(), cgroup=""), POOL, None),
        (None, ALONE, None),
    ],
    ids=[
        "exclusive CPUs without a quota",
        "the lifted quota is put back",
        "in the period that the kernel has",
        "all memory nodes are put back",
        "memory nodes follow the ledger",
        "nothing is due",
        "a quota of somebody else stays",
        "affinity alone has neither",
        "unknown",
    ],
)
def test_a_change_is_due_where_the_kernel_differs(seen, target, change):
    assert due(seen, target) == change


def test_a_container_without_limit_gets_no_quota():
    assert due(observed(), POOL, limit=0) is None


def test_what_belongs_to_the_kubelet_is_left_alone():
    seen = observed(mems=CPUSet([0]), quota_us=200_000)
    assert due(seen, ALONE, mems=False) == ResourceUpdate(quota_us=None)
    assert due(seen, ALONE, quota=False) == ResourceUpdate(mems=NODES)
    assert due(seen, ALONE, mems=False, quota=False) is None


@given(
    st.sampled_from([None, 1_000, 70_000, 200_000]),
    st.sampled_from(["0", "1", "0-1"]),
    st.sampled_from([None, "0", "1"]),
    st.sampled_from(list(Sharing)),
    st.integers(0, 4000),
)
def test_a_change_once_applied_leaves_nothing_due(quota, mems, allocated, sharing, limit):
    target = CPUAllocation(CPUS, sharing, allocated and CPUSet.parse(allocated))
    seen = observed(quota_us=quota, mems=CPUSet.parse(mems))
    change = due(seen, target, limit)
    if change is not None:
        seen = replace(seen, mems=change.mems or seen.mems)
        if change.quota_us is not KEEP:
            seen = replace(seen, quota_us=change.quota_us)
        assert due(seen, target, limit) is None


def test_memory_nodes_are_those_with_memory():
    assert memory_nodes(spec.parse_spec("numa:2 core:2 smt:1")) == CPUSet.parse("0-1")


# -- in the state machine


def exclusive(**world):
    world = World(**world)
    world.add(plan("u", ("a", APP, 2000)))
    world.settle()
    return world, world.container("u", "a")


def pins(world):
    return [order for order in world.pending if isinstance(order, Pin)]


def test_a_container_back_in_the_shared_pool_gets_its_quota_back():
    world, process = exclusive()
    assert process.quota_us is None
    machine = without(world.machine, str(process.cpus))
    world.feed(events.MachineChanged(machine=machine, **world.times()))
    process.sharing = Sharing.POOL
    world.settle()
    assert process.cpus == machine.usable
    assert process.quota_us == 200_000


def test_a_quota_that_came_back_by_itself_is_lifted_again():
    world, process = exclusive()
    process.quota_us = 200_000
    world.tick(10)
    world.settle()
    assert process.quota_us is None


def test_a_change_of_memory_nodes_alone_leads_to_an_update():
    world, process = exclusive(spec="numa:2 core:4 smt:1")
    process.mems = CPUSet([0])
    world.tick(10)
    while world.inbox:
        world.deliver(0)
    (pin,) = pins(world)
    assert pin.update == ResourceUpdate(cpus=process.cpus, mems=CPUSet.parse("0-1"))
    world.settle()
    assert process.mems == CPUSet.parse("0-1")


def test_what_was_lifted_by_an_earlier_agent_is_put_back_by_the_next():
    world = World()
    world.add(plan("u", ("a", APP, 1500), qos=QOSClass.GUARANTEED))
    world.settle()
    process = world.container("u", "a")
    assert process.quota_us == 150_000
    process.quota_us = None
    world.boot()
    world.settle()
    assert process.quota_us == 150_000


def test_a_refused_change_is_tried_again_later_and_one_without_effect_is_not():
    world, process = exclusive()
    process.quota_us = 200_000
    world.tick(10)
    while world.inbox:
        world.deliver(0)
    assert pins(world)
    world.carry_out(0, fails=True)
    world.settle()
    assert process.quota_us == 200_000
    world.tick(10)
    world.settle()
    assert process.quota_us is None

    process.quota_us = 200_000
    world.tick(10)
    while world.inbox:
        world.deliver(0)
    (pin,) = pins(world)
    world.pending.remove(pin)
    for _ in range(3):
        world.feed(
            events.Pinned(
                id=pin.id,
                cpus=process.cpus,
                allowed=process.cpus,
                resources=process.resources,
                **world.times(),
            )
        )
    assert not pins(world)
