"""The shipped service account of the scheduler on a real server, and objects that make it use its rights."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.objects import Event
from corelane.kube.storage import PersistentVolume
from corelane.kube.translate.crane import CraneTopology
from support import kubectl, scheduler_lab
from support.scheduled_cluster import ScheduledCluster
from support.scheduler_lab import RealServer

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


@contextmanager
def audited() -> Iterator[RealServer]:
    """A real server that logs what the account asks, to `audit.log` in its home; skips without one."""
    with tempfile.TemporaryDirectory(prefix="corelane-audit-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        (home / "audit.yaml").write_text(yaml.safe_dump(POLICY))
        options = (
            f"--audit-policy-file={home}/audit.yaml",
            f"--audit-log-path={home}/audit.log",
            "--audit-log-mode=blocking",
        )
        with scheduler_lab.real(home, *options) as made:
            yield made


def audit_log(home: Path) -> list[dict]:
    return [json.loads(line) for line in (home / "audit.log").read_text().splitlines()]


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


async def event_of(client: KubeClient, name: str, count: int) -> None:
    while True:
        listed = await client.list(Event, field_selector=f"involvedObject.name={name}")
        if any(event.count >= count for event in listed.items):
            return
        await asyncio.sleep(0.2)
