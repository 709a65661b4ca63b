"""Nodes and pods for a scheduler, made through an API server's client, and checks on what it bound."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from corelane.cpuset import CPUSet
from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.kube import translate
from corelane.kube.client import KubeClient
from corelane.kube.objects import Event, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.daemon.scheduler import Scheduler
from support import objects

TOKEN = "token"


class ScheduledCluster:
    """A client's cluster, and the scheduler that runs there, if it is of this process."""

    def __init__(self, client: KubeClient, scheduler: Scheduler | None = None) -> None:
        self.client, self.scheduler = client, scheduler
        self.states: dict[str, NodeState] = {}

    async def node(self, name: str, spec: str, cpus: int, policy: str = "static", **more: Any) -> None:
        """Create a node with its topology; CPU 0 is reserved; `more` is of the node's spec."""
        allocatable = {**objects.node(name, cpus).status.allocatable}
        status = {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        await self.client.patch(Node, name, {"status": status}, subresource="status")
        # A server may taint a new node as not ready, and no node controller takes that away.
        await self.client.patch(Node, name, {"spec": {"taints": None, **more}})
        self.states[name] = objects.state(spec, name, reserved=CPUSet([0]), policy=policy)
        await self.client.create(translate.topology(self.states[name].machine, name, self.states[name]))

    async def publish(self, name: str, state: NodeState) -> None:
        self.states[name] = state
        whole = translate.topology(state.machine, name, state)
        body = {"metadata": {"annotations": whole["metadata"]["annotations"]}, "zones": whole["zones"]}
        await self.client.patch(NodeResourceTopology, name, body)

    async def pod(self, name: str, cpu: str = "2", finalizers: tuple[str, ...] = (), **spec: Any) -> None:
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
                "metadata": {"name": name, "namespace": "default", "finalizers": list(finalizers)},
                "spec": {"schedulerName": "corelane-scheduler", "containers": [container], **spec},
            }
        )

    async def placed(self, name: str) -> Pod:
        return await self.until(name, lambda pod: bool(pod.spec.node_name))

    async def until(self, name: str, holds: Callable[[Pod], bool]) -> Pod:
        while not holds(pod := await self.client.get(Pod, name, "default")):
            await asyncio.sleep(0.02)
        return pod

    async def events(self, name: str, count: int = 1) -> list[Event]:
        """Wait until so many events are about an object, and return them by reason."""
        while True:
            listed = await self.client.list(Event, field_selector=f"involvedObject.name={name}")
            if len(listed.items) >= count:
                return sorted(listed.items, key=lambda event: event.reason)
            await asyncio.sleep(0.02)

    async def pods(self) -> list[Pod]:
        return list((await self.client.list(Pod)).items)

    async def all_bound(self, count: int) -> list[Pod]:
        """Wait until so many pods are bound, and return them."""
        while True:
            bound = [pod for pod in await self.pods() if pod.spec.node_name]
            if len(bound) >= count:
                return bound
            await asyncio.sleep(0.1)


@asynccontextmanager
async def embedded_server() -> AsyncIterator[APIServer]:
    """corelane's own API server, whose administrator has `TOKEN`."""
    server = APIServer(tokens={TOKEN: User("admin", ("system:masters",))})
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def scheduling(scheduler: Scheduler) -> AsyncIterator[None]:
    """Have the scheduler run, and check that it does not end by itself."""
    running = asyncio.create_task(scheduler.run())
    try:
        yield
    finally:
        ended = running.done()
        running.cancel()
        await asyncio.wait({running})
        assert not ended, running


@asynccontextmanager
async def running(
    cluster: Callable[[KubeClient, Scheduler], Any] = ScheduledCluster,
    sees: type[KubeClient] = KubeClient,
    **settings: Any,
) -> AsyncIterator[Any]:
    """A cluster beside a scheduler with these settings, whose client is of class `sees`."""
    async with embedded_server() as server:
        client, own = KubeClient.connect_to(server.url, TOKEN), sees.connect_to(server.url, TOKEN)
        scheduler = Scheduler(own, **settings)
        try:
            async with scheduling(scheduler):
                yield cluster(client, scheduler)
        finally:
            await own.close()
            await client.close()


def assert_no_cpu_twice(pods: list[Pod]) -> int:
    """Check that no CPU of a node is proposed to two pods; return how many are proposed in all."""
    taken: dict[str, CPUSet] = {}
    for pod in pods:
        for cpus in translate.request(pod).proposal.values():
            before = taken.get(pod.spec.node_name, CPUSet())
            assert cpus.isdisjoint(before), f"{pod.title} on {pod.spec.node_name}: {cpus} of {before}"
            taken[pod.spec.node_name] = before | cpus
    return sum(map(len, taken.values()))
