"""Volumes that a storage system outside the node serves: one record a source."""

from corelane.apiserver.schema.notation import BOOL, INT32, STRING, List, Map, opt, record, req, val

LOCAL_OBJECT_REFERENCE = record(
    "LocalObjectReference",
    name=val(STRING, default=""),
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

NFS_VOLUME_SOURCE = record(
    "NFSVolumeSource",
    server=req(STRING, check="required"),
    path=req(STRING, check="required absolute-path!"),
    readOnly=val(BOOL),
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
