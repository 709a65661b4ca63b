"""Volumes that are refused, and why."""

import pytest

from support.pod_faults import agree, claim, container, faults, merged, prepared, spec, volume

# Sources that no node here can mount, with what each requires; of the rest only the types are checked.
DRIVERS = {
    "awsElasticBlockStore": ["volumeID"],
    "azureFile": ["secretName", "shareName"],
    "cephfs": ["monitors"],
    "cinder": ["volumeID"],
    "csi": ["driver"],
    "flexVolume": ["driver"],
    "glusterfs": ["endpoints", "path"],
    "gitRepo": ["repository"],
    "iscsi": ["targetPortal", "iqn"],
    "photonPersistentDisk": ["pdID"],
    "portworxVolume": ["volumeID"],
    "rbd": ["monitors", "image"],
    "scaleIO": ["gateway", "system", "volumeName"],
    "storageos": ["volumeName"],
    "vsphereVolume": ["volumePath"],
}

VOLUMES = [
    (volume(gcePersistentDisk={"partition": 256}), "persistentDisk.pdName: Required value"),
    (spec(volumes=[{"name": "", "emptyDir": {}}]), "name: Required value"),
    (spec(volumes=[{"name": "A", "emptyDir": {}}]), 'name: Invalid value: "A": a lowercase RFC 1123 label…'),
    (
        spec(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
        '/spec.volumes[1].name: Duplicate value: "v"',
    ),
    (
        volume(emptyDir={}, hostPath={"path": "/a"}),
        "hostPath: Forbidden: may not specify more than 1 volume type",
    ),
    (
        volume(emptyDir={"sizeLimit": "-1"}),
        "emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
    ),
    (volume(hostPath={"path": ""}), "hostPath.path: Required value"),
    (
        volume(hostPath={"path": "/a/../b"}),
        "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
    ),
    (
        volume(hostPath={"path": "/a", "type": "Pipe"}),
        (
            'hostPath.type: Unsupported value: "Pipe": supported values: "", "BlockDevice", '
            '"CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"'
        ),
    ),
    (volume(secret={"secretName": ""}), "secret.secretName: Required value"),
    (
        volume(
            secret={"secretName": "s", "defaultMode": 512, "items": [{"key": "", "path": "/a", "mode": -1}]}
        ),
        (
            "secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both "
            "inclusive"
        ),
        "secret.items[0].key: Required value",
        'secret.items[0].path: Invalid value: "/a": must be a relative path',
        (
            "secret.items[0].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), "
            "both inclusive"
        ),
    ),
    (volume(configMap={"name": ""}), "configMap.name: Required value"),
    (
        volume(configMap={"name": "c", "items": [{"key": "k", "path": "a/../b"}]}),
        "configMap.items[0].path: Invalid value: \"a/../b\": must not contain '..'",
    ),
    (
        volume(nfs={}),
        "nfs.server: Required value",
        "nfs.path: Required value",
        'nfs.path: Invalid value: "": must be an absolute path',
    ),
    (volume(persistentVolumeClaim={"claimName": ""}), "persistentVolumeClaim.claimName: Required value"),
    (
        volume(downwardAPI={"items": [{"path": "", "fieldRef": {"fieldPath": "metadata.name"}}]}),
        "downwardAPI.path: Required value",
    ),
    (
        volume(downwardAPI={"items": [{"path": "a"}]}),
        "downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
    ),
    (
        volume(downwardAPI={"items": [{"path": "a", "fieldRef": {"fieldPath": "spec.nodeName"}}]}),
        (
            'downwardAPI.fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values: '
            '"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", '
            '"metadata.uid"'
        ),
    ),
    (
        volume(downwardAPI={"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]}),
        "downwardAPI.resourceFieldRef.containerName: Required value",
    ),
    (
        volume(
            downwardAPI={
                "items": [
                    {
                        "path": "a",
                        "fieldRef": {"fieldPath": "metadata.name"},
                        "resourceFieldRef": {"resource": "limits.cpu", "containerName": "c"},
                    }
                ]
            }
        ),
        (
            'downwardAPI: Invalid value: "resource": fieldRef and resourceFieldRef can not be '
            "specified simultaneously"
        ),
    ),
    (
        volume(projected={"sources": [{"secret": {"name": ""}}]}),
        "projected.sources[0].secret.name: Required value",
    ),
    (
        volume(
            projected={
                "sources": [
                    {"secret": {"name": "s", "items": [{"key": "k", "path": "a"}]}},
                    {"configMap": {"name": "m", "items": [{"key": "k", "path": "a"}]}},
                ]
            }
        ),
        'projected: Invalid value: "m": conflicting duplicate paths',
    ),
    (
        volume(projected={"sources": [{"secret": {"name": "s"}, "configMap": {"name": "s"}}]}),
        "projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
    ),
    (
        volume(projected={"sources": [{"serviceAccountToken": {"path": "", "expirationSeconds": 1}}]}),
        (
            "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not "
            "specify a duration less than 10 minutes"
        ),
        "projected.path: Required value",
        (
            "projected.sources[0].serviceAccountToken: Forbidden: must not be specified when "
            "serviceAccountName is not set"
        ),
    ),
    (
        merged(
            spec(serviceAccountName="sa"),
            volume(
                projected={
                    "sources": [{"serviceAccountToken": {"path": "../a", "expirationSeconds": 8589934592}}]
                }
            ),
        ),
        (
            "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 8589934592: "
            "may not specify a duration larger than 2^32 seconds"
        ),
        "projected.path: Invalid value: \"../a\": must not contain '..'",
    ),
    (volume(ephemeral={}), "ephemeral.volumeClaimTemplate: Required value"),
    (
        volume(ephemeral={"volumeClaimTemplate": {"spec": {}}}),
        "ephemeral.volumeClaimTemplate.spec.accessModes: Required value: at least 1 access mode is required",
        "ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
    ),
    (volume(image={"reference": ""}), "image.reference: Required value"),
    (
        volume(image={"reference": "a", "pullPolicy": "X"}),
        'image.pullPolicy: Unsupported value: "X": supported values: "Always", "IfNotPresent", "Never"',
    ),
    (
        volume(
            projected={
                "sources": [
                    {
                        "downwardAPI": {
                            "items": [
                                {"path": "a", "fieldRef": {"fieldPath": "metadata.name"}},
                                {"path": "a", "fieldRef": {"fieldPath": "metadata.uid"}},
                            ]
                        }
                    }
                ]
            }
        ),
        'projected: Invalid value: "a": conflicting duplicate paths',
    ),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in VOLUMES])
def test_a_volume_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected, "spec.volumes[0].")


@pytest.mark.parametrize("source", DRIVERS)
def test_a_volume_of_a_storage_driver_needs_its_required_fields_only(source):
    expected = [f"{source}.{name}: Required value" for name in DRIVERS[source]]
    assert agree(faults(volume(**{source: {}})), expected, "spec.volumes[0].")
    given = {name: ["m"] if name == "monitors" else "x" for name in DRIVERS[source]}
    assert faults(volume(**{source: given})) == []


def test_the_fields_of_a_storage_driver_are_stored_as_sent():
    disks = [
        {"name": "a", "iscsi": {"targetPortal": "p", "iqn": "eui.0", "lun": 0, "iscsiInterface": "i"}},
        {"name": "b", "fc": {"targetWWNs": ["w"], "lun": 0}},
        {"name": "c", "flexVolume": {"driver": "d", "options": {"k": "v"}}},
    ]
    assert prepared(spec(volumes=disks))["spec"]["volumes"] == disks


BLOCK = spec(
    volumes=[
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "e", "emptyDir": {}},
    ]
)
DEVICES = [
    ([{"name": "v", "devicePath": "/dev/x"}],),
    ([{"name": "none", "devicePath": "/dev/x"}], 'volumeDevices[0].name: Not found: "none"'),
    (
        [{"name": "e", "devicePath": "/dev/x"}],
        (
            'volumeDevices[0].name: Invalid value: "e": can only use volume source type of '
            "PersistentVolumeClaim or Ephemeral for block mode"
        ),
    ),
    (
        [{"name": "", "devicePath": ""}],
        "volumeDevices[0].name: Required value",
        'volumeDevices[0].name: Not found: ""',
        "volumeDevices[0].devicePath: Required value",
    ),
    (
        [{"name": "v", "devicePath": "a/../b"}],
        "volumeDevices[0].devicePath: Invalid value: \"a/../b\": can not contain backsteps ('..')",
    ),
    (
        [{"name": "v", "devicePath": "/dev/x"}, {"name": "v", "devicePath": "/dev/x"}],
        'volumeDevices[1].name: Invalid value: "v": must be unique',
        'volumeDevices[1].devicePath: Invalid value: "/dev/x": must be unique',
    ),
]


@pytest.mark.parametrize(("devices", "expected"), [(devices, expected) for devices, *expected in DEVICES])
def test_a_block_device_is_a_claim_that_the_container_uses_once(devices, expected):
    assert agree(faults(BLOCK, container(volumeDevices=devices)), expected, "spec.containers[0].")


PATH_IN = "must not already exist as a path in"


def test_a_volume_is_either_mounted_or_a_device():
    both = container(
        volumeMounts=[{"name": "v", "mountPath": "/x"}], volumeDevices=[{"name": "v", "devicePath": "/x"}]
    )
    assert agree(
        faults(BLOCK, both),
        [
            'volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDevices',
            f'volumeMounts[0].mountPath: Invalid value: "/x": {PATH_IN} volumeDevices',
            'volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMounts',
            f'volumeDevices[0].devicePath: Invalid value: "/x": {PATH_IN} volumeMounts',
        ],
        "spec.containers[0].",
    )


TEMPLATES = [
    ({"labels": {"a": "b"}, "annotations": {"a": "b c"}},),
    ({"labels": {"a": "b c"}}, 'labels: Invalid value: "b c": a valid label must be an empty string…'),
    ({"annotations": {"A B": ""}}, 'annotations: Invalid value: "A B": name part must consist of…'),
    (
        {
            "finalizers": ["a/b"],
            "name": "n",
            "uid": "u",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{"manager": "m"}],
        },
        "name: Forbidden: cannot be set",
        "uID: Forbidden: cannot be set",
        "creationTimestamp: Forbidden: cannot be set",
        "finalizers: Forbidden: cannot be set",
        "managedFields: Forbidden: cannot be set",
    ),
]


@pytest.mark.parametrize(
    ("metadata", "expected"), [(metadata, expected) for metadata, *expected in TEMPLATES]
)
def test_the_template_of_a_claim_has_labels_and_annotations_only(metadata, expected):
    made = claim()
    made["spec"]["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["metadata"] = metadata
    where = "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata."
    assert agree(faults(made), expected, where)


def test_the_source_of_a_claim_in_another_namespace_is_named_alone():
    reference = {"kind": "PersistentVolumeClaim", "name": "s", "namespace": "A"}
    local = {"kind": "PersistentVolumeClaim", "name": "s"}
    where = "spec.volumes[0].ephemeral.volumeClaimTemplate.spec"
    assert agree(
        faults(claim(dataSourceRef=reference, dataSource=local)),
        [
            f'/{where}.dataSourceRef.namespace: Invalid value: "A": a lowercase RFC 1123 label…',
            f"/{where}: Invalid value: {{}}: may not be specified when dataSourceRef.namespace is specified",
        ],
    )


def test_a_pod_does_not_name_the_claim_that_is_made_for_its_own_volume():
    volumes = [
        claim()["spec"]["volumes"][0],
        {"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}},
    ]
    why = "must not reference a PVC that gets created for an ephemeral volume"
    where = "spec.volumes[1].persistentVolumeClaim.claimName"
    assert faults(spec(volumes=volumes)) == [f'{where}: Invalid value: "p-v": {why}']


def test_the_claim_that_is_made_for_a_volume_has_a_sound_name():
    named = merged(claim(), {"metadata": {"name": "x" * 252}})
    found = faults(named)
    assert len(found) == 1
    assert found[0].startswith(f'spec.volumes[0].name: Invalid value: "v": PVC name "{"x" * 252}-v": must be')
