"""Preemption against either API server: what it does to the victims, and who gets their place."""

import asyncio
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Event, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.scheduler.daemon.scheduler import Scheduler
from support import scheduler_lab
from support.scheduled_cluster import ScheduledCluster

pytestmark = pytest.mark.integration


@pytest.fixture(params=["embedded", "real"])
def server(request):
    home = Path(tempfile.mkdtemp(prefix="corelane-preemption-"))
    try:
        with (scheduler_lab.embedded if request.param == "embedded" else scheduler_lab.real)(home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def publish(cluster: ScheduledCluster, name: str, state: nodes.NodeState) -> None:
    cluster.states[name] = state
    whole = translate.topology(state.machine, name, state)
    body = {"metadata": {"annotations": whole["metadata"]["annotations"]}, "zones": whole["zones"]}
    await cluster.client.patch(NodeResourceTopology, name, body)


async def agent_takes(cluster: ScheduledCluster, pod: Pod) -> None:
    node = pod.spec.node_name
    state, decision = nodes.admit(cluster.states[node], translate.request(pod))
    assert decision.admitted
    await publish(cluster, node, state)


async def story(cluster: ScheduledCluster) -> None:
    client = cluster.client
    for name, value in (("low", 10), ("high", 1000)):
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        with suppress(APIError):
            await client.create(made | {"value": value})
    await cluster.node("n1", "socket:2 core:5", 10, policy="pools")
    for name in ("a", "b", "c", "d"):
        await cluster.pod(name, "2", priorityClassName="low")
        await agent_takes(cluster, await cluster.placed(name))
    zones = {uid: entry.cpus.mask > 31 for (uid, _), entry in cluster.states["n1"].entries.items()}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": "default"},
        "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "guarded"}}},
    }
    await client.create(budget)
    guarded = zones[(await client.get(Pod, "a", "default")).metadata.uid]
    for name in "abcd":
        if zones[(await client.get(Pod, name, "default")).metadata.uid] == guarded:
            labels = {"metadata": {"labels": {"app": "guarded"}}}
            await client.patch(Pod, name, labels, namespace="default")
    wide = {"scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy":"SingleNUMANode"}'}
    resources = {"cpu": "4", "memory": "64Mi"}
    await client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "wide", "namespace": "default", "annotations": wide},
            "spec": {
                "schedulerName": "corelane-scheduler",
                "priorityClassName": "high",
                "containers": [
                    {"name": "m", "image": "none", "resources": {"requests": resources, "limits": resources}}
                ],
            },
        }
    )
    pod = await cluster.until("wide", lambda pod: pod.status.nominated_node_name == "n1")
    while len(gone := [one for one in "abcd" if await terminating(cluster, one)]) < 2:
        await asyncio.sleep(0.05)
    victims = [await client.get(Pod, one, "default") for one in gone]
    assert {zones[one.metadata.uid] for one in victims} == {not guarded}, "the other NUMA node is freed"
    for victim in victims:
        target = condition(victim.status.conditions, "DisruptionTarget")
        assert target is not None
        assert target.reason == "PreemptionByScheduler"
        state = nodes.release(cluster.states["n1"], victim.metadata.uid)
        # No kubelet ends the pod.
        await client.delete(Pod, victim.metadata.name, namespace="default", grace_seconds=0)
        await publish(cluster, "n1", state)
    bound = await cluster.placed("wide")
    cpus = translate.request(bound).proposal["m"]
    assert len(cpus) == 4
    assert cpus.mask < 32 or cpus.mask & 31 == 0
    events = (await client.list(Event, field_selector="reason=Preempted")).items
    assert {one.message for one in events} == {f"Preempted by pod {pod.metadata.uid} on node n1"}


async def found(cluster: ScheduledCluster, name: str) -> Pod | None:
    with suppress(APIError):
        return await cluster.client.get(Pod, name, "default")
    return None


async def terminating(cluster: ScheduledCluster, name: str) -> bool:
    pod = await found(cluster, name)
    return pod is not None and bool(pod.metadata.deletion_timestamp)


def test_the_pods_of_one_numa_node_are_evicted_and_the_pod_gets_their_cpus(server, tmp_path):
    async def main() -> None:
        client = KubeClient.connect(server.kubeconfig(tmp_path / "admin.kubeconfig"))
        scheduler = asyncio.create_task(Scheduler(client).run())
        cluster = ScheduledCluster(client)
        try:
            async with asyncio.timeout(120):
                await story(cluster)
        finally:
            scheduler.cancel()
            with suppress(asyncio.CancelledError):
                await scheduler
            for pod in (await client.list(Pod)).items:
                await client.delete(Pod, pod.metadata.name, namespace="default", grace_seconds=0)
            for kind in (Node, NodeResourceTopology):
                for one in (await client.list(kind)).items:
                    await client.delete(kind, one.metadata.name)
            await client.close()

    asyncio.run(main())
