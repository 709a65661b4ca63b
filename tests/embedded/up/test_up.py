"""`corelane up` from outside: pods pinned, kept over crashes and stops, and ended when that is asked for."""

from __future__ import annotations

import os
import signal
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.kernel import proc
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from support.up import FOREVER, Up, container, is_alive, pod, up
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
def test_pods_go_on_when_corelane_is_killed_or_interrupted_and_are_adopted_unchanged(cluster: Up) -> None:
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
        assert again.stop() < 5
        assert again.process.returncode == 0
        assert all(is_alive(pid) for pid in after.values())


async def _restarted(client: KubeClient, name: str, container_name: str) -> bool:
    found = (await client.get(Pod, name, "default")).status.container_statuses
    return any(one.name == container_name and one.restart_count == 1 and one.ready for one in found)


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


def test_the_api_requires_the_kubeconfigs_token_which_outlives_a_restart_as_the_address_does(
    tmp_path: Path,
) -> None:
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
        cluster.stop()
        kubeconfig = cluster.kubeconfig.read_text()
        again = Up(tmp_path / "data", "--cgroups", "off")
        try:
            assert again.kubeconfig.read_text() == kubeconfig
        finally:
            again.kill()
