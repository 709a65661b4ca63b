"""`corelane scheduler` in two replicas, killed, stopped and paused, against either API server.

The embedded server runs in a process of its own; a real kube-apiserver and etcd where $KUBEBUILDER_ASSETS
names a directory with them. Nothing but the server differs.
"""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from corelane.kube import keys
from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import condition
from corelane.kube.objects import Lease, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from support import scheduler_lab
from support.scheduled_cluster import ScheduledCluster, assert_no_cpu_twice
from support.scheduler_lab import Replica, Replicas, Server

pytestmark = pytest.mark.integration

NODES = 6
PODS = 60
PATIENCE = 180


@pytest.fixture(scope="module", params=["embedded", "real"])
def server(request):
    home = Path(tempfile.mkdtemp(prefix="corelane-ks-"))
    try:
        with (scheduler_lab.embedded if request.param == "embedded" else scheduler_lab.real)(home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Lab:
    def __init__(self, server: Server, cluster: ScheduledCluster, replicas: Replicas) -> None:
        self.server, self.cluster, self.replicas = server, cluster, replicas

    async def create(self, first: int, count: int) -> None:
        """Pods of 2 CPUs, as many at once as an ordinary client."""
        names = [f"p{number}" for number in range(first, first + count)]
        for start in range(0, count, 20):
            await asyncio.gather(*(self.cluster.pod(name, "2") for name in names[start : start + 20]))

    async def leader(self) -> Replica:
        return await asyncio.to_thread(self.replicas.leader)

    async def bound(self, count: int) -> list[Pod]:
        pods = await self.cluster.all_bound(count)
        assert assert_no_cpu_twice(pods) == 2 * count
        return pods


def run(server: Server, home: Path, story: Callable[[Lab], Awaitable[None]]) -> None:
    async def main(replicas: Replicas) -> None:
        client = KubeClient.connect(server.kubeconfig(home / "admin.kubeconfig"))
        cluster = ScheduledCluster(client)
        try:
            async with asyncio.timeout(PATIENCE):
                for number in range(NODES):
                    await cluster.node(f"n{number}", "socket:2 numa:1 core:8 smt:2", 32)
                await story(Lab(server, cluster, replicas))
        finally:
            await _clean(client)
            await client.close()

    with scheduler_lab.replicas(home, server) as replicas:
        asyncio.run(main(replicas))


async def _clean(client: KubeClient) -> None:
    for pod in (await client.list(Pod)).items:
        await client.delete(Pod, pod.metadata.name, namespace="default", grace_seconds=0)
    for kind in (Node, NodeResourceTopology):
        for found in (await client.list(kind)).items:
            await client.delete(kind, found.metadata.name)
    try:
        await client.delete(Lease, "corelane-scheduler", namespace="kube-system")
    except APIError as error:
        if error.code != 404:
            raise


def bound_by(pods: list[Pod]) -> set[str]:
    return {pod.metadata.annotations[keys.SCHEDULED_BY] for pod in pods}


def test_when_the_leader_is_killed_the_other_goes_on_and_no_cpu_is_booked_twice(server, tmp_path):
    async def story(lab: Lab) -> None:
        lab.replicas.start()
        lab.replicas.start()
        first = await lab.leader()
        creating = asyncio.create_task(lab.create(0, PODS))
        while len([pod for pod in await lab.cluster.pods() if pod.spec.node_name]) < PODS // 4:
            await asyncio.sleep(0.02)
        first.program.process.kill()
        await creating
        await lab.create(PODS, 10)
        pods = await lab.bound(PODS + 10)
        assert len(bound_by(pods)) == 2
        second = await lab.leader()
        assert second is not first
        lease = await lab.cluster.client.get(Lease, "corelane-scheduler", "kube-system")
        assert lease.spec.lease_transitions >= 1
        assert {pod.metadata.annotations[keys.LEDGER_GENERATION] for pod in pods} == {"0"}

    run(server, tmp_path, story)


def test_a_leader_that_is_asked_to_end_hands_over_at_once(server, tmp_path):
    async def story(lab: Lab) -> None:
        first = lab.replicas.start()
        assert await lab.leader() is first
        second = lab.replicas.start()
        assert second.page("/readyz") == "ok"
        creating = asyncio.create_task(lab.create(0, PODS))
        while len([pod for pod in await lab.cluster.pods() if pod.spec.node_name]) < PODS // 4:
            await asyncio.sleep(0.02)
        first.program.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(first.program.process.wait, 60) == 0, first.program.tail()
        lease = await lab.cluster.client.get(Lease, "corelane-scheduler", "kube-system")
        assert lease.spec.holder_identity == "" or lease.spec.holder_identity in second.program.tail()
        await creating
        await lab.bound(PODS)
        assert await lab.leader() is second

    run(server, tmp_path, story)


def test_a_leader_that_was_paused_binds_nothing_after_another_took_over(server, tmp_path):
    async def story(lab: Lab) -> None:
        lab.replicas.start()
        first = await lab.leader()
        lab.replicas.start()
        await lab.create(0, 10)
        before = bound_by(await lab.bound(10))
        first.program.process.send_signal(signal.SIGSTOP)
        try:
            await lab.create(10, 20)
            pods = await lab.bound(30)
        finally:
            first.program.process.send_signal(signal.SIGCONT)
        (other,) = bound_by(pods) - before
        await lab.create(30, 20)
        pods = await lab.bound(50)
        late = [pod for pod in pods if int(pod.metadata.name[1:]) >= 30]
        assert bound_by(late) == {other}
        assert not first.leads

    run(server, tmp_path, story)


def test_after_a_restart_the_cpus_of_a_bound_pod_without_a_readable_record_stay_blocked(server, tmp_path):
    """The agent has not published the pod yet: which CPUs it has nobody can tell."""

    async def story(lab: Lab) -> None:
        client = lab.cluster.client
        for number in range(1, NODES):
            await client.patch(Node, f"n{number}", {"spec": {"unschedulable": True}})
        first = await asyncio.to_thread(lab.replicas.start)
        await lab.create(0, 1)
        await lab.bound(1)
        await asyncio.to_thread(first.program.stop)
        record = (await client.get(Pod, "p0", "default")).metadata.annotations[keys.RESOURCE_STATUS]
        damaged = {"metadata": {"annotations": {keys.RESOURCE_STATUS: "{"}}}
        await client.patch(Pod, "p0", damaged, namespace="default")
        await asyncio.to_thread(lab.replicas.start)
        await lab.create(1, 1)

        def blocked(pod: Pod) -> bool:
            found = condition(pod.status.conditions, "PodScheduled")
            return found is not None and "default/p0" in found.message

        await lab.cluster.until("p1", blocked)
        await asyncio.sleep(2)
        assert not (await client.get(Pod, "p1", "default")).spec.node_name
        whole = {"metadata": {"annotations": {keys.RESOURCE_STATUS: record}}}
        await client.patch(Pod, "p0", whole, namespace="default")
        await lab.bound(2)

    run(server, tmp_path, story)


def test_pods_are_bound_once_although_the_server_restarts(server, tmp_path):
    async def story(lab: Lab) -> None:
        replica = lab.replicas.start("--no-leader-elect")
        await lab.create(0, PODS)
        while len([pod for pod in await lab.cluster.pods() if pod.spec.node_name]) < PODS // 3:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(lab.server.kill)
        await asyncio.sleep(1)
        await asyncio.to_thread(lab.server.start)
        await lab.bound(PODS)
        assert replica.program.process.poll() is None
        assert replica.page("/readyz") == "ok"

    run(server, tmp_path, story)
