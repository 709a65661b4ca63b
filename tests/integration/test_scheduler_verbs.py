"""Each verb of the shipped roles is needed: without it, a real kube-apiserver refuses something.

The roles are applied without one verb at a time. What the verb is for is made to happen, and the audit log
must have the refusal, of that verb alone; the scheduler must live on. Needs $KUBEBUILDER_ASSETS.
"""

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from corelane.kube.client import KubeClient
from corelane.kube.objects import Lease
from corelane.kube.pod import Pod
from support import scheduler_account
from support.scheduled_cluster import ScheduledCluster
from support.scheduler_account import (
    NAMESPACE,
    USER,
    account_kubeconfig,
    apply,
    define_gocranes_topologies,
    event_of,
    granted,
    manifests,
    with_volumes,
)
from support.scheduler_lab import RealServer, Replica, Replicas

pytestmark = pytest.mark.integration

Permission = tuple[str, str, str]
"""API group, resource and verb."""


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with scheduler_account.audited() as made:
        asyncio.run(prepare(made, made.plane.home))
        yield made


async def prepare(server: RealServer, home: Path) -> None:
    client = KubeClient.connect(server.kubeconfig(home / "admin"))
    for document in manifests("rbac.yaml"):
        await apply(client, document)
    await define_gocranes_topologies(client)
    await account_kubeconfig(client, server, home / "account")
    await ScheduledCluster(client).node("n1", "socket:1 core:8 smt:2", 16)
    await client.close()


async def permit(client: KubeClient, without: Permission | None) -> None:
    """Put the shipped roles, without one verb, and wait until the server goes by them."""
    for document in manifests("rbac.yaml"):
        if document["kind"] not in {"ClusterRole", "Role"}:
            continue
        role = copy.deepcopy(document)
        for rule in list(role["rules"]):
            rest = [one for one in rule["resources"] if without is None or one != without[1]]
            if without is None or without[0] not in rule["apiGroups"] or len(rest) == len(rule["resources"]):
                continue
            verbs = [verb for verb in rule["verbs"] if verb != without[2]]
            role["rules"].remove(rule)
            role["rules"] += [rule | {"resources": rest}] if rest else []
            role["rules"] += [rule | {"resources": [without[1]], "verbs": verbs}] if verbs else []
        path = "/apis/rbac.authorization.k8s.io/v1"
        inside = f"/namespaces/{NAMESPACE}/roles" if role["kind"] == "Role" else "/clusterroles"
        body = json.dumps(role).encode()
        await client.raw("PUT", f"{path}{inside}/{role['metadata']['name']}", body=body)
    for permission in granted():
        while await allowed(client, permission) != (permission != without):
            await asyncio.sleep(0.05)


async def allowed(client: KubeClient, permission: Permission) -> bool:
    group, resource, verb = permission
    resource, _, sub = resource.partition("/")
    asked = {"group": group, "resource": resource, "subresource": sub, "verb": verb}
    # The name matters to leases alone, and not where they are created.
    asked |= {"namespace": NAMESPACE} | ({} if verb == "create" else {"name": "corelane-scheduler"})
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": USER, "groups": ["system:serviceaccounts"], "resourceAttributes": asked},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = json.loads(await client.raw("POST", path, body=json.dumps(review).encode()))
    return answer["status"].get("allowed", False)


def refused(home: Path, since: int) -> set[Permission]:
    """What the server has refused to the account, in the audit log after `since` bytes."""
    with (home / "audit.log").open("rb") as log:
        log.seek(since)
        entries = [json.loads(line) for line in log.read().splitlines() if line.endswith(b"}")]
    found = set()
    for entry in entries:
        of = entry["objectRef"]
        if entry["responseStatus"]["code"] == 403:
            resource = "/".join(filter(None, [of["resource"], of.get("subresource", "")]))
            found.add((of.get("apiGroup", ""), resource, entry["verb"]))
    return found


# What a verb is for.


async def an_unschedulable_pod(client: KubeClient, _replica: Replica) -> None:
    await ScheduledCluster(client).pod("large", "64")


async def a_pod_that_fits(client: KubeClient, _replica: Replica) -> None:
    await ScheduledCluster(client).pod("fits", "2")


async def volumes(client: KubeClient, _replica: Replica) -> None:
    await with_volumes(client, ScheduledCluster(client))


async def a_victim(client: KubeClient, _replica: Replica) -> None:
    cluster = ScheduledCluster(client)
    await cluster.pod("fits", "2")
    await cluster.placed("fits")
    await cluster.pod("important", "15", priorityClassName="system-node-critical")


async def a_refused_pod(client: KubeClient, _replica: Replica) -> None:
    cluster = ScheduledCluster(client)
    await cluster.pod("fits", "2")
    await cluster.placed("fits")
    failed = {"phase": "Failed", "reason": "OutOfcpu", "message": "no"}
    await client.patch(Pod, "fits", {"status": failed}, namespace="default", subresource="status")


async def an_event_from_before(client: KubeClient, replica: Replica) -> None:
    """The same event as a scheduler before has recorded: it is read, and counted up."""
    await ScheduledCluster(client).pod("large", "64")
    await event_of(client, "large", count=1)
    await asyncio.to_thread(replica.program.stop)


async def nothing(client: KubeClient, _replica: Replica) -> None:
    """What every start does."""


CAUSES: dict[tuple[str, str], Callable[[KubeClient, Replica], Awaitable[None]]] = {
    ("pods", "get"): a_refused_pod,
    ("pods", "delete"): a_victim,
    ("pods/binding", "create"): a_pod_that_fits,
    ("pods/status", "patch"): an_unschedulable_pod,
    ("persistentvolumeclaims", "patch"): volumes,
    ("persistentvolumes", "patch"): volumes,
    ("events", "create"): a_pod_that_fits,
    ("events", "get"): an_event_from_before,
    ("events", "patch"): an_event_from_before,
}


async def clear(client: KubeClient) -> None:
    """Delete what a story has made; the node stays."""
    for pod in (await client.list(Pod)).items:
        await client.delete(Pod, pod.metadata.name, namespace="default", grace_seconds=0)
    for path in (
        "/api/v1/namespaces/default/events",
        "/api/v1/namespaces/default/persistentvolumeclaims",
        "/api/v1/persistentvolumes",
        "/apis/storage.k8s.io/v1/storageclasses",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
    ):
        await client.raw("DELETE", path)
    for kind in ("persistentvolumeclaims", "persistentvolumes"):
        where = "/api/v1/namespaces/default/" if kind.endswith("claims") else "/api/v1/"
        for one in json.loads(await client.raw("GET", where + kind))["items"]:
            path = f"{where}{kind}/{one['metadata']['name']}"
            body = json.dumps({"metadata": {"finalizers": None}}).encode()
            await client.raw("PATCH", path, body=body, content_type="application/merge-patch+json")


@pytest.mark.parametrize("permission", sorted(granted()), ids=lambda one: f"{one[1]}-{one[2]}")
def test_without_a_verb_the_scheduler_is_refused_something_and_lives_on(permission, server, tmp_path):
    home = server.plane.home
    _, resource, verb = permission
    cause = CAUSES.get((resource, verb), nothing)
    options = ("--leader-elect-resource-namespace", NAMESPACE)

    async def story(client: KubeClient, replicas: Replicas) -> None:
        # Before a Lease is patched, there must be one.
        if (resource, verb) == ("leases", "patch"):
            await permit(client, None)
            first = await asyncio.to_thread(replicas.start, *options)
            while not (await client.list(Lease)).items:
                await asyncio.sleep(0.1)
            await asyncio.to_thread(first.program.stop)
        early = cause is an_event_from_before
        await permit(client, None if early else permission)
        since = (home / "audit.log").stat().st_size
        replica = await asyncio.to_thread(replicas.start, *options)
        await cause(client, replica)
        if early:
            await permit(client, permission)
            since = (home / "audit.log").stat().st_size
            replica = await asyncio.to_thread(replicas.start, *options)
        while permission not in refused(home, since):
            await asyncio.sleep(0.1)
        assert refused(home, since) == {permission}
        assert replica.program.process.poll() is None, replica.program.tail()

    async def main() -> None:
        client = KubeClient.connect(server.kubeconfig(tmp_path / "admin"))
        replicas = Replicas(tmp_path, home / "account")
        try:
            async with asyncio.timeout(60):
                await story(client, replicas)
        except TimeoutError:
            pytest.fail(f"{permission}: not refused\n" + "".join(one.program.tail() for one in replicas.all))
        finally:
            for replica in replicas.all:
                replica.program.stop()
            await clear(client)
            await client.close()

    asyncio.run(main())
