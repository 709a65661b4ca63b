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

GCE_PERSISTENT_DISK_VOLUME_SOURCE = record(
    "GCEPersistentDiskVolumeSource",
    "pdName partition",
    pdName=req(STRING, go="PDName", check="required"),
    fsType=val(STRING, go="FSType"),
    partition=val(INT32, check="partition"),
    readOnly=val(BOOL),
)

AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE = record(
    "AWSElasticBlockStoreVolumeSource",
    "volumeID partition",
    volumeID=req(STRING, check="required"),
    fsType=val(STRING, go="FSType"),
    partition=val(INT32, check="partition"),
    readOnly=val(BOOL),
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

NFS_VOLUME_SOURCE = record(
    "NFSVolumeSource",
    server=req(STRING, check="required"),
    path=req(STRING, check="required absolute-path!"),
    readOnly=val(BOOL),
)

LOCAL_OBJECT_REFERENCE = record(
    "LocalObjectReference",
    name=val(STRING, default=""),
)

ISCSI_VOLUME_SOURCE = record(
    "ISCSIVolumeSource",
    "targetPortal @iqn lun @chap",
    targetPortal=req(STRING, check="required"),
    iqn=req(STRING, go="IQN"),
    lun=req(INT32, check="lun"),
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
    endpoints=req(STRING, go="EndpointsName", check="required"),
    path=req(STRING, check="required"),
    readOnly=val(BOOL),
)

PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE = record(
    "PersistentVolumeClaimVolumeSource",
    claimName=req(STRING, check="required"),
    readOnly=val(BOOL),
)

RBD_VOLUME_SOURCE = record(
    "RBDVolumeSource",
    "monitors image",
    monitors=req(List(STRING), go="CephMonitors", check="required"),
    image=req(STRING, go="RBDImage", check="required"),
    fsType=val(STRING, go="FSType"),
    pool=val(STRING, go="RBDPool", default="rbd"),
    user=val(STRING, go="RadosUser", default="admin"),
    keyring=val(STRING, default="/etc/ceph/keyring"),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    readOnly=val(BOOL),
)

FLEX_VOLUME_SOURCE = record(
    "FlexVolumeSource",
    "driver @flex-options",
    driver=req(STRING, check="required"),
    fsType=val(STRING, go="FSType"),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    readOnly=val(BOOL),
    options=val(Map(STRING)),
)

CINDER_VOLUME_SOURCE = record(
    "CinderVolumeSource",
    "volumeID @secret-name",
    volumeID=req(STRING, check="required"),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
)

CEPH_FS_VOLUME_SOURCE = record(
    "CephFSVolumeSource",
    "monitors",
    monitors=req(List(STRING), check="required"),
    path=val(STRING),
    user=val(STRING),
    secretFile=val(STRING),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    readOnly=val(BOOL),
)

FLOCKER_VOLUME_SOURCE = record(
    "FlockerVolumeSource",
    "@flocker",
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

FC_VOLUME_SOURCE = record(
    "FCVolumeSource",
    "@fibre-channel",
    targetWWNs=val(List(STRING)),
    lun=opt(INT32),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
    wwids=val(List(STRING), go="WWIDs"),
)

AZURE_FILE_VOLUME_SOURCE = record(
    "AzureFileVolumeSource",
    "secretName shareName",
    secretName=req(STRING, check="required"),
    shareName=req(STRING, check="required"),
    readOnly=val(BOOL),
)

CONFIG_MAP_VOLUME_SOURCE = record(
    "ConfigMapVolumeSource",
    "name defaultMode items",
    name=val(STRING, default="", check="required"),
    items=val(List(KEY_TO_PATH)),
    defaultMode=opt(INT32, default=0o644, check="file-mode"),
    optional=opt(BOOL),
)

VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE = record(
    "VsphereVirtualDiskVolumeSource",
    "volumePath",
    volumePath=req(STRING, check="required"),
    fsType=val(STRING, go="FSType"),
    storagePolicyName=val(STRING),
    storagePolicyID=val(STRING),
)

QUOBYTE_VOLUME_SOURCE = record(
    "QuobyteVolumeSource",
    "@quobyte volume",
    registry=req(STRING),
    volume=req(STRING, check="required"),
    readOnly=val(BOOL),
    user=val(STRING),
    group=val(STRING),
    tenant=val(STRING),
)

AZURE_DISK_VOLUME_SOURCE = record(
    "AzureDiskVolumeSource",
    "diskName diskURI cachingMode kind @disk-uri",
    diskName=req(STRING, check="required"),
    diskURI=req(STRING, go="DataDiskURI", check="required"),
    cachingMode=opt(STRING, default="ReadWrite", enum="None ReadOnly ReadWrite"),
    fsType=opt(STRING, go="FSType", default="ext4"),
    readOnly=opt(BOOL, default=False),
    kind=opt(STRING, default="Shared", enum="Dedicated Managed Shared"),
)

PHOTON_PERSISTENT_DISK_VOLUME_SOURCE = record(
    "PhotonPersistentDiskVolumeSource",
    "pdID",
    pdID=req(STRING, check="required"),
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
    "defaultMode @projections",
    sources=req(List(VOLUME_PROJECTION), optional=True),
    defaultMode=opt(INT32, default=0o644, check="file-mode"),
)

PORTWORX_VOLUME_SOURCE = record(
    "PortworxVolumeSource",
    "volumeID",
    volumeID=req(STRING, check="required"),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
)

SCALE_IO_VOLUME_SOURCE = record(
    "ScaleIOVolumeSource",
    "gateway system volumeName",
    gateway=req(STRING, check="required"),
    system=req(STRING, check="required"),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
    sslEnabled=val(BOOL, go="SSLEnabled"),
    protectionDomain=val(STRING),
    storagePool=val(STRING),
    storageMode=val(STRING, default="ThinProvisioned"),
    volumeName=val(STRING, check="required"),
    fsType=val(STRING, go="FSType", default="xfs"),
    readOnly=val(BOOL),
)

STORAGE_OS_VOLUME_SOURCE = record(
    "StorageOSVolumeSource",
    "volumeName volumeNamespace @secret-name",
    volumeName=val(STRING, check="required dns-label"),
    volumeNamespace=val(STRING, check="dns-label"),
    fsType=val(STRING, go="FSType"),
    readOnly=val(BOOL),
    secretRef=opt(LOCAL_OBJECT_REFERENCE),
)

CSI_VOLUME_SOURCE = record(
    "CSIVolumeSource",
    "driver @publish-secret",
    driver=req(STRING, check="required driver-name"),
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
