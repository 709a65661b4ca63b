"""Volumes of a pod: one record a source, and one row a storage driver that no node here can mount."""

from corelane.apiserver.schema.derived_defaults import empty_dir, volume_pull_policy
from corelane.apiserver.schema.notation import (
    BOOL,
    INT32,
    INT64,
    QUANTITY,
    RESOURCE_LIST,
    STRING,
    FieldRow,
    ListType,
    MapType,
    Shape,
    alike,
    filling,
    opt,
    record,
    req,
    val,
)
from corelane.apiserver.schema.object_meta import LABEL_SELECTOR, OBJECT_META

LOCAL_OBJECT_REFERENCE = record("LocalObjectReference", name=val(STRING, 1, default=""))

HOST_PATH_VOLUME_SOURCE = record(
    "HostPathVolumeSource",
    path=req(STRING, 1, check="required no-backsteps"),
    type=opt(
        STRING,
        2,
        default="",
        enum=(
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ),
    ),
)

EMPTY_DIR_VOLUME_SOURCE = record("EmptyDirVolumeSource", medium=val(STRING, 1), sizeLimit=opt(QUANTITY, 2))

KEY_TO_PATH = record(
    "KeyToPath",
    key=req(STRING, 1, check="required"),
    path=req(STRING, 2, check="required local-path"),
    mode=opt(INT32, 3, check="file-mode"),
)

SECRET_VOLUME_SOURCE = record(
    "SecretVolumeSource",
    "secretName defaultMode items",
    secretName=val(STRING, 1, check="required"),
    items=val(ListType(KEY_TO_PATH), 2),
    defaultMode=opt(INT32, 3, default=0o644, check="file-mode"),
    optional=opt(BOOL, 4),
)

PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE = record(
    "PersistentVolumeClaimVolumeSource", claimName=req(STRING, 1, check="required"), readOnly=val(BOOL, 2)
)

OBJECT_FIELD_SELECTOR = record(
    "ObjectFieldSelector", apiVersion=val(STRING, 1, go="APIVersion", default="v1"), fieldPath=req(STRING, 2)
)

RESOURCE_FIELD_SELECTOR = record(
    "ResourceFieldSelector",
    containerName=val(STRING, 1),
    resource=req(STRING, 2),
    divisor=req(QUANTITY, 3, optional=True),
)

DOWNWARD_API_VOLUME_FILE = record(
    "DownwardAPIVolumeFile",
    "path @downward-source mode",
    path=req(STRING, 1, check="required local-path"),
    fieldRef=opt(OBJECT_FIELD_SELECTOR, 2),
    resourceFieldRef=opt(RESOURCE_FIELD_SELECTOR, 3),
    mode=opt(INT32, 4, check="file-mode"),
)

DOWNWARD_API_VOLUME_SOURCE = record(
    "DownwardAPIVolumeSource",
    "defaultMode @downward-items",
    items=val(ListType(DOWNWARD_API_VOLUME_FILE), 1),
    defaultMode=opt(INT32, 2, default=0o644, check="file-mode"),
)

CONFIG_MAP_VOLUME_SOURCE = record(
    "ConfigMapVolumeSource",
    "name defaultMode items",
    name=val(STRING, "1.1", default="", check="required"),
    items=val(ListType(KEY_TO_PATH), 2),
    defaultMode=opt(INT32, 3, default=0o644, check="file-mode"),
    optional=opt(BOOL, 4),
)

SECRET_PROJECTION = record(
    "SecretProjection",
    name=val(STRING, "1.1", default=""),
    items=val(ListType(KEY_TO_PATH), 2),
    optional=opt(BOOL, 4),
)

DOWNWARD_API_PROJECTION = record("DownwardAPIProjection", items=val(ListType(DOWNWARD_API_VOLUME_FILE), 1))

CONFIG_MAP_PROJECTION = alike(SECRET_PROJECTION, "ConfigMapProjection")

SERVICE_ACCOUNT_TOKEN_PROJECTION = record(
    "ServiceAccountTokenProjection",
    audience=val(STRING, 1),
    expirationSeconds=opt(INT64, 2, default=3600),
    path=req(STRING, 3),
)

CLUSTER_TRUST_BUNDLE_PROJECTION = record(
    "ClusterTrustBundleProjection",
    name=opt(STRING, 1),
    signerName=opt(STRING, 2),
    labelSelector=opt(LABEL_SELECTOR, 3),
    optional=opt(BOOL, 5),
    path=req(STRING, 4),
)

POD_CERTIFICATE_PROJECTION = record(
    "PodCertificateProjection",
    signerName=val(STRING, 1),
    keyType=val(STRING, 2),
    maxExpirationSeconds=opt(INT32, 3),
    credentialBundlePath=val(STRING, 4),
    keyPath=val(STRING, 5),
    certificateChainPath=val(STRING, 6),
    userAnnotations=val(MapType(STRING), 7),
)

VOLUME_PROJECTION = record(
    "VolumeProjection",
    secret=opt(SECRET_PROJECTION, 1),
    downwardAPI=opt(DOWNWARD_API_PROJECTION, 2),
    configMap=opt(CONFIG_MAP_PROJECTION, 3),
    serviceAccountToken=opt(SERVICE_ACCOUNT_TOKEN_PROJECTION, 4),
    clusterTrustBundle=opt(CLUSTER_TRUST_BUNDLE_PROJECTION, 5, gated=True),
    podCertificate=opt(POD_CERTIFICATE_PROJECTION, 6, gated=True),
)

PROJECTED_VOLUME_SOURCE = record(
    "ProjectedVolumeSource",
    "defaultMode @projections",
    sources=req(ListType(VOLUME_PROJECTION), 1, optional=True),
    defaultMode=opt(INT32, 2, default=0o644, check="file-mode"),
)

VOLUME_RESOURCE_REQUIREMENTS = record(
    "VolumeResourceRequirements", limits=val(RESOURCE_LIST, 1), requests=val(RESOURCE_LIST, 2)
)

TYPED_LOCAL_OBJECT_REFERENCE = record(
    "TypedLocalObjectReference",
    apiGroup=opt(STRING, 1, go="APIGroup"),
    kind=req(STRING, 2),
    name=req(STRING, 3),
)

TYPED_OBJECT_REFERENCE = record(
    "TypedObjectReference",
    apiGroup=opt(STRING, 1, go="APIGroup"),
    kind=req(STRING, 2),
    name=req(STRING, 3),
    namespace=opt(STRING, 4, gated=True),
)

PERSISTENT_VOLUME_CLAIM_SPEC = record(
    "PersistentVolumeClaimSpec",
    "@access-modes @storage storageClassName volumeMode @data-source volumeAttributesClassName",
    accessModes=val(ListType(STRING), 1),
    selector=opt(LABEL_SELECTOR, 4),
    resources=req(VOLUME_RESOURCE_REQUIREMENTS, 2, optional=True),
    volumeName=val(STRING, 3),
    storageClassName=opt(STRING, 5, check="dns-subdomain"),
    volumeMode=opt(STRING, 6, default="Filesystem", enum="Block Filesystem"),
    dataSource=opt(TYPED_LOCAL_OBJECT_REFERENCE, 7),
    dataSourceRef=opt(TYPED_OBJECT_REFERENCE, 8),
    volumeAttributesClassName=opt(STRING, 9, check="dns-subdomain"),
)

PERSISTENT_VOLUME_CLAIM_TEMPLATE = record(
    "PersistentVolumeClaimTemplate",
    "@template-metadata spec",
    metadata=req(OBJECT_META, 1, go="ObjectMeta", optional=True),
    spec=req(PERSISTENT_VOLUME_CLAIM_SPEC, 2),
)

EPHEMERAL_VOLUME_SOURCE = record(
    "EphemeralVolumeSource", volumeClaimTemplate=opt(PERSISTENT_VOLUME_CLAIM_TEMPLATE, 1, check="required")
)

IMAGE_VOLUME_SOURCE = record(
    "ImageVolumeSource",
    reference=val(STRING, 1, check="required"),
    pullPolicy=val(STRING, 2, default=volume_pull_policy, check="required", enum="Always IfNotPresent Never"),
)
CSI_VOLUME_SOURCE = record(
    "CSIVolumeSource",
    "driver @publish-secret",
    driver=req(STRING, 1, check="required driver-name"),
    readOnly=opt(BOOL, 2),
    fsType=opt(STRING, 3, go="FSType"),
    volumeAttributes=val(MapType(STRING), 4),
    nodePublishSecretRef=opt(LOCAL_OBJECT_REFERENCE, 5),
)

_MEMBERS: dict[str, Shape] = {
    "": STRING,
    "bool": BOOL,
    "int32": INT32,
    "list": ListType(STRING),
    "map": MapType(STRING),
    "secret": LOCAL_OBJECT_REFERENCE,
}


def _driver(go: str, number: str, members: str, model: str = "") -> FieldRow:
    """Return the row of a storage driver that no node here can mount: only the form of its fields is checked.

    `members` are `name=number`, with `!` after a name that is required, `?` after one whose zero is kept, and
    `:` and the type after one that is not text.
    """
    rows = {}
    for member in members.split():
        left, _, member_number = member.partition("=")
        name, _, shape = left.partition(":")
        make = req if name.endswith("!") else opt if name.endswith("?") or shape == "secret" else val
        check = "required" if make is req else ""
        rows[name.rstrip("!?")] = make(_MEMBERS[shape], member_number, check=check)
    return opt(record(model or f"{go}VolumeSource", **rows), number, go=go)


VOLUME = record(
    "Volume",
    "@volume-source",
    name=req(STRING, 1),
    hostPath=opt(HOST_PATH_VOLUME_SOURCE, "2.1"),
    emptyDir=opt(EMPTY_DIR_VOLUME_SOURCE, "2.2"),
    gcePersistentDisk=_driver(
        "GCEPersistentDisk", "2.3", "pdName!=1 fsType=2 partition:int32=3 readOnly:bool=4"
    ),
    awsElasticBlockStore=_driver(
        "AWSElasticBlockStore", "2.4", "volumeID!=1 fsType=2 partition:int32=3 readOnly:bool=4"
    ),
    gitRepo=_driver("GitRepo", "2.5", "repository!=1 revision=2 directory=3"),
    secret=opt(SECRET_VOLUME_SOURCE, "2.6"),
    nfs=_driver("NFS", "2.7", "server!=1 path!=2 readOnly:bool=3"),
    iscsi=_driver(
        "ISCSI",
        "2.8",
        "targetPortal!=1 iqn!=2 lun?:int32=3 iscsiInterface=4 fsType=5 readOnly:bool=6 "
        "portals:list=7 chapAuthDiscovery:bool=8 chapAuthSession:bool=11 secretRef:secret=10 "
        "initiatorName?=12",
    ),
    glusterfs=_driver("Glusterfs", "2.9", "endpoints!=1 path!=2 readOnly:bool=3"),
    persistentVolumeClaim=opt(PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE, "2.10"),
    rbd=_driver(
        "RBD",
        "2.11",
        "monitors!:list=1 image!=2 fsType=3 pool=4 user=5 keyring=6 secretRef:secret=7 readOnly:bool=8",
    ),
    quobyte=_driver("Quobyte", "2.21", "registry!=1 volume!=2 readOnly:bool=3 user=4 group=5 tenant=6"),
    flexVolume=_driver(
        "FlexVolume",
        "2.12",
        "driver!=1 fsType=2 secretRef:secret=3 readOnly:bool=4 options:map=5",
        model="FlexVolumeSource",
    ),
    cinder=_driver("Cinder", "2.13", "volumeID!=1 fsType=2 readOnly:bool=3 secretRef:secret=4"),
    cephfs=_driver(
        "CephFS", "2.14", "monitors!:list=1 path=2 user=3 secretFile=4 secretRef:secret=5 readOnly:bool=6"
    ),
    flocker=_driver("Flocker", "2.15", "datasetName=1 datasetUUID=2"),
    downwardAPI=opt(DOWNWARD_API_VOLUME_SOURCE, "2.16"),
    fc=_driver("FC", "2.17", "targetWWNs:list=1 lun?:int32=2 fsType=3 readOnly:bool=4 wwids:list=5"),
    azureFile=_driver("AzureFile", "2.18", "secretName!=1 shareName!=2 readOnly:bool=3"),
    configMap=opt(CONFIG_MAP_VOLUME_SOURCE, "2.19"),
    vsphereVolume=_driver(
        "VsphereVolume",
        "2.20",
        "volumePath!=1 fsType=2 storagePolicyName=3 storagePolicyID=4",
        model="VsphereVirtualDiskVolumeSource",
    ),
    azureDisk=_driver(
        "AzureDisk", "2.22", "diskName!=1 diskURI!=2 cachingMode?=3 fsType?=4 readOnly?:bool=5 kind?=6"
    ),
    photonPersistentDisk=_driver("PhotonPersistentDisk", "2.23", "pdID!=1 fsType=2"),
    projected=opt(PROJECTED_VOLUME_SOURCE, "2.26"),
    portworxVolume=_driver(
        "PortworxVolume", "2.24", "volumeID!=1 fsType=2 readOnly:bool=3", model="PortworxVolumeSource"
    ),
    scaleIO=_driver(
        "ScaleIO",
        "2.25",
        "gateway!=1 system!=2 secretRef:secret=3 sslEnabled:bool=4 protectionDomain=5 "
        "storagePool=6 storageMode=7 volumeName!=8 fsType=9 readOnly:bool=10",
    ),
    storageos=_driver(
        "StorageOS", "2.27", "volumeName!=1 volumeNamespace=2 fsType=3 readOnly:bool=4 secretRef:secret=5"
    ),
    csi=opt(CSI_VOLUME_SOURCE, "2.28", go="CSI"),
    ephemeral=opt(EPHEMERAL_VOLUME_SOURCE, "2.29"),
    image=opt(IMAGE_VOLUME_SOURCE, "2.30"),
)

VOLUME = filling(VOLUME, empty_dir)
