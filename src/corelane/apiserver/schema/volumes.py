"""Volumes of a pod: one record a source."""

from corelane.apiserver.schema.fillers import empty_dir, volume_pull_policy
from corelane.apiserver.schema.meta import LABEL_SELECTOR, OBJECT_META
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

HOST_PATH_VOLUME_SOURCE = record(
    "HostPathVolumeSource",
    path=req(STRING),
    type=opt(STRING, default=""),
)

EMPTY_DIR_VOLUME_SOURCE = record(
    "EmptyDirVolumeSource",
    medium=val(STRING),
    sizeLimit=opt(QUANTITY),
)

GCE_PERSISTENT_DISK_VOLUME_SOURCE = record(
    "GCEPersistentDiskVolumeSource",
    pdName=req(STRING, go="PDName"),
    fsType=val(STRING, go="FSType"),
    partition=val(INT32),
    readOnly=val(BOOL),
)

AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE = record(
    "AWSElasticBlockStoreVolumeSource",
    volumeID=req(STRING),
    fsType=val(STRING, go="FSType"),
    partition=val(INT32),
    readOnly=val(BOOL),
)

GIT_REPO_VOLUME_SOURCE = record(
    "GitRepoVolumeSource",
    repository=req(STRING),
    revision=val(STRING),
    directory=val(STRING),
)

KEY_TO_PATH = record(
    "KeyToPath",
    key=req(STRING),
    path=req(STRING),
    mode=opt(INT32),
)

SECRET_VOLUME_SOURCE = record(
    "SecretVolumeSource",
    secretName=val(STRING),
    items=val(List(KEY_TO_PATH)),
    defaultMode=opt(INT32, default=0o644),
    optional=opt(BOOL),
)

NFS_VOLUME_SOURCE = record(
    "NFSVolumeSource",
    server=req(STRING),
    path=req(STRING),
    readOnly=val(BOOL),
)

LOCAL_OBJECT_REFERENCE = record(
    "LocalObjectReference",
    name=val(STRING, default=""),
)

ISCSI_VOLUME_SOURCE = record(
    "ISCSIVolumeSource",
    targetPortal=req(STRING),
    iqn=req(STRING, go="IQN"),
    lun=req(INT32),
    iscsiInterface=val(STRING, go="ISCSIInterface", default="default"),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
    portals=val(List(STRING)),
    chapAuthDiscovery=val(BOOL, go="DiscoveryCHAPAuth"),
    chapAuthSession=val(BOOL, go="SessionCHAPAuth"),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    initiatorName=opt(STRING),
)

GLUSTERFS_VOLUME_SOURCE = record(
    "GlusterfsVolumeSource",
    endpoints=req(STRING, go="EndpointsName"),
    path=req(STRING),
    readOnly=val(BOOL),
)

PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE = record(
    "PersistentVolumeClaimVolumeSource",
    claimName=req(STRING),
    readOnly=val(BOOL),
)

RBD_VOLUME_SOURCE = record(
    "RBDVolumeSource",
    monitors=req(List(STRING), go="CephMonitors"),
    image=req(STRING, go="RBDImage"),
    fsType=val(STRING, go="FSType"),
    pool=val(STRING, go="RBDPool", default="rbd"),
    user=val(STRING, go="RadosUser", default="admin"),
    keyring=val(STRING, default="/etc/ceph/keyring"),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    readOnly=val(BOOL),
)

FLEX_VOLUME_SOURCE = record(
    "FlexVolumeSource",
    driver=req(STRING),
    fsType=val(STRING, go="FSType"),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    readOnly=val(BOOL),
    options=val(Map(STRING)),
)

CINDER_VOLUME_SOURCE = record(
    "CinderVolumeSource",
    volumeID=req(STRING),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
)

CEPH_FS_VOLUME_SOURCE = record(
    "CephFSVolumeSource",
    monitors=req(List(STRING)),
    path=val(STRING),
    user=val(STRING),
    secretFile=val(STRING),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    readOnly=val(BOOL),
)

FLOCKER_VOLUME_SOURCE = record(
    "FlockerVolumeSource",
    datasetName=val(STRING),
    datasetUUID=val(STRING),
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
    path=req(STRING),
    fieldRef=opt(OBJECT_FIELD_SELECTOR),
    resourceFieldRef=opt(RESOURCE_FIELD_SELECTOR),
    mode=opt(INT32),
)

DOWNWARD_API_VOLUME_SOURCE = record(
    "DownwardAPIVolumeSource",
    items=val(List(DOWNWARD_API_VOLUME_FILE)),
    defaultMode=opt(INT32, default=0o644),
)

FC_VOLUME_SOURCE = record(
    "FCVolumeSource",
    targetWWNs=val(List(STRING)),
    lun=opt(INT32),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
    wwids=val(List(STRING), go="WWIDs"),
)

AZURE_FILE_VOLUME_SOURCE = record(
    "AzureFileVolumeSource",
    secretName=req(STRING),
    shareName=req(STRING),
    readOnly=val(BOOL),
)

CONFIG_MAP_VOLUME_SOURCE = record(
    "ConfigMapVolumeSource",
    name=val(STRING, default=""),
    items=val(List(KEY_TO_PATH)),
    defaultMode=opt(INT32, default=0o644),
    optional=opt(BOOL),
)

VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE = record(
    "VsphereVirtualDiskVolumeSource",
    volumePath=req(STRING),
    fsType=val(STRING, go="FSType"),
    storagePolicyName=val(STRING),
    storagePolicyID=val(STRING),
)

QUOBYTE_VOLUME_SOURCE = record(
    "QuobyteVolumeSource",
    registry=req(STRING),
    volume=req(STRING),
    readOnly=val(BOOL),
    user=val(STRING),
    group=val(STRING),
    tenant=val(STRING),
)

AZURE_DISK_VOLUME_SOURCE = record(
    "AzureDiskVolumeSource",
    diskName=req(STRING),
    diskURI=req(STRING, go="DataDiskURI"),
    cachingMode=opt(STRING, default="ReadWrite"),
    fsType=opt(STRING, go="FSType", default="ext4"),
    readOnly=opt(BOOL, default=False),
    kind=opt(STRING, default="Shared"),
)

PHOTON_PERSISTENT_DISK_VOLUME_SOURCE = record(
    "PhotonPersistentDiskVolumeSource",
    pdID=req(STRING),
    fsType=val(STRING, go="FSType"),
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
    sources=req(List(VOLUME_PROJECTION), optional=True),
    defaultMode=opt(INT32, default=0o644),
)

PORTWORX_VOLUME_SOURCE = record(
    "PortworxVolumeSource",
    volumeID=req(STRING),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
)

SCALE_IO_VOLUME_SOURCE = record(
    "ScaleIOVolumeSource",
    gateway=req(STRING),
    system=req(STRING),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    sslEnabled=val(BOOL, go="SSLEnabled"),
    protectionDomain=val(STRING),
    storagePool=val(STRING),
    storageMode=val(STRING, default="ThinProvisioned"),
    volumeName=val(STRING),
    fsType=val(STRING, go="FSType", default="xfs"),
    readOnly=val(BOOL),
)

STORAGE_OS_VOLUME_SOURCE = record(
    "StorageOSVolumeSource",
    volumeName=val(STRING),
    volumeNamespace=val(STRING),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
)

CSI_VOLUME_SOURCE = record(
    "CSIVolumeSource",
    driver=req(STRING),
    readOnly=opt(BOOL),
    fsType=opt(STRING, go="FSType"),
    volumeAttributes=val(Map(STRING)),
    nodePublishSecretRef=opt(LOCAL_OBJECT_REFERENCE),
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
    accessModes=val(List(STRING)),
    selector=opt(LABEL_SELECTOR),
    resources=req(VOLUME_RESOURCE_REQUIREMENTS, optional=True),
    volumeName=val(STRING),
    storageClassName=opt(STRING),
    volumeMode=opt(STRING, default="Filesystem"),
    dataSource=opt(TYPED_LOCAL_OBJECT_REFERENCE),
    dataSourceRef=opt(TYPED_OBJECT_REFERENCE),
    volumeAttributesClassName=opt(STRING),
)

PERSISTENT_VOLUME_CLAIM_TEMPLATE = record(
    "PersistentVolumeClaimTemplate",
    metadata=req(OBJECT_META, go="ObjectMeta", optional=True),
    spec=req(PERSISTENT_VOLUME_CLAIM_SPEC),
)

EPHEMERAL_VOLUME_SOURCE = record(
    "EphemeralVolumeSource",
    volumeClaimTemplate=opt(PERSISTENT_VOLUME_CLAIM_TEMPLATE),
)

IMAGE_VOLUME_SOURCE = record(
    "ImageVolumeSource",
    reference=val(STRING),
    pullPolicy=val(STRING, default=volume_pull_policy),
)

VOLUME = record(
    "Volume",
    name=req(STRING),
    hostPath=opt(HOST_PATH_VOLUME_SOURCE),
    emptyDir=opt(EMPTY_DIR_VOLUME_SOURCE),
    gcePersistentDisk=opt(GCE_PERSISTENT_DISK_VOLUME_SOURCE, go="GCEPersistentDisk"),
    awsElasticBlockStore=opt(AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE, go="AWSElasticBlockStore"),
    gitRepo=opt(GIT_REPO_VOLUME_SOURCE),
    secret=opt(SECRET_VOLUME_SOURCE),
    nfs=opt(NFS_VOLUME_SOURCE, go="NFS"),
    iscsi=opt(ISCSI_VOLUME_SOURCE, go="ISCSI"),
    glusterfs=opt(GLUSTERFS_VOLUME_SOURCE),
    persistentVolumeClaim=opt(PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE),
    rbd=opt(RBD_VOLUME_SOURCE, go="RBD"),
    quobyte=opt(QUOBYTE_VOLUME_SOURCE),
    flexVolume=opt(FLEX_VOLUME_SOURCE),
    cinder=opt(CINDER_VOLUME_SOURCE),
    cephfs=opt(CEPH_FS_VOLUME_SOURCE, go="CephFS"),
    flocker=opt(FLOCKER_VOLUME_SOURCE),
    downwardAPI=opt(DOWNWARD_API_VOLUME_SOURCE),
    fc=opt(FC_VOLUME_SOURCE, go="FC"),
    azureFile=opt(AZURE_FILE_VOLUME_SOURCE),
    configMap=opt(CONFIG_MAP_VOLUME_SOURCE),
    vsphereVolume=opt(VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE),
    azureDisk=opt(AZURE_DISK_VOLUME_SOURCE),
    photonPersistentDisk=opt(PHOTON_PERSISTENT_DISK_VOLUME_SOURCE),
    projected=opt(PROJECTED_VOLUME_SOURCE),
    portworxVolume=opt(PORTWORX_VOLUME_SOURCE),
    scaleIO=opt(SCALE_IO_VOLUME_SOURCE),
    storageos=opt(STORAGE_OS_VOLUME_SOURCE, go="StorageOS"),
    csi=opt(CSI_VOLUME_SOURCE, go="CSI"),
    ephemeral=opt(EPHEMERAL_VOLUME_SOURCE),
    image=opt(IMAGE_VOLUME_SOURCE),
)

VOLUME = filling(VOLUME, empty_dir)
