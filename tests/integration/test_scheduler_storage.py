"""Volumes on a real kube-apiserver: bound claims, claims that wait for a pod, CSI limits and free storage."""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import pytest

from support import scheduler_lab
from support.scheduling_story import ZONE, Story, run

pytestmark = pytest.mark.integration

STORAGE = "/apis/storage.k8s.io/v1"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
DISK = "disk.example.com"
HOSTNAME = "kubernetes.io/hostname"
BOUND = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}


@pytest.fixture(scope="module")
def server():
    home = Path(tempfile.mkdtemp(prefix="corelane-ks-"))
    try:
        with scheduler_lab.real(home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def drivers(count: int) -> dict:
    return {"drivers": [{"name": DISK, "nodeID": "n1", "allocatable": {"count": count}, "topologyKeys": []}]}


async def clear(it: Story) -> None:
    """Delete what no other story does."""
    for kind in ("csinodes", "csidrivers", "volumeattachments"):
        await it.client.raw("DELETE", f"{STORAGE}/{kind}")
    await it.client.raw("DELETE", f"{STORAGE}/namespaces/default/csistoragecapacities")


async def bound_claim(it: Story, name: str) -> None:
    made = await it.post(
        CLAIMS,
        {
            "metadata": {"name": name, "annotations": BOUND},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": f"pv-{name}",
            },
        },
    )
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": DISK, "volumeHandle": name},
        "claimRef": {"namespace": "default", "name": name, "uid": made["metadata"]["uid"]},
    }
    await it.post(VOLUMES, {"metadata": {"name": f"pv-{name}"}, "spec": spec})


def volume(claim: str) -> list[dict]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]


def test_a_pod_waits_until_its_node_can_have_another_volume(server, tmp_path):
    async def story(it: Story) -> None:
        await clear(it)
        await it.node("n1")
        await it.post(f"{STORAGE}/csinodes", {"metadata": {"name": "n1"}, "spec": drivers(1)})
        for name in ("a", "b", "c"):
            await bound_claim(it, name)
        it.scheduler()
        await it.pod("first", volumes=volume("a"))
        await it.placed("first")
        await it.pod("second", volumes=volume("b"))
        assert "1 node(s) exceed max volume count" in await it.refused("second")
        await it.merge(f"{STORAGE}/csinodes/n1", {"spec": drivers(2)})
        assert await it.placed("second") == "n1"
        # A volume that is attached counts without a pod.
        attached = {"attacher": DISK, "nodeName": "n1", "source": {"persistentVolumeName": "pv-b"}}
        await it.post(f"{STORAGE}/volumeattachments", {"metadata": {"name": "at"}, "spec": attached})
        await it.delete("second")
        await it.pod("third", volumes=volume("c"))
        assert "exceed max volume count" in await it.refused("third")
        await it.client.raw("DELETE", f"{STORAGE}/volumeattachments/at")
        assert await it.placed("third") == "n1"
        await clear(it)

    run(server, tmp_path, story)


def test_a_pod_waits_until_there_is_storage_for_its_volume(server, tmp_path):
    async def story(it: Story) -> None:
        await clear(it)
        await it.node("n1", zone="a")
        await it.node("n2", zone="b")
        await it.post(
            f"{STORAGE}/csidrivers", {"metadata": {"name": DISK}, "spec": {"storageCapacity": True}}
        )
        await it.post(
            f"{STORAGE}/storageclasses",
            {"metadata": {"name": "made"}, "provisioner": DISK, "volumeBindingMode": "WaitForFirstConsumer"},
        )
        request = {"requests": {"storage": "5Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "made", "resources": request}
        await it.post(CLAIMS, {"metadata": {"name": "data"}, "spec": spec})
        it.scheduler()
        await it.pod("p", volumes=volume("data"))
        assert "2 node(s) did not have enough free storage" in await it.refused("p")
        topology = {"matchLabels": {"topology.kubernetes.io/zone": "b"}}
        capacity = {
            "metadata": {"name": "b"},
            "storageClassName": "made",
            "nodeTopology": topology,
            "capacity": "9Gi",
        }
        await it.post(f"{STORAGE}/namespaces/default/csistoragecapacities", capacity)
        pod = await it.until("p", lambda pod: bool(pod.status.nominated_node_name))
        assert pod.status.nominated_node_name == "n2"
        claim = json.loads(await it.client.raw("GET", f"{CLAIMS}/data"))
        while "volume.kubernetes.io/selected-node" not in claim["metadata"].get("annotations", {}):
            claim = json.loads(await it.client.raw("GET", f"{CLAIMS}/data"))
        assert claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "n2"
        await clear(it)

    run(server, tmp_path, story)


def local_volume(name: str, node: str, storage_class: str, claim: dict | None = None) -> dict:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": "/mnt"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    if claim:
        meta = claim["metadata"]
        spec["claimRef"] = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": "default",
            "name": meta["name"],
            "uid": meta["uid"],
        }
    return {"metadata": {"name": name}, "spec": spec}


async def claimed(it: Story, name: str, storage_class: str, volume_name: str = "") -> dict:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
    }
    if volume_name:
        spec["volumeName"] = volume_name
    metadata = {"name": name, "annotations": BOUND if volume_name else {}}
    return await it.post(CLAIMS, {"metadata": metadata, "spec": spec})


def test_a_pod_goes_where_its_bound_volume_is(server, tmp_path):
    async def story(it: Story) -> None:
        for name in ("n1", "n2"):
            await it.node(name)
        claim = await claimed(it, "data", "fast", "disk")
        await it.post(VOLUMES, local_volume("disk", "n2", "fast", claim))
        await it.merge(f"{VOLUMES}/disk/status", {"status": {"phase": "Bound"}})
        await it.merge(f"{CLAIMS}/data/status", {"status": {"phase": "Bound"}})
        it.scheduler()
        await it.pod("reads", volumes=volume("data"))
        assert await it.placed("reads") == "n2"
        await it.pod("lost", volumes=volume("absent"))
        assert 'persistentvolumeclaim "absent" not found' in await it.refused("lost")

    run(server, tmp_path, story)


def test_a_claim_that_waits_for_its_first_consumer_gets_a_node_and_the_pod_waits_for_the_volume(
    server, tmp_path
):
    async def story(it: Story) -> None:
        for name in ("n1", "n2"):
            await it.node(name, "a" if name == "n1" else "b")
        topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
        made = {"metadata": {"name": "late"}, "provisioner": "example.com/disk"}
        made |= {"volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topology}
        await it.post(f"{STORAGE}/storageclasses", made)
        claim = await claimed(it, "data", "late")
        it.scheduler()
        await it.pod("writes", volumes=volume("data"))
        assert await selected_node(it, "data") == "n2"
        await asyncio.sleep(0.5)
        assert not (await it.get("writes")).spec.node_name
        # What the provisioner and the volume controller do:
        await it.post(VOLUMES, local_volume("made", "n2", "late", claim))
        await it.merge(f"{VOLUMES}/made/status", {"status": {"phase": "Bound"}})
        bound = {"metadata": {"annotations": BOUND}, "spec": {"volumeName": "made"}}
        await it.merge(f"{CLAIMS}/data", bound)
        await it.merge(f"{CLAIMS}/data/status", {"status": {"phase": "Bound"}})
        assert await it.placed("writes") == "n2"

    run(server, tmp_path, story)


async def selected_node(it: Story, claim: str) -> str:
    key = "volume.kubernetes.io/selected-node"
    while True:
        found = await it.client.raw("GET", f"{CLAIMS}/{claim}")
        annotations = json.loads(found)["metadata"].get("annotations", {})
        if key in annotations:
            return annotations[key]
        await asyncio.sleep(0.05)


def test_a_withdrawn_node_sends_the_pod_back_to_the_queue_with_the_reason(server, tmp_path):
    async def story(it: Story) -> None:
        await it.node("n1")
        made = {"metadata": {"name": "late"}, "provisioner": "example.com/disk"}
        await it.post(f"{STORAGE}/storageclasses", made | {"volumeBindingMode": "WaitForFirstConsumer"})
        await claimed(it, "data", "late")
        it.scheduler()
        await it.pod("writes", volumes=volume("data"))
        assert await selected_node(it, "data") == "n1"
        selected = "volume.kubernetes.io/selected-node"
        await it.merge(f"{CLAIMS}/data", {"metadata": {"annotations": {selected: None}}})
        assert "provisioning failed for PVC 'default/data'" in await it.refused("writes")
        assert await selected_node(it, "data") == "n1"

    run(server, tmp_path, story)
