"""A NodeResourceTopology as others see it: its own schema, Koordinator's scheduler, and we, coming back."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from corelane import node
from corelane.cpuset import CPUSet
from corelane.kube import decode, keys, translate
from corelane.kube.decode import Malformed
from corelane.kube.objects import NodeResourceTopology
from corelane.machine.model import CPU, Machine, NUMANode
from corelane.machine.sources import load
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions
from corelane.node.config import NodeConfig, PoolOptions, amplify
from corelane.node.entries import Entry, Origin, Sharing
from corelane.node.ledger import NodeState, with_entries
from corelane.node.manager_options import NodeConfigError
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.workload import NUMAPolicy
from corelane.workload.request import PodRequest
from support import koordinator_eyes, openapi
from support.pods import container, pod
from support.pool_asks import options, requests
from support.snapshots import LARGE_ONES_SLOW, needs_snapshots

CRD = Path(__file__).parents[2] / "deploy/noderesourcetopologies.yaml"
LEVELS = ("node", "socket", "l3", "core")


def through_the_api(obj: dict) -> NodeResourceTopology:
    return msgspec.json.decode(msgspec.json.encode(obj), type=NodeResourceTopology)


def published_part(machine: Machine) -> Machine:
    """What of a machine is published: the usable CPUs, no devices."""
    kept = machine.restricted(machine.usable.mask)
    return replace(kept, devices=(), irqs=(), notes=(), source="NodeResourceTopology")


def check_parents(machine: Machine, zones: list[dict]) -> None:
    """Each zone's parent is the smallest that holds it, and nothing is its own ancestor."""
    cpus = {zone["name"]: cpus_of(zone) for zone in zones}
    parents = {zone["name"]: zone.get("parent") for zone in zones}
    for name, parent in parents.items():
        around = [other for other in cpus if cpus[name] and cpus[name] < cpus[other] and "core" not in other]
        assert bool(parent) >= bool(around)
        if parent:
            assert cpus[name] <= cpus[parent]
            assert all(len(cpus[parent]) <= len(cpus[other]) for other in around)
        seen = {name}
        while parent:
            assert parent not in seen
            seen.add(parent)
            parent = parents[parent]


def cpus_of(zone: dict) -> CPUSet:
    told = {one["name"]: one["value"] for one in zone.get("attributes", ())}
    return CPUSet.parse(told.get("cpus", ""))


@needs_snapshots
@pytest.mark.parametrize("source", LARGE_ONES_SLOW)
def test_every_real_machine_keeps_to_the_schema_and_comes_back(source: str) -> None:
    machine = load(source)
    state = node.new(machine, NodeConfig("pools"))
    obj = translate.topology(machine, machine.name, state, owner_uid="u", levels=LEVELS)
    back = translate.machine_from_topology(through_the_api(obj))
    assert back == published_part(machine)
    assert back.nodes == published_part(machine).nodes
    assert translate.state_from_topology(through_the_api(obj)).free_exclusive == state.free_exclusive
    check_parents(machine, obj["zones"])
    eyes = koordinator_eyes.read(obj, {})
    assert eyes.free == machine.usable - state.reserved
    cores = published_part(machine).core_masks
    assert len({row[:2] for row in eyes.cpus.values()}) == len(cores)
    if CRD.exists():
        older = translate.topology(machine, machine.name, state, version="v1alpha1", levels=LEVELS)
        found = openapi.schemas(CRD.read_text())
        assert openapi.faults(found["v1alpha2"], obj) == openapi.faults(found["v1alpha1"], older) == []


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Anything that the model allows: gaps in ids, units across each other, CPUs that we may not use."""
    ids = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=12)))
    small = st.integers(0, 3)
    core = {cpu: draw(st.sampled_from(ids[: i + 1])) for i, cpu in enumerate(ids)}
    core = {cpu: first if core[first] == first else cpu for cpu, first in core.items()}
    cpus = tuple(
        CPU(
            cpu, core[cpu], draw(small), draw(small), draw(small), core[cpu], draw(st.integers(-1, 3)),
            draw(st.sampled_from([0, 1, 5])), draw(st.sampled_from(["", "P", "E"])),
            draw(st.sampled_from([0, 3_000_000])), draw(st.sampled_from([0, 1024])),
            draw(st.none() | small),
        )
        for cpu in ids
    )  # fmt: skip
    numbers = sorted({cpu.numa for cpu in cpus} | draw(st.sets(st.sampled_from([7, 9]))))
    nodes = tuple(
        NUMANode(
            number,
            CPUSet(cpu.id for cpu in cpus if cpu.numa == number),
            draw(st.integers(0, 1 << 42)),
            draw(st.dictionaries(st.sampled_from([64, 2048, 1 << 20]), st.integers(0, 99))),
            {other: 10 if other == number else draw(st.integers(11, 255)) for other in numbers},
        )
        for number in numbers
    )
    sets = {
        name: CPUSet(draw(st.sets(st.sampled_from(ids)))) for name in ("isolated", "nohz_full", "managed_irq")
    }
    allowed = CPUSet(draw(st.sets(st.sampled_from(ids), min_size=1)))
    return Machine("any", cpus, nodes, CPUSet(ids), allowed=allowed, **sets)


@given(machines(), st.sampled_from(["v1alpha1", "v1alpha2"]))
@settings(max_examples=15, deadline=None)
def test_any_machine_comes_back(machine: Machine, version: str) -> None:
    state = NodeState(machine, NodeConfig(), node.new(machine, NodeConfig("none")).topology, CPUSet())
    obj = translate.topology(machine, "any", state, version=version, levels=LEVELS)
    back = translate.machine_from_topology(through_the_api(obj))
    assert back == published_part(machine)
    assert back.nodes == published_part(machine).nodes
    check_parents(machine, obj["zones"])


@given(machines())
@settings(max_examples=15, deadline=None)
def test_of_any_machine_koordinators_annotation_keeps_what_it_can_say(machine: Machine) -> None:
    """CPUs, cores within their sockets, sockets, NUMA nodes, and memory; no caches."""
    obj = translate.topology(machine, "any", node.new(machine, NodeConfig("none")))
    for key in (keys.MACHINE, keys.CPU_ALLOCATIONS):
        del obj["metadata"]["annotations"][key]
    for zone in obj["zones"]:
        for one in zone.get("resources", ()):
            one["capacity"] = one["allocatable"]
    back = translate.machine_from_topology(through_the_api(obj))
    usable = published_part(machine)
    assert [(cpu.id, cpu.socket, cpu.numa) for cpu in back.cpus] == [
        (cpu.id, cpu.socket, cpu.numa) for cpu in usable.cpus
    ]
    parts = {}
    for cpu in usable.cpus:
        parts.setdefault((cpu.core, cpu.socket), set()).add(cpu.id)
    assert {frozenset(CPUSet.from_mask(mask)) for _, mask in back.core_masks} == {
        frozenset(part) for part in parts.values()
    }
    for ours, theirs in zip(usable.nodes, back.nodes, strict=True):
        pages = sum(1024 * kib * count for kib, count in ours.hugepages.items())
        assert theirs.memory == max(ours.memory, pages)
        assert (theirs.id, theirs.cpus, theirs.distances) == (ours.id, ours.cpus, ours.distances)


@given(
    machines(),
    st.sampled_from(["pools", "static", "none"]),
    options,
    st.lists(requests(), max_size=3, unique_by=lambda request: request.uid),
)
@settings(max_examples=12, deadline=None)
def test_what_any_machine_has_left_comes_back(
    machine: Machine, policy: str, pools: PoolOptions, inside: list[PodRequest]
) -> None:
    try:
        state = node.new(machine, NodeConfig(policy, pools=pools))
    except NodeConfigError:  # settings that this machine cannot honour
        reject()
    for request in inside:
        state, _ = node.admit(state, request)
    assert node.validate(state) == []
    back = translate.state_from_topology(through_the_api(translate.topology(machine, "any", state)))
    assert (back.free_exclusive, back.exclusive, back.shared_pool) == (
        state.free_exclusive, state.exclusive, state.shared_pool,
    )  # fmt: skip


MACHINE = parse_spec("socket:2 numa:2 l3:2 core:2 smt:2 mem:8G", name="n")
CPUS = st.sets(st.integers(0, 31), max_size=5).map(CPUSet)


@st.composite
def ledgers(draw: st.DrawFn) -> NodeState:
    """A node under any policy, on which a kubelet has left some pods."""
    pools = PoolOptions(
        withheld=draw(CPUS),
        system=draw(CPUS),
        system_exclusive=draw(st.booleans()),
        isolated_cpus=draw(st.sampled_from(["ignore", "exclude", "exclusive-only"])),
        amplification=draw(st.sampled_from([Fraction(1), Fraction(3, 2), Fraction(113, 100)])),
        numa=draw(st.sampled_from(list(NUMAPolicy))),
    )
    policy = draw(st.sampled_from(["none", "static", "pools", "pools", "pools"]))
    reserved = draw(CPUS) or None
    try:
        state = node.new(replace(MACHINE, isolated=draw(CPUS)), NodeConfig(policy, reserved, pools=pools))
    except NodeConfigError:  # settings that leave no pool
        reject()
    free = draw(st.sets(st.sampled_from(sorted(state.free_exclusive) or [0]), max_size=4))
    left = CPUSet(free) & state.free_exclusive
    if not left:
        return state
    entry = Entry("k", "c", "ns/k", left, Sharing.ALONE, origin=Origin.KUBELET)
    return with_entries(state, {entry.key: entry}, {"k": 1000 * len(left)})


@given(ledgers())
@settings(max_examples=25, deadline=None)
def test_koordinators_scheduler_sees_the_cpus_and_amounts_that_are_there(state: NodeState) -> None:
    pools, pooled = state.config.pools, state.config.policy == "pools"
    own = {keys.AMPLIFICATION: f'{{"cpu":{float(pools.amplification)}}}'} if pooled else {}
    obj = translate.topology(state.machine, "n", state, node_annotations=own)
    eyes = koordinator_eyes.read(obj, own)
    if state.config.policy != "none":
        assert state.free_exclusive <= eyes.free
    if state.config.policy == "static":
        assert eyes.free == state.free_exclusive
    if pooled:
        shared_with_system = CPUSet() if pools.system_exclusive else pools.system
        assert eyes.free - shared_with_system == state.free_exclusive
    ratio = pools.amplification if pooled else Fraction(1)
    for id_, mask in state.machine.numa_masks:
        assert eyes.numa[id_] == amplify(1000 * (mask & eyes.free.mask).bit_count(), ratio)
    assert eyes.policy == (pools.numa.value if pooled else "")
    assert list(eyes.numa) == [0, 1, 2, 3]
    assert [zone["name"] for zone in obj["zones"][:4]] == [f"node-{i}" for i in range(4)]


@given(ledgers(), st.lists(requests(), max_size=5, unique_by=lambda request: request.uid))
@settings(max_examples=25, deadline=None)
def test_what_comes_back_is_published_alike(state: NodeState, inside: list[PodRequest]) -> None:
    for request in inside:
        state, _ = node.admit(state, request)
    obj = translate.topology(state.machine, "n", state)
    back = translate.state_from_topology(through_the_api(obj))
    assert translate.topology(back.machine, "n", back) == obj


@given(ledgers(), st.sampled_from(["v1alpha1", "v1alpha2"]), st.sets(st.sampled_from(LEVELS)))
@settings(max_examples=25, deadline=None)
def test_what_is_published_keeps_to_the_schema(state: NodeState, version: str, levels: set[str]) -> None:
    obj = translate.topology(state.machine, "n", state, version=version, levels=levels, owner_uid="u")
    assert openapi.faults(openapi.schemas(CRD.read_text())[version], obj) == []


def test_the_schema_finds_faults_in_what_is_not_so() -> None:
    schema = openapi.schemas(CRD.read_text())["v1alpha1"]
    zone = {"name": 1, "type": "Node", "costs": [{"name": "x", "value": "3"}], "more": 1, "resources": [{}]}
    obj = {"apiVersion": "v", "kind": "K", "metadata": {}, "zones": [zone]}
    assert [fault.partition(":")[0] for fault in openapi.faults(schema, obj)] == [
        ".topologyPolicies", ".zones[0].more", ".zones[0].name", ".zones[0].costs[0].value",
        *(f".zones[0].resources[0].{name}" for name in ("name", "capacity", "allocatable", "available")),
    ]  # fmt: skip


def test_zones_of_another_exporter_without_ids_are_read_as_counts() -> None:
    """Amounts are plain numbers, as in the example of the API's own repository."""
    counts = (20, 30, 30)
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "capacity": count, "allocatable": count - 5, "available": 10},
                {"name": "vendor/nic1", "capacity": 3, "allocatable": 3, "available": 3},
            ],
        }
        for number, count in enumerate(counts)
    ]
    example = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "node1"},
        "topologyPolicies": ["SingleNUMANode"],
        "zones": zones,
    }
    assert openapi.faults(openapi.schemas(CRD.read_text())["v1alpha1"], example) == []
    machine = translate.machine_from_zones(through_the_api(example))
    assert tuple(len(one.cpus) for one in machine.nodes) == counts
    with pytest.raises(translate.TranslationError, match="the CPUs are unknown"):
        translate.state_from_topology(through_the_api(example))


def test_memory_that_a_memory_manager_gave_away_is_no_longer_available() -> None:
    nodes = tuple(replace(one, hugepages={2048: 512}) for one in MACHINE.nodes)
    machine = replace(MACHINE, nodes=nodes)
    reserved = {0: {"memory": 1 << 30}}
    options = MemoryOptions("Static", reserved)
    state = node.new(machine, NodeConfig("static", CPUSet([0]), memory=options))
    one = container("a", "cpu=2 memory=2Gi hugepages-2Mi=512Mi")
    state, decision = node.admit(state, translate.request(pod("p", one)))
    assert decision.admitted, decision.message
    (first, *_) = translate.topology(machine, "n", state)["zones"]
    told = {one.pop("name"): tuple(one.values()) for one in first["resources"]}
    assert told["memory"] == ("8Gi", "6Gi", "4Gi")
    assert told["hugepages-2Mi"] == ("1Gi", "1Gi", "512Mi")
    plain = translate.topology(machine, "n", node.new(machine))["zones"][0]["resources"]
    assert [tuple(one.values())[1:] for one in plain[1:]] == [("8Gi", "7Gi", "7Gi"), ("1Gi", "1Gi", "1Gi")]


def test_parents_go_by_what_holds_what_whatever_the_level() -> None:
    cpus = tuple(replace(cpu, l3=cpu.numa // 2, socket=0) for cpu in MACHINE.cpus)
    across = replace(MACHINE, cpus=cpus)
    zones = translate.topology(across, "n", node.new(across), levels=LEVELS)["zones"]
    assert not [zone for zone in zones if zone["type"] == "L3" and zone["name"] not in ("l3-0", "l3-1")]
    parents = {zone["name"]: zone.get("parent") for zone in zones}
    assert [parents[name] for name in ("core-15", "node-3", "l3-1", "socket-0")] == [
        "node-3", "l3-1", "socket-0", None,
    ]  # fmt: skip


JUNK = st.sampled_from(
    [
        "",
        "x",
        "{",
        "[]",
        "null",
        "-1",
        "9" * 40,
        "0-",
        "0-99999",
        "{}",
        "\ud800".encode("utf-16", "surrogatepass").hex(),
    ]
)
VALUES = st.sampled_from(
    [None, -1, 10**30, 1.5, True, "", "x", [], {}, [[]], {"a": {}}, "0-3", "1e400", "node-0"]
) | st.sampled_from([("-1",), ("9" * 9,), ("9" * 19,), ("x",), ("node-999999999",)])


def bent(tree, path, value):
    """The tree with another value at a place of it, or another key that stands for a tuple."""
    if not path or not isinstance(tree, dict | list) or not tree:
        return value
    if isinstance(value, tuple) and len(path) == 1 and isinstance(tree, dict):
        at = sorted(tree)[path[0] % len(tree)]
        return {value[0] if name == at else name: one for name, one in tree.items()}
    if isinstance(tree, list):
        at = path[0] % len(tree)
        return [bent(one, path[1:], value) if i == at else one for i, one in enumerate(tree)]
    at = sorted(tree)[path[0] % len(tree)]
    return {name: bent(one, path[1:], value) if name == at else one for name, one in tree.items()}


def published_by_us() -> dict:
    state = node.new(MACHINE, NodeConfig("pools"))
    return translate.topology(MACHINE, "n", state, owner_uid="u")


def published_by_koordlet() -> dict:
    obj = published_by_us()
    annotations = dict(obj["metadata"]["annotations"])
    del annotations[keys.MACHINE], annotations[keys.CPU_ALLOCATIONS]
    annotations[keys.POD_CPU_ALLOCS] = '[{"uid":"u","cpuset":"4-5","managedByKubelet":true}]'
    annotations[keys.RESERVATION] = '{"resources":{"cpu":"2"}}'
    annotations[keys.SYSTEM_QOS] = '{"cpuset":"7"}'
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def annotation_bent(obj: dict, key: str, path: list[int], value: object) -> dict:
    annotations = obj["metadata"]["annotations"]
    text = json.dumps(bent(json.loads(annotations[key]), path, value))
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations, key: text}}}


def read_or_fault(obj: dict) -> str:
    """What the scheduler is told of it: nothing where it can be read."""
    read = decode.decode_object(NodeResourceTopology, msgspec.json.encode(obj))
    if isinstance(read, Malformed):
        return str(read.error)
    cluster = NodeCache()
    cluster.put_topology(None, read)
    info = cluster.get(read.metadata.name)
    assert info is not None
    assert (info.cpus.kind is NodeKind.DAMAGED) == bool(info.problem) or info.cpus.kind is NodeKind.ZONES
    return info.problem


@given(
    st.sampled_from([published_by_us(), published_by_koordlet()]),
    st.data(),
    st.lists(st.integers(0, 63), max_size=4),
    VALUES,
)
@settings(max_examples=50, deadline=None)
def test_garbage_in_an_annotation_is_one_fault_that_names_it(
    obj: dict, data: st.DataObject, path: list[int], value: object
) -> None:
    key = data.draw(st.sampled_from(sorted(obj["metadata"]["annotations"])))
    problem = read_or_fault(annotation_bent(obj, key, path, value))
    assert "\n" not in problem
    assert not problem or problem.startswith("metadata.annotations[")
    cut = json.loads(json.dumps(obj))
    cut["metadata"]["annotations"][key] = data.draw(JUNK)
    problem = read_or_fault(cut)
    assert not problem or problem.startswith("metadata.annotations")


@given(
    st.sampled_from([published_by_us(), published_by_koordlet()]),
    st.lists(st.integers(0, 63), min_size=1, max_size=6),
    VALUES,
)
@settings(max_examples=50, deadline=None)
def test_garbage_anywhere_in_the_object_never_disturbs_the_scheduler(
    obj: dict, path: list[int], value: object
) -> None:
    whole = bent(obj, path, value)
    problem = read_or_fault(whole) if isinstance(whole, dict) else ""
    assert not re.search(r"\n|Traceback", problem)
