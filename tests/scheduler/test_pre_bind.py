"""Pods whose PreBind plugin takes long, as for a volume that is provisioned; on the embedded server."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from corelane.kube.meta import condition
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.scheduler.framework.plugin import BindContext, PreBindError
from support import scheduled_cluster
from support.core_lab import profile_with
from support.scheduled_cluster import ScheduledCluster

OURS = "corelane-scheduler"


@dataclass(frozen=True)
class Work:
    plugin: str


class Provisioner:
    """Prepares a binding until `done` or `failed` is set."""

    name = "Provisioner"

    def __init__(self) -> None:
        self.begun = 0
        self.done = asyncio.Event()
        self.failed = asyncio.Event()

    def pre_bind_work(self, cycle: object, node: object) -> Work | None:
        return Work(self.name)

    async def pre_bind(self, context: BindContext, work: Work) -> None:
        self.begun += 1
        while not self.done.is_set():
            await asyncio.sleep(0.02)
            if self.failed.is_set():
                self.failed.clear()
                raise PreBindError("no storage left")


class Cluster(ScheduledCluster):
    @property
    def provisioner(self) -> Provisioner:
        return self.scheduler.core.profile.plugins[-1]

    async def being_prepared(self) -> Pod:
        """Return a pod that has a claim on its node and is not bound."""
        await self.node("n1", "core:4", 4)
        await self.pod("p")
        pod = await self.until("p", lambda pod: bool(pod.status.nominated_node_name))
        assert (pod.status.nominated_node_name, pod.spec.node_name) == ("n1", "")
        assert self.scheduler.core.cluster.node_of(pod.metadata.uid) == "n1"
        assert self.scheduler.unfinished_bindings == 1
        return pod

    async def idle(self) -> None:
        while self.scheduler.unfinished_bindings:
            await asyncio.sleep(0.02)


@pytest.fixture
def cluster() -> AbstractAsyncContextManager[Cluster]:
    return scheduled_cluster.running(Cluster, profile=profile_with(Provisioner(), name=OURS))


def scheduled(pod: Pod) -> Any:
    return condition(pod.status.conditions, "PodScheduled")


async def test_the_binding_is_sent_once_the_plugin_is_done(cluster: Cluster) -> None:
    await cluster.being_prepared()
    cluster.provisioner.done.set()
    pod = await cluster.placed("p")
    assert pod.status.nominated_node_name == "", "the server clears it with the binding"


async def test_a_failure_sends_the_pod_back_to_the_queue_with_the_reason(cluster: Cluster) -> None:
    await cluster.being_prepared()
    cluster.provisioner.failed.set()
    why = "running PreBind plugin 'Provisioner': no storage left"
    await cluster.until("p", lambda pod: bool(found := scheduled(pod)) and why in found.message)
    while cluster.provisioner.begun < 2:
        await asyncio.sleep(0.02)


async def test_a_pod_deleted_while_its_binding_is_prepared_leaves_nothing_behind(cluster: Cluster) -> None:
    pod = await cluster.being_prepared()
    await cluster.client.delete(Pod, "p", namespace="default")
    await cluster.idle()
    core = cluster.scheduler.core
    assert core.cluster.node_of(pod.metadata.uid) is None
    assert (core.pending(), len(core.bindings)) == ({}, 0)
    await cluster.pod("q", "3")
    cluster.provisioner.done.set()
    assert (await cluster.placed("q")).spec.node_name == "n1"


async def test_a_pod_whose_binding_is_prepared_gives_way_to_one_of_higher_priority(cluster: Cluster) -> None:
    await cluster.being_prepared()
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    await cluster.client.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"} | urgent)
    await cluster.pod("high", "3", priorityClassName="urgent")
    high = await cluster.until("high", lambda pod: pod.status.nominated_node_name == "n1")
    low = await cluster.until("p", lambda pod: not pod.status.nominated_node_name)
    assert not low.metadata.deletion_timestamp
    assert scheduled(low) is not None
    cluster.provisioner.done.set()
    await cluster.placed("high")
    while not (found := [one for one in await cluster.events("p") if one.reason == "Preempted"]):
        await asyncio.sleep(0.02)
    (event,) = found
    assert event.related is not None
    assert event.related.uid == high.metadata.uid
    assert event.message.endswith("(before it was bound; it is tried again)")


async def test_a_binding_is_not_prepared_for_a_node_that_is_deleted(cluster: Cluster) -> None:
    await cluster.being_prepared()
    await cluster.client.delete(Node, "n1")
    await cluster.idle()
    await cluster.until("p", lambda pod: bool(scheduled(pod)) and not pod.status.nominated_node_name)
