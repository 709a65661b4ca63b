"""Scenarios of the state machine: instructions, their order, statuses and events."""

from dataclasses import replace

import pytest

from corelane.agent.allocation import events
from corelane.agent.allocation import instructions as cpu_orders
from corelane.agent.allocation.records import INVALID_RECORD, CPURecord, PodCPUs, StatusReason
from corelane.cpuset import CPUSet
from corelane.embedded.pods import pod_steps, records
from corelane.embedded.pods.records import (
    DrainRequested,
    PastRuns,
    PodPlan,
    PodRecord,
    PodReporter,
    RestartPolicy,
    StartFailed,
)
from corelane.machine import spec
from corelane.node import MemoryOptions, validate
from corelane.node.config import PoolOptions
from corelane.node.explain.pod_explanation import remedies
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.recovery.rebasing import rebase
from corelane.workload import NUMAPolicy
from corelane.workload.request import QOSClass
from support.agent_world import APP, INIT, SIDECAR, World, plan

SHARED = {"qos": QOSClass.BURSTABLE}


def running(*plans, cpus=4, **members):
    world = World(cpus=cpus, **members)
    for one in plans:
        world.add(one)
        world.settle()
    return world


def ends(world, uid, name, code, reason=""):
    """The main process of a container exits, and all that follows is done."""
    world.exit(world.container(uid, name), code, reason)
    world.settle()


def after(world, seconds):
    world.tick(seconds)
    world.settle()


def machine_is(world, machine):
    world.feed(events.MachineChanged(machine=machine, **world.times()))
    world.settle()


def start_fails(world, reason="StartError", message="no such file", exit_code=None):
    """The start that is ordered fails; the answer waits to be delivered."""
    order = world.pending.pop(next_of(world, records.Start))
    failure = {"reason": reason, "message": message, "exit_code": exit_code, "attempt": order.attempt}
    failed = StartFailed(uid=order.plan.uid, container=order.container, **failure, **world.times())
    world.inbox.append(failed)


def told(world, reason):
    return [one.message for one in world.told if one.reason == reason]


def statuses(world, uid, part="containerStatuses"):
    return {one["name"]: one for one in world.statuses[uid][part]}


def conditions(world, uid):
    return {one["type"]: one for one in world.statuses[uid]["conditions"]}


def next_of(world, kind):
    return next(i for i, one in enumerate(world.pending) if isinstance(one, kind))


def test_an_exclusive_container_waits_until_shared_ones_left_its_cpus():
    world = running(plan("s", ("a", APP, 100), **SHARED))
    assert world.container("s", "a").cpus == CPUSet.parse("0-3")
    world.add(plan("x", ("a", APP, 2000)))
    world.deliver(0)
    assert not [one for one in world.pending if isinstance(one, records.Start)]
    assert world.core.pods["x"].containers["a"].waiting.reason == "WaitingForCPUs"
    while world.container("x", "a") is None:
        world.carry_out(0) if world.pending else world.deliver(0)
    assert world.container("s", "a").cpus == CPUSet.parse("0,3")
    assert world.container("x", "a").cpus == CPUSet.parse("1-2")


def test_the_shared_pool_grows_only_after_the_last_exclusive_process_exited():
    world = running(plan("s", ("a", APP, 100), **SHARED), plan("x", ("a", APP, 2000)))
    world.delete("x")
    world.deliver(0)
    stop = next_of(world, records.Stop)
    assert not [one for one in world.pending if isinstance(one, cpu_orders.Pin)]
    world.carry_out(stop)
    assert world.container("s", "a").cpus == CPUSet.parse("0,3")
    world.settle()
    assert world.container("s", "a").cpus == CPUSet.parse("0-3")
    assert "x" not in world.api


def test_the_ledger_is_on_disk_before_anything_starts():
    world = World(cpus=4)
    world.add(plan("x", ("a", APP, 1000)))
    world.deliver(0)
    assert isinstance(world.pending[0], cpu_orders.SaveLedger)
    assert isinstance(world.pending[next_of(world, records.Start)].cpus, CPUSet)


def test_the_confirmation_event_comes_once_with_the_cpus():
    world = running(plan("x", ("a", APP, 1000)))
    for _ in range(3):
        after(world, 5)
    assert told(world, "CPUsPinned") == ["Container a pinned to CPU 1 (exclusive), confirmed by the kernel"]
    assert world.core.ledger.entries["x", "a"].phase == "confirmed"


def test_a_container_whose_end_is_noticed_before_its_start_has_its_started_event():
    world = World(cpus=4)
    world.add(plan("s", ("a", APP, 100), **SHARED, policy=RestartPolicy.NEVER))
    while not world.processes:
        world.deliver(0) if world.inbox else world.carry_out(0)
    world.exit(world.container("s", "a"), 0)
    world.deliver(len(world.inbox) - 1)
    world.settle()
    assert told(world, "Started") == ["Container a started on CPUs 0-3"]
    assert world.statuses["s"]["phase"] == "Succeeded"


def test_drift_is_corrected_and_the_event_comes_once_in_ten_minutes():
    world = running(plan("x", ("a", APP, 1000)))
    for seconds, count in ((5, 1), (5, 1), (5, 1), (600, 2)):
        process = world.container("x", "a")
        process.cpus, process.escaped = CPUSet.parse("0-3"), True
        world.tick(seconds)
        world.settle()
        assert world.container("x", "a").cpus == CPUSet.parse("1")
        assert len(told(world, "CPUsDrifted")) == count
    assert "kernel allows CPUs 0-3, allocated CPU 1" in told(world, "CPUsDrifted")[0]


def test_no_container_is_moved_to_cpus_of_a_drifted_one():
    world = running(plan("s", ("a", APP, 100), **SHARED), plan("x", ("a", APP, 1000)))
    process = world.container("x", "a")
    process.cpus, process.escaped = CPUSet.parse("1-2"), True
    world.feed(events.Observed(id=process.id, allowed=process.cpus, **world.times()))
    world.add(plan("y", ("a", APP, 1000), proposal={"a": CPUSet.parse("2")}))
    world.deliver(0)
    assert not [one for one in world.pending if isinstance(one, records.Start)]
    world.settle()
    assert world.container("y", "a").cpus == CPUSet.parse("2")


def test_a_process_that_narrows_its_affinity_is_corrected_once():
    world = running(plan("x", ("a", APP, 2000)))
    one = world.container("x", "a").id
    own = CPUSet.parse("1")
    world.feed(events.Observed(id=one, allowed=own, **world.times()))
    assert world.pending.pop(next_of(world, cpu_orders.Pin)).cpus == CPUSet.parse("1-2")
    world.feed(events.Pinned(id=one, cpus=CPUSet.parse("1-2"), allowed=own, **world.times()))
    world.feed(events.Observed(id=one, allowed=own, **world.times()))
    assert not [order for order in world.pending if isinstance(order, cpu_orders.Pin)]
    assert world.core.ledger.entries["x", "a"].phase == "confirmed"


def test_a_clock_set_back_delays_neither_a_repair_nor_a_restart():
    world = running(plan("x", ("a", APP, 1000)), plan("y", ("a", APP, 1000)))
    process = world.container("x", "a")
    process.cpus, process.escaped = CPUSet.parse("1,3"), True
    world.tick(5)
    while world.inbox:
        world.deliver(0)
    world.carry_out(next_of(world, cpu_orders.Pin), fails=True)
    for _ in range(2):
        ends(world, "y", "a", 1)
    assert (world.container("x", "a").cpus, world.container("y", "a")) == (CPUSet.parse("1,3"), None)
    world.at -= 3600
    after(world, 12)
    assert world.container("x", "a").cpus == CPUSet.parse("1")
    assert world.container("y", "a").attempt == 2


def test_a_container_narrowed_before_the_first_reading_is_not_announced_but_repaired():
    world = running(plan("x", ("a", APP, 3000)), cpus=5)
    world.exit(world.container("x", "a"), 1)
    world.told.clear()
    while world.container("x", "a") is None:
        world.carry_out(0) if world.pending else world.deliver(0)
    world.container("x", "a").cpus = CPUSet.parse("1")
    while not any(isinstance(one, cpu_orders.Pin) for one in world.pending):
        world.carry_out(0) if world.pending else world.deliver(0)
    assert told(world, "CPUsPinned") == []
    world.settle()
    assert world.container("x", "a").cpus == CPUSet.parse("1-3")
    assert told(world, "CPUsPinned") == [
        "Container a pinned to CPUs 1-3 (exclusive), confirmed by the kernel"
    ]


def test_init_containers_run_in_order_and_sidecars_before_and_after():
    world = running(plan("p", ("i", INIT, 1000), ("s", SIDECAR, 100), ("j", INIT, 0), ("a", APP, 1000)))
    order = []

    def live():
        return {process.container for process in world.live()}

    order.append(live())
    ends(world, "p", "i", 0)
    order.append(live())
    assert world.phase("p") == "Pending"
    assert statuses(world, "p")["a"]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert conditions(world, "p")["Initialized"]["message"] == "containers with incomplete status: [j]"
    ends(world, "p", "j", 0)
    order.append(live())
    assert order == [{"i"}, {"s", "j"}, {"s", "a"}]
    assert world.phase("p") == "Running"
    assert conditions(world, "p")["Ready"]["status"] == "True"

    world.delete("p")
    world.deliver(0)
    stops = [one.id for one in world.pending if isinstance(one, records.Stop)]
    assert stops == ["p-a-0"]
    world.carry_out(next_of(world, records.Stop))
    while world.inbox:
        world.deliver(0)
    assert [one.id for one in world.pending if isinstance(one, records.Stop)] == ["p-s-0"]


def test_a_job_with_a_sidecar_succeeds_when_its_containers_have():
    world = running(plan("p", ("s", SIDECAR, 100), ("a", APP, 1000), policy=RestartPolicy.NEVER))
    ends(world, "p", "a", 0)
    assert world.live() == []
    assert world.phase("p") == "Succeeded"
    assert statuses(world, "p", "initContainerStatuses")["s"]["state"]["terminated"]["exitCode"] == 143
    assert world.core.ledger.entries == {}


def test_a_failed_init_container_ends_a_pod_that_never_restarts():
    world = running(plan("p", ("i", INIT, 0), ("a", APP, 1000), policy=RestartPolicy.NEVER))
    ends(world, "p", "i", 7)
    assert world.phase("p") == "Failed"
    assert statuses(world, "p", "initContainerStatuses")["i"]["state"]["terminated"]["exitCode"] == 7


def test_a_crashing_container_is_restarted_immediately_then_in_back_off():
    world = running(plan("p", ("a", APP, 1000)))
    ends(world, "p", "a", 1)
    assert world.container("p", "a").attempt == 1
    assert world.container("p", "a").cpus == CPUSet.parse("1"), "it keeps its CPUs"
    ends(world, "p", "a", 1)
    assert world.container("p", "a") is None
    shown = statuses(world, "p")["a"]
    assert shown["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=a pod=pod-p_default(p)",
    }
    assert shown["lastState"]["terminated"]["exitCode"] == 1
    assert shown["restartCount"] == 1
    assert world.phase("p") == "Running"
    after(world, 9)
    assert world.container("p", "a") is None
    after(world, 2)
    assert world.container("p", "a").attempt == 2
    assert len(told(world, "BackOff")) == 1


def test_only_the_last_two_runs_are_kept():
    world = running(plan("p", ("a", APP, 1000)))
    for _ in range(4):
        world.exit(world.container("p", "a"), 1)
        after(world, 700)
    assert sorted(process.attempt for process in world.processes.values()) == [3, 4]


def test_a_rejected_pod_fails_with_the_kubelets_message():
    world = running(plan("x", ("a", APP, 3000)), plan("y", ("a", APP, 2000)))
    status = world.statuses["y"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"].startswith(
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000"
    )
    assert told(world, "OutOfcpu")
    assert world.live()[0].uid == "x"


def settled_but_for_stops(world):
    while orders := [n for n, one in enumerate(world.pending) if not isinstance(one, records.Stop)]:
        world.carry_out(orders[0])
    while world.inbox:
        world.deliver(0)
    if any(not isinstance(one, records.Stop) for one in world.pending):
        settled_but_for_stops(world)


def test_a_pod_that_fits_once_an_ending_one_has_ended_waits_instead_of_being_rejected():
    """A pod deleted without a grace period is gone for the scheduler while its processes still end."""
    world = running(plan("x", ("a", APP, 3000)))
    world.vanish("x")
    world.add(plan("y", ("a", APP, 2000)))
    settled_but_for_stops(world)
    waiting = statuses(world, "y")["a"]["state"]["waiting"]
    assert (world.phase("y"), waiting["reason"]) == ("Pending", "WaitingForPods")
    assert waiting["message"].startswith("Node didn't have enough resource: cpu, requested: 2000, used: 3000")
    assert waiting["message"].endswith("waits for default/pod-x to end")
    assert not told(world, "OutOfcpu")
    world.settle()
    assert world.phase("y") == "Running"
    assert {process.uid for process in world.live()} == {"y"}


def test_a_pod_that_does_not_fit_even_then_is_rejected():
    world = running(plan("w", ("a", APP, 2000)), plan("x", ("a", APP, 1000)))
    world.vanish("x")
    world.add(plan("y", ("a", APP, 2000)))
    settled_but_for_stops(world)
    assert world.statuses["y"]["reason"] == "OutOfcpu"


@pytest.mark.parametrize("resource", ["pods", "memory"])
def test_memory_and_number_of_ending_pods_are_waited_for_too(resource):
    world = World(cpus=4)
    limits = {"pods": 1, "memory": 0} if resource == "pods" else {"pods": 9, "memory": 10}
    world.core._capacity = replace(world.core._capacity, **limits)
    for uid in "xy":
        one = plan(uid, ("a", APP, 100), **SHARED)
        requests = tuple(replace(container, memory_request=8) for container in one.request.containers)
        world.add(replace(one, request=replace(one.request, containers=requests)))
        if uid == "x":
            world.settle()
            world.vanish("x")
    settled_but_for_stops(world)
    assert world.phase("y") == "Pending"
    world.settle()
    assert world.phase("y") == "Running"


def test_a_pod_with_a_refusal_is_rejected_with_its_reason():
    refused = replace(
        plan("p", ("a", APP, 0), **SHARED), refusal=StatusReason("CommandMissing", "no command")
    )
    world = running(refused)
    assert world.statuses["p"]["reason"] == "CommandMissing"
    assert world.processes == {}


def test_the_image_warning_comes_once_others_for_every_pod():
    warnings = (StatusReason("ImageIgnored", "i"), StatusReason("ProbesIgnored", "p"))
    world = running(*(replace(plan(uid, ("a", APP, 0), **SHARED), warnings=warnings) for uid in "pq"))
    assert (len(told(world, "ImageIgnored")), len(told(world, "ProbesIgnored"))) == (1, 2)


def test_a_container_out_of_memory_is_restarted_with_reason_and_event():
    world = running(plan("p", ("a", APP, 0), **SHARED))
    for _ in range(2):
        ends(world, "p", "a", 137, "OOMKilled")
    status = statuses(world, "p")["a"]
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert status["lastState"]["terminated"]["exitCode"] == 137
    message = "Container a was out of memory at its memory limit of 1: the kernel killed a process"
    assert told(world, "OOMKilled") == [f"{message}; exit code 137"] * 2
    assert len(told(world, "BackOff")) == 1


def test_unavailable_proposed_cpus_are_reallocated_and_annotated():
    taken = {"a": CPUSet.parse("2")}
    world = running(plan("x", ("a", APP, 1000), proposal=taken), plan("y", ("a", APP, 1000), proposal=taken))
    assert world.container("y", "a").cpus == CPUSet.parse("1")
    assert world.annotated == {"y": {"a": CPUSet.parse("1")}}


def test_cpus_without_a_proposal_are_annotated():
    world = running(plan("x", ("a", APP, 1000), ("b", APP, 50)))
    assert world.annotated == {"x": {"a": CPUSet.parse("1")}}


def test_memory_and_number_of_pods_are_limited():
    world = World(cpus=4)
    world.core._capacity = replace(world.core._capacity, pods=2, memory=10)
    big = plan("m", ("a", APP, 100), **SHARED)
    requests = tuple(replace(one, memory_request=11) for one in big.request.containers)
    world.add(replace(big, request=replace(big.request, containers=requests)))
    world.settle()
    assert world.statuses["m"]["reason"] == "OutOfmemory"
    for uid in ("a", "b", "c"):
        world.add(plan(uid, ("a", APP, 100), **SHARED))
        world.settle()
    assert world.statuses["c"]["reason"] == "OutOfpods"


def test_a_pod_past_its_deadline_fails():
    world = running(plan("p", ("a", APP, 1000), active_deadline=60.0))
    after(world, 59)
    assert world.phase("p") == "Running"
    after(world, 2)
    assert (world.phase("p"), world.statuses["p"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert world.live() == []


def test_a_pod_past_its_deadline_is_running_until_its_processes_exited():
    """Its CPUs are occupied until then, and the scheduler must see that."""
    world = running(plan("p", ("a", APP, 1000), active_deadline=60.0))
    world.tick(61)
    while world.inbox:
        world.deliver(0)
    stop = next_of(world, records.Stop)
    world.pending = [one for i, one in enumerate(world.pending) if i != stop]
    world.settle()
    assert world.phase("p") == "Running"


def test_a_pod_with_a_terminal_phase_is_stopped():
    world = running(plan("p", ("a", APP, 1000)))
    world.statuses["p"] = {"phase": "Failed"}
    world.feed(events.PodSeen(pod=world.as_listed("p"), **world.times()))
    world.settle()
    assert world.live() == []
    assert world.core.ledger.entries == {}
    assert world.statuses["p"] == {"phase": "Failed"}


def test_a_shorter_grace_period_replaces_a_longer_one():
    world = running(plan("p", ("a", APP, 1000)))
    world.delete("p", grace=30)
    world.deliver(0)
    assert world.pending[next_of(world, records.Stop)].grace == 30
    world.api["p"] = replace(world.api["p"], deletion_grace=1.0)
    world.feed(events.PodSeen(pod=world.api["p"], **world.times()))
    assert [one.grace for one in world.pending if isinstance(one, records.Stop)] == [30, 1]


def test_deleting_a_pod_that_never_started_ends_it():
    world = running(plan("x", ("a", APP, 1000)))
    world.add(plan("p", ("a", APP, 1000)))
    world.delete("p")
    world.settle()
    assert "p" not in world.api
    assert {process.uid for process in world.processes.values()} == {"x"}


def test_a_pod_deleted_while_the_agent_was_down_is_stopped_and_its_cpus_released():
    world = running(plan("x", ("a", APP, 2000)), plan("s", ("a", APP, 100), **SHARED))
    del world.api["x"]
    world.boot()
    world.settle()
    assert {process.uid for process in world.processes.values()} == {"s"}
    assert world.container("s", "a").cpus == CPUSet.parse("0-3")
    assert world.core.ledger.entries.keys() == {("s", "a")}


def test_an_exit_while_the_agent_was_down_is_reported_without_a_restart():
    world = running(plan("p", ("a", APP, 1000), policy=RestartPolicy.NEVER))
    process = world.container("p", "a")
    process.live, process.exit_code = False, 42
    world.boot()
    world.settle()
    assert world.phase("p") == "Failed"
    assert statuses(world, "p")["a"]["state"]["terminated"]["exitCode"] == 42
    assert world.ran["p", "a"] == 1


def test_after_a_crash_running_containers_are_adopted_unchanged():
    world = running(plan("x", ("a", APP, 2000)), plan("s", ("a", APP, 100), **SHARED))
    before = {process.id: process.cpus for process in world.live()}
    world.boot()
    assert not [
        one for one in world.pending if isinstance(one, records.Start | cpu_orders.Pin | records.Stop)
    ]
    world.settle()
    assert {process.id: process.cpus for process in world.live()} == before
    assert world.phase("x") == "Running"


def test_a_lost_ledger_is_rebuilt_from_running_containers():
    world = running(
        plan("x", ("a", APP, 1000)), plan("y", ("a", APP, 1000)), plan("s", ("a", APP, 9), **SHARED)
    )
    del world.api["x"]
    world.api["y"] = replace(world.api["y"], request=replace(world.api["y"].request, proposal={}))
    before = {process.id: process.cpus for process in world.live()}
    world.lose_ledger()
    assert world.core.ledger.entries["y", "a"].cpus == CPUSet.parse("2")
    assert {process.id: process.cpus for process in world.live()} == before
    world.settle()
    assert world.container("s", "a").cpus == CPUSet.parse("0-1,3")


def test_without_a_ledger_cpus_of_unknown_pods_stay_occupied_until_they_exit():
    world = running(plan("x", ("a", APP, 1000)))
    del world.api["x"]
    world.add(plan("y", ("a", APP, 1000)))
    world.inbox.clear()
    world.lose_ledger()
    assert not [one for one in world.pending if isinstance(one, records.Start)]
    world.settle()
    assert world.container("y", "a").cpus == CPUSet.parse("1")


def test_a_running_pod_that_conflicts_with_the_ledger_is_left_unmanaged():
    world = running(plan("x", ("a", APP, 2000)), plan("s", ("a", APP, 9), **SHARED), cpus=4)
    world.cpus, world.machine = 2, spec.parse_spec("core:2 smt:1")
    process = world.container("x", "a")
    world.lose_ledger()
    world.settle()
    assert told(world, "CPUsUnknown")
    assert process.live
    assert process.cpus == CPUSet.parse("1-2")
    assert world.phase("x") == "Running"
    assert world.container("s", "a").cpus == CPUSet.parse("0")


def test_without_a_ledger_a_pod_that_lost_cpus_takes_none_of_running_pods():
    world = running(*(plan(uid, ("a", APP, 2000)) for uid in "xyz"), cpus=8, kubelet=Checkpoint("static"))
    y, z = (world.container(uid, "a").cpus for uid in "yz")
    assert (world.container("x", "a").cpus, y, z) == tuple(map(CPUSet.parse, ("1-2", "3-4", "5-6")))
    world.kubelet = Checkpoint("static", entries={"k": {"a": CPUSet.parse("2")}})
    world.lose_ledger()
    world.settle()
    assert (world.container("y", "a").cpus, world.container("z", "a").cpus) == (y, z)
    assert world.container("x", "a").cpus == CPUSet.parse("1,7")


def test_cpus_of_an_unmanaged_pod_are_allocated_to_no_other_pod():
    pools = PoolOptions(numa=NUMAPolicy.SINGLE_NUMA_NODE)
    world = running(
        plan("x", ("a", APP, 3000)), spec="numa:2 core:3", pools=pools, kubelet=Checkpoint("static")
    )
    before = world.container("x", "a").cpus
    world.kubelet = Checkpoint("static", entries={"k": {"a": CPUSet([min(before)])}})
    world.lose_ledger()
    world.settle()
    assert told(world, "CPUsUnknown")
    held = before - CPUSet([min(before)])
    assert world.core.ledger.entries["x", "a"].cpus == held
    world.add(plan("y", ("a", APP, 1000)))
    world.settle()
    assert world.container("y", "a").cpus.isdisjoint(before)
    world.boot()
    world.settle()
    assert world.container("x", "a").cpus == before, "nor does a restart of the agent move it"
    ends(world, "x", "a", 1)
    assert world.core.ledger.entries.get(("x", "a")) is None, "there is no room for it"


@pytest.mark.parametrize("lost", [False, True])
def test_a_pod_that_cannot_be_decoded_runs_on_after_a_restart_and_keeps_its_cpus(lost):
    world = running(plan("x", ("a", APP, 2000)), plan("s", ("a", APP, 9), **SHARED))
    before = dict(world.statuses["x"])
    world.undecodable = {"x", "s"}
    world.lose_ledger() if lost else world.boot()
    world.settle()
    after(world, 100)
    assert (world.container("x", "a").cpus, world.statuses["x"]) == (CPUSet.parse("1-2"), before)
    assert world.core.ledger.entries["x", "a"].cpus == CPUSet.parse("1-2")
    world.undecodable.clear()
    for uid in ("x", "s"):
        world.feed(events.PodSeen(pod=world.as_listed(uid), **world.times()))
    world.settle()
    assert world.container("x", "a").attempt == 0
    assert {world.phase("x"), world.phase("s")} == {"Running"}
    world.delete("x")
    world.settle()
    assert "x" not in world.core.ledger.pods


def test_a_pod_that_cannot_be_decoded_is_ended_once_it_is_gone():
    world = running(plan("x", ("a", APP, 2000)))
    world.undecodable = {"x"}
    world.boot()
    world.vanish("x")
    world.settle()
    assert world.live() == []
    assert world.core.ledger.pods == {}


def test_a_run_lost_by_the_runtime_counts_as_ended_and_is_restarted():
    past = {"a": PastRuns(2, None)}
    world = running(plan("p", ("a", APP, 1000), past=past))
    assert world.container("p", "a").attempt == 3
    shown = statuses(world, "p")["a"]
    assert shown["restartCount"] == 3
    assert shown["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_a_run_without_a_known_end_ends_when_it_is_listed():
    """After a restart of the machine no time is recorded; 1970 would be misleading."""
    unseen = events.ContainerRun(id="r", uid="x", container="a", attempt=0, live=False, exit_code=255)
    made = plan("x", ("a", APP, 100), **SHARED)
    pod = PodRecord(made, {}, PodCPUs(made))
    assert pod_steps.adopt_run(pod, unseen, None, 1000.0).ended.finished_at == 1000.0


def test_draining_stops_all_containers_and_keeps_the_pods():
    world = running(plan("x", ("a", APP, 1000)), plan("s", ("a", APP, 100), **SHARED))
    world.feed(DrainRequested(**world.times()))
    world.settle()
    assert world.live() == []
    assert world.core.drained
    assert set(world.api) == {"x", "s"}
    world.boot()
    world.settle()
    assert world.container("x", "a").attempt == 1
    assert world.phase("x") == "Running"


def test_a_terminal_pod_is_unchanged_after_a_restart_and_keeps_its_log():
    world = running(plan("p", ("a", APP, 1000), policy=RestartPolicy.NEVER))
    ends(world, "p", "a", 0)
    world.boot()
    assert not [one for one in world.pending if isinstance(one, records.PublishStatus)]
    assert world.core.index.run_of("default", "pod-p", "a", previous=False) == "p-a-0"
    world.vanish("p")
    world.settle()
    assert world.processes == {}


def test_cpus_removed_by_hotplug_move_containers_to_the_remaining_ones():
    world = running(plan("s", ("a", APP, 100), **SHARED), plan("x", ("a", APP, 1000)))
    machine_is(world, world.machine.restricted(0b0011))
    assert world.container("s", "a").cpus == CPUSet.parse("0")
    assert world.container("x", "a").cpus == CPUSet.parse("1")


def pinned(world, uid):
    return conditions(world, uid)["corelane.io/Pinned"]


def test_a_pod_that_lost_exclusive_cpus_is_not_pinned_until_they_are_back():
    world = running(plan("x", ("a", APP, 3000)))
    assert pinned(world, "x")["status"] == "True"
    for cpus, text in (
        (0b0011, "a: 1 of 3 exclusive CPUs left"),
        (0b0001, "a: 0 of 3 exclusive CPUs left, runs in the shared pool"),
    ):
        machine_is(world, world.machine.restricted(cpus))
        condition = pinned(world, "x")
        assert (condition["status"], condition["reason"]) == ("False", "CPUsLost")
        assert condition["message"] == text
    machine_is(world, world.machine)
    assert pinned(world, "x")["status"] == "True"


def test_a_pod_that_lost_its_exclusive_cpus_before_a_restart_is_not_pinned(monkeypatch):
    world = running(plan("x", ("a", APP, 1000)))
    less = world.machine.restricted(0b0001)
    machine_is(world, less)
    monkeypatch.setattr(world, "machine", less)
    world.boot()
    world.settle()
    assert pinned(world, "x")["reason"] == "CPUsLost"


@pytest.mark.parametrize("code", [128, None])
def test_a_failed_start_is_reported_and_retried(code):
    world = World(cpus=4)
    world.add(plan("p", ("a", APP, 1000)))
    world.deliver(0)
    start_fails(world, exit_code=code)
    world.settle()
    assert told(world, "Failed") == ["Error: no such file"]
    if code is None:
        assert statuses(world, "p")["a"]["state"]["waiting"]["reason"] == "StartError"
        assert world.processes == {}
        after(world, 6)
    assert world.container("p", "a").attempt == (0 if code is None else 1)
    assert validate(world.core.ledger) == []


def test_a_start_cancelled_by_deletion_is_not_a_warning():
    world = World(cpus=4)
    world.add(plan("p", ("a", APP, 1000)))
    world.deliver(0)
    start_fails(world, "CreateContainerError", "the pod is being deleted")
    world.delete("p")
    world.inbox.reverse()
    world.settle()
    assert told(world, "Failed") == []
    assert world.processes == {}
    assert world.core.ledger.entries == {}


def test_the_allocation_of_a_pod_that_never_started_is_released():
    world = World(cpus=4)
    world.add(plan("x", ("a", APP, 1000)))
    world.deliver(0)
    world.carry_out(0)
    del world.api["x"]
    world.boot()
    assert world.core.ledger.entries == {}


def test_after_a_failed_move_old_and_new_cpus_count_as_occupied():
    world = running(plan("s", ("a", APP, 100), **SHARED), plan("x", ("a", APP, 2000)))
    world.delete("x")
    while not any(isinstance(one, cpu_orders.Pin) for one in world.pending):
        world.carry_out(0) if world.pending else world.deliver(0)
    pin = world.pending.pop(next_of(world, cpu_orders.Pin))
    world.feed(events.PinFailed(id=pin.id, message="half-way", **world.times()))
    assert told(world, "PinFailed") or world.pending
    world.add(plan("y", ("a", APP, 2000)))
    while world.inbox:
        world.deliver(0)
    assert not [one for one in world.pending if isinstance(one, records.Start)]
    after(world, 6)
    assert world.container("y", "a").cpus == CPUSet.parse("1-2")


def test_an_answer_about_an_earlier_run_is_ignored():
    world = running(plan("s", ("a", APP, 100), **SHARED))
    earlier = world.container("s", "a")
    world.exit(earlier, 0)
    world.deliver(0)
    world.carry_out(next_of(world, records.Start))
    world.feed(events.PinFailed(id=earlier.id, message="gone", **world.times()))
    world.add(plan("x", ("a", APP, 1000)))
    world.settle()
    assert world.container("x", "a").cpus == CPUSet.parse("1")
    assert world.container("s", "a").cpus == CPUSet.parse("0,2-3")


def test_routine_events_return_no_instructions():
    world = running(plan("x", ("a", APP, 1000)))
    before = world.core.ledger
    assert world.core.handle(events.TimePassed(at=world.at + 1, now=world.now + 1)) == []
    one = world.container("x", "a")
    assert world.core.handle(events.Observed(id=one.id, allowed=one.cpus, **world.times())) == []
    assert world.core.ledger is before


def lose(world: World, text: str) -> None:
    """CPUs of the machine go off-line."""
    rest = world.machine.usable - CPUSet.parse(text)
    world.inbox.append(events.MachineChanged(machine=world.machine.restricted(rest.mask), **world.times()))
    world.settle()


def started_until_ordered(world: World, pod: PodPlan) -> None:
    world.add(pod)
    world.deliver(0)
    world.carry_out(0)


def test_a_pod_whose_cpus_went_offline_before_its_start_gets_others() -> None:
    world = World(cpus=4)
    started_until_ordered(world, plan("x", ("a", APP, 1000), policy=RestartPolicy.NEVER))
    start_fails(world, "CPUsOffline", "CPU 1 went off-line")
    lose(world, "1")
    after(world, 5)
    assert world.container("x", "a").cpus == CPUSet.parse("2")
    assert world.annotated["x"] == {"a": CPUSet.parse("2")}
    assert world.phase("x") == "Running"


def test_a_pod_that_never_ran_is_rejected_where_its_lost_cpus_have_no_replacement() -> None:
    world = World(cpus=4)
    started_until_ordered(world, plan("x", ("a", APP, 3000), policy=RestartPolicy.NEVER))
    start_fails(world, "CPUsOffline", "CPU 1 went off-line")
    lose(world, "1")
    after(world, 5)
    assert world.phase("x") == "Failed"
    assert world.core.ledger.pods == {}


@pytest.mark.parametrize(("cpus", "expected"), [(4, "2"), (3, "2"), (2, "0")])
def test_a_pod_between_two_runs_gets_others_for_lost_cpus_or_else_the_shared_pool(
    cpus: int, expected: str
) -> None:
    world = running(plan("x", ("a", APP, 1000)), cpus=cpus)
    for _ in range(2):
        ends(world, "x", "a", 1)
    assert world.container("x", "a") is None
    lose(world, "1")
    after(world, 30)
    assert world.phase("x") == "Running"
    assert world.container("x", "a").cpus == CPUSet.parse(expected)
    assert len(told(world, "CPUsLost")) == 1


def edited(world: World, uid: str, record: CPURecord) -> None:
    """Another writer changes a pod's annotations."""
    world.annotated.pop(uid, None)
    world.api[uid] = replace(world.api[uid], record=record)
    world.inbox.append(events.PodSeen(pod=world.as_listed(uid), **world.times()))
    world.settle()


RIGHT = CPURecord({"a": CPUSet.parse("1-2")})


@pytest.mark.parametrize(
    "record",
    [
        CPURecord({}),
        CPURecord({"a": CPUSet.parse("0")}),
        CPURecord({"a": CPUSet.parse("1-2"), "b": CPUSet.parse("3")}),
        CPURecord({"a": CPUSet.parse("1-2")}, CPUSet.parse("0")),
        INVALID_RECORD,
    ],
)
def test_annotations_that_another_writer_changed_are_written_again_as_allocated(record: CPURecord) -> None:
    world = running(plan("x", ("a", APP, 2000), proposal=dict(RIGHT.cpus), record=RIGHT))
    assert world.annotated == {}
    edited(world, "x", record)
    assert world.annotated == {"x": dict(RIGHT.cpus)}
    assert len(told(world, "AnnotationRestored")) == 1
    assert world.container("x", "a").cpus == CPUSet.parse("1-2")


def test_annotations_of_a_pod_in_the_shared_pool_are_kept_empty() -> None:
    world = running(plan("s", ("a", APP, 100), record=CPURecord({}), **SHARED))
    for record in (CPURecord({"a": CPUSet.parse("1")}), INVALID_RECORD):
        edited(world, "s", record)
        assert world.annotated == {"s": {}}
        after(world, 60)


def test_a_writer_that_goes_on_is_answered_once_in_ten_seconds_and_named_once() -> None:
    world = running(plan("x", ("a", APP, 2000), proposal=dict(RIGHT.cpus), record=RIGHT))
    writes = 0
    for _ in range(60):
        edited(world, "x", CPURecord({"a": CPUSet.parse("0")}))
        writes += "x" in world.annotated
        world.tick(1)
    assert 5 <= writes <= 7
    assert len(told(world, "AnnotationRestored")) == 1
    world.annotated.clear()
    after(world, 10)
    assert world.annotated == {"x": dict(RIGHT.cpus)}


def test_cpus_that_the_agent_chose_itself_are_no_change_by_another_writer() -> None:
    """The object is seen with the scheduler's proposal again before the agent's write arrives."""
    proposed = CPURecord({"a": CPUSet.parse("0")})
    world = running(plan("x", ("a", APP, 1000), proposal=dict(proposed.cpus), record=proposed))
    edited(world, "x", proposed)
    assert world.annotated == {"x": {"a": CPUSet.parse("1")}}
    assert told(world, "AnnotationRestored") == []


def annotated(world: World, pod: PodPlan) -> list[cpu_orders.Annotate]:
    """Return the annotations ordered for an admitted pod."""
    orders = world.core.handle(events.PodSeen(pod=pod, **world.times()))
    return [order for order in orders if isinstance(order, cpu_orders.Annotate)]


@pytest.mark.parametrize(
    ("proposed", "written"), [(None, CPUSet([0])), (CPUSet([0]), None), (CPUSet([7]), CPUSet([0]))]
)
def test_numa_nodes_of_a_pod_are_annotated_unless_proposed(proposed, written):
    world = World(spec="socket:2 core:4", pools=PoolOptions(numa=NUMAPolicy.SINGLE_NUMA_NODE))
    world.settle()
    pod = plan("p", ("a", APP, 500), qos=QOSClass.BURSTABLE)
    pod = replace(pod, request=replace(pod.request, zone=proposed))
    assert [order.zone for order in annotated(world, pod)] == ([written] if written else [])
    assert world.core.ledger.entries["p", "a"].zone == CPUSet([0])


def test_a_rejection_for_lack_of_cpus_names_remedies():
    """Computing remedies takes long, so the instruction only carries the ledger and the request."""
    world = World(spec="socket:1 core:4", pools=PoolOptions())
    world.settle()
    first, second = plan("x", ("a", APP, 2000)), plan("y", ("a", APP, 2000))
    world.add(first)
    world.settle()
    orders = world.core.handle(events.PodSeen(pod=second, **world.times()))
    (tell,) = [order for order in orders if isinstance(order, cpu_orders.PublishEvent)]
    assert (tell.uid, tell.reason) == ("y", "InsufficientCPUs")
    assert tell.rejected == (world.core.ledger, second.request)
    assert remedies(*tell.rejected) == "move default/pod-x off CPUs 1-2; or request 1 CPU"


def test_memory_of_init_containers_is_released_when_apps_run():
    world = World(spec="numa:2 core:4 mem:4G")
    memory = MemoryOptions("Static", {0: {"memory": 1 << 30}})
    config = replace(world.config, memory=memory)
    world.core.allocation.ledger, _ = rebase(world.core.ledger, world.machine, config)
    one = plan("p", ("i", INIT, 1000), ("a", APP, 1000))
    requests = tuple(
        replace(each, memory_request=1 << 30, memory_limit=1 << 30) for each in one.request.containers
    )
    world.add(replace(one, request=replace(one.request, containers=requests)))
    world.settle()
    assert world.core.ledger.entries["p", "i"].memory
    ends(world, "p", "i", 0)
    assert world.container("p", "a")
    assert not world.core.ledger.entries["p", "i"].memory
    assert world.core.ledger.entries["p", "a"].memory


class Heard(PodReporter):
    def __init__(self):
        self.reported_problems = []

    def drifted(self, plan, container, cpus, allowed):
        self.reported_problems.append(f"on {allowed}, not {cpus}")

    def pin_failed(self, plan, container, cpus, message):
        self.reported_problems.append(f"{cpus}: {message}")


def test_an_unchanged_problem_is_reported_once():
    heard = Heard()
    world = running(plan("x", ("a", APP, 1000)), reporter=heard)
    process = world.container("x", "a")

    def looked(text):
        process.cpus, process.escaped = CPUSet.parse(text), True
        world.tick(5)
        while world.inbox:
            world.deliver(0)
        while world.pending:
            world.carry_out(0, fails=isinstance(world.pending[0], cpu_orders.Pin))
        while world.inbox:
            world.deliver(0)

    for text in ("0-3", "0-3", "0-3", "0-1"):
        looked(text)
    first = ["on 0-3, not 1", "1: no"]
    assert heard.reported_problems == [*first, "on 0-1, not 1"]
    world.settle()
    after(world, 5)
    assert world.container("x", "a").cpus == CPUSet.parse("1")
    reported = len(heard.reported_problems)
    looked("0-3")
    assert heard.reported_problems[reported:] == first, "it was put right in between"
