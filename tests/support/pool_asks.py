"""Short ways to write nodes under policy `pools`, and pods with wishes."""

from dataclasses import replace

from hypothesis import strategies as st

from corelane import node
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node.config import PoolOptions
from corelane.workload import (
    Band,
    BindPolicy,
    CPUPolicy,
    ExclusivePolicy,
    Exclusivity,
    LabelRequirement,
    NUMAPolicy,
    NUMAStrategy,
    Operator,
    PlacementSpec,
    PodCPUAffinity,
    PodQOS,
    Selector,
    TopologyLevel,
)
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass
from support.node_asks import QUAD_NUMA, container, pod

__all__ = ["admitted", "bound", "floating", "labelled", "options", "pools", "refused", "requests"]


def pools(machine: Machine = QUAD_NUMA, *, reserved: str | None = None, **settings: object) -> node.NodeState:
    """A node where nothing runs yet."""
    named = None if reserved is None else CPUSet.parse(reserved)
    return node.new(machine, node.NodeConfig("pools", named, pools=PoolOptions(**settings)))


def labelled(
    uid: str, qos: PodQOS | None, *milli: int, labels: dict | None = None, **placement_spec: object
) -> PodRequest:
    """A pod with one container for each amount of milliCPU (request and limit), called a, b, …"""
    containers = [container(name, amount) for name, amount in zip("abcdef", milli, strict=False)]
    return replace(
        pod(uid, *containers), placement_spec=PlacementSpec(qos=qos, **placement_spec), labels=labels or {}
    )


def floating(uid: str, request: int, limit: int = 0, **placement_spec: object) -> PodRequest:
    """A Burstable pod of one container."""
    one = ContainerRequest("a", cpu_request=request, cpu_limit=limit)
    return replace(pod(uid, one, qos=QOSClass.BURSTABLE), placement_spec=PlacementSpec(**placement_spec))


def admitted(state: node.NodeState, *requests: PodRequest) -> node.NodeState:
    """The state with all of them in."""
    for request in requests:
        state, decision = node.admit(state, request)
        assert decision.admitted, decision.message
        assert node.validate(state) == []
    return state


def refused(state: node.NodeState, request: PodRequest) -> str:
    """Reason and message of a refusal."""
    after, decision = node.admit(state, request)
    assert after is state
    assert not decision.admitted
    return f"{decision.reason}: {decision.message}"


def bound(state: node.NodeState, uid: str) -> dict[str, str]:
    """Container to CPUs, of those that are bound."""
    return {entry.container: str(entry.cpus) for entry in state.of_pod(uid) if entry.cpus}


MILLI = st.sampled_from([0, 100, 500, 1000, 1000, 1500, 2000, 2000, 3000, 4000, 6000])
LEVELS = st.sampled_from(TopologyLevel)
SELECTORS = st.sampled_from(
    [
        Selector({"app": "x"}),
        Selector({"app": "y"}),
        Selector(),
        Selector(expressions=(LabelRequirement("app", Operator.IN, ("x", "z")),)),
        Selector(expressions=(LabelRequirement("app", Operator.DOES_NOT_EXIST),)),
    ]
)
WISHES = st.builds(
    PlacementSpec,
    qos=st.sampled_from([None, None, *PodQOS]),
    band=st.sampled_from([None, None, None, Band.PROD, Band.MID]),
    bind=st.sampled_from([None, None, *BindPolicy]),
    bind_required=st.booleans(),
    exclusive_policy=st.sampled_from([None, None, *ExclusivePolicy]),
    exclusive=st.none() | st.none() | st.builds(Exclusivity, LEVELS, st.booleans()),
    affinities=st.lists(
        st.builds(PodCPUAffinity, st.booleans(), LEVELS, SELECTORS, st.booleans()), max_size=1
    ).map(tuple),
    strategy=st.sampled_from([None, None, *NUMAStrategy]),
    numa=st.sampled_from([None, None, None, *NUMAPolicy]),
    numa_exclusive=st.sampled_from([None, True, False]),
    cpu_policy=st.sampled_from([None, None, None, *CPUPolicy]),
    topology_aware=st.sampled_from([None, None, True, False]),
)


@st.composite
def requests(draw: st.DrawFn) -> PodRequest:
    kinds = draw(st.lists(st.sampled_from(ContainerKind), min_size=1, max_size=3))
    kinds.sort(key=lambda kind: kind is ContainerKind.APP)
    containers = []
    for name, kind in zip("abc", kinds, strict=False):
        milli = draw(MILLI)
        limit = draw(st.sampled_from([milli, milli, 0, 2 * milli]))
        containers.append(ContainerRequest(name, kind, cpu_request=milli, cpu_limit=limit))
    sets = st.sets(st.integers(0, 33), max_size=6).map(CPUSet)
    uid = f"pod-{draw(st.integers(0, 20))}"
    return PodRequest(
        uid,
        "test",
        uid,
        draw(st.sampled_from([QOSClass.GUARANTEED, QOSClass.GUARANTEED, *QOSClass])),
        tuple(containers),
        draw(st.dictionaries(st.sampled_from("abc"), sets, max_size=2)),
        labels=draw(st.sampled_from([{}, {"app": "x"}, {"app": "y"}])),
        placement_spec=draw(WISHES | st.builds(PlacementSpec, qos=st.sampled_from([None, *PodQOS]))),
        zone=draw(st.sampled_from([None, None, CPUSet([0]), CPUSet([1, 7])])),
    )


options = st.builds(
    PoolOptions,
    allocator=st.sampled_from(["optimal", "koordinator"]),
    guaranteed_default=st.sampled_from([PodQOS.LSR, PodQOS.LS]),
    strict_requests=st.booleans(),
    be_minimum=st.integers(0, 6),
    isolated_cpus=st.sampled_from(["ignore", "exclude", "exclusive-only"]),
    bind=st.sampled_from([None, BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS]),
    node_bind=st.sampled_from([None, None, BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS]),
    strategy=st.sampled_from([None, *NUMAStrategy]),
    as_proposed=st.booleans(),
    numa=st.sampled_from([NUMAPolicy.NONE, *NUMAPolicy]),
    withheld=st.sampled_from([CPUSet(), CPUSet([1]), CPUSet.parse("0-2")]),
    system=st.sampled_from([CPUSet(), CPUSet([3]), CPUSet.parse("2-3")]),
    system_exclusive=st.booleans(),
)
