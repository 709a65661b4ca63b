"""A binding over TLS whose answer is lost after the server has carried it out."""

import asyncio
import ssl
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from corelane.kube import translate
from corelane.kube.client import KubeClient
from corelane.scheduler.binding import bindings
from corelane.scheduler.daemon.scheduler import Scheduler
from support import faulty_proxy, kubectl
from support.certificates import Authority
from support.faulty_proxy import FaultyProxy
from support.scheduled_cluster import (
    TOKEN,
    ScheduledCluster,
    assert_no_cpu_twice,
    embedded_server,
    scheduling,
)


class LosingProxy(FaultyProxy):
    """Carries bindings out and cuts the connection; holds back what the watch of pods shows meanwhile."""

    binding_sent: asyncio.Event
    shown: asyncio.Event

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/binding") and not self.binding_sent.is_set():
            await self._forward(request, await request.read())
            self.binding_sent.set()
            assert request.transport is not None
            assert request.transport.get_extra_info("ssl_object") is not None
            request.transport.abort()
            raise web.HTTPBadGateway
        one_pod = request.method == "GET" and "/pods/" in request.path
        if self.binding_sent.is_set() and one_pod:
            self.seen["read"] += 1
            raise web.HTTPServiceUnavailable  # The outcome is to be learned from the watch alone.
        return await super().handle(request)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/pods"):
            return await self._held_watch(request)
        return await super()._watch(request)

    async def _held_watch(self, request: web.Request) -> web.StreamResponse:
        assert self.session is not None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        headers = {"Authorization": request.headers["Authorization"]}
        async with self.session.get(self.target + request.path_qs, headers=headers) as answer:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                if b'"nodeName"' in chunk:
                    await self.shown.wait()
                await response.write(chunk)
        return response


def kubeconfig(file: Path, url: str, authority: Path) -> Path:
    file.write_text(yaml.safe_dump(kubectl.kubeconfig(url, authority, TOKEN)))
    return file


async def test_an_answer_lost_over_tls_keeps_the_claim_until_the_watch_shows_the_pod_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "_FIRST_DELAY", 0.1)
    monkeypatch.setattr(bindings, "_LONGEST_DELAY", 0.3)
    authority = Authority.make()
    pair = authority.issue(tmp_path / "server.pem", "server", "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair)

    monkeypatch.setattr(faulty_proxy, "FaultyProxy", LosingProxy)
    async with embedded_server() as server, faulty_proxy.proxy(server.url, 0, tls=context) as proxy:
        assert isinstance(proxy, LosingProxy)
        proxy.binding_sent, proxy.shown = asyncio.Event(), asyncio.Event()
        client = KubeClient.connect_to(server.url, TOKEN)
        ca = authority.write(tmp_path / "ca.crt")
        through = KubeClient.connect(kubeconfig(tmp_path / "kubeconfig", proxy.url, ca))
        made = Scheduler(through)
        async with scheduling(made):
            await story(ScheduledCluster(client), made, proxy)
        await through.close()
        await client.close()


async def story(cluster: ScheduledCluster, made: Scheduler, proxy: LosingProxy) -> None:
    await cluster.node("n0", "core:4", 4)
    await cluster.pod("first", "2")
    await proxy.binding_sent.wait()
    while not proxy.seen["read"]:
        await asyncio.sleep(0.05)
    first = await cluster.placed("first")
    assert made.core.cluster.node_of(first.metadata.uid) == "n0"
    await cluster.pod("second", "2")
    await asyncio.sleep(0.5)
    assert first.metadata.uid in made.core.bindings
    assert made.core.cluster.node_of(first.metadata.uid) == "n0"
    second = await cluster.client.get(type(first), "second", "default")
    assert not second.spec.node_name, "3 CPUs are allocatable: 2 of them are claimed"
    proxy.shown.set()
    while first.metadata.uid in made.core.bindings:
        await asyncio.sleep(0.05)
    assert made.core.cluster.node_of(first.metadata.uid) == "n0"
    assert translate.request(await cluster.placed("first")).proposal
    assert assert_no_cpu_twice(await cluster.pods()) == 2
