"""What belongs to deleted objects goes, and deletions in the foreground and those that orphan complete."""

import asyncio

import msgspec
import pytest

from corelane.embedded.housekeeping.garbage_collector import Item, OwnershipGraph
from corelane.kube.client import APIError
from corelane.kube.meta import ObjectMeta, OwnerReference
from corelane.kube.objects import ConfigMap, PriorityClass, Secret
from corelane.kube.pod import Pod
from support.cluster_lab import until
from support.controlled_cluster import controlled


def reference(owner, **more):
    meta = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], **more}


async def create(client, name, *owners, kind="ConfigMap", finalizers=()):
    metadata = {"name": name, "ownerReferences": list(owners), "finalizers": list(finalizers)}
    return await client.create({"apiVersion": "v1", "kind": kind, "metadata": metadata})


async def delete(client, name, policy=None):
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
    path = ConfigMap.api.path("default", name)
    await client.raw("DELETE", path, body=msgspec.json.encode(options))


async def present(client, *kinds):
    listed = [await client.list(kind, namespace="default") for kind in kinds or (ConfigMap,)]
    return sorted(item.metadata.name for listing in listed for item in listing.items)


def when(client, names, *kinds):
    async def reached():
        return await present(client, *kinds) == names

    return until(reached)


@pytest.fixture
def client(tmp_path):
    return controlled(tmp_path)


@pytest.mark.parametrize("policy", ["Foreground", "Orphan", "Background"])
async def test_an_object_without_dependents_goes_whatever_the_policy(client, policy):
    await create(client, "alone")
    await delete(client, "alone", policy)
    await when(client, [])


async def test_a_pod_that_is_deleted_in_the_foreground_goes(client):
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "p", "namespace": "default"}
    await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path = Pod.api.path("default", "p")
    await client.raw("DELETE", path, {"propagationPolicy": "Foreground"})
    await when(client, [], Pod)


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
async def test_dependents_go_with_their_owner_down_to_the_last(client, policy):
    top = await create(client, "top")
    middle = await create(client, "middle", reference(top, blockOwnerDeletion=True))
    await create(client, "leaf", reference(middle, blockOwnerDeletion=True), kind="Secret")
    await create(client, "other")
    await delete(client, "top", policy)
    await when(client, ["other"], ConfigMap, Secret)


async def test_an_owner_in_the_foreground_waits_for_a_dependent_that_blocks(client):
    top = await create(client, "top")
    await create(client, "held", reference(top, blockOwnerDeletion=True), finalizers=["example.com/x"])
    await delete(client, "top", "Foreground")

    async def begun():
        held = await client.get(ConfigMap, "held", "default")
        return bool(held.metadata.deletion_timestamp)

    await until(begun)
    assert await present(client) == ["held", "top"]
    await client.patch(ConfigMap, "held", {"metadata": {"finalizers": None}}, namespace="default")
    await when(client, [])


async def test_orphans_stay_without_a_reference(client):
    top = await create(client, "top")
    await create(client, "child", reference(top, blockOwnerDeletion=True))
    await asyncio.sleep(0.1)
    await delete(client, "top", "Orphan")
    await when(client, ["child"])
    child = await client.get(ConfigMap, "child", "default")
    assert child.metadata.owner_references == ()


async def test_a_dependent_of_two_stays_until_both_are_gone(client):
    one, two = await create(client, "one"), await create(client, "two")
    await create(client, "child", reference(one), reference(two))
    await delete(client, "one")

    async def belongs_to_two_alone():
        child = await client.get(ConfigMap, "child", "default")
        return [owner.name for owner in child.metadata.owner_references] == ["two"]

    await until(belongs_to_two_alone)
    await delete(client, "two")
    await when(client, [])


async def test_a_circle_of_owners_goes_in_the_foreground(client):
    one = await create(client, "one")
    two = await create(client, "two", reference(one, blockOwnerDeletion=True))
    owners = [reference(two, blockOwnerDeletion=True)]
    await client.patch(ConfigMap, "one", {"metadata": {"ownerReferences": owners}}, namespace="default")
    await delete(client, "one", "Foreground")
    await when(client, [])


async def test_an_object_whose_owner_never_existed_goes(client):
    absent = {"metadata": {"name": "absent", "uid": "00000000-0000-0000-0000-000000000000"}}
    await create(client, "child", reference(absent))
    await when(client, [])


async def test_objects_of_owners_that_are_not_served_stay(client):
    set_of = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}
    service = {"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "2"}
    absent = {"metadata": {"name": "absent", "uid": "3"}}
    await create(client, "of-set", set_of)
    await create(client, "of-service", service)
    await create(client, "sentinel", reference(absent))
    await when(client, ["of-service", "of-set"])
    # Namespaced owners of cluster-wide objects cannot be looked up.
    of_node = {"name": "cluster-wide", "ownerReferences": [reference(absent)]}
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": of_node, "value": 1}
    await client.create(body)
    await create(client, "sentinel", reference(absent))
    await when(client, ["of-service", "of-set"])
    assert await client.get(PriorityClass, "cluster-wide")


async def test_the_same_name_with_another_uid_is_another_owner(client):
    old = await create(client, "owner")
    await delete(client, "owner")
    new = await create(client, "owner")
    await create(client, "of-old", reference(old))
    await create(client, "of-new", reference(new))
    await when(client, ["of-new", "owner"])
    with pytest.raises(APIError):
        await client.get(ConfigMap, "of-old", "default")


def test_a_confirmation_from_before_a_deletion_counts_for_nothing():
    graph = OwnershipGraph()
    owner = ConfigMap(ObjectMeta(name="owner", namespace="default", uid="u"))
    meta = ObjectMeta(name="child", namespace="default", uid="c", owner_references=(OwnerReference(uid="u"),))
    assert list(graph.changed(ConfigMap(meta))) == [Item.of(ConfigMap(meta))]
    before = graph.deletions
    assert list(graph.deleted(owner)) == [Item.of(ConfigMap(meta))]
    graph.confirm("u", before)
    assert not graph.is_present("u")
    graph.confirm("u", graph.deletions)
    assert graph.is_present("u")
