"""`corelane state` on damaged files and nodes: one line for every error, exit status 2, and never
a file that allocates a CPU twice or loses an owner.
"""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.statefile import payload_checksum
from support import fake_cri
from support.kubepods import Kubepods, listed, write

A, B = "a" * 64, "b" * 64
SETTINGS = ("--machine", "socket:1 core:8 smt:2", "--reserved", "1")
COMMANDS = {
    "show": (),
    "verify": SETTINGS,
    "convert": ("--to", "v4"),
    "repair": (*SETTINGS, "--yes"),
}


def run(*args: object) -> Result:
    return CliRunner(env={"COLUMNS": "500"}).invoke(main, ["state", *map(str, args)])


def refused(*args: object) -> str:
    """The one line of an error."""
    result = run(*args)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("Error: ")
    return line


def held(entries: dict[str, dict[str, str]], default: str) -> Checkpoint:
    sets = {uid: {n: CPUSet.parse(t) for n, t in of.items()} for uid, of in entries.items()}
    return Checkpoint("static", CPUSet.parse(default), sets)


KEPT = held({"u1": {"app": "2,10"}, "u2": {"db": "3,11"}}, "0-1,4-9,12-15")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(checkpoint.encode(KEPT))
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Kubepods:
    return Kubepods(tmp_path / "root")


def repair(file: Path, tree: Kubepods, *more: object) -> Result:
    return run("repair", file, *SETTINGS, "--root", tree.root, "--yes", *more)


def entries(file: Path) -> dict[str, str]:
    found = checkpoint.decode(file.read_bytes())
    return {f"{uid}/{name}": str(cpus) for uid, of in found.entries.items() for name, cpus in of.items()}


def untouched(file: Path, content: bytes) -> bool:
    return file.read_bytes() == content and not list(file.parent.glob("*.bak*"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_or_pipe_is_an_error_that_names_it(tmp_path, command):
    os.mkfifo(tmp_path / "pipe")
    for name, words in ((".", "Is a directory"), ("pipe", "not a regular file")):
        assert words in refused(command, tmp_path / name, *COMMANDS[command])
    if command != "repair":
        assert "No such file" in refused(command, tmp_path / "none", *COMMANDS[command])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_an_error_that_names_it(file, command):
    file.chmod(0)
    assert f"{file}: cannot be read: Permission denied" in refused(command, file, *COMMANDS[command])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory_is_an_error_that_names_it(file, tree):
    tree.add("u1", A, "2,10", name="app")
    before = file.read_bytes()
    file.parent.chmod(0o500)
    try:
        args = ("repair", file, *SETTINGS, "--root", tree.root, "--yes")
        assert "cannot be written: Permission denied" in refused(*args)
    finally:
        file.parent.chmod(0o700)
    assert untouched(file, before)


def test_a_file_over_64_mib_is_not_read_whole(tmp_path):
    path = tmp_path / "cpu_manager_state"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "larger than 64 MiB" in refused("show", path)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf{}", b"null", b"{}", b'{"checksum":NaN}', b"[1]"])
def test_running_containers_keep_their_cpus_whatever_the_file_holds(file, tree, content):
    file.write_bytes(content)
    tree.add("u1", A, "2,10", name="app")
    tree.add("u2", B, "3,11", name="db")
    assert repair(file, tree).exit_code == 0
    assert entries(file) == {"u1/app": "2,10", "u2/db": "3,11"}
    assert [path.read_bytes() for path in file.parent.glob("*.bak*")] == [content]


def test_a_file_edited_by_hand_is_repaired_from_running_containers(file, tree):
    file.write_bytes(file.read_bytes().replace(b"2,10", b"2,12"))
    tree.add("u1", A, "2,10", name="app")
    tree.add("u2", B, "3,11", name="db")
    assert "checkpoint is corrupted" in refused("verify", file, *SETTINGS)
    assert repair(file, tree).exit_code == 0
    assert entries(file) == {"u1/app": "2,10", "u2/db": "3,11"}


def newer(**more: object) -> bytes:
    """A file of 1.38, with unknown members."""
    fields = json.loads(checkpoint.encode(KEPT, 4))
    data = {**json.loads(fields["data"]), "baselines": {"u1": {"app": {"baseline": "2"}}}, "later": [1]}
    fields["data"] = json.dumps(data, separators=(",", ":"))
    return json.dumps({**fields, "dataChecksum": payload_checksum(fields["data"]), **more}).encode()


def test_a_file_of_a_newer_kubelet_is_verified_as_by_that_kubelet(file):
    file.write_bytes(newer())
    assert json.loads(run("show", file, "-o", "json").stdout)["version"] == 4
    for release in ([], ["--kubernetes-version", "1.38"], ["--kubernetes-version", "1.36"]):
        assert run("verify", file, *SETTINGS, *release).exit_code == 0


def test_an_older_kubelet_reads_a_newer_file_without_its_payload(file):
    file.write_bytes(newer(defaultCpuSet="0-9"))
    assert run("verify", file, *SETTINGS).exit_code == 0
    older = ("--kubernetes-version", "1.36")
    assert "checksum: checkpoint is corrupted" in refused("verify", file, *SETTINGS, *older)


def test_verify_warns_about_entries_that_an_older_kubelet_does_not_read(file):
    whole = replace(KEPT, pods={"u1": CPUSet.parse("2,4,10")}, default=KEPT.default - CPUSet([4]))
    file.write_bytes(checkpoint.encode(whole, 4))
    assert run("verify", file, *SETTINGS).exit_code == 0
    result = run("verify", file, *SETTINGS, "--kubernetes-version", "1.36", "-o", "json")
    rules = {rule["name"]: rule for rule in json.loads(result.stdout)["rules"]}
    assert "without pod-level CPUs" in rules["version"]["text"]
    assert rules["total"]["verdict"] == "fails"
    assert 'doesn\'t match with CPUs in state "0-3,5-15"' in rules["total"]["text"]


def test_two_pods_on_one_cpu_get_different_cpus(file, tree):
    file.write_bytes(checkpoint.encode(held({"u1": {"app": "2,10"}, "u2": {"db": "3,10"}}, "0-1,4-9,11-15")))
    tree.add("u1", A, "2,10", name="app")
    tree.add("u2", B, "3,10", name="db")
    result = repair(file, tree, "-o", "json")
    one, other = (CPUSet.parse(text) for text in entries(file).values())
    assert not one & other
    assert (len(one), len(other)) == (2, 2)
    assert "belongs to another" in result.stdout


def test_two_containers_of_a_pod_on_the_same_cpus_count_as_one_owner(file, tree):
    file.unlink()
    tree.add("u1", A, "2,10", name="app")
    tree.add("u1", B, "2,10", name="db")
    told = json.loads(repair(file, tree, "-o", "json").stdout)
    assert entries(file) == {"u1/app": "2,10"}
    assert [change["kind"] for change in told["changes"]] == ["added", "left out"]


def test_entries_stay_where_no_pod_is_visible(file, tree):
    """As from inside a container: nothing seems to run, and every CPU could be allocated again."""
    result = run(
        "repair", file, "--machine", SETTINGS[1], "--reserved-cpus", "0,2", "--root", tree.root, "-y"
    )
    assert "entries stay" in result.output
    assert set(entries(file)) == {"u2/db"}
    assert repair(file, tree).exit_code == 0


@pytest.mark.parametrize("content", [None, b"", b'{"policyName":"static"}'])
def test_a_damaged_file_is_not_rebuilt_where_no_pod_is_visible(file, tree, content):
    if content is None:
        file.unlink()
    else:
        file.write_bytes(checkpoint.encode(KEPT).replace(b"2,10", b"2,12") if content else content)
    before = None if content is None else file.read_bytes()
    assert "confirm that with --cri or --pods FILE" in refused(
        "repair", file, *SETTINGS, "--root", tree.root, "--yes"
    )
    assert untouched(file, before) if before is not None else not file.exists()


def test_a_list_of_pods_confirms_that_no_pod_runs(file, tree, tmp_path):
    file.write_bytes(b"broken")
    pods = tmp_path / "pods.json"
    pods.write_text('{"kind": "List", "items": []}')
    assert repair(file, tree, "--pods", pods).exit_code == 0
    assert entries(file) == {}


def test_running_containers_without_any_cgroup_here_are_an_error(file, tree, tmp_path):
    told = {
        "ListPodSandbox": {1: [fake_cri.sandbox("s", "u1", "web")]},
        "ListContainers": {1: [fake_cri.container(A, "s", "app")]},
        "ContainerStatus": {},
    }
    before = file.read_bytes()
    with fake_cri.serving(tmp_path / "cri.sock", told) as endpoint:
        args = ("repair", file, *SETTINGS, "--root", tree.root, "--yes", f"--cri={endpoint}")
        assert "1 containers run, but none has a cgroup below" in refused(*args)
    assert untouched(file, before)


def test_a_running_kubelet_is_noted(file, tree):
    tree.add("u1", A, "2,10", name="app")
    write(tree.root / "proc/4711/stat", f"4711 (kubelet) S {' '.join('1' for _ in range(49))}")
    assert "kubelet is running (process 4711); stop it" in repair(file, tree, "--dry-run").output


def test_a_list_of_pods_may_come_through_a_pipe(file, tree, tmp_path):
    tree.add("u1", A, "2,10")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = json.dumps({"kind": "List", "items": [listed("u1", ("web", "2", A))]})
    writer = threading.Thread(target=pipe.write_text, args=(content,))
    writer.start()
    assert repair(file, tree, "--pods", pipe).exit_code == 0
    writer.join(5)
    assert entries(file) == {"u1/web": "2,10"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--pods", "/nowhere/pods.json"], "/nowhere/pods.json: cannot be read"),
        (["--root", "/nowhere"], "/nowhere/sys/fs/cgroup: has no cgroups"),
        (["--cri=/nowhere/cri.sock"], "/nowhere/cri.sock: No such file or directory"),
        (["--cri=tcp://10.0.0.1"], "is not a socket on this machine"),
    ],
)
def test_an_unavailable_source_of_names_is_named(file, tree, args, words):
    tree.add("u1", A, "2,10", name="app")
    before = file.read_bytes()
    assert words in refused("repair", file, *SETTINGS, "--yes", "--root", tree.root, *args)
    assert untouched(file, before)


def test_backup_file_and_directory_are_synced_in_this_order(file, tree, monkeypatch):
    tree.add("u1", A, "2,10", name="app")
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.split(".tmp")[0])
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    assert repair(file, tree).exit_code == 0
    kinds = [
        "directory" if name == file.parent.name else "bak" if ".bak" in name else "file" for name in synced
    ]
    assert kinds == ["bak", "directory", "file", "directory"]
