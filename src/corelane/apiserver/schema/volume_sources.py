"""Volumes of a pod: one record a source; those of storage systems are in `disks`."""

from corelane.apiserver.schema import disks
from corelane.apiserver.schema.derived_defaults import empty_dir, volume_pull_policy
from corelane.apiserver.schema.notation import (
    BOOL,
    INT32,
    INT64,
    QUANTITY,
    RESOURCE_LIST,
    STRING,
    List,
    Map,
    filling,
    opt,
    record,
    req,
    val,
)
from corelane.apiserver.schema.object_meta import LABEL_SELECTOR, OBJECT_META

HOST_PATH_VOLUME_SOURCE = record(
    "HostPathVolumeSource",
    path=req(STRING, check="required no-backsteps"),
    type=opt(
        STRING,
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

EMPTY_DIR_VOLUME_SOURCE = record(
    "EmptyDirVolumeSource",
    medium=val(STRING),
    sizeLimit=opt(QUANTITY),
)

GIT_REPO_VOLUME_SOURCE = record(
    "GitRepoVolumeSource",
    "repository directory",
    repository=req(STRING, check="required"),
    revision=val(STRING),
    directory=val(STRING, check="relative-path"),
)

KEY_TO_PATH = record(
    "KeyToPath",
    key=req(STRING, check="required"),
    path=req(STRING, check="required local-path"),
    mode=opt(INT32, check="file-mode"),
)

SECRET_VOLUME_SOURCE = record(
    "SecretVolumeSource",
    "secretName defaultMode items",
    secretName=val(STRING, check="required"),
    items=val(List(KEY_TO_PATH)),
    defaultMode=opt(INT32, default=0o644, check="file-mode"),
    optional=opt(BOOL),
)

PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE = record(
    "PersistentVolumeClaimVolumeSource",
    claimName=req(STRING, check="required"),
    readOnly=val(BOOL),
)

OBJECT_FIELD_SELECTOR = record(
    "ObjectFieldSelector",
    apiVersion=val(STRING, go="APIVersion", default="v1"),
    fieldPath=req(STRING),
)

RESOURCE_FIELD_SELECTOR = record(
    "ResourceFieldSelector",
    containerName=val(STRING),
    resource=req(STRING),
    divisor=req(QUANTITY, optional=True),
)

DOWNWARD_API_VOLUME_FILE = record(
    "DownwardAPIVolumeFile",
    "path @downward-source mode",
    path=req(STRING, check="required local-path"),
    fieldRef=opt(OBJECT_FIELD_SELECTOR),
    resourceFieldRef=opt(RESOURCE_FIELD_SELECTOR),
    mode=opt(INT32, check="file-mode"),
)

DOWNWARD_API_VOLUME_SOURCE = record(
    "DownwardAPIVolumeSource",
    "defaultMode @downward-items",
    items=val(List(DOWNWARD_API_VOLUME_FILE)),
    defaultMode=opt(INT32, default=0o644, check="file-mode"),
)

CONFIG_MAP_VOLUME_SOURCE = record(
    "ConfigMapVolumeSource",
    "name defaultMode items",
    name=val(STRING, default="", check="required"),
    items=val(List(KEY_TO_PATH)),
    defaultMode=opt(INT32, default=0o644, check="file-mode"),
    optional=opt(BOOL),
)

SECRET_PROJECTION = record(
    "SecretProjection",
    name=val(STRING, default=""),
    items=val(List(KEY_TO_PATH)),
    optional=opt(BOOL),
)

DOWNWARD_API_PROJECTION = record(
    "DownwardAPIProjection",
    items=val(List(DOWNWARD_API_VOLUME_FILE)),
)

CONFIG_MAP_PROJECTION = record(
    "ConfigMapProjection",
    name=val(STRING, default=""),
    items=val(List(KEY_TO_PATH)),
    optional=opt(BOOL),
)

SERVICE_ACCOUNT_TOKEN_PROJECTION = record(
    "ServiceAccountTokenProjection",
    audience=val(STRING),
    expirationSeconds=opt(INT64, default=3600),
    path=req(STRING),
)

CLUSTER_TRUST_BUNDLE_PROJECTION = record(
    "ClusterTrustBundleProjection",
    name=opt(STRING),
    signerName=opt(STRING),
    labelSelector=opt(LABEL_SELECTOR),
    optional=opt(BOOL),
    path=req(STRING),
)

POD_CERTIFICATE_PROJECTION = record(
    "PodCertificateProjection",
    signerName=val(STRING),
    keyType=val(STRING),
    maxExpirationSeconds=opt(INT32),
    credentialBundlePath=val(STRING),
    keyPath=val(STRING),
    certificateChainPath=val(STRING),
    userAnnotations=val(Map(STRING)),
)

VOLUME_PROJECTION = record(
    "VolumeProjection",
    secret=opt(SECRET_PROJECTION),
    downwardAPI=opt(DOWNWARD_API_PROJECTION),
    configMap=opt(CONFIG_MAP_PROJECTION),
    serviceAccountToken=opt(SERVICE_ACCOUNT_TOKEN_PROJECTION),
    clusterTrustBundle=opt(CLUSTER_TRUST_BUNDLE_PROJECTION, gated=True),
    podCertificate=opt(POD_CERTIFICATE_PROJECTION, gated=True),
)

PROJECTED_VOLUME_SOURCE = record(
    "ProjectedVolumeSource",
    "defaultMode @projections",
    sources=req(List(VOLUME_PROJECTION), optional=True),
    defaultMode=opt(INT32, default=0o644, check="file-mode"),
)

VOLUME_RESOURCE_REQUIREMENTS = record(
    "VolumeResourceRequirements",
    limits=val(RESOURCE_LIST),
    requests=val(RESOURCE_LIST),
)

TYPED_LOCAL_OBJECT_REFERENCE = record(
    "TypedLocalObjectReference",
    apiGroup=opt(STRING, go="APIGroup"),
    kind=req(STRING),
    name=req(STRING),
)

TYPED_OBJECT_REFERENCE = record(
    "TypedObjectReference",
    apiGroup=opt(STRING, go="APIGroup"),
    kind=req(STRING),
    name=req(STRING),
    namespace=opt(STRING, gated=True),
)

PERSISTENT_VOLUME_CLAIM_SPEC = record(
    "PersistentVolumeClaimSpec",
    "@access-modes @storage storageClassName volumeMode @data-source volumeAttributesClassName",
    accessModes=val(List(STRING)),
    selector=opt(LABEL_SELECTOR),
    resources=req(VOLUME_RESOURCE_REQUIREMENTS, optional=True),
    volumeName=val(STRING),
    storageClassName=opt(STRING, check="dns-subdomain"),
    volumeMode=opt(STRING, default="Filesystem", enum="Block Filesystem"),
    dataSource=opt(TYPED_LOCAL_OBJECT_REFERENCE),
    dataSourceRef=opt(TYPED_OBJECT_REFERENCE),
    volumeAttributesClassName=opt(STRING, check="dns-subdomain"),
)

PERSISTENT_VOLUME_CLAIM_TEMPLATE = record(
    "PersistentVolumeClaimTemplate",
    "@template-metadata spec",
    metadata=req(OBJECT_META, go="ObjectMeta", optional=True),
    spec=req(PERSISTENT_VOLUME_CLAIM_SPEC),
)

EPHEMERAL_VOLUME_SOURCE = record(
    "EphemeralVolumeSource",
    volumeClaimTemplate=opt(PERSISTENT_VOLUME_CLAIM_TEMPLATE, check="required"),
)

IMAGE_VOLUME_SOURCE = record(
    "ImageVolumeSource",
    reference=val(STRING, check="required"),
    pullPolicy=val(STRING, default=volume_pull_policy, check="required", enum="Always IfNotPresent Never"),
)

VOLUME = record(
    "Volume",
    "@volume-source",
    name=req(STRING),
    hostPath=opt(HOST_PATH_VOLUME_SOURCE),
    emptyDir=opt(EMPTY_DIR_VOLUME_SOURCE),
    gcePersistentDisk=opt(disks.GCE_PERSISTENT_DISK_VOLUME_SOURCE, go="GCEPersistentDisk"),
    awsElasticBlockStore=opt(disks.AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE, go="AWSElasticBlockStore"),
    gitRepo=opt(GIT_REPO_VOLUME_SOURCE),
    secret=opt(SECRET_VOLUME_SOURCE),
    nfs=opt(disks.NFS_VOLUME_SOURCE, go="NFS"),
    iscsi=opt(disks.ISCSI_VOLUME_SOURCE, go="ISCSI"),
    glusterfs=opt(disks.GLUSTERFS_VOLUME_SOURCE),
    persistentVolumeClaim=opt(PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE),
    rbd=opt(disks.RBD_VOLUME_SOURCE, go="RBD"),
    quobyte=opt(disks.QUOBYTE_VOLUME_SOURCE),
    flexVolume=opt(disks.FLEX_VOLUME_SOURCE),
    cinder=opt(disks.CINDER_VOLUME_SOURCE),
    cephfs=opt(disks.CEPH_FS_VOLUME_SOURCE, go="CephFS"),
    flocker=opt(disks.FLOCKER_VOLUME_SOURCE),
    downwardAPI=opt(DOWNWARD_API_VOLUME_SOURCE),
    fc=opt(disks.FC_VOLUME_SOURCE, go="FC"),
    azureFile=opt(disks.AZURE_FILE_VOLUME_SOURCE),
    configMap=opt(CONFIG_MAP_VOLUME_SOURCE),
    vsphereVolume=opt(disks.VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE),
    azureDisk=opt(disks.AZURE_DISK_VOLUME_SOURCE),
    photonPersistentDisk=opt(disks.PHOTON_PERSISTENT_DISK_VOLUME_SOURCE),
    projected=opt(PROJECTED_VOLUME_SOURCE),
    portworxVolume=opt(disks.PORTWORX_VOLUME_SOURCE),
    scaleIO=opt(disks.SCALE_IO_VOLUME_SOURCE),
    storageos=opt(disks.STORAGE_OS_VOLUME_SOURCE, go="StorageOS"),
    csi=opt(disks.CSI_VOLUME_SOURCE, go="CSI"),
    ephemeral=opt(EPHEMERAL_VOLUME_SOURCE),
    image=opt(IMAGE_VOLUME_SOURCE),
)

VOLUME = filling(VOLUME, empty_dir)
