"""The scheduler against the embedded API server, over real sockets."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import pytest

from corelane import node as nodes
from corelane.kube import keys, translate
from corelane.kube.client import APIError, KubeClient
from corelane.kube.decode import Listing
from corelane.kube.meta import Object, condition
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.daemon.scheduler import Scheduler, SchedulerReporter
from support import scheduled_cluster
from support.scheduled_cluster import ScheduledCluster, scheduling

T = TypeVar("T", bound=Object)


class Told(SchedulerReporter):
    def __init__(self) -> None:
        self.errors: list[str] = []
        self.names: list[str] = []
        self.bugs: list[str] = []

    def core_failed(self, what: str, error: Exception) -> None:
        self.bugs.append(f"{what}: {error}")

    def started(self, name: str) -> None:
        self.names.append(name)

    def write_failed(self, what: str, error: APIError) -> None:
        self.errors.append(f"{what}: {error}")

    def bind_failed(self, pod: Pod, node: str, error: APIError) -> None:
        self.errors.append(f"{pod.title}: {error}")

    def unusable_topology(self, node: str, problem: str) -> None:
        self.errors.append(f"{node}: {problem}")


class WithoutV1Alpha2(KubeClient):
    """A client that is answered as where NodeResourceTopology is defined as v1alpha1 only."""

    async def list(self, kind: type[T], **where: Any) -> Listing[T]:
        if kind is NodeResourceTopology:
            raise APIError(404, "NotFound", "the server could not find the requested resource")
        return await super().list(kind, **where)


class Cluster(ScheduledCluster):
    """A server's cluster whose scheduler has reported to `told`."""

    told: Told

    async def pod(self, name: str, cpu: str = "2", **more: Any) -> None:
        await super().pod(name, cpu, **({"schedulerName": "corelane-scheduler"} | more))


def running(sees: type[KubeClient] = KubeClient) -> AbstractAsyncContextManager[Cluster]:
    told = Told()

    def cluster(client: KubeClient, scheduler: Scheduler) -> Cluster:
        made = Cluster(client, scheduler)
        made.told = told
        return made

    return scheduled_cluster.running(cluster, sees, reporter=told)


@pytest.fixture
def cluster() -> AbstractAsyncContextManager[Cluster]:
    return running()


async def test_a_pod_is_bound_with_its_cpus_and_an_event_says_so(cluster: Cluster) -> None:
    await cluster.node("n1", "core:8", 8)
    await cluster.pod("a", "2")
    pod = await cluster.placed("a")
    assert pod.spec.node_name == "n1"
    assert json.loads(pod.metadata.annotations[keys.RESOURCE_STATUS]) == {"cpuset": "1-2"}
    scheduled = condition(pod.status.conditions, "PodScheduled")
    assert scheduled is not None
    assert scheduled.status == "True"
    (event,) = await cluster.events("a")
    assert event.message == "Successfully assigned default/a to n1 (CPUs: main 1-2)"
    assert (event.type, event.reason, event.count) == ("Normal", "Scheduled", 1)
    assert event.source.component == "corelane-scheduler"
    assert event.involved_object.uid == pod.metadata.uid
    assert cluster.told.names == ["corelane-scheduler"]
    assert cluster.told.errors == []


async def test_topologies_are_read_where_v1alpha1_is_their_only_version() -> None:
    async with running(WithoutV1Alpha2) as cluster:
        await cluster.node("n1", "core:8", 8)
        await cluster.pod("a", "2")
        annotations = (await cluster.placed("a")).metadata.annotations
        assert json.loads(annotations[keys.RESOURCE_STATUS]) == {"cpuset": "1-2"}


async def test_a_pod_that_fits_nowhere_says_why_and_is_placed_when_it_can(cluster: Cluster) -> None:
    await cluster.node("n1", "core:8", 8)
    await cluster.node("n2", "core:8", 8, unschedulable=True)
    await cluster.pod("first", "6")
    first = await cluster.placed("first")
    await cluster.pod("second", "6")

    def explained(pod: Pod) -> bool:
        found = condition(pod.status.conditions, "PodScheduled")
        return found is not None and found.reason == "Unschedulable"

    second = await cluster.until("second", explained)
    text = (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. "
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )
    found = condition(second.status.conditions, "PodScheduled")
    assert found is not None
    assert (found.status, found.message) == ("False", text)
    (event,) = await cluster.events("second")
    assert (event.type, event.reason) == ("Warning", "FailedScheduling")
    assert event.message == f"{text} Nearest is n2: uncordon node n2."
    agent, _ = nodes.admit(cluster.states["n1"], translate.request(first))
    await cluster.publish("n1", agent)
    await cluster.client.delete(Pod, "first", namespace="default", grace_seconds=0)
    await cluster.publish("n1", nodes.release(agent, first.metadata.uid))
    assert (await cluster.placed("second")).spec.node_name == "n1"
    assert cluster.told.errors == []


async def test_the_event_of_a_pod_that_lacks_cpus_names_the_pods_in_the_way_on_the_nearest_node(
    cluster: Cluster,
) -> None:
    await cluster.node("n1", "core:8", 8, policy="pools")
    await cluster.pod("first", "4")
    await cluster.placed("first")
    await cluster.pod("second", "4")
    (event,) = await cluster.events("second")
    assert event.message == (
        "0/1 nodes are available: 1 not enough cpus available to satisfy request: "
        "4 CPUs requested, 3 free. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod. "
        "Nearest is n1: move default/first off CPUs 1-4; or request 3 CPUs or fewer."
    )


async def test_what_was_said_before_a_restart_is_counted_up_not_said_again(cluster: Cluster) -> None:
    await cluster.pod("a", "2")
    await cluster.events("a")
    async with scheduling(Scheduler(cluster.client, reporter=cluster.told)):
        while (await cluster.events("a"))[0].count != 2:
            await asyncio.sleep(0.02)
    assert len(await cluster.events("a")) == 1
    assert cluster.told.errors == []


@pytest.mark.parametrize("scheduler", ["default-scheduler", "corelane-scheduler"])
async def test_only_pods_that_name_us_are_placed(cluster: Cluster, scheduler: str) -> None:
    await cluster.node("n1", "core:8", 8)
    await cluster.pod("a", schedulerName=scheduler)
    await cluster.pod("b")
    await cluster.placed("b")
    await asyncio.sleep(0.05)
    a = await cluster.client.get(Pod, "a", "default")
    assert bool(a.spec.node_name) is (scheduler == "corelane-scheduler")


async def test_a_node_with_an_invalid_topology_has_an_event_that_names_the_fault(cluster: Cluster) -> None:
    await cluster.node("n1", "core:8", 8)
    body = {"metadata": {"annotations": {keys.CPU_ALLOCATIONS: "{"}}}
    await cluster.client.patch(NodeResourceTopology, "n1", body)
    (event,) = await cluster.events("n1")
    (problem,) = cluster.told.errors
    assert "corelane.io/cpu-allocations" in problem
    assert (event.type, event.reason) == ("Warning", "InvalidNodeResourceTopology")
    assert f"metadata.annotations[{keys.CPU_ALLOCATIONS}]: invalid value '{{'" in event.message
    assert (event.involved_object.kind, event.metadata.namespace) == ("Node", "default")
    await cluster.node("good", "core:8", 8)
    await cluster.pod("a", "2")
    assert (await cluster.placed("a")).spec.node_name == "good"


async def test_preemption_ends_the_victim_as_kube_scheduler_does_and_the_pod_gets_its_place(
    cluster: Cluster,
) -> None:
    await cluster.node("n1", "core:8", 8)
    await cluster.pod("low", "6", finalizers=("example.com/watch",), terminationGracePeriodSeconds=0)
    low = await cluster.placed("low")
    agent, _ = nodes.admit(cluster.states["n1"], translate.request(low))
    await cluster.publish("n1", agent)
    await cluster.client.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
    )
    await cluster.pod("high", "6", priorityClassName="urgent")
    high = await cluster.until("high", lambda pod: pod.status.nominated_node_name == "n1")
    assert not high.spec.node_name
    scheduled = condition(high.status.conditions, "PodScheduled")
    assert scheduled is not None
    assert scheduled.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    low = await cluster.until("low", lambda pod: bool(pod.metadata.deletion_timestamp))
    target = condition(low.status.conditions, "DisruptionTarget")
    assert target is not None
    assert (target.status, target.reason) == ("True", "PreemptionByScheduler")
    assert target.message == "corelane-scheduler: preempting to accommodate a higher priority pod"
    events = await cluster.events("low", 2)
    (preempted,) = [event for event in events if event.reason == "Preempted"]
    assert preempted.type == "Normal"
    assert preempted.message == f"Preempted by pod {high.metadata.uid} on node n1"
    assert preempted.action == "Preempting"
    assert preempted.related is not None
    assert (preempted.related.name, preempted.related.uid) == ("high", high.metadata.uid)
    await cluster.client.patch(Pod, "low", {"metadata": {"finalizers": None}}, namespace="default")
    await cluster.publish("n1", nodes.release(agent, low.metadata.uid))
    high = await cluster.placed("high")
    assert high.spec.node_name == "n1"
    assert cluster.told.errors == []


async def test_a_topology_that_raises_an_error_degrades_its_node_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put = NodeCache.put_topology

    def broken(self: NodeCache, old: Any, new: Any) -> None:
        if new is not None and new.metadata.name == "bad":
            raise ZeroDivisionError("a bug")
        put(self, old, new)

    monkeypatch.setattr(NodeCache, "put_topology", broken)

    async with running() as cluster:
        await cluster.node("bad", "core:8", 8)
        await cluster.node("good", "core:8", 8)
        await cluster.pod("a", "2")
        assert (await cluster.placed("a")).spec.node_name == "good"
        assert cluster.told.bugs == ["NodeResourceTopology bad: a bug"]


async def test_a_drain_waits_for_the_look_up_that_follows_a_binding() -> None:
    bound, looked_up = asyncio.Event(), []

    class Conflicts(KubeClient):
        """Each binding is answered with 409 Conflict, so that the pod has to be looked up."""

        async def bind(self, *_args: object, **_more: object) -> Any:
            bound.set()
            await asyncio.sleep(0.1)
            raise APIError(409, "Conflict", "pod is assigned already", is_status=True)

        async def get(self, _kind: object, name: str, *_more: object) -> Any:
            await asyncio.sleep(0.1)
            looked_up.append(name)
            raise APIError(404, "NotFound", "pod not found", is_status=True)

    async with running(Conflicts) as cluster:
        await cluster.node("n1", "core:8", 8)
        await cluster.pod("p")
        await bound.wait()
        assert await cluster.scheduler.drain(60.0) == 0
        assert looked_up == ["p"]
