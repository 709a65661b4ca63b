"""`corelane allocate` under policy `pools`, and all allocators side by side, as people use them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from corelane.cli import main
from corelane.cpuset import CPUSet
from support import stories

MACHINE = ("--machine", "socket:2 core:4 smt:2")


def run(*args, machine=MACHINE, code=0):
    done = CliRunner().invoke(main, ["allocate", *machine, *map(str, args)])
    assert done.exit_code == code, done.output
    return done.output


def told(*args, **more):
    return json.loads(run(*args, "-o", "json", **more))


def fails(*args):
    lines = run(*args, code=2).strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_the_objective_is_told_term_by_term():
    found = told("--cpus", "4", "--policy", "pools")
    assert found["policy"] == "pools"
    objective = found["objective"]
    assert objective["allocator"] == "optimal"
    assert objective["proven"] is True
    terms = {term["name"]: term for term in objective["terms"]}
    assert terms["numa-nodes"]["value"] == 1
    assert terms["numa-nodes"]["number"] == "2b"
    assert objective["runnerUp"]
    text = run("--cpus", "4", "--policy", "pools")
    assert "NUMA nodes" in text
    assert f"runner-up {objective['runnerUp']}" in text


@pytest.mark.parametrize(
    ("flags", "policy", "allocator"),
    [
        ((), "pools", "optimal"),
        (("--option", "full-pcpus-only=true"), "static", None),
        (("--allocator", "kubelet"), "static", None),
        (("--allocator", "koordinator"), "pools", "koordinator"),
        (("--allocator", "optimal"), "pools", "optimal"),
        (("--qos", "LSE"), "pools", "optimal"),
        (("--policy", "none"), "none", None),
    ],
)
def test_the_allocator_and_wishes_choose_the_policy(flags, policy, allocator):
    found = told("--cpus", "2", *flags)
    assert found["policy"] == policy
    assert (found["objective"] or {}).get("allocator") == allocator


def test_flags_say_what_annotations_do():
    whole = ("--qos", "LSE", "--exclusive", "core", "--numa-policy", "SingleNUMANode")
    found = told("--cpus", "3", *whole, "--bind", "SpreadByPCPUs", "--bind-required")
    assert found["containers"][0]["quality"]["cores"] == 3
    assert found["containers"][0]["quality"]["numa_nodes"] == 1
    evenly = told("--cpus", "4", "--strategy", "DistributeEvenly")
    assert evenly["containers"][0]["quality"]["numa_nodes"] == 1
    shared = told("--cpus", "2", "--cpu-policy", "none")
    assert not shared["containers"][0]["exclusive"]


def test_what_would_help_is_told_where_nothing_fits():
    found = told("--cpus", "14", "--numa-policy", "SingleNUMANode", code=1)
    assert {change["kind"] for change in found["objective"]["changes"]} == {"fewer", "soften"}
    assert "request 8 CPUs or fewer" in run("--cpus", "14", "--numa-policy", "SingleNUMANode", code=1)


def test_a_drawing_tells_the_terms_or_what_would_help():
    drawn = run("--cpus", "4", "--policy", "pools", "-o", "svg")
    assert drawn.startswith("<svg")
    assert "2b. NUMA nodes: 1 (runner-up 1)" in drawn
    refused = run("--cpus", "14", "--numa-policy", "SingleNUMANode", "-o", "svg", code=1)
    assert "would fit: request 8 CPUs or fewer" in refused


def test_the_nodes_labels_and_the_kubelets_options_count():
    full = ("--node-label", "node.koordinator.sh/cpu-bind-policy=FullPCPUsOnly")
    for said in (full, ("--option", "full-pcpus-only=true")):
        found = told("--cpus", "3", "--policy", "pools", *said, code=1)
        assert found["reason"] == "SMTAlignmentError"
        assert "multiple" in found["message"]


def test_settings_come_from_a_node_or_a_file_of_settings(tmp_path: Path):
    node = tmp_path / "node.yaml"
    node.write_text(
        "kind: Node\nmetadata:\n  labels: {node.koordinator.sh/cpu-bind-policy: FullPCPUsOnly}\n"
        '  annotations: {node.koordinator.sh/reservation: \'{"reservedCPUs": "0-3"}\'}\n'
    )
    assert told("--cpus", "3", "--node", node, code=1)["reason"] == "SMTAlignmentError"
    assert told("--cpus", "6", "--node", node)["containers"][0]["cpus"] == "4-6,12-14"
    config = tmp_path / "settings.yaml"
    config.write_text("policy: pools\nallocator: koordinator\nreservedCPUs: '0-1'\n")
    found = told("--cpus", "2", "--node-config", config)
    assert (found["reserved"], found["objective"]["allocator"]) == ("0-1", "koordinator")
    assert told("--cpus", "2", "--node-config", config, "--reserved-cpus", "0")["reserved"] == "0"
    assert told("--cpus", "2", "--node-config", config, "--allocator", "optimal")["reserved"] == "0-1"


@pytest.mark.parametrize("policy", ["pools", "static"])
def test_devices_of_the_nodes_file_count_and_flags_go_before_them(tmp_path, policy):
    config = tmp_path / "node.yaml"
    strict = "pools: {numaPolicy: SingleNUMANode}\nstatic: {topologyManagerPolicy: single-numa-node}\n"
    config.write_text(f"devices: {{example.com/nic: {{1: 1}}}}\n{strict}")
    request = ("--cpus", "2", "--device", "example.com/nic=1", "--policy", policy, "--node-config", config)
    (one,) = told(*request)["containers"]
    assert set(CPUSet.parse(one["cpus"])) <= set(CPUSet.parse("4-7,12-15")), "near NUMA node 1"
    (one,) = told(*request, "--node-device", "example.com/nic=vf0@0")["containers"]
    assert set(CPUSet.parse(one["cpus"])) <= set(CPUSet.parse("0-3,8-11"))


def test_a_kubelets_state_is_taken_over_under_pools(tmp_path: Path):
    state = tmp_path / "cpu_manager_state"
    content = '{"policyName":"static","defaultCpuSet":"0-3,6-11,14-15","entries":{"u":{"c":"4-5,12-13"}}}'
    state.write_text(content.replace("}}}", '}},"checksum":0}'))
    found = told("--cpus", "4", "--policy", "pools", "--state", state, "--reserved-cpus", "0")
    assert found["containers"][0]["cpus"]
    assert CPUSet.parse(found["free"]) == CPUSet.parse("1-3,6-11,14-15")


def test_allocators_stand_side_by_side():
    found = told("--cpus", "6", "--compare")
    (pod,) = found["pods"]
    assert [one["name"] for one in pod["allocators"]] == ["kubelet", "koordinator", "optimal"]
    assert all(one["terms"]["numa-nodes"] == 1 for one in pod["allocators"])
    text = run("--cpus", "6", "--compare")
    assert text.index("kubelet") < text.index("koordinator") < text.index("optimal")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--cpus", "2", "--policy", "static", "--qos", "LSE"), "--qos needs --policy pools"),
        (("--cpus", "2", "--policy", "pools", "--allocator", "kubelet"), "--policy static"),
        (("--cpus", "2", "--allocator", "kubelet", "--bind", "FullPCPUs"), "--bind"),
        (("--cpus", "2", "--bind-required"), "--bind"),
        (("--cpus", "2", "--compare", "--allocator", "optimal"), "--compare"),
        (("--cpus", "2", "--compare", "-o", "svg"), "--compare"),
        (("--cpus", "2", "--policy", "pools", "--kubernetes-version", "1.36"), "--kubernetes-version"),
        (("--cpus", "2", "--node-label", "nonsense"), "--node-label"),
        (("--cpus", "2", "--node-label", "node.koordinator.sh/cpu-bind-policy=All"), "'All'"),
        (("--cpus", "2", "--isolate", "a-b"), "--isolate"),
        (("--cpus", "2", "--policy", "pools", "--option", "full-pcpus=true"), "full-pcpus"),
        (("--cpus", "2", "--policy", "pools", "--option", "full-pcpus-only=maybe"), "maybe"),
        (("--cpus", "2", "--policy", "pools", "--reserved-cpus", "77"), "77"),
        (("--cpus", "2", "--isolate", "99"), "99"),
        (("--cpus", "2", "--be-minimum", "99"), "--be-minimum: 99"),
        (("-f", stories.path("7-trading"), "--qos", "LSE"), "--qos"),
        (("--cpus", "2", "--node", stories.path("7-trading")), "Pod"),
    ],
)
def test_wrong_input_is_one_line(args, words):
    assert words in fails(*args)


def test_broken_nodes_are_named_with_their_fault(tmp_path: Path):
    path = tmp_path / "node.yaml"
    for content, words in (
        ("kind: Node\nmetadata: {labels: {a: 1}}", "metadata.labels"),
        ("kind: Node\nmetadata: 3", "metadata"),
        ("kind: NodeResourceTopology\nmetadata: {name: n}", "annotations"),
        ("a: [", "YAML"),
        (
            "kind: Node\nmetadata: {annotations: {node.koordinator.sh/reservation: '{'}}",
            "node.koordinator.sh/reservation",
        ),
    ):
        path.write_text(content)
        found = fails("--cpus", "2", "--policy", "pools", "--node", path)
        assert str(path) in found
        assert words in found


def test_pods_come_as_kubectl_prints_them_too(tmp_path: Path):
    pods = [
        {
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"koordinator.sh/qosClass": "LSR"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
        }
        for name in ("a", "b")
    ]
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": pods}))
    found = told("-f", path, "--policy", "pools")
    assert [one["pod"] for one in found["pods"]] == ["default/a", "default/b"]
    path.write_text(json.dumps({"kind": "List", "items": [1]}))
    assert "items" in fails("-f", path)


def test_a_setting_that_a_file_names_is_refused_by_its_name_there(tmp_path: Path):
    config = tmp_path / "settings.yaml"
    config.write_text("pools: {beMinimum: 99}\n")
    assert f"{config}: pools.beMinimum: 99" in fails("--cpus", "2", "--node-config", config)


def test_wishes_that_do_not_count_are_pointed_out():
    path = stories.path("4-exclusive-instances")
    notes = [note for pod in told("-f", path, "--policy", "static")["pods"] for note in pod["notes"]]
    assert any("--policy pools" in note for note in notes)
