"""Canonical states answer as nodes do, and columns state necessary conditions: held against `node.admit`."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from corelane import node as nodes
from corelane.kube.meta import ObjectMeta
from corelane.kube.pod import Pod, PodSpec
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState
from corelane.node.manager_options import NodeConfigError, StaticOptions, TopologyOptions
from corelane.reasons import Code
from corelane.scheduler.cluster.columns import Columns
from corelane.scheduler.cluster.needs import needs
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.node_kinds import NodeCPUs, NodeKind
from corelane.scheduler.cluster.pods import PodInfo, Shape
from corelane.scheduler.cluster.states import Fact, States
from corelane.workload import BindPolicy, PlacementSpec
from corelane.workload.request import ContainerRequest, PodRequest, QOSClass
from support import pool_asks

MACHINES = tuple(
    parse_spec(spec, name="m")
    for spec in (
        "socket:2 numa:2 core:4 smt:2",
        "socket:1 numa:2 core:3",
        "core:4 smt:2",
        "socket:2 l3:2 core:2 smt:2",
    )
)
DEVICES = {"example.com/gpu": {"g0": 1, "g1": 2, "g2": 0}}
_CODES_OF_CAPACITY = {Code.OUT_OF_CPU, Code.OUT_OF_AMPLIFIED_CPU}


@st.composite
def empty_nodes(draw: st.DrawFn) -> NodeState:
    machine = draw(st.sampled_from(MACHINES))
    config = NodeConfig(
        draw(st.sampled_from(["pools", "pools", "static", "static", "none"])),
        options=StaticOptions(full_pcpus_only=draw(st.booleans())),
        numa=TopologyOptions(
            draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])),
            draw(st.sampled_from(["container", "pod"])),
        ),
        devices=draw(st.sampled_from([{}, {}, DEVICES])) if len(machine.nodes) > 1 else {},
        pools=draw(pool_asks.options),
    )
    try:
        return nodes.new(machine, config)
    except NodeConfigError:
        return nodes.new(machine, NodeConfig(config.policy))


@st.composite
def asked(draw: st.DrawFn) -> PodRequest:
    request = draw(pool_asks.requests())
    if draw(st.booleans()):
        request = replace(request, placement_spec=PlacementSpec())
    count = draw(st.sampled_from([0, 0, 1, 2]))
    first: ContainerRequest = replace(
        request.containers[0], devices={"example.com/gpu": count} if count else {}
    )
    return replace(request, containers=(first, *request.containers[1:]))


class Twin:
    """A node as the agent has it, and as the scheduler does."""

    def __init__(self, state: NodeState, states: States) -> None:
        self.real = state
        self.info = NodeInfo("n", 0, states)
        self.info.cpus = NodeCPUs(NodeKind.LEDGER, states.shared(state))
        self.columns = Columns()
        self.columns.new_row("n")

    def pod(self, request: PodRequest, number: int, shape: Shape, *, bound: bool) -> PodInfo:
        meta = ObjectMeta(name=request.name, uid=f"u{number}", labels=dict(request.labels))
        pod = Pod(metadata=meta, spec=PodSpec(node_name="n" if bound else ""))
        return PodInfo(pod, shape, request.proposal if bound else {}, request.zone if bound else None)

    def comes(self, request: PodRequest, number: int, *, bound: bool) -> None:
        shape = shape_of(request)
        info = self.pod(request, number, shape, bound=bound)
        own = replace(request, uid=info.uid)
        if bound:
            self.real, _ = nodes.admit(self.real, own)
            self.info.put(info)
        else:
            self.is_placed(info, shape, replace(own, proposal={}, zone=None))
        self.agrees()

    def is_placed(self, info: PodInfo, shape: Shape, request: PodRequest) -> None:
        before = self.info.canonical_for(shape)
        after, decision = nodes.admit(self.real, request)
        answer = self.info.answer(shape)
        assert answer.decision.admitted == decision.admitted, (answer.decision.refusal, decision.refusal)
        if not answer.decision.admitted:
            assert answer.decision.refusal is not None
            assert decision.refusal is not None
            assert answer.decision.refusal.code is decision.refusal.code
            return
        self.columns_accept(shape)
        assert dict(answer.decision.assignments) == dict(decision.assignments)
        assert (answer.decision.zone, answer.decision.bind) == (decision.zone, decision.bind)
        assert answer.before is before
        self.real = after
        self.info.claim(structs.replace(info, proposal=decision.assignments, zone=decision.zone), answer)

    def columns_accept(self, shape: Shape) -> None:
        """What `admit` accepts, the columns accept."""
        self.columns.put_state(0, self.info.canonical, self.info.admitted)
        facts = self.columns.facts[0]
        least = needs(self.columns, shape).table[self.columns.config[0]]
        assert np.all(facts >= least), dict(zip(Fact, zip(facts, least, strict=True), strict=True))
        assert not shape.milli or self.columns.room[0] >= shape.milli

    def agrees(self) -> None:
        """The canonical state is that of the real one, however it was reached."""
        state = self.info.cpu_state
        assert state is not None
        assert state.bound == self.real.bound
        assert state.requested == self.real.requested == self.info.admitted
        canonical = self.info.canonical
        assert isinstance(canonical.state, NodeState)
        assert canonical.state.free_exclusive == self.real.free_exclusive
        assert canonical.state.shared_pool == self.real.shared_pool
        assert canonical.facts[Fact.FREE] == len(self.real.free_exclusive)


def shape_of(request: PodRequest) -> Shape:
    """One shape for equal requests, as in the scheduler."""
    key = repr(replace(request, uid="", name="", proposal={}, zone=None))
    if key not in _shapes:
        plain = replace(request, uid="", name="", proposal={}, zone=None)
        _shapes[key] = Shape(100_000 + len(_shapes), plain, {})
    return _shapes[key]


_shapes: dict[str, Shape] = {}


@settings(max_examples=250, deadline=None)
@given(
    empty_nodes(),
    st.lists(st.tuples(asked(), st.sampled_from([False, False, False, True])), min_size=1, max_size=8),
)
def test_a_canonical_state_answers_as_the_node(state: NodeState, pods: list[tuple[PodRequest, bool]]) -> None:
    twin = Twin(state, States())
    for number, (request, bound) in enumerate(pods):
        twin.comes(request, number, bound=bound)


@settings(max_examples=60, deadline=None)
@given(empty_nodes(), st.lists(asked(), min_size=1, max_size=5), st.permutations(range(5)))
def test_states_with_equal_keys_answer_alike(
    state: NodeState, pods: list[PodRequest], order: list[int]
) -> None:
    """Two nodes get the same pods in different order; where they are in one state, answers are shared."""
    states = States()
    one, other = Twin(state, states), Twin(state, states)
    for number in range(len(pods)):
        one.comes(pods[number], number, bound=False)
    for number in (number for number in order if number < len(pods)):
        other.comes(pods[number], 10 + number, bound=False)
    for number, request in enumerate(pods):
        one.comes(request, 20 + number, bound=False)
        other.comes(request, 20 + number, bound=False)


def test_a_thousand_equal_nodes_cost_one_admission() -> None:
    states = States()
    container = ContainerRequest("a", cpu_request=2000, cpu_limit=2000)
    request = PodRequest("", "test", "", QOSClass.GUARANTEED, (container,))
    shape = shape_of(request)
    for number in range(1000):
        state = nodes.new(parse_spec("socket:2 core:8 smt:2", name=f"n{number}"), NodeConfig("pools"))
        info = NodeInfo(f"n{number}", number, states)
        info.cpus = NodeCPUs(NodeKind.LEDGER, states.shared(state))
        assert info.answer(shape).decision.admitted
    assert states.misses == 1


def test_a_ledger_that_did_as_proposed_is_the_claimed_state() -> None:
    states = States()
    state = nodes.new(MACHINES[0], NodeConfig("pools"))
    twin = Twin(state, states)
    container = ContainerRequest("a", cpu_request=4000, cpu_limit=4000, memory_request=1, memory_limit=1)
    request = PodRequest("u", "test", "p", QOSClass.GUARANTEED, (container,))
    shape = shape_of(request)
    answer = twin.info.answer(shape)
    published, _ = nodes.admit(state, replace(request, proposal=answer.decision.assignments))
    assert states.intern(published) is answer.state


@pytest.mark.parametrize("spec", [PlacementSpec(), PlacementSpec(numa_exclusive=True)])
def test_only_pods_with_rules_look_at_others(spec: PlacementSpec) -> None:
    shape = Shape(1, PodRequest("", "", "", QOSClass.GUARANTEED, (), placement_spec=spec), {})
    assert shape.looks_at_others is (spec.numa_exclusive is not None)


def test_a_pod_that_is_held_to_a_numa_node_makes_another_state() -> None:
    """The CPUs taken are the same, but not what exclusive pods may take from that NUMA node."""
    states = States()
    state = nodes.new(MACHINES[0], NodeConfig("pools"))
    confined = PlacementSpec(bind=BindPolicy.CONSTRAINED_BURST)
    container = ContainerRequest("a", cpu_request=3000, cpu_limit=3000, memory_request=1, memory_limit=1)
    request = PodRequest("u", "test", "p", QOSClass.GUARANTEED, (container,), placement_spec=confined)
    after, decision = nodes.admit(state, request)
    assert decision.zone
    assert after.bound == state.bound
    assert states.intern(after) is not states.intern(state)
