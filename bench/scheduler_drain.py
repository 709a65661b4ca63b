"""How fast pending pods are bound, end to end: corelane's scheduler, and kube-scheduler beside it."""

# ruff: noqa: T201
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import scheduler_cluster as clusters
import scheduler_load as load
import yaml
from report import Row
from scheduler_cluster import Cluster

PODS: Final = 5000
SIZES: Final = (1000, 5000)
CORELANE: Final = "corelane-scheduler"
KUBE: Final = "kube-scheduler-bench"
PATIENCE_S: Final = 600.0
_VERSION: Final = re.compile(rb'"resourceVersion":"(\d+)"')
REFERENCE: Final = {1000: 721.0, 5000: 324.0}
"""kube-scheduler 1.36 on a two-core machine, in pods/s by number of nodes (issue 12)."""


@dataclass(slots=True)
class Drained:
    """One drain: how many pods were seen bound, and when, in s since the scheduler's process was started."""

    pods: int
    first: float = 0.0
    last: float = 0.0
    bound: int = 0
    server_cpu: float = 0.0
    scheduler_cpu: float = 0.0

    @property
    def rate(self) -> float:
        return (self.bound - 1) / (self.last - self.first) if self.bound > 1 else 0.0


@contextmanager
def corelane(cluster: Cluster, name: str = CORELANE) -> Iterator[tuple[int, Path]]:
    """Run corelane's scheduler; yield its process id and its report."""
    with tempfile.TemporaryDirectory(prefix="corelane-bench-") as home:
        report = Path(home) / "report.json"
        script = clusters.ROOT / "bench" / "scheduler_process.py"
        process = subprocess.Popen([sys.executable, str(script), str(cluster.kubeconfig), name, str(report)])
        try:
            yield process.pid, report
        finally:
            process.terminate()
            process.wait(30)


def kube_configuration(cluster: Cluster) -> dict[str, Any]:
    """kube-scheduler with its client's limits out of the way; everything else at its defaults."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig), "qps": 100_000, "burst": 100_000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": KUBE}],
    }


@contextmanager
def kube_scheduler(binary: Path, cluster: Cluster) -> Iterator[tuple[int, Path]]:
    """Run the real kube-scheduler; yield its process id and its log."""
    with tempfile.TemporaryDirectory(prefix="corelane-bench-") as home:
        config, log = Path(home) / "config.yaml", Path(home) / "log"
        config.write_text(yaml.safe_dump(kube_configuration(cluster)))
        command = [str(binary), f"--config={config}", "--secure-port=0", "--v=1"]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            yield process.pid, log
        finally:
            process.terminate()
            process.wait(30)


async def drain(cluster: Cluster, scheduler: str, pods: int, run: Any) -> Drained:
    """Create pods, start a scheduler (`run` is a context manager), and watch until all are bound."""
    result = Drained(pods)
    selector = f"drain={scheduler}"
    async with cluster.client() as client:
        objects = (
            load.exclusive(f"{scheduler}-{number}", 2, labels={"drain": scheduler}, scheduler=scheduler)
            for number in range(pods)
        )
        await clusters.put_pods(client, objects)
        version = await _version(client, selector)
        before = clusters.cpu_seconds(cluster.pid) if cluster.pid else 0.0
        began = time.monotonic()
        with run as (pid, _report):
            async for when in _bound(cluster, selector, version, pods):
                result.bound += 1
                result.first = result.first or when - began
                result.last = when - began
            result.scheduler_cpu = clusters.cpu_seconds(pid)
        result.server_cpu = (clusters.cpu_seconds(cluster.pid) if cluster.pid else 0.0) - before
        await clusters.delete_pods(client, selector)
    return result


async def _version(client: Any, selector: str) -> str:
    body = await client.raw(
        "GET", "/api/v1/namespaces/default/pods", {"labelSelector": selector, "limit": "1"}
    )
    return str(json.loads(body)["metadata"]["resourceVersion"])


async def _bound(cluster: Cluster, selector: str, version: str, pods: int) -> AsyncIterator[float]:
    """Yield the times at which pods are first seen with a node, from a watch."""
    import msgspec

    class Meta(msgspec.Struct):
        uid: str = ""

    class Spec(msgspec.Struct):
        nodeName: str = ""  # noqa: N815

    class Seen(msgspec.Struct):
        metadata: Meta = msgspec.field(default_factory=Meta)
        spec: Spec = msgspec.field(default_factory=Spec)

    class Event(msgspec.Struct):
        type: str
        object: Seen

    decode, seen = msgspec.json.Decoder(Event).decode, set()
    deadline = time.monotonic() + PATIENCE_S
    async for line in _lines(cluster, selector, version, deadline):
        if b'"nodeName":"' not in line:
            continue
        event = decode(line)
        if event.type == "MODIFIED" and event.object.spec.nodeName and event.object.metadata.uid not in seen:
            seen.add(event.object.metadata.uid)
            yield time.monotonic()
            if len(seen) == pods:
                return


async def _lines(cluster: Cluster, selector: str, version: str, deadline: float) -> AsyncIterator[bytes]:
    """Yield the lines of a watch; where the server ends it (a slow reader), go on from the last one."""
    while time.monotonic() < deadline:
        async for line in _one_watch(cluster, selector, version, deadline):
            if found := _VERSION.search(line):
                version = found[1].decode()
            yield line


async def _one_watch(cluster: Cluster, selector: str, version: str, deadline: float) -> AsyncIterator[bytes]:
    """Lines of one watch, from a process of its own: `curl` costs less than reading it here would."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    path = "/api/v1/namespaces/default/pods?watch=1"
    url = f"{server['server']}{path}&labelSelector={selector}&resourceVersion={version}"
    most = str(int(deadline - time.monotonic()) + 1)
    header = f"Authorization: Bearer {user['token']}"
    command = ["curl", "-sSNk", "--http1.1", "--max-time", most, "-H", header, url]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, limit=1 << 24)
    assert process.stdout is not None
    try:
        while line := await process.stdout.readline():
            yield line
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def rows(
    cluster: Cluster, binary: Path | None, sizes: tuple[int, ...] = SIZES, pods: int = PODS
) -> Iterator[Row]:
    """Yield the rows of a cluster; nodes are added from size to size."""
    if binary:
        print("kube-scheduler's configuration:", json.dumps(kube_configuration(cluster)))
    had = 0
    for size in sizes:
        asyncio.run(_grow(cluster, had, size))
        had = size
        reference, name = REFERENCE.get(size), "kube-scheduler 1.36 (quoted)"
        if binary:
            run = asyncio.run(drain(cluster, KUBE, pods, kube_scheduler(binary, cluster)))
            reference, name = run.rate, "kube-scheduler beside it"
            print(_described(cluster, "kube-scheduler", size, run))
        run = asyncio.run(drain(cluster, CORELANE, pods, corelane(cluster)))
        print(_described(cluster, "corelane", size, run))
        title = f"drain, {cluster.name}, {size} nodes"
        yield Row(f"{title}: corelane", run.rate, "pods/s", reference, "higher", name, reference)
        yield Row(f"{title}: bound", 100 * run.bound / pods, "%", 100, "higher")
        yield Row(
            f"{title}: scheduler's CPU for a pod", 1e6 * run.scheduler_cpu / max(1, run.bound), "µs", None
        )


async def _grow(cluster: Cluster, had: int, size: int) -> None:
    async with cluster.client() as client:
        await clusters.put_nodes(client, range(had, size))


def _described(cluster: Cluster, who: str, size: int, run: Drained) -> str:
    return (
        f"{cluster.name}, {size} nodes, {who}: {run.bound} of {run.pods} bound, {run.rate:.0f} pods/s,"
        f" first after {run.first:.1f} s, last after {run.last:.1f} s;"
        f" CPU: scheduler {run.scheduler_cpu:.1f} s, server {run.server_cpu:.1f} s;"
        f" load {os.getloadavg()[0]:.1f}"
    )
