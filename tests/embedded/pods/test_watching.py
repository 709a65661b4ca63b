"""Many agents on one watch: each receives its own Node and pods, including existing ones."""

import asyncio
from typing import Any

from corelane.agent.reporting import AgentReporter
from corelane.embedded.pods.pod_manifest import RunPod
from corelane.embedded.pods.watching import OwnWatch, SharedWatch
from corelane.kube.decode import Malformed
from corelane.kube.informer import ObjectChange
from corelane.kube.objects import Node
from support import fake_api

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


class Heard:
    """Records the changes that one agent received."""

    def __init__(self) -> None:
        self.pods: asyncio.Queue[str] = asyncio.Queue()
        self.nodes: asyncio.Queue[str] = asyncio.Queue()

    def pod_changed(self, change: ObjectChange[RunPod]) -> None:
        known = change.new or change.old
        assert known is not None
        self.pods.put_nowait(f"{'+' if change.new else '-'}{known.metadata.name}")

    def pod_malformed(self, bad: Malformed, *, gone: bool) -> None:
        self.pods.put_nowait(f"{'-' if gone else '?'}{bad.name}")

    def node_changed(self, change: ObjectChange[Node]) -> None:
        assert change.new is not None
        self.nodes.put_nowait(change.new.metadata.labels["mark"])


def pod(name: str, version: str, node: str) -> dict[str, Any]:
    return fake_api.pod(name, version, nodeName=node)


def node(name: str, mark: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": version, "labels": {"mark": mark}}}


def script(fake: fake_api.Fake) -> None:
    there = pod("old", "1", "one"), pod("leaving", "2", "two")
    fake.script[PODS].append(fake_api.listing(*there, version="5"))
    fake.script[f"{PODS}?watch"].append(
        fake_api.watching(
            fake_api.event("ADDED", pod("new", "6", "one")),
            fake_api.event("ADDED", pod("elsewhere", "7", "three")),
            fake_api.event("DELETED", pod("leaving", "8", "two")),
            fake_api.event("ADDED", pod("last", "9", "two")),
        )
    )
    fake.script[NODES].append(fake_api.listing(node("one", "first", "1"), version="5"))
    fake.script[f"{NODES}?watch"].append(
        fake_api.watching(fake_api.event("ADDED", node("two", "second", "6")))
    )


async def test_an_agent_receives_changes_of_its_own_node_and_pods_only() -> None:
    async with asyncio.timeout(120), fake_api.serving() as (fake, client):
        script(fake)
        watch, one, two = SharedWatch(client, AgentReporter(), nodes="simulated=true"), Heard(), Heard()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(watch.run())
            await watch.follow("one", one, group)
            await watch.follow("two", two, group)
            assert [await one.pods.get(), await one.pods.get()] == ["+old", "+new"]
            assert [await two.pods.get() for _ in range(3)] == ["+leaving", "-leaving", "+last"]
            assert [await one.nodes.get(), await two.nodes.get()] == ["first", "second"]
            running.cancel()
        assert one.pods.empty()
        assert two.pods.empty()
        selectors = {request.query.get("fieldSelector") for request in fake.seen if request.path == PODS}
        assert selectors == {"spec.nodeName!="}


async def test_a_late_agent_receives_the_existing_pods() -> None:
    async with asyncio.timeout(120), fake_api.serving() as (fake, client):
        script(fake)
        watch, one, two = SharedWatch(client, AgentReporter(), nodes="simulated=true"), Heard(), Heard()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(watch.run())
            await watch.follow("two", two, group)
            while await two.pods.get() != "+last":
                pass
            await watch.follow("one", one, group)
            running.cancel()
        assert {one.pods.get_nowait(), one.pods.get_nowait()} == {"+old", "+new"}
        late = Heard()
        async with asyncio.TaskGroup() as group:
            await watch.follow("two", late, group)
        assert late.pods.get_nowait() == "+last"
        assert late.pods.empty()


async def test_malformed_pods_are_reported_to_every_agent_and_late_ones_too() -> None:
    bad = pod("bad", "1", "one") | {"spec": "?"}
    async with asyncio.timeout(120), fake_api.serving() as (fake, client):
        fake.script[PODS].append(fake_api.listing(bad, version="5"))
        fake.script[f"{PODS}?watch"].append(
            fake_api.watching(fake_api.event("DELETED", bad | {"metadata": bad["metadata"]}))
        )
        fake.script[NODES].append(fake_api.listing(version="5"))
        watch, one = SharedWatch(client, AgentReporter(), nodes="simulated=true"), Heard()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(watch.run())
            await watch.follow("one", one, group)
            assert [await one.pods.get(), await one.pods.get()] == ["?bad", "-bad"]
            running.cancel()
        own, reporter = Heard(), AgentReporter()
        fake.script[PODS].append(fake_api.listing(bad, version="5"))
        fake.script[NODES].append(fake_api.listing(version="5"))
        async with asyncio.TaskGroup() as group:
            following = group.create_task(OwnWatch(client, reporter).follow("one", own, group))
            assert await own.pods.get() == "?bad"
            await following
            for task in group._tasks:  # the informers run until cancelled
                task.cancel()
