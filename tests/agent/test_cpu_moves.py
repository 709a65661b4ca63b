import itertools

import pytest

from corelane.agent.allocation import cpu_moves, events
from corelane.agent.allocation import instructions as orders
from corelane.agent.allocation.cpu_moves import CPUAllocation, OccupiedCPUs, due_moves, start_cpus
from corelane.agent.allocation.records import PodCPUs, RunCPUs
from corelane.cpuset import CPUSet
from corelane.embedded.pods import records
from corelane.machine import spec
from corelane.node import admit, codec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.entries import Sharing
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import new
from corelane.node.recovery.takeover import take_over
from corelane.workload import PlacementSpec, PodQOS
from corelane.workload.request import QOSClass
from support.agent_world import APP, Process, World, plan

MAY_MEET = {
    frozenset({Sharing.SHARED_WITH_BE, Sharing.BEST_EFFORT}),
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
    lent = CPUAllocation(CPUSet.parse("0-1"), Sharing.SHARED_WITH_BE)
    assert start_cpus(lent, occupied) == lent.cpus
    assert not start_cpus(CPUAllocation(lent.cpus, Sharing.ALONE), occupied)
    occupied.add(lent.cpus, Sharing.SHARED_WITH_BE)
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
    moved = {one.id.partition("-")[0] for one in world.pending if isinstance(one, orders.Pin)}
    assert moved == waits_for
    assert not any(isinstance(one, records.Start) for one in world.pending)
    world.settle()
    own, best, shared = (world.container(uid, "a").cpus for uid in ("own", "be", "ls"))
    assert own == CPUSet.parse("1-2")
    assert own.isdisjoint(shared)
    assert own.isdisjoint(best) == (qos is PodQOS.LSE)


@pytest.mark.parametrize(("x", "y"), [("3-4", "1-2"), ("1,3", "2,4"), ("3-5", "0-2"), ("5", "1-2")])
def test_runs_on_each_others_cpus_reach_their_own_and_never_meet_there(x, y):
    """As after the loss of a ledger; the containers are exclusive, on CPUs 1-2 and 3-4 of 0-5."""
    ledger = new(spec.parse_spec("core:6"), NodeConfig(reserved_count=1))
    pods, own = [], {"x": CPUSet.parse("1-2"), "y": CPUSet.parse("3-4")}
    for uid, cpus in (("x", x), ("y", y)):
        pod = plan(uid, ("a", APP, 2000), proposal={"a": own[uid]})
        ledger, _ = admit(ledger, pod.request)
        run = RunCPUs(uid, "a", uid, seen=CPUSet.parse(cpus), drifted=True)
        pods.append(PodCPUs(pod, present=True, admitted=True, runs=[run]))
    runs = {pod.uid: pod.runs[0] for pod in pods}
    for _ in range(4):
        for run, target in due_moves(pods, ledger):
            others = (other.possible_cpus for other in runs.values() if other is not run)
            assert not any(cpus & target.cpus & own[run.uid] for cpus in others)
            cpu_moves.note_move_ordered(run, target.cpus)
        for run in runs.values():
            if run.pending:
                cpu_moves.note_applied(run, run.pending, run.pending)
    assert {uid: run.applied for uid, run in runs.items()} == own


def test_without_a_spare_cpu_the_pool_takes_its_own_before_the_exclusive_container_left():
    ledger = new(spec.parse_spec("core:3"), NodeConfig(reserved=CPUSet([0])))
    exclusive = plan("x", ("a", APP, 2000), proposal={"a": CPUSet.parse("1-2")})
    shared = plan("s", ("a", APP, 100), qos=QOSClass.BURSTABLE)
    pods = []
    for pod, cpus in ((exclusive, "0-1"), (shared, "2")):
        ledger, _ = admit(ledger, pod.request)
        run = RunCPUs(pod.uid, "a", pod.uid, seen=CPUSet.parse(cpus), drifted=True)
        pods.append(PodCPUs(pod, present=True, admitted=True, runs=[run]))
    ((run, target),) = due_moves(pods, ledger)
    assert (run.uid, target.cpus) == ("s", CPUSet([0]))
    cpu_moves.note_applied(run, target.cpus, target.cpus)
    ((run, target),) = due_moves(pods, ledger)
    assert (run.uid, target.cpus) == ("x", CPUSet.parse("1-2"))


def narrowed_at_the_answer(world: World, process: Process) -> None:
    """Answer the next pin with a reading that shows one CPU less, as if taken right after the write."""
    while not any(isinstance(order, orders.Pin) for order in world.pending):
        world.carry_out(0) if world.pending else world.deliver(0)
    pin = next(order for order in world.pending if isinstance(order, orders.Pin))
    world.pending.remove(pin)
    process.cpus = pin.cpus - CPUSet([max(pin.cpus)])
    answer = events.Pinned(
        id=pin.id, cpus=pin.cpus, allowed=process.cpus, resources=process.resources, **world.times()
    )
    world.feed(answer)


def test_a_cpuset_is_widened_as_often_as_it_is_narrowed():
    """Unlike a process, which may narrow its own affinity, nothing but a fault narrows a cpuset."""
    world = World()
    world.add(plan("u1", ("a", APP, 3000)))
    world.settle()
    process = world.container("u1", "a")
    for _ in range(3):
        process.cpus = CPUSet([1])
        world.tick(12)
        narrowed_at_the_answer(world, process)
        world.settle()
        assert world.core.ledger.entries["u1", "a"].phase == "applied", "nothing confirms fewer CPUs"
        world.tick(12)
        world.settle()
        assert process.cpus == CPUSet.parse("1-3")
        assert world.core.ledger.entries["u1", "a"].phase == "confirmed"
