"""`corelane state repair --cri`: the runtime reports names and CPU requests of running containers."""

import json

import pytest
from click.testing import CliRunner

from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.runtime.cri import client as cri
from support import fake_cri
from support.kubepods import Kubepods, listed
from support.protobuf import encode

A, B, C, PAUSE, OTHER = (letter * 64 for letter in "abcde")
SETTINGS = ("--machine", "socket:1 core:8 smt:2", "--reserved", "1")
POOL = "0-1,4-9,12-15"


def repair(file, root, endpoint, *more):
    args = [
        "state",
        "repair",
        file,
        *SETTINGS,
        "--root",
        root,
        f"--cri={endpoint}",
        "-y",
        "-o",
        "json",
        *more,
    ]
    return CliRunner().invoke(main, [str(arg) for arg in args])


def entries(file):
    found = checkpoint.decode(file.read_bytes())
    return {f"{uid}/{name}": str(cpus) for uid, of in found.entries.items() for name, cpus in of.items()}


def answers(containers, shares=None, sandboxes=(), cpus=None):
    """Of a runtime with sandboxes s1, s2, … of pods u1, u2, …; containers are (id, pod's number, name)."""

    def status(request, _context):
        ident = request[2:66].decode()
        return encode(fake_cri.linux((shares or {}).get(ident, 0), (cpus or {}).get(ident, "")))

    pods = sorted({number for _, number, _ in containers})
    found = [fake_cri.sandbox(f"s{n}", f"u{n}", f"pod{n}") for n in pods]
    return {
        "ListPodSandbox": {1: [*found, *sandboxes]},
        "ListContainers": {1: [fake_cri.container(ident, f"s{n}", name) for ident, n, name in containers]},
        "ContainerStatus": status,
    }


@pytest.fixture
def file(tmp_path):
    return tmp_path / "cpu_manager_state"


@pytest.fixture
def tree(tmp_path):
    return Kubepods(tmp_path / "root")


@pytest.fixture
def serve(tmp_path):
    return lambda told: fake_cri.serving(tmp_path / "cri.sock", told)


def test_owners_get_names_and_a_single_container_in_the_pool_is_not_an_owner(file, tree, serve):
    """Without the runtime's word that `share` asked for 1.5 CPUs, the pool would be taken for its own."""
    tree.add("u1", A, "2,10")
    tree.add("u2", B, POOL)
    told = answers([(A, 1, "app"), (B, 2, "share")], {A: 2048, B: 1536})
    with serve(told) as endpoint:
        result = repair(file, tree.root, endpoint)
    assert result.exit_code == 0, result.output
    assert entries(file) == {"u1/app": "2,10"}
    assert json.loads(result.stdout)["changes"][0]["pod"] == "default/pod1"


def test_lost_cpus_are_replaced_up_to_the_request(file, tree, serve):
    tree.add("u1", A, "0,10")
    with serve(answers([(A, 1, "app")], {A: 2048})) as endpoint:
        assert repair(file, tree.root, endpoint).exit_code == 0
    (cpus,) = entries(file).values()
    assert "10" in cpus.split(",")
    assert len(CPUSet.parse(cpus)) == 2
    assert 0 not in CPUSet.parse(cpus)


def test_sandboxes_have_no_exclusive_cpus(file, tree, serve):
    tree.add("u1", PAUSE, "4-5")
    tree.add("u1", A, "2,10")
    told = answers([(A, 1, "app")], {A: 2048}, [fake_cri.sandbox(PAUSE, "u1", "pod1")])
    with serve(told) as endpoint:
        assert repair(file, tree.root, endpoint).exit_code == 0
    assert entries(file) == {"u1/app": "2,10"}


def test_cpus_of_an_owner_unknown_to_the_runtime_stay_allocated(file, tree, serve):
    tree.add("u1", A, "2,10")
    tree.add("u3", OTHER, "3,11")
    with serve(answers([(A, 1, "app")], {A: 2048})) as endpoint:
        result = repair(file, tree.root, endpoint)
    assert entries(file) == {"u1/app": "2,10", f"u3/unknown-{OTHER[:12]}": "3,11"}
    notes = json.loads(result.stdout)["notes"]
    assert any("fake 1.0) does not list 1 of 2 containers" in note for note in notes)
    assert any("1 owner has no name" in note for note in notes)


def test_the_socket_of_another_runtime_is_noted(file, tree, serve):
    tree.add("u1", A, "2,10")
    with serve(answers([])) as endpoint:
        result = repair(file, tree.root, endpoint)
    assert "is this the kubelet's runtime?" in result.stdout
    assert entries(file) == {f"u1/unknown-{A[:12]}": "2,10"}


def test_a_restarting_container_keeps_its_entry_while_its_sandbox_is_ready(file, tree, serve):
    before = {"u1": {"app": CPUSet.parse("2,10")}, "u2": {"crashing": CPUSet.parse("3,11")}}
    gone = {"u4": {"gone": CPUSet.parse("4,12")}}
    file.write_bytes(checkpoint.encode(Checkpoint("static", CPUSet.parse("0-1,5-9,13-15"), before | gone)))
    tree.add("u1", A, "2,10")
    sandboxes = [fake_cri.sandbox("s2", "u2", "pod2"), fake_cri.sandbox("s4", "u4", "pod4", ready=False)]
    with serve(answers([(A, 1, "app")], {A: 2048}, sandboxes)) as endpoint:
        assert repair(file, tree.root, endpoint).exit_code == 0
    assert entries(file) == {"u1/app": "2,10", "u2/crashing": "3,11"}


def test_a_matching_entry_of_the_file_overrides_cpu_shares(file, tree, serve):
    """Somebody may have changed the shares; CPUs in use are not handed out for that."""
    held = Checkpoint("static", CPUSet.parse("0-1,3-9,11-15"), {"u1": {"app": CPUSet.parse("2,10")}})
    file.write_bytes(checkpoint.encode(held))
    tree.add("u1", A, "2,10")
    with serve(answers([(A, 1, "app")], {A: 1500})) as endpoint:
        assert repair(file, tree.root, endpoint).exit_code == 0
    assert entries(file) == {"u1/app": "2,10"}


def test_the_list_of_pods_overrides_the_runtime(file, tree, serve, tmp_path):
    tree.add("u1", A, "2,10")
    tree.add("u2", B, "3,11")
    pods = tmp_path / "pods.json"
    pods.write_text(json.dumps({"kind": "List", "items": [listed("u1", ("web", "2", A))]}))
    told = answers([(A, 1, "old-name"), (B, 2, "db")], {A: 1500, B: 2048})
    with serve(told) as endpoint:
        assert repair(file, tree.root, endpoint, "--pods", pods).exit_code == 0
    assert entries(file) == {"u1/web": "2,10", "u2/db": "3,11"}


@pytest.mark.parametrize("shares", [0, 262144])
def test_uninformative_cpu_shares_have_no_effect(file, tree, serve, shares):
    tree.add("u1", A, "2,10")
    with serve(answers([(A, 1, "app")], {A: shares})) as endpoint:
        assert repair(file, tree.root, endpoint).exit_code == 0
    assert entries(file) == {"u1/app": "2,10"}


def test_owners_without_a_cgroup_keep_the_cpus_that_the_runtime_reports(file, tree, serve):
    """Containers inside virtual machines; `share` asked for one CPU and runs on the pool."""
    tree.add("u1", A, "2,10")
    told = answers(
        [(A, 1, "app"), (B, 2, "vm"), (C, 3, "share")],
        {A: 2048, B: 2048, C: 1024},
        cpus={A: "2,10", B: "3,11", C: POOL},
    )
    with serve(told) as endpoint:
        result = repair(file, tree.root, endpoint)
    assert entries(file) == {"u1/app": "2,10", "u2/vm": "3,11"}
    assert "owners without a cgroup here, reported by the runtime: 1" in result.stdout


def test_an_unreachable_runtime_leaves_the_file_unchanged(file, tree, tmp_path):
    file.write_bytes(b"broken")
    tree.add("u1", A, "2,10")
    result = repair(file, tree.root, f"unix://{tmp_path}/none.sock")
    assert result.exit_code == 2
    assert f"Error: unix://{tmp_path}/none.sock: No such file or directory" in result.stderr
    assert file.read_bytes() == b"broken"
    assert not list(tmp_path.glob("*.bak*"))


def test_without_a_value_cri_is_containerds_socket():
    option = next(one for one in main.commands["state"].commands["repair"].params if one.name == "cri")
    assert option.flag_value == cri.CONTAINERD
