"""A node as Koordinator publishes it, both ways; the zones of every level; and gocrane's object."""

import json
from dataclasses import replace
from fractions import Fraction

import msgspec
import pytest

from corelane import node
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import TranslationError, crane, koordlet, node_labels
from corelane.kube.translate.crane import CraneTopology
from corelane.kube.translate.koordlet import PodCPUs, PoolPart
from corelane.machine.facts import CPUFacts
from corelane.machine.spec import parse_spec
from corelane.node import StaticOptions, TopologyOptions
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.entries import Entry, Origin, Sharing
from corelane.node.ledger import with_entries
from corelane.node.pools.classes import NodePolicies
from corelane.workload import BindPolicy, NUMAPolicy
from support.pods import guaranteed

COPIED = (keys.RESERVATION, keys.SYSTEM_QOS, keys.AMPLIFICATION)
SERVER = parse_spec("socket:2 numa:2 l3:2 core:2 smt:2 mem:8G", name="n")


def state(config=None, *entries):
    empty = node.new(SERVER, config)
    pods = {entry.uid: 1000 * len(entry.cpus) for entry in entries}
    return with_entries(empty, {entry.key: entry for entry in entries}, pods)


def entry(uid, cpus, **more):
    return Entry(uid, "c", f"ns/{uid}", CPUSet.parse(cpus), **({"sharing": Sharing.ALONE} | more))


def annotations(of, **more):
    return translate.topology(SERVER, "n", of, **more)["metadata"]["annotations"]


def decoded(obj):
    return msgspec.json.decode(msgspec.json.encode(obj), type=NodeResourceTopology)


def test_the_pools_of_ls_and_be_are_published_by_socket_and_numa_node():
    lent = entry("b", "2-3", sharing=Sharing.SHARED_WITH_BE)
    found = annotations(state(NodeConfig("pools", reserved=CPUSet([7])), entry("a", "0-1"), lent))
    shared = koordlet.pools(found)
    assert [(one.socket, one.node) for one in shared] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert shared[0] == PoolPart(0, 0, CPUSet.parse("16-19"))
    best_effort = koordlet.pools(found, keys.BE_CPU_SHARED_POOLS)
    assert best_effort[0].cpus == CPUSet.parse("2-3,16-19")
    assert best_effort[1:] == shared[1:]


def test_a_zone_is_written_by_socket_and_numa_node():
    assert translate.places(SERVER, CPUSet([1, 2])) == ((0, 1), (1, 2))
    assert translate.places(SERVER, CPUSet([9])) == ()


def test_only_the_kubelets_pods_are_in_pod_cpu_allocs_and_null_is_none():
    assert annotations(state(None, entry("a", "0-1")))[keys.POD_CPU_ALLOCS] == "null"
    kubelets_own = (
        entry("k", "2-3", origin=Origin.KUBELET),
        replace(entry("k", "5", origin=Origin.KUBELET), container="d"),
    )
    found = annotations(state(None, entry("a", "0-1"), *kubelets_own))
    text = '[{"namespace":"ns","name":"k","uid":"k","cpuset":"2-3,5","managedByKubelet":true}]'
    assert found[keys.POD_CPU_ALLOCS] == text
    assert koordlet.pod_allocations(found) == (PodCPUs("ns", "k", "k", CPUSet.parse("2-3,5")),)


def test_a_pod_only_in_the_kubelets_state_is_named_by_its_uid():
    gone = replace(entry("k", "2", origin=Origin.KUBELET), pod="/pod with UID k")
    found = annotations(state(None, gone))
    assert found[keys.POD_CPU_ALLOCS] == '[{"uid":"k","cpuset":"2","managedByKubelet":true}]'


def test_the_proposals_spelling_of_pod_cpu_allocs_is_understood():
    text = '[{"namespace":"d","name":"p","uid":"u","cpu":"4-8","managedByKubelet":"true"}]'
    (found,) = koordlet.pod_allocations({keys.POD_CPU_ALLOCS: text})
    assert (found.cpus, found.managed_by_kubelet) == (CPUSet.parse("4-8"), True)


def test_facts_of_the_cpus_leave_out_what_is_false_or_empty():
    facts = CPUFacts("Some CPU", "GenuineIntel", True, "7ff")
    found = annotations(state(), facts=facts)
    assert found[keys.CPU_BASIC_INFO] == (
        '{"cpuModel":"Some CPU","hyperThreadEnabled":true,"turboEnabled":true,"catL3CbmMask":"7ff",'
        '"vendorID":"GenuineIntel"}'
    )
    assert annotations(state())[keys.CPU_BASIC_INFO] == '{"hyperThreadEnabled":true}'


def kept(config, **own):
    """What is published of reservation, SYSTEM pods' CPUs and amplification, read back."""
    found = annotations(state(config), node_annotations=own.get("own", {}))
    return [json.loads(found[key]) if key in found else None for key in COPIED]


def test_withheld_cpus_are_published_where_koordinators_scheduler_reads_them():
    assert kept(NodeConfig("pools")) == [{}, None, None]
    pools = PoolOptions(withheld=CPUSet([1]), system=CPUSet([2, 3]), amplification=Fraction(3, 2))
    told = kept(NodeConfig("pools", pools=pools))
    assert told == [{"reservedCPUs": "1"}, {"cpuset": "2-3", "cpusetExclusive": True}, {"cpu": 1.5}]
    text = annotations(state(NodeConfig("pools", pools=pools)))[keys.AMPLIFICATION]
    assert text == '{"cpu":1.50}'


def test_excluded_isolated_cpus_count_as_reserved():
    machine = replace(SERVER, isolated=CPUSet([5, 6]))
    for rule, told in (("exclude", {"reservedCPUs": "5-6"}), ("exclusive-only", {}), ("ignore", {})):
        config = NodeConfig("pools", pools=PoolOptions(isolated_cpus=rule))
        found = translate.topology(machine, "n", node.new(machine, config))["metadata"]["annotations"]
        assert json.loads(found[keys.RESERVATION]) == told


def test_a_nodes_own_reservation_keeps_what_else_it_says_and_names_the_cpus():
    said = {"resources": {"cpu": "2", "memory": "1Gi"}, "applyPolicy": "ReservedCPUsOnly", "other": 1}
    own = {keys.RESERVATION: json.dumps(said), keys.SYSTEM_QOS: '{"cpuset":"4","cpusetExclusive":false}'}
    config = NodeConfig("pools", pools=PoolOptions(withheld=CPUSet([0, 16]), withheld_offered=True))
    assert kept(config, own=own)[0] == {
        "resources": {"cpu": "2", "memory": "1Gi"}, "reservedCPUs": "0,16", "applyPolicy": "ReservedCPUsOnly",
    }  # fmt: skip
    told = kept(NodeConfig("static"), own=own)
    assert told[0]["reservedCPUs"] == "0,16"
    assert told[1:] == [{"cpuset": "4", "cpusetExclusive": False}, None]


def test_a_reservation_is_passed_on_without_what_would_spoil_it():
    said = {"Resources": {"cpu": "1", "x": "much", "v": [], "y": True, "z": 3, "w": "-1"}}
    found = kept(NodeConfig("static"), own={keys.RESERVATION: json.dumps(said)})
    assert found[0] == {"resources": {"cpu": "1", "z": 3}, "reservedCPUs": "0"}


def test_names_of_members_are_read_in_any_case_as_go_does():
    text = '[{"UID":"u","CPUSet":"4","managedbykubelet":true}]'
    (found,) = koordlet.pod_allocations({keys.POD_CPU_ALLOCS: text})
    assert (found.uid, found.cpus, found.managed_by_kubelet) == ("u", CPUSet([4]), True)
    (pool,) = koordlet.pools({keys.CPU_SHARED_POOLS: '[{"Socket":1,"NODE":2,"CPUSET":"7"}]'})
    assert pool == PoolPart(1, 2, CPUSet([7]))


def test_invalid_amounts_are_not_published():
    own = {keys.RESERVATION: "{", keys.SYSTEM_QOS: '{"cpuset": 3}', keys.AMPLIFICATION: "x"}
    for config in (NodeConfig("pools"), NodeConfig("static"), NodeConfig("none")):
        assert kept(config, own=own) == [{}, None, None]


def test_a_patch_takes_away_an_amplification_that_is_no_more():
    body = translate.topology(SERVER, "n", state(NodeConfig("pools")))
    patched = translate.as_patch(body)["metadata"]["annotations"]
    assert patched.pop(keys.AMPLIFICATION) is None
    assert patched == body["metadata"]["annotations"]
    pools = PoolOptions(amplification=Fraction(5, 4))
    amplified = translate.topology(SERVER, "n", state(NodeConfig("pools", pools=pools)))
    assert translate.as_patch(amplified) == amplified


@pytest.mark.parametrize(
    ("config", "manager", "policies"),
    [
        (NodeConfig("none"), '{"policy":"none"}', ["None"]),
        (
            NodeConfig(reserved=CPUSet([0, 1])),
            '{"policy":"static","reservedCPUs":"0-1"}',
            ["BestEffortContainerLevel"],
        ),
        (
            NodeConfig(
                reserved=CPUSet([0, 1]),
                options=StaticOptions(full_pcpus_only=True),
                numa=TopologyOptions("restricted", "pod"),
            ),
            '{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0-1"}',
            ["RestrictedPodLevel", "Restricted"],
        ),
        (NodeConfig("pools"), '{"policy":"none","reservedCPUs":"0,16"}', ["None"]),
        (
            NodeConfig("pools", reserved=CPUSet([3]), pools=PoolOptions(numa=NUMAPolicy.SINGLE_NUMA_NODE)),
            '{"policy":"none","reservedCPUs":"3"}',
            ["SingleNUMANodePodLevel"],
        ),
        (
            NodeConfig("pools", reserved=CPUSet([3]), pools=PoolOptions(numa=NUMAPolicy.BEST_EFFORT)),
            '{"policy":"none","reservedCPUs":"3"}',
            ["BestEffortPodLevel", "BestEffort"],
        ),
    ],
)
def test_policies_are_published_in_the_kubelets_words_and_read_back(config, manager, policies):
    obj = translate.topology(SERVER, "n", state(config))
    assert obj["metadata"]["annotations"][keys.CPU_MANAGER_POLICY] == manager
    assert obj["topologyPolicies"] == policies
    assert node_labels.published_kubelet(decoded(obj)) == koordlet.kubelet_settings(state(config))
    older = decoded(translate.topology(SERVER, "n", state(config), version="v1alpha1"))
    assert node_labels.published_kubelet(older).topology_policy == koordlet.numa_alignment(state(config))[0]


def test_zones_of_every_level_name_the_unit_around_them():
    obj = translate.topology(SERVER, "n", state(), levels=("socket", "node", "l3", "core"))
    zones = {zone["name"]: zone for zone in obj["zones"]}
    assert len(zones) == 2 + 4 + 8 + 16
    parents = {
        name: zones[name].get("parent") for name in ("socket-0", "node-1", "l3-7", "core-0", "core-15")
    }
    expected = {"socket-0": None, "node-1": "socket-0", "l3-7": "node-3", "core-0": "l3-0", "core-15": "l3-7"}
    assert parents == expected
    assert zones["core-15"]["type"] == "Core"
    assert zones["core-15"]["attributes"] == [{"name": "cpus", "value": "15,31"}]
    assert zones["l3-7"]["resources"][0]["capacity"] == "4"
    sizes = {
        level: len(translate.topology(SERVER, "n", state(), levels=(level,))["zones"])
        for level in ("node", "l3")
    }
    assert sizes == {"node": 4, "l3": 8}


def test_caches_that_are_the_numa_nodes_are_no_zones():
    machine = parse_spec("socket:2 numa:1 core:2", name="n")
    names = [zone["name"] for zone in translate.topology(machine, "n", node.new(machine))["zones"]]
    assert names == ["node-0", "node-1", "socket-0", "socket-1"]


def test_v1alpha1_has_the_same_zones_and_no_attributes_of_its_own():
    newer, older = (translate.topology(SERVER, "n", state(), version=v) for v in ("v1alpha2", "v1alpha1"))
    assert older["apiVersion"] == "topology.node.k8s.io/v1alpha1"
    assert newer.keys() - older.keys() == {"attributes"}
    assert older["zones"] == newer["zones"]
    assert translate.machine_from_topology(decoded(older)) == translate.machine_from_topology(decoded(newer))


def test_of_a_koordlets_node_the_kubelets_pods_and_reserved_cpus_are_known():
    full = annotations(state())
    allocs = [{"namespace": "ns", "name": "p", "uid": "u", "cpuset": "4-5,999", "managedByKubelet": True}]
    theirs = {
        keys.CPU_TOPOLOGY: full[keys.CPU_TOPOLOGY],
        keys.CPU_MANAGER_POLICY: '{"policy":"static","reservedCPUs":"0,16"}',
        keys.POD_CPU_ALLOCS: json.dumps(allocs),
    }
    found = translate.state_from_topology(decoded({"metadata": {"name": "n", "annotations": theirs}}))
    assert (found.exclusive, found.reserved) == (CPUSet([4, 5]), CPUSet([0, 16]))
    (owner,) = found.entries.values()
    assert (owner.pod, owner.origin, owner.uid, owner.cls) == ("ns/p", Origin.KUBELET, "u", "LSR")
    assert not found.free_exclusive & CPUSet([0, 4, 5, 16])
    assert found.config.policy == "pools"
    assert node.validate(found) == []


def test_a_koordlets_node_has_upstreams_pools():
    theirs = {
        keys.CPU_TOPOLOGY: annotations(state())[keys.CPU_TOPOLOGY],
        keys.CPU_MANAGER_POLICY: json.dumps(
            {"policy": "static", "options": {"full-pcpus-only": "true"}, "reservedCPUs": "0,16"}
        ),
        keys.RESERVATION: '{"resources":{"cpu":"2"},"reservedCPUs":"1,17,400"}',
        keys.SYSTEM_QOS: '{"cpuset":"2"}',
    }
    obj = {"metadata": {"name": "n", "annotations": theirs}, "topologyPolicies": ["Restricted"]}
    found = translate.state_from_topology(decoded(obj))
    assert str(found.shared_pool) == "0,3-16,18-31"
    assert str(found.free_exclusive) == "3-15,18-31"
    pools = found.config.pools
    assert (pools.allocator, pools.numa, pools.node_bind) == (
        "koordinator", NUMAPolicy.RESTRICTED, BindPolicy.FULL_PCPUS,
    )  # fmt: skip
    whole = translate.request(guaranteed("p", "2"))
    assert node.admit(found, whole)[1].assignments == {}
    labelled = translate.request(guaranteed("q", "2", labels={keys.QOS_CLASS: "LSR"}, priority=9500))
    assert str(node.admit(found, labelled)[1].assignments["main"]) == "4,20"


@pytest.mark.parametrize(
    ("key", "text", "field", "why", "reader"),
    [
        (keys.CPU_SHARED_POOLS, "{}", "", "not a JSON list", koordlet.pools),
        (keys.CPU_SHARED_POOLS, "[7]", "[0]", "not a JSON object", koordlet.pools),
        (keys.CPU_SHARED_POOLS, '[{"node":"a"}]', "[0].node", "must be a number", koordlet.pools),
        (keys.CPU_SHARED_POOLS, '[{"cpuset":"a"}]', "[0].cpuset", "not a CPU list", koordlet.pools),
        (keys.POD_CPU_ALLOCS, '[{"uid":1}]', "[0].uid", "must be a string", koordlet.pod_allocations),
        (
            keys.POD_CPU_ALLOCS,
            '[{"managedByKubelet":3}]',
            "[0].managedByKubelet",
            "use true",
            koordlet.pod_allocations,
        ),
    ],
)
def test_broken_annotations_are_named(key, text, field, why, reader):
    with pytest.raises(TranslationError) as caught:
        reader({key: text})
    assert caught.value.field == f"metadata.annotations[{key}]{field}"
    assert why in caught.value.why


CRANE = {
    "metadata": {"name": "worker-7"},
    "craneManagerPolicy": {"cpuManagerPolicy": "Static", "topologyManagerPolicy": "SingleNUMANodePodLevel"},
    "reserved": {"cpu": "2"},
    "attributes": {"go.crane.io/reserved-system-cpus": "0,8"},
    "zones": [
        {
            "name": "node0",
            "type": "Node",
            "costs": [{"name": "node0", "value": 10}, {"name": "node1", "value": 21}],
            "resources": {
                "capacity": {"cpu": "8", "memory": "32Gi"},
                "allocatable": {"cpu": "5500m", "memory": "31Gi"},
                "reservedCPUNums": 2,
            },
        },
        {"name": "socket0", "type": "Socket"},
    ],
}


def cranes(**change):
    return msgspec.convert(CRANE | change, CraneTopology)


def test_gocranes_object_is_read():
    found = crane.crane_node(cranes())
    assert (found.pins, found.reserved) == (True, CPUSet([0, 8]))
    assert found.policies == NodePolicies(numa=NUMAPolicy.SINGLE_NUMA_NODE)
    (numa,) = found.numa
    assert (numa.id, numa.cpu, numa.cpu_allocatable, numa.reserved_cpus) == (0, 8000, 5500, 2)
    assert (numa.memory, numa.memory_allocatable, numa.distances) == (2**35, 31 * 2**30, {0: 10, 1: 21})
    kubelets_own = crane.crane_node(
        cranes(craneManagerPolicy={"cpuManagerPolicy": "None", "topologyManagerPolicy": "None"})
    )
    assert (kubelets_own.pins, kubelets_own.policies.numa) == (False, NUMAPolicy.NONE)


@pytest.mark.parametrize(
    ("change", "field", "why"),
    [
        (
            {"craneManagerPolicy": {"cpuManagerPolicy": "x"}},
            "craneManagerPolicy.cpuManagerPolicy",
            "use None or",
        ),
        (
            {"craneManagerPolicy": {"topologyManagerPolicy": "x"}},
            "craneManagerPolicy.topologyManagerPolicy",
            "use",
        ),
        (
            {"attributes": {"go.crane.io/reserved-system-cpus": "a"}},
            "attributes[go.crane.io/",
            "not a CPU list",
        ),
        ({"zones": [{"name": "n0", "type": "Node"}]}, "zones[0].name", "such as 'node0'"),
        (
            {"zones": [{"name": "node0", "type": "Node", "resources": {"capacity": {"cpu": "x"}}}]},
            "zones[0].resources.capacity.cpu",
            "quantities must",
        ),
    ],
)
def test_a_broken_object_of_gocranes_is_named(change, field, why):
    with pytest.raises(TranslationError) as caught:
        crane.crane_node(cranes(**change))
    assert caught.value.field.startswith(field)
    assert why in caught.value.why
