"""`corelane limits watch` on cgroups that are files, on real ones, and on what Prometheus answers."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.app import local_instance
from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.embedded.containers.records import ContainerRecord, RecordStore
from corelane.runtime.base import ContainerSpec
from support import busy_groups
from support.cpu_groups import Clock, counters, pressure, quiet, use_clock, version1
from support.kubepods import Kubepods, listed, write

A, B, C = (letter * 64 for letter in "abc")


def run(*args: object) -> Result:
    # Wide enough that no cell wraps.
    return CliRunner(env={"COLUMNS": "300"}).invoke(main, ["limits", "watch", *map(str, args)])


def rows(result: Result) -> dict[str, dict]:
    """Nothing measured is an exit status of its own."""
    assert result.exit_code == (0 if json.loads(result.stdout)["containers"] else 3), result.output
    found = json.loads(result.stdout)["containers"]
    return {f"{one['namespace']}/{one['pod']}/{one['container']}": one for one in found}


def notes(result: Result) -> list[str]:
    return json.loads(result.stdout)["notes"]


def play(monkeypatch, *then) -> None:
    """Time stands still but for sleeping, in which `then` happens, one each."""
    use_clock(monkeypatch, Clock(*then))


@pytest.fixture
def tree(tmp_path: Path) -> Kubepods:
    write(tmp_path / "root/proc/stat", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0")
    return Kubepods(tmp_path / "root")


def once(tree: Kubepods, tmp_path: Path, *args: object) -> Result:
    return run(
        "--root", tree.root, "--data-dir", tmp_path / "none", "--once", "--interval", 2, "-o", "json", *args
    )


@pytest.mark.parametrize("systemd", [True, False])
def test_a_throttled_container_is_shown_with_its_names_and_what_it_costs(tmp_path, monkeypatch, systemd):
    tree = Kubepods(tmp_path / "root", systemd=systemd)
    path = tree.add("u1", A, name="app", qos="burstable")
    quiet(path)

    def work() -> None:
        counters(path, usage=400_000, periods=20, throttled=20, us=1_600_000)
        pressure(path, 1_600_000, 1_600_000)

    play(monkeypatch, work)
    result = once(tree, tmp_path)
    assert rows(result) == {
        "default/u1/app": {
            "namespace": "default",
            "pod": "u1",
            "container": "app",
            "node": None,
            "id": A,
            "cpuLimitMillis": 200,
            "periodMs": 100.0,
            "burstLimitMs": 0.0,
            "cpus": 16,
            "threads": None,
            "threadsThatWaited": 0,
            "cpuLoad": None,
            "usedMsPerSecond": 200.0,
            "throttledMsPerSecond": 800.0,
            "throttledAboveMsPerSecond": None,
            "lostShare": 0.8,
            "stallMs": 80.0,
            "periods": 20,
            "throttledPeriods": 20,
            "bursts": 0,
            "burstMsPerSecond": 0.0,
            "waitingMsPerSecond": 800.0,
            "stalledMsPerSecond": 800.0,
            "queuedMsPerSecond": None,
            "waitedForOthersMsPerSecond": 0.0,
            "lostTo": None,
            "competition": None,
            "heldBackBy": ["limit"],
            "cost": "high",
            "why": "throttled 800 ms/s, 80.0% of CPU demand",
            "notes": [],
            "remarks": [],
        }
    }


@pytest.mark.parametrize("systemd", [True, False])
def test_version_1_is_read_from_the_cpu_controllers_own_hierarchy(tmp_path, monkeypatch, systemd):
    tree = Kubepods(tmp_path / "root", version=1, systemd=systemd)
    path = tree.add("u1", A, name="app")
    version1(tree, path, usage=0, periods=0, throttled=0, us=0)
    play(monkeypatch, lambda: version1(tree, path, usage=400_000, periods=20, throttled=20, us=1_600_000))
    (row,) = rows(once(tree, tmp_path)).values()
    assert (row["usedMsPerSecond"], row["throttledMsPerSecond"], row["cpuLimitMillis"]) == (200, 800, 200)


def test_neighbours_are_told_from_the_limit_by_what_runs_on_the_containers_cpus(tree, tmp_path, monkeypatch):
    path = tree.add("u1", A, "1", name="app")
    quiet(path)

    def work() -> None:
        counters(path, usage=1_000_000, periods=20, throttled=0, us=0)
        pressure(path, 1_000_000, 1_000_000)
        write(tree.root / "proc/stat", "cpu0 0 0 0 200 0 0 0 0\ncpu1 200 0 0 0 0 0 0 0")

    play(monkeypatch, work)
    (row,) = rows(once(tree, tmp_path)).values()
    assert row["heldBackBy"] == ["neighbours"]
    assert row["cost"] == "high", "waits for other processes cost as much as throttling"
    assert "other processes use 500 ms/s of its 1 CPU" in row["why"]


def test_names_come_from_a_list_of_pods(tree, tmp_path, monkeypatch):
    quiet(tree.add("u1", A))
    quiet(tree.add("u2", B))
    pods = tmp_path / "pods.json"
    pods.write_text(json.dumps({"kind": "List", "items": [listed("u1", ("app", "1", A))]}))
    play(monkeypatch)
    assert set(rows(once(tree, tmp_path, "--pods", pods))) == {"default/u1/app", f"/pod u2/{B[:12]}"}


def test_rows_are_selected_and_sorted(tree, tmp_path, monkeypatch):
    paths = {name: tree.add(name, ident, name="app") for name, ident in (("w1", A), ("w2", B), ("x1", C))}
    for path in paths.values():
        quiet(path)

    def work() -> None:
        counters(paths["w1"], usage=100_000, periods=20, throttled=1, us=500)
        counters(paths["w2"], usage=50_000, periods=20, throttled=1, us=90_000)

    play(monkeypatch, work)
    assert list(rows(once(tree, tmp_path, "--pod", "w*"))) == ["default/w2/app", "default/w1/app"]


def test_a_selection_that_fits_nothing_says_so(tree, tmp_path, monkeypatch):
    quiet(tree.add("u1", A, name="app"))
    play(monkeypatch)
    result = once(tree, tmp_path, "-n", "nowhere")
    assert rows(result) == {}
    assert any("matches the namespace" in note for note in notes(result))


def test_groups_that_vanish_or_appear_while_being_read_are_no_error(tree, tmp_path, monkeypatch):
    stays, goes = tree.add("u1", A, name="app"), tree.add("u2", B, name="app")
    quiet(stays)
    quiet(goes)

    def change() -> None:
        for file in goes.iterdir():
            file.unlink()
        goes.rmdir()
        quiet(tree.add("u3", C, name="app"))

    play(monkeypatch, change)
    result = once(tree, tmp_path)
    assert set(rows(result)) == {"default/u1/app"}
    assert any("1 ended" in note for note in notes(result))
    assert any("1 started" in note for note in notes(result))


def test_a_group_named_by_path_may_vanish_and_come_back(tmp_path, monkeypatch):
    for name in ("gone", "stays"):
        write(tmp_path / name / "cgroup.procs", "1")
        quiet(tmp_path / name)
    files = {path: path.read_text() for path in (tmp_path / "gone").iterdir()}

    def vanish() -> None:
        for path in files:
            path.unlink()

    def come_back() -> None:
        for path, content in files.items():
            path.write_text(content)

    play(monkeypatch, lambda: None, vanish, lambda: None, come_back, lambda: None)
    named = [word for name in ("gone", "stays") for word in ("--cgroup", tmp_path / name)]
    lines = [json.loads(line) for line in run("--count", 5, "-o", "json", *named).stdout.splitlines()]
    assert [len(line["containers"]) for line in lines] == [2, 1, 1, 1, 2]
    said = (
        ["1 ended since the last reading"],
        [],
        ["1 started since the last reading: shown in the next round"],
    )
    assert [line["notes"] for line in lines[1:4]] == list(said)


def test_a_restarted_container_has_no_rate_but_a_reason(tree, tmp_path, monkeypatch):
    path = tree.add("u1", A, name="app")
    quiet(path)
    counters(path, usage=10, periods=10, throttled=10, us=10)
    play(monkeypatch, lambda: counters(path, usage=1, periods=1, throttled=0, us=0))
    (row,) = rows(once(tree, tmp_path)).values()
    assert row["usedMsPerSecond"] is None
    assert "restarted" in row["notes"][0]


def test_a_missing_controller_and_counters_that_make_no_sense_are_said(tree, tmp_path, monkeypatch):
    bare, odd = tree.add("u1", A, name="app"), tree.add("u2", B, name="app")
    write(bare / "cpu.stat", "usage_usec 0\nuser_usec 0\nsystem_usec 0")
    quiet(odd)
    write(odd / "cpu.stat", "usage_usec many")
    play(monkeypatch)
    result = once(tree, tmp_path)
    (row,) = rows(result).values()
    assert "controller not enabled" in row["notes"][0]
    assert any("'usage_usec many'" in note for note in notes(result))


def test_too_short_an_interval_is_said(tree, tmp_path, monkeypatch):
    quiet(tree.add("u1", A, name="app"))
    play(monkeypatch)
    result = run("--root", tree.root, "--data-dir", tmp_path, "--once", "--interval", 0.2, "-o", "json")
    assert any("fewer than 5 periods" in note for note in notes(result))


def test_a_pod_whose_own_limit_throttles_is_a_row_of_its_own(tree, tmp_path, monkeypatch):
    path = tree.add("u1", A, name="app")
    quiet(path)
    quiet(path.parent)
    write(path.parent / "cgroup.procs", "")
    play(monkeypatch, lambda: counters(path.parent, usage=400_000, periods=20, throttled=20, us=1_600_000))
    found = rows(once(tree, tmp_path))
    assert found["default/u1/None"]["throttledMsPerSecond"] == 800
    assert found["default/u1/app"]["cost"] == "none"


def test_corelanes_own_containers_are_found_by_their_records(tmp_path, monkeypatch):
    group = tmp_path / "cg"
    write(group / "cgroup.procs", "1")
    quiet(group)
    state = RecordStore(tmp_path / "data/nodes/n1/containers")
    spec = ContainerSpec(pod_uid="u", namespace="ns", pod="web", name="app", command=("x",), cpus=CPUSet([0]))
    for ident, directories in (("c1", (str(group),)), ("c2", ()), ("c3", (str(tmp_path / "gone"),))):
        state.directory(ident).mkdir()
        state.save(
            ContainerRecord(id=ident, spec=spec, created_at=0.0, log=tmp_path, directories=directories)
        )
    state.close()
    write(state.directory("c4") / "spec.json", "no json")
    play(monkeypatch)
    (tmp_path / "root").mkdir()
    result = run("--root", tmp_path / "root", "--data-dir", tmp_path / "data", "--once", "-o", "json")
    assert set(rows(result)) == {"ns/web/app"}


def test_the_table_shows_what_json_has_and_why(tree, tmp_path, monkeypatch):
    path = tree.add("u1", A, name="app")
    quiet(path)
    play(monkeypatch, lambda: counters(path, usage=400_000, periods=20, throttled=20, us=1_600_000))
    result = run("--root", tree.root, "--data-dir", tmp_path, "--once")
    for word in ("default/u1/app", "800.0", "80.0%", "20/20", "limit", "high", "of CPU demand"):
        assert word in result.stdout


def test_rounds_go_on_and_json_is_one_line_each(tree, tmp_path, monkeypatch):
    quiet(tree.add("u1", A, name="app"))
    play(monkeypatch)
    result = run("--root", tree.root, "--data-dir", tmp_path, "--count", 3, "-o", "json")
    assert len([json.loads(line) for line in result.stdout.splitlines()]) == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--cgroup", "{tmp}"), "is not a cgroup"),
        (("--pods", "{tmp}/bad.json"), "bad.json"),
        (("--prometheus", "file:///etc/passwd", "--once"), "http://prometheus:9090"),
        (("--prometheus", "http://[::", "--once"), "http://prometheus:9090"),
        (("--prometheus", "http://127.0.0.1:1", "--once"), "http://127.0.0.1:1: Connection refused: is this"),
        (("--window", "1h", "--once"), "--window is for --prometheus"),
        (("--bearer-token-file", "{tmp}/bad.json"), "--bearer-token-file is for --prometheus"),
        (("--prometheus", "http://x", "--window", "soon"), "'soon'"),
        (("--prometheus", "http://x", "--cgroup", "{tmp}"), "different sources"),
        (("--interval", "0"), "--interval"),
    ],
)
def test_bad_input_is_one_line(tmp_path, args, words):
    (tmp_path / "bad.json").write_text("[]")
    result = run(*(arg.replace("{tmp}", str(tmp_path)) for arg in args))
    assert result.exit_code == 2
    assert not isinstance(result.exception, ValueError)
    assert words in result.stderr.strip().splitlines()[-1]


def test_a_narrow_terminal_gets_a_table_with_fewer_columns(tree, tmp_path, monkeypatch):
    path = tree.add("u1", A, name="application-with-a-long-name", qos="burstable")
    quiet(path)
    play(monkeypatch, lambda: counters(path, usage=400_000, periods=20, throttled=20, us=800_000))
    args = [
        "limits",
        "watch",
        "--root",
        str(tree.root),
        "--data-dir",
        str(tmp_path),
        "--once",
        "--interval",
        "2",
    ]
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, args).stdout
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:1] == ["CONTAINER"] and "COST" in line for line in lines)
    assert "left out at 80 columns: " in shown


def test_the_instance_that_kubeconfig_names_is_watched(tree, tmp_path, monkeypatch):
    data = tmp_path / "elsewhere"
    for name in ("lock", "kubeconfig"):
        write(data / name, "")
    (data / "nodes").mkdir()
    assert local_instance.of_kubeconfig() == local_instance.data_dir()
    monkeypatch.setenv("KUBECONFIG", f"{data}/kubeconfig:/other")
    assert local_instance.of_kubeconfig() == data


def test_a_limited_group_that_is_no_known_container_is_left_out_aloud(tree, tmp_path, monkeypatch):
    write(tree.base / "acme/job/cpu.max", "20000 100000")
    write(tree.base / "acme/job/cgroup.procs", "7")
    play(monkeypatch)
    left_out = [note for note in notes(once(tree, tmp_path)) if note.startswith("left out: 1 cgroups")]
    assert "such as acme/job in /sys/fs/cgroup" in left_out[0]


def test_a_root_without_cgroups_says_that_nothing_was_found(tmp_path, monkeypatch):
    play(monkeypatch)
    result = run("--root", tmp_path, "--data-dir", tmp_path, "--once", "-o", "json")
    assert any("has no cgroups" in note for note in notes(result))


@pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups: needs root")
def test_a_real_busy_loop_at_a_fifth_of_a_cpu_is_throttled_for_the_rest():
    with busy_groups.limited(20_000) as group, busy_groups.spinning(group, 1):
        result = run("--cgroup", group.directories[0], "--once", "--interval", 2, "-o", "json")
    (row,) = rows(result).values()
    assert row["cpuLimitMillis"] == 200
    assert row["usedMsPerSecond"] == pytest.approx(200, abs=40)
    assert row["throttledMsPerSecond"] == pytest.approx(800, abs=200)
    # It runs, is throttled, or waits behind others; the latter two are waiting.
    assert row["usedMsPerSecond"] + row["queuedMsPerSecond"] == pytest.approx(1000, abs=150)
    assert row["heldBackBy"][0] == "limit"
    assert row["cost"] == "high"
