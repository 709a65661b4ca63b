"""Scenarios of pods that a kubelet runs: what follows for their CPUs."""

from dataclasses import replace

import pytest

from corelane.agent.allocation import events
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.instructions import Annotate, AnswerCreate, Pin, SaveLedger
from corelane.agent.allocation.modes import ModeInputs, ReportedPolicies, decide
from corelane.agent.allocation.outbox import AllocationReporter
from corelane.agent.allocation.records import INVALID_RECORD, CPURecord
from corelane.agent.kubelet.kubelet_pods import KubeletPods
from corelane.cpuset import CPUSet
from corelane.node.config import PoolOptions
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.workload import PlacementSpec, PodQOS
from corelane.workload.request import QOSClass
from support.agent_world import APP, INIT
from support.kubelet_world import KubeletWorld, bound_pod

SHARED = {"qos": QOSClass.BURSTABLE}


def running(*pods, **members):
    world = KubeletWorld(**members)
    for pod in pods:
        world.add(pod)
        world.run_all()
    return world


def cpus(text):
    return CPUSet.parse(text)


def told(world, reason):
    return [one.message for one in world.told if one.reason == reason]


@pytest.mark.parametrize("nri", [False, True])
def test_exclusive_containers_reach_their_cpus_and_the_pool_leaves_them(nri):
    world = running(
        bound_pod("s", ("a", APP, 100), **SHARED), bound_pod("x", ("a", APP, 2000)), cpus=4, nri=nri
    )
    assert world.container("s").cpus == cpus("0,3")
    assert world.container("x").cpus == cpus("1-2")
    pinned = "Container a pinned to CPUs 1-2 (exclusive), confirmed by the kernel"
    assert told(world, "CPUsPinned") == [pinned]
    assert world.conditions["x"].holds
    assert "s" not in world.conditions
    assert told(world, "CPUsNotReady") == []
    world.delete("x")
    world.settle()
    assert world.container("s").cpus == cpus("0-3")
    assert "x" not in world.core.ledger.pods


def test_annotations_that_another_writer_changed_are_written_again_as_allocated():
    world = running(bound_pod("x", ("a", APP, 2000)), cpus=4)
    own = CPURecord({"a": cpus("1-2")})
    world.pods["x"] = replace(world.pods["x"], record=own)
    world.feed(world.seen("x"))
    world.settle()
    for foreign in (CPURecord({}), INVALID_RECORD):
        world.tick(20)
        world.settle()
        world.pods["x"] = replace(world.pods["x"], record=foreign)
        world.feed(world.seen("x"))
        assert [one for one in world.pending if isinstance(one, Annotate)] == [Annotate("x", own.cpus)]
        world.settle()
    assert len(told(world, "AnnotationRestored")) == 1


def test_a_resize_in_place_changes_requests_of_the_pool_and_leaves_exclusive_cpus():
    world = running(bound_pod("x", ("a", APP, 2000)), bound_pod("s", ("a", APP, 100), **SHARED), cpus=4)
    world.settle()
    own = world.container("x").cpus
    world.pods["x"] = bound_pod("x", ("a", APP, 1000))
    world.pods["s"] = bound_pod("s", ("a", APP, 300), **SHARED)
    world.feed(world.seen("x"))
    world.feed(world.seen("s"))
    world.settle()
    assert world.container("x").cpus == own
    assert len(told(world, "ExclusiveCPUsKept")) == 1
    ledger = world.core.ledger
    assert ledger.entries["s", "a"].cpu_request == ledger.pods["s"] == 300
    assert (ledger.entries["x", "a"].cpu_request, ledger.pods["x"]) == (2000, 2000)


@pytest.mark.parametrize("restart", ["none", "before", "after"])
@pytest.mark.parametrize("pools", [None, PoolOptions()])
def test_a_container_that_a_resize_gives_an_integer_request_stays_in_the_shared_pool(pools, restart):
    """With the ledger, and once it is lost, too; another pod that never was in a ledger gets its CPUs."""
    world = running(bound_pod("s", ("a", APP, 500), ("b", APP, 100)), cpus=6, pools=pools)
    world.pods["s"] = bound_pod("s", ("a", APP, 1000), ("b", APP, 100))
    if restart == "before":
        world.boot()
    else:
        world.feed(world.seen("s"))
    world.settle()
    if restart == "after":
        world.boot()
        world.settle()
    assert world.core.ledger.entries["s", "a"].cpu_request == 1000
    assert world.core.ledger.pods["s"] == 1100
    world.add(bound_pod("x", ("a", APP, 1000)))
    world.start("x", "a")
    world.lose_ledger()
    world.settle()
    ledger = world.core.ledger
    assert len(ledger.exclusive) == len(world.container("x").cpus) == 1
    assert world.container("s").cpus == world.container("s", "b").cpus == ledger.shared_pool
    assert "s" not in world.conditions
    kept = (
        "Container a: CPU request 1000m after a resize; it stays in the shared pool, "
        "create the pod again for exclusive CPUs"
    )
    assert told(world, "SharedPoolKept") == [kept]


def test_a_pod_that_was_refused_is_admitted_with_the_cpus_of_its_new_request():
    """It waits for exclusive CPUs, so no resize keeps it in the pool."""
    lsr = PlacementSpec(qos=PodQOS.LSR)
    world = running(bound_pod("s", ("a", APP, 500), placement_spec=lsr), cpus=4, pools=PoolOptions())
    assert not world.core.ledger.exclusive
    world.pods["s"] = bound_pod("s", ("a", APP, 1000), placement_spec=lsr)
    world.feed(world.seen("s"))
    world.settle()
    assert world.container("s").cpus == world.core.ledger.exclusive
    assert told(world, "SharedPoolKept") == []


def test_a_container_that_starts_unasked_is_pinned_after_the_others_left():
    world = running(bound_pod("s", ("a", APP, 100), **SHARED), cpus=4)
    world.add(bound_pod("x", ("a", APP, 2000)))
    world.start("x", "a")
    while world.inbox:
        world.deliver(0)
    pins = [order for order in world.pending if isinstance(order, Pin)]
    assert [(order.id[0], order.cpus) for order in pins] == [("s", cpus("0,3"))]
    assert world.container("x").cpus == cpus("0-3")
    world.settle()
    assert world.container("x").cpus == cpus("1-2")


def test_inside_a_creation_the_ledger_is_saved_then_others_shrink_then_the_answer_goes_out():
    world = running(bound_pod("s", ("a", APP, 100), **SHARED), cpus=4, nri=True)
    assert world.container("s").cpus == cpus("0-3")
    world.add(bound_pod("x", ("a", APP, 2000)))
    world.start("x", "a")
    order = []
    while world.creating:
        if world.pending:
            order.append(type(world.pending[0]))
            if isinstance(world.pending[0], AnswerCreate):
                (answer,) = [one for one in world.pending if isinstance(one, AnswerCreate)]
            world.carry_out(0)
        else:
            world.deliver(0)
    kinds = [kind for kind in order if kind in (SaveLedger, Pin, AnswerCreate)]
    assert kinds[0] is SaveLedger
    assert kinds.index(Pin) < kinds.index(AnswerCreate)
    assert answer.adjust.cpus == cpus("1-2")
    assert answer.adjust.quota_us is None
    assert answer.placed == world.container("x").id
    ((ident, update),) = answer.updates
    assert (ident[0], update.cpus) == ("s", cpus("0,3"))


def test_without_an_answer_of_the_kernel_by_the_deadline_the_container_starts_in_the_pool():
    world = running(bound_pod("s", ("a", APP, 100), **SHARED), cpus=4, nri=True)
    world.add(bound_pod("x", ("a", APP, 2000)))
    world.start("x", "a")
    while world.inbox:
        world.deliver(0)
    pin = next(order for order in world.pending if isinstance(order, Pin))
    world.pending.remove(pin)
    world.now += 0.4
    world.feed(events.TimePassed(**world.times()))
    answer = next(order for order in world.pending if isinstance(order, AnswerCreate))
    assert (answer.adjust.cpus, answer.placed) == (cpus("0,3"), "")
    assert told(world, "CPUsNotReady") == []
    world.pending.append(pin)
    world.settle()
    assert world.container("x").cpus == cpus("1-2")
    text = (
        "Container a is created in the shared pool: other containers are still on CPUs 1-2; "
        "it is moved to its CPUs as soon as they are free"
    )
    assert told(world, "CPUsNotReady") == [text]


def test_the_answer_waits_until_the_kernel_shows_that_the_others_have_left():
    world = running(bound_pod("s", ("a", APP, 100), **SHARED), cpus=4, nri=True)
    world.add(bound_pod("x", ("a", APP, 2000)))
    world.start("x", "a")
    while world.inbox:
        world.deliver(0)
    pin = next(order for order in world.pending if isinstance(order, Pin))
    world.pending.remove(pin)
    world.unanswered.discard(pin.id)
    answers = []
    for allowed in ("0-3", "0,2-3", "0,3"):
        world.feed(events.Pinned(id=pin.id, cpus=pin.cpus, allowed=cpus(allowed), **world.times()))
        answers.append([one.adjust.cpus for one in world.pending if isinstance(one, AnswerCreate)])
        world.pending = [one for one in world.pending if not isinstance(one, Pin)]
        world.unanswered.clear()
    assert answers == [[], [], [cpus("1-2")]]


@pytest.mark.parametrize("nri", [False, True])
def test_a_pod_without_room_runs_in_the_pool_and_its_request_counts(nri):
    class Counter(AllocationReporter):
        unplaced_pods = 0

        def unplaced(self, pod, reason):
            self.unplaced_pods += 1

    counter = Counter()
    world = running(
        bound_pod("x", ("a", APP, 2000)),
        bound_pod("y", ("a", APP, 2000)),
        cpus=4,
        nri=nri,
        reporter=counter,
    )
    assert world.container("y").cpus == cpus("0,3")
    assert world.core.ledger.requested == 4000
    assert world.core.ledger.entries["y", "a"].cpus == CPUSet()
    condition = world.conditions["y"]
    assert not condition.holds
    assert (condition.reason, counter.unplaced_pods) == ("UnexpectedAdmissionError", 1)
    assert condition.message.startswith("runs in the shared pool: ")
    (event,) = [one for one in world.told if one.reason == "CPUsUnavailable"]
    assert event.warning
    world.boot()
    world.settle()
    assert world.container("y").cpus == cpus("0,3")
    unplaced = [pod.uid for pod in world.core.pods.values() if pod.unplaced]
    assert unplaced == ["y"], "counted after a restart of the agent, too"


def test_lost_events_are_made_good_by_the_next_list():
    world = running(bound_pod("x", ("a", APP, 2000)), bound_pod("s", ("a", APP, 9), **SHARED), cpus=4)
    world.add(bound_pod("y", ("a", APP, 1000)))
    world.settle()
    world.start("y", "a")
    world.exit(world.container("x"))
    world.inbox.clear()
    world.tick(5)
    world.settle()
    assert world.container("y").cpus == cpus("0-3")
    world.resync()
    world.settle()
    assert world.container("y").cpus == cpus("3")
    assert [run.uid for run in world.core.allocation.runs()] == ["s", "y"]


def test_a_list_that_began_before_a_container_started_does_not_end_it():
    world = KubeletWorld(cpus=4)
    world.add(bound_pod("x", ("a", APP, 2000)))
    world.settle()
    early = world.listing()
    world.tick(1)
    world.start("x", "a")
    world.settle()
    world.feed(early)
    assert [run.uid for run in world.core.allocation.runs()] == ["x"]


def test_the_old_run_of_a_container_does_not_keep_the_new_one_from_its_cpus():
    world = running(bound_pod("x", ("a", APP, 2000)), cpus=4, nri=True)
    old = world.container("x")
    world.start("x", "a")
    world.settle()
    new = next(one for one in world.live() if one is not old)
    assert new.cpus == old.cpus == cpus("1-2")
    world.exit(old)
    world.settle()
    assert world.core.ledger.entries["x", "a"].phase == "confirmed"


def test_ephemeral_and_bare_containers_run_in_the_pool_and_leave_exclusive_cpus():
    world = running(bound_pod("x", ("a", APP, 2000)), cpus=4)
    world.create("x-debugger", "x", "debugger", None)
    world.create("bare", "sandbox", "b", None)
    world.settle()
    assert world.container("x", "debugger").cpus == cpus("0,3")
    assert world.container("sandbox", "b").cpus == cpus("0-3"), "its pod may be listed soon"
    world.tick(31)
    world.settle()
    assert world.container("sandbox", "b").cpus == cpus("0,3")
    assert world.core.ledger.entries["sandbox", "b"].origin == "adopted"
    world.exit(world.container("sandbox", "b"))
    world.settle()
    assert "sandbox" not in world.core.ledger.pods


def test_init_containers_pass_their_cpus_on():
    world = running(bound_pod("p", ("i", INIT, 2000), ("a", APP, 1000)), cpus=4)
    assert world.container("p", "i").cpus == cpus("1-2")
    world.exit(world.container("p", "i"))
    world.run_all()
    assert world.container("p").cpus == cpus("1")


def test_running_containers_are_repaired_before_any_pod_is_listed():
    world = running(bound_pod("x", ("a", APP, 2000)), cpus=4)
    one = world.container("x")
    one.cpus, one.escaped = cpus("0-3"), True
    world.boot()
    world.inbox[1:] = []
    world.settle()
    assert one.cpus == cpus("1-2")


def test_a_reading_that_began_before_cpus_were_applied_is_no_drift_and_a_later_one_is():
    class Drifts(AllocationReporter):
        found = 0

        def drifted(self, *_):
            self.found += 1

    reporter = Drifts()
    world = running(bound_pod("x", ("a", APP, 2000)), cpus=4, reporter=reporter)
    one, before = world.container("x"), world.times()["now"]
    world.exit(one)
    world.tick(10.0)
    world.run_all()
    one = world.container("x")
    world.feed(events.Observed(id=one.id, allowed=cpus("0-3"), began=before, **world.times()))
    assert reporter.found == 0
    world.feed(
        events.Observed(id=one.id, allowed=cpus("0-3"), began=world.times()["now"] + 1, **world.times())
    )
    assert reporter.found == 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_pod_that_cannot_be_decoded_keeps_its_cpus_and_runs_on(lost):
    world = running(bound_pod("x", ("a", APP, 2000)), bound_pod("s", ("a", APP, 9), **SHARED), cpus=4)
    world.undecodable = {"x"}
    world.lose_ledger() if lost else world.boot()
    world.settle()
    world.add(bound_pod("y", ("a", APP, 2000)))
    world.run_all()
    assert world.container("x").cpus == cpus("1-2")
    assert world.core.ledger.entries["x", "a"].cpus == cpus("1-2")
    assert world.container("y").cpus == cpus("0,3"), "there is no room for it"
    world.undecodable.clear()
    world.inbox.append(world.seen("x"))
    world.settle()
    assert world.container("x").cpus == cpus("1-2")


@pytest.mark.parametrize("nri", [False, True])
def test_on_a_first_start_all_running_pods_get_their_cpus(nri):
    world = KubeletWorld(cpus=8, nri=nri)
    for number in range(3):
        pod = bound_pod(f"u{number}", ("a", APP, (100, 2000, 1000)[number]), **(SHARED if not number else {}))
        world.pods[pod.uid] = pod
        world.create(f"c{number}", pod.uid, "a", None)
    world.boot()
    world.settle()
    assert [one.cpus for one in world.live()] == [cpus("0,4-7"), cpus("1-2"), cpus("3")]


def test_what_is_recorded_already_leads_to_no_instruction():
    world = running(bound_pod("x", ("a", APP, 2000)), bound_pod("s", ("a", APP, 9), **SHARED), cpus=4)
    before = world.core.ledger
    routine = [world.listing(), *map(world.seen, world.pods), events.TimePassed(**world.times())]
    assert world.core.handle(*routine) == []
    assert world.core.ledger is before


def kubelet(policy, **members):
    return decide(ModeInputs(ReportedPolicies(answer=policy, memory="None"), **members))


def test_beside_a_static_kubelet_nothing_is_allocated_and_only_unmanaged_containers_are_written():
    world = KubeletWorld(cpus=4)
    world.feed(events.ModeChanged(mode=kubelet("static"), **world.times()))
    world.add(bound_pod("x", ("a", APP, 2000)))
    world.run_all()
    state = Checkpoint("static", entries={"x": {"a": cpus("2-3")}})
    world.feed(events.KubeletStateRead(checkpoint=state, **world.times()))
    world.container("x").cpus = cpus("2-3")
    world.create("bare", "sandbox", "b", None)
    world.tick(31)
    world.resync()
    world.settle()
    world.tick(31)
    world.settle()
    assert world.container("x").cpus == cpus("2-3"), "it is the kubelet's to pin"
    assert world.core.ledger.exclusive == cpus("2-3")
    assert world.container("sandbox", "b").cpus == cpus("0-1")
    assert told(world, "CPUsDrifted") == []
    world.feed(events.ModeChanged(mode=kubelet("none"), **world.times()))
    world.add(bound_pod("y", ("a", APP, 1000)))
    world.run_all()
    assert world.container("y").cpus == cpus("1")
    assert world.core.ledger.entries["x", "a"].cpus == cpus("2-3"), "taken over pod by pod"


def test_containers_of_a_static_kubelet_that_lists_no_pods_after_its_restart_are_left_alone():
    """For a second, or while it cannot reach the API server, its list is empty."""
    world = KubeletWorld(cpus=4)
    world.add(bound_pod("x", ("a", APP, 2000)))
    world.add(bound_pod("s", ("a", APP, 100), **SHARED))
    world.run_all()
    world.settle()
    world.feed(events.PodGone(uid="x", **world.times()))
    world.feed(events.PodGone(uid="s", **world.times()))
    world.feed(events.ModeChanged(mode=kubelet("static"), **world.times()))
    world.container("s").cpus = cpus("0")
    world.tick(31)
    world.settle()
    assert world.container("s").cpus == cpus("0"), "the kubelet's static policy wrote it"
    assert told(world, "CPUsDrifted") == []


def test_pods_that_were_there_before_the_mode_allocates_are_placed_once_it_does():
    world = KubeletWorld(cpus=4)
    unknown = decide(ModeInputs(ReportedPolicies()))
    world.core = KubeletPods(Allocation(world.core.ledger, validate=True), unknown)
    world.feed(world.listing())
    for pod in (bound_pod("x", ("a", APP, 2000)), bound_pod("s", ("a", APP, 9), **SHARED)):
        world.add(pod)
        world.run_all()
    assert {one.cpus for one in world.live()} == {cpus("0-3")}
    assert world.core.ledger.requested == 2009
    world.feed(events.ModeChanged(mode=kubelet("none"), **world.times()))
    world.settle()
    assert world.container("x").cpus == cpus("1-2")
    assert world.container("s").cpus == cpus("0,3")


@pytest.mark.parametrize("nri", [False, True])
@pytest.mark.parametrize("flag", ["read_only", "ignore"])
def test_no_cpuset_is_written_where_only_reading_is_allowed(flag, nri):
    world = running(bound_pod("x", ("a", APP, 2000)), bound_pod("s", ("a", APP, 9), **SHARED), nri=nri)
    world.feed(events.ModeChanged(mode=kubelet("none", **{flag: True}), **world.times()))
    before = {one.id: one.cpus for one in world.live()}
    world.delete("x")
    world.add(bound_pod("y", ("a", APP, 1000)))
    while world.startable() or world.inbox or world.pending:
        if world.pending:
            assert not isinstance(world.pending[0], Pin)
            world.carry_out(0)
        elif world.inbox:
            world.deliver(0)
        else:
            world.start(*world.startable()[0])
    assert world.container("s").cpus == before[world.container("s").id]
    assert world.container("y").cpus == world.machine.usable
    assert world.core.ledger.entries["y", "a"].cpus == CPUSet()


def test_a_pin_that_failed_is_ordered_again_as_time_passes_and_without_any_other_event():
    world = running(bound_pod("x", ("a", APP, 2000)), cpus=4)
    run = world.container("x")
    world.feed(events.Observed(id=run.id, allowed=cpus("0-3"), **world.times()))
    (order,) = [order for order in world.pending if isinstance(order, Pin)]
    while world.pending != [order]:  # the ledger first
        world.carry_out(next(n for n, one in enumerate(world.pending) if one != order))
    world.carry_out(0, fails=True)
    while world.inbox:
        world.deliver(0)
    for second in range(1, 7):
        world.now += 1.0
        world.feed(events.TimePassed(**world.times()))
        pins = [order for order in world.pending if isinstance(order, Pin)]
        assert pins == ([order] if second >= 5 else []), second


def test_a_container_whose_cpus_were_undone_for_a_moment_is_confirmed_once_the_kernel_shows_them():
    """The runtime may end an older update after the new CPUs were written, and before these are read back."""
    world = running(bound_pod("s", ("a", APP, 100), **SHARED), cpus=4)
    world.add(bound_pod("x", ("a", APP, 2000)))
    world.settle()
    world.start("x", "a")
    while not any(isinstance(event, events.Pinned) and event.cpus == cpus("1-2") for event in world.inbox):
        (world.carry_out if world.pending else world.deliver)(0)
    world.inbox = [
        replace(event, allowed=cpus("0-3")) if isinstance(event, events.Pinned) else event
        for event in world.inbox
    ]
    world.settle()
    assert not world.conditions["x"].holds
    world.tick(10.0)
    world.settle()
    assert world.conditions["x"].holds
    assert world.container("x").cpus == cpus("1-2")


def test_a_container_waits_in_the_pool_while_one_that_stays_is_on_its_cpus():
    """A deleted pod's container that runs on is unknown once the ledger is lost."""
    world = running(bound_pod("gone", ("a", APP, 2000)), cpus=4)
    world.delete("gone", force=True)
    world.settle()
    gone = world.container("gone")
    world.add(bound_pod("x", ("a", APP, 1000), ("b", APP, 1000)))
    world.lose_ledger()
    world.run_all()
    assert gone.cpus == cpus("1-2")
    assert [world.container("x", name).cpus for name in "ab"] == [cpus("0,3")] * 2
    assert not world.conditions["x"].holds
    world.exit(gone)
    world.resync()
    world.settle()
    assert [world.container("x", name).cpus for name in "ab"] == [cpus("1"), cpus("2")]
    assert world.conditions["x"].holds


def test_a_container_in_its_place_is_not_announced_as_pinned_while_another_is_there():
    world = running(bound_pod("x", ("a", APP, 2000)), bound_pod("gone", ("a", APP, 100), **SHARED), cpus=4)
    world.delete("gone", force=True)
    world.settle()
    gone, own = world.container("gone"), world.container("x")
    gone.cpus, gone.escaped = own.cpus, True
    world.lose_ledger()
    world.settle()
    assert not world.conditions["x"].holds
    world.exit(gone)
    world.settle()
    world.feed(events.Observed(id=own.id, allowed=own.cpus, **world.times()))
    world.settle()
    assert own.cpus == cpus("1-2")
    assert world.conditions["x"].holds


def test_a_pod_that_lost_all_its_exclusive_cpus_is_not_pinned_until_they_are_back():
    world = running(bound_pod("x", ("a", APP, 2000)), cpus=4)
    assert world.conditions["x"].holds
    world.promised.clear()  # the CPUs go, and the container has to move
    world.container("x").escaped = True
    world.feed(events.MachineChanged(machine=world.machine.restricted(0b1001), **world.times()))
    world.settle()
    condition = world.conditions["x"]
    assert (condition.holds, condition.reason) == (False, "CPUsLost")
    assert condition.message == "a: 0 of 2 exclusive CPUs left, runs in the shared pool"
    world.container("x").escaped = True
    world.feed(events.MachineChanged(machine=world.machine, **world.times()))
    world.settle()
    assert world.conditions["x"].holds
