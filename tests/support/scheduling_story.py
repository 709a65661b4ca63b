"""A story on a cluster with a scheduler: objects as plain dicts, waits for what must come, cleaning up."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from support import objects, scheduler_lab
from support.scheduler_lab import Replica, Replicas, Server

PATIENCE = 120
ZONE = "topology.kubernetes.io/zone"
_LISTED = (
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/api/v1/namespaces/default/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
)

Object = dict[str, Any]


class Story:
    """A client of the cluster; every wait is bounded by the whole story's time."""

    def __init__(self, server: Server, client: KubeClient, replicas: Replicas, home: Path) -> None:
        self.server, self.client, self.replicas, self.home = server, client, replicas, home

    def scheduler(self) -> Replica:
        return self.replicas.start("--no-leader-elect")

    # Objects.

    async def post(self, path: str, obj: Object) -> Object:
        made = await self.client.raw("POST", path, body=json.dumps(obj).encode())
        return dict(json.loads(made))

    async def merge(self, path: str, patch: Object) -> None:
        body = json.dumps(patch).encode()
        await self.client.raw("PATCH", path, body=body, content_type="application/merge-patch+json")

    async def node(self, name: str, zone: str = "a", policy: str = "static") -> None:
        """A node of 16 CPUs in 2 NUMA nodes, of which CPU 0 is reserved, with its topology."""
        allocatable = {**objects.node(name, 16).status.allocatable}
        labels = {ZONE: zone, "kubernetes.io/hostname": name}
        await self.post("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": allocatable, "capacity": allocatable, "conditions": conditions}
        await self.merge(f"/api/v1/nodes/{name}/status", {"status": status})
        # A server may taint a new node as not ready, and no node controller takes that away.
        await self.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        state = objects.state("socket:1 numa:2 core:4 smt:2", name, reserved=CPUSet([0]), policy=policy)
        await self.client.create(translate.topology(state.machine, name, state))

    async def pod(self, name: str, cpu: str = "2", labels: Object | None = None, **spec: Any) -> None:
        """Create a Guaranteed pod; `ports` are of its container."""
        resources = {"cpu": cpu, "memory": "64Mi"}
        container: Object = {
            "name": "main",
            "image": "none",
            "resources": {"requests": resources, "limits": resources},
        }
        if ports := spec.pop("ports", None):
            container["ports"] = ports
        spec = {"schedulerName": "corelane-scheduler", "containers": [container], **spec}
        spec.setdefault("terminationGracePeriodSeconds", 0)
        metadata = {"name": name, "labels": labels or {}}
        await self.post("/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})

    async def delete(self, name: str) -> None:
        await self.client.delete(Pod, name, namespace="default", grace_seconds=0)

    async def get(self, name: str) -> Pod:
        return await self.client.get(Pod, name, "default")

    # What must come.

    async def placed(self, name: str) -> str:
        """Wait until the pod is bound, and return its node."""
        return (await self.until(name, lambda pod: bool(pod.spec.node_name))).spec.node_name

    async def until(self, name: str, holds: Callable[[Pod], bool]) -> Pod:
        while not holds(pod := await self.get(name)):
            await asyncio.sleep(0.05)
        return pod

    async def gone(self, name: str) -> None:
        while True:
            try:
                await self.get(name)
            except APIError as error:
                assert error.code == 404
                return
            await asyncio.sleep(0.05)

    async def refused(self, name: str) -> str:
        """Wait until the scheduler says why the pod waits, and return its message."""

        def judged(pod: Pod) -> bool:
            return any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions)

        pod = await self.until(name, judged)
        assert not pod.spec.node_name
        return next(one.message for one in pod.status.conditions if one.type == "PodScheduled")


def run(server: Server, home: Path, story: Callable[[Story], Awaitable[None]]) -> None:
    """Run a story in at most `PATIENCE` s, and delete what it made."""

    async def main(replicas: Replicas) -> None:
        client = KubeClient.connect(server.kubeconfig(home / "admin.kubeconfig"))
        try:
            async with asyncio.timeout(PATIENCE):
                await story(Story(server, client, replicas, home))
        finally:
            for replica in replicas.all:
                await asyncio.to_thread(replica.program.stop)
            await _clean(client)
            await client.close()

    with scheduler_lab.replicas(home, server) as replicas:
        asyncio.run(main(replicas))


async def _clean(client: KubeClient) -> None:
    for pod in (await client.list(Pod)).items:
        await _deleted(client, f"/api/v1/namespaces/default/pods/{pod.metadata.name}")
    for kind in (Node, NodeResourceTopology):
        for found in (await client.list(kind)).items:
            await client.delete(kind, found.metadata.name)
    for path in _LISTED:
        for name in await _names(client, path):
            if not name.startswith("system-"):
                await _deleted(client, f"{path}/{name}")


async def _names(client: KubeClient, path: str) -> list[str]:
    """Return the names of the objects of a kind; none of a kind that the embedded server does not serve."""
    try:
        listing = json.loads(await client.raw("GET", path))
    except APIError as error:
        if error.code == 404:
            return []
        raise
    return [found["metadata"]["name"] for found in listing["items"]]


async def _deleted(client: KubeClient, path: str) -> None:
    body = json.dumps({"metadata": {"finalizers": None}}).encode()
    for method, part, kind in (
        ("PATCH", body, "application/merge-patch+json"),
        ("DELETE", b'{"gracePeriodSeconds":0}', "application/json"),
    ):
        try:
            await client.raw(method, path, body=part, content_type=kind)
        except APIError as error:
            if error.code != 404:
                raise
