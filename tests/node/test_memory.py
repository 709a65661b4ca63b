"""The memory manager in the ledger: who gets what where, refusals in upstream's words, release, change."""

from dataclasses import replace

import pytest

from corelane import node
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, TopologyOptions, codec
from corelane.node.config import NodeConfig
from corelane.workload.request import ContainerKind, ContainerRequest
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


def free(of):
    return [one.free["memory"] // GI for one in of.memory.values()]


def where(of, uid, name="c"):
    return of.entries[uid, name].mems


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


def test_a_resource_that_the_node_does_not_know_is_left_to_others():
    after = admitted(state(), pod("a", requests("c", 1, devices={"example.com/other": 9})))
    assert not after.entries["a", "c"].devices


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
