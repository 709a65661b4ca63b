"""Permit: bindings that plugins hold, allow, deny, or hold for too long."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace as changed

from corelane.kube.pod import Pod
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import (
    BindSucceeded,
    PermitDecided,
)
from corelane.scheduler.explain import report
from corelane.scheduler.explain.record import DecisionRing
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import Cycle, DecidePermit, Rejection, Wait
from corelane.scheduler.instructions import (
    Instruction,
    SetNominatedNode,
)
from support import scheduled_cluster
from support.core_lab import CoreLab, binds, conditions, events, evicted, names, profile_with
from support.pods import guaranteed

OURS = "corelane-scheduler"


@dataclass
class Holder:
    """Answers as it is told, and counts what it has reserved."""

    name: str = "Holder"
    answer: Rejection | Wait | None = field(default_factory=lambda: Wait(10))
    reserved: set[str] = field(default_factory=set)

    def reserve(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        self.reserved.add(cycle.pod.uid)
        return None

    def unreserve(self, pod: PodInfo, node: str) -> None:
        self.reserved.discard(pod.uid)

    def permit(self, cycle: Cycle, node: NodeInfo) -> Rejection | Wait | None:
        return self.answer

    def hints(self) -> Mapping[ChangeKind, Hint]:
        return {ChangeKind.POD_REMOVED: always}


def lab_with(*holders: Holder) -> CoreLab:
    return CoreLab(
        "n1", spec="core:8", core=SchedulerCore(profile=profile_with(*holders), decisions=DecisionRing())
    )


def nominations(done: list[Instruction]) -> list[SetNominatedNode]:
    return [one for one in done if isinstance(one, SetNominatedNode)]


def why(done: list[Instruction]) -> str:
    (condition,) = conditions(done)
    assert condition.reason == "Unschedulable"
    return condition.message


def course(ring: DecisionRing, name: str) -> list[str]:
    (history,) = ring.of("ns", name)
    return [step.text for step in report.decision(history).course]


def test_a_held_pod_keeps_its_cpus_and_is_bound_when_every_plugin_allows() -> None:
    one, two = Holder("One"), Holder("Two", Wait(20))
    lab = lab_with(one, two)
    core = lab.core
    ring = core.decisions
    done = lab.place(guaranteed("a", "6"))
    assert binds(done) == []
    assert [(one.pod.metadata.name, one.node) for one in nominations(done)] == [("a", "n1")]
    assert core.pending() == {"uid-a": "held by Permit plugins One, Two, for node n1"}
    one.answer = two.answer = None
    lab.add(guaranteed("b", "4"))
    assert "Insufficient cpu" in why(lab.run())
    lab.add(guaranteed("c", "1"))
    (other, *more) = lab.run()
    assert nominations(more) == [], "it is bound at once"
    assert other.pod.metadata.name == "c"
    assert lab.tell(PermitDecided(1, "uid-a", True, "One")) == []
    assert lab.tell(PermitDecided(1, "uid-a", True, "One")) == []
    (bind,) = lab.tell(PermitDecided(2, "uid-a", True, "Two"))
    assert len(bind.assignments["main"]) == 6
    assert not bind.assignments["main"] & other.assignments["main"]
    assert lab.tell(PermitDecided(2, "uid-a", False, "Two")) == [], "it is sent already"
    lab.tell(BindSucceeded(3, "uid-a"))
    assert core.bindings.next_time() is None
    assert course(ring, "a") == [
        "binding held by Permit plugin One: 10 s",
        "binding held by Permit plugin Two: 20 s",
        "CPUs claimed on node n1, binding sent",
        "the API server accepted the binding",
    ]
    assert one.reserved == two.reserved == {"uid-a", "uid-c"}


def test_a_denial_releases_the_claim_and_parks_the_pod_until_the_plugin_is_helped() -> None:
    holder = Holder()
    lab = lab_with(holder)
    core = lab.core
    ring = core.decisions
    lab.place(guaranteed("a", "6"))
    done = lab.tell(PermitDecided(1, "uid-a", False, "Holder", "quorum lost"))
    assert why(done) == "0/1 nodes are available: 1 quorum lost."
    assert core.pending() == {"uid-a": "0/1 nodes are available: 1 quorum lost."}
    assert holder.reserved == set()
    assert core.cluster.node_of("uid-a") is None
    assert course(ring, "a")[-1] == "binding denied in Permit, the claim was released: Holder: quorum lost"
    assert report.verdict(ring.of("ns", "a")[0]) == "unschedulable"
    assert lab.run(100) == [], "the end of its own claim does not help it"
    holder.answer = None
    lab.delete(lab.on("n1", guaranteed("z", "1")))
    assert names(lab.run(1)) == ["a"]


def test_the_plugin_whose_time_is_over_first_denies() -> None:
    lab = lab_with(Holder("Slow", Wait(2000)), Holder("Fast", Wait(90)))
    core = lab.core
    lab.place(guaranteed("a", "2"))
    assert core.next_time() == 90
    assert lab.run(89.9) == []
    assert why(lab.run(0.1)) == (
        "0/1 nodes are available: 1 rejected due to timeout after waiting 1m30s at plugin Fast."
    )
    lab = lab_with(Holder("Long", Wait(10**6)))
    core = lab.core
    lab.place(guaranteed("a", "2"))
    assert core.next_time() == 15 * 60, "upstream's longest wait"


def test_an_allowed_plugins_time_no_longer_counts() -> None:
    lab = lab_with(Holder("Slow", Wait(50)), Holder("Fast", Wait(5)))
    lab.place(guaranteed("a", "2"))
    lab.tell(PermitDecided(1, "uid-a", True, "Fast"))
    assert lab.run(49) == []
    assert "at plugin Slow" in why(lab.run(1))


def test_a_rejection_in_permit_claims_nothing_and_says_nothing_about_equal_pods() -> None:
    reason = Reason(Code.POD_INVALID, ("no quorum",))
    holder = Holder(answer=Rejection.of("Holder", reason))
    lab = lab_with(holder)
    core = lab.core
    lab.add(guaranteed("a", "2"))
    text = why(lab.run())
    assert text.startswith("0/1 nodes are available: 1 ")
    assert holder.reserved == set()
    assert core.cluster.node_of("uid-a") is None
    holder.answer = None
    lab.add(guaranteed("b", "2"))
    assert names(lab.run()) == ["b"]


@pytest.mark.parametrize("way", ["deleted", "terminating"])
def test_a_held_pod_that_goes_leaves_nothing(way: str) -> None:
    holder = Holder()
    lab = lab_with(holder)
    core = lab.core
    lab.place(guaranteed("a", "2"))
    pod = lab.pods["uid-a"]
    leaving = changed(pod, metadata=changed(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    lab.delete(pod) if way == "deleted" else lab.seen(leaving)
    assert (holder.reserved, core.pending(), core.next_time()) == (set(), {}, None)
    assert core.cluster.node_of("uid-a") is None
    assert lab.tell(PermitDecided(2, "uid-a", True, "Holder")) == []


def test_a_held_victim_is_not_deleted_but_gives_way_and_is_tried_again() -> None:
    holder = Holder()
    lab = lab_with(holder)
    core = lab.core
    lab.place(guaranteed("low", "7"))
    holder.answer = None
    lab.add(guaranteed("high", "7", priority=1000))
    done = lab.run(1)
    assert not evicted(done)
    (event,) = [event for event in events(done) if event.reason == "Preempted"]
    assert (event.pod.metadata.name, event.related.metadata.name) == ("low", "high")  # type: ignore[union-attr]
    assert event.message == "Preempted by pod uid-high on node n1 (before it was bound; it is tried again)"
    assert names([*done, *lab.run(20)]) == ["high"]
    assert "low" in {uid.removeprefix("uid-") for uid in core.pending()}
    assert core.cluster.nominations.evicting == set()


def test_the_node_of_a_held_pod_is_taken_back_from_its_status_after_a_denial() -> None:
    holder = Holder()
    lab = lab_with(holder)
    core = lab.core
    lab.add(guaranteed("a", "6"))
    (shown,) = nominations(lab.run())
    lab.seen(changed(shown.pod, status=changed(shown.pod.status, nominated_node_name="n1")))
    (condition,) = conditions(lab.tell(PermitDecided(1, "uid-a", False, "Holder", "quorum lost")))
    assert condition.nominated == ""
    assert core.cluster.nominations.of("uid-a") == ""
    assert len(core.cluster.nominations) == 0


def test_after_a_restart_the_node_of_a_held_pod_is_kept_for_it() -> None:
    lab = lab_with()
    held = guaranteed("a", "6")
    held = changed(held, status=changed(held.status, nominated_node_name="n1"))
    assert names(lab.place(guaranteed("b", "6"), held)) == ["a"]


@dataclass
class Pairs:
    """Holds a pod until there is a second one; then allows both, from within `permit`."""

    name: str = "Pairs"
    held: list[str] = field(default_factory=list)
    decide: DecidePermit | None = None

    def decides_with(self, decide: DecidePermit) -> None:
        self.decide = decide

    def permit(self, cycle: Cycle, node: NodeInfo) -> Rejection | Wait | None:
        assert self.decide is not None
        if not self.held:
            self.held.append(cycle.pod.uid)
            return Wait(600)
        self.decide(self.held.pop(), self.name, allowed=True)
        return None


async def test_a_plugin_holds_a_pod_of_a_real_scheduler_until_its_partner_is_there() -> None:
    async with scheduled_cluster.running(profile=profile_with(Pairs(), name=OURS)) as cluster:
        await cluster.node("n1", "core:8", 8)
        await cluster.pod("a")
        while [binding.phase.name for binding in cluster.scheduler.core.bindings] != ["HELD"]:
            await asyncio.sleep(0.02)
        assert not (await cluster.client.get(Pod, "a", "default")).spec.node_name
        await cluster.pod("b")
        assert {(await cluster.placed(name)).spec.node_name for name in "ab"} == {"n1"}
