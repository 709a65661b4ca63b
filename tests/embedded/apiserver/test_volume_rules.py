"""Volumes of a pod: which are refused, which are stored as given, and that claims are refused."""

import asyncio
import json

import pytest

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec.request_bodies import decode
from corelane.embedded.apiserver.served_kinds import PODS
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store.database import FILE_NAME, Store
from corelane.embedded.apiserver.store.server_backend import describe
from support.apiserver import PODS as PODS_PATH
from support.apiserver import serving
from support.pod_faults import container, faults, prepared, spec, volume

NO_CLAIMS = (
    "this API server serves no PersistentVolumeClaims; use an emptyDir volume, or a cluster with storage"
)
V = "spec.volumes[0]"
C = "spec.containers[0]"


def refused(*changes):
    """Return the field and the reason of each fault."""
    return [(cause.field, cause.reason) for cause in validation.create(PODS, prepared(*changes))]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (spec(volumes=[{"name": "", "emptyDir": {}}]), [(f"{V}.name", "FieldValueRequired")]),
        (spec(volumes=[{"name": "A", "emptyDir": {}}]), [(f"{V}.name", "FieldValueInvalid")]),
        (
            spec(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
            [("spec.volumes[1].name", "FieldValueDuplicate")],
        ),
        (volume(hostPath={"path": "/a"}, emptyDir={}), [(f"{V}.emptyDir", "FieldValueForbidden")]),
        (volume(nfs={}, rbd={}, csi={}), [(f"{V}.{name}", "FieldValueForbidden") for name in ("rbd", "csi")]),
        (volume(hostPath={"path": ""}), [(f"{V}.hostPath.path", "FieldValueRequired")]),
        (volume(hostPath={"path": "/a/../b"}), [(f"{V}.hostPath.path", "FieldValueInvalid")]),
        (volume(hostPath={"path": "/a", "type": "Pipe"}), [(f"{V}.hostPath.type", "FieldValueNotSupported")]),
        (volume(secret={"secretName": ""}), [(f"{V}.secret.secretName", "FieldValueRequired")]),
        (volume(configMap={"name": ""}), [(f"{V}.configMap.name", "FieldValueRequired")]),
        (
            volume(secret={"secretName": "s", "items": [{"key": "", "path": "/a", "mode": -1}]}),
            [
                (f"{V}.secret.items[0].key", "FieldValueRequired"),
                (f"{V}.secret.items[0].path", "FieldValueInvalid"),
                (f"{V}.secret.items[0].mode", "FieldValueInvalid"),
            ],
        ),
        (
            volume(projected={"sources": [{"configMap": {"items": [{"key": "k", "path": "../a"}]}}]}),
            [(f"{V}.projected.sources[0].configMap.items[0].path", "FieldValueInvalid")],
        ),
        (
            volume(downwardAPI={"items": [{"path": "", "fieldRef": {"fieldPath": "metadata.name"}}]}),
            [(f"{V}.downwardAPI.items[0].path", "FieldValueRequired")],
        ),
    ],
)
def test_a_volume_needs_a_name_of_its_own_one_source_and_sound_paths(change, expected):
    assert refused(change) == expected


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ([{"name": "v", "mountPath": "/a"}], []),
        ([{"name": "x", "mountPath": "/a"}], [("[0].name", "FieldValueNotFound")]),
        (
            [{"name": "", "mountPath": ""}],
            [
                ("[0].name", "FieldValueRequired"),
                ("[0].mountPath", "FieldValueRequired"),
                ("[0].name", "FieldValueNotFound"),
            ],
        ),
        (
            [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}],
            [("[1].mountPath", "FieldValueInvalid")],
        ),
        (
            [{"name": "v", "mountPath": "/a", "mountPropagation": "Up", "recursiveReadOnly": "Maybe"}],
            [
                ("[0].recursiveReadOnly", "FieldValueNotSupported"),
                ("[0].mountPropagation", "FieldValueNotSupported"),
            ],
        ),
    ],
)
def test_a_mount_names_a_volume_of_the_pod_and_a_path_of_its_own(mounts, expected):
    assert refused(volume(emptyDir={}), container(volumeMounts=mounts)) == [
        (f"{C}.volumeMounts{field}", reason) for field, reason in expected
    ]


def test_other_sources_are_stored_as_sent():
    disks = [
        {"name": "a", "iscsi": {"targetPortal": "p", "iqn": "eui.0", "lun": 0, "odd": [1.5, None]}},
        {"name": "b", "csi": {}},
        {"name": "c", "flexVolume": {"driver": "d", "options": {"k": "v"}}},
    ]
    pod = prepared(spec(volumes=disks))
    assert validation.create(PODS, pod) == []
    assert pod["spec"]["volumes"] == disks


def test_the_source_of_a_volume_is_an_object():
    body = b'{"metadata":{"name":"p"},"spec":{"volumes":[{"name":"v","nfs":"server"}]}}'
    with pytest.raises(StatusError, match="nfs"):
        decode(PODS, "v1", body)


def test_a_volume_that_uses_a_claim_is_refused_with_field_value_and_remedy():
    claim = volume(persistentVolumeClaim={"claimName": "data", "readOnly": True})
    why = f'Forbidden: claim "data" is unavailable: {NO_CLAIMS}'
    assert faults(claim) == [f"{V}.persistentVolumeClaim: {why}"]
    own = volume(ephemeral={"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}})
    assert faults(own) == [f"{V}.ephemeral: Forbidden: no claim is created for the volume: {NO_CLAIMS}"]


def test_a_stored_pod_with_a_claim_can_still_be_changed():
    pod = prepared(volume(persistentVolumeClaim={"claimName": "data"}))
    pod["metadata"]["resourceVersion"] = "1"
    labelled = pod | {"metadata": pod["metadata"] | {"labels": {"a": "b"}}}
    assert validation.update(PODS, labelled, pod) == []


def test_block_devices_are_refused_because_only_claims_have_them():
    devices = container(volumeDevices=[{"name": "v", "devicePath": "/dev/x"}])
    assert refused(volume(emptyDir={}), devices) == [(f"{C}.volumeDevices", "FieldValueForbidden")]


# Over HTTP.

CLAIM_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    },
}


async def test_kinds_of_storage_are_not_served_and_a_pod_with_a_claim_is_invalid(api):
    for path in ("api/v1/persistentvolumes", "api/v1/persistentvolumeclaims", "apis/storage.k8s.io/v1"):
        assert (await api.get(f"/{path}")).status == 404
    answer = await api("POST", PODS_PATH, CLAIM_POD)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert [(cause["field"], cause["reason"]) for cause in answer.body["details"]["causes"]] == [
        (f"{V}.persistentVolumeClaim", "FieldValueForbidden")
    ]


async def test_an_applied_source_that_is_stored_as_given_has_one_owner(api):
    source = {"server": "s", "path": "/a", "mount": {"options": ["hard"], "scale": 1.5}}
    volumes = [{"name": "v", "nfs": source}]
    pod = CLAIM_POD | {"spec": CLAIM_POD["spec"] | {"volumes": volumes}}
    apply = {"Content-Type": "application/apply-patch+yaml"}
    path = f"{PODS_PATH}/p?fieldManager=m"
    made = await api("PATCH", path, data=json.dumps(pod), headers=apply)
    assert (made.status, made.body["spec"]["volumes"]) == (201, volumes)
    owned = made.body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:volumes"]
    assert owned['k:{"name":"v"}'] == {".": {}, "f:name": {}, "f:nfs": {}}
    again = await api("PATCH", path, data=json.dumps(pod), headers=apply)
    assert again.body["metadata"]["resourceVersion"] == made.body["metadata"]["resourceVersion"]


def test_objects_of_kinds_that_an_earlier_version_served_do_not_keep_the_store_from_opening(tmp_path):
    store = Store(tmp_path / FILE_NAME, describe)
    store.put("persistentvolumes", "disk", {"kind": "PersistentVolume", "metadata": {"name": "disk"}})
    store.close()

    async def lists():
        async with serving(data_dir=tmp_path) as api:
            return (await api.get("/api/v1/nodes")).status, (
                await api.get("/api/v1/persistentvolumes")
            ).status

    assert asyncio.run(lists()) == (200, 404)
