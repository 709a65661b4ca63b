"""The shipped service account on a cluster with TLS and RBAC: it suffices, and nothing of it is unused."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import Lease
from corelane.kube.pod import Pod
from support import scheduler_account
from support.scheduled_cluster import ScheduledCluster
from support.scheduler_account import (
    NAMESPACE,
    account_kubeconfig,
    apply,
    define_gocranes_topologies,
    event_of,
    granted,
    manifests,
    with_volumes,
)
from support.scheduler_lab import RealServer, Replicas

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with scheduler_account.audited() as made:
        yield made


def used(home: Path) -> set[tuple[str, str, str]]:
    permissions = set()
    for entry in scheduler_account.audit_log(home):
        of = entry["objectRef"]
        resource = "/".join(filter(None, [of["resource"], of.get("subresource", "")]))
        permissions.add((of.get("apiGroup", ""), resource, entry["verb"]))
    return permissions


def test_the_shipped_account_suffices_and_each_of_its_permissions_is_used(server, tmp_path):
    home = server.plane.home

    async def story(replicas: Replicas, client: KubeClient) -> None:
        cluster = ScheduledCluster(client)
        options = ("--leader-elect-resource-namespace", NAMESPACE)
        first = await asyncio.to_thread(replicas.start, *options)
        await cluster.node("n1", "socket:1 core:8 smt:2", 16)
        await cluster.pod("fits", "2")
        await cluster.pod("large", "64")
        await cluster.placed("fits")
        await event_of(client, "large", count=1)
        await with_volumes(client, cluster)
        # A pod of higher priority has the first one evicted.
        await cluster.pod("important", "15", priorityClassName="system-node-critical")
        await gone(client, "fits")
        await cluster.placed("important")
        # The node refuses the pod: the scheduler reads it once.
        failed = {"phase": "Failed", "reason": "OutOfcpu", "message": "no"}
        await client.patch(Pod, "important", {"status": failed}, namespace="default", subresource="status")
        refused = 'corelane_scheduler_refused_after_binding_total{reason="OutOfcpu"} 1'
        while refused not in await asyncio.to_thread(first.page, "/metrics"):
            await asyncio.sleep(0.1)
        await asyncio.to_thread(first.program.stop)
        lease = await client.get(Lease, "corelane-scheduler", NAMESPACE)
        assert lease.spec.holder_identity == "", "released"
        # Starts on the same state count the same event up; the first one was on another state.
        for _ in range(2):
            again = await asyncio.to_thread(replicas.start, *options)
            while '"unschedulable"' not in await asyncio.to_thread(again.page, "/metrics"):
                await asyncio.sleep(0.1)
            await asyncio.sleep(2)
            await asyncio.to_thread(again.program.stop)
        await event_of(client, "large", count=2)
        while granted() - used(home):
            await asyncio.sleep(0.2)

    async def main() -> None:
        client = KubeClient.connect(server.kubeconfig(tmp_path / "admin"))
        for document in manifests("rbac.yaml"):
            await apply(client, document)
        await define_gocranes_topologies(client)
        replicas = Replicas(tmp_path, await account_kubeconfig(client, server, tmp_path / "account"))
        try:
            async with asyncio.timeout(180):
                await story(replicas, client)
        except TimeoutError:
            pods = [(pod.title, pod.spec.node_name, pod.status) for pod in (await client.list(Pod)).items]
            unused = sorted(granted() - used(home))
            logs = "".join(replica.program.tail() for replica in replicas.all)
            pytest.fail(f"not used: {unused}\npods: {pods}\n{logs}")
        finally:
            for replica in replicas.all:
                replica.program.stop()
            await client.close()

    asyncio.run(main())
    refused = [
        entry for entry in scheduler_account.audit_log(home) if entry["responseStatus"]["code"] in {401, 403}
    ]
    assert refused == []
    assert used(home) == granted()


async def gone(client: KubeClient, name: str) -> None:
    """Wait until a pod terminates, and end it as its node's agent would."""
    while True:
        pod = await client.get(Pod, name, "default")
        if pod.metadata.deletion_timestamp:
            await client.delete(Pod, name, namespace="default", grace_seconds=0)
            return
        await asyncio.sleep(0.1)


def test_the_pod_of_the_deployment_is_allowed_where_only_restricted_ones_are(server, tmp_path):
    """Pod Security admission's strictest level, by a server that enforces it."""
    (deployment,) = manifests("deployment.yaml")
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": template["spec"]}
    privileged = {**pod, "spec": {**pod["spec"], "hostNetwork": True}}

    async def main() -> None:
        client = KubeClient.connect(server.kubeconfig(tmp_path / "admin"))
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": "restricted", "labels": labels}
        await apply(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        path, dry = "/api/v1/namespaces/restricted/pods", {"dryRun": "All"}
        await client.raw("POST", path, dry, json.dumps(pod).encode())
        with pytest.raises(APIError, match="restricted"):
            await client.raw("POST", path, dry, json.dumps(privileged).encode())
        await client.close()

    asyncio.run(main())


def test_the_manifests_are_accepted_by_a_real_server(server, tmp_path):
    async def main() -> None:
        client = KubeClient.connect(server.kubeconfig(tmp_path / "admin"))
        for name in ("rbac.yaml", "config.yaml", "deployment.yaml"):
            for document in manifests(name):
                await apply(client, document)
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/corelane-scheduler"
        stored = json.loads(await client.raw("GET", path))
        assert stored["spec"]["replicas"] == 2
        await client.close()

    asyncio.run(main())
