"""Nodes and pods for a scheduler, made through an API server's client, and checks on what it bound."""

import asyncio
from collections.abc import Callable
from typing import Any

from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.client import KubeClient
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from support import objects


class ScheduledCluster:
    """A client's cluster."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.states: dict[str, NodeState] = {}

    async def node(self, name: str, spec: str, cpus: int, policy: str = "static") -> None:
        """Create a node with its topology; CPU 0 is reserved."""
        allocatable = {**objects.node(name, cpus).status.allocatable}
        status = {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        await self.client.patch(Node, name, {"status": status}, subresource="status")
        # A server may taint a new node as not ready, and no node controller takes that away.
        await self.client.patch(Node, name, {"spec": {"taints": None}})
        self.states[name] = objects.state(spec, name, reserved=CPUSet([0]), policy=policy)
        await self.client.create(translate.topology(self.states[name].machine, name, self.states[name]))

    async def pod(self, name: str, cpu: str = "2", **spec: Any) -> None:
        """Create a guaranteed pod."""
        resources = {"cpu": cpu, "memory": "64Mi"}
        container = {
            "name": "main",
            "image": "none",
            "command": ["true"],
            "resources": {"requests": resources, "limits": resources},
        }
        await self.client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"schedulerName": "corelane-scheduler", "containers": [container], **spec},
            }
        )

    async def placed(self, name: str) -> Pod:
        return await self.until(name, lambda pod: bool(pod.spec.node_name))

    async def until(self, name: str, holds: Callable[[Pod], bool]) -> Pod:
        while not holds(pod := await self.client.get(Pod, name, "default")):
            await asyncio.sleep(0.05)
        return pod

    async def pods(self) -> list[Pod]:
        return list((await self.client.list(Pod)).items)

    async def all_bound(self, count: int) -> list[Pod]:
        """Wait until so many pods are bound, and return them."""
        while True:
            bound = [pod for pod in await self.pods() if pod.spec.node_name]
            if len(bound) >= count:
                return bound
            await asyncio.sleep(0.1)


def assert_no_cpu_twice(pods: list[Pod]) -> int:
    """Check that no CPU of a node is proposed to two pods; return how many are proposed in all."""
    taken: dict[str, CPUSet] = {}
    for pod in pods:
        for cpus in translate.request(pod).proposal.values():
            before = taken.get(pod.spec.node_name, CPUSet())
            assert cpus.isdisjoint(before), f"{pod.title} on {pod.spec.node_name}: {cpus} of {before}"
            taken[pod.spec.node_name] = before | cpus
    return sum(map(len, taken.values()))
