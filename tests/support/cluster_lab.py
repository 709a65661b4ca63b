"""An embedded API server in this process and event loop, a client of it, and agents on their own state."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.pods.pod_agent import Agent
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import Event
from corelane.kube.pod import Pod

TOKEN = "secret"


def write_kubeconfig(path: Path, url: str) -> Path:
    """JSON is YAML."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": url}}],
        "users": [{"name": "lab", "user": {"token": TOKEN}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }
    path.write_text(json.dumps(config))
    return path


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[KubeClient]:
    """A server in memory, gone afterwards; `directory` gets a kubeconfig for others to use."""
    server = APIServer(tokens={TOKEN: User("admin", ("system:masters",))})
    await server.start()
    client = KubeClient.connect(write_kubeconfig(directory / "kubeconfig", server.url))
    try:
        yield client
    finally:
        await client.close()
        await server.stop()


@asynccontextmanager
async def working(agent: Agent) -> AsyncIterator[Agent]:
    """An agent that runs, and is shut down afterwards with its pods left running."""
    task = asyncio.create_task(agent.run())
    try:
        ready = asyncio.create_task(agent.ready())
        await asyncio.wait({task, ready}, timeout=180, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        assert ready.done(), "the agent did not come up within 180 s"
        yield agent
    finally:
        await agent.shutdown()
        await asyncio.gather(task, return_exceptions=True)


def container(name: str, script: str, cpu: str = "", **more: Any) -> dict[str, Any]:
    """A shell script; with `cpu` it is given for request and limit, with some memory."""
    amounts = {"cpu": cpu, "memory": "16Mi"}
    resources = {"requests": amounts, "limits": amounts} if cpu else {}
    return {
        "name": name,
        "image": "none",
        "command": ["/bin/sh", "-c", script],
        "resources": resources,
        **more,
    }


def pod(name: str, *containers: dict[str, Any], node: str = "here", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 2,
            "containers": list(containers),
            **spec,
        },
    }


SERVE = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


async def until(what: Callable[[], Awaitable[Any]], seconds: float = 120) -> Any:
    """Wait for something to become true, and return it."""
    deadline = time.monotonic() + seconds
    while True:
        found = await what()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.03)


async def read_pod(client: KubeClient, name: str) -> Pod | None:
    try:
        return await client.get(Pod, name, "default")
    except APIError as error:
        if error.code == 404:
            return None
        raise


async def phase(client: KubeClient, name: str, wanted: str, seconds: float = 120) -> Pod:
    """The pod once it is in that phase."""

    async def there() -> Pod | None:
        found = await read_pod(client, name)
        return found if found and found.status.phase == wanted else None

    return await until(there, seconds)


async def gone(client: KubeClient, name: str) -> None:
    async def away() -> bool:
        return await read_pod(client, name) is None

    await until(away)


async def events(client: KubeClient, name: str) -> list[tuple[str, str]]:
    """Reason and message of every event about an object."""
    listing = await client.list(Event)
    return [(one.reason, one.message) for one in listing.items if one.involved_object.name == name]


async def event(client: KubeClient, name: str, reason: str) -> str:
    """The message of the first event of that reason, once there is one."""

    async def told() -> str | None:
        return next((text for why, text in await events(client, name) if why == reason), None)

    return await until(told)
