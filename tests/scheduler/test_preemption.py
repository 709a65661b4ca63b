"""Preemption: victims, nominated nodes, and what becomes of both."""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.meta import Condition
from corelane.kube.objects import PodDisruptionBudget
from corelane.kube.pod import Pod
from corelane.node.config import PoolOptions
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import (
    EvictFailed,
    ObjectChanged,
    PodChanged,
)
from corelane.scheduler.framework.plugin import Nomination, NotNominated
from corelane.scheduler.instructions import Instruction, RecordPodEvent
from corelane.scheduler.plugins import preemption
from corelane.scheduler.plugins.preemption import Candidate, DefaultPreemption
from support import objects
from support.core_lab import CoreLab, conditions, events, evicted, placed
from support.kube_scheduler import replay
from support.pods import container, guaranteed, pod

DISRUPTED = Condition("DisruptionTarget", "True", "PreemptionByScheduler")


class Cluster(CoreLab):
    """Nodes, their agents, and pods of priorities."""

    def pending(self, pod: Pod, priority: int = 0, policy: str = "PreemptLowerPriority") -> Pod:
        return self.add(pod, priority=priority, preemption_policy=policy)

    def running(self, pod: Pod, node: str = "n1", priority: int = 0) -> Pod:
        """A pod that runs, by its agent's choice of CPUs."""
        status = replace(pod.status, start_time="2026-01-01T00:00:00Z", phase="Running")
        pod = replace(pod, spec=replace(pod.spec, node_name=node, priority=priority), status=status)
        if node in self.agents:
            self.admit(pod)
        self.seen(pod)
        return pod

    def terminating(self, pod: Pod) -> None:
        meta = replace(pod.metadata, deletion_timestamp="2026-01-01T01:00:00Z")
        self.seen(replace(pod, metadata=meta, status=replace(pod.status, conditions=(DISRUPTED,))))

    def gone(self, pod: Pod) -> None:
        """The pod has ended, and its agent has released its CPUs."""
        self.delete(pod)
        self.release(pod)


def failures(done: Iterable[Instruction]) -> list[RecordPodEvent]:
    return [event for event in events(done) if event.reason == "FailedScheduling"]


NEAR = {"scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy":"SingleNUMANode"}'}


def budget(name: str, allowed: int, **labels: str) -> PodDisruptionBudget:
    wire = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.json.decode(msgspec.json.encode(wire), type=PodDisruptionBudget)


def test_victims_free_one_numa_node_and_not_the_same_total_on_two() -> None:
    cluster = Cluster()
    cluster.has(
        objects.node("n1", 10), spec="socket:2 core:5", policy="pools", pools=PoolOptions("koordinator")
    )
    for name in "abcd":
        cluster.running(guaranteed(name, "2", annotations=NEAR))
    held = cluster.agents["n1"].entries
    zones = {uid: "0" if entry.cpus.mask & 31 else "1" for (uid, _), entry in held.items()}
    cluster.pending(guaranteed("big", "4", annotations=NEAR), priority=10)
    done = cluster.run()
    victims = evicted(done)
    assert len(victims) == 2
    assert len({zones[f"uid-{name}"] for name in victims}) == 1, "both are of one NUMA node"
    for event in failures(done):
        assert event.nearest is None, "the pod is not told to request less"
        assert event.help.startswith("Node n1 is nominated: waiting for ")


def test_the_whole_way_from_eviction_to_the_place_on_the_nominated_node() -> None:
    cluster = Cluster("n1", spec="core:9")
    low = cluster.running(guaranteed("low", "6"))
    cluster.pending(guaranteed("high", "6"), priority=100)
    done = cluster.run()
    assert evicted(done) == ["low"]
    (condition,) = conditions(done)
    assert condition.nominated == "n1"
    assert condition.message == "0/1 nodes are available: 1 Insufficient cpu."
    cluster.pending(guaranteed("thief", "4"), priority=50)
    cluster.pending(guaranteed("small", "2"), priority=50)
    cluster.terminating(low)
    assert evicted(cluster.run(20)) == [], "victims that terminate are waited for"
    cluster.gone(low)
    assert placed(cluster.run(20)) == {"high": "n1", "small": "n1"}
    assert len(cluster.core.cluster.nominations) == 0


def test_a_pod_with_a_nominated_node_is_not_told_to_request_less() -> None:
    cluster = Cluster("n1", spec="core:9")
    low = cluster.running(guaranteed("low", "6"))
    high = cluster.pending(guaranteed("high", "6"), priority=100)
    (event,) = failures(cluster.run())
    assert event.nearest is None
    assert event.help == f"Node n1 is nominated: waiting for {low.title} to terminate."
    cluster.terminating(low)
    later = failures(cluster.run(60))
    cluster.seen(replace(high, metadata=replace(high.metadata, labels={"a": "b"})))
    later += failures(cluster.run(400))
    assert later, "an attempt while the victim terminates has an event"
    assert all(one.nearest is None and "Nearest" not in one.help for one in later)


def test_a_pod_that_preempts_none_is_told_what_would_help() -> None:
    cluster = Cluster("n1", spec="core:9")
    cluster.running(guaranteed("low", "6"))
    cluster.pending(guaranteed("high", "6"), priority=100, policy="Never")
    (event,) = failures(cluster.run())
    assert event.nearest is not None or event.help.startswith("Nearest is n1 (6 CPUs requested, 2 CPUs free")


def test_no_more_pods_are_evicted_until_the_agent_has_released_the_victims_cpus() -> None:
    cluster = Cluster("n1", spec="core:9")
    low, other = (cluster.running(guaranteed(name, "4"), priority=p) for name, p in (("a", 0), ("b", 5)))
    cluster.pending(guaranteed("high", "4"), priority=100)
    assert evicted(cluster.run()) == ["a"]
    cluster.delete(low)
    assert evicted(cluster.run(20)) == []
    cluster.release(low)
    done = cluster.run(20)
    assert (evicted(done), placed(done)) == ([], {"high": "n1"})
    assert other.metadata.uid in cluster.pods


def test_a_pod_of_higher_priority_takes_the_place_and_the_other_looks_again() -> None:
    cluster = Cluster("n1", spec="core:9")
    low = cluster.running(guaranteed("low", "8"))
    cluster.pending(guaranteed("middle", "8"), priority=10)
    assert evicted(cluster.run()) == ["low"]
    cluster.terminating(low)
    cluster.pending(guaranteed("high", "8"), priority=20)
    done = cluster.run(20)
    assert [(one.pod.metadata.name, one.nominated) for one in conditions(done)][-1] != ("middle")
    cluster.gone(low)
    assert placed(cluster.run(20)) == {"high": "n1"}
    assert cluster.core.cluster.nominations.of("uid-middle") == ""


@pytest.mark.parametrize(
    ("priority", "policy", "message"),
    [
        (
            0,
            "PreemptLowerPriority",
            "0/1 nodes are available: 1 No preemption victims found for incoming pod.",
        ),
        (9, "Never", "not eligible due to preemptionPolicy=Never."),
    ],
)
def test_why_nothing_is_evicted_is_said_as_kube_scheduler_says_it(
    priority: int, policy: str, message: str
) -> None:
    cluster = Cluster("n1", spec="core:9")
    cluster.running(guaranteed("low", "8"))
    cluster.pending(guaranteed("new", "8"), priority, policy)
    done = cluster.run()
    assert evicted(done) == []
    expected = f"0/1 nodes are available: 1 Insufficient cpu. preemption: {message}"
    assert [one.message for one in conditions(done)] == [expected]
    assert [event.message for event in events(done)] == [expected]


def test_a_pod_that_would_not_fit_on_the_empty_node_evicts_none() -> None:
    cluster = Cluster()
    cluster.has("n1", spec="socket:2 core:4", policy="pools")
    cluster.running(guaranteed("low", "2"))
    cluster.pending(guaranteed("wide", "6", annotations=NEAR), priority=10)
    done = cluster.run()
    assert evicted(done) == []
    assert (
        "preemption: 0/1 nodes are available: 1 node(s) Insufficient NUMA Node" in conditions(done)[0].message
    )


def test_victims_whose_budget_allows_no_disruption_come_last() -> None:
    cluster = Cluster()
    cluster.has("n1", "n2", spec="core:9")
    cluster.running(guaranteed("guarded", "8", labels={"app": "db"}))
    cluster.running(guaranteed("free", "8", labels={"app": "web"}), "n2", priority=5)
    cluster.tell(ObjectChanged(0, None, budget("db", 0, app="db")))
    cluster.pending(guaranteed("high", "8"), priority=10)
    assert evicted(cluster.run()) == ["free"]
    cluster.pending(guaranteed("higher", "8"), priority=20)
    assert evicted(cluster.run()) == ["guarded"], "violated where nothing else helps"


def test_a_failed_eviction_is_tried_again() -> None:
    cluster = Cluster("n1", spec="core:9")
    low = cluster.running(guaranteed("low", "8"))
    high = cluster.pending(guaranteed("high", "8"), priority=10)
    assert evicted(cluster.run()) == ["low"]
    assert evicted(cluster.run(30)) == []
    cluster.tell(EvictFailed(cluster.now, high.metadata.uid, low.metadata.uid, "forbidden"))
    assert evicted(cluster.run()) == []
    assert evicted(cluster.run(1)) == ["low"]


def test_a_nomination_ends_with_its_pod_and_wakes_those_that_it_kept_out() -> None:
    cluster = Cluster("n1", spec="core:9")
    low = cluster.running(guaranteed("low", "8"))
    high = cluster.pending(guaranteed("high", "8"), priority=10)
    cluster.run()
    cluster.gone(low)
    cluster.pending(guaranteed("small", "8"))
    cluster.delete(high)
    assert placed(cluster.run(20)) == {"small": "n1"}


def test_a_nomination_of_before_a_restart_is_taken_over_from_the_pods_status() -> None:
    cluster = Cluster("n1", spec="core:9")
    high = guaranteed("high", "6")
    high = replace(high, status=replace(high.status, nominated_node_name="n1"))
    low = cluster.running(guaranteed("low", "6"))
    cluster.terminating(low)
    cluster.pending(high, priority=10)
    assert evicted(cluster.run()) == []
    cluster.pending(guaranteed("thief", "4"))
    cluster.gone(low)
    assert placed(cluster.run(20)).get("high") == "n1"


def test_the_nominated_node_is_cleared_once_it_is_gone() -> None:
    cluster = Cluster("n1", spec="core:9")
    cluster.running(guaranteed("low", "8"))
    cluster.pending(guaranteed("high", "8"), priority=10)
    cluster.run()
    cluster.lose("n1")
    cluster.has("n2", spec="core:9")
    assert placed(cluster.run(20)) == {"high": "n2"}


# Recorded answers of kube-scheduler.


def replayed(case: Mapping[str, Any]) -> Nomination | NotNominated:
    """What DefaultPreemption says, with the victims' names.

    Nominated pods are left out: the recording program knew their names only, so that they took no place.
    """
    core = replay.core({**case, "nominated": []})
    for one in case.get("budgets", []):
        made = msgspec.json.decode(msgspec.json.encode(one), type=PodDisruptionBudget)
        core.handle(ObjectChanged(0.0, None, made))
    new = replay._pod(case["pod"], core.name)
    core.handle(PodChanged(0.0, None, new))
    attempt = finalists.attempt(core.profile, core.cluster, PodInfo.of(new))
    plugin = DefaultPreemption()
    result = plugin.post_filter(attempt.cycle, attempt.rejections)
    while isinstance(result, NotNominated) and result.unfinished:
        result = plugin.post_filter(attempt.cycle, attempt.rejections)
    if isinstance(result, NotNominated):
        return result
    found = [core.cluster.pod(uid) for uid in result.victims]
    names = (f"{one.pod.metadata.namespace}/{one.pod.metadata.name}" for one in found if one)
    return Nomination(result.node, tuple(names))


NOT_STARTED = {"preemption[62]"}
"""Victims of one priority that have not started: kube-scheduler compares two readings of its clock."""
TWO_ON_ONE_PORT = {"preemption[83]"}
"""Two placed pods with one host port, which is impossible: removing one frees it in kube-scheduler."""
CASES = list(replay.recorded(family="preemption"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_victims_and_node_are_those_of_kube_scheduler(case: dict[str, Any]) -> None:
    if case["name"] in TWO_ON_ONE_PORT:
        pytest.xfail("two placed pods have one host port")
    want = case["want"].get("preemption")
    result = replayed(case)
    if isinstance(result, NotNominated):
        assert not want["candidates"] or not want["eligible"]
        assert want["eligible"] or result.message == f"preemption: {want['why']}"
        return
    assert result.node in want["winners"]
    expected = want["candidates"][result.node]["pods"]
    if case["name"] in NOT_STARTED:
        assert len(result.victims) == len(expected)
    else:
        assert sorted(result.victims) == sorted(expected)


# Against exhaustive search.


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["core:6", "socket:2 core:3", "core:3 smt:2"]),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=5),
    st.integers(1, 6),
    st.sampled_from(["static", "pools"]),
)
def test_victims_make_the_pod_fit_and_none_of_them_could_stay(
    spec: str, placed: list[tuple[int, int]], cpus: int, policy: str
) -> None:
    """And of all sets of victims, the best by upstream's order is found, or a superset of a smaller one."""
    cluster = Cluster()
    cluster.has(objects.node("n1", 6), spec=spec, policy=policy)
    agent = cluster.agents["n1"]
    running = []
    for number, (size, priority) in enumerate(placed):
        one = guaranteed(f"p{number}", str(size))
        agent, decision = nodes.admit(agent, translate.request(one))
        if decision.admitted:
            spec_ = replace(one.spec, node_name="n1", priority=priority)
            running.append(replace(one, spec=spec_))
    cluster.publish("n1", agent)
    for one in running:
        cluster.seen(one)
    new = guaranteed("new", str(cpus))
    request = translate.request(new)
    if nodes.admit(agent, request)[1].admitted:
        return
    cluster.pending(new, priority=10)
    chosen = set(evicted(cluster.run()))
    fitting = [subset for subset in _subsets(running) if _fits(agent, subset, request)]
    if not fitting:
        assert chosen == set()
        return
    by_name = {one.metadata.name: one for one in running}
    assert chosen
    assert _fits(agent, [by_name[name] for name in chosen], request)
    for name in chosen:
        less = [by_name[other] for other in chosen - {name}]
        assert not _fits(agent, less, request), f"{name} could have stayed"
    best = min(fitting, key=_cost)
    ours = _cost([by_name[name] for name in chosen])
    assert ours[0] == _cost(best)[0], "the highest priority of a victim is the least possible"


def _subsets(pods: list[Pod]) -> Iterable[list[Pod]]:
    for size in range(1, len(pods) + 1):
        yield from (list(one) for one in combinations(pods, size))


def _fits(agent: NodeState, gone: Iterable[Pod], request: Any) -> bool:
    for one in gone:
        agent = nodes.release(agent, one.metadata.uid)
    return nodes.admit(agent, request)[1].admitted


def _cost(gone: list[Pod]) -> tuple[object, ...]:
    infos = tuple(sorted((PodInfo.of(one) for one in gone), key=lambda info: -preemption.priority(info)))
    return Candidate("n1", infos, 0).order()[1:]


def test_a_shared_pod_is_preempted_by_totals_where_nothing_is_published() -> None:
    cluster = Cluster()
    cluster.has(objects.node("n1", 4))
    cluster.running(pod("a", container("x", "cpu=3", "")))
    cluster.running(pod("b", container("x", "cpu=1", "")), priority=5)
    cluster.pending(pod("new", container("x", "cpu=2", "")), priority=10)
    assert evicted(cluster.run()) == ["a"]
