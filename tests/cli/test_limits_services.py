"""`limits watch` and `limits advise` on Docker's, Podman's and systemd's cgroups, in both versions."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from support.cpu_groups import Clock, counters, quiet, use_clock
from support.kubepods import Kubepods, write

A, B, C = (letter * 64 for letter in "abc")


@pytest.fixture(params=[2, 1])
def node(request, tmp_path: Path, monkeypatch) -> "Node":
    use_clock(monkeypatch, Clock())
    return Node(tmp_path / "root", request.param)


class Node:
    """A root directory with groups in the cpu controller's hierarchy; no kubelet."""

    def __init__(self, root: Path, version: int) -> None:
        self.root, self.version, top = root, version, root / "sys/fs/cgroup"
        if version == 2:
            write(top / "cgroup.controllers", "cpuset cpu memory pids")
        else:
            (top / "cpuset").mkdir(parents=True)
        self.base = top if version == 2 else top / "cpu,cpuacct"

    def add(self, path: str, *, limited: bool = True, threads: int = 4, alive: bool = True) -> Path:
        group = self.base / path
        write(group / "cgroup.procs", "4711" if alive else "")
        write(group / "pids.current", str(threads))
        if self.version == 2:
            quiet(group)
            write(group / "cgroup.events", f"populated {int(alive)}")
            write(group / "cpu.max", "20000 100000" if limited else "max 100000")
        else:
            write(group / "cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0")
            write(group / "cpuacct.usage", "0")
            write(group / "cpu.cfs_quota_us", "20000" if limited else "-1")
            write(group / "cpu.cfs_period_us", "100000")
        return group

    def names(self, *args: object) -> set[str]:
        return {f"{one['namespace']}/{one['container']}" for one in self.json(*args)["containers"]}

    def json(self, *args: object) -> dict:
        return json.loads(self.run("watch", "--once", "-o", "json", *args).stdout)

    def run(self, command: str, *args: object) -> Result:
        none = self.root.parent / "none"
        words = ["limits", command, "--root", self.root, "--data-dir", none, *args]
        return CliRunner(env={"COLUMNS": "300"}).invoke(main, [*map(str, words)])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"docker/{A}", f"docker/{A[:12]}"),
        (f"system.slice/docker-{A}.scope", f"docker/{A[:12]}"),
        (f"custom.slice/custom-a.slice/docker-{A}.scope", f"docker/{A[:12]}"),
        (f"user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope", f"docker/{A[:12]}"),
        (f"machine.slice/libpod-{A}.scope", f"podman/{A[:12]}"),
        (f"machine.slice/machine-libpod_pod_{B}.slice/libpod-{A}.scope", f"podman/{A[:12]}"),
        (f"libpod_parent/libpod-{A}", f"podman/{A[:12]}"),
        (f"libpod_parent/{B[:20]}/libpod-{A}", f"podman/{A[:12]}"),
        (f"user.slice/user-7.slice/user@7.service/user.slice/libpod-{A}.scope", f"podman/{A[:12]}"),
        (f"system.slice/web.service/libpod-payload-{A}", f"podman/{A[:12]}"),
        (f"system.slice/nerdctl-{A}.scope", f"containerd/{A[:12]}"),
        (f"default/{A}", f"containerd/{A[:12]}"),
        (f"somewhere/{A}", f"container/{A[:12]}"),
        ("lxc.payload.box", "lxc/box"),
        ("system.slice/nginx.service", "systemd/nginx.service"),
        ("system.slice/system-getty.slice/getty@tty1.service", "systemd/getty@tty1.service"),
        (r"system.slice/dev\x2dmqueue.service", "systemd/dev-mqueue.service"),
        ("user.slice/user-7.slice/user@7.service/app.slice/job.scope", "systemd/user@7/job.scope"),
        ("batch.slice", "systemd/batch.slice"),
    ],
)
def test_a_group_is_found_and_named(node, path, name):
    node.add(path)
    assert node.names() == {name}


@pytest.mark.parametrize(
    "path",
    [
        f"machine.slice/libpod-conmon-{A}.scope/sub",
        f"kubepods.slice/kubepods-pod1.slice/docker-{A}.scope/init",
        "lxc.monitor.box",
        "docker/not-an-id",
    ],
)
def test_what_is_neither_a_container_nor_a_unit_is_left_out(node, path):
    node.add(path)
    assert not {name for name in node.names() if not name.startswith("/")}


def test_containers_count_with_and_without_a_limit_and_units_with_one_only(node):
    node.add(f"docker/{A}", limited=False)
    node.add("system.slice/limited.service")
    node.add("system.slice/free.service", limited=False)
    node.add("system.slice/ended.service", alive=False)
    assert node.names() == {f"docker/{A[:12]}", "systemd/limited.service"}


def test_names_are_those_that_docker_and_podman_keep(node):
    node.add(f"docker/{A}")
    node.add(f"machine.slice/libpod-{B}.scope")
    node.add(f"machine.slice/libpod-{C}.scope")
    write(node.root / f"var/lib/docker/containers/{A}/config.v2.json", '{"Name": "/shop-web-1"}')
    listed = [{"id": B, "names": ["db"]}, {"id": C, "names": None}, "broken"]
    write(node.root / "var/lib/containers/storage/overlay-containers/containers.json", json.dumps(listed))
    assert node.names() == {"docker/shop-web-1", "podman/db", f"podman/{C[:12]}"}
    assert node.names("-n", "podman") == {"podman/db", f"podman/{C[:12]}"}
    assert node.names("--pod", "shop-*") == {"docker/shop-web-1"}


@pytest.mark.parametrize("content", ["", "[]", '{"Name": 3}', "\x00", "[" * 100_000])
def test_damaged_name_files_leave_the_id(node, content):
    node.add(f"docker/{A}")
    write(node.root / f"var/lib/docker/containers/{A}/config.v2.json", content)
    assert node.names() == {f"docker/{A[:12]}"}


def test_where_nothing_is_found_the_note_says_what_to_do(node):
    node.add("system.slice/free.service", limited=False)
    result = node.run("watch", "--once", "-o", "json")
    notes = " ".join(json.loads(result.stdout)["notes"])
    for words in ("no containers found", "--root", "--cgroup", "--prometheus", "system.slice/free.service"):
        assert words in notes
    assert result.exit_code == 3
    advice = node.run("advise", "-o", "json", "--seconds", 10)
    assert advice.exit_code == 3
    assert "no containers found" in " ".join(json.loads(advice.stdout)["notes"])


def test_pods_of_a_kubelet_stand_beside_dockers_containers(tmp_path, monkeypatch):
    use_clock(monkeypatch, Clock())
    tree = Kubepods(tmp_path / "root")
    quiet(tree.add("u1", A, name="app"))
    node = Node(tmp_path / "root", 2)
    node.add(f"docker/{B}")
    assert node.names() == {"default/app", f"docker/{B[:12]}"}


@pytest.mark.parametrize(("threads", "offered"), [(1, False), (4, True)])
def test_fewer_threads_are_advised_only_where_there_are_several(tmp_path, monkeypatch, threads, offered):
    node = Node(tmp_path / "root", 2)
    group = node.add(f"docker/{A}", threads=threads)
    work = lambda: counters(group, usage=2_000_000, periods=100, throttled=100, us=16_000_000)  # noqa: E731
    use_clock(monkeypatch, Clock(work))
    result = node.run("advise", "-o", "json", "--seconds", 10)
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.stdout)["advice"]
    assert one["answer"] == "change"
    assert ("set-threads" in {option["option"] for option in one["options"]}) is offered
