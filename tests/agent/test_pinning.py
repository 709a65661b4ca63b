import itertools

import pytest

from corelane.agent import instructions
from corelane.agent.pinning import CPUAllocation, OccupiedCPUs, start_cpus
from corelane.cpuset import CPUSet
from corelane.node import PoolOptions, Sharing, codec
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.recovery.takeover import take_over
from corelane.workload import PlacementSpec, PodQOS, QOSClass
from support.agent_world import APP, Process, World, plan

MAY_MEET = {
    frozenset({Sharing.LENT, Sharing.BEST_EFFORT}),
    frozenset({Sharing.POOL}),
    frozenset({Sharing.POOL, Sharing.BEST_EFFORT}),
    frozenset({Sharing.BEST_EFFORT}),
    frozenset({Sharing.SYSTEM}),
    frozenset({Sharing.SYSTEM, Sharing.POOL}),
    frozenset({Sharing.SYSTEM, Sharing.BEST_EFFORT}),
}


@pytest.mark.parametrize(("one", "other"), list(itertools.product(Sharing, Sharing)))
def test_sharing_compatibility_is_symmetric(one, other):
    assert one.compatible_with(other) == other.compatible_with(one) == (frozenset({one, other}) in MAY_MEET)


def test_an_exclusive_start_waits_and_a_pool_start_avoids_occupied_cpus():
    occupied = OccupiedCPUs()
    occupied.add(CPUSet.parse("0-3"), Sharing.BEST_EFFORT)
    lent = CPUAllocation(CPUSet.parse("0-1"), Sharing.LENT)
    assert start_cpus(lent, occupied) == lent.cpus
    assert not start_cpus(CPUAllocation(lent.cpus, Sharing.ALONE), occupied)
    occupied.add(lent.cpus, Sharing.LENT)
    assert start_cpus(CPUAllocation(CPUSet.parse("0-7"), Sharing.POOL), occupied) == CPUSet.parse("2-7")
    assert start_cpus(CPUAllocation(CPUSet.parse("0-7"), Sharing.BEST_EFFORT), occupied) == CPUSet.parse(
        "0-7"
    )


def test_two_containers_that_drifted_onto_each_others_cpus_move_back():
    world = World()
    world.add(plan("u1", ("a", APP, 2000)))
    world.add(plan("u2", ("a", APP, 100), qos=QOSClass.BURSTABLE))
    world.settle()
    for process in world.live():
        process.cpus, process.escaped = world.machine.usable, True
    world.boot()
    world.settle()
    alone, shared = world.container("u1", "a"), world.container("u2", "a")
    assert (alone.cpus, shared.cpus) == (CPUSet.parse("1-2"), CPUSet.parse("0,3-5"))


def test_containers_of_one_pod_with_common_cpus_start_together():
    world = World(pools=PoolOptions())
    world.add(plan("u1", ("a", APP, 1500), ("b", APP, 500), placement_spec=PlacementSpec(qos=PodQOS.LSE)))
    world.settle()
    assert world.container("u1", "a").cpus == world.container("u1", "b").cpus == CPUSet.parse("1-2")
    assert world.annotated["u1"] == {"a": CPUSet.parse("1-2"), "b": CPUSet.parse("1-2")}


def test_a_pod_pinned_by_a_kubelet_stays_and_new_pods_avoid_its_cpus():
    world = World(pools=PoolOptions())
    old = plan("old", ("a", APP, 2000), ("b", APP, 100))
    file = Checkpoint("static", entries={"old": {"a": CPUSet.parse("2,5")}})
    ledger, _ = take_over(world.core.ledger, file)
    world.disk = codec.encode(ledger)
    world.processes["a"] = Process("a", "old", "a", 0, CPUSet.parse("2,5"), Sharing.ALONE)
    world.processes["b"] = Process("b", "old", "b", 0, CPUSet.parse("0-1,3-4"), Sharing.POOL)
    world.api["old"] = old
    world.boot()
    world.add(plan("new", ("a", APP, 2000), placement_spec=PlacementSpec(qos=PodQOS.LSE)))
    world.settle()
    assert world.processes["a"].cpus == CPUSet.parse("2,5")
    assert world.container("new", "a").cpus == CPUSet.parse("1,3")
    assert world.processes["b"].cpus == CPUSet.parse("0,4")
    world.delete("old")
    world.settle()
    assert world.core.ledger.shared_pool == CPUSet.parse("0,2,4-5")


@pytest.mark.parametrize(("qos", "waits_for"), [(PodQOS.LSE, {"be", "ls"}), (PodQOS.LSR, {"ls"})])
def test_a_container_starts_after_incompatible_ones_left_its_cpus(qos, waits_for):
    world = World(pools=PoolOptions())
    world.add(plan("be", ("a", APP, 100), placement_spec=PlacementSpec(qos=PodQOS.BE)))
    world.add(plan("ls", ("a", APP, 100), placement_spec=PlacementSpec(qos=PodQOS.LS)))
    world.settle()
    world.add(plan("own", ("a", APP, 2000), placement_spec=PlacementSpec(qos=qos)))
    world.deliver(0)
    moved = {one.id.partition("-")[0] for one in world.pending if isinstance(one, instructions.Pin)}
    assert moved == waits_for
    assert not any(isinstance(one, instructions.Start) for one in world.pending)
    world.settle()
    own, best, shared = (world.container(uid, "a").cpus for uid in ("own", "be", "ls"))
    assert own == CPUSet.parse("1-2")
    assert own.isdisjoint(shared)
    assert own.isdisjoint(best) == (qos is PodQOS.LSE)
