"""Volumes of old storage drivers: their defaults, and what is refused."""

import pytest

from support.pod_faults import agree, faults, prepared, spec, volume

DISK = {"diskName": "a", "diskURI": "https://a"}
BLOB = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
MANAGED = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
PAIRS = "must be a host:port pair or multiple pairs separated by commas"
DATASET = "datasetName and datasetUUID can not be specified simultaneously"
WRONG_DRIVERS = [
    (
        {"azureDisk": {}},
        "azureDisk.diskName: Required value",
        "azureDisk.diskURI: Required value",
        f'azureDisk.diskURI: Unsupported value: "": supported values: "{BLOB}"',
    ),
    (
        {"azureDisk": {"diskName": "a", "diskURI": "a", "kind": "Odd", "cachingMode": ""}},
        'azureDisk.cachingMode: Unsupported value: "": supported values: "None", "ReadOnly", "ReadWrite"',
        'azureDisk.kind: Unsupported value: "Odd": supported values: "Dedicated", "Managed", "Shared"',
        f'azureDisk.diskURI: Unsupported value: "a": supported values: "{BLOB}"',
    ),
    (
        {"azureDisk": DISK | {"kind": "Managed"}},
        f'azureDisk.diskURI: Unsupported value: "https://a": supported values: "{MANAGED}"',
    ),
    ({"azureDisk": DISK},),
    ({"azureDisk": {"diskName": "a", "diskURI": "/subscriptions/", "kind": "Managed"}},),
    ({"quobyte": {}}, f"quobyte.registry: Required value: {PAIRS}", "quobyte.volume: Required value"),
    (
        {"quobyte": {"registry": "a,b:1,c", "volume": "v"}},
        *[f'quobyte.registry: Invalid value: "a,b:1,c": {PAIRS}'] * 2,
    ),
    (
        {"quobyte": {"registry": "a", "tenant": "x" * 65}},
        "quobyte.tenant: Required value: must be a UUID and may not exceed a length of 64 characters",
        "quobyte.volume: Required value",
    ),
    ({"quobyte": {"registry": "a:1,[::1]:2,:", "tenant": "x" * 64, "volume": "v"}},),
    ({"flocker": {}}, "flocker: Required value: one of datasetName and datasetUUID is required"),
    (
        {"flocker": {"datasetName": "a/b", "datasetUUID": "u"}},
        f'flocker: Invalid value: "resource": {DATASET}',
        "flocker.datasetName: Invalid value: \"a/b\": must not contain '/'",
    ),
    ({"flocker": {"datasetUUID": "u/v"}},),
    ({"fc": {}}, "fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"),
    ({"fc": {"targetWWNs": ["w"]}}, "fc.lun: Required value: lun is required if targetWWNs is specified"),
    (
        {"fc": {"targetWWNs": ["w"], "wwids": ["i"], "lun": 256}},
        'fc.targetWWNs: Invalid value: ["w"]: targetWWNs and wwids can not be specified simultaneously',
        "fc.lun: Invalid value: 256: must be between 0 and 255, inclusive",
    ),
    ({"fc": {"wwids": ["i"], "lun": 256}},),
]


@pytest.mark.parametrize(("source", "expected"), [(source, expected) for source, *expected in WRONG_DRIVERS])
def test_the_source_of_a_storage_driver_is_refused_in_upstreams_words(source, expected):
    assert agree(faults(volume(**source)), expected, "spec.volumes[0].")


@pytest.mark.parametrize("registry", ["[::1]", "::1:2", "[a:1", "[a]b:1", "a]:1", "a:[", "[a[]:1", ""])
def test_a_registry_is_pairs_as_go_splits_them(registry):
    assert faults(volume(quobyte={"registry": f"a:1,{registry}", "volume": "v"})) != []


RBD = {"monitors": ["m"], "image": "i"}
SCALE_IO = {"gateway": "g", "system": "s", "volumeName": "v"}


@pytest.mark.parametrize(
    ("driver", "sent", "added"),
    [
        ("rbd", RBD, {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}),
        ("rbd", RBD | {"pool": "", "user": "u", "keyring": "k"}, {"pool": "rbd"}),
        ("iscsi", {"targetPortal": "p", "iqn": "eui.0", "lun": 0}, {"iscsiInterface": "default"}),
        ("scaleIO", SCALE_IO, {"storageMode": "ThinProvisioned", "fsType": "xfs"}),
    ],
)
def test_a_storage_driver_has_upstreams_defaults(driver, sent, added):
    [volume] = prepared(spec(volumes=[{"name": "v", driver: sent}]))["spec"]["volumes"]
    assert volume[driver] == sent | added
