"""Memory and devices over random histories: nothing is handed out twice, and all of it comes back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node
from corelane.kube.translate import ledger_annotation
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, TopologyOptions, codec
from corelane.node.config import NodeConfig
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, PodResources, QOSClass

GI = 1 << 30
MACHINES = [
    parse_spec("socket:1 numa:1 core:4 smt:2 mem:12G"),
    parse_spec("socket:2 numa:1 core:4 smt:2 mem:12G"),
    parse_spec("socket:2 numa:2 core:3 smt:1 mem:6G"),
]
GPU = "example.com/gpu"


@st.composite
def nodes(draw):
    machine = draw(st.sampled_from(MACHINES))
    ids = [one.id for one in machine.nodes]
    near = st.sets(st.sampled_from(ids), max_size=2).map(lambda ids: sum(1 << one for one in ids))
    devices = {f"g{i}": mask for i, mask in enumerate(draw(st.lists(near, max_size=4)))}
    config = NodeConfig(
        policy=draw(st.sampled_from(["static", "static", "none"])),
        numa=TopologyOptions(
            draw(st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"])),
            draw(st.sampled_from(["container", "pod"])),
        ),
        memory=MemoryOptions(draw(st.sampled_from(["Static", "Static", "None"])), {0: {"memory": GI}}),
        devices={GPU: devices},
        pod_level=draw(st.booleans()),
        exact=draw(st.booleans()),
    )
    return node.new(machine, config)


@st.composite
def requests(draw, uid):
    kinds = draw(st.lists(st.sampled_from(ContainerKind), min_size=1, max_size=3))
    kinds.sort(key=lambda kind: kind is ContainerKind.APP)
    containers = []
    for i, kind in enumerate(kinds):
        milli, size = draw(st.sampled_from([500, 1000, 2000])), draw(st.integers(1, 14)) * GI
        wanted = draw(st.integers(0, 2))
        more = {"devices": {GPU: wanted}} if wanted else {}
        containers.append(ContainerRequest(f"c{i}", kind, milli, milli, size, size, **more))
    level = None
    if draw(st.integers(0, 3)) == 0:
        level = PodResources(1000 * draw(st.integers(3, 8)), draw(st.integers(12, 30)) * GI)
    qos = draw(st.sampled_from([QOSClass.GUARANTEED, QOSClass.GUARANTEED, QOSClass.BURSTABLE]))
    return PodRequest(uid, "test", uid, qos, tuple(containers), level=level)


def same_but_generation(one, other):
    return (one.entries, one.pods, one.exclusive, one.requested) == (
        other.entries,
        other.pods,
        other.exclusive,
        other.requested,
    )


@settings(max_examples=120, deadline=None)
@given(nodes(), st.data())
def test_nothing_is_handed_out_twice_and_all_of_it_comes_back(idle, data):
    state = idle
    for step in range(data.draw(st.integers(1, 6))):
        what = data.draw(st.sampled_from(["arrive", "arrive", "arrive", "leave", "start"]))
        if what == "arrive":
            after, decision = node.admit(state, data.draw(requests(f"pod-{step}")))
            if not decision.admitted:
                assert same_but_generation(after, state)
            state = after
        elif state.pods:
            uid = data.draw(st.sampled_from(sorted(state.pods)))
            last = state.of_pod(uid)[-1].container
            state = node.release(state, uid) if what == "leave" else node.started(state, uid, last)
        assert [one for one in node.validate(state) if one.code != "pool" or not state.config.exact] == []
    assert codec.decode(codec.encode(state), state.machine, state.config) == state
    assert node.rebase(state, state.machine, state.config) == (state, [])
    for uid in list(state.pods):
        for entry in state.of_pod(uid):
            state = node.release(state, uid, entry.container)
    assert state.memory == idle.memory
    assert not state.entries
    assert not state.exclusive


@settings(max_examples=40, deadline=None)
@given(nodes(), st.data())
def test_the_published_ledger_has_all_that_an_admission_looks_at(state, data):
    for step in range(data.draw(st.integers(1, 3))):
        state, _ = node.admit(state, data.draw(requests(f"pod-{step}")))
    read = ledger_annotation.load(ledger_annotation.dump(state), state.machine)
    assert read.memory == state.memory
    assert (read.pods, read.requested) == (state.pods, state.requested)
    request = data.draw(requests("next"))
    assert node.admit(read, request)[1].message == node.admit(state, request)[1].message
    assert node.admit(read, request)[1].assignments == node.admit(state, request)[1].assignments
