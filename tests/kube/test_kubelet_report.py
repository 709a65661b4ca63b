"""What a kubelet beside the agent does, as published on the node's topology and on its pods."""

import json

import msgspec
import pytest

from corelane import node
from corelane.cpuset import CPUSet
from corelane.kube import keys, objects, translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import kubelet_report, node_labels
from corelane.kube.translate.koordlet import KubeletReport, PodCPUs
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from support.pods import guaranteed

SERVER = parse_spec("socket:2 core:4 smt:2", name="n")


def settings(**fields):
    tree = {"kubeletconfig": fields}
    return kubelet_report.kubelet_settings(
        objects.decode_kubelet_configuration(json.dumps(tree).encode()), SERVER
    )


def published(**options):
    body = translate.topology(SERVER, "n", node.new(SERVER, NodeConfig("pools")), **options)
    return msgspec.json.decode(msgspec.json.encode(body), type=NodeResourceTopology)


def test_settings_of_the_node_are_not_published_as_the_kubelets():
    report = KubeletReport(settings(topologyManagerPolicy="restricted"))
    nrt = published(kubelet=report)
    assert node_labels.published_kubelet(nrt) == report.settings
    assert nrt.metadata.annotations[keys.CPU_MANAGER_POLICY] == '{"policy":"none"}'
    assert nrt.topology_policies == ("RestrictedContainerLevel",)


def test_the_kubelets_pods_and_reserved_cpus_are_not_free_in_the_zones():
    report = KubeletReport(
        settings(cpuManagerPolicy="static", reservedSystemCPUs="0,8"),
        (PodCPUs("ns", "web", "u", CPUSet.parse("1,9")),),
    )
    nrt = published(kubelet=report)
    assert json.loads(nrt.metadata.annotations[keys.POD_CPU_ALLOCS]) == [
        {"namespace": "ns", "name": "web", "uid": "u", "cpuset": "1,9", "managedByKubelet": True}
    ]
    assert node_labels.published_kubelet(nrt).reserved == CPUSet.parse("0,8")


def test_an_ignored_kubelet_is_not_published():
    body = translate.topology(SERVER, "n", node.new(SERVER), kubelet=KubeletReport())
    annotations = body["metadata"]["annotations"]
    assert keys.CPU_MANAGER_POLICY not in annotations
    assert keys.POD_CPU_ALLOCS not in annotations
    patched = translate.as_patch(body)["metadata"]["annotations"]
    assert patched[keys.CPU_MANAGER_POLICY] is None
    assert patched[keys.POD_CPU_ALLOCS] is None


@pytest.mark.parametrize(
    ("fields", "reserved"),
    [
        ({}, ""),
        ({"cpuManagerPolicy": "none", "reservedSystemCPUs": "0-1"}, ""),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}, "0-1"),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": "x"}, ""),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "500m"}}, "0"),
        (
            {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1500m"}, "systemReserved": {"cpu": "2"}},
            "0-1,8-9",
        ),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "?"}}, ""),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "99"}}, ""),
        ({"cpuManagerPolicy": "static"}, ""),
    ],
)
def test_reserved_cpus_are_those_of_the_kubelet(fields, reserved):
    assert str(settings(**fields).reserved) == reserved


@pytest.mark.parametrize(
    "zones", [[], [{"name": "node-0", "type": "Node"}], [{"name": "numa0", "type": "Node"}]]
)
def test_a_ledger_beside_zones_of_another_exporter_is_read(zones):
    body = translate.topology(SERVER, "n", node.new(SERVER, NodeConfig("pools")))
    del body["metadata"]["labels"]
    nrt = msgspec.json.decode(msgspec.json.encode({**body, "zones": zones}), type=NodeResourceTopology)
    state = translate.state_from_topology(nrt)
    assert state.machine.usable == SERVER.usable
    assert node.admit(state, translate.request(guaranteed("p", "6")))[1].admitted


def test_options_and_topology_manager_are_the_kubelets():
    found = settings(
        cpuManagerPolicy="static",
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
        reservedSystemCPUs="0",
        topologyManagerPolicy="single-numa-node",
        topologyManagerScope="pod",
    )
    assert found.options == {"full-pcpus-only": "true"}
    assert (found.topology_policy, found.topology_scope) == ("single-numa-node", "pod")


def test_the_kubelets_cpus_of_a_pod_are_an_annotation_that_is_never_a_proposal():
    text = kubelet_report.kubelet_cpusets({"b": CPUSet(), "main": CPUSet.parse("2-3")})
    assert text == {keys.KUBELET_CPUSETS: '{"main":"2-3"}'}
    pod = guaranteed("p", "2")
    metadata = msgspec.structs.replace(pod.metadata, annotations=text)
    assert translate.request(msgspec.structs.replace(pod, metadata=metadata)).proposal == {}


def test_only_pods_with_another_annotation_are_written():
    same = {keys.KUBELET_CPUSETS: '{"main":"2-3"}'}
    assignments = {uid: {"main": CPUSet.parse("2-3")} for uid in ("same", "new", "moved")}
    pods = [
        ("same", same),
        ("new", {}),
        ("moved", {keys.KUBELET_CPUSETS: '{"main":"4-5"}'}),
        ("released", same),
        ("shared", {"other": "x"}),
    ]
    changes = kubelet_report.differing_cpusets(assignments, pods)
    assert changes == {"new": same, "moved": same, "released": {keys.KUBELET_CPUSETS: None}}
