"""The shipped service account on a cluster with TLS and RBAC: it suffices, and nothing of it is unused."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.objects import Event, Lease
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume
from corelane.kube.translate.crane import CraneTopology
from support import kubectl, scheduler_lab
from support.scheduled_cluster import ScheduledCluster
from support.scheduler_lab import RealServer, Replicas

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy/scheduler"
ACCOUNT, NAMESPACE = "corelane-scheduler", "corelane-system"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    home = Path(tempfile.mkdtemp(prefix="corelane-kr-"))
    (home / "audit.yaml").write_text(yaml.safe_dump(POLICY))
    audit = (
        f"--audit-policy-file={home}/audit.yaml",
        f"--audit-log-path={home}/audit.log",
        "--audit-log-mode=blocking",
    )
    try:
        with scheduler_lab.real(home, *audit) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def manifests(name: str) -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def granted() -> set[tuple[str, str, str]]:
    roles = [one for one in manifests("rbac.yaml") if one["kind"] in {"ClusterRole", "Role"}]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def audited(home: Path) -> list[dict]:
    return [json.loads(line) for line in (home / "audit.log").read_text().splitlines()]


def used(home: Path) -> set[tuple[str, str, str]]:
    permissions = set()
    for entry in audited(home):
        of = entry["objectRef"]
        resource = "/".join(filter(None, [of["resource"], of.get("subresource", "")]))
        permissions.add((of.get("apiGroup", ""), resource, entry["verb"]))
    return permissions


async def apply(client: KubeClient, document: dict) -> None:
    """Create an object of any of the kinds in the manifests."""
    kind = document["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    version, metadata = document["apiVersion"], document["metadata"]
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    try:
        await client.raw("POST", f"{root}{inside}/{plural}", body=json.dumps(document).encode())
    except APIError as error:
        if error.code != 409:
            raise


async def account_kubeconfig(client: KubeClient, server: RealServer, path: Path) -> Path:
    """A kubeconfig with a token of the shipped service account, read from a file as in a pod."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    answer = await client.raw(
        "POST",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
        body=json.dumps(request).encode(),
    )
    token = path.with_suffix(".token")
    token.write_text(json.loads(answer)["status"]["token"])
    config = kubectl.kubeconfig(server.plane.url, server.plane.ca_file, "")
    config["users"][0]["user"] = {"tokenFile": str(token)}
    path.write_text(yaml.safe_dump(config))
    return path


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
    refused = [entry for entry in audited(home) if entry["responseStatus"]["code"] in {401, 403}]
    assert refused == []
    assert used(home) == granted()


async def define_gocranes_topologies(client: KubeClient) -> None:
    """So that they are not only listed, but watched."""
    api = CraneTopology.api
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    await apply(client, {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{api.plural}.{api.group}"},
        "spec": {
            "group": api.group, "scope": "Cluster", "names": {"kind": api.kind, "plural": api.plural},
            "versions": [{"name": api.version, "served": True, "storage": True, "schema": schema}],
        },
    })  # fmt: skip
    while True:
        try:
            await client.list(CraneTopology)
        except APIError:
            await asyncio.sleep(0.2)
        else:
            return


async def with_volumes(client: KubeClient, cluster: ScheduledCluster) -> None:
    """Pods whose claims wait for them: one gets a volume that is there, one waits for a provisioner."""
    for name, provisioner in (("there", "kubernetes.io/no-provisioner"), ("made", "example.com/made")):
        await apply(client, {
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        })  # fmt: skip
        size = {"requests": {"storage": "1Gi"}}
        await apply(client, {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": name, "resources": size},
        })  # fmt: skip
    terms = [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "DoesNotExist"}]}]
    await apply(client, {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "there",
            "local": {"path": "/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    })  # fmt: skip
    # There is no controller of volumes.
    await client.patch(PersistentVolume, "disk", {"status": {"phase": "Available"}}, subresource="status")
    for name in ("there", "made"):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        await cluster.pod(f"with-{name}", "100m", volumes=[volume])


async def gone(client: KubeClient, name: str) -> None:
    """Wait until a pod terminates, and end it as its node's agent would."""
    while True:
        pod = await client.get(Pod, name, "default")
        if pod.metadata.deletion_timestamp:
            await client.delete(Pod, name, namespace="default", grace_seconds=0)
            return
        await asyncio.sleep(0.1)


async def event_of(client: KubeClient, name: str, count: int) -> None:
    while True:
        listed = await client.list(Event, field_selector=f"involvedObject.name={name}")
        if any(event.count >= count for event in listed.items):
            return
        await asyncio.sleep(0.2)


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
