"""API servers for the scheduler's benchmarks: the embedded one, a real one with etcd, or a given one."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import scheduler_load as load
import yaml

from corelane.kube.client import APIError, KubeClient, Unreachable
from corelane.kube.objects import Node, NodeResourceTopology

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

TOKEN: Final = "benchtoken"  # noqa: S105 - of a server on loopback that ends with the run
AT_ONCE: Final = 24
STARTUP_S: Final = 300.0
CRD: Final = ROOT / "deploy" / "noderesourcetopologies.yaml"


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server that is reached by a kubeconfig; `name` is for the rows."""

    name: str
    kubeconfig: Path
    pid: int | None = None

    @asynccontextmanager
    async def client(self) -> AsyncIterator[KubeClient]:
        client = KubeClient.connect(self.kubeconfig)
        try:
            yield client
        finally:
            await client.close()


@contextmanager
def embedded(filled_nodes: int = 0) -> Iterator[Cluster]:
    """Yield the embedded server as a process of its own, in memory."""
    with tempfile.TemporaryDirectory(prefix="corelane-bench-") as home:
        ready = Path(home) / "url"
        command = [sys.executable, str(ROOT / "bench" / "scheduler_server.py"), str(ready), str(filled_nodes)]
        process = subprocess.Popen(command)
        try:
            _wait(lambda: ready.exists() and ready.read_text(), process)
            yield Cluster("embedded", _kubeconfig(Path(home), ready.read_text()), process.pid)
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def real(assets: Path) -> Iterator[Cluster]:
    """Yield a kube-apiserver with etcd, from the directory KUBEBUILDER_ASSETS."""
    from support.real_cluster import Assets, control_plane

    programs = Assets(assets / "kube-apiserver", assets / "etcd", Path("/bin/true"))
    with (
        tempfile.TemporaryDirectory(prefix="corelane-bench-") as home,
        control_plane(programs, Path(home)) as plane,
    ):
        kubeconfig = plane.kubeconfig(Path(home) / "admin.yaml", plane.token)
        cluster = Cluster("kube-apiserver", kubeconfig, plane.server.pid)
        asyncio.run(_define_topologies(cluster))
        yield cluster


@contextmanager
def given(kubeconfig: Path) -> Iterator[Cluster]:
    """Yield the cluster of a kubeconfig. Nodes that are made there are deleted at the end."""
    cluster = Cluster("given", kubeconfig)
    asyncio.run(_define_topologies(cluster))
    try:
        yield cluster
    finally:
        asyncio.run(_delete_nodes(cluster))


async def _delete_nodes(cluster: Cluster) -> None:
    async with cluster.client() as client:
        for kind in (Node, NodeResourceTopology):
            listing = await client.list(kind)
            names = [
                one.metadata.name for one in listing.items if one.metadata.name.startswith("bench-node-")
            ]
            await at_once((lambda kind=kind, name=name: client.delete(kind, name)) for name in names)


def _kubeconfig(home: Path, url: str) -> Path:
    path = home / "kubeconfig"
    part = {"name": "bench"}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [part | {"cluster": {"server": url}}],
                "users": [part | {"user": {"token": TOKEN}}],
                "contexts": [part | {"context": {"cluster": "bench", "user": "bench"}}],
                "current-context": "bench",
            }
        )
    )
    return path


def _wait(ready: Callable[[], object], process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + STARTUP_S
    while not ready():
        assert process.poll() is None, "the server ended"
        assert time.monotonic() < deadline, "the server does not answer"
        time.sleep(0.1)


async def _define_topologies(cluster: Cluster) -> None:
    """Define NodeResourceTopology; wait until it is served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    body = load.msgspec.json.encode(yaml.safe_load(CRD.read_text()))
    async with cluster.client() as client:
        try:
            await client.raw("POST", path, body=body)
        except APIError as error:
            if error.code != 409:
                raise
        for _ in range(300):
            try:
                await client.list(NodeResourceTopology)
            except APIError:
                await asyncio.sleep(0.2)
            else:
                return
    raise TimeoutError("NodeResourceTopology is not served")


async def at_once(calls: Iterable[Callable[[], Awaitable[object]]], count: int = AT_ONCE) -> None:
    """Make calls, `count` at a time."""
    queue = iter(calls)

    async def worker() -> None:
        for call in queue:
            await call()

    await asyncio.gather(*(worker() for _ in range(count)))


async def put_nodes(client: KubeClient, numbers: Iterable[int], policy: str = "pools") -> None:
    """Create nodes with their topologies; admission's taint for nodes that are not ready is removed."""
    topologies = load.Topologies(load.state("template", policy))

    async def put(number: int) -> None:
        obj = load.node_object(number)
        try:
            made = await client.create(obj)
        except APIError as error:
            if error.code != 409:
                raise
            made = {}
        if made.get("spec", {}).get("taints"):
            await client.patch(Node, load.node_name(number), {"spec": {"taints": None}})
        try:
            await client.create(topologies.named(load.node_name(number)))
        except APIError as error:
            if error.code != 409:
                raise

    await at_once((lambda number=number: put(number)) for number in numbers)


async def put_pods(client: KubeClient, objects: Iterable[load.Object]) -> None:
    await at_once((lambda obj=obj: client.create(obj)) for obj in objects)


async def delete_pods(client: KubeClient, selector: str) -> None:
    """Delete pods at once, bound or not; and their events."""
    body = b'{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}'
    path = "/api/v1/namespaces/default/pods"
    for last in (*[False] * 9, True):
        try:
            await client.raw("DELETE", path, {"labelSelector": selector}, body)
        except Unreachable:  # A loaded server takes longer for thousands of pods than a client waits.
            if last:
                raise
        else:
            return


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
