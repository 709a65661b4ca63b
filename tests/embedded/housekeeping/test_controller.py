"""The controller against the embedded API server."""

import asyncio
import math
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from corelane.embedded.housekeeping import Controller, ControllerReporter
from corelane.kube.client import APIError
from corelane.kube.meta import condition
from corelane.kube.objects import ConfigMap, Lease, Namespace, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from support.cluster_lab import cluster, read_pod, until


class Heard(ControllerReporter):
    def __init__(self):
        self.lost, self.back, self.orphans, self.failures = [], [], [], []

    def node_lost(self, name, silent_for):
        self.lost.append((name, silent_for))

    def node_back(self, name):
        self.back.append(name)

    def orphan_deleted(self, what):
        self.orphans.append(what)

    def api_failed(self, what, error):
        self.failures.append((what, error))


class Clock:
    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


@asynccontextmanager
async def controlled(directory, **options):
    heard, clock = Heard(), Clock()
    async with cluster(directory) as client:
        controller = Controller(client, reporter=heard, period=0.05, clock=clock, **options)
        task = asyncio.create_task(controller.run())
        try:
            yield client, heard, clock
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert heard.failures == []


def ready(status="True"):
    return {"type": "Ready", "status": status, "reason": "KubeletReady", "message": ""}


async def add_node(client, name="n1"):
    node = await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    await report(client, name)
    await renew(client, name, node["metadata"]["uid"])
    return node["metadata"]["uid"]


async def report(client, name, status="True"):
    body = {"status": {"conditions": [ready(status)]}}
    await client.patch(Node, name, body, kind_of_patch="strategic", subresource="status")


async def renew(client, name, uid):
    renewed = {"renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, **renewed},
    }
    try:
        await client.create(lease)
    except APIError:
        await client.patch(Lease, name, {"spec": renewed}, namespace="kube-node-lease")


async def taints(client, name="n1"):
    node = await client.get(Node, name)
    return sorted((taint.key, taint.effect) for taint in node.spec.taints)


OWN = ("team", "NoSchedule")
UNREACHABLE = [
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
]


async def test_a_node_whose_lease_is_stale_is_marked_and_comes_back(tmp_path):
    async with controlled(tmp_path, longest_gap=math.inf) as (client, heard, clock):
        uid = await add_node(client)
        foreign = {"key": "team", "value": "a", "effect": "NoSchedule"}
        await client.patch(Node, "n1", {"spec": {"taints": [foreign]}})
        await asyncio.sleep(0.3)
        clock.now += 39
        await asyncio.sleep(0.3)
        assert await taints(client) == [("team", "NoSchedule")]
        clock.now += 3

        async def marked():
            node = await client.get(Node, "n1")
            found = condition(node.status.conditions, "Ready")
            return found.status == "Unknown" and found

        found = await until(marked)
        assert found.reason == "NodeStatusUnknown"
        assert await taints(client) == [*UNREACHABLE, ("team", "NoSchedule")]
        assert [name for name, _ in heard.lost] == ["n1"]

        await renew(client, "n1", uid)
        await report(client, "n1")

        async def clear():
            return await taints(client) == [("team", "NoSchedule")]

        await until(clear)
        assert heard.back == ["n1"]


async def test_after_a_suspension_nodes_get_their_time_to_send_a_heartbeat(tmp_path):
    async with controlled(tmp_path) as (client, heard, clock):
        uid = await add_node(client)

        async def ready_for_pods():
            return await taints(client) == []

        await until(ready_for_pods)
        clock.now += 3600
        await asyncio.sleep(0.5)
        assert (await taints(client), heard.lost) == ([], [])
        await renew(client, "n1", uid)
        await asyncio.sleep(0.3)
        for _ in range(12):  # without suspension the node is lost after 40 s
            clock.now += 4
            await asyncio.sleep(0.2)

        async def lost():
            return [name for name, _ in heard.lost] == ["n1"]

        await until(lost)
        assert await taints(client) == UNREACHABLE


async def test_a_node_that_says_it_is_not_ready_is_tainted(tmp_path):
    async with controlled(tmp_path) as (client, _, _):
        await add_node(client)
        await report(client, "n1", "False")

        async def tainted():
            return ("node.kubernetes.io/not-ready", "NoExecute") in await taints(client)

        await until(tainted)


async def test_a_cordoned_node_has_the_taint_until_it_is_uncordoned_and_keeps_a_users_own(tmp_path):
    async with controlled(tmp_path) as (client, heard, _):
        await add_node(client)
        foreign = {"key": "team", "value": "a", "effect": "NoSchedule"}
        cordon = {"spec": {"unschedulable": True, "taints": [foreign]}}
        await client.patch(Node, "n1", cordon)

        async def cordoned():
            return await taints(client) == [("node.kubernetes.io/unschedulable", "NoSchedule"), OWN]

        await until(cordoned)
        before = list(heard.back)
        await client.patch(Node, "n1", {"spec": {"taints": [foreign]}})
        await until(cordoned)
        await client.patch(Node, "n1", {"spec": {"unschedulable": False}})

        async def uncordoned():
            return await taints(client) == [OWN]

        await until(uncordoned)
        assert (heard.lost, heard.back) == ([], before)


def bound_pod(name="web", node="n1", namespace="default"):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }


async def test_pods_of_a_silent_node_stay_and_those_of_a_deleted_one_go_after_a_while(tmp_path):
    async with controlled(tmp_path, longest_gap=math.inf) as (client, heard, clock):
        await add_node(client)
        await client.create(bound_pod())
        await asyncio.sleep(0.3)
        clock.now += 100
        await asyncio.sleep(0.3)
        assert await read_pod(client, "web")

        await client.delete(Node, "n1")
        await asyncio.sleep(0.3)
        clock.now += 39
        await asyncio.sleep(0.3)
        assert await read_pod(client, "web")
        clock.now += 2

        async def deleted():
            gone = await read_pod(client, "web") is None
            return gone and "pod default/web of node n1" in heard.orphans

        await until(deleted)


async def test_lease_and_topology_go_with_their_node(tmp_path):
    async with controlled(tmp_path) as (client, _, _):
        uid = await add_node(client)
        await add_node(client, "n2")
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}
        for name, owners in (("n1", [owner]), ("free", [])):
            await client.create(
                {
                    "apiVersion": "topology.node.k8s.io/v1alpha2",
                    "kind": "NodeResourceTopology",
                    "metadata": {"name": name, "ownerReferences": owners},
                    "zones": [],
                }
            )
        await client.delete(Node, "n1")

        async def tidied():
            leases = await client.list(Lease)
            topologies = await client.list(NodeResourceTopology)
            names = [[one.metadata.name for one in listing.items] for listing in (leases, topologies)]
            return names == [["n2"], ["free"]]

        await until(tidied)


async def test_of_40_nodes_that_appear_at_once_every_lease_and_topology_stays(tmp_path):
    """The check awaits a request for each new node; objects that appear meanwhile have live nodes."""

    async def add(client, name, turn):
        async with turn:
            uid = await add_node(client, name)
            await client.create(topology(name, uid))

    async with controlled(tmp_path) as (client, heard, _):
        names = {f"n{number}" for number in range(40)}
        turn = asyncio.Semaphore(4)
        await asyncio.gather(*(add(client, name, turn) for name in names))
        await asyncio.sleep(1)
        assert heard.orphans == []
        for kind, namespace in ((Lease, "kube-node-lease"), (NodeResourceTopology, "")):
            listing = await client.list(kind, namespace=namespace)
            assert {item.metadata.name for item in listing.items} == names


async def test_lease_and_topology_of_a_node_created_again_under_its_name_go(tmp_path):
    async with controlled(tmp_path) as (client, heard, _):
        await add_node(client, "n1")
        await client.create(topology("n1", "00000000-0000-0000-0000-000000000001"))

        async def gone():
            return not (await client.list(NodeResourceTopology)).items and heard.orphans

        assert await until(gone) == ["NodeResourceTopology n1"]


def topology(name, uid):
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "zones": [],
    }


async def test_a_deleted_namespace_is_emptied_and_ends(tmp_path):
    async with controlled(tmp_path) as (client, _, _):
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old"}})
        settings = {"name": "settings", "namespace": "old"}
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": {}})
        kept = {"name": "kept", "namespace": "default"}
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": kept, "data": {}})
        await client.create(bound_pod(namespace="old"))
        await client.delete(Namespace, "old")

        async def asked_to_end():
            return (await client.get(Pod, "web", "old")).metadata.deletion_timestamp

        await until(asked_to_end)
        namespace = await client.get(Namespace, "old")
        assert namespace.status.phase == "Terminating", "it ends before its pod has"
        await client.delete(Pod, "web", namespace="old", grace_seconds=0)

        async def ended():
            names = [one.metadata.name for one in (await client.list(Namespace)).items]
            return "old" not in names

        await until(ended)
        assert await client.get(ConfigMap, "kept", "default")
