"""What is told of a request under policy `pools` is what `admit` decides, with all terms of the objective."""

import json
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node
from corelane.app import allocate
from corelane.app.allocate import NodeQuery, PoolOverrides
from corelane.app.kubelet_settings import KubeletOptions
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.explain.what_if import compare, explain
from corelane.node.ledger import NodeState
from corelane.placement.optimal import infeasible
from corelane.settings import SettingsError
from corelane.view import allocate as view
from corelane.workload import (
    BindPolicy,
    Exclusivity,
    NUMAPolicy,
    NUMAStrategy,
    PlacementSpec,
    PodQOS,
    TopologyLevel,
)
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass

MACHINE = parse_spec("socket:2 l3:2 core:2 smt:2")
WISHES = st.builds(
    PlacementSpec,
    qos=st.sampled_from([None, PodQOS.LSE, PodQOS.LSR, PodQOS.LS, PodQOS.BE]),
    bind=st.sampled_from([None, BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS]),
    exclusive=st.sampled_from([None, Exclusivity(TopologyLevel.CORE, True), Exclusivity(TopologyLevel.L3)]),
    strategy=st.sampled_from([None, *NUMAStrategy]),
    numa=st.sampled_from([None, NUMAPolicy.SINGLE_NUMA_NODE]),
)


def pod(name: str, *cpus: int, placement_spec: PlacementSpec | None = None) -> PodRequest:
    containers = tuple(
        ContainerRequest(f"c{i}", cpu_request=1000 * n, cpu_limit=1000 * n) for i, n in enumerate(cpus)
    )
    return PodRequest(
        name,
        "default",
        name,
        QOSClass.GUARANTEED,
        containers,
        placement_spec=placement_spec or PlacementSpec(),
    )


def pools(allocator: str = "optimal", machine=MACHINE) -> NodeState:
    return node.new(machine, NodeConfig(policy="pools", pools=PoolOptions(allocator=allocator)))


@given(
    st.lists(st.tuples(st.integers(1, 6), WISHES), max_size=4),
    st.lists(st.integers(0, 5), min_size=1, max_size=2),
    WISHES,
    st.sampled_from(["optimal", "koordinator"]),
)
@settings(max_examples=40, deadline=None)
def test_what_is_told_is_what_is_decided(before, cpus, placement_spec, allocator):
    state = pools(allocator)
    for i, (n, said) in enumerate(before):
        state, _ = node.admit(state, pod(f"p{i}", n, placement_spec=said))
    request = pod("new", *cpus, placement_spec=placement_spec)
    _, found = explain(state, request)
    _, decision = node.admit(state, request)
    assert found.decision.admitted == decision.admitted
    assert {line.name: line.cpus for line in found.containers if line.cpus} == dict(decision.assignments)
    assert all(line.steps for line in found.containers)
    told = found.objective
    given_cpus = _all(decision)
    assert (told is not None and bool(told.terms)) == bool(given_cpus)
    if told and told.terms:
        assert told.cpus == given_cpus
        assert told.runner_up != told.cpus
        assert [term.number for term in told.terms] == sorted(term.number for term in told.terms)
    json.dumps(view.plain(found))
    assert view.draw(found)


def _all(decision):
    mask = 0
    for cpus in decision.assignments.values():
        mask |= cpus.mask
    return CPUSet.from_mask(mask)


def test_terms_stand_beside_those_of_the_runner_up():
    found = explain(pools(), pod("a", 4))[1].objective
    terms = {term.name: term for term in found.terms}
    assert set(terms) == {one.name for one in infeasible.TERMS} - {"uneven", "allocated", "balance"}
    assert terms["numa-nodes"].value == terms["numa-nodes"].runner_up == 1
    assert terms["room"].larger
    assert found.proven
    assert any("decides" in note or "lower ids win" in note for note in found.notes)


def test_the_smallest_change_names_the_pods_in_the_way():
    state = pools()
    single = PlacementSpec(qos=PodQOS.LSR, numa=NUMAPolicy.SINGLE_NUMA_NODE, numa_exclusive=False)
    spread = replace(single, strategy=NUMAStrategy.LEAST_ALLOCATED)
    for name in ("left", "right"):
        state, decision = node.admit(state, pod(name, 4, placement_spec=spread))
        assert decision.admitted
    _, found = explain(state, pod("large", 6, placement_spec=single))
    assert not found.decision.admitted
    changes = {change.kind: change for change in found.objective.remedies}
    assert changes["release"].pods in (("default/left",), ("default/right",))
    assert changes["fewer"].text == "request 4 CPUs or fewer"
    assert "SingleNUMANode" in changes["soften"].text


@pytest.mark.parametrize(
    ("qos", "pool"),
    [(PodQOS.LS, ""), (PodQOS.BE, "BE pool 0-15"), (PodQOS.SYSTEM, "system pool 0-15")],
)
def test_pods_without_cpus_of_their_own_say_where_they_run(qos, pool):
    (line,) = explain(pools(), pod("a", 2, placement_spec=PlacementSpec(qos=qos)))[1].containers
    assert not line.cpus
    assert line.pool == (pool or "shared pool 0-15")


def test_a_pod_in_one_numa_nodes_pool_says_so():
    placement_spec = PlacementSpec(qos=PodQOS.LS, bind=BindPolicy.CONSTRAINED_BURST)
    (line,) = explain(pools(), pod("a", 2, placement_spec=placement_spec))[1].containers
    assert line.pool == "shared pool of NUMA node 0 0-3,8-11"


def test_all_allocators_are_judged_by_one_objective():
    state = pools()
    configs = {"kubelet": NodeConfig()} | {
        name: replace(state.config, pools=replace(state.config.pools, allocator=name))
        for name in ("koordinator", "optimal")
    }
    states = {name: node.rebase(state, MACHINE, config)[0] for name, config in configs.items()}
    requests = (pod("a", 3), pod("b", 3), pod("c", 4))
    rows = list(compare(states, requests))
    assert [row.pod for row in rows] == [request.key for request in requests]
    for row in rows:
        assert [answer.allocator for answer in row.answers] == ["kubelet", "koordinator", "optimal"]
        assert len({tuple(term.name for term in answer.terms) for answer in row.answers}) == 1
    for name, config in (("kubelet", NodeConfig()), ("optimal", state.config)):
        alone = node.new(MACHINE, config)
        for row, request in zip(rows, requests, strict=True):
            alone, decision = node.admit(alone, request)
            (answer,) = (one for one in row.answers if one.allocator == name)
            assert answer.decision.assignments == decision.assignments


def test_gocranes_node_is_told_to_be_a_machine(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text(
        "apiVersion: topology.crane.io/v1alpha1\nkind: NodeResourceTopology\nattributes: {a: b}\n"
    )
    where = NodeQuery(kubelet=KubeletOptions(policy="pools"), pools=PoolOverrides(node=path))
    with pytest.raises(SettingsError, match=f"{path}: a NodeResourceTopology of gocrane counts"):
        allocate.read(where)


def test_what_a_node_publishes_is_the_state_that_is_asked(tmp_path):
    from corelane.kube import translate

    state, _ = node.admit(pools(), pod("there", 4, placement_spec=PlacementSpec(qos=PodQOS.LSE)))
    path = tmp_path / "node.json"
    path.write_text(json.dumps(translate.topology(MACHINE, "n", state)))
    where = NodeQuery(kubelet=KubeletOptions(policy="pools"), pools=PoolOverrides(node=path))
    read, notes = allocate.read(where)
    assert read.machine.usable == MACHINE.usable
    assert read.exclusive == state.exclusive
    assert read.config.pools == state.config.pools
    assert notes == ()


@pytest.mark.parametrize("policy", ["static", "pools"])
def test_devices_that_nobody_said_the_node_has_are_noted(policy):
    base = pod("p", 2)
    asking = replace(base, containers=(replace(base.containers[0], devices={"example.com/nic": 1}),))
    (note,) = allocate._notes(node.new(MACHINE, NodeConfig(policy=policy)), asking)
    assert "the node has no device example.com/nic" in note
    config = NodeConfig(policy=policy, devices={"example.com/nic": {"vf0": 1}})
    assert not list(allocate._notes(node.new(MACHINE, config), asking))


REQUIRED = st.sampled_from(
    [
        {},
        {"numa": NUMAPolicy.SINGLE_NUMA_NODE},
        {"bind": BindPolicy.FULL_PCPUS, "bind_required": True},
        {"exclusive": Exclusivity(TopologyLevel.CORE, required=True)},
        {"exclusive": Exclusivity(TopologyLevel.L3, required=True)},
    ]
)
LSR = st.tuples(st.integers(1, 4), REQUIRED)


def lsr(name: str, cpus: int, placement_spec: dict[str, object]) -> PodRequest:
    return pod(name, cpus, placement_spec=PlacementSpec(qos=PodQOS.LSR, **placement_spec))  # type: ignore[arg-type]


@settings(max_examples=60)
@given(st.lists(LSR, max_size=4), st.integers(2, 9), REQUIRED)
def test_the_smallest_change_that_would_help_is_that_of_all_changes(before, cpus, placement_spec):
    """Fewer CPUs are tried one by one, and every set of pods is sent away."""
    state = pools(machine=parse_spec("socket:2 core:3 smt:2"))
    for i, one in enumerate(before):
        state, _ = node.admit(state, lsr(f"b{i}", *one))
    request = lsr("new", cpus, placement_spec)
    objective = None if node.admit(state, request)[1].admitted else explain(state, request)[1].objective
    if objective is None:
        return
    told = {change.kind: change for change in objective.remedies}
    fits = [n for n in range(1, cpus) if node.admit(state, lsr("new", n, placement_spec))[1].admitted]
    most = [int(told["fewer"].text.split()[1])] if "fewer" in told else []
    assert most == fits[-1:]
    sets = [set(some) for n in range(1, 5) for some in combinations(state.pods, n)]
    helping = [some for some in sets if node.admit(without(state, some), request)[1].admitted]
    assert ("release" in told) is bool(helping)
    if helping:
        named = {name.removeprefix("default/") for name in told["release"].pods}
        assert named in helping
        assert len(named) == min(map(len, helping)) or len(named) > 2


def without(state: NodeState, uids: set[str]) -> NodeState:
    for uid in uids:
        state = node.release(state, uid)
    return state
