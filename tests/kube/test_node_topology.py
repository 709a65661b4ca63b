import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import TranslationError
from corelane.machine.model import CPU, Machine, NUMANode
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState
from support.pods import container, guaranteed, pod

SERVER = "socket:2 numa:2 l3:2 core:4 smt:2"


def published(obj: dict[str, Any]) -> NodeResourceTopology:
    """As it comes back over the wire."""
    return msgspec.json.decode(msgspec.json.encode(obj), type=NodeResourceTopology)


def state_of(machine: Machine, *cpus: str, config: NodeConfig | None = None) -> NodeState:
    state = node.new(machine, config)
    for number, wanted in enumerate(cpus):
        state, decision = node.admit(state, translate.request(guaranteed(f"p{number}", wanted)))
        assert decision.admitted, decision.message
    return state


def bare(machine: Machine) -> Machine:
    """What of a machine is published: the usable CPUs, no devices."""
    kept = machine.restricted(machine.usable.mask)
    return replace(kept, devices=(), irqs=(), notes=(), source="NodeResourceTopology")


def hybrid() -> Machine:
    """P and E cores, clusters, dies, a memory-only node, CPU 1 offline for us: everything unusual at once."""
    cpus = (
        CPU(0, 0, 4, 1, 0, 0, 7, 0, "P", 5_000_000, 1024),
        CPU(1, 0, 4, 1, 0, 0, 7, 0, "P", 5_000_000, 1024),
        CPU(2, 2, 5, 1, 1, 2, 7, 0, "E", 4_000_000, 700),
        CPU(3, 3, 6, 1, 1, 2, -1, 0, "E", 4_000_000, 700),
    )
    nodes = (
        NUMANode(0, CPUSet(range(4)), 2**34, {2048: 512, 2**20: 4}, {0: 10, 2: 17}),
        NUMANode(2, CPUSet(), 2**35, {}, {0: 17, 2: 10}),
    )
    sets = {"isolated": CPUSet([3]), "nohz_full": CPUSet([2, 3]), "managed_irq": CPUSet([3])}
    return Machine("odd", cpus, nodes, CPUSet(range(4)), allowed=CPUSet([0, 2, 3]), **sets)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", [parse_spec(SERVER, name="odd"), hybrid()], ids=["server", "hybrid"])
def test_a_machine_comes_back_as_it_was_published(machine: Machine) -> None:
    nrt = published(translate.topology(machine, "odd", node.new(machine)))
    back = translate.machine_from_topology(nrt)
    assert back == bare(machine)
    assert back.nodes == bare(machine).nodes


@given(st.lists(st.sampled_from(["1", "2", "3", "4", "500m", "8"]), max_size=8), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_ledger_comes_back_and_decides_alike(cpus: list[str], pinning: bool) -> None:
    machine = parse_spec(SERVER, name="n")
    state = node.new(machine, NodeConfig("static" if pinning else "none"))
    for number, wanted in enumerate(cpus):
        state, _ = node.admit(state, translate.request(guaranteed(f"p{number}", wanted)))
    back = translate.state_from_topology(published(translate.topology(machine, "n", state)))
    assert back.generation == state.generation
    assert back.exclusive == state.exclusive
    assert back.reserved == state.reserved
    assert replace(back.config, reserved=None) == state.config
    assert dict(back.entries) == {key: entry for key, entry in state.entries.items() if entry.exclusive}
    assert node.validate(back) == []
    request = translate.request(guaranteed("next", "5"))
    assert node.admit(back, request)[1].assignments == node.admit(state, request)[1].assignments


def test_zones_say_what_is_there_what_may_be_had_and_what_still_can() -> None:
    machine = parse_spec("socket:2 numa:1 core:4 smt:2 mem:8G", name="n")
    state = state_of(machine, "2", "1", config=NodeConfig(reserved=CPUSet([0, 8])))
    obj = translate.topology(machine, "n", state, owner_uid="u")
    assert obj["metadata"]["name"] == "n"
    assert obj["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert obj["topologyPolicies"] == ["BestEffortContainerLevel"]
    zones = {zone["name"]: zone for zone in obj["zones"]}
    assert list(zones) == ["node-0", "node-1", "socket-0", "socket-1"]
    first = zones["node-0"]
    assert (first["type"], first["parent"]) == ("Node", "socket-0")
    assert first["costs"] == [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 20}]
    cpu, memory = first["resources"]
    assert cpu == {"name": "cpu", "capacity": "8", "allocatable": "8", "available": "3"}
    assert memory == {"name": "memory"} | dict.fromkeys(("capacity", "allocatable", "available"), "8Gi")


def test_another_owner_leaves_the_machine_the_same_but_other_memory_does_not() -> None:
    def made(spec: str, *cpus: str, **more: object) -> NodeResourceTopology:
        machine = replace(parse_spec(spec, name="n"), **more)  # type: ignore[arg-type]
        return published(translate.topology(machine, "n", state_of(machine, *cpus)))

    plain = made("socket:2 core:4 mem:8G")
    assert translate.same_machine(plain, made("socket:2 core:4 mem:8G", "2"))
    assert not translate.same_machine(plain, made("socket:2 core:4 mem:9G"))
    assert not translate.same_machine(plain, made("socket:2 core:4 mem:8G", isolated=CPUSet([3])))
    nodes = tuple(replace(one, hugepages={2048: 4}) for one in parse_spec("socket:2 core:4 mem:8G").nodes)
    assert not translate.same_machine(plain, made("socket:2 core:4 mem:8G", nodes=nodes))


def test_without_pinning_every_cpu_is_available() -> None:
    machine = parse_spec("core:4", name="n")
    obj = translate.topology(machine, "n", state_of(machine, "2", config=NodeConfig("none")))
    cpu = obj["zones"][0]["resources"][0]
    assert (cpu["capacity"], cpu["allocatable"], cpu["available"]) == ("4", "4", "4")
    assert obj["topologyPolicies"] == ["None"]


def test_koordinators_annotations_have_its_form() -> None:
    machine = parse_spec("socket:2 core:2 smt:2", name="n")
    state = state_of(machine, "2", config=NodeConfig(reserved=CPUSet([0])))
    annotations = translate.topology(machine, "n", state)["metadata"]["annotations"]
    rows = json.loads(annotations["node.koordinator.sh/cpu-topology"])["detail"]
    assert rows[5] == {"id": 5, "core": 1, "socket": 0, "node": 0}
    assert len({(row["socket"], row["core"]) for row in rows}) == 4
    pools = json.loads(annotations["node.koordinator.sh/cpu-shared-pools"])
    assert [(part["socket"], part["node"]) for part in pools] == [(0, 0), (1, 1)]
    assert CPUSet.parse(pools[0]["cpuset"]) | CPUSet.parse(pools[1]["cpuset"]) == state.shared_pool


def test_of_pods_in_the_shared_pool_only_their_requests_are_published() -> None:
    machine = parse_spec("core:8", name="n")
    state = state_of(machine, "2")
    shared = pod("s", container("x", "cpu=1"))
    state, _ = node.admit(state, translate.request(shared))
    ledger = json.loads(
        translate.topology(machine, "n", state)["metadata"]["annotations"][keys.CPU_ALLOCATIONS]
    )
    assert [entry["pod"] for entry in ledger["entries"]] == ["ns/p0"]
    assert ledger["pods"] == {"uid-p0": 2000, "uid-s": 1000}


def test_a_koordlets_object_is_understood() -> None:
    rows = [
        {"id": cpu, "core": cpu % 4 // 2, "socket": cpu % 2, "node": cpu % 2, "new": 1} for cpu in range(8)
    ]
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [{"name": "memory", "capacity": "1Gi", "allocatable": 5, "available": 5}],
        }
        for number in (0, 1)
    ]
    nrt = published(
        {
            "metadata": {"name": "n", "annotations": {keys.CPU_TOPOLOGY: json.dumps({"detail": rows})}},
            "zones": zones,
        }
    )
    machine = translate.machine_from_topology(nrt)
    assert [str(CPUSet.from_mask(mask)) for _, mask in machine.core_masks] == ["0,4", "1,5", "2,6", "3,7"]
    assert [(n.id, str(n.cpus), n.memory) for n in machine.nodes] == [
        (0, "0,2,4,6", 2**30),
        (1, "1,3,5,7", 2**30),
    ]
    assert translate.state_from_topology(nrt).exclusive == CPUSet()


GOOD = translate.topology(parse_spec("core:4", name="n"), "n", state_of(parse_spec("core:4", name="n"), "2"))


def broken(**annotations: str) -> NodeResourceTopology:
    known = {"machine": keys.MACHINE, "cpu_topology": keys.CPU_TOPOLOGY, "ledger": keys.CPU_ALLOCATIONS}
    kept = {key: value for key, value in GOOD["metadata"]["annotations"].items() if key == keys.MACHINE}
    changed = kept | {known[name]: text for name, text in annotations.items()}
    if "cpu_topology" in annotations:
        del changed[keys.MACHINE]
    return published(GOOD | {"metadata": {"name": "n", "annotations": changed}})


def owners(*cpus: str) -> str:
    entries = [{"uid": f"u{i}", "pod": "ns/a", "container": "c", "cpus": text} for i, text in enumerate(cpus)]
    return json.dumps({"entries": entries})


@pytest.mark.parametrize(
    ("nrt", "why"),
    [
        (broken(machine="{"), "machine"),
        (broken(machine="[" * 9999), "machine"),
        (broken(machine="{}"), "lacks core, l3, numa, socket"),
        (broken(machine='{"core":"0","socket":{},"numa":{},"l3":{}}'), "core is not an object"),
        (
            broken(machine='{"core":{"0":"0-1"},"socket":{"0":"0"},"numa":{"0":"0-1"},"l3":{"0":"0-1"}}'),
            "CPU 1 is",
        ),
        (
            broken(machine='{"core":{"x":"0"},"socket":{},"numa":{},"l3":{}}'),
            "unit 'x', which is not a number",
        ),
        (broken(machine='{"core":{"0":"0-"},"socket":{},"numa":{},"l3":{}}'), "'0-' is not a CPU list"),
        (broken(machine='{"core":{},"socket":{},"numa":{},"l3":{}}'), "names no CPU"),
        (broken(cpu_topology='{"detail":[{"id":0}]}'), "core"),
        (broken(cpu_topology='{"detail":[]}'), "names no CPU"),
        (broken(cpu_topology='{"detail":[{"id":-1,"core":0,"socket":0,"node":0}]}'), ">= 0"),
        (broken(cpu_topology='{"detail":[{"id":0,"core":0,"socket":0,"node":1024}]}'), "<= 1023"),
        (
            broken(machine='{"core":{"0":"0"},"socket":{"0":"0"},"numa":{"-1":"0"},"l3":{"0":"0"}}'),
            "numa has the unit '-1', which is not between 0 and 1023",
        ),
        (
            broken(cpu_topology='{"detail":[%s,%s]}' % ((r'{"id":0,"core":0,"socket":0,"node":0}',) * 2)),
            "twice",
        ),
        (broken(ledger='{"config":{"policy":"dance"}}'), "config: Invalid enum value 'dance'"),
        (broken(ledger='{"reserved":"9"}'), "9"),
        (broken(ledger='{"reserved":"x"}'), "reserved: 'x' is not a CPU list"),
        (broken(ledger='{"entries":[{}]}'), "uid"),
        (
            broken(ledger=owners("8-9")),
            "ns/a/c owns CPUs 8-9, which the machine does not",
        ),
        (
            broken(ledger=owners("1-2", "2")),
            "ns/a/c owns CPU 2, which another has too",
        ),
        (published({"metadata": {"name": "n"}}), "the CPUs are unknown"),
        (published(GOOD | {"zones": [{"name": "numa0", "type": "Node"}]}), "such as 'node-0'"),
        (published(GOOD | {"zones": [{"name": "node-99999999", "type": "Node"}]}), "ids up to 1023"),
        (published(GOOD | {"zones": [{"name": "node-0", "type": "Node"}] * 2}), "another zone has this name"),
        (
            published(
                GOOD
                | {
                    "zones": [
                        {"name": "node-0", "type": "Node", "resources": [{"name": "memory", "capacity": "x"}]}
                    ]
                }
            ),
            "quantities must",
        ),
    ],
)
def test_what_is_broken_is_named(nrt: NodeResourceTopology, why: str) -> None:
    with pytest.raises(TranslationError) as caught:
        translate.state_from_topology(nrt)
    assert why in str(caught.value)
    assert caught.value.field.startswith(("metadata.annotations", "zones["))


def test_hundreds_of_cpus_take_kilobytes() -> None:
    machine = parse_spec("socket:2 numa:1 l3:12 core:8 smt:2", name="big")
    annotations = translate.topology(machine, "big", node.new(machine))["metadata"]["annotations"]
    assert len(annotations[keys.MACHINE]) < 8_000
    assert sum(map(len, annotations.values())) < 40_000
