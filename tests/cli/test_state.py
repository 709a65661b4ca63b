"""`corelane state` on files: its output, the files it writes, and its errors."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint
from support.kubepods import Kubepods, listed

A, B, C, D = (letter * 64 for letter in "abcd")
MACHINE = ("--machine", "socket:1 core:8 smt:2")
SETTINGS = (*MACHINE, "--reserved", "1")
KEPT = {"u1": {"app": "2,10"}, "u2": {"db": "3,11"}}


def run(*args: str, stdin: str | None = None) -> Result:
    # Wide enough that no path of a temporary directory wraps a table's cell.
    return CliRunner(env={"COLUMNS": "500"}).invoke(main, ["state", *map(str, args)], input=stdin)


def fails(*args: str, code: int = 2) -> str:
    result = run(*args)
    assert result.exit_code == code, result.output
    assert not isinstance(result.exception, ValueError)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    return last


def held(entries=KEPT, default="0-1,4-9,12-15", policy="static", pods=None, version=2) -> Checkpoint:
    sets = {uid: {n: CPUSet.parse(t) for n, t in of.items()} for uid, of in entries.items()}
    whole = {uid: CPUSet.parse(text) for uid, text in (pods or {}).items()}
    return Checkpoint(policy, CPUSet.parse(default), sets, whole, version)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cpu_manager_state"
    path.write_bytes(checkpoint.encode(held()))
    return path


@pytest.fixture
def node_root(tmp_path: Path) -> Path:
    tree = Kubepods(tmp_path / "root")
    tree.add("u1", A, "2,10", name="app")
    tree.add("u1", D)
    tree.add("u2", B, "3,11", name="db")
    tree.add("u3", C, "0-1,4-9,12-15", qos="burstable")
    return tmp_path / "root"


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.bak-*"))


def test_show_prints_every_entry_and_the_checksum(file):
    found = json.loads(run("show", file, "-o", "json").stdout)
    assert found["checksumOk"] is True
    assert found["version"] == 2
    assert found["defaultCpuSet"] == "0-1,4-9,12-15"
    assert found["entries"] == [
        {"podUID": "u1", "container": "app", "cpus": "2,10", "count": 2},
        {"podUID": "u2", "container": "db", "cpus": "3,11", "count": 2},
    ]
    text = run("show", file).stdout
    for word in ("static", "2,10", "(right)"):
        assert word in text


@pytest.mark.parametrize("version", [2, 3, 4])
def test_show_prints_a_file_with_a_wrong_checksum_and_then_fails(file, version):
    content = checkpoint.encode(held(pods={"u1": "2,10"}, version=version), version)
    file.write_bytes(content.replace(b"2,10", b"2,12"))
    result = run("show", file, "-o", "json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found["checksumOk"] is False
    assert found["entries"][0]["cpus"] == "2,12"
    assert len(found["podEntries"]) == (version > 2)
    assert "checkpoint is corrupted" in result.stderr
    assert str(file) in result.stderr


def test_a_truncated_file_shows_nothing(file):
    file.write_bytes(file.read_bytes()[:60])
    assert run("show", file).stdout == ""
    assert "truncated" in fails("show", file)


def test_a_whole_state_with_the_end_of_a_longer_one_is_shown_and_repaired(file, node_root):
    whole = file.read_bytes()
    file.write_bytes(whole + b'12-15","checksum":1}')
    assert f"too long: a whole JSON object ends at byte {len(whole)}, and 20 bytes" in fails(
        "verify", file, *SETTINGS
    )
    shown = run("show", file)
    assert "(right)" in shown.stdout
    result = run("repair", file, *SETTINGS, "--root", node_root, "--yes")
    assert result.exit_code == 0, result.output
    assert file.read_bytes() == whole


def test_a_state_of_another_cpu_manager_is_named(file):
    file.write_bytes(
        b'{"policyName":"enhanced-static","defaultCpuSet":"0-7","entries":{"u":{"c":"1,10001"}},"checksum":1}'
    )
    before = file.read_bytes()
    for command in (("verify", file, *SETTINGS), ("show", file), ("convert", file, "--to", "v3")):
        assert "another CPU manager wrote this file" in fails(*command)
    assert file.read_bytes() == before
    fault = fails("verify", file, *SETTINGS)
    assert 'policy "enhanced-static" is not a kubelet\'s (none, static), nor is 10001 a CPU' in fault


def test_a_listed_container_that_runs_without_a_visible_cgroup_keeps_its_entry_or_ends_the_repair(
    file, node_root, tmp_path
):
    pods, elsewhere = tmp_path / "pods.json", "9" * 64
    hidden = listed("u9", ("far", "2", elsewhere))
    pods.write_text(json.dumps({"kind": "List", "items": [listed("u1", ("app", "2", A)), hidden]}))
    options = [*SETTINGS, "--root", node_root, "--pods", pods, "--dry-run"]
    fault = fails("repair", file, *options)
    assert f"/far ({elsewhere[:12]}) runs with exclusive CPUs, but has no cgroup below" in fault
    file.write_bytes(checkpoint.encode(held({**KEPT, "u9": {"far": "4,12"}}, default="0-1,5-9,13-15")))
    result = run("repair", file, *options)
    assert result.exit_code == 0, result.output
    assert "not running, but its pod is still on the node" in result.stdout


def test_a_reservation_that_the_configuration_lacks_is_named_with_file_and_fields(file, tmp_path):
    settings = tmp_path / "config.yaml"
    settings.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedCpus: '0'\n")
    fault = fails("verify", file, *MACHINE, "--kubelet-config", settings)
    assert f"{settings}: no CPU is reserved" in fault
    assert "reservedCpus is not a field of a KubeletConfiguration, reservedSystemCPUs is" in fault


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"policyName":1}', b'{"entries":{"a":3}}']
)
@pytest.mark.parametrize("command", [["show"], ["verify", *SETTINGS], ["convert", "--to", "v4"]])
def test_an_invalid_file_is_an_error_of_one_line_with_its_name(file, content, command):
    file.write_bytes(content)
    assert str(file) in fails(command[0], file, *command[1:])
    assert file.read_bytes() == content


def test_verify_exits_with_0_if_the_kubelet_would_start(file):
    result = run("verify", file, *SETTINGS)
    assert result.exit_code == 0
    assert "would start" in result.stdout


@pytest.mark.parametrize(
    ("args", "rule", "words"),
    [
        ((*MACHINE, "--reserved-cpus", "0,2"), "reserved", 'not all reserved cpus: "0,2" are present'),
        (
            (*SETTINGS, "--option", "strict-cpu-reservation=true"),
            "reserved",
            "some of strictly reserved cpus",
        ),
        ((*MACHINE, "--policy", "none"), "policy", 'configured policy "none" differs'),
        (
            ("--machine", "socket:1 core:9 smt:2", "--reserved", "1"),
            "total",
            "doesn't match with CPUs in state",
        ),
        ((*SETTINGS, "--kubernetes-version", "1.20"), "", ""),
    ],
)
def test_verify_names_the_failing_rule_with_upstreams_text(file, args, rule, words):
    result = run("verify", file, *args, "-o", "json")
    found = json.loads(result.stdout)
    failing = [one for one in found["rules"] if one["verdict"] == "fails"]
    assert result.exit_code == (1 if rule else 0)
    assert found["starts"] is not bool(rule)
    assert [one["name"] for one in failing[:1]] == [rule] * bool(rule)
    assert not failing or words in failing[0]["text"]
    assert all(one["remedy"] for one in failing)


def test_verify_checks_which_release_reads_which_version(file):
    file.write_bytes(checkpoint.encode(held(pods={"u1": "2,10"}, version=3), 3))
    result = run("verify", file, *SETTINGS, "--kubernetes-version", "v1.33.2")
    assert result.exit_code == 1
    assert "does not read version 3" in result.stdout


def test_options_override_the_kubelets_configuration_file(file, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: '0,2'\n"
        "cpuManagerPolicyOptions: {full-pcpus-only: 'true'}\nkubeReserved: {cpu: 500m}\n"
    )
    assert run("verify", file, *MACHINE, "--kubelet-config", config).exit_code == 1
    assert run("verify", file, *MACHINE, "--kubelet-config", config, "--reserved", "1").exit_code == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (MACHINE, "--reserved-cpus or --reserved"),
        ((*MACHINE, "--reserved-cpus", "0-x"), "0-x"),
        ((*MACHINE, "--reserved-cpus", "0-99"), "0-99"),
        ((*MACHINE, "--reserved", "many"), "many"),
        ((*MACHINE, "--reserved", "0"), "greater than zero"),
        ((*MACHINE, "--reserved", "17"), "17"),
        ((*MACHINE, "--reserved", "1", "--reserved-cpus", "0"), "give one of them"),
        ((*SETTINGS, "--option", "full-pcpus"), "full-pcpus"),
        (
            (*SETTINGS, "--option", "no-such-option=true"),
            'unknown CPU Manager Policy option: "no-such-option"',
        ),
        ((*SETTINGS, "--option", "full-pcpus-only=maybe"), "maybe"),
        ((*SETTINGS, "--kubernetes-version", "2.0"), "2.0"),
        (("--machine", "socket:0", "--reserved", "1"), "socket:0"),
        ((*MACHINE, "--policy", "none", "--option", "full-pcpus-only=true"), "--option"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "repair"])
def test_invalid_settings_are_named(file, command, args, words):
    before = file.read_bytes()
    assert words in fails(command, file, *args)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    "bad", ["cpuManagerPolicyOptions: 3", "kubeReserved: {cpu: lots}", "a: [", "- 1", "kind: Pod"]
)
def test_an_invalid_kubelet_configuration_is_named(file, tmp_path, bad):
    config = tmp_path / "config.yaml"
    config.write_text(f"cpuManagerPolicy: static\n{bad}\n" if bad != "- 1" else bad)
    assert str(config) in fails("verify", file, *MACHINE, "--kubelet-config", config)


def test_convert_writes_the_requested_version_and_keeps_the_old_file(file):
    before = file.read_bytes()
    assert run("convert", file, "--to", "v4").exit_code == 0
    assert checkpoint.decode(file.read_bytes()).version == 4
    assert [path.read_bytes() for path in backups(file)] == [before]
    assert run("convert", file, "--to", "v4").stdout.endswith("nothing written\n")
    assert run("convert", file, "--to", "2").exit_code == 0
    assert file.read_bytes() == before
    assert len(backups(file)) == 2


def test_convert_of_version_1_names_repair_as_the_remedy(file):
    file.write_bytes(checkpoint.encode(held({"": {"id1": "2,10"}}, version=1), 1))
    assert "state repair" in fails("convert", file, "--to", "v2")


def test_repair_of_a_file_that_fits_writes_nothing(file, node_root):
    before = file.read_bytes()
    result = run("repair", file, *SETTINGS, "--root", node_root, "--yes")
    assert "nothing to repair" in result.stdout
    assert file.read_bytes() == before
    assert backups(file) == []


def test_repair_after_a_grown_reservation_shows_asks_writes_and_keeps_a_backup(file, node_root):
    before = file.read_bytes()
    args = ("repair", file, *MACHINE, "--reserved-cpus", "0,2", "--root", node_root)
    assert run(*args, "--dry-run").exit_code == 0
    assert run(*args, stdin="n\n").exit_code == 1
    assert file.read_bytes() == before
    result = run(*args, stdin="y\n")
    assert result.exit_code == 0
    assert "CPU 2 is now reserved" in result.stdout
    assert [path.read_bytes() for path in backups(file)] == [before]
    assert run("verify", file, *MACHINE, "--reserved-cpus", "0,2").exit_code == 0
    after = checkpoint.decode(file.read_bytes())
    assert after.entries["u2"]["db"] == CPUSet.parse("3,11")
    assert 10 in after.entries["u1"]["app"]
    assert len(after.entries["u1"]["app"]) == 2
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b'{"policyName":"static","defaultCpuS', b"\x00" * 64, None])
def test_a_damaged_or_missing_file_is_rebuilt_and_kept_as_a_backup(file, node_root, content):
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    result = run("repair", file, *SETTINGS, "--root", node_root, "--yes", "-o", "json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["written"] is True
    assert [path.read_bytes() for path in backups(file)] == ([] if content is None else [content])
    assert checkpoint.decode(file.read_bytes()) == held()


def test_a_list_of_pods_names_containers_without_log_links(file, tmp_path):
    tree = Kubepods(tmp_path / "root", version=1, systemd=False)
    tree.add("u1", A, "2,10")
    tree.add("hash", B, "3,11")
    mirror = {"kubernetes.io/config.hash": "hash", "kubernetes.io/config.mirror": "hash"}
    anyones = {"kubernetes.io/config.hash": "hash"}
    pods = [
        listed("u7", ("static", "2", B), annotations=mirror),
        listed("u1", ("web", "2", A), annotations=anyones),
    ]
    broken = {"metadata": {"uid": "u9", "name": "odd"}, "spec": {"containers": 3}}
    names = tmp_path / "pods.json"
    names.write_text(json.dumps({"kind": "List", "items": [*pods, broken]}))
    file.unlink()
    result = run("repair", file, *SETTINGS, "--root", tree.root, "--pods", names, "--yes")
    assert result.exit_code == 0, result.output
    after = checkpoint.decode(file.read_bytes())
    assert after == held({"u1": {"web": "2,10"}, "hash": {"static": "3,11"}})
    assert "odd" in result.stdout


@pytest.mark.parametrize(
    "content", ["", "[]", '{"kind": "Node"}', '{"kind": "List"}', '{"kind":"List","items":3}']
)
def test_another_file_than_a_list_of_pods_is_named(file, node_root, tmp_path, content):
    names = tmp_path / "pods.json"
    names.write_text(content)
    assert str(names) in fails("repair", file, *SETTINGS, "--root", node_root, "--pods", names, "--yes")


def test_repair_does_not_overwrite_a_file_that_changed_since(file, node_root, monkeypatch):
    from corelane.app.kubelet_settings import KubeletOptions
    from corelane.app.state import command as repair
    from corelane.app.state.files import StateFileError

    plan = repair.plan(
        file, MACHINE[1], KubeletOptions(reserved_cpus="0,2"), repair.RepairSources(node_root), None
    )
    file.write_bytes(checkpoint.encode(held({})))
    with pytest.raises(StateFileError, match="stop the kubelet"):
        repair.apply(plan)
    assert backups(file) == []


def test_repair_leaves_the_file_when_writing_fails(file, node_root, monkeypatch):
    from corelane.kernel import files

    def refuse(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_atomic", refuse)
    before = file.read_bytes()
    args = ("repair", file, *MACHINE, "--reserved-cpus", "0,2", "--root", node_root, "--yes")
    assert "No space left" in fails(*args)
    assert file.read_bytes() == before


def test_without_cgroups_the_error_names_the_root(file, tmp_path):
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in fails("repair", file, *SETTINGS, "--root", tmp_path / "empty", "--yes")


def test_json_output_requires_yes_or_dry_run(file):
    assert "--yes or --dry-run" in fails("repair", file, *SETTINGS, "-o", "json")


def test_in_version_2_pod_level_cpus_return_to_the_shared_pool(file, node_root):
    whole = held(default="0-1,5-9,12-15", pods={"u1": "2,4,10"}, version=4)
    for args in (
        ("convert", file, "--to", "v2"),
        ("repair", file, *SETTINGS, "--root", node_root, "--to", "2", "-y"),
    ):
        file.write_bytes(checkpoint.encode(whole, 4))
        assert run("verify", file, *SETTINGS).exit_code == 0
        result = run(*args)
        assert result.exit_code == 0, result.output
        assert checkpoint.decode(file.read_bytes()) == held()
        assert run("verify", file, *SETTINGS).exit_code == 0


def test_repair_writes_the_requested_version(file, node_root):
    assert run("repair", file, *SETTINGS, "--root", node_root, "--to", "v4", "--yes").exit_code == 0
    assert checkpoint.decode(file.read_bytes()) == held(version=4)
    assert len(backups(file)) == 1
