"""`corelane state` on memory_manager_state: `show` and `verify` read it, `convert` and `repair` refuse it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from support import kubelet_files

FITS = next(one for one in kubelet_files.starts() if not one.error and len(one.nodes) == 2)
BROKEN = next(one for one in kubelet_files.starts() if "different" in one.error)
POD_LEVEL = next(one for one in kubelet_files.written("memory") if b'"podEntries"' in one.content)


def run(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "500"}).invoke(main, ["state", *map(str, args)])


def fails(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 2, result.output
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    return last


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "memory_manager_state"
    path.write_bytes(FITS.content)
    return path


def machine(start: kubelet_files.Start, tmp_path: Path) -> tuple[str, str]:
    """A snapshot of sysfs with the NUMA nodes on which upstream was started."""
    root = tmp_path / "snapshot/sys/devices/system"
    for node in start.nodes:
        number = node["id"]
        cpu, home = root / f"cpu/cpu{number}/topology", root / f"node/node{number}"
        _write(cpu / "core_id", str(number))
        _write(cpu / "physical_package_id", "0")
        _write(cpu / "thread_siblings_list", str(number))
        _write(home / "cpulist", str(number))
        _write(home / "meminfo", f"Node {number} MemTotal: {node['memory'] >> 10} kB")
        for kib, count in node["hugepages"].items():
            _write(home / f"hugepages/hugepages-{kib}kB/nr_hugepages", str(count))
    _write(root / "cpu/online", f"0-{len(start.nodes) - 1}")
    _write(root / "node/online", f"0-{len(start.nodes) - 1}")
    return "--machine", str(tmp_path / "snapshot")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def reserved(start: kubelet_files.Start) -> list[str]:
    return [f"--reserved-memory={node}:memory={of['memory']}" for node, of in start.reserved.items()]


def config(start: kubelet_files.Start, tmp_path: Path, **more: object) -> Path:
    listed = [{"numaNode": node, "limits": of} for node, of in start.reserved.items()]
    path = tmp_path / "config.yaml"
    total = sum(of.get("memory", 0) for of in start.reserved.values())
    plain = {
        "kind": "KubeletConfiguration",
        "memoryManagerPolicy": "Static",
        "kubeReserved": {"memory": total - (100 << 20)},
        "reservedMemory": listed,
        **more,
    }
    path.write_text(json.dumps(plain))
    return path


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            {"evictionHard": {"memory.available": "1Gi"}},
            '"1280Mi" of type "memory" is not equal to the value "2204Mi"',
        ),
        (
            {"evictionHard": {"nodefs.available": "1Gi"}},
            '"1280Mi" of type "memory" is not equal to the value "1180Mi"',
        ),
        ({"systemReserved": {"memory": "1Mi"}}, 'is not equal to the value "1281Mi"'),
        ({"reservedMemory": None, "kubeReserved": {"memory": "1Gi"}}, 'total amount "0" of type "memory"'),
        (
            {"reservedMemory": None, "kubeReserved": None, "evictionHard": {"memory.available": "0"}},
            "you should specify the system reserved memory",
        ),
        ({"evictionHard": {"memory.available": "100Mi"}, "systemReserved": {"memory": "0"}}, ""),
    ],
)
def test_reservations_of_the_configuration_file_must_add_up(file, tmp_path, settings, fault):
    hardware = machine(FITS, tmp_path)
    result = run(
        "verify", file, *hardware, "--kubelet-config", config(FITS, tmp_path, **settings), "-o", "json"
    )
    failing = [rule["text"] for rule in json.loads(result.stdout)["rules"] if rule["verdict"] == "fails"]
    assert (result.exit_code, len(failing)) == (1 if fault else 0, 1 if fault else 0)
    assert fault in "".join(failing)


def test_a_share_of_the_memory_evicts_too(file, tmp_path):
    hardware = machine(FITS, tmp_path)
    memory = sum(node["memory"] for node in FITS.nodes)
    more = {
        "evictionHard": {"memory.available": "2%"},
        "kubeReserved": {"memory": (1280 << 20) - memory * 2 // 100},
    }
    result = run("verify", file, *hardware, "--kubelet-config", config(FITS, tmp_path, **more))
    assert result.exit_code == 0, result.output
    odd = config(FITS, tmp_path, evictionHard={"memory.available": "x%"})
    assert f"{odd}: evictionHard: memory.available: 'x%' is neither a size nor a share" in fails(
        "verify", file, *hardware, "--kubelet-config", odd
    )


def test_a_field_that_a_kubelet_does_not_have_is_named_with_the_similar_one(file, tmp_path):
    wrong = config(FITS, tmp_path, reservedCpus="0", kubereserved={})
    result = run("verify", file, *machine(FITS, tmp_path), "--kubelet-config", wrong, "-o", "json")
    warnings = [rule for rule in json.loads(result.stdout)["rules"] if rule["name"] == "field"]
    assert [rule["remedy"] for rule in warnings] == [
        "correct its name (reservedSystemCPUs?), or remove it",
        "correct its name (kubeReserved?), or remove it",
    ]


def test_show_prints_nodes_and_blocks(tmp_path):
    path = tmp_path / "any name"
    path.write_bytes(POD_LEVEL.content)
    found = json.loads(run("show", path, "-o", "json").stdout)
    plain = json.loads(POD_LEVEL.content)
    assert (found["kind"], found["version"], found["checksumOk"]) == ("memory_manager_state", 2, True)
    assert {node["node"]: node["memory"] for node in found["nodes"]} == {
        int(node): state["memoryMap"] for node, state in plain["machineState"].items()
    }
    blocks = [block for of in plain["entries"].values() for listed in of.values() for block in listed]
    assert sorted(one["size"] for one in found["entries"]) == sorted(block["size"] for block in blocks)
    assert {one["podUID"] for one in found["podEntries"]} == set(plain["podEntries"])
    shown = run("show", path).stdout
    for word in ("(right)", "(whole pod)", "NUMA node 0", "hugepages-"):
        assert word in shown


def test_show_prints_a_file_with_a_wrong_checksum_and_then_fails(file):
    file.write_bytes(FITS.content.replace(b'"free":', b'"free":1', 1))
    result = run("show", file)
    assert result.exit_code == 2
    assert "(wrong" in result.stdout
    assert "checksum: checkpoint is corrupted" in result.stderr


def test_verify_exits_with_0_if_the_kubelet_would_start(file, tmp_path):
    hardware = machine(FITS, tmp_path)
    for settings in (reserved(FITS), ["--kubelet-config", config(FITS, tmp_path)], []):
        result = run("verify", file, *hardware, *settings, "-o", "json")
        assert result.exit_code == 0, result.output
        names = [rule["name"] for rule in json.loads(result.stdout)["rules"]]
        assert names[:5] == ["version", "policy", "empty", "blocks", "machine"]
        assert ("reservation" in names) == (not settings)


def test_verify_names_differences_with_upstreams_text(file, tmp_path):
    file.write_bytes(BROKEN.content)
    result = run("verify", file, *machine(BROKEN, tmp_path), *reserved(BROKEN))
    assert result.exit_code == 1
    assert "the expected machine state is different from the real one: NUMA node" in result.stdout
    assert "drain the node" in result.stdout


def test_verify_names_every_node_whose_reservation_changed(file, tmp_path):
    grown = [f"--reserved-memory={node}:memory=64Mi" for node in FITS.reserved]
    result = run("verify", file, *machine(FITS, tmp_path), *grown, "-o", "json")
    failing = [rule for rule in json.loads(result.stdout)["rules"] if rule["verdict"] == "fails"]
    assert [rule["name"] for rule in failing] == ["machine"]
    assert failing[0]["text"].count("reserved for the system is") == len(FITS.nodes)


def test_verify_names_another_policy(file, tmp_path):
    hardware = machine(FITS, tmp_path)
    for settings in (
        ["--policy", "none"],
        ["--kubelet-config", config(FITS, tmp_path, memoryManagerPolicy="")],
    ):
        result = run("verify", file, *hardware, *settings)
        assert result.exit_code == 1
        assert 'configured policy "None" differs from state checkpoint policy "Static"' in result.stdout


@pytest.mark.parametrize(
    ("version", "release", "code", "words"),
    [
        (2, "1.33", 1, "does not read version 2"),
        (2, "1.36", 0, "PodLevelResourceManagers"),
        (3, "1.35", 0, "reads version 3"),
    ],
)
def test_verify_checks_which_release_reads_which_version(file, tmp_path, version, release, code, words):
    written = [one for one in kubelet_files.written("memory") if one.version == version]
    content = next(one.content for one in written if b"podEntries" in one.content)
    file.write_bytes(content)
    result = run("verify", file, *machine(FITS, tmp_path), "--kubernetes-version", release, "-o", "json")
    rule = json.loads(result.stdout)["rules"][0]
    assert words in rule["text"]
    assert (rule["verdict"] == "fails") == (code == 1)


@pytest.mark.parametrize("content", [b"", b"\0" * 9, FITS.content[:99], b"[]"])
@pytest.mark.parametrize("command", ["show", "verify", "convert", "repair"])
def test_an_invalid_file_is_recognised_by_its_name(file, command, content):
    file.write_bytes(content)
    options = {"convert": ["--to", "v2"], "repair": ["--yes"]}.get(command, [])
    said = fails(command, file, *options)
    assert str(file) in said
    assert "drain the node" in said
    assert file.read_bytes() == content


@pytest.mark.parametrize("command", [["convert", "--to", "v2"], ["repair", "--yes", "--reserved", "1"]])
def test_convert_and_repair_refuse_the_file_and_leave_it_unchanged(file, command):
    assert "is a memory_manager_state" in fails(command[0], file, *command[1:])
    assert file.read_bytes() == FITS.content
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--reserved-memory", "memory=1Gi"], "'memory=1Gi' is not NODE:RESOURCE=SIZE"),
        (["--reserved-memory", "0:memory=much"], "'much' is not a size such as 1Gi"),
        (["--reserved-memory", "0:memory=-1"], "is negative"),
        (["--reserved-memory", "7:memory=1Gi"], "NUMA node 7 does not exist"),
        (["--kubernetes-version", "9"], "--kubernetes-version"),
    ],
)
def test_invalid_settings_are_named(file, tmp_path, args, words):
    assert words in fails("verify", file, *machine(FITS, tmp_path), *args)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"memoryManagerPolicy": "static"},
            "memoryManagerPolicy: 'static' is invalid: use None, Static or BestEffort",
        ),
        ({"reservedMemory": {}}, "reservedMemory: {} is invalid: use a list such as"),
        ({"reservedMemory": [{"numaNode": "0"}]}, "reservedMemory[0].numaNode: '0' is invalid"),
        ({"reservedMemory": [{"limits": {"memory": "x"}}]}, "reservedMemory[0].limits.memory: 'x'"),
        ({"reservedMemory": [{"numaNode": 9, "limits": {}}]}, "NUMA node 9 does not exist"),
    ],
)
def test_an_invalid_kubelet_configuration_is_named(file, tmp_path, fields, words):
    path = config(FITS, tmp_path, **fields)
    said = fails("verify", file, *machine(FITS, tmp_path), "--kubelet-config", path)
    assert words in said
    assert str(path) in said
