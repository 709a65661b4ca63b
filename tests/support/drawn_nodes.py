"""Nodes of every kind in fragmented states, and pods, drawn by hypothesis for the scheduler's columns."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions
from corelane.node.config import KoordinatorOptions, NodeConfig, PoolOptions
from corelane.node.ledger import NodeState
from corelane.node.manager_options import NodeConfigError, StaticOptions, TopologyOptions
from corelane.node.zones.zone_state import CraneRules, Zone, ZonesState
from corelane.scheduler.cluster import node_kinds
from corelane.scheduler.cluster.node_kinds import CPUState
from corelane.workload import NUMAPolicy, PlacementSpec, PodQOS
from corelane.workload.request import ContainerRequest, PodRequest, PodResources, QOSClass
from support import pool_asks

GIB = 1 << 30
GPU, NIC = "example.com/gpu", "example.com/nic"


def _with_pages(machine: Machine) -> Machine:
    """NUMA node 0 has the fewest huge pages of 2 MiB, and node 1 those of 1 GiB."""
    return replace(
        machine,
        nodes=tuple(
            replace(one, memory=8 * GIB, hugepages={2048: 64 * (1 + one.id), 1 << 20: one.id})
            for one in machine.nodes
        ),
    )


MACHINES = tuple(
    _with_pages(parse_spec(spec, name="m"))
    for spec in (
        "socket:2 numa:1 core:4 smt:2",
        "socket:2 numa:2 core:3 smt:2",
        "socket:1 numa:2 core:4",
        "core:4 smt:2",
        "socket:2 l3:2 core:2 smt:2",
        "socket:1 numa:2 l3:2 core:2 smt:2",
    )
) + tuple(
    _with_pages(parse_spec("socket:2 numa:1 core:4 smt:2", name="m").restricted(mask))
    for mask in (0xFDFB, 0x00FF)
)
_BOOL = st.sampled_from([False, False, True])
_POLICIES = st.sampled_from(
    ["none", "best-effort", "restricted", "restricted", "single-numa-node", "single-numa-node"]
)
_SCOPES = st.sampled_from(["container", "container", "pod"])


@st.composite
def _devices(draw: st.DrawFn, machine: Machine) -> dict[str, dict[str, int]]:
    if len(machine.nodes) < 2 or draw(st.booleans()):
        return {}
    near = st.sets(st.sampled_from([one.id for one in machine.nodes]), max_size=2)
    masks = near.map(lambda ids: sum(1 << one for one in ids))
    return {
        name: {f"{name[-3:]}{i}": mask for i, mask in enumerate(draw(st.lists(masks, max_size=4)))}
        for name in (GPU, NIC)
    }


@st.composite
def ledgers(draw: st.DrawFn) -> NodeState:
    """An empty node whose CPUs are known; some settings that exclude each other are left out."""
    machine = draw(st.sampled_from(MACHINES))
    policy = draw(st.sampled_from(["static", "static", "static", "pools", "pools", "none"]))
    flags = ("full_pcpus_only", "distribute_cpus_across_numa", "prefer_align_cpus_by_uncorecache")
    flags += ("align_by_socket", "distribute_cpus_across_cores", "strict_cpu_reservation")
    options = StaticOptions(**{flag: draw(_BOOL) for flag in flags})
    reserved = {one.id: {"memory": GIB} for one in machine.nodes}
    pools = draw(pool_asks.options)
    if draw(_BOOL):
        pools = replace(pools, amplification=Fraction(draw(st.sampled_from(["3/2", "2", "11/10"]))))
    config = NodeConfig(
        policy,
        options=options,
        numa=TopologyOptions(draw(_POLICIES), draw(_SCOPES), draw(_BOOL)),
        memory=MemoryOptions("Static", reserved) if draw(st.booleans()) else MemoryOptions(),
        devices=draw(_devices(machine)),
        pod_level=draw(st.booleans()),
        pools=pools,
        exact=policy == "static" and draw(_BOOL),
    )
    try:
        return nodes.new(machine, config)
    except NodeConfigError:
        plain = replace(config, options=StaticOptions(), pools=PoolOptions(be_minimum=0))
        return nodes.new(machine, plain)


@st.composite
def koordlets(draw: st.DrawFn) -> NodeState:
    """A node that Koordinator's scheduler decides about."""
    state = nodes.new(draw(st.sampled_from(MACHINES[:5])), NodeConfig("pools"))
    pools = replace(
        PoolOptions(allocator="koordinator", guaranteed_default=PodQOS.LS, be_minimum=0),
        node_bind=draw(pool_asks.options).node_bind,
        numa=draw(st.sampled_from(NUMAPolicy)),
    )
    ratio = draw(st.sampled_from([Fraction(1), Fraction(1), Fraction(3, 2)]))
    ids = draw(st.sampled_from([state.topology.numa_ids, (0,), (), (0, 5)]))
    names = draw(st.sampled_from([("cpu", "memory"), ("cpu", "memory", GPU), ("memory",), ("cpu",)]))
    most = {"cpu": 8000, "memory": 8 * GIB, GPU: 2}
    zones = {
        one: {name: draw(st.sampled_from([most[name], most[name] // 2])) for name in names} for one in ids
    }
    koordinator = KoordinatorOptions(zones, ratio, 0 if ratio == 1 else 100_000)
    config = NodeConfig(
        "pools", pools=replace(pools, amplification=ratio), koordinator=koordinator, exact=True
    )
    return replace(state, config=config)


@st.composite
def zones(draw: st.DrawFn) -> ZonesState:
    """A node that publishes amounts by NUMA node only."""
    names = draw(st.sampled_from([("cpu", "memory"), ("cpu", "memory", GPU), ("cpu", GPU), ("memory",)]))
    units = {"cpu": 500, "memory": GIB, GPU: 1}
    amount = st.integers(0, 16)
    found = tuple(
        Zone(one, {name: units[name] * draw(amount) for name in names if draw(st.integers(0, 9))})
        for one in draw(st.sampled_from([(0, 1), (0,), (0, 1, 2, 3), (3, 70), ()]))
    )
    rules = draw(st.sampled_from([None, None, CraneRules(), CraneRules(aware=False), CraneRules(pins=False)]))
    return ZonesState(found, draw(_POLICIES), draw(_SCOPES), crane=rules)


@st.composite
def requests(draw: st.DrawFn) -> PodRequest:
    """A pod of one to three containers, with memory, huge pages, devices or pod-level amounts."""
    request = replace(draw(pool_asks.requests()), proposal={}, zone=None)
    if draw(st.booleans()):
        request = replace(request, placement_spec=PlacementSpec())
    containers = tuple(draw(_container(one)) for one in request.containers)
    level = None
    if draw(st.integers(0, 3)) == 0:
        milli = draw(st.sampled_from([0, 2000, 2500, 4000, 6000]))
        size = draw(st.sampled_from([0, GIB, 3 * GIB, 6 * GIB]))
        level = PodResources(milli, size, draw(_PAGES), size)
    overhead = draw(st.sampled_from([{}, {}, {"cpu": 250, "memory": 1}]))
    return replace(request, containers=containers, level=level, overhead=overhead)


_PAGES = st.sampled_from([{}, {}, {2048: 64 << 21}, {2048: 16 << 21, 1 << 20: GIB}])
_COUNTS = st.sampled_from([{}, {}, {GPU: 1}, {GPU: 2}, {GPU: 1, NIC: 2}, {NIC: 1}])


@st.composite
def _container(draw: st.DrawFn, one: ContainerRequest) -> ContainerRequest:
    size = draw(st.sampled_from([0, GIB, 2 * GIB, 4 * GIB, 7 * GIB]))
    pages, counts = draw(_PAGES), draw(_COUNTS)
    amounts = {"cpu": one.cpu_request, "memory": size} | counts
    amounts |= {"hugepages-2Mi": pages[2048]} if 2048 in pages else {}
    return replace(
        one, memory_request=size, memory_limit=size, hugepages=pages, devices=counts, requests=amounts
    )


@st.composite
def fragmented(draw: st.DrawFn) -> tuple[CPUState, list[PodRequest]]:
    """A node of any kind on which pods came and went, and pods to be placed there."""
    state: CPUState = draw(st.one_of(ledgers(), ledgers(), koordlets(), zones()))
    pods = draw(st.lists(requests(), max_size=5))
    for number, request in enumerate(pods):
        state, _ = node_kinds.admit(state, replace(request, uid=f"u{number}"))
    if isinstance(state, NodeState):
        for number in draw(st.sets(st.integers(0, 4))):
            if f"u{number}" in state.pods:
                state = nodes.release(state, f"u{number}")
        if draw(_BOOL):
            cpus = CPUSet.from_mask(draw(st.integers(0, state.topology.all)) & state.free_exclusive.mask)
            uneven = replace(requests_of_one(), proposal={"a": cpus})
            state = node_kinds.running(state, uneven, recorded=True)
    return state, draw(st.lists(requests(), min_size=1, max_size=3))


def requests_of_one() -> PodRequest:
    """A pod whose CPUs are recorded, whatever their number."""
    return PodRequest("uneven", "test", "uneven", QOSClass.GUARANTEED, (ContainerRequest("a"),))
