"""Pods with claims, against the embedded API server and its volume controller, over real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from corelane.embedded.apiserver.http.auth import User
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.housekeeping.controller import Controller
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Event, Node
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim
from corelane.scheduler import Scheduler

TOKEN = "token"
HOST = "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"


class Cluster:
    def __init__(self, client: KubeClient, scheduler: Scheduler) -> None:
        self.client, self.scheduler = client, scheduler

    async def node(self, name: str) -> None:
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        await self.client.create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {HOST: name}}}
        )
        status = {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.client.patch(Node, name, {"status": status}, subresource="status")
        await self.client.patch(Node, name, {"spec": {"taints": None}})

    async def storage_class(self, name: str, provisioner: str) -> None:
        await self.client.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        )

    async def claim(self, name: str, storage_class: str) -> None:
        await self.client.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": storage_class,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        )

    async def volume(self, name: str, node: str, storage_class: str, **claim: Any) -> None:
        rule = {"key": HOST, "operator": "In", "values": [node]}
        spec: dict[str, Any] = {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
        }
        await self.client.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": spec | claim,
            }
        )

    async def pod(self, name: str, claim: str = "", cpu: str = "100m", **spec: Any) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
        await self.client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "containers": [container],
                    "schedulerName": "corelane-scheduler",
                    "volumes": volumes,
                    **spec,
                },
            }
        )

    async def waiting_for_a_volume(self, cpu: str = "100m") -> Pod:
        """A pod whose claim no provisioner serves: it is claimed on its node, and not bound."""
        await self.node("n1")
        await self.storage_class("made", "example.com/disk")
        await self.claim("data", "made")
        await self.pod("p", "data", cpu)
        await self.until(PersistentVolumeClaim, "data", lambda one: SELECTED in one.metadata.annotations)
        found: Pod = await self.until(Pod, "p", lambda one: bool(one.status.nominated_node_name))
        assert (found.status.nominated_node_name, found.spec.node_name) == ("n1", "")
        assert self.scheduler.core.cluster.node_of(found.metadata.uid) == "n1"
        assert self.scheduler.unfinished_bindings == 1
        return found

    async def events(self) -> list[Event]:
        return list((await self.client.list(Event)).items)

    async def idle(self) -> None:
        while self.scheduler.unfinished_bindings:
            await asyncio.sleep(0.02)

    async def until(self, kind: type[Any], name: str, holds: Callable[[Any], bool]) -> Any:
        while True:
            namespace = None if kind is PersistentVolume else "default"
            found = await self.client.get(kind, name, namespace)
            if holds(found):
                return found
            await asyncio.sleep(0.05)


def run(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        server = APIServer(tokens={TOKEN: User("admin", ("system:masters",))})
        await server.start()
        client = KubeClient.connect_to(server.url, TOKEN)
        scheduler = Scheduler(client)
        tasks = [asyncio.create_task(one.run()) for one in (scheduler, Controller(client))]
        try:
            async with asyncio.timeout(180):
                await story(Cluster(client, scheduler))
        finally:
            for task in tasks:
                assert not task.done() or task.exception() is None
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            await client.close()
            await server.stop()

    asyncio.run(main())


def test_a_local_volume_is_bound_to_the_claim_before_the_pod_goes_to_its_node() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.node("n1")
        await cluster.node("n2")
        await cluster.storage_class("local", "kubernetes.io/no-provisioner")
        await cluster.volume("pv", "n2", "local")
        await cluster.claim("data", "local")
        await cluster.pod("p", "data")
        pod = await cluster.until(Pod, "p", lambda one: bool(one.spec.node_name))
        assert pod.spec.node_name == "n2"
        claim = await cluster.client.get(PersistentVolumeClaim, "data", "default")
        assert (claim.spec.volume_name, claim.status.phase) == ("pv", "Bound")
        volume = await cluster.client.get(PersistentVolume, "pv")
        assert volume.spec.claim_ref is not None
        assert volume.spec.claim_ref.uid == claim.metadata.uid

    run(story)


def test_a_claim_gets_its_node_and_the_pod_waits_for_who_makes_the_volume() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.node("n1")
        await cluster.storage_class("made", "example.com/disk")
        await cluster.claim("data", "made")
        await cluster.pod("p", "data")
        claim = await cluster.until(
            PersistentVolumeClaim, "data", lambda one: SELECTED in one.metadata.annotations
        )
        assert claim.metadata.annotations[SELECTED] == "n1"
        await asyncio.sleep(0.5)
        pod = await cluster.client.get(Pod, "p", "default")
        assert pod.spec.node_name == ""
        of = {"namespace": "default", "name": "data", "uid": claim.metadata.uid}
        await cluster.volume("made", "n1", "made", claimRef=of)
        await cluster.until(Pod, "p", lambda one: one.spec.node_name == "n1")

    run(story)


def test_a_withdrawn_node_sends_the_pod_back_to_the_queue_with_the_reason() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.node("n1")
        await cluster.storage_class("made", "example.com/disk")
        await cluster.claim("data", "made")
        await cluster.pod("p", "data")
        await cluster.until(PersistentVolumeClaim, "data", lambda one: SELECTED in one.metadata.annotations)
        withdrawn = {"metadata": {"annotations": {SELECTED: None}}}
        await cluster.client.patch(PersistentVolumeClaim, "data", withdrawn, namespace="default")

        def said(pod: Pod) -> bool:
            found = condition(pod.status.conditions, "PodScheduled")
            return found is not None and "provisioning failed for PVC 'default/data'" in found.message

        await cluster.until(Pod, "p", said)
        await cluster.until(PersistentVolumeClaim, "data", lambda one: SELECTED in one.metadata.annotations)

    run(story)


def test_a_pod_deleted_while_its_claim_is_awaited_leaves_nothing_behind() -> None:
    async def story(cluster: Cluster) -> None:
        pod = await cluster.waiting_for_a_volume("3")
        await cluster.client.delete(Pod, "p", namespace="default")
        await cluster.idle()
        core = cluster.scheduler.core
        assert core.cluster.node_of(pod.metadata.uid) is None
        assert (core.pending(), len(core.bindings)) == ({}, 0)
        await cluster.pod("q", "data", "3")
        await cluster.until(Pod, "q", lambda one: one.status.nominated_node_name == "n1")
        claim = await cluster.client.get(PersistentVolumeClaim, "data", "default")
        of = {"namespace": "default", "name": "data", "uid": claim.metadata.uid}
        await cluster.volume("made", "n1", "made", claimRef=of)
        pod = await cluster.until(Pod, "q", lambda one: one.spec.node_name == "n1")
        assert pod.status.nominated_node_name == "", "the server clears it with the binding"

    run(story)


def test_a_pod_whose_claim_is_awaited_gives_way_to_one_of_higher_priority() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.waiting_for_a_volume("3")
        urgent = {"metadata": {"name": "urgent"}, "value": 1000}
        await cluster.client.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"} | urgent)
        await cluster.pod("high", cpu="3", priorityClassName="urgent")
        high = await cluster.until(Pod, "high", lambda one: one.spec.node_name == "n1")
        low = await cluster.until(Pod, "p", lambda one: not one.status.nominated_node_name)
        assert not low.metadata.deletion_timestamp
        found = condition(low.status.conditions, "PodScheduled")
        assert found is not None
        while not (events := [one for one in await cluster.events() if one.reason == "Preempted"]):
            await asyncio.sleep(0.05)
        (event,) = events
        assert event.involved_object.name == "p"
        assert event.related is not None
        assert event.related.uid == high.metadata.uid
        assert event.message.endswith("(before it was bound; it is tried again)")

    run(story)


def test_a_claim_is_not_awaited_for_a_node_that_is_deleted() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.waiting_for_a_volume()
        await cluster.client.delete(Node, "n1")
        await cluster.idle()

        def said(pod: Pod) -> bool:
            found = condition(pod.status.conditions, "PodScheduled")
            return found is not None and not pod.status.nominated_node_name

        await cluster.until(Pod, "p", said)

    run(story)
