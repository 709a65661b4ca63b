"""Permit: bindings that plugins hold, allow, deny, or hold for too long."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from msgspec.structs import replace as changed

from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.daemon.scheduler import Scheduler
from corelane.scheduler.events import (
    BindSucceeded,
    CycleDue,
    NodeChanged,
    PermitDecided,
    PodChanged,
    TopologyChanged,
)
from corelane.scheduler.explain import report
from corelane.scheduler.explain.record import DecisionRing
from corelane.scheduler.framework.changes import ChangeKind, Hint, always
from corelane.scheduler.framework.plugin import Cycle, DecidePermit, Rejection, Wait
from corelane.scheduler.instructions import (
    Bind,
    Evict,
    Instruction,
    RecordPodEvent,
    SetCondition,
    SetNominatedNode,
)
from corelane.scheduler.plugins import default
from support import objects
from support.pods import guaranteed
from support.scheduled_cluster import ScheduledCluster

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


def core_with(*holders: Holder, cpus: str = "core:8") -> tuple[SchedulerCore, DecisionRing]:
    usual, ring = default.profile(OURS), DecisionRing()
    core = SchedulerCore(OURS, replace(usual, plugins=(*usual.plugins, *holders)), ring)
    core.handle(NodeChanged(0, None, objects.node("n1")))
    core.handle(TopologyChanged(0, None, objects.topology("n1", objects.state(cpus, "n1"))))
    return core, ring


def wants(core: SchedulerCore, name: str, cpus: str = "2", now: float = 0, **more: object) -> None:
    core.handle(PodChanged(now, None, guaranteed(name, cpus, scheduler_name=OURS, **more)))


def runs(core: SchedulerCore, now: float = 0) -> list[Instruction]:
    done: list[Instruction] = []
    while core.ready(now):
        done += core.handle(CycleDue(now))
    return done


def binds(done: list[Instruction]) -> list[Bind]:
    return [one for one in done if isinstance(one, Bind)]


def nominations(done: list[Instruction]) -> list[SetNominatedNode]:
    return [one for one in done if isinstance(one, SetNominatedNode)]


def why(done: list[Instruction]) -> str:
    (found,) = [one for one in done if isinstance(one, SetCondition)]
    assert found.reason == "Unschedulable"
    return found.message


def course(ring: DecisionRing, name: str) -> list[str]:
    (history,) = ring.of("ns", name)
    return [step.text for step in report.decision(history).course]


def test_a_held_pod_keeps_its_cpus_and_is_bound_when_every_plugin_allows() -> None:
    one, two = Holder("One"), Holder("Two", Wait(20))
    core, ring = core_with(one, two)
    wants(core, "a", "6")
    done = runs(core)
    assert binds(done) == []
    assert [(one.pod.metadata.name, one.node) for one in nominations(done)] == [("a", "n1")]
    assert core.pending() == {"uid-a": "held by Permit plugins One, Two, for node n1"}
    one.answer = two.answer = None
    wants(core, "b", "4")
    assert "Insufficient cpu" in why(runs(core))
    wants(core, "c", "1")
    (other, *more) = runs(core)
    assert isinstance(other, Bind)
    assert nominations(more) == [], "it is bound at once"
    assert other.pod.metadata.name == "c"
    assert core.handle(PermitDecided(1, "uid-a", True, "One")) == []
    assert core.handle(PermitDecided(1, "uid-a", True, "One")) == []
    (bind,) = core.handle(PermitDecided(2, "uid-a", True, "Two"))
    assert isinstance(bind, Bind)
    assert len(bind.assignments["main"]) == 6
    assert not bind.assignments["main"] & other.assignments["main"]
    assert core.handle(PermitDecided(2, "uid-a", False, "Two")) == [], "it is sent already"
    core.handle(BindSucceeded(3, "uid-a"))
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
    core, ring = core_with(holder)
    wants(core, "a", "6")
    runs(core)
    done = core.handle(PermitDecided(1, "uid-a", False, "Holder", "quorum lost"))
    assert why(done) == "0/1 nodes are available: 1 quorum lost."
    assert core.pending() == {"uid-a": "0/1 nodes are available: 1 quorum lost."}
    assert holder.reserved == set()
    assert core.cluster.node_of("uid-a") is None
    assert course(ring, "a")[-1] == "binding denied in Permit, the claim was released: Holder: quorum lost"
    assert report.verdict(ring.of("ns", "a")[0]) == "unschedulable"
    assert runs(core, 100) == [], "the end of its own claim does not help it"
    holder.answer = None
    other = guaranteed("z", "1")
    placed = changed(other, spec=changed(other.spec, node_name="n1"))
    core.handle(PodChanged(100, None, placed))
    core.handle(PodChanged(101, placed, None))
    assert [one.pod.metadata.name for one in binds(runs(core, 101))] == ["a"]


def test_the_plugin_whose_time_is_over_first_denies() -> None:
    core, _ = core_with(Holder("Slow", Wait(2000)), Holder("Fast", Wait(90)))
    wants(core, "a")
    runs(core)
    assert core.next_time() == 90
    assert runs(core, 89.9) == []
    assert why(runs(core, 90)) == (
        "0/1 nodes are available: 1 rejected due to timeout after waiting 1m30s at plugin Fast."
    )
    core, _ = core_with(Holder("Long", Wait(10**6)))
    wants(core, "a")
    runs(core)
    assert core.next_time() == 15 * 60, "upstream's longest wait"


def test_an_allowed_plugins_time_no_longer_counts() -> None:
    core, _ = core_with(Holder("Slow", Wait(50)), Holder("Fast", Wait(5)))
    wants(core, "a")
    runs(core)
    core.handle(PermitDecided(1, "uid-a", True, "Fast"))
    assert runs(core, 49) == []
    assert "at plugin Slow" in why(runs(core, 50))


def test_a_rejection_in_permit_claims_nothing_and_says_nothing_about_equal_pods() -> None:
    reason = Reason(Code.POD_INVALID, ("no quorum",))
    holder = Holder(answer=Rejection.of("Holder", reason))
    core, _ = core_with(holder)
    wants(core, "a")
    text = why(runs(core))
    assert text.startswith("0/1 nodes are available: 1 ")
    assert holder.reserved == set()
    assert core.cluster.node_of("uid-a") is None
    holder.answer = None
    wants(core, "b")
    assert [one.pod.metadata.name for one in binds(runs(core))] == ["b"]


@pytest.mark.parametrize("way", ["deleted", "terminating"])
def test_a_held_pod_that_goes_leaves_nothing(way: str) -> None:
    holder = Holder()
    core, _ = core_with(holder)
    wants(core, "a")
    runs(core)
    one: Pod = core.cluster.pod("uid-a").pod  # type: ignore[union-attr]
    leaving = changed(one, metadata=changed(one.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    core.handle(PodChanged(1, one, None if way == "deleted" else leaving))
    assert (holder.reserved, core.pending(), core.next_time()) == (set(), {}, None)
    assert core.cluster.node_of("uid-a") is None
    assert core.handle(PermitDecided(2, "uid-a", True, "Holder")) == []


def test_a_held_victim_is_not_deleted_but_gives_way_and_is_tried_again() -> None:
    holder = Holder()
    core, _ = core_with(holder)
    wants(core, "low", "7")
    runs(core)
    holder.answer = None
    wants(core, "high", "7", now=1, priority=1000)
    done = runs(core, 1)
    assert not [one for one in done if isinstance(one, Evict)]
    (event,) = [one for one in done if isinstance(one, RecordPodEvent) and one.reason == "Preempted"]
    assert (event.pod.metadata.name, event.related.metadata.name) == ("low", "high")  # type: ignore[union-attr]
    assert event.message == "Preempted by pod uid-high on node n1 (before it was bound; it is tried again)"
    assert [one.pod.metadata.name for one in binds([*done, *runs(core, 20)])] == ["high"]
    assert "low" in {uid.removeprefix("uid-") for uid in core.pending()}
    assert core.cluster.nominations.evicting == set()


def test_the_node_of_a_held_pod_is_taken_back_from_its_status_after_a_denial() -> None:
    holder = Holder()
    core, _ = core_with(holder)
    wants(core, "a", "6")
    (shown,) = nominations(runs(core))
    before = shown.pod
    after = changed(before, status=changed(before.status, nominated_node_name="n1"))
    core.handle(PodChanged(0.5, before, after))
    (condition,) = [
        one
        for one in core.handle(PermitDecided(1, "uid-a", False, "Holder", "quorum lost"))
        if isinstance(one, SetCondition)
    ]
    assert condition.nominated == ""
    assert core.cluster.nominations.of("uid-a") == ""
    assert len(core.cluster.nominations) == 0


def test_after_a_restart_the_node_of_a_held_pod_is_kept_for_it() -> None:
    core, _ = core_with()
    held = guaranteed("a", "6", scheduler_name=OURS)
    held = changed(held, status=changed(held.status, nominated_node_name="n1"))
    wants(core, "b", "6")
    core.handle(PodChanged(0, None, held))
    assert [one.pod.metadata.name for one in binds(runs(core))] == ["a"]


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


def test_a_plugin_holds_a_pod_of_a_real_scheduler_until_its_partner_is_there() -> None:
    async def main() -> None:
        server = APIServer(tokens={"t": User("admin", ("system:masters",))})
        usual, pairs = default.profile(OURS), Pairs()
        await server.start()
        client = KubeClient.connect_to(server.url, "t")
        scheduler = Scheduler(client, profile=replace(usual, plugins=(*usual.plugins, pairs)))
        cluster, running = ScheduledCluster(client), asyncio.create_task(scheduler.run())
        try:
            async with asyncio.timeout(180):
                await cluster.node("n1", "core:8", 8)
                await cluster.pod("a")
                while scheduler.claims() != {"held": 1}:
                    await asyncio.sleep(0.02)
                assert not (await client.get(Pod, "a", "default")).spec.node_name
                await cluster.pod("b")
                assert {(await cluster.placed(name)).spec.node_name for name in "ab"} == {"n1"}
        finally:
            running.cancel()
            await asyncio.wait({running})
            await client.close()
            await server.stop()

    asyncio.run(main())
