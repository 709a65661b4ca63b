"""The agent beside a kubelet, measured: `make bench-agent`.

On this machine's containerd (root, runc, busybox-static; see tests/support/containerd.py), beside a kubelet
and an API server of the tests' own: cost of an idle agent, reconciling, start, and the time from a container's
start until its CPUs were read back. Then what it is for: a latency-critical server beside noise, in real
cgroups, under none, static and pools. Other programs that run meanwhile spoil the figures.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report
from report import Row

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

CONTAINERS = 100
SECONDS = 20.0


async def agent_rows(release: str) -> list[Row]:
    """Rows measured on a real containerd."""
    from support import containerd, kubelet_server
    from support.certificates import Authority
    from support.cluster_lab import cluster
    from support.kubelet_server import FakeKubelet

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        (path / "cd").mkdir()
        authority = Authority.make()
        pair = authority.issue(path / "kubelet.pem", "here", "127.0.0.1")
        authority.write(path / "ca.pem")
        (path / "token").write_text("token")
        fake = FakeKubelet(tokens={"token"})
        with containerd.running(path / "cd", release) as lab:
            async with cluster(path) as client, kubelet_server.serving(fake, pair) as kubelet:
                await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
                (path / "node.yaml").write_text(
                    f"runtime: {{endpoint: {lab.socket}, nri: off}}\n"
                    f"kubelet: {{address: '{kubelet.url}', caFile: {path}/ca.pem, tokenFile: {path}/token}}\n"
                )
                return await _measured(lab, fake, path)


async def _measured(lab: Any, fake: Any, path: Path) -> list[Row]:
    await asyncio.to_thread(_pods, lab, fake, "old", CONTAINERS)
    began = time.monotonic()
    agent = subprocess.Popen(_command(path), stderr=(path / "log").open("wb"))
    try:
        status = await _until(path, lambda s: s["containers"].get("confirmed", 0) >= CONTAINERS)
        started = time.monotonic() - began
        await asyncio.sleep(5)
        before = _cpu_seconds(agent.pid)
        await asyncio.sleep(SECONDS)
        share = (_cpu_seconds(agent.pid) - before) / SECONDS * 100
        steady = time.time()
        status = await _until(path, lambda s: s["reconcile"]["at"] > steady)
        await asyncio.to_thread(_pods, lab, fake, "new", 20)
        after = await _until(path, lambda s: s["containers"].get("confirmed", 0) >= CONTAINERS + 20)
        return [
            Row(f"idle agent, {CONTAINERS} containers: CPU", share, "% of a core", 0.5, "lower"),
            Row(f"idle agent, {CONTAINERS} containers: RSS", _rss_mb(agent.pid), "MB", 80, "lower"),
            Row(
                f"unchanged reconcile, {CONTAINERS} containers",
                status["reconcile"]["seconds"] * 1e3,
                "ms",
                50,
            ),
            Row(f"start with {CONTAINERS} running containers", started, "s", 2, "lower"),
            Row("startedAt to set read back, p99, runtime events", after["overlap"]["p99"] * 1e3, "ms", 100),
        ]
    finally:
        agent.terminate()
        agent.wait(20)


def _command(path: Path) -> list[str]:
    return [
        sys.executable, "-m", "corelane", "agent", "run", "--node-name", "here",
        "--node-config", str(path / "node.yaml"), "--kubeconfig", str(path / "kubeconfig"),
        "--state-dir", str(path / "state"),
    ]  # fmt: skip


def _pods(lab: Any, fake: Any, name: str, count: int) -> None:
    """Pods of ten containers each, in the shared pool."""
    for first in range(0, count, 10):
        uid = f"{hash(name) % 10**8:08}-2222-4333-8444-{first:012}"
        containers = [{"name": f"c{number}", "image": "i"} for number in range(10)]
        metadata = {"name": f"{name}-{first}", "namespace": "default", "uid": uid}
        fake.pods = [*fake.pods, {"metadata": metadata, "spec": {"containers": containers}}]
        pod = lab.run_pod(metadata["name"], uid, "besteffort")
        for container in containers:
            lab.run_container(pod, container["name"], shares=2)


async def _until(path: Path, done: Any) -> dict[str, Any]:
    from corelane.agent.status_socket import read_status

    async with asyncio.timeout(120):
        while True:
            try:
                status = await asyncio.to_thread(read_status, path / "state")
                if done(status):
                    return status
            except OSError:
                pass
            await asyncio.sleep(0.05)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def latency_rows(seconds: float = 10.0) -> list[Row]:
    """Rows of a server beside noise, on the CPUs that each policy gives both."""
    rows = []
    for policy in ("none", "static", "pools"):
        result = await _beside_noise(policy, seconds)
        units = {
            "throughput": ("requests/s", 1.0),
            "p99": ("ms", 1e3),
            "switches": ("", 1.0),
            "migrations": ("", 1.0),
        }
        for name, (unit, factor) in units.items():
            better = "higher" if name == "throughput" else "lower"
            rows.append(
                Row(f"server beside noise, {policy}: {name}", result[name] * factor, unit, None, better)
            )
    return rows


async def _beside_noise(policy: str, seconds: float) -> dict[str, Any]:
    from corelane.cpuset import CPUSet
    from corelane.machine.sources import load
    from corelane.node import NodeConfig, admit, new
    from corelane.runtime.base import ContainerSpec
    from corelane.runtime.local import LocalRuntime
    from corelane.workload import ContainerRequest, PlacementSpec, PodQOS, PodRequest, QOSClass

    spec = PlacementSpec(qos=PodQOS.LSE) if policy == "pools" else PlacementSpec()
    app = ContainerRequest("app", cpu_request=1000, cpu_limit=1000, memory_request=1, memory_limit=1)
    request = PodRequest("server", "default", "server", QOSClass.GUARANTEED, (app,), placement_spec=spec)
    machine = load()
    ledger, _ = admit(new(machine, NodeConfig(policy=policy)), request)
    own = CPUSet(ledger.entries["server", "app"].cpus) or machine.usable
    others = machine.usable - own if policy != "none" else machine.usable
    script = str(Path(__file__).with_name("latency_server.py"))
    with tempfile.TemporaryDirectory() as name:
        runtime = await LocalRuntime.open(Path(name) / "runtime")
        try:
            for number in range(2 * len(machine.usable)):
                await runtime.start(
                    ContainerSpec(
                        pod_uid="noise",
                        namespace="default",
                        pod="noise",
                        name=f"n{number}",
                        command=(sys.executable, script, "noise"),
                        cpus=others,
                        cpu_shares_milli=2,
                    )  # fmt: skip
                )
            result = Path(name) / "result.json"
            await runtime.start(
                ContainerSpec(
                    pod_uid="server",
                    namespace="default",
                    pod="server",
                    name="app",
                    command=(sys.executable, script, "server", str(seconds), str(result)),
                    cpus=own,
                    cpu_shares_milli=1000,
                    quota_us=100_000 if policy == "none" else None,
                )  # fmt: skip
            )
            async with asyncio.timeout(seconds * 4 + 30):
                while not (result.exists() and result.stat().st_size):
                    await asyncio.sleep(0.2)
            answer: dict[str, Any] = json.loads(result.read_text())
            return answer
        finally:
            await runtime.destroy(0)


def main() -> None:
    rows = asyncio.run(latency_rows())
    try:
        rows = asyncio.run(agent_rows("1.6")) + rows
    except BaseException as error:  # pytest's Skipped: no containerd here
        if type(error).__name__ != "Skipped":
            raise
        print(f"not measured on containerd: {error}")
    report.show(rows)
    report.keep("agent", rows)


if __name__ == "__main__":
    main()
