"""Claims and persistent volumes, against the embedded API server and the controller."""

import asyncio

from corelane.embedded.housekeeping import Controller
from corelane.kube import keys
from corelane.kube.objects import Event, Node
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim
from support.cluster_lab import cluster, until
from support.controlled_cluster import PATIENCE, story

HERE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [
    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
]}]}}  # fmt: skip


async def add_claim(client, name="c", **spec):
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    meta = {"name": name, "namespace": "default"}
    await client.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": body})


async def add_volume(client, name="v", **spec):
    capacity = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    await client.create({**body, "spec": {**capacity, **spec}})


async def add_class(client, name="late", mode="WaitForFirstConsumer", provisioner="example.com/disk"):
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    await client.create({**body, "provisioner": provisioner, "volumeBindingMode": mode})


async def add_node(client, name="n1"):
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    await client.create({"apiVersion": "v1", "kind": "Node", "metadata": meta})


async def until_phase(client, kind, name, phase):
    async def reached():
        one = await client.get(kind, name, "default" if kind.api.namespaced else None)
        return one if one.status.phase == phase else None

    return await until(reached, PATIENCE)


async def until_gone(client, kind, name):
    async def gone():
        listing = await client.list(kind)
        return name not in [one.metadata.name for one in listing.items]

    await until(gone, PATIENCE)


async def reasons(client, name):
    events = (await client.list(Event, namespace="default")).items
    return [one.reason for one in events if one.involved_object.name == name]


def test_a_claim_is_bound_at_once_and_its_volume_released_afterwards(tmp_path):
    async def scenario(client):
        await add_volume(client)
        await until_phase(client, PersistentVolume, "v", "Available")
        await add_claim(client)
        claim = await until_phase(client, PersistentVolumeClaim, "c", "Bound")
        assert (claim.spec.volume_name, claim.status.capacity) == ("v", {"storage": "2Gi"})
        volume = await until_phase(client, PersistentVolume, "v", "Bound")
        assert volume.spec.claim_ref.uid == claim.metadata.uid
        await client.delete(PersistentVolume, "v")
        await client.delete(PersistentVolumeClaim, "c", namespace="default")
        await until_gone(client, PersistentVolumeClaim, "c")
        await until_gone(client, PersistentVolume, "v")

    story(tmp_path, scenario)


def test_a_released_volume_stays_until_it_is_deleted(tmp_path):
    async def scenario(client):
        await add_volume(client)
        await add_claim(client)
        await until_phase(client, PersistentVolumeClaim, "c", "Bound")
        await client.delete(PersistentVolumeClaim, "c", namespace="default")
        await until_phase(client, PersistentVolume, "v", "Released")
        await add_claim(client, "d")
        await asyncio.sleep(0.3)
        pending = await client.get(PersistentVolumeClaim, "d", "default")
        assert pending.status.phase == "Pending"
        await client.delete(PersistentVolume, "v")
        await until_gone(client, PersistentVolume, "v")

    story(tmp_path, scenario)


def test_two_claims_never_share_a_volume(tmp_path):
    async def scenario(client):
        names = [f"c{i}" for i in range(12)]
        await asyncio.gather(*(add_claim(client, name) for name in names))
        await asyncio.gather(*(add_volume(client, f"v{i}") for i in range(8)))

        async def settled():
            claims = (await client.list(PersistentVolumeClaim)).items
            return sum(one.status.phase == "Bound" for one in claims) == 8

        await until(settled, PATIENCE)
        claims = (await client.list(PersistentVolumeClaim)).items
        bound = [one.spec.volume_name for one in claims if one.status.phase == "Bound"]
        assert sorted(bound) == [f"v{i}" for i in range(8)]

    story(tmp_path, scenario)


def test_a_waiting_claim_is_bound_to_what_the_selected_node_reaches(tmp_path):
    async def scenario(client):
        for name in ("n1", "n2"):
            await add_node(client, name)
        await add_class(client)
        local = {"hostPath": None, "local": {"path": "/mnt"}, "nodeAffinity": HERE}
        await add_volume(client, storageClassName="late", **local)
        await until_phase(client, PersistentVolume, "v", "Available")
        await add_claim(client, storageClassName="late")

        async def waits():
            return "WaitForFirstConsumer" in await reasons(client, "c")

        await until(waits, PATIENCE)
        assert (await client.get(PersistentVolumeClaim, "c", "default")).spec.volume_name == ""
        for name in ("n2", "n1"):
            await client.patch(
                PersistentVolumeClaim,
                "c",
                {"metadata": {"annotations": {keys.SELECTED_NODE: name}}},
                namespace="default",
            )
            if name == "n2":

                async def asked():
                    return "ExternalProvisioning" in await reasons(client, "c")

                await until(asked, PATIENCE)
        claim = await until_phase(client, PersistentVolumeClaim, "c", "Bound")
        assert claim.spec.volume_name == "v"

    story(tmp_path, scenario)


def test_a_volume_reserved_by_a_scheduler_is_bound(tmp_path):
    async def scenario(client):
        await add_class(client)
        await add_claim(client, storageClassName="late")
        await add_volume(client, storageClassName="late")
        claim = await client.get(PersistentVolumeClaim, "c", "default")
        reference = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": "default",
            "name": "c",
            "uid": claim.metadata.uid,
        }
        annotations = {"pv.kubernetes.io/bound-by-controller": "yes"}
        body = {"metadata": {"annotations": annotations}, "spec": {"claimRef": reference}}
        await client.patch(PersistentVolume, "v", body)
        await until_phase(client, PersistentVolumeClaim, "c", "Bound")
        await until_phase(client, PersistentVolume, "v", "Bound")

    story(tmp_path, scenario)


def test_a_claim_in_use_stays_until_its_pod_is_gone(tmp_path):
    async def scenario(client):
        await add_node(client)
        await add_volume(client)
        await add_claim(client)
        await until_phase(client, PersistentVolumeClaim, "c", "Bound")
        spec = {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        }
        meta = {"name": "user", "namespace": "default"}
        await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        await client.delete(PersistentVolumeClaim, "c", namespace="default")
        await asyncio.sleep(0.3)
        claim = await client.get(PersistentVolumeClaim, "c", "default")
        assert claim.metadata.deletion_timestamp
        await client.delete(Pod, "user", namespace="default", grace_seconds=0)
        await until_gone(client, PersistentVolumeClaim, "c")
        assert (await client.get(Node, "n1")).metadata.name == "n1"

    story(tmp_path, scenario)


def test_a_namespace_with_claims_and_budgets_ends(tmp_path):
    async def scenario(client):
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old"}})
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": "c", "namespace": "old"}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
        await client.create(claim)
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": {}}
        await client.create(budget)
        await client.raw("DELETE", "/api/v1/namespaces/old")

        async def ended():
            return b'"name":"old"' not in await client.raw("GET", "/api/v1/namespaces")

        await until(ended, PATIENCE)

    story(tmp_path, scenario)


def test_a_controller_that_stops_in_the_middle_leaves_nothing_bound_twice(tmp_path):
    async def told():
        async with cluster(tmp_path) as client:
            await asyncio.gather(*(add_claim(client, f"c{i}") for i in range(10)))
            await asyncio.gather(*(add_volume(client, f"v{i}") for i in range(8)))
            for run in range(40):
                task = asyncio.create_task(Controller(client).run())
                await asyncio.sleep(0.01 * run)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await check(client)
                if await bound(client) == 8:
                    break
            else:
                task = asyncio.create_task(Controller(client).run())
                await until(lambda: all_bound(client), PATIENCE)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await check(client)

    async def bound(client):
        claims = (await client.list(PersistentVolumeClaim)).items
        return sum(one.status.phase == "Bound" for one in claims)

    async def all_bound(client):
        return await bound(client) == 8

    async def check(client):
        claims = (await client.list(PersistentVolumeClaim)).items
        volumes = {one.metadata.name: one for one in (await client.list(PersistentVolume)).items}
        named = [one.spec.volume_name for one in claims if one.spec.volume_name]
        assert len(named) == len(set(named))
        owners = [one.spec.claim_ref.uid for one in volumes.values() if one.spec.claim_ref]
        for one in claims:
            if one.status.phase == "Bound":
                assert volumes[one.spec.volume_name].spec.claim_ref.uid == one.metadata.uid
        assert len(owners) == len(set(owners))

    asyncio.run(told())
