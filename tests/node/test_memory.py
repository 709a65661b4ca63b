"""The memory manager in the ledger: who gets what where, refusals in upstream's words, release, change."""

from dataclasses import replace

import pytest

from corelane import node
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, TopologyOptions, codec
from corelane.node.config import NodeConfig
from corelane.workload.request import ContainerKind, ContainerRequest, QOSClass
from support.node_asks import pod

GI = 1 << 30
MACHINE = parse_spec("socket:2 numa:1 core:4 smt:2 mem:16G")
RESERVED = {0: {"memory": GI}}


def state(policy="best-effort", machine=MACHINE, **changes):
    memory = MemoryOptions("Static", RESERVED)
    return node.new(machine, NodeConfig(numa=TopologyOptions(policy), memory=memory, **changes))


def requests(name, gib, milli=1000, kind=ContainerKind.APP, **more):
    size = gib * GI
    return ContainerRequest(
        name,
        kind,
        cpu_request=milli,
        cpu_limit=milli,
        memory_request=size,
        memory_limit=size,
        **more,
    )


def admitted(before, request):
    after, decision = node.admit(before, request)
    assert decision.admitted, decision
    assert node.validate(after) == []
    return after


def refused(before, request):
    after, decision = node.admit(before, request)
    assert not decision.admitted
    assert after is before
    return decision.reason, decision.message


def free(of):
    return [one.free["memory"] // GI for one in of.memory.values()]


def where(of, uid, name="c"):
    return of.entries[uid, name].mems


def test_a_guaranteed_pod_gets_memory_on_the_fewest_nodes_and_is_bound_there():
    after = admitted(state(), pod("a", requests("c", 12)))
    assert where(after, "a") == CPUSet([0])
    assert free(after) == [3, 16]
    wide = admitted(state(), pod("a", requests("c", 20)))
    assert where(wide, "a") == CPUSet([0, 1])
    assert free(wide) == [0, 11]


def test_cpus_and_memory_are_taken_from_the_same_node():
    full = admitted(state("restricted"), pod("a", requests("c", 14)))
    after = admitted(full, pod("b", requests("c", 4, 4000)))
    assert where(after, "b") == CPUSet([1])
    cpus = after.entries["b", "c"].cpus
    assert cpus <= next(one.cpus for one in MACHINE.nodes if one.id == 1)


def test_others_get_no_memory_of_their_own():
    burstable = pod("a", requests("c", 4), qos=QOSClass.BURSTABLE)
    after = admitted(state(), burstable)
    assert where(after, "a") is None
    assert free(after) == [15, 16]


def test_a_node_used_alone_is_no_part_of_a_group():
    full = admitted(state(), pod("a", requests("c", 1)))
    reason, message = refused(full, pod("b", requests("c", 20)))
    assert reason == "UnexpectedAdmissionError"
    assert "[memorymanager] failed to find NUMA nodes to extend the current topology hint" in message
    alone = state("none")
    full = admitted(alone, pod("a", requests("c", 1)))
    assert (
        "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
        in (refused(full, pod("b", requests("c", 20)))[1])
    )


def test_a_strict_topology_manager_refuses_what_would_lie_apart():
    full = admitted(state("single-numa-node"), pod("a", requests("c", 15, 7000)))
    reason, message = refused(full, pod("b", requests("c", 16, 9000)))
    assert (reason, message) == (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    )


def test_an_init_containers_memory_is_taken_over_and_counted_once():
    first = requests("first", 6, kind=ContainerKind.INIT)
    after = admitted(state(), pod("a", first, requests("c", 4)))
    assert free(after) == [9, 16]
    sizes = {entry.container: entry.memory[0].size // GI for entry in after.of_pod("a")}
    assert sizes == {"first": 2, "c": 4}


def test_once_a_container_has_started_the_init_containers_before_it_give_their_memory_back():
    first = requests("first", 6, kind=ContainerKind.INIT)
    before = admitted(state(), pod("a", first, requests("c", 4)))
    assert node.started(before, "a", "first") is before
    after = node.started(before, "a", "c")
    assert free(after) == [11, 16]
    assert node.validate(after) == []
    assert node.started(after, "a", "c") is after
    assert node.started(after, "x", "c") is after
    assert node.release(after, "a").memory == state().memory


def test_release_gives_memory_and_devices_back():
    fresh = state(devices={"example.com/gpu": {"g0": 1, "g1": 2}})
    gpu = {"example.com/gpu": 1}
    after = admitted(fresh, pod("a", requests("c", 20, devices=gpu)))
    assert dict(after.entries["a", "c"].devices) == {"example.com/gpu": ("g0",)}
    assert node.release(after, "a").memory == fresh.memory
    again = admitted(node.release(after, "a"), pod("b", requests("c", 1, devices=gpu)))
    assert dict(again.entries["b", "c"].devices) == {"example.com/gpu": ("g0",)}


def test_devices_draw_cpus_and_memory_to_their_node():
    near = state("single-numa-node", devices={"example.com/gpu": {"g0": 0b10}})
    after = admitted(near, pod("a", requests("c", 4, 2000, devices={"example.com/gpu": 1})))
    assert where(after, "a") == CPUSet([1])
    assert after.entries["a", "c"].cpus <= MACHINE.nodes[1].cpus


@pytest.mark.parametrize(
    ("inventory", "wanted", "text"),
    [
        ({}, 1, "no healthy devices present; cannot allocate unhealthy devices example.com/gpu"),
        (
            {"g0": 1},
            2,
            "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1",
        ),
    ],
)
def test_missing_devices_are_refused_in_upstreams_words(inventory, wanted, text):
    before = state("none", devices={"example.com/gpu": inventory})
    request = pod("a", requests("c", 1, devices={"example.com/gpu": wanted}))
    assert refused(before, request) == (
        "UnexpectedAdmissionError",
        f"Allocate failed due to {text}, which is unexpected",
    )


def test_a_resource_that_the_node_does_not_know_is_left_to_others():
    after = admitted(state(), pod("a", requests("c", 1, devices={"example.com/other": 9})))
    assert not after.entries["a", "c"].devices


def test_an_init_containers_devices_are_taken_over():
    before = state(devices={"example.com/gpu": {"g0": 1, "g1": 2}})
    gpu = {"example.com/gpu": 1}
    first = requests("first", 1, kind=ContainerKind.INIT, devices=gpu)
    after = admitted(before, pod("a", first, requests("c", 1, devices=gpu), requests("d", 1, devices=gpu)))
    held = {entry.container: entry.devices["example.com/gpu"] for entry in after.of_pod("a")}
    assert held == {"first": ("g0",), "c": ("g0",), "d": ("g1",)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (MemoryOptions("Static"), "[memorymanager] you should specify the system reserved memory"),
        (
            MemoryOptions("Static", {0: {"hugepages-2Mi": GI}}),
            "[memorymanager] you should specify the system reserved memory",
        ),
        (MemoryOptions("static", RESERVED), 'unknown policy: "static"'),
        (
            MemoryOptions("Static", {7: {"memory": GI}}),
            "the reserved memory configuration references a NUMA node 7 that does not exist on this machine",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_upstreams_words(options, text):
    with pytest.raises(node.NodeConfigError) as caught:
        node.new(MACHINE, NodeConfig(memory=options))
    assert str(caught.value) == text


def test_a_device_near_a_node_that_is_not_there_is_refused():
    with pytest.raises(node.NodeConfigError, match="gpu: g0 is near NUMA node 5, but this machine has 0-1"):
        node.new(MACHINE, NodeConfig(devices={"gpu": {"g0": 1 << 5}}))


def test_the_ledgers_file_keeps_memory_and_devices():
    before = state(devices={"example.com/gpu": {"g0": 1, "g1": 2}})
    gpu = {"example.com/gpu": 1}
    first = requests("first", 6, kind=ContainerKind.INIT)
    before = admitted(before, pod("a", first, requests("c", 8, devices=gpu)))
    read = codec.decode(codec.encode(before), before.machine, before.config)
    assert read == before
    assert node.rebase(read, before.machine, before.config) == (read, [])


def test_a_file_from_before_there_was_memory_still_loads():
    old = node.new(MACHINE)
    old = admitted(old, pod("a", requests("c", 4)))
    assert b'"memory"' not in codec.encode(old)
    now = state()
    read = codec.decode(codec.encode(old), MACHINE, now.config)
    fitted, problems = node.rebase(read, MACHINE, now.config)
    assert problems == []
    assert fitted.memory == now.memory
    assert node.validate(fitted) == []


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ({"memory": {"0": {"free": {}, "group": "", "assignments": 0}}}, "0.allocatable: None is not dict"),
        ({"memory": {"0": []}}, "0: [] is not dict"),
        ({"memory": {"zero": {}}}, "zero.allocatable"),
    ],
)
def test_a_damaged_file_says_where(damage, text):
    import hashlib
    import json

    tree = json.loads(codec.encode(state()))
    tree["ledger"] |= damage
    plain = json.dumps(tree["ledger"], sort_keys=True, separators=(",", ":"))
    tree["checksum"] = "sha256:" + hashlib.sha256(plain.encode()).hexdigest()
    with pytest.raises(node.LedgerError) as caught:
        codec.decode(json.dumps(tree).encode(), MACHINE, state().config)
    assert text in str(caught.value)
    assert "ledger.memory" in str(caught.value)


def test_memory_that_is_no_longer_there_is_no_longer_kept():
    before = admitted(state(), pod("a", requests("c", 12)))
    before = admitted(before, pod("b", requests("c", 2)))
    shrunk = replace(MACHINE, nodes=tuple(replace(one, memory=12 * GI) for one in MACHINE.nodes))
    after, problems = node.rebase(before, shrunk)
    assert [(problem.code, problem.uid) for problem in problems] == [("memory", "a")]
    assert where(after, "a") is None
    assert where(after, "b") == CPUSet([0])
    assert node.validate(after) == []


def test_a_manager_that_was_switched_off_keeps_nobodys_memory():
    before = admitted(state(), pod("a", requests("c", 12)))
    after, problems = node.rebase(before, MACHINE, replace(before.config, memory=MemoryOptions()))
    assert [problem.code for problem in problems] == ["memory"]
    assert not after.memory
    assert where(after, "a") is None
    assert node.validate(after) == []
