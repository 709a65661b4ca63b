"""The allocator's own terms as a score: lexicographic, bounded by the columns, and the best node wins."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube.pod import Pod
from corelane.node.config import PoolOptions
from corelane.node.explain import pod_explanation
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cycle import finalists
from corelane.scheduler.cycle.attempts import Attempt
from corelane.scheduler.framework.plugin import BEST
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.plugins import cpu_scores as quality
from corelane.scheduler.plugins import default
from corelane.scheduler.plugins.node_resources import CPUPlacement
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass
from support import objects
from support.pods import guaranteed, pod

SPECS = (
    "socket:2 numa:2 core:4 smt:2",
    "socket:1 numa:2 core:3",
    "socket:2 l3:2 core:2 smt:2",
    "l3:4 core:2 smt:2",
)
PLUGIN = quality.PlacementQuality()
ALONE = Profile("alone", (CPUPlacement(), PLUGIN))
SMALL = st.integers(0, 12)
POLICIES = st.sampled_from(["optimal", "koordinator", "static"])


def ledger(spec: str, taken: str = "", policy: str = "optimal") -> NodeState:
    """A node with a pod on just these CPUs; CPU 0 is reserved."""
    pools = PoolOptions(allocator="koordinator" if policy == "koordinator" else "optimal")
    kind = "static" if policy == "static" else "pools"
    state = objects.state(spec, reserved=CPUSet([0]), policy=kind, pools=pools)
    held = CPUSet.parse(taken) - CPUSet([0])
    if not held:
        return state
    milli = 1000 * len(held)
    one = ContainerRequest("a", cpu_request=milli, cpu_limit=milli, memory_request=1, memory_limit=1)
    request = PodRequest("u0", "ns", "other", QOSClass.GUARANTEED, (one,), {"a": held})
    return nodes.admit(state, request)[0]


def cluster(*states: NodeState) -> NodeCache:
    cache = NodeCache()
    for number, state in enumerate(states):
        name = f"n{number}"
        state = replace(state, machine=replace(state.machine, name=name))
        cache.put_node(name, objects.node(name, len(state.machine.cpus)))
        cache.put_topology(None, objects.topology(name, state))
    return cache


def placed(cache: NodeCache, asked: Pod, profile: Profile = ALONE) -> Attempt:
    return finalists.attempt(profile, cache, PodInfo.of(asked))


def qualities(cache: NodeCache, asked: Pod) -> dict[str, float]:
    """The score of every node that admits the pod, node by node."""
    cycle, _, _ = finalists.begin(ALONE, cache, PodInfo.of(asked))
    found = {}
    for node in filter(None, cache.by_row):
        if CPUPlacement().filter(cycle, node) is None:
            found[node.name] = PLUGIN.score(cycle, node)
    return found


@given(st.tuples(*[SMALL] * 7), st.tuples(*[SMALL] * 7))
def test_the_first_term_that_differs_decides(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    def rated(values: tuple[int, ...]) -> float:
        terms = dict(zip(quality.TERMS, values, strict=True))
        terms["l3-domains"] += 1
        return quality.rate(terms, values[0])

    def key(values: tuple[int, ...]) -> tuple[int, ...]:
        return (*values[:-1], -values[-1])

    assert 0 <= rated(one) <= BEST
    assert (key(one) < key(other)) == (rated(one) > rated(other))


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(SPECS),
    st.lists(st.tuples(st.sets(st.integers(1, 15)), POLICIES), min_size=1, max_size=5),
    st.integers(1, 8),
)
def test_the_best_answer_wins_and_columns_are_upper_bounds(
    spec: str, drawn: list[tuple[set[int], str]], n: int
) -> None:
    size = len(objects.state(spec).machine.cpus)
    states = [
        ledger(spec, str(CPUSet(one for one in taken if one < size)), policy) for taken, policy in drawn
    ]
    cache, asked = cluster(*states), guaranteed("p", str(n))
    found = qualities(cache, asked)
    done = placed(cache, asked)
    assert (done.node is None) == (not found)
    if done.node is not None:
        assert found[done.node.name] == pytest.approx(max(found.values()))
    rows = np.array([info.row for info in filter(None, cache.by_row) if info.name in found], dtype=np.intp)
    bounds = PLUGIN.scores(done.cycle, cache.columns, rows)
    exact = [found[cache.columns.names[row]] for row in rows]
    assert np.all(bounds >= np.array(exact) - 1e-9)


@pytest.mark.parametrize(
    ("worse", "better", "n"),
    [
        ("1,3,5,7,9,11,13,15", "1-5,9-13", 4),  # two cores in two L3 domains, or in one
        ("1-7", "1-4,9-12", 2),  # no whole core, or several
        ("1-6,9-14", "1-4,9-12", 2),  # whole-core capacity left
    ],
)
@pytest.mark.parametrize("policy", ["optimal", "koordinator", "static"])
def test_of_two_nodes_equal_but_for_occupancy_the_better_answer_wins(
    worse: str, better: str, n: int, policy: str
) -> None:
    states = ledger("l3:4 core:2 smt:2", worse, policy), ledger("l3:4 core:2 smt:2", better, policy)
    for order in (states, states[::-1]):
        done = placed(cluster(*order), guaranteed("p", str(n)))
        assert done.node is not None
        assert done.node.name == f"n{order.index(states[1])}"


def test_the_default_profile_prefers_one_l3_domain_to_a_fuller_node() -> None:
    apart, together = "1,3-5,7,9,11-13,15", "1-3,9-11"
    cache = cluster(*(ledger("l3:4 core:2 smt:2", taken) for taken in (apart, together)))
    profile = default.profile()
    without = replace(profile, name="without", weights={**profile.weights, PLUGIN.name: 0.0})
    chosen = [placed(cache, guaranteed("p", "4"), one).node for one in (profile, without)]
    assert [one and one.name for one in chosen] == ["n1", "n0"]


def test_terms_are_made_once_for_nodes_in_one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    of_answer = quality._quality_of
    monkeypatch.setattr(quality, "_quality_of", lambda *args: made.append(args) or of_answer(*args))
    cache = cluster(*[ledger(SPECS[0])] * 20)
    same = [PodInfo.of(guaranteed(name, "2")) for name in "abc"]
    for one in same:
        assert finalists.attempt(ALONE, cache, one).node
    assert len(qualities(cache, guaranteed("d", "2"))) == 20
    assert len(made) == 1


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_terms_are_those_of_the_allocators_objective(allocator: str) -> None:
    cache = cluster(ledger(SPECS[0], "1-4,9", allocator))
    done = placed(cache, guaranteed("p", "5"))
    assert done.node is not None
    answer = done.cycle.admissions.admitted["n0"]
    state, request = answer.before.state, done.cycle.shape.request
    assert isinstance(state, NodeState)
    assert request is not None
    cpus = CPUSet()
    for some in answer.decision.assignments.values():
        cpus |= some
    expected = {one.name: one.value for one in pod_explanation.term_values(state, request, cpus)}
    terms = PLUGIN.details(done.cycle, done.node)
    assert tuple(terms) == quality.TERMS
    assert terms == {name: expected[name] for name in quality.TERMS}


def test_pods_without_exclusive_cpus_score_the_same_everywhere() -> None:
    cache = cluster(ledger(SPECS[0]), ledger(SPECS[0], "1-9"), ledger(SPECS[0], "1-9", "static"))
    cache.put_node("totals", objects.node("totals", 16))
    found = qualities(cache, pod("p"))
    assert (len(found), set(found.values())) == (4, {BEST})


def test_the_terms_of_each_node_are_compared_by_name_and_weigh_nothing() -> None:
    cache = cluster(ledger(SPECS[3]), ledger(SPECS[3], "1-3,9-11"))
    done = placed(cache, guaranteed("p", "4"))
    rows = done.terms(done.ranked)
    shown = {name: values for name, weight, values in rows if not weight}
    assert tuple(shown) == tuple(f"PlacementQuality.{name}" for name in quality.TERMS)
    assert shown["PlacementQuality.l3-domains"] == (1.0, 1.0)
    assert shown["PlacementQuality.room"][0] > shown["PlacementQuality.room"][1]


def _fragmented(count: int, seed: int) -> list[NodeState]:
    """Nodes in states of their own, on which most placements are worse than the columns promise."""
    rng = random.Random(seed)
    spec = "socket:2 l3:2 core:4 smt:2"
    size = len(objects.state(spec).machine.cpus)
    return [ledger(spec, str(CPUSet(rng.sample(range(1, size), rng.randrange(4, 24))))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_few_admissions_are_spent_on_a_better_node_and_later_attempts_go_on(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(finalists, "MOST_BETTER", 2)
    cache, asked = cluster(*_fragmented(60, seed)), guaranteed("p", "6")
    best, spent = max(qualities(cluster(*_fragmented(60, seed)), asked).values()), []
    for _ in range(20):
        before = cache.states.misses
        done = placed(cache, asked)
        spent.append(cache.states.misses - before)
        assert done.node is not None
        mine = PLUGIN.score(done.cycle, done.node)
        others = [PLUGIN.score(done.cycle, cache.node(name)) for name in done.cycle.admissions.admitted]
        assert mine == pytest.approx(max(others))
    assert max(spent) <= 1 + finalists.MOST_BETTER
    assert sum(spent) > 1 + finalists.MOST_BETTER
    assert mine == pytest.approx(best)
