"""The scheduler's record of its decisions, and what it is made into for people."""

import gc
import io
import tracemalloc
from collections import deque
from collections.abc import Callable
from itertools import count

import pytest
from msgspec.structs import replace

from corelane.cpuset import CPUSet
from corelane.kube.objects import Taint
from corelane.kube.pod import Pod
from corelane.node.explain.json_values import from_json, json_value
from corelane.node.explain.pod_decision import NodeGroup, PodDecision, Source, Verdict
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import attempts, finalists
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    CycleDue,
    PodLookedUp,
)
from corelane.scheduler.explain import report
from corelane.scheduler.explain.record import DecisionRing
from corelane.scheduler.instructions import Bind
from corelane.scheduler.plugins import default
from corelane.view import explain as view
from corelane.view import tables
from support import objects
from support.core_lab import CoreLab, binds
from support.pods import guaranteed


class Recorded(CoreLab):
    """A core, with a ring that records its decisions; its clock goes a second with each cycle."""

    def __init__(self, budget: int = 1 << 20, timer: Callable[[], float] = lambda: 0.0) -> None:
        self.ring = DecisionRing(budget=budget, clock=lambda: 1_700_000_000.0 + self.now, timer=timer)
        super().__init__(core=SchedulerCore(decisions=self.ring))

    def come(self, name: str, spec: str = "core:4", cpus: int = 4, **more: object) -> "Recorded":
        self.has(objects.node(name, cpus, **more), spec=spec, reserved=CPUSet([0]), policy="pools")  # type: ignore[arg-type]
        return self

    def pod(self, name: str, cpu: str = "2", **more: object) -> Pod:
        return self.add(guaranteed(name, cpu, **more))

    def cycle(self, seconds: float = 1) -> list[Bind]:
        self.now += seconds
        return binds(self.tell(CycleDue(self.now)))

    def decision(self, name: str) -> PodDecision:
        (history,) = self.ring.of("ns", name)
        return report.decision(history)


def test_a_bound_pods_decision_has_scores_cpus_and_the_bindings_course() -> None:
    lab = Recorded().come("n1").come("n2").come("n3", taints=(Taint("gpu", "yes", "NoSchedule"),))
    pod = lab.pod("web")
    (bind,) = lab.cycle()
    lab.tell(BindSucceeded(lab.now, pod.metadata.uid))
    seen = lab.decision("web")
    assert (seen.source, seen.verdict, seen.node) == (Source.RECORDED, Verdict.BOUND, bind.node)
    assert (seen.nodes, seen.feasible, seen.attempt, seen.time) == (3, 2, 1, "2023-11-14T22:13:21Z")
    assert seen.candidates == ("n1", "n2")
    assert {term.plugin for term in seen.terms} >= {"NUMALocality", "NodeResourcesFit"}
    (taints,) = (term for term in seen.terms if term.plugin == "TaintToleration")
    assert taints.values == (100.0, 100.0)
    assert seen.totals[0] == sum(term.weight * term.values[0] for term in seen.terms)
    (group,) = seen.groups
    assert (group.plugin, group.code, group.count, group.nodes) == (
        "TaintToleration",
        "untolerated-taint",
        1,
        ("n3",),
    )
    assert not group.resolvable
    (container,) = seen.containers
    assert container.proposed == bind.assignments[container.name]
    assert "free" in container.why or container.why
    assert seen.objective is not None
    assert seen.objective.cpus == container.proposed
    assert [one.step for one in seen.course] == ["claimed", "bound"]


def test_a_decision_survives_json() -> None:
    lab = Recorded().come("n1").come("n2")
    lab.pod("web")
    lab.cycle()
    seen = lab.decision("web")
    assert from_json(PodDecision, json_value(seen)) == seen


def test_nodes_that_one_plugin_rejects_for_different_reasons_are_apart() -> None:
    seen = Recorded().come("n1").come("bare", spec="").come("small", "core:2", 4)
    seen.pod("a", "3")
    seen.cycle()
    groups = {one.nodes: one.code for one in seen.decision("a").groups}
    assert groups["bare",] == "invalid-cpu-topology"
    assert groups["small",] != "invalid-cpu-topology"


def test_many_nodes_rejected_by_one_plugin_are_grouped_by_their_own_reasons() -> None:
    lab = Recorded().come("free")
    for number in range(20):
        lab.come(f"a{number:02}", taints=(Taint("gpu", "yes", "NoSchedule"),))
        lab.come(f"b{number:02}", taints=(Taint("old", "", "NoSchedule"), Taint("x", "", "NoSchedule")))
        lab.come(f"c{number:02}", memory="1Gi")
        lab.come(f"d{number:02}", spec="core:2", cpus=2)
    lab.pod("web", "2", memory="2Gi")
    (bind,) = lab.cycle()
    assert bind.node == "free"
    seen = lab.decision("web")
    assert {(one.message, one.count, one.nodes[0]) for one in seen.groups} == {
        ("node(s) had untolerated taint(s)", 20, "a00"),
        ("node(s) had untolerated taint(s)", 20, "b00"),
        ("Insufficient memory", 20, "c00"),
        ("not enough cpus available to satisfy request: 2 CPUs requested, 1 free", 20, "d00"),
    }


def test_a_placed_pods_groups_are_those_of_each_nodes_own_filters() -> None:
    """The oracle: the filters, asked of each node in turn."""
    lab = Recorded()
    for number in range(60):
        taints = (Taint(f"t{number % 3}", "", "NoSchedule"),) if number % 4 == 0 else ()
        labels = {"disk": "ssd"} if number % 5 else {}
        lab.come(f"n{number:02}", cpus=4 if number % 7 else 1, spec="", taints=taints, labels=labels)
    lab.come("best", labels={"disk": "ssd"})
    for required in ({}, {"disk": "ssd"}):
        one = PodInfo.of(guaranteed("web", "2", node_selector=required))
        tried = finalists.attempt(default.profile(), lab.core.cluster, one)
        assert tried.node is not None
        cycle, _, _ = finalists.begin(default.profile(), lab.core.cluster, one)
        filters = {plugin.name: plugin for plugin in default.profile().filters}
        found = list(tried.groups(100))
        assert len({rejection for rejection, _, _ in found}) == len(found)
        for rejection, size, names in found:
            assert rejection.reasons
            assert len(names) == size
            for name in names:
                assert filters[rejection.plugin].filter(cycle, lab.node(name)) == rejection
        assert sum(size for _, size, _ in found) == 61 - tried.feasible


def test_however_many_nodes_have_another_name_their_reason_is_recorded() -> None:
    lab = Recorded().come("n1")
    for number in range(attempts.ASKED_ALONE + 10):
        lab.come(f"other{number}")
    asked = guaranteed("web", "2")
    one = PodInfo.of(replace(asked, spec=replace(asked.spec, node_name="n1")))
    tried = finalists.attempt(default.profile(), lab.core.cluster, one)
    ((rejection, size, _),) = tried.groups(1)
    assert (rejection.plugin, size) == ("NodeName", attempts.ASKED_ALONE + 10)
    assert rejection.reasons


def test_rows_of_equal_text_are_one_row() -> None:
    groups = (
        NodeGroup("NodeResourcesFit", "insufficient-resource", "Insufficient cpu", 2, ("a", "b"), True),
        NodeGroup("TaintToleration", "untolerated-taint", "node(s) had a taint", 3, ("c", "d", "e"), False),
        NodeGroup("NodeResourcesFit", "insufficient-resource", "Insufficient cpu", 4, ("f",), False),
    )
    pod = PodDecision(
        "ns",
        "p",
        "u",
        Source.RECORDED,
        "2026-01-01T00:00:00Z",
        Verdict.UNSCHEDULABLE,
        "",
        nodes=9,
        groups=groups,
    )
    out = io.StringIO()
    view.show(pod, tables.console(out))
    (line,) = [line for line in out.getvalue().splitlines() if "Insufficient cpu" in line]
    assert line.split() == ["6", "Insufficient", "cpu", "a,", "b,", "f", "and", "3", "more"]
    assert not [line for line in out.getvalue().splitlines() if line != line.rstrip()]


def test_a_pending_pod_keeps_one_record_with_its_last_attempt() -> None:
    lab = Recorded().come("n1", unschedulable=True)
    lab.pod("big", "3")
    lab.cycle()
    lab.come("n2", cpus=4, unschedulable=True)
    lab.cycle()
    lab.now += 20
    lab.cycle()
    seen = lab.decision("big")
    assert len(lab.ring) == 1
    assert (seen.verdict, seen.attempt, seen.nodes) == (Verdict.UNSCHEDULABLE, 2, 2)
    assert seen.groups[0].nodes == ("n1", "n2")


@pytest.mark.parametrize("outcome", ["unknown", "throttled", "conflict"])
def test_an_answer_that_leaves_the_binding_open_is_part_of_the_course(outcome) -> None:
    lab = Recorded().come("n1")
    pod = lab.pod("web")
    lab.cycle()
    lab.tell(BindFailed(lab.now, pod.metadata.uid, outcome, "connection lost"))
    seen = lab.decision("web")
    assert [one.step for one in seen.course] == ["claimed", outcome]
    assert "connection lost" in seen.course[1].text
    assert seen.verdict is Verdict.BINDING
    lab.tell(BindSucceeded(lab.now, pod.metadata.uid))
    assert lab.decision("web").verdict is Verdict.BOUND


def test_a_wait_for_a_request_that_may_be_late_is_part_of_the_course() -> None:
    lab = Recorded().come("n1")
    pod = lab.pod("web")
    lab.cycle()
    lab.tell(BindFailed(lab.now, pod.metadata.uid, "conflict", "changed"))
    lab.tell(PodLookedUp(lab.now, pod.metadata.uid, pod))
    seen = lab.decision("web")
    assert [one.step for one in seen.course] == ["claimed", "conflict", "waits"]
    assert "the claim stays: binding to node n1" in seen.course[2].text
    assert seen.verdict is Verdict.BINDING


def test_a_failed_binding_is_part_of_the_course_and_the_next_attempt_continues_it() -> None:
    lab = Recorded().come("n1")
    pod = lab.pod("web")
    lab.cycle()
    lab.tell(BindFailed(lab.now, pod.metadata.uid, "rejected", "not allowed"))
    lab.now += 20
    lab.cycle()
    lab.tell(BindSucceeded(lab.now, pod.metadata.uid))
    seen = lab.decision("web")
    assert [one.step for one in seen.course] == ["claimed", "released", "claimed", "bound"]
    assert "not allowed" in seen.course[1].text
    assert seen.verdict is Verdict.BOUND


def test_a_deleted_pod_stays_in_the_ring_as_ended() -> None:
    lab = Recorded().come("n1")
    pod = lab.pod("web")
    lab.cycle()
    lab.delete(pod)
    assert lab.decision("web").verdict is Verdict.ENDED
    assert lab.decision("web").node == "n1"


def test_pods_of_one_name_are_listed_latest_first() -> None:
    lab = Recorded().come("n1", "core:8", 8)
    first = lab.pod("web", "1")
    lab.cycle()
    lab.delete(first)
    second = replace(first, metadata=replace(first.metadata, uid="other"))
    lab.seen(second)
    lab.cycle()
    assert [one.uid for one in lab.ring.of("ns", "web")] == ["other", first.metadata.uid]


def test_the_ring_stays_within_its_bytes_and_its_estimate_is_near_the_truth() -> None:
    lab = Recorded(budget=200_000).come("n1", "core:4", 4)
    for number in range(40):
        lab.pod(f"warm-{number}", str(9 + number))
        lab.cycle(0.01)
    tracemalloc.start()
    before, counted = tracemalloc.get_traced_memory()[0], lab.ring.bytes
    for number in range(40, 100):
        lab.pod(f"pod-{number}", str(9 + number))
        lab.cycle(0.01)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 60 * 20_000  # the core's own pods included
    assert lab.ring.bytes > counted
    for number in range(100, 400):
        lab.pod(f"pod-{number}", str(9 + number))
        lab.cycle(0.01)
    assert lab.ring.bytes <= 200_000
    assert not lab.ring.of("ns", "warm-0")
    assert lab.ring.of("ns", "pod-399")


def test_a_full_record_takes_hardly_more_memory_than_it_counts() -> None:
    lab = Recorded(budget=100_000)
    for name in ("n1", "n2", "n3"):
        lab.come(name, "core:16", 16)
    placed: deque[Pod] = deque()
    tracemalloc.start()
    for number in range(130):
        placed.append(lab.pod(f"pod-{number}", "1"))
        lab.cycle(0.01)
        if len(placed) > 24:
            lab.delete(placed.popleft())
    counted, records = lab.ring.bytes, len(lab.ring)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    lab.ring._histories.clear()
    lab.ring._with_state.clear()
    gc.collect()
    taken = before - tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert records < 130
    assert 0.5 * counted < taken < 1.3 * counted


def test_a_record_of_an_old_decision_says_that_the_allocators_terms_are_gone() -> None:
    lab = Recorded().come("n1", "core:600", 600, pods=1000, memory="512Gi")
    for number in range(300):
        lab.pod(f"pod-{number}", "1")
        lab.cycle(0.01)
    old, new = lab.decision("pod-0"), lab.decision("pod-299")
    assert old.objective is None
    assert "latest decisions" in old.notes[0]
    assert new.objective is not None
    assert not new.notes


def test_recording_takes_a_small_share_of_the_time_and_says_what_it_left_out() -> None:
    ticks = count(step=0.15)  # every look at the clock costs 150 ms: recording takes all of the time
    lab = Recorded(timer=lambda: next(ticks)).come("n1", "core:60", 60).come("n2", "core:60", 60)
    for number in range(4):
        lab.pod(f"pod-{number}", "1")
        lab.cycle()
    first, last = lab.decision("pod-0"), lab.decision("pod-3")
    assert first.terms
    assert not last.terms
    assert "not recorded" in last.notes[0]
    assert last.node
    assert last.containers[0].proposed
