"""`corelane up` from outside: pods pinned, kept over crashes and stops, and ended when that is asked for."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.kernel import proc
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from support.up import FOREVER, Up, clear, container, is_alive, pod, up
from support.up_pods import pids, ready

SHARER = pod("sharer", container("c", FOREVER, "100m"))
LANE = pod("lane", container("server", FOREVER, "1"), container("sidecar", FOREVER, "100m"))

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: nothing can be exclusive")


@pytest.fixture(params=["auto", "off"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Up]:
    with up(tmp_path / "data", "--cgroups", request.param, "--node-name", "here") as running:
        yield running


async def run(client: KubeClient, *manifests: dict[str, object]) -> None:
    for manifest in manifests:
        await client.create(manifest)


def allowed(pid: int) -> set[str]:
    return {str(task.cpus) for task in proc.tasks_allowed([pid])}


@needs_two
def test_exclusive_containers_get_cpus_that_nobody_else_may_use(cluster: Up) -> None:
    cluster.call(lambda client: run(client, SHARER))
    ready(cluster, "sharer")
    everything = allowed(pids(cluster.data_dir)["sharer/c"])
    cluster.call(lambda client: run(client, LANE))
    ready(cluster, "sharer", "lane")
    found = pids(cluster.data_dir)
    (lane,) = allowed(found["lane/server"])
    assert "," not in lane
    assert "-" not in lane
    assert allowed(found["sharer/c"]) == allowed(found["lane/sidecar"])
    assert lane not in allowed(found["sharer/c"]) | everything

    cluster.call(lambda client: client.delete(Pod, "lane", namespace="default"))
    cluster.until(lambda client: _grew_back(found["sharer/c"], everything), "the pool grew back")


async def _grew_back(pid: int, everything: set[str]) -> bool:
    return allowed(pid) == everything


@needs_two
def test_killed_corelane_comes_back_to_the_same_processes_on_the_same_cpus(cluster: Up) -> None:
    cluster.call(lambda client: run(client, SHARER, LANE))
    ready(cluster, "sharer", "lane")
    before = pids(cluster.data_dir)
    cpus = {name: allowed(pid) for name, pid in before.items()}
    cluster.process.send_signal(signal.SIGKILL)
    cluster.process.wait()
    assert all(is_alive(pid) for pid in before.values())
    os.kill(before["lane/sidecar"], signal.SIGKILL)

    with up(cluster.data_dir, "--node-name", "here") as again:
        ready(again, "sharer", "lane")
        again.until(lambda client: _restarted(client, "lane", "sidecar"), "the sidecar was restarted")
        after = pids(again.data_dir)
        for name in ("sharer/c", "lane/server"):
            assert after[name] == before[name]
            assert allowed(after[name]) == cpus[name]
        assert after["lane/sidecar"] != before["lane/sidecar"]


async def _restarted(client: KubeClient, name: str, container_name: str) -> bool:
    found = (await client.get(Pod, name, "default")).status.container_statuses
    return any(one.name == container_name and one.restart_count == 1 and one.ready for one in found)


def test_interrupt_ends_corelane_soon_and_leaves_the_processes_running(cluster: Up) -> None:
    cluster.call(lambda client: run(client, SHARER))
    ready(cluster, "sharer")
    (pid,) = pids(cluster.data_dir).values()
    assert cluster.stop() < 5
    assert cluster.process.returncode == 0
    assert is_alive(pid)


def test_stop_pods_ends_the_processes_and_leaves_no_cgroup(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--stop-pods") as cluster:
        cluster.call(lambda client: run(client, SHARER))
        ready(cluster, "sharer")
        (pid,) = pids(cluster.data_dir).values()
        groups = Path(f"/proc/{pid}/cgroup").read_text()
        cluster.stop(signal.SIGTERM)
        assert cluster.process.returncode == 0
        assert not Path(f"/proc/{pid}").exists()
        paths = [line.split(":", 2)[2] for line in groups.splitlines() if "/corelane/" in line]
        ours = [path[: path.index("/", path.index("/corelane/") + len("/corelane/"))] for path in paths]
        assert not [
            g for g in ours for base in Path("/sys/fs/cgroup").glob("*") if (base / g.lstrip("/")).is_dir()
        ]


def test_directory_in_use_is_refused_and_named(cluster: Up) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "corelane", "up", "--data-dir", str(cluster.data_dir)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert second.returncode == 2
    assert str(cluster.data_dir) in second.stderr
    assert str(cluster.process.pid) in second.stderr


def test_nobody_gets_in_without_the_token_of_the_kubeconfig(tmp_path: Path) -> None:
    import ssl

    with up(tmp_path / "data", "--cgroups", "off") as cluster:
        assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
        url = cluster.output.split("corelane is up at ")[1].split()[0]
        assert url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(cluster.data_dir / "ca.crt"))
        for headers, code in (({}, 403), ({"Authorization": "Bearer wrong"}, 401)):
            request = urllib.request.Request(f"{url}/api/v1/pods", headers=headers)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, context=context)
            assert refused.value.code == code


def test_address_and_token_outlive_a_restart(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--cgroups", "off") as first:
        first.stop()
        known = first.kubeconfig.read_text()
        again = Up(tmp_path / "data", "--cgroups", "off")
        try:
            assert again.kubeconfig.read_text() == known
        finally:
            again.kill()


def test_simulated_nodes_take_pods_and_run_no_process(tmp_path: Path) -> None:
    tolerant = pod(
        "far",
        container("c", "exit 1", "4"),
        nodeSelector={"corelane.io/simulated": "true"},
        tolerations=[{"key": "corelane.io/simulated", "operator": "Exists"}],
    )
    with up(
        tmp_path / "data", "--cgroups", "off", "--nodes", "2", "--machine", "socket:2 core:4 smt:2"
    ) as cluster:
        cluster.call(lambda client: run(client, tolerant))
        ready(cluster, "far")
        assert not pids(cluster.data_dir)
        shown = subprocess.run(
            [
                sys.executable,
                "-m",
                "corelane",
                "status",
                "--kubeconfig",
                str(cluster.kubeconfig),
                "-o",
                "json",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        status = json.loads(shown.stdout)
        assert [node["simulated"] for node in status["nodes"]] == [False, True, True]
        (line,) = status["containers"]
        assert line["state"] == "simulated"
        assert line["exclusive"]
        assert "NUMA node" in line["why"]


def test_clear_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path / "data") as cluster:
        cluster.call(lambda client: run(client, SHARER))
        ready(cluster, "sharer")
        (pid,) = pids(cluster.data_dir).values()
        cluster.kill()
        clear(cluster.data_dir)
        assert not Path(f"/proc/{pid}").exists()
