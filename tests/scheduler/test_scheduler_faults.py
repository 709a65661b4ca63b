"""The scheduler behind a proxy that fails: every pod is bound once, and no CPU is proposed twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from corelane.kube import informer
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Node
from corelane.scheduler.binding import bindings
from corelane.scheduler.daemon.scheduler import Scheduler
from support import faulty_proxy
from support.faulty_proxy import FaultyProxy
from support.scheduled_cluster import (
    TOKEN,
    ScheduledCluster,
    assert_no_cpu_twice,
    embedded_server,
    scheduling,
)

PODS = 40


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are shorter than in production, and in the same order."""
    monkeypatch.setattr(bindings, "LATE_SECONDS", 3.0)
    monkeypatch.setattr(bindings, "_FIRST_DELAY", 0.1)
    monkeypatch.setattr(bindings, "_LONGEST_DELAY", 0.5)
    monkeypatch.setattr(informer, "_LONGEST_DELAY", 0.5)


@asynccontextmanager
async def running(seed: int, rate: float) -> AsyncIterator[tuple[ScheduledCluster, FaultyProxy]]:
    """Four nodes, and a scheduler behind a proxy."""
    async with embedded_server() as server, faulty_proxy.proxy(server.url, seed, rate) as proxy:
        client, through = KubeClient.connect_to(server.url, TOKEN), KubeClient.connect_to(proxy.url, TOKEN)
        async with scheduling(Scheduler(through)):
            cluster = ScheduledCluster(client)
            for number in range(4):
                await cluster.node(f"n{number}", "core:12 smt:2", 24)
            yield cluster, proxy
        await through.close()
        await client.close()


async def burst(cluster: ScheduledCluster) -> None:
    """Pods that fill almost all; all of them get their CPUs."""
    for number in range(PODS):
        await cluster.pod(f"p{number}", "2")
    pods = await cluster.all_bound(PODS)
    assert assert_no_cpu_twice(pods) == 2 * PODS
    await asyncio.sleep(1)
    for pod in await cluster.pods():
        scheduled = condition(pod.status.conditions, "PodScheduled")
        assert scheduled is not None
        assert scheduled.status == "True", f"{pod.title}: False was written after it was bound"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_server_that_fails_in_every_way_delays_pods_and_books_no_cpu_twice(seed: int) -> None:
    async with running(seed, rate=0.5) as (cluster, proxy):
        proxy.watch_seconds, proxy.watch_delay = 6.0, 0.5
        await burst(cluster)
        assert len(proxy.seen) >= 6, proxy.seen


async def test_a_silent_watch_of_pods_leads_to_no_second_booking(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was bound is known from the answers, long before the watch is renewed."""
    monkeypatch.setattr(informer.Informer.__init__, "__kwdefaults__", {
        **informer.Informer.__init__.__kwdefaults__, "quiet_seconds": 1.0,
    })  # fmt: skip

    async with running(4, rate=0.2) as (cluster, proxy):
        proxy.silent_watches = True
        await burst(cluster)


async def test_a_node_that_vanishes_before_the_binding_is_sent_gets_no_pod() -> None:
    async with running(5, rate=0.0) as (cluster, proxy):
        for number in range(1, 4):
            await cluster.client.delete(Node, f"n{number}")
        await cluster.pod("first", "2")
        await cluster.placed("first")
        held = asyncio.Event()
        forward = proxy._forward

        async def slow(request, body):  # type: ignore[no-untyped-def]
            if request.path.endswith("/binding"):
                await held.wait()
            return await forward(request, body)

        proxy._forward = slow  # type: ignore[method-assign]
        for number in range(40):
            # More than there are workers: the others wait to be sent.
            await cluster.pod(f"p{number}", "100m")
        await asyncio.sleep(1)
        await cluster.client.delete(Node, "n0")
        await asyncio.sleep(1)
        held.set()
        proxy._forward = forward  # type: ignore[method-assign]
        await asyncio.sleep(1)
        bound = [pod for pod in await cluster.pods() if pod.spec.node_name]
        assert len(bound) <= 1 + 32, "no binding is sent to a node that is known to be gone"
        await cluster.node("n9", "core:12 smt:2", 24)
        assert (await cluster.placed("p39")).spec.node_name == "n9"
