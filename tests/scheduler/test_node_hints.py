"""Hints about amounts never deny a change that makes a node admit a pod."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node as nodes
from corelane.kube import keys, translate
from corelane.kube.pod import Pod
from corelane.node.config import PoolOptions
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cluster.states import States
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, NodeSummary, summary
from corelane.scheduler.plugins.node_resources import cpus_may_fit
from support import objects
from support.objects import node
from support.pods import container, guaranteed, pod

SPECS = ("core:4 smt:2", "socket:2 core:4", "socket:2 core:2 smt:2")
CONFIGS: tuple[dict[str, object], ...] = (
    {},
    {"policy": "pools"},
    {"policy": "pools", "pools": PoolOptions("koordinator")},
    {"policy": "none"},
)
PODS: tuple[Pod, ...] = (
    *(guaranteed(f"g{cpus}", str(cpus)) for cpus in (1, 2, 3, 4, 6)),
    *(guaranteed(f"l{cpus}", str(cpus), labels={keys.QOS_CLASS: "LSR"}) for cpus in (2, 4)),
    guaranteed(
        "together", "4", annotations={keys.NUMA_TOPOLOGY_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'}
    ),
    pod("burst", container("x", "cpu=1500m", "")),
    pod("two", container("a", "cpu=2 memory=1Gi"), container("b", "cpu=1 memory=1Gi")),
    pod("init", container("a", "cpu=2 memory=1Gi"), init=(container("i", "cpu=4 memory=1Gi"),)),
)
SEEN: Counter[str] = Counter()
STATES = States()


def summarised(state: NodeState) -> NodeSummary:
    base = NodeInfo("n", 0, STATES)
    base.node, base.allocatable = node("n", 8), {"cpu": 8000, "pods": 110}
    found = summary(base.variant({}, state))
    assert found is not None
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(SPECS),
    st.sampled_from(CONFIGS),
    st.lists(st.tuples(st.booleans(), st.integers(0, len(PODS) - 1)), min_size=2, max_size=12),
    st.integers(0, 10),
)
def test_where_the_hint_says_no_the_node_still_refuses(
    spec: str, config: dict[str, object], steps: list[tuple[bool, int]], split: int
) -> None:
    state = before = objects.state(spec, **config)
    for number, (comes, which) in enumerate(steps):
        if number == split:
            before = state
        request = translate.request(PODS[which])
        state = nodes.admit(state, request)[0] if comes else nodes.release(state, request.uid)
    change = ClusterChange(ChangeKind.TOPOLOGY, "n", None, None, summarised(before), summarised(state))
    for one in PODS:
        info = PodInfo.of(one)
        assert info.request is not None
        if info.uid in state.pods or nodes.admit(before, info.request)[1].admitted:
            continue
        helps, fits = cpus_may_fit(info, change), nodes.admit(state, info.request)[1].admitted
        SEEN[f"hint {helps}, fits {fits}"] += 1
        assert helps or not fits, f"{one.metadata.name} fits now"


def test_both_answers_were_seen() -> None:
    if SEEN:
        assert SEEN["hint True, fits True"]
        assert SEEN["hint False, fits False"] > SEEN["hint True, fits False"]


def test_an_equal_state_says_no_and_a_free_numa_node_yes() -> None:
    empty = objects.state("socket:2 core:4")
    full, _ = nodes.admit(empty, translate.request(guaranteed("a", "4")))
    waiting = PodInfo.of(guaranteed("b", "7"))
    same = ClusterChange(ChangeKind.TOPOLOGY, "n", None, None, summarised(full), summarised(full))
    assert not cpus_may_fit(waiting, same)
    more = ClusterChange(ChangeKind.TOPOLOGY, "n", None, None, summarised(full), summarised(empty))
    assert cpus_may_fit(waiting, more)
