"""Client and informer against the embedded API server, over real sockets."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corelane import node
from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.apiserver.store.database import Store
from corelane.kube import keys, translate
from corelane.kube.client import APIError, Gone, KubeClient, Unreachable
from corelane.kube.informer import Informer, ObjectChange
from corelane.kube.objects import ConfigMap, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig, PoolOptions
from support import objects

TOKEN = "token"


def server(data_dir: Path | None = None, port: int = 0) -> APIServer:
    return APIServer(tokens={TOKEN: User("admin", ("system:masters",))}, data_dir=data_dir, port=port)


def run(story: Callable[[KubeClient], Awaitable[None]]) -> None:
    async def main() -> None:
        serving = server()
        await serving.start()
        client = KubeClient.connect_to(serving.url, TOKEN)
        try:
            async with asyncio.timeout(120):
                await story(client)
        finally:
            await client.close()
            await serving.stop()

    asyncio.run(main())


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i", "command": ["true"]}]},
    }


def settings(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": {"n": name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_a_binding_brings_its_annotations_and_is_final() -> None:
    async def story(client: KubeClient) -> None:
        made = await client.create(pod("a", annotations={"old": "1", "stays": "2"}))
        uid = made["metadata"]["uid"]
        await client.bind("default", "a", uid, "n1", {"old": "new"}, {"l": "v"})
        bound = await client.get(Pod, "a", "default")
        assert bound.spec.node_name == "n1"
        assert bound.metadata.annotations == {"old": "new", "stays": "2"}
        assert bound.metadata.labels == {"l": "v"}
        with pytest.raises(APIError) as caught:
            await client.bind("default", "a", uid, "n2")
        assert caught.value.code == 409

    run(story)


def test_a_topology_comes_back_as_it_was_published() -> None:
    async def story(client: KubeClient) -> None:
        state = objects.state("socket:2 core:4 smt:2", "n1")
        await client.create(translate.topology(state.machine, "n1", state))
        read = await client.get(NodeResourceTopology, "n1")
        back = translate.state_from_topology(read)
        assert back.machine.cpus == state.machine.cpus
        assert back.reserved == state.reserved
        assert read.zones[0].resources[0].capacity == "8"
        older = await client.raw("GET", "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/n1")
        told = json.loads(older)
        assert "attributes" not in told
        assert translate.machine_from_topology(
            msgspec.json.decode(older, type=NodeResourceTopology)
        ) == translate.machine_from_topology(read)

    run(story)


def test_what_a_topology_no_longer_says_is_taken_away() -> None:
    async def story(client: KubeClient) -> None:
        machine = parse_spec("socket:2 core:4 smt:2")
        said = []
        for ratio in (Fraction(3, 2), Fraction(1)):
            config = NodeConfig("pools", pools=PoolOptions(amplification=ratio))
            body = translate.topology(machine, "n1", node.new(machine, config))
            if not said:
                await client.create(body)
            await client.patch(NodeResourceTopology, "n1", translate.as_patch(body))
            read = await client.get(NodeResourceTopology, "n1")
            allocatable = read.zones[0].resources[0].allocatable
            said.append((keys.AMPLIFICATION in read.metadata.annotations, allocatable))
        assert said == [(True, "11500m"), (False, "8")]

    run(story)


class Copy:
    """What one knows who only hears the informer's changes."""

    def __init__(self, client: KubeClient, **selection: str) -> None:
        self.known: dict[str, str] = {}
        self.informer = Informer(client, ConfigMap, handler=self.take, **selection)  # type: ignore[arg-type]
        self.task = asyncio.create_task(self.informer.run())

    def take(self, change: ObjectChange[ConfigMap]) -> None:
        if change.new is None:
            assert change.old is not None
            del self.known[change.old.metadata.name]
        else:
            self.known[change.new.metadata.name] = change.new.data.get("x", "")

    async def until(self, **expected: str) -> None:
        while self.known != expected:
            await asyncio.sleep(0.01)
        copied = {item.metadata.name: item.data.get("x", "") for item in self.informer.objects.values()}
        assert copied == expected

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


def test_an_informer_outlives_the_server_and_misses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        first = server(tmp_path)
        await first.start()
        port = int(first.url.rsplit(":", 1)[1])
        client = KubeClient.connect_to(first.url, TOKEN)
        await client.create(settings("a", x="1"))
        await client.create(settings("b", x="1"))
        copy = Copy(client)
        await copy.until(a="1", b="1")
        await first.stop()
        with pytest.raises(Unreachable):
            await client.list(ConfigMap)
        second = server(tmp_path, port)
        await second.start()
        await client.delete(ConfigMap, "a", namespace="default")
        await client.patch(ConfigMap, "b", {"data": {"x": "2"}}, namespace="default")
        await copy.until(b="2")
        await copy.stop()
        await client.close()
        await second.stop()

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await main()

    asyncio.run(bounded())


def test_a_version_long_past_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corelane.embedded.apiserver.http.server.Store", partial(Store, window=20))

    async def story(client: KubeClient) -> None:
        old = (await client.list(ConfigMap)).resource_version
        for number in range(50):
            await client.create(settings(f"m{number}"))
        with pytest.raises(Gone):
            async for _ in client.watch(ConfigMap, resource_version=old):
                pass

    run(story)
